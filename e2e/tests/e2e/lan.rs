//! Hosts in one Ethernet, each in a network namespace, for tests of addresses that move. It takes root.

use std::time::{Duration, Instant};

use testkit::{Host, Network, Role, postgres_program};

use crate::support;

/// Returns a network without hosts. None without root, or if PgBouncer is tested.
pub(crate) fn network() -> Option<Network> {
    if !support::only_weir() {
        return None;
    }
    Network::start().inspect_err(|why| eprintln!("left out: {why}")).ok()
}

/// Runs a query as a client that knows this host name or address of a Weir. `before`: a program that
/// starts psql. Returns how long it took, if it has an answer.
pub(crate) fn ask(client: &Host, (host, port): (&str, u16), before: &[&str]) -> Option<Duration> {
    let begun = Instant::now();
    let mut command = client.command("timeout");
    command.arg("5").args(before).arg(postgres_program("psql"));
    command.args(["-XAtqc", "SELECT 41 + 1"]);
    for (name, value) in [
        ("PGHOST", host),
        ("PGPORT", &*port.to_string()),
        ("PGUSER", Role::APP),
        ("PGPASSWORD", Role::APP_PASSWORD),
        ("PGDATABASE", "app"),
        ("PGCONNECT_TIMEOUT", "2"),
    ] {
        command.env(name, value);
    }
    let output = command.output().expect("psql can be run");
    (output.status.success() && output.stdout == b"42\n").then(|| begun.elapsed())
}
