//! The rows against a real PostgreSQL: what is measured under which name.

use std::fmt;

use anyhow::Result;

use crate::named::{self, Named};
use crate::run::{Key, Setting, Tls};

/// Servers of a pooler are 20: most rows have more clients than that, as those who use one do.
const CLIENTS: usize = 50;

#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    /// pgbench's options for it, as `weir bench` takes them, too.
    pub(super) options: &'static [&'static str],
    /// A script in place of a built-in one.
    pub(super) script: Option<&'static str>,
    pub(super) clients: usize,
    /// Of a pooler's.
    pub(super) servers: u32,
    /// Transactions a second; without it as many as there can be.
    pub(super) rate: Option<u32>,
    pub(super) tls: Tls,
    /// Measured only when it is named.
    is_long: bool,
    what: &'static str,
}

/// A thousand rows of a hundred bytes each.
const THOUSAND_ROWS: &str = "\\set first random(1, 100000 * :scale - 999)\n\
     SELECT * FROM pgbench_accounts WHERE aid BETWEEN :first AND :first + 999;\n";

const fn row(name: &'static str, options: &'static [&'static str], what: &'static str) -> Row {
    Row {
        name,
        options,
        script: None,
        clients: CLIENTS,
        servers: Setting::SERVERS,
        rate: None,
        tls: Tls::None,
        is_long: false,
        what,
    }
}

/// What a pooler is for: so many clients that few of them can be served at once.
const fn many(name: &'static str, options: &'static [&'static str], clients: usize) -> Row {
    Row { clients, servers: 56, is_long: true, ..row(name, options, "56 servers, all they can") }
}

pub(super) static ROWS: [Row; 23] = [
    row("select-simple", &["-S"], "one select, simple protocol"),
    row("select-extended", &["-S", "-M", "extended"], "one select, extended protocol"),
    row("select-prepared", &["-S", "-M", "prepared"], "one select, prepared"),
    row("tpcb", &[], "TPC-B"),
    row("simple-update", &["-N"], "TPC-B without tellers and branches"),
    row("simple-update-prepared", &["-N", "-M", "prepared"], "the same, prepared"),
    row("connect", &["-S", "-C"], "a login for each select"),
    Row { tls: Tls::Fresh(Key::P256), ..row("tls-select", &["-S"], "one select over TLS") },
    Row {
        tls: Tls::Fresh(Key::P256),
        ..row("tls-connect", &["-S", "-C"], "a login over TLS for each select")
    },
    Row { script: Some(THOUSAND_ROWS), ..row("rows-1000", &[], "a thousand rows") },
    Row { rate: Some(2_000), ..row("latency-2000", &["-S"], "selects at a fixed rate") },
    Row { rate: Some(200), ..row("latency-tpcb-200", &["-N"], "updates at a fixed rate") },
    Row { clients: 1_000, ..row("saturation-1000", &["-S"], "selects, all they can") },
    many("select-64", &["-S"], 64),
    many("select-512", &["-S"], 512),
    many("select-2048", &["-S"], 2_048),
    many("select-8192", &["-S"], 8_192),
    many("select-19900", &["-S"], 19_900),
    many("tpcb-64", &[], 64),
    many("tpcb-512", &[], 512),
    many("tpcb-2048", &[], 2_048),
    many("tpcb-8192", &[], 8_192),
    many("tpcb-19900", &[], 19_900),
];

impl Row {
    pub(super) fn is_prepared(&self) -> bool {
        self.options.contains(&"prepared")
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<23} {} clients, {}", self.name, self.clients, self.what)?;
        match self.rate {
            Some(rate) => write!(f, " of {rate} a second"),
            None => Ok(()),
        }
    }
}

impl Named for Row {
    fn name(&self) -> &'static str {
        self.name
    }
}

/// The rows of the given names, or all that are not long.
pub(super) fn select(names: &[String]) -> Result<Vec<&'static Row>> {
    if names.is_empty() {
        return Ok(ROWS.iter().filter(|row| !row.is_long).collect());
    }
    named::select(&ROWS, names)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own_and_is_found_by_it() {
        let names: BTreeSet<_> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ROWS.len());
        assert_eq!(select(&["tpcb".to_owned()]).unwrap()[0].name, "tpcb");
        assert_eq!(select(&["tpcb-64".to_owned()]).unwrap()[0].servers, 56);
        assert_eq!(select(&[]).unwrap().len(), 13, "the long ones only by name");
        assert!(select(&["tpcc".to_owned()]).is_err());
    }
}
