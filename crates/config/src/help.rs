//! The explanations of the keys: `weir help KEY` and `docs/config.md`.

use std::fmt::Write;

use crate::key::{Key, Scope};
use crate::suggest;
use crate::value::Kind;

/// There is no key of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no key \"{name}\"{}", suggest::hint(*suggestion))]
pub struct UnknownKey {
    name: String,
    suggestion: Option<&'static str>,
}

/// The text of `weir help KEY`, for every place the key can be written in.
///
/// # Errors
/// When there is no such key.
pub fn help(name: &str) -> Result<String, UnknownKey> {
    let name = name.to_ascii_lowercase();
    let entries: Vec<_> = Key::all().filter(|key| key.name == name).map(entry).collect();
    if !entries.is_empty() {
        return Ok(entries.join("\n"));
    }
    let suggestion = suggest::nearest(&name, Key::all().map(|key| key.name));
    Err(UnknownKey { name, suggestion })
}

/// The whole of `docs/config.md`.
pub fn markdown() -> String {
    let mut text = INTRODUCTION.to_owned();
    for (scope, title, note) in SECTIONS {
        let _ = write!(text, "\n## {title}\n\n{note}\n\n{TABLE_HEAD}");
        for key in Key::all().filter(|key| key.scope == scope) {
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {} | {} | {} |",
                key.name,
                form(key),
                defaults(key, |text| format!("`{text}`")),
                if key.reloadable { "reload" } else { "restart" },
                if key.idle_because.is_none() { "yes" } else { "no" },
                key.help,
            );
        }
    }
    text
}

const INTRODUCTION: &str = "# Configuration

<!-- Generated from the tables in crates/config/src/table; do not edit.
     `UPDATE_DOCS=1 cargo test -p weir-config` writes it anew. -->

Weir reads PgBouncer's `pgbouncer.ini` and its own `weir.toml` with the same keys. In
`pgbouncer.ini` the global keys are in the section `[pgbouncer]`; in `weir.toml` they are at the
top, and each database, user and peer is a table:

```toml
listen_port = 6432
default_pool_size = 50

[databases.app]
host = \"10.0.0.1\"
dbname = \"app\"

[users.alice]
pool_size = 5
```

A whole number that begins with 0 in `pgbouncer.ini` is octal, with 0x hexadecimal. Seconds may
have a fraction. `weir.toml` also takes numbers, `true` and `false`, and lists in TOML's own form.

Where nothing is said `pgbouncer.ini` means what it means to PgBouncer. A `weir.toml` and the URL of
`weir serve` have a few defaults of their own, above all `pool_mode = auto`
([auto-mode.md](auto-mode.md)); they stand beside PgBouncer's. `weir convert` writes down what would
mean something else in a `weir.toml`.

*Changes* says what makes a change take effect. *Effective* says whether Weir acts on the key. The
others have a meaning in PgBouncer alone: they are read, and `weir check-config` and the log at
start name them if they are set, and say why they have no effect.
";

const TABLE_HEAD: &str = "| key | value | default | changes | effective | meaning |
|---|---|---|---|---|---|
";

const SECTIONS: [(Scope, &str, &str); 4] = [
    (Scope::Global, "Global keys", "`[pgbouncer]`, or the top of `weir.toml`."),
    (
        Scope::Database,
        "Databases",
        "`[databases]`, or `[databases.NAME]`. The entry `*` stands for every name that has no \
         entry of its own.",
    ),
    (Scope::User, "Users", "`[users]`, or `[users.NAME]`."),
    (
        Scope::Peer,
        "Peers",
        "`[peers]`, or `[peers.ID]`; the id is the peer's `peer_id`, from 1 to 16383.",
    ),
];

/// The kind of value, with its unit.
fn form(key: &Key) -> String {
    match key.unit {
        "" => key.kind.describe(),
        unit => format!("{}, {unit}", key.kind.describe()),
    }
}

/// The default, and those of single sources: `session; weir.toml: auto`.
fn defaults(key: &Key, quoted: impl Fn(&str) -> String) -> String {
    let words = |text: &str| if text.is_empty() { "empty".to_owned() } else { quoted(text) };
    let mut text = key.default.map_or("not set".to_owned(), words);
    for (source, own) in key.own_defaults {
        let _ = write!(text, "; {}: {}", source.name(), words(own));
    }
    text
}

fn entry(key: &Key) -> String {
    let place = match key.scope {
        Scope::Global => "global",
        Scope::Database => "of a database",
        Scope::User => "of a user",
        Scope::Peer => "of a peer",
    };
    let default = defaults(key, |text| match key.kind {
        Kind::Text => format!("\"{text}\""),
        _ => text.to_owned(),
    });
    let mut text = format!("{} ({place})\n  {}\n", key.name, key.help);
    let changes = if key.reloadable { "on reload" } else { "on restart" };
    let _ = write!(text, "  value: {}\n  default: {default}\n  changes: {changes}\n", form(key));
    if let Some(why) = key.idle_because {
        let _ = writeln!(text, "  effect: none, since {why}");
    }
    text
}
