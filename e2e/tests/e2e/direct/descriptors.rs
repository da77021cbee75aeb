//! Backends get the descriptors of clients from Weir, several at a time.

use std::{fs, path::Path};

use testkit::eventually;

use super::{Direct, PATIENCE, pid};
use crate::support;

/// Returns the number of sockets that a process has.
fn sockets_of(process: u32) -> usize {
    let files = fs::read_dir(format!("/proc/{process}/fd")).expect("it runs");
    let links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    links.filter(|link| is_socket(link)).count()
}

fn is_socket(link: &Path) -> bool {
    link.to_string_lossy().starts_with("socket:")
}

#[test]
fn a_backend_asks_for_few_of_its_clients() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(1);
    let mut clients = direct.clients(100);
    let backend = pid(&mut clients[0]);
    let with_one = sockets_of(backend);
    assert!((32..100).contains(&with_one), "{with_one} after the first client's request");
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.value(&format!("SELECT {number}")), number.to_string());
    }
    assert!(sockets_of(backend) >= 100, "{}", sockets_of(backend));
    // Others come into their places. The backend has descriptors of those before.
    drop(clients.split_off(50));
    eventually("they have left", PATIENCE, || (direct.column("cl_active") == "50").then_some(()));
    let mut others = direct.clients(50);
    for (number, client) in clients.iter_mut().chain(&mut others).enumerate() {
        client.rows(&format!("SET application_name = 'client {number}'"));
    }
    for (number, client) in clients.iter_mut().chain(&mut others).enumerate() {
        assert_eq!(client.value("SHOW application_name"), format!("client {number}"));
    }
    assert_eq!(direct.backends(), [backend]);
}
