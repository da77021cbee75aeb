//! Many direct pools share the numbers of descriptors that Weir has reserved.

use testkit::{RawClient, eventually};

use super::{Direct, PATIENCE};
use crate::support;

const POOLS: usize = 20;
/// Far less than the `LimitNOFILE` of the packaged units, which not every machine allows.
const FILES_MAX: u32 = 15_000;
/// The value of the packaged configuration.
const CLIENTS_MAX: usize = 10_000;

fn start() -> Direct {
    let direct = Direct::start_with(1, |setup| {
        let setup = setup.open_files_max(FILES_MAX).set("max_client_conn", CLIENTS_MAX);
        (0..POOLS).fold(setup, |setup, at| setup.database(&alias(at), "dbname=postgres"))
    });
    direct.postgres.set("weir.control_socket", &direct.socket().to_string_lossy());
    direct
}

fn alias(at: usize) -> String {
    format!("alias{at}")
}

/// Lets each client ask for its own number.
#[track_caller]
fn check(clients: &mut [(usize, RawClient)]) {
    for (number, client) in clients.iter_mut() {
        client.rows("BEGIN");
        let own = client.value("SHOW application_name");
        assert_eq!(own, format!("client {number}"));
        client.rows("COMMIT");
    }
}

fn clients(direct: &Direct, numbers: impl Iterator<Item = usize>) -> Vec<(usize, RawClient)> {
    let client = |number: usize| {
        let mut client = direct.pooler.client(&alias(number % POOLS));
        client.rows(&format!("SET application_name = 'client {number}'"));
        (number, client)
    };
    numbers.map(client).collect()
}

#[track_caller]
fn expect_direct(direct: &Direct) {
    let pools = direct.pooler.admin("SHOW POOLS EXTENDED").with("user", "app");
    let paths = pools.column("database").into_iter().zip(pools.column("data_path"));
    let paths: Vec<_> = paths.filter(|(name, _)| name.starts_with("alias")).collect();
    assert_eq!(paths.len(), POOLS, "{paths:?}");
    assert!(paths.iter().all(|(_, path)| *path == "direct"), "{paths:?} {}", direct.pooler.log());
}

#[test]
fn twenty_direct_pools_have_room_under_the_packaged_limit_core() {
    if !support::only_weir() {
        return;
    }
    let mut direct = start();
    let mut first = clients(&direct, 0..3 * POOLS);
    expect_direct(&direct);
    check(&mut first);

    // Clients of other pools come into places that are free again.
    let mut kept: Vec<_> = first.into_iter().filter(|(number, _)| number % 3 == 0).collect();
    let is_left = || direct.pooler.admin("SHOW CLIENTS").with("user", "app").rows.len() == POOLS;
    eventually("the others have left", PATIENCE, || is_left().then_some(()));
    kept.extend(clients(&direct, (1000..1000 + 2 * POOLS).rev()));
    check(&mut kept);

    // The next process gets them all.
    assert_eq!(direct.pooler.take_over().code(), Some(0), "{}", direct.pooler.log());
    direct.pooler.log_contains(&format!("handed {} clients", 3 * POOLS));
    kept.extend(clients(&direct, 2000..2000 + POOLS));
    check(&mut kept);
    expect_direct(&direct);
}
