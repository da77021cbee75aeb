//! SHOW DNS_HOSTS and SHOW DNS_ZONES. Names are looked up by the system's resolver for each new
//! server and not kept, so there is nothing to list; the tables are there for what asks for them.

use super::{Table, int4, int8, text};

/// A name and its addresses, or a zone and its serial number.
pub(super) struct Known {
    name: String,
    number: u64,
    detail: String,
    count: usize,
}

pub(super) static DNS_HOSTS: Table<Known> = Table {
    name: "DNS_HOSTS",
    about: "Names of hosts whose addresses are kept. Weir looks a name up for each new server, and \
            keeps none: there are no rows.",
    columns: &[
        text("hostname", |known| (&known.name).into(), "Name of the host."),
        int8("ttl", |known| known.number.into(), "Seconds until it is looked up again."),
        text("addrs", |known| (&known.detail).into(), "Its addresses, separated by commas."),
    ],
    rows: |_| Vec::new(),
};

pub(super) static DNS_ZONES: Table<Known> = Table {
    name: "DNS_ZONES",
    about: "Zones that are watched for changes (`dns_zone_check_period`), which Weir does not do: \
            there are no rows.",
    columns: &[
        text("zonename", |known| (&known.name).into(), "Name of the zone."),
        int8("serial", |known| known.number.into(), "Its serial number."),
        int4("count", |known| known.count.into(), "Names in it that are in use."),
    ],
    rows: |_| Vec::new(),
};
