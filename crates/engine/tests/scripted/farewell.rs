//! The last messages of servers in pools of a cluster: PostgreSQL says why it ends a session.

use wire::backend;
use wire::error_fields::ErrorFields;

use crate::lost::{begun, is_told, rig};
use crate::messages::*;

#[test]
pub(crate) fn the_servers_farewell_is_not_the_clients() {
    let rig = rig(|_| {});
    let (client, server) = begun(&rig);
    client.send([query("INSERT")]);
    server.send([fatal("57P01", "terminating connection due to administrator command")]);
    assert!(!server.is_open());
    is_told(&client, "40001", [ready('E')]);
}

#[test]
pub(crate) fn a_client_outlives_what_is_not_its_fault() {
    let rig = rig(|_| {});
    let panic = || {
        let text = "could not write to file: No space left on device";
        let fields = ErrorFields::new("PANIC", "53100", text);
        let mut message = Vec::new();
        backend::error(&mut message, &fields);
        message
    };
    let conflict = "terminating connection due to conflict with recovery";
    for last in [
        fatal("40001", conflict),
        fatal("57P01", "terminating connection due to administrator command"),
        fatal("57P02", "terminating connection because of crash of another server process"),
        fatal("57P03", "the database system is shutting down"),
        fatal("57P04", conflict),
        panic(),
    ] {
        let (client, server) = begun(&rig);
        server.send([last]);
        assert!(!server.is_open() && client.is_open());
        client.send([query("SELECT 2")]);
        is_told(&client, "40001", [ready('E')]);
        client.leave();
    }
    // PostgreSQL's limits end the sessions of clients that do not work.
    for (code, text) in [
        ("25P03", "terminating connection due to idle-in-transaction timeout"),
        ("25P04", "terminating connection due to transaction timeout"),
        ("57P05", "terminating connection due to idle-session timeout"),
    ] {
        let (client, server) = begun(&rig);
        server.send([fatal(code, text)]);
        client.expect([fatal(code, text)]);
        assert!(!client.is_open(), "this session was ended for a reason of its own");
    }
}
