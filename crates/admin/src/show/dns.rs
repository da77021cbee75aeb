//! SHOW DNS_HOSTS and SHOW DNS_ZONES.

use std::net::SocketAddr;

use super::{Table, int8, text};
use crate::snapshot::{DnsHost, DnsZone};

pub(super) static DNS_HOSTS: Table<DnsHost> = Table {
    name: "DNS_HOSTS",
    about: "The host names that were looked up.",
    columns: &[
        text("hostname", |host| host.name.as_str().into(), "The name."),
        int8("ttl", |host| host.ttl.into(), "Seconds for which the answer is still valid."),
        text(
            "addrs",
            |host| {
                // The port has no meaning, as in PgBouncer.
                let shown = host.addresses.iter().map(|ip| SocketAddr::from((*ip, 0)).to_string());
                shown.collect::<Vec<_>>().join(",").into()
            },
            "Its addresses; none if the name was not found.",
        ),
    ],
    rows: |view| view.snapshot.dns_hosts,
};

pub(super) static DNS_ZONES: Table<DnsZone> = Table {
    name: "DNS_ZONES",
    about: "The zones of those names.",
    columns: &[
        text("zonename", |zone| zone.name.as_str().into(), "The zone."),
        int8(
            "serial",
            |zone| u64::from(zone.serial).into(),
            "Its serial number, if it is watched.",
        ),
        super::int4("count", |zone| zone.hosts.into(), "Names in it that were looked up."),
    ],
    rows: |view| view.snapshot.dns_zones,
};
