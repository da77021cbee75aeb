//! The resolver, configured by the system's resolv.conf and hosts file. `names.rs` caches the
//! answers.

pub(crate) mod names;

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    path::Path,
    sync::Mutex,
};

use config::Global;
use engine::ids::Micros;
use hickory_resolver::{
    TokioResolver,
    config::{LookupIpStrategy, NameServerConfig, ResolverConfig, ResolverOpts},
    net::{NetError, runtime::TokioRuntimeProvider},
    system_conf,
};

use self::names::{Names, NamesInfo};
use crate::{exchange::hub::lock, warning};

const RESOLV_CONF: &str = "/etc/resolv.conf";

/// The resolver and its table of names.
pub(crate) struct Dns {
    pub(crate) resolver: TokioResolver,
    pub(crate) names: Mutex<Names>,
}

impl std::fmt::Debug for Dns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dns").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Dns {
    /// # Errors
    /// When resolv.conf does not allow to create the resolver.
    pub(crate) fn new(global: &Global) -> io::Result<Self> {
        let (config, mut options) = servers(&global.resolv_conf);
        // `names.rs` caches the answers.
        options.cache_size = 0;
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        let provider = TokioRuntimeProvider::default();
        let resolver = TokioResolver::builder_with_config(config, provider).with_options(options);
        let resolver = resolver.build().map_err(io::Error::other)?;
        Ok(Self { resolver, names: Mutex::default() })
    }

    /// Returns an address of a host.
    pub(crate) async fn address(&self, host: &str) -> Result<IpAddr, String> {
        if let Ok(ip) = host.parse() {
            return Ok(ip);
        }
        let found = self.resolver.lookup_ip(host).await;
        let found = found.map_err(|error| format!("DNS: {error}"))?;
        found.iter().next().ok_or_else(|| format!("{host} has no address"))
    }

    /// Returns all addresses of a host; none if DNS says that there are none.
    pub(crate) async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, String> {
        if let Ok(ip) = host.parse() {
            return Ok(vec![ip]);
        }
        match self.resolver.lookup_ip(host).await {
            Ok(found) => Ok(found.iter().collect()),
            Err(error) if error.is_no_records_found() => Ok(Vec::new()),
            Err(error) => Err(error.to_string()),
        }
    }

    pub(crate) fn info(&self, now: Micros) -> NamesInfo {
        lock(&self.names).info(now)
    }
}

/// Returns the name servers. As in the C library, the default is one on this machine.
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
