//! Host names to addresses, off the workers: a lookup may take seconds. `names.rs` remembers the
//! answers; here the questions are asked, by the system's resolv.conf and hosts file, and workers
//! are told what came of them.

mod names;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use config::Global;
use engine::ids::{Micros, WorkerId};
use hickory_resolver::{
    TokioResolver,
    config::{LookupIpStrategy, NameServerConfig, ResolverConfig, ResolverOpts},
    net::{NetError, runtime::TokioRuntimeProvider},
    proto::rr::RData,
    system_conf,
};

use self::names::{Asked, Names};
pub use self::names::{HostInfo, NamesInfo, ZoneInfo};
use crate::{
    cold::controller::Controller, data::shared::ShellMail, exchange::hub::lock, log, warning,
};

const RESOLV_CONF: &str = "/etc/resolv.conf";
/// How often it is looked whether `dns_zone_check_period` was set meanwhile.
const ZONE_LOOK: Duration = Duration::from_secs(1);

/// A worker's question.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) worker: WorkerId,
    pub(crate) ticket: u64,
}

/// The resolver and its table of names.
pub(crate) struct Dns {
    resolver: TokioResolver,
    names: Mutex<Names>,
}

impl std::fmt::Debug for Dns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dns").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Dns {
    /// # Errors
    /// When the resolver cannot be made from what resolv.conf says.
    pub(crate) fn new(global: &Global) -> io::Result<Self> {
        let (config, mut options) = servers(&global.resolv_conf);
        // What is remembered, and for how long, is decided here.
        options.cache_size = 0;
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        let provider = TokioRuntimeProvider::default();
        let resolver = TokioResolver::builder_with_config(config, provider).with_options(options);
        let resolver = resolver.build().map_err(io::Error::other)?;
        Ok(Self { resolver, names: Mutex::default() })
    }

    pub(crate) fn info(&self, now: Micros) -> NamesInfo {
        lock(&self.names).info(now)
    }
}

/// The name servers to ask. As the C library does, where none is named one on this machine is.
fn servers(path: &str) -> (ResolverConfig, ResolverOpts) {
    let path = if path.is_empty() { RESOLV_CONF } else { path };
    let read = config::read_file(Path::new(path))
        .map_err(NetError::from)
        .and_then(system_conf::parse_resolv_conf);
    read.unwrap_or_else(|error| {
        warning!("{path}: {error}; asking a name server on this machine");
        let local = NameServerConfig::udp_and_tcp(Ipv4Addr::LOCALHOST.into());
        (ResolverConfig::from_name_servers(vec![local]), ResolverOpts::default())
    })
}

/// Answers a worker's question, now or when the answer is known. To be called within the runtime
/// of the cold thread.
pub(crate) fn ask(controller: &Controller, question: Question) {
    let control = &controller.0;
    let host = question.host.clone();
    let asked = lock(&control.dns.names).ask(question, control.shared.clock.now());
    match asked {
        Asked::Known(question, addresses) => answer(controller, &question, &addresses),
        Asked::LookUp => drop(tokio::spawn(look_up(controller.clone(), host))),
        Asked::Wait => {}
    }
}

/// The answer is no address at all if there is none.
fn answer(controller: &Controller, question: &Question, addresses: &[IpAddr]) {
    let Question { port, worker, ticket, .. } = *question;
    let addresses = addresses.iter().map(|ip| SocketAddr::from((*ip, port))).collect();
    controller.0.shared.hub.mailbox(worker).post(ShellMail::Resolved { ticket, addresses });
}

/// Asks for a name and tells everybody who waits for it; and all workers, if it does not lead to
/// some address any more.
async fn look_up(controller: Controller, host: String) {
    let control = &controller.0;
    let found = match control.dns.resolver.lookup_ip(host.as_str()).await {
        Ok(found) => found.iter().collect(),
        Err(error) => {
            warning!("DNS lookup failed: {host}: {error}");
            Vec::new()
        }
    };
    let global = &controller.config().global;
    let ttl = if found.is_empty() { global.dns_nxdomain_ttl } else { global.dns_max_ttl };
    let until = control.shared.clock.now() + ttl.as_micros() as Micros;
    let learnt = lock(&control.dns.names).learn(&host, found, until);
    for (question, addresses) in &learnt.answers {
        answer(&controller, question, addresses);
    }
    if !learnt.gone.is_empty() {
        let (host, gone): (Arc<str>, Arc<[IpAddr]>) = (host.into(), learnt.gone.into());
        let moved = || ShellMail::Moved { host: Arc::clone(&host), gone: Arc::clone(&gone) };
        control.shared.tell_all(moved);
    }
}

/// Looks at the serial numbers of all zones every `dns_zone_check_period`, for ever: when one has
/// grown, the names in it are asked for anew.
pub(crate) async fn watch_zones(controller: Controller) {
    loop {
        let period = controller.config().global.dns_zone_check_period;
        tokio::time::sleep(if period.is_zero() { ZONE_LOOK } else { period }).await;
        if period.is_zero() {
            continue;
        }
        let dns = &controller.0.dns;
        let zones = lock(&dns.names).zones();
        for zone in zones {
            let Some(serial) = serial_of(&dns.resolver, &zone).await else { continue };
            let grown = lock(&dns.names).grown(&zone, serial);
            if let Some((old, hosts)) = grown {
                log!("zone '{zone}' serial changed: old={old} new={serial}");
                for host in hosts {
                    look_up(controller.clone(), host).await;
                }
            }
        }
    }
}

async fn serial_of(resolver: &TokioResolver, zone: &str) -> Option<u32> {
    let found = resolver.soa_lookup(zone).await.ok()?;
    found.answers().iter().find_map(|record| match &record.data {
        RData::SOA(soa) => Some(soa.serial),
        _ => None,
    })
}
