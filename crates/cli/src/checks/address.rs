//! Finds why this machine cannot have the virtual address of a cluster.

use std::path::Path;

use config::{Cluster, Config};
use net::sys::{
    interface::{Device, missing_capabilities},
    process,
};

use super::{Finding, Level, unit};

const KEY: &str = "virtual_address";

/// Names missing devices and capabilities.
pub(super) fn of_clusters(config: &Config) -> Vec<Finding> {
    let with_address = || config.clusters.values().filter(|own| !own.virtual_address.is_empty());
    if with_address().next().is_none() {
        return Vec::new();
    }
    let position = config.positions.of_key(KEY);
    let mut found: Vec<String> = with_address().flat_map(missing_devices).collect();
    found.extend(missing_rights(config));
    let listens = &config.global.listen_addr;
    if !listens.iter().any(|own| ["*", "0.0.0.0", "::"].contains(&own.as_str())) {
        found.push("Weir does not listen there: set listen_addr = *".to_owned());
    }
    found.into_iter().map(|what| Finding::new(Level::Warns, &position, what)).collect()
}

fn missing_devices(cluster: &Cluster) -> impl Iterator<Item = String> {
    cluster.virtual_address.iter().filter_map(|own| Device::running(&own.device).err())
}

/// Names the capabilities that Weir will not have, unless systemd's unit gives them.
fn missing_rights(config: &Config) -> Option<String> {
    if Path::new(unit::IN_FORCE).join(unit::ADDRESSES).exists() {
        return None;
    }
    if process::effective_uid() == 0
        && let Some(user) = &config.global.user
    {
        return Some(format!(
            "Weir has no CAP_NET_ADMIN and no CAP_NET_RAW after it has become user {user}: have a \
             service manager give them"
        ));
    }
    let missing = missing_capabilities();
    (!missing.is_empty())
        .then(|| format!("this process has no {}, and Weir needs it", missing.join(" and no ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_device_is_named() {
        let text = "[databases]\napp = cluster=c\n[pgbouncer]\nlisten_addr = *\n[clusters]\n\
                    c = nodes='a=10.0.0.1' etcd=e virtual_address='10.0.0.9/24 dev nowhere0'\n";
        let config = Config::parse_ini(text, "weir.ini", &|_| unreachable!()).unwrap();
        let found = of_clusters(&config);
        let is_it = |own: &Finding| own.to_string().contains("device nowhere0 cannot be used: ");
        assert!(found.iter().any(is_it), "{found:?}");
    }
}
