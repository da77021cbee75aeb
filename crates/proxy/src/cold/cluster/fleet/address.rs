//! The virtual address of a cluster: this machine has it while `cluster::fleet` says so.
//!
//! The kernel removes an address at the end of its life time, whatever this process does. A process that
//! was stopped between a look at the clock and the order to the kernel would lengthen the life time. So
//! nothing comes between the two, and the clock is looked at again afterwards.

use std::{io, time::Duration};

use ::cluster::{
    Micros,
    fleet::{Holding, OwnAddress, lease::VIEW},
};
use config::{Cluster as Configured, VirtualAddress, in_words};
use net::sys::{
    interface::{Device, missing_capabilities},
    process,
};
use tokio::time::{Instant, sleep};

use super::{
    means::{self, Means, device_address},
    state::Fleet,
};
use crate::{
    cold::{cluster::command, controller::Controller},
    exchange::hub::lock,
    log, warning,
};

/// The interval at which the lease is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// The neighbours are told at these times after the address has come: packets may be lost, and a switch
/// may take no packets yet.
const ANNOUNCEMENTS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];
/// An order to the kernel that takes longer may have been carried out too late.
const ORDER_MAX: Micros = 200_000;
/// The pause after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// Returns the facts about the address for `cluster::fleet`.
pub(super) fn own(configured: &Configured, fleet: &Fleet) -> OwnAddress {
    let state = lock(&fleet.address);
    // A holder that becomes unfit gives the address up by itself.
    let is_wanted = Means::of(configured).is_some() && state.unfit.is_none();
    OwnAddress { is_wanted, is_up: state.by.is_some() }
}

/// Returns why this machine cannot have these addresses.
fn why_unfit(all: &[VirtualAddress]) -> Option<String> {
    let missing = missing_capabilities();
    if !missing.is_empty() {
        return Some(format!("virtual_address: Weir has no {}", missing.join(" and no ")));
    }
    all.iter().find_map(|own| running_device(own).err())
}

/// Names the capability that is missing, if one is.
fn explained(error: &io::Error, capability: &str) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!("Weir needs {capability}: {}", in_words(error)),
        _ => in_words(error),
    }
}

/// Returns the device of an address, if its line carries packets.
fn running_device(own: &VirtualAddress) -> Result<Device, String> {
    Device::running(&own.device).map_err(|why| format!("virtual_address: {why}"))
}

/// The address of one cluster, as its task sees it.
struct Keeper<'a> {
    controller: &'a Controller,
    name: &'a str,
    configured: &'a Configured,
    fleet: &'a Fleet,
    /// The end of the lease for which the kernel has the address.
    until: Micros,
    /// When the address came, and how often the neighbours were told since then.
    announced: (Instant, usize),
    /// When this machine was looked at.
    checked_at: Option<Instant>,
}

/// Brings the address and removes it, forever.
pub(super) async fn keep(
    controller: &Controller,
    (name, configured): (&str, &Configured),
    fleet: &Fleet,
) {
    let announced = (Instant::now(), ANNOUNCEMENTS.len());
    let mut own =
        Keeper { controller, name, configured, fleet, until: 0, announced, checked_at: None };
    let means = Means::of(configured);
    own.check_machine(means.as_ref());
    loop {
        if let Err(why) = own.look(means.as_ref()).await {
            own.fail(&why).await;
            sleep(RETRY).await;
        }
        tokio::select! {
            () = sleep(LOOK) => {}
            () = fleet.changed.notified() => {}
        }
    }
}

impl Keeper<'_> {
    /// Does what is due now.
    async fn look(&mut self, means: Option<&Means>) -> Result<(), String> {
        // The successor has the address.
        if self.controller.0.clusters.right.is_ceded() {
            self.until = 0;
            return Ok(());
        }
        let by = lock(&self.fleet.address).by.clone();
        if by.as_ref().is_some_and(|by| Some(by) != means) {
            return self.remove("the configuration has changed").await;
        }
        let holding = lock(&self.fleet.membership).holding(process::boottime_us());
        match (holding, means) {
            (Holding::Inherited, _) | (Holding::For(_), None) => Ok(()),
            (Holding::No, _) if by.is_none() => {
                self.check_machine(means);
                Ok(())
            }
            (Holding::No, _) => self.remove(&self.why_not()).await,
            (Holding::For(_), Some(Means::Kernel(all))) => self.lengthen(all),
            (Holding::For(_), Some(means @ Means::Commands { up, .. })) => {
                if self.until == 0 {
                    lock(&self.fleet.address).by = Some(means.clone());
                    self.run("virtual_address_up_command", up).await?;
                    self.came(means);
                    self.until = Micros::MAX;
                }
                Ok(())
            }
        }
    }

    /// Finds out whether this machine could have the address. If it could not, it leaves the address to
    /// others from the beginning.
    fn check_machine(&mut self, means: Option<&Means>) {
        if self.checked_at.is_some_and(|before| before.elapsed() < RETRY) {
            return;
        }
        self.checked_at = Some(Instant::now());
        let why = match means {
            Some(Means::Kernel(all)) => why_unfit(all),
            Some(Means::Commands { .. }) | None => None,
        };
        let mut state = lock(&self.fleet.address);
        if let Some(why) = why.as_ref().filter(|why| state.unfit.as_ref() != Some(why)) {
            warning!("cluster {}: {why}", self.name);
        }
        if why.is_none() && state.trouble == state.unfit {
            state.trouble = None;
        }
        state.unfit = why;
    }

    /// Returns why this machine has the address no more.
    fn why_not(&self) -> String {
        let membership = lock(&self.fleet.membership);
        let holder = membership.view().address.as_ref().map(|own| own.record.member.as_str());
        let me = &membership.me().member;
        match holder.filter(|holder| holder != me) {
            Some(holder) => format!("member {holder} has it"),
            None if membership.is_leaving() => "this Weir leaves the members".to_owned(),
            None if membership.is_too_short_for_address(process::boottime_us()) => {
                "etcd does not renew the lease of this Weir".to_owned()
            }
            None => "this Weir has given it up".to_owned(),
        }
    }

    /// Has the kernel keep the addresses as long as the lease allows, if that is longer than before.
    fn lengthen(&mut self, all: &[VirtualAddress]) -> Result<(), String> {
        let until = lock(&self.fleet.membership).lease().until();
        if until > self.until {
            for own in all {
                let device = running_device(own)?;
                if !self.put(&device, own)? {
                    return Ok(());
                }
            }
            if self.until == 0 {
                self.came(&Means::Kernel(all.to_vec()));
                self.announced = (Instant::now(), 0);
            }
            self.until = until;
        }
        self.announce(all)
    }

    /// Puts one address at the device. Returns false if this machine is not to have it any more.
    fn put(&self, device: &Device, own: &VirtualAddress) -> Result<bool, String> {
        // Nobody gives the address up meanwhile.
        let membership = lock(&self.fleet.membership);
        {
            let mut state = lock(&self.fleet.address);
            state.by = Means::of(self.configured);
            // Its life time is shorter.
            state.ends_at = process::boottime_us() + VIEW;
        }
        let (address, mut ordered_at) = (device_address(own), None);
        let put = device.put(address, || {
            let now = process::boottime_us();
            let Holding::For(seconds) = membership.holding(now) else { return None };
            ordered_at = Some(now);
            Some(seconds)
        });
        put.map_err(|error| {
            let why = explained(&error, "CAP_NET_ADMIN");
            format!("virtual_address: {own} cannot be added: {why}")
        })?;
        let is_in_time = |ordered_at| process::boottime_us() <= ordered_at + ORDER_MAX;
        if ordered_at.is_some() && !ordered_at.is_some_and(is_in_time) {
            // This process was stopped: the life time may be too long.
            let _ = device.remove(address);
            return Ok(false);
        }
        Ok(ordered_at.is_some())
    }

    fn announce(&mut self, all: &[VirtualAddress]) -> Result<(), String> {
        let (since, count) = self.announced;
        if ANNOUNCEMENTS.get(count).is_none_or(|due| since.elapsed() < *due) {
            return Ok(());
        }
        self.announced.1 += 1;
        for own in all {
            running_device(own)?.announce(own.address).map_err(|error| {
                let why = explained(&error, "CAP_NET_RAW");
                format!("virtual_address: {own} cannot be announced: {why}")
            })?;
        }
        Ok(())
    }

    fn came(&self, means: &Means) {
        let mut state = lock(&self.fleet.address);
        (state.is_here, state.trouble) = (true, None);
        log!("cluster {}: this Weir has {}", self.name, means.in_words());
    }

    /// Removes the address from this machine.
    async fn remove(&mut self, why: &str) -> Result<(), String> {
        self.until = 0;
        let (by, ends_at) = {
            let state = lock(&self.fleet.address);
            (state.by.clone(), state.ends_at)
        };
        let Some(means) = by else { return Ok(()) };
        match &means {
            // Another member must not take it while the kernel may have it.
            Means::Kernel(all) => match means::remove(all) {
                Err(why) if process::boottime_us() < ends_at => return Err(why),
                Ok(()) | Err(_) => {}
            },
            Means::Commands { down, .. } => {
                self.run("virtual_address_down_command", down).await?;
            }
        }
        let mut state = lock(&self.fleet.address);
        state.by = None;
        if std::mem::take(&mut state.is_here) {
            let name = &self.name;
            log!("cluster {name}: this Weir has {} no more: {why}", means.in_words());
        }
        drop(state);
        self.fleet.changed.notify_waiters();
        Ok(())
    }

    /// This machine cannot have the address: another member may.
    async fn fail(&mut self, why: &str) {
        let is_news = lock(&self.fleet.address).trouble.replace(why.to_owned());
        if is_news.as_deref() != Some(why) {
            warning!("cluster {}: {why}", self.name);
        }
        self.fleet.with(|membership| membership.abstain(process::boottime_us()));
        let _ = self.remove(why).await;
    }

    async fn run(&self, key: &str, text: &str) -> Result<(), String> {
        let config = self.controller.config();
        let member = lock(&self.fleet.membership).me().member.clone();
        let place = (&*config, self.name);
        let limit = self.configured.command_timeout;
        let done = command::run_for_member(text, place, &member, limit).await;
        done.map_err(|why| format!("{key}: {why}"))
    }
}
