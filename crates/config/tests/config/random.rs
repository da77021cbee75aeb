//! No text makes the parsers panic.

use std::sync::Arc;

use config::{AuthFile, Config};
use proptest::prelude::*;

use crate::no_file;

/// Pieces that matter to the parsers, so that random texts get beyond the first check.
fn piece() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "[pgbouncer]\n",
        "[databases]\n",
        "[users]\n",
        "[peers]\n",
        "\n",
        " ",
        "=",
        "'",
        "''",
        "\"",
        "%include x\n",
        ";",
        "#",
        "[",
        "]",
        "*",
        "listen_port",
        "pool_mode",
        "host",
        "port",
        "0x",
        "077",
        "-1",
        "1.5",
        "true",
        "databases.a",
        "[databases.\"*\"]\n",
        "postgresql://",
        "@",
        ":",
        "/",
        "?",
        "&",
        "%2F",
        "%",
        ",",
        "ä",
        "md5",
        "\r\n",
        "\t",
        "{",
        "}",
    ]);
    prop_oneof![4 => known.prop_map(str::to_owned), 1 => any::<String>()]
}

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(piece(), 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ini_never_panics(text in text()) {
        if let Ok(config) = Config::parse_ini(&text, "f", &no_file) {
            let _ = (config::describe(&config), config::show(&config));
        }
    }

    #[test]
    fn toml_never_panics(text in text()) {
        let _ = Config::parse_toml(&text, "f");
    }

    #[test]
    fn url_never_panics(text in text()) {
        let _ = Config::from_url(&text);
        let _ = Config::from_url(&format!("postgresql://{text}"));
    }

    #[test]
    fn auth_file_never_panics(content in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = AuthFile::parse(&content, &Arc::from("f"));
    }

    /// Quoting as the documentation says brings any user and secret back.
    #[test]
    fn auth_file_round_trip(user in "[^\0]{0,30}", secret in "[^\0]{0,60}") {
        let quote = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        let content = format!("{} {}\n", quote(&user), quote(&secret));
        let (auth_file, warnings) = AuthFile::parse(content.as_bytes(), &Arc::from("f"));
        prop_assert!(warnings.is_empty());
        prop_assert_eq!(auth_file.users.get(&user), Some(&secret));
    }

    /// A value survives a connection string when it is quoted.
    #[test]
    fn connection_string_round_trip(password in "[^\0\r\n]{1,40}") {
        let quoted = password.replace('\'', "''");
        let text = format!("[pgbouncer]\n[databases]\na = password='{quoted}' host=h\n");
        let config = Config::parse_ini(&text, "f", &no_file).map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(config.databases["a"].password.as_ref(), Some(&password));
    }
}
