//! The way in which the virtual address comes to this machine, and its state there.

use config::{Cluster as Configured, VirtualAddress, in_words};
use engine::ids::Micros;
use net::sys::interface::{Device, DeviceAddress};

/// The way to bring the address to this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Means {
    Kernel(Vec<VirtualAddress>),
    Commands { up: String, down: String },
}

impl Means {
    /// Returns the means that are configured.
    pub(super) fn of(configured: &Configured) -> Option<Self> {
        let up = configured.virtual_address_up_command.clone();
        match up.zip(configured.virtual_address_down_command.clone()) {
            Some((up, down)) => Some(Self::Commands { up, down }),
            None if configured.virtual_address.is_empty() => None,
            None => Some(Self::Kernel(configured.virtual_address.clone())),
        }
    }

    pub(super) fn in_words(&self) -> String {
        match self {
            Self::Kernel(all) => {
                let all: Vec<_> = all.iter().map(ToString::to_string).collect();
                format!("the virtual address {}", all.join(", "))
            }
            Self::Commands { .. } => "the virtual address".to_owned(),
        }
    }
}

/// The facts about the address on this machine.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The means by which this machine may have the address now. At the start, an earlier process may have
    /// left it.
    pub(super) by: Option<Means>,
    /// The kernel has removed it by then (CLOCK_BOOTTIME), whatever this process does.
    pub(super) ends_at: Micros,
    /// This process has brought it.
    pub(super) is_here: bool,
    /// Why this machine cannot have it, as was seen before it was to have it.
    pub(super) unfit: Option<String>,
    /// Why the last attempt has failed.
    pub(super) trouble: Option<String>,
}

pub(super) fn device_address(own: &VirtualAddress) -> DeviceAddress {
    DeviceAddress { address: own.address, prefix: own.prefix }
}

/// Removes addresses of the kernel. They end by themselves, too.
///
/// # Errors
/// One of them may still be there.
pub(super) fn remove(all: &[VirtualAddress]) -> Result<(), String> {
    let mut outcome = Ok(());
    for own in all {
        let removed =
            Device::named(&own.device).and_then(|device| device.remove(device_address(own)));
        if let Err(error) = removed {
            let why = in_words(&error);
            outcome = Err(format!("virtual_address: {own} cannot be removed: {why}"));
        }
    }
    outcome
}
