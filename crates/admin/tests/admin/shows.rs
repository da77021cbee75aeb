//! Every SHOW of the fixed snapshot: names and types of the columns, order and text of the rows.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::{env, fs};

use admin::{Console, Control};
use config::ConsoleColumns;

use crate::fixture::Recorder;
use crate::peer::{Peer, Reply};

/// All SHOW commands without `CONFIG`, whose rows the config crate checks, and `MEM`, whose sizes
/// change with every field of the counted structs.
const SHOWS: [&str; 30] = [
    "VERSION",
    "STATE",
    "DATABASES",
    "POOLS",
    "CLIENTS",
    "SERVERS",
    "SOCKETS",
    "ACTIVE_SOCKETS",
    "USERS",
    "PEERS",
    "PEER_POOLS",
    "LISTS",
    "DNS_HOSTS",
    "DNS_ZONES",
    "STATS",
    "STATS_TOTALS",
    "STATS_AVERAGES",
    "TOTALS",
    "WORKERS",
    "CLUSTERS",
    "NODES",
    "FAILOVERS",
    "ROUTES",
    "NODE_POOLS",
    "POOL_NODES",
    "POOL_PROCESSES",
    "POOL_POOLS",
    "POOL_HEALTH_CHECK_STATS",
    "POOL_BACKEND_STATS",
    "POOL_VERSION",
];

/// Prints one line per column, with its values, which is easier to compare than wide rows.
fn print(text: &mut String, name: &str, replies: &[Reply]) {
    let _ = writeln!(text, "SHOW {name}");
    let [Reply::Columns(columns), rows @ .., Reply::Done(tag)] = replies else {
        panic!("{name}: {replies:?}");
    };
    assert_eq!(tag, "SHOW");
    for (at, column) in columns.iter().enumerate() {
        let _ = write!(text, "  {column} =");
        for row in rows {
            let Reply::Row(values) = row else { panic!("{name}: {row:?}") };
            match &values[at] {
                Some(value) => write!(text, " '{value}'").unwrap(),
                None => text.push_str(" NULL"),
            }
        }
        text.push('\n');
    }
}

#[tokio::test]
async fn columns_and_rows_are_those_of_pgbouncer() {
    let console = Arc::new(Console::new(Arc::new(Recorder::default())));
    let mut peer = Peer::admin(&console).await;
    let mut text = String::new();
    for name in SHOWS {
        let mut replies = peer.query(format!("show {name} extended;")).await;
        if ["CLIENTS", "SOCKETS"].contains(&name) {
            forget_the_clock(&mut replies);
        }
        print(&mut text, name, &replies);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/admin/shows.txt");
    let version = format!("Weir {}", env!("CARGO_PKG_VERSION"));
    let text = text.replace(&version, "Weir X.Y.Z");
    if env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text == expected,
        "{text}\nthis is not as in {}; if it is right, write it there with: \
         UPDATE_SNAPSHOTS=1 cargo test -p weir-admin",
        path.display()
    );
}

/// Some monitors count the columns. So these are those of PgBouncer 1.25.2.
#[tokio::test]
async fn without_extended_there_are_pgbouncers_columns_only() {
    let control = Arc::new(Recorder::default());
    let console = Arc::new(Console::new(Arc::clone(&control) as Arc<dyn Control>));
    let mut peer = Peer::admin(&console).await;
    for (name, count) in [
        ("DATABASES", 17),
        ("POOLS", 17),
        ("CLIENTS", 21),
        ("SERVERS", 21),
        ("SOCKETS", 28),
        ("ACTIVE_SOCKETS", 28),
        ("USERS", 8),
        ("PEERS", 4),
        ("PEER_POOLS", 5),
        ("LISTS", 2),
        ("STATS", 23),
        ("STATS_TOTALS", 12),
        ("STATS_AVERAGES", 12),
        ("TOTALS", 2),
        ("MEM", 5),
        ("DNS_HOSTS", 3),
        ("DNS_ZONES", 3),
        ("VERSION", 1),
        ("STATE", 2),
        ("CONFIG", 4),
    ] {
        let replies = peer.query(format!("SHOW {name}")).await;
        let [Reply::Columns(columns), rows @ .., Reply::Done(_)] = &replies[..] else {
            panic!("{name}: {replies:?}");
        };
        assert_eq!(columns.len(), count, "{name}: {columns:?}");
        for row in rows {
            assert!(matches!(row, Reply::Row(values) if values.len() == count), "{name}: {row:?}");
            assert!(!format!("{row:?}").contains("client_login_count"), "{name}: {row:?}");
        }
    }
    let notes = control.notes.lock().unwrap().clone();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("SHOW POOLS EXTENDED has Weir's own"), "{notes:?}");
}

#[tokio::test]
async fn the_log_says_that_show_totals_leaves_out_rows() {
    let control = Arc::new(Recorder::default());
    let console = Arc::new(Console::new(Arc::clone(&control) as Arc<dyn Control>));
    let mut peer = Peer::admin(&console).await;
    peer.query("SHOW TOTALS EXTENDED").await;
    assert_eq!(*control.notes.lock().unwrap(), [""; 0]);
    peer.query("SHOW TOTALS").await;
    let notes = control.notes.lock().unwrap().clone();
    assert!(notes[0].contains("SHOW TOTALS EXTENDED has Weir's own"), "{notes:?}");
}

/// `console_columns = weir`, as the pooler in PostgreSQL has it.
fn own_columns() -> Recorder {
    Recorder { console_columns: ConsoleColumns::Weir, ..Recorder::default() }
}

#[tokio::test]
async fn with_console_columns_weir_each_show_is_extended() {
    let console = Arc::new(Console::new(Arc::new(own_columns())));
    let mut peer = Peer::admin(&console).await;
    for name in ["POOLS", "CLIENTS", "STATS", "TOTALS"] {
        let plain = peer.query(format!("SHOW {name}")).await;
        let extended = peer.query(format!("SHOW {name} EXTENDED")).await;
        assert_eq!((plain.len(), plain.first()), (extended.len(), extended.first()), "{name}");
    }
}

/// The console's own client has the present time, unlike the snapshot.
fn forget_the_clock(replies: &mut [Reply]) {
    let Some(Reply::Columns(columns)) = replies.first().cloned() else { return };
    for reply in replies {
        let Reply::Row(values) = reply else { continue };
        if values[2].as_deref() != Some("pgbouncer") {
            continue;
        }
        for (column, value) in columns.iter().zip(values) {
            if ["request_time:text", "wait:int4", "wait_us:int4"].contains(&column.as_str()) {
                *value = Some("(now)".to_owned());
            }
        }
    }
}

/// The SQL functions of the server take columns by their names. A name that the console does not have
/// would be NULL in all rows.
#[tokio::test]
async fn the_views_of_the_extension_have_columns_of_the_console_only() {
    let script = include_str!("../../../../extension/weir--1.0.sql");
    let console = Arc::new(Console::new(Arc::new(own_columns())));
    let mut peer = Peer::admin(&console).await;
    let listed = |text: &str| -> Vec<String> {
        let names = text.split(',').filter_map(|item| item.split_whitespace().next());
        names.map(|name| name.trim_matches('"').to_owned()).collect()
    };
    let outs: String = script.lines().filter_map(|line| line.trim().strip_prefix("OUT ")).collect();
    let mut shown = vec![("WORKERS", listed(&outs))];
    for view in script.split("weir_show('").skip(1) {
        let (word, rest) = view.split_once("') AS ").unwrap();
        let (_, rest) = rest.split_once('(').unwrap();
        shown.push((word, listed(rest.split_once(");").unwrap().0)));
    }
    assert_eq!(shown.len(), 5);
    for (word, names) in shown {
        let replies = peer.query(format!("show {word}")).await;
        let Some(Reply::Columns(columns)) = replies.first() else { panic!("{word}: {replies:?}") };
        let known: Vec<_> = columns.iter().filter_map(|column| column.split(':').next()).collect();
        assert!(names.len() > 6, "{word}: {names:?}");
        for name in names {
            assert!(known.contains(&name.as_str()), "SHOW {word} has no column {name}");
        }
    }
}

#[tokio::test]
async fn show_config_lists_the_global_keys() {
    let console = Arc::new(Console::new(Arc::new(Recorder::default())));
    let replies = Peer::admin(&console).await.query("show config").await;
    let columns = ["key:text", "value:text", "default:text", "changeable:text"];
    assert_eq!(replies[0], Reply::Columns(columns.map(str::to_owned).to_vec()));
    let row = |values: [Option<&str>; 4]| {
        let row = Reply::Row(values.iter().map(|value| value.map(str::to_owned)).collect());
        assert!(replies.contains(&row), "{row:?}");
    };
    row([Some("pool_mode"), Some("transaction"), Some("session"), Some("yes")]);
    row([Some("listen_port"), Some("6432"), Some("6432"), Some("no")]);
    row([Some("unix_socket_mode"), Some("511"), Some("0777"), Some("no")]);
    row([Some("auth_user"), None, None, Some("yes")]);
}

#[tokio::test]
async fn show_help_is_a_notice_that_names_what_there_is() {
    let console = Arc::new(Console::new(Arc::new(Recorder::default())));
    let replies = Peer::admin(&console).await.query("show help").await;
    let [Reply::Said(notice), Reply::Done(tag)] = &replies[..] else { panic!("{replies:?}") };
    assert_eq!(tag, "SHOW");
    assert!(notice.starts_with("NOTICE 00000: Console usage (\n\tSHOW HELP|"), "{notice}");
    for name in SHOWS.into_iter().chain(["CONFIG", "MEM"]) {
        assert!(notice.contains(&format!("|{name}")), "{name}");
    }
    assert!(notice.contains("\n\tRELOAD\n\tPAUSE [<db>]\n"), "{notice}");
}
