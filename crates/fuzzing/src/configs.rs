//! Any text of a configuration, in its three formats. A valid configuration can be described and
//! queried, and the values that it shows give the same configuration when they are read again.

use std::fmt::Write;
use std::io;
use std::path::Path;

use config::{AccessPolicy, Comments, Config, ConfigError, Key, Scope, describe, show};

/// The maximum length of an input. Nested includes multiply it.
const LEN_MAX: usize = 16_384;

/// Reads a pgbouncer.ini. Parts after a NUL are the files `1`, `2`, … for `%include`.
pub fn ini(data: &[u8]) {
    let text = String::from_utf8_lossy(&data[..data.len().min(LEN_MAX)]);
    let parts: Vec<&str> = text.split('\0').collect();
    let mut opened = 0;
    let opened = std::cell::RefCell::new(&mut opened);
    let include = |path: &Path| {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        // A file that includes itself twice would be read 1,024 times.
        **opened.borrow_mut() += 1;
        if **opened.borrow() > 32 {
            return Err(missing());
        }
        let number = path.to_str().and_then(|name| name.parse::<usize>().ok());
        let part = number.filter(|number| *number > 0).and_then(|number| parts.get(number));
        part.map(|part| (*part).to_owned()).ok_or_else(missing)
    };
    check(Config::parse_ini(parts[0], "fuzz.ini", &include));
}

pub fn toml(data: &[u8]) {
    let text = String::from_utf8_lossy(&data[..data.len().min(LEN_MAX)]);
    check(Config::parse_toml(&text, "fuzz.toml"));
}

pub fn url(data: &[u8]) {
    let text = String::from_utf8_lossy(&data[..data.len().min(LEN_MAX)]);
    let read = Config::from_url(&text);
    if let Ok(config) = &read
        && let AccessPolicy::UrlUser { user, password } = &config.access
        && password.len() >= 8
        && text.matches(password.as_str()).count() == 1
        && !user.contains(password.as_str())
    {
        for shown in [format!("{config:?}"), describe(config)] {
            assert!(!shown.contains(password.as_str()), "the password is shown: {shown}");
        }
    }
    check(read);
}

fn check(read: Result<Config, ConfigError>) {
    let config = match read {
        Ok(config) => config,
        Err(error) => {
            assert!(!error.mistakes.is_empty(), "refused for no reason");
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    for warning in &config.warnings {
        assert!(!warning.to_string().is_empty());
    }
    assert!(!describe(&config).is_empty());
    let _ = format!("{config:?}");
    let _ = config.set_in_vain();
    for name in config.databases.keys().map(String::as_str).chain(["nowhere"]) {
        if let Some(database) = config.database(name) {
            let _ = config.pool_mode(&database, "somebody");
            let _ = config.pool_size(&database, "somebody");
            let _ = config.server_lifetime(&database);
            let _ = (config.server_max_uses(&database), config.server_max_memory(&database));
            let spares = config.spares(&database);
            assert!(spares.max == 0 || spares.min <= spares.max, "{spares:?}");
        }
    }
    write_again(&config);
    convert(&config);
}

/// Checks that the output of `weir convert` gives the same configuration.
fn convert(config: &Config) {
    let text = config::to_toml(config, &Comments::default());
    let again = match Config::parse_toml(&text, "converted.toml") {
        Ok(again) => again,
        Err(error) => panic!("what was converted is refused: {error}\n{text}"),
    };
    let mut global = config.global.clone();
    global.conffile.clone_from(&again.global.conffile);
    assert!(again.global == global, "{text}");
    assert!(again.databases == config.databases && again.fallback == config.fallback, "{text}");
    assert!(again.users == config.users && again.peers == config.peers, "{text}");
    assert!(again.clusters == config.clusters, "{text}");
}

fn write_again(config: &Config) {
    let mut text = "[pgbouncer]\n".to_owned();
    let secret =
        |name| Key::all().any(|key| key.scope == Scope::Global && key.name == name && key.secret);
    let rows = show(config);
    for row in rows.iter().filter(|row| !secret(row.key)) {
        let Some(value) = &row.value else { continue };
        // Only TOML strings can hold these values.
        if value.contains('\n') || value.trim_matches(is_space) != value {
            return;
        }
        writeln!(text, "{} = {value}", row.key).expect("a string grows");
    }
    let none = |_: &Path| Err(io::ErrorKind::NotFound.into());
    match Config::parse_ini(&text, "again.ini", &none) {
        Ok(again) => {
            for (row, before) in show(&again).iter().zip(&rows) {
                if !secret(row.key) {
                    assert_eq!(row.value, before.value, "{}", row.key);
                }
            }
        }
        Err(error) => panic!("what SHOW CONFIG shows is refused: {error}\n{text}"),
    }
}

/// C's `isspace`.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r')
}
