//! The explanations of the keys: `weir help KEY` and `docs/config.md`.

use std::fmt::Write;

use crate::key::{Key, Scope};
use crate::reference::Table;
use crate::suggest;
use crate::value::Kind;

/// There is no key with this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no key \"{name}\"{}", suggest::hint(*suggestion))]
pub struct UnknownKey {
    name: String,
    suggestion: Option<&'static str>,
}

/// Returns the text of `weir help KEY`, for every section that the key can be in.
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

/// Returns the whole of `docs/config.md`.
pub fn markdown() -> String {
    let mut text = INTRODUCTION.to_owned();
    for (scope, title, note) in SECTIONS {
        let mut table = Table::new(&COLUMNS);
        for key in Key::all().filter(|key| key.scope == scope) {
            let mut default = defaults(key, |text| format!("`{text}`"));
            let mut help = key.help.to_owned();
            if default.len() > DEFAULT_LEN_MAX {
                help = format!("{help} Its default is {default}.");
                default = "see below".to_owned();
            }
            let changes = if key.reloadable { "reload" } else { "restart" };
            let effective = if key.idle_because.is_none() { "yes" } else { "no" };
            table.row(key.name, &[&form(key), &default, changes, effective], &help);
        }
        let _ = write!(text, "\n## {title}\n\n{note}\n\n{}", table.finish());
    }
    text
}

const COLUMNS: [&str; 6] = ["key", "value", "default", "changes", "effective", "meaning"];

/// A longer default, in bytes, is not in the table but below it.
const DEFAULT_LEN_MAX: usize = 60;

const INTRODUCTION: &str = "# Configuration

<!-- Generated from the tables in crates/config/src/table; do not edit.
     `UPDATE_DOCS=1 cargo test -p weir-config` writes it anew. -->

Weir reads PgBouncer's `pgbouncer.ini` and its own `weir.toml` with the same keys. In
`pgbouncer.ini` the global keys are in the section `[pgbouncer]`; in `weir.toml` they are at the
top. Each database, user and peer is a table:

```toml
listen_port = 6432
default_pool_size = 50

[databases.app]
host = \"10.0.0.1\"
dbname = \"app\"

[users.alice]
pool_size = 5
```

In `pgbouncer.ini`, a whole number that begins with 0 is octal, and one with 0x is hexadecimal.
Seconds may have a fraction. `weir.toml` also takes TOML's own numbers, `true`, `false` and lists,
and texts with PostgreSQL's units: `\"500ms\"`, `\"2min\"`, `\"64kB\"`.

A key that is not set has its default. In a `pgbouncer.ini` the defaults are PgBouncer's. A
`weir.toml` and the URL of `weir serve` have some other defaults, above all `pool_mode = auto`
([auto-mode.md](auto-mode.md)). The tables show both. `weir convert` writes a key into the
`weir.toml` wherever the defaults differ.

| column | meaning |
|---|---|
| changes | a change takes effect with a *reload*, or only with a *restart* |
| effective | *yes*: Weir acts on the key; *no*: only PgBouncer does |

A key without effect may be set. `weir check-config` and the log at start then name it and say why
it has no effect.
";

const SECTIONS: [(Scope, &str, &str); 5] = [
    (Scope::Global, "Global keys", "`[pgbouncer]`, or the top of `weir.toml`."),
    (
        Scope::Database,
        "Databases",
        "`[databases]`, or `[databases.NAME]`. The entry `*` applies to every name without its own \
         entry.",
    ),
    (Scope::User, "Users", "`[users]`, or `[users.NAME]`."),
    (
        Scope::Peer,
        "Peers",
        "`[peers]`, or `[peers.ID]`; the id is the peer's `peer_id`, from 1 to 16383.",
    ),
    (
        Scope::Cluster,
        "Clusters",
        "`[clusters]`, or `[clusters.NAME]`; see [cluster.md](cluster.md).",
    ),
];

/// Returns the kind of value, with its unit.
pub(crate) fn form(key: &Key) -> String {
    match key.unit {
        "" => key.kind.describe(),
        unit => format!("{}, {unit}", key.kind.describe()),
    }
}

/// Returns the default and those of single sources: `session; weir.toml: auto`.
pub(crate) fn defaults(key: &Key, quoted: impl Fn(&str) -> String) -> String {
    let words = |text: &str| if text.is_empty() { "empty".to_owned() } else { quoted(text) };
    let mut text = key.default.map_or("not set".to_owned(), words);
    for (source, own) in key.own_defaults {
        let _ = write!(text, "; {}: {}", source.name(), words(own));
    }
    text
}

fn entry(key: &Key) -> String {
    let scope = match key.scope {
        Scope::Global => "global",
        Scope::Database => "of a database",
        Scope::User => "of a user",
        Scope::Peer => "of a peer",
        Scope::Cluster => "of a cluster",
    };
    let default = defaults(key, |text| match key.kind {
        Kind::Text => format!("\"{text}\""),
        _ => text.to_owned(),
    });
    let mut text = format!("{} ({scope})\n  {}\n", key.name, key.help);
    let changes = if key.reloadable { "on reload" } else { "on restart" };
    let _ = write!(text, "  value: {}\n  default: {default}\n  changes: {changes}\n", form(key));
    if let Some(why) = key.idle_because {
        let _ = writeln!(text, "  effect: none, since {why}");
    }
    text
}
