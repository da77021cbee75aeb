//! Texts of more than 64 KiB are examined while they are passed on. Signs are found anywhere in
//! them.

use std::path::Path;

use config::Config;

use crate::carried::{auto, tells};
use crate::messages::*;

/// Puts `text` at the end of a long text.
fn long(text: &str) -> String {
    format!("SELECT '{}'; {text}", "x".repeat(100_000))
}

/// Returns the reasons for which the client keeps its server after that text.
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
