//! Texts of more than 64 KiB, which are looked at while they are passed on: what matters is found
//! wherever it stands.

use std::path::Path;

use config::Config;

use crate::carried::{auto, tells};
use crate::messages::*;

/// `text` stands behind so much that the text is a long one.
fn long(text: &str) -> String {
    format!("SELECT '{}'; {text}", "x".repeat(100_000))
}

/// Why the client keeps its server behind that text.
fn pins(text: &str) -> Vec<String> {
    let no_file = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
    let ini = "[pgbouncer]\npin_functions = pinned\\(\n";
    let pins = Config::parse_ini(ini, "pins.ini", &no_file).expect("a sound text").global;
    let rig = auto(|config| config.global.pin_functions.clone_from(&pins.pin_functions));
    rig.set_chunk(16_384);
    let client = rig.client();
    let server = rig.server(0);
    client.send([query(text)]);
    server.answers(text);
    client.expect([done("OK")]);
    if !server.is_parked() {
        tells(&server, &[]);
    }
    let pinned = rig.report(0).servers.first().and_then(|server| server.pinned);
    pinned.into_iter().flat_map(|one| one.pins.words()).map(str::to_owned).collect()
}

#[test]
fn a_function_that_pins_is_found() {
    assert_eq!(pins(&long("SELECT abs(1)")), Vec::<String>::new());
    assert_eq!(pins(&long("SELECT pinned(1)")), ["function"]);
    assert_eq!(pins("SELECT pinned(1)"), ["function"]);
}

#[test]
fn a_hidden_setting_is_found() {
    assert_eq!(pins(&long("SET work_mem = 1000")), Vec::<String>::new());
    assert_eq!(pins(&long("SET Dynamic_Library_Path = 'x'")), ["load"]);
    assert_eq!(pins(&long("SET extension_control_path = 'x'")), ["load"]);
    assert_eq!(pins(&long("SELECT 'dynamic_library_path'")), Vec::<String>::new());
}
