//! The addresses of host names.
//!
//! The C library looks names up, on a thread of its own for each: so the system's files count, each
//! as it is at that moment. If `resolv_conf` is set, which the C library cannot be told, Weir asks
//! the name servers of that file itself (`servers.rs`), after the hosts file. `names.rs` caches the
//! answers.

mod hosts;
pub(crate) mod names;
mod servers;

use std::{
    fmt,
    net::IpAddr,
    path::Path,
    sync::{Arc, Mutex},
    thread,
};

use config::Global;
use engine::ids::Micros;
use hickory_resolver::proto::rr::RData;
use net::sys::names::NameError;
use tokio::sync::{Semaphore, oneshot};

use self::{
    names::{Names, NamesInfo},
    servers::Servers,
};
use crate::exchange::hub::lock;

const RESOLV_CONF: &str = "/etc/resolv.conf";
const HOSTS: &str = "/etc/hosts";

/// The C library looks up so many names at a time. Others wait.
const LOOKUPS_MAX: usize = 64;

/// The lookups and the table of names.
pub(crate) struct Dns {
    /// Does Weir ask the name servers of `resolv_conf`?
    asks: bool,
    servers: Servers,
    lookups: Arc<Semaphore>,
    pub(crate) names: Mutex<Names>,
}

impl fmt::Debug for Dns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dns").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Dns {
    pub(crate) fn new(global: &Global) -> Self {
        let asks = !global.resolv_conf.is_empty();
        let servers = Servers::new(if asks { &global.resolv_conf } else { RESOLV_CONF });
        if asks {
            // A mistake is told at the start.
            let _ = servers.resolver();
        }
        Self { asks, servers, lookups: Semaphore::new(LOOKUPS_MAX).into(), names: Mutex::default() }
    }

    /// Returns an address of a host, for a caller that tries one only: IPv4, if there is one.
    pub(crate) async fn address(&self, host: &str) -> Result<IpAddr, String> {
        let found = self.look_up(host).await.map_err(|error| format!("DNS: {error}"))?;
        let v4 = found.iter().find(|ip| ip.is_ipv4());
        v4.or(found.first()).copied().ok_or_else(|| format!("{host} has no address"))
    }

    /// Returns all addresses of a host; none if there certainly are none.
    pub(crate) async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, String> {
        match self.look_up(host).await {
            Ok(found) => Ok(found),
            Err(NameError::Unknown(_)) => Ok(Vec::new()),
            Err(NameError::Failed(reason)) => Err(reason),
        }
    }

    /// Looks up a name, without the table of names. Returns at least one address.
    ///
    /// # Errors
    /// When there is none, or none can be found.
    pub(crate) async fn look_up(&self, host: &str) -> Result<Vec<IpAddr>, NameError> {
        if let Ok(ip) = host.parse() {
            return Ok(vec![ip]);
        }
        let found = match self.asks {
            true => self.ask(host).await?,
            false => self.by_c_library(host).await?,
        };
        match found.is_empty() {
            true => Err(NameError::Unknown(format!("{host} has no address"))),
            false => Ok(found),
        }
    }

    async fn by_c_library(&self, host: &str) -> Result<Vec<IpAddr>, NameError> {
        let failed = |error: &dyn fmt::Display| NameError::Failed(error.to_string());
        let turn = self.lookups.clone().acquire_owned().await.map_err(|error| failed(&error))?;
        let (answer, answered) = oneshot::channel();
        let host = host.to_owned();
        // No task of the runtime: the end of the process would wait for it.
        let thread = thread::Builder::new().name("weir-names".to_owned());
        let thread = thread.spawn(move || {
            let found = net::sys::names::addresses(&host);
            // Its caller may have gone, but the lookup went on until now.
            drop(turn);
            answer.send(found)
        });
        thread.map_err(|error| failed(&error))?;
        answered.await.map_err(|error| failed(&error))?
    }

    async fn ask(&self, host: &str) -> Result<Vec<IpAddr>, NameError> {
        let known = hosts::addresses(Path::new(HOSTS), host);
        if !known.is_empty() {
            return Ok(known);
        }
        let resolver = self.servers.resolver().map_err(NameError::Failed)?;
        match resolver.lookup_ip(host).await {
            Ok(found) => Ok(found.iter().collect()),
            Err(error) if error.is_no_records_found() => Err(NameError::Unknown(error.to_string())),
            Err(error) => Err(NameError::Failed(error.to_string())),
        }
    }

    /// Returns the serial number of a zone. The C library cannot be asked for it.
    pub(crate) async fn serial_of(&self, zone: &str) -> Option<u32> {
        let found = self.servers.resolver().ok()?.soa_lookup(zone).await.ok()?;
        found.answers().iter().find_map(|record| match &record.data {
            RData::SOA(soa) => Some(soa.serial),
            _ => None,
        })
    }

    pub(crate) fn info(&self, now: Micros) -> NamesInfo {
        lock(&self.names).info(now)
    }
}
