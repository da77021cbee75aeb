//! Servers that refuse the startup parameter by which Weir asks for state reports.

use engine::pool::Pool;

use crate::carried::auto;
use crate::messages::*;
use crate::rig::server_welcome_with;

const ALICE: &[(&str, &str)] = &[("user", "alice"), ("database", "app")];

#[test]
fn a_server_that_refuses_the_parameter_is_logged_in_to_without_it() {
    let rig = auto(|config| config.global.default_pool_size = 2).manual();
    let client = rig.connect();
    client.say_hello(&[]);
    let server = rig.server(0);
    server.connect();
    let asked = String::from_utf8_lossy(&server.take()).into_owned();
    assert!(asked.contains("weir.report\x001\0weir.key\0"), "{asked}");
    server.send([fatal("08P01", "unsupported startup parameter: weir.report")]);
    assert!(!server.is_open());
    // Weir still has to find out the protocol version of the other pooler.
    let again = rig.server(1);
    again.connect();
    again.expect([server_startup(ALICE)]);
    again.send([server_welcome_with(1, &[])]);
    client.expect_welcome(&[]);
    // The next server is not asked again, in this process or the next.
    for _ in 0..2 {
        let opened = rig.servers();
        rig.server(opened - 1).die();
        client.send([query("SELECT 1")]);
        let next = rig.server(opened);
        next.connect();
        next.expect([server_startup(ALICE)]);
        next.send([server_welcome_with(opened, &[])]);
        next.answers("SELECT 1");
        client.expect([done("OK")]);
        rig.hand_over();
    }
}

#[test]
fn no_client_gets_such_a_server_if_servers_were_to_be_replaced_meanwhile() {
    let rig = auto(|config| config.global.default_pool_size = 2).manual();
    let client = rig.connect();
    client.say_hello(&[]);
    let server = rig.server(0);
    server.connect();
    server.take();
    // This worker has not heard of it yet.
    rig.pool(Pool::replace_servers);
    server.send([fatal("08P01", "unsupported startup parameter: weir.report")]);
    let again = rig.server(1);
    again.connect();
    again.expect([server_startup(ALICE)]);
    again.send([server_welcome_with(1, &[])]);
    assert!(!again.is_open());
    let next = rig.server(2);
    next.connect();
    next.expect([server_startup(ALICE)]);
    next.send([server_welcome_with(2, &[])]);
    client.expect_welcome(&[]);
}

#[test]
fn an_error_about_something_else_is_no_reason_to_log_in_without_it() {
    let rig = auto(|_| {}).manual();
    let client = rig.connect();
    client.say_hello(&[]);
    let server = rig.server(0);
    server.connect();
    server.send([fatal("53300", "too many clients")]);
    client.expect([fatal("53300", "too many clients")]);
    assert_eq!(rig.servers(), 1);
}
