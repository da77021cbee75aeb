//! A server is used again only after success, and its next client is judged anew.

use std::process::Stdio;
use std::time::{Duration, Instant};

use testkit::{Postgres, RawClient, eventually, frontend, poll_until, send_signal};

use crate::requirement::Requirement;
use crate::results::{Table, Verdict};
use crate::run::Run;
use crate::site::{PATIENCE, Path, Site, Wish, pid, quit};

pub(crate) const ALL: &[Requirement] = &[
    Requirement { name: "reuse only after success", show: matrix },
    Requirement { name: "reuse without end", show: ten_thousand },
    Requirement { name: "a crash leaves no stale server", show: crash },
];

const DATABASE: &str = "bsu";
/// The longest wait for the first answer after a crash: PostgreSQL recovers meanwhile.
const SERVED_AGAIN_WITHIN: Duration = Duration::from_secs(5);
const USER: &str = "dbuser1";

/// The ways in which a client's use of its server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    CleanQuit,
    NoCommand,
    LastFailed,
    LastSucceeded,
    RolledBack,
    InTransaction,
    InFailedTransaction,
    KilledInQuery,
    Terminated,
    Fatal,
}

/// Each end, with its name, and whether the next client gets the same server with
/// `reuse_after_error = reset` and `never`.
const ENDS: [(End, &str, bool, bool); 10] = [
    (End::CleanQuit, "clean quit", true, true),
    (End::NoCommand, "quit with no command", true, true),
    (End::LastFailed, "last command failed", true, false),
    (End::LastSucceeded, "a command after the failed one succeeded", true, true),
    (End::RolledBack, "failed transaction rolled back", true, false),
    (End::InTransaction, "quit inside a transaction", false, false),
    (End::InFailedTransaction, "quit inside a failed transaction", false, false),
    (End::KilledInQuery, "client killed by SIGKILL in a query", true, false),
    (End::Terminated, "pg_terminate_backend", false, false),
    (End::Fatal, "FATAL", false, false),
];

/// The client of this end uses the server and leaves.
fn end(site: &Site, how: End) {
    if how == End::KilledInQuery {
        return killed_in_query(site);
    }
    let mut client = site.client(USER, DATABASE);
    match how {
        End::CleanQuit => drop(client.rows("SELECT 1")),
        End::NoCommand => {}
        End::LastFailed => fails(&mut client),
        End::LastSucceeded => {
            // In one transaction, so that both are on the same server.
            client.rows("BEGIN; SAVEPOINT s");
            fails(&mut client);
            client.rows("ROLLBACK TO s");
            client.rows("COMMIT");
        }
        End::RolledBack => {
            client.rows("BEGIN");
            fails(&mut client);
            client.rows("ROLLBACK");
        }
        End::InTransaction => drop(client.rows("BEGIN")),
        End::InFailedTransaction => {
            client.rows("BEGIN");
            fails(&mut client);
        }
        End::Terminated => {
            client.rows("BEGIN");
            let server = pid(&mut client);
            site.sql("postgres", &format!("SELECT pg_terminate_backend({server})"));
            let _ = client.read_to_end();
        }
        End::Fatal => {
            client.rows("BEGIN; SET LOCAL idle_in_transaction_session_timeout = 20");
            let _ = client.read_to_end();
        }
        End::KilledInQuery => {}
    }
    quit(client);
}

#[track_caller]
fn fails(client: &mut RawClient) {
    assert!(client.query("SELECT 1 / 0").error.is_some(), "the command has succeeded");
}

fn killed_in_query(site: &Site) {
    let mut psql = Postgres::client_program("psql", site.weir_port(), DATABASE);
    psql.env("PGUSER", USER).env("PGPASSWORD", USER).args(["-c", "SELECT pg_sleep(600)"]);
    let mut psql = psql.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("psql runs");
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' \
               AND query LIKE '%pg_sleep(600)%' AND pid <> pg_backend_pid()";
    eventually("the query runs", PATIENCE, || {
        (site.sql("postgres", sql)[0][0].as_deref() == Some("1")).then_some(())
    });
    psql.kill().and_then(|()| psql.wait()).expect("our own child");
    eventually("the query is cancelled, or its backend has ended", PATIENCE, || {
        (site.sql("postgres", sql)[0][0].as_deref() == Some("0")).then_some(())
    });
}

/// All ends, with both values of the key. The pool has one server, so the next client gets either
/// that one or a new one.
fn matrix(run: &Run, path: Path) -> Verdict {
    let modes: &[&str] = match path {
        Path::Proxied | Path::Builtin => &["session", "transaction", "auto"],
        Path::Direct => &["auto"],
    };
    let mut table = Table::new(["mode", "reuse_after_error", "end", "the next client's server"]);
    let (mut wrong, mut fallback) = (Vec::new(), String::new());
    for mode in modes {
        for policy in ["reset", "never"] {
            let wish = Wish::new(&[DATABASE], &[USER])
                .key("default_pool_size", 1)
                .key("pool_mode", mode)
                .key("reuse_after_error", policy)
                // In a direct pool, the backend itself looks for its client.
                .setting("client_connection_check_interval = 100");
            let site = Site::start(path, &wish);
            for (how, name, with_reset, with_never) in ENDS {
                let mut before = site.client(USER, DATABASE);
                let old = pid(&mut before);
                quit(before);
                end(&site, how);
                let mut after = site.client(USER, DATABASE);
                let same = pid(&mut after) == old;
                quit(after);
                // The backend of a direct pool ends with a client that it has lost.
                let ends = path == Path::Direct && how == End::KilledInQuery;
                let expected = if policy == "never" { with_never } else { with_reset && !ends };
                let word = if same { "the same" } else { "a new one" };
                table.row([mode, policy, name, word].map(|word| (*word).to_owned()));
                if same != expected {
                    wrong.push(format!("{mode}, {policy}, {name}: {word}"));
                }
            }
            if path == Path::Direct {
                let (is, why) = site.data_path(USER, DATABASE);
                if (policy == "reset") != (is == "direct") {
                    wrong.push(format!("{policy}: the pool is {is} ({why})"));
                }
                if policy == "never" {
                    fallback = format!("; with never the pool is proxied (\"{why}\")");
                }
            }
        }
    }
    table.write(&format!("reuse-{}", path.file()), run);
    let figure = match wrong.is_empty() {
        true => format!("{} ends as expected{fallback}", table.rows.len()),
        false => wrong.join("; "),
    };
    Verdict::of(wrong.is_empty(), figure)
}

/// One server serves session after session. The thesis' backends crashed at the 21st.
fn ten_thousand(run: &Run, path: Path) -> Verdict {
    let reuses = run.count(10_000, 2_000);
    let wish = Wish::new(&[DATABASE], &[USER]).key("default_pool_size", 1);
    let wish = if path == Path::Builtin { wish } else { wish.key("auth_type", "trust") };
    let site = Site::start(path, &wish);
    site.sql("postgres", &format!("GRANT auth_trust TO {USER}"));
    let mut first = site.client(USER, DATABASE);
    let server = pid(&mut first);
    quit(first);
    let began = Instant::now();
    for reuse in 1..=reuses {
        let mut client = match site.login(USER, DATABASE) {
            Ok(client) => client,
            Err(e) => return Verdict::Failed(format!("reuse {reuse}: {e:?}")),
        };
        let own = pid(&mut client);
        if own != server {
            return Verdict::Failed(format!("reuse {reuse} got another server"));
        }
        quit(client);
    }
    let each = began.elapsed().as_micros() / reuses as u128;
    Verdict::Passed(format!("{reuses} sessions on one server, {each} µs each with the login"))
}

/// A backend is killed by SIGKILL, and PostgreSQL starts its shared memory anew.
fn crash(_: &Run, path: Path) -> Verdict {
    const CLIENTS: usize = 8;
    let site = Site::start(path, &Wish::new(&[DATABASE], &[USER]));
    site.sql("postgres", "CHECKPOINT");
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| site.client(USER, DATABASE)).collect();
    let old: Vec<_> = clients
        .iter_mut()
        .map(|client| {
            client.rows("BEGIN");
            pid(client)
        })
        .collect();
    clients.drain(..).for_each(|mut client| {
        client.rows("COMMIT");
        quit(client);
    });
    send_signal(old[0], "KILL");
    let began = Instant::now();
    eventually("PostgreSQL has ended all its backends", PATIENCE, || {
        let is_gone = |pid: &u32| !std::path::Path::new(&format!("/proc/{pid}")).exists();
        old.iter().all(is_gone).then_some(())
    });
    let served = poll_until(PATIENCE, || {
        let mut client = RawClient::try_connect(site.weir_port()).ok()?;
        client.authenticate(&[("user", USER), ("database", DATABASE)], USER).ok()?;
        client.try_send(frontend::query("SELECT pg_backend_pid()")).ok()?;
        let mut own = None;
        while let Ok(Some(message)) = client.try_read() {
            match message.tag {
                b'D' => own = message.row().pop().flatten(),
                b'Z' => return own?.parse::<u32>().ok(),
                _ => {}
            }
        }
        None
    });
    let took = began.elapsed();
    let Some(own) = served else { return Verdict::Failed("no query works any more".to_owned()) };
    // The pool has the servers of now, and none of those before.
    let seen = site.backends_of(USER, DATABASE);
    let is_fresh = !seen.iter().any(|pid| old.contains(pid)) && !old.contains(&own);
    let counted = counted(&site);
    let figure = format!(
        "the next query works after {} ms; {} servers, of which Weir counts {counted}",
        took.as_millis(),
        seen.len()
    );
    let is_soon = took < SERVED_AGAIN_WITHIN;
    Verdict::of(is_fresh && is_soon && counted == seen.len(), figure)
}

/// Returns how many servers Weir counts in the database.
fn counted(site: &Site) -> usize {
    // A server that has just ended is counted for a moment.
    let expected = site.backends_of(USER, DATABASE).len();
    poll_until(Duration::from_secs(2), || (site.servers(DATABASE) == expected).then_some(()));
    site.servers(DATABASE)
}
