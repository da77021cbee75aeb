//! `docs/config.md` and `weir help`.

use std::path::Path;
use std::{env, fs};

#[test]
fn the_checked_in_reference_is_the_generated_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
    let generated = config::markdown();
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &generated).unwrap();
    }
    let checked_in = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        checked_in == generated,
        "docs/config.md is not up to date; write it with: UPDATE_DOCS=1 cargo test -p weir-config"
    );
}

#[test]
fn every_key_is_in_the_tables_of_compatibility() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../COMPAT.md");
    let tables = fs::read_to_string(path).unwrap();
    for key in config::Key::all() {
        assert!(
            tables.contains(&format!("`{}`", key.name)),
            "{}: add a row to COMPAT.md, and a row with its tests to the appendix there",
            key.name
        );
    }
}

#[test]
fn help_tells_a_key_in_every_place_it_is_written() {
    let text = config::help("Pool_Mode").unwrap();
    for part in [
        "pool_mode (global)",
        "(of a database)",
        "(of a user)",
        "default: session; weir.toml: auto; weir serve: auto",
    ] {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
    assert!(config::help("tcp_user_timeout").unwrap().contains("milliseconds"));
    assert!(config::help("pkt_buf").unwrap().contains("effect: none, since"));
}

#[test]
fn help_on_an_unknown_key_names_the_nearest() {
    let error = config::help("listen_prot").unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no key \"listen_prot\" (did you mean \"listen_port\"?)"
    );
    assert_eq!(config::help("banana").unwrap_err().to_string(), "there is no key \"banana\"");
}
