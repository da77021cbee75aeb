//! Writes a configuration as the `weir.toml` that means the same.
//!
//! It goes by the values, not by the lines they came from: what has its default is left out, files
//! that were included are part of the one text, and remarks are not carried over. Whatever cannot
//! be said in the new file, or is said there without an effect, is told by a comment.

use std::fmt::Write as _;

use crate::config::Config;
use crate::host::Host;
use crate::table::{Database, Effect, Key, Keyed, Row};
use crate::value::{Kind, Value};

/// The `weir.toml` for `config`. It holds the passwords that `config` holds.
pub fn to_toml(config: &Config) -> String {
    let mut text = String::new();
    let from = config.path.as_ref().map(|path| format!(" from {}", path.display()));
    let from = from.unwrap_or_default();
    comment(
        &mut text,
        &format!("Made{from} by `weir convert`; keys that have their default are left out."),
    );
    for warning in &config.warnings {
        comment(&mut text, &warning.to_string());
    }
    text.push('\n');
    let own_file = config.path.as_ref().map(|path| path.display().to_string());
    for row in config.global.changed() {
        if row.key.name == "conffile" && config.global.conffile == own_file {
            comment(
                &mut text,
                "conffile named the file this was made from and would lead back to it",
            );
            continue;
        }
        setting(&mut text, &config.global, row);
    }
    let default_host = [Host::new(&config.global.unix_socket_dir)];
    for (name, database) in &config.databases {
        entry(&mut text, "databases", name);
        database_settings(&mut text, database, &default_host);
    }
    if let Some(database) = &config.fallback {
        entry(&mut text, "databases", "*");
        database_settings(&mut text, database, &default_host);
    }
    for (name, user) in &config.users {
        entry(&mut text, "users", name);
        user.changed().for_each(|row| setting(&mut text, user, row));
    }
    for (id, peer) in &config.peers {
        entry(&mut text, "peers", &id.to_string());
        peer.changed().for_each(|row| setting(&mut text, peer, row));
    }
    text
}

fn database_settings(text: &mut String, database: &Database, default_host: &[Host]) {
    for row in database.changed() {
        if row.key.name == "host" && database.hosts == default_host {
            continue;
        }
        setting(text, database, row);
    }
}

fn entry(text: &mut String, section: &str, name: &str) {
    let _ = writeln!(text, "\n[{section}.{}]", key(name));
}

fn setting<T>(text: &mut String, target: &T, row: &Row<T>) {
    let Some(shown) = (row.exact)(target) else { return };
    if row.key.effect != Effect::Acts {
        comment(text, "Weir does not act on the next key");
    }
    let _ = writeln!(text, "{} = {}", row.key.name, value(&row.key, &shown));
}

/// A value in TOML's own notation, where it has one for the kind.
fn value(key: &Key, shown: &str) -> String {
    let octal = key.default.is_some_and(|default| default.len() > 1 && default.starts_with('0'));
    match key.kind {
        Kind::Integer if octal => match u32::parse(shown) {
            Ok(number) => format!("0o{number:o}"),
            Err(_) => string(shown),
        },
        Kind::Integer | Kind::Seconds => shown.to_owned(),
        Kind::Switch => (shown != "0").to_string(),
        Kind::Text | Kind::Choice(_) => string(shown),
        Kind::List => {
            let items = shown.split(',').map(str::trim).filter(|item| !item.is_empty());
            let items: Vec<_> = items.map(string).collect();
            format!("[{}]", items.join(", "))
        }
    }
}

fn key(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.chars().all(bare) { name.to_owned() } else { string(name) }
}

fn string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn comment(text: &mut String, remark: &str) {
    for line in remark.lines() {
        // TOML allows no control character in a comment.
        let line: String = line.chars().filter(|c| !c.is_control()).collect();
        let _ = writeln!(text, "# {line}");
    }
}
