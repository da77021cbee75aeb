//! The output of `weir convert`: a configuration as a `weir.toml` with the same meaning. Comments
//! and `%include` are lost. Unset keys stay unset, unless the default of a `weir.toml` differs.
//! Secrets are written as they are in the source file.

use std::fmt::Write;

use crate::config::Config;
use crate::key::{Key, Keyed, Row};
use crate::source::Source;
use crate::value::Kind;

// Writing to a String cannot fail, so the results of `write!` are dropped throughout.

/// Returns the text of a `weir.toml` with the same meaning.
pub fn to_toml(config: &Config) -> String {
    let mut text = String::new();
    // This key names the file for a reload, which is another one now.
    rows(&mut text, &config.global, |row| row.key.name != "conffile");
    for database in config.databases.values().chain(&config.fallback) {
        table(&mut text, "databases", &database.name, &**database);
    }
    for (user, settings) in &config.users {
        table(&mut text, "users", user, settings);
    }
    for (id, peer) in &config.peers {
        table(&mut text, "peers", &id.to_string(), peer);
    }
    text
}

fn table<T: Keyed>(text: &mut String, section: &str, name: &str, target: &T) {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let is_bare = !name.is_empty() && name.chars().all(is_bare);
    let name = if is_bare { name.to_owned() } else { quoted(name) };
    let _ = writeln!(text, "\n[{section}.{name}]");
    rows(text, target, |_| true);
}

fn rows<T: Keyed>(text: &mut String, target: &T, wanted: impl Fn(&Row<T>) -> bool) {
    for row in target.changed(Source::Toml).filter(|row| wanted(row)) {
        // A key that is unset and has a default cannot be written, and cannot come out of a file.
        if let Some(value) = (row.exact)(target) {
            let _ = writeln!(text, "{} = {}", row.key.name, native(&row.key, &value));
        }
    }
}

/// Returns the value in TOML's own form if that gives the same text again, else as a string.
fn native(key: &Key, value: &str) -> String {
    let is_octal =
        key.default_in(Source::Toml).is_some_and(|text| text.len() > 1 && text.starts_with('0'));
    match (key.kind, value.parse::<u32>()) {
        (Kind::Integer, Ok(number)) if is_octal => format!("{number:#o}"),
        (Kind::Integer | Kind::Numbers | Kind::Seconds, Ok(number)) => number.to_string(),
        (Kind::Switch, _) => (value != "0").to_string(),
        (Kind::List, _) => {
            let items = value.split(',').map(|item| quoted(item.trim()));
            format!("[{}]", items.collect::<Vec<_>>().join(", "))
        }
        (Kind::Text | Kind::Integer | Kind::Numbers | Kind::Seconds | Kind::Choice(_), _) => {
            quoted(value)
        }
    }
}

/// A basic string of TOML.
fn quoted(value: &str) -> String {
    let mut text = "\"".to_owned();
    for c in value.chars() {
        let _ = match c {
            '"' | '\\' => write!(text, "\\{c}"),
            c if c.is_control() => write!(text, "\\u{:04X}", u32::from(c)),
            c => write!(text, "{c}"),
        };
    }
    text.push('"');
    text
}
