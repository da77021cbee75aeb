//! A pool belongs to one user and one database. A client gets its servers only after a login.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use testkit::{RawClient, ServerError, eventually, poll_until};

use crate::requirement::Requirement;
use crate::results::Verdict;
use crate::run::Run;
use crate::site::{PATIENCE, Path, Site, Wish, pid, quit};

pub(crate) const ALL: &[Requirement] = &[
    Requirement { name: "a pool for each user and database", show: keys },
    Requirement { name: "a silent client has no backend", show: silent },
    Requirement { name: "each login is judged", show: judged },
    Requirement { name: "changes reach idle servers", show: changes },
    Requirement { name: "replication is never pooled", show: replication },
    Requirement { name: "the list of servers is true", show: list },
];

const DATABASES: [&str; 2] = ["bsu", "other"];
const USERS: [&str; 2] = ["dbuser1", "dbuser2"];
/// The longest time between a change in PostgreSQL and the first login that obeys it.
const HEARD_WITHIN: Duration = Duration::from_secs(1);

fn wish() -> Wish {
    Wish::new(&DATABASES, &USERS)
}

/// Two users and two databases: no process serves two of the four pairs.
fn keys(run: &Run, path: Path) -> Verdict {
    let site = Site::start(path, &wish().key("max_server_connections", 6));
    let mut owners = HashMap::new();
    let rounds = run.count(100, 25);
    for round in 0..rounds {
        for user in USERS {
            for database in DATABASES {
                let mut clients: Vec<_> =
                    (0..1 + round % 3).map(|_| site.client(user, database)).collect();
                for client in &mut clients {
                    client.rows("BEGIN");
                    let server = pid(client);
                    let owner = *owners.entry(server).or_insert((user, database));
                    let is = client.value("SELECT session_user || ' ' || current_database()");
                    if owner != (user, database) || is != format!("{user} {database}") {
                        let figure = format!("{user} of {database} got {server} of {owner:?}");
                        return Verdict::Failed(figure);
                    }
                }
                clients.into_iter().for_each(|mut client| {
                    client.rows("COMMIT");
                    quit(client);
                });
            }
        }
    }
    let all = rounds * 4;
    Verdict::Passed(format!("{} backends, each of one pair, in {all} rounds", owners.len()))
}

/// Returns the number of all clients' backends, also of those that are logging in.
fn backends(site: &Site) -> usize {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'";
    let count = site.sql("postgres", sql)[0][0].clone();
    count.and_then(|count| count.parse().ok()).expect("a number")
}

/// Clients that connect and send nothing, or half a startup packet, occupy no backend and delay
/// nobody.
fn silent(_: &Run, path: Path) -> Verdict {
    let site = Site::start(path, &wish());
    let mut first = site.client(USERS[0], DATABASES[0]);
    first.rows("SELECT 1");
    let before = backends(&site);
    let mut quiet: Vec<_> = (0..100).map(|_| RawClient::connect(site.weir_port())).collect();
    for client in quiet.iter_mut().take(50) {
        client.send([0, 0, 0, 40]);
    }
    let began = Instant::now();
    let mut other = site.client(USERS[0], DATABASES[0]);
    other.rows("SELECT 1");
    let took = began.elapsed();
    let more = backends(&site).saturating_sub(before);
    let figure = format!(
        "100 silent clients, {more} backend for the one that speaks, which waits {} ms",
        took.as_millis()
    );
    Verdict::of(more <= 1 && took < Duration::from_secs(1), figure)
}

fn login_with(site: &Site, password: &str) -> Result<RawClient, ServerError> {
    RawClient::login(site.weir_port(), USERS[0], DATABASES[0], password)
}

/// An idle server of the user is there, and a wrong password is still refused.
fn judged(_: &Run, path: Path) -> Verdict {
    let site = Site::start(path, &wish());
    let mut client = site.client(USERS[0], DATABASES[0]);
    client.rows("SELECT 1");
    quit(client);
    let idle = site.backends_of(USERS[0], DATABASES[0]).len();
    let refused = (0..3).filter(|_| login_with(&site, "wrong").is_err()).count();
    let let_in = site.login(USERS[0], DATABASES[0]).is_ok();
    let figure =
        format!("{idle} idle server; 3 wrong passwords, {refused} refused; then the right one");
    Verdict::of(idle == 1 && refused == 3 && let_in, figure)
}

/// A new password, a role without LOGIN and a new rule are obeyed by the next login, although an idle
/// server of the user is there.
fn changes(_: &Run, path: Path) -> Verdict {
    let site = Site::start(path, &wish().asks_passwords().key("auth_failure_delay", 0));
    let mut client = site.client(USERS[0], DATABASES[0]);
    client.rows("SELECT 1");
    quit(client);
    let mut words = Vec::new();
    let mut longest = Duration::ZERO;
    let mut heard = |what: &str, is_heard: &dyn Fn() -> bool| {
        let began = Instant::now();
        let is_heard = poll_until(PATIENCE, || is_heard().then_some(())).is_some();
        longest = longest.max(began.elapsed());
        let took = began.elapsed().as_millis();
        words.push(if is_heard { format!("{what} {took} ms") } else { format!("{what} never") });
    };
    let works = |password: &str| {
        login_with(&site, password).is_ok_and(|mut client| client.query("SELECT 1").error.is_none())
    };
    let user = USERS[0];
    site.sql("postgres", &format!("ALTER ROLE {user} PASSWORD 'changed'"));
    heard("password", &|| !works(user) && works("changed"));
    site.sql("postgres", &format!("ALTER ROLE {user} NOLOGIN"));
    heard("NOLOGIN", &|| !works("changed"));
    site.sql("postgres", &format!("ALTER ROLE {user} LOGIN"));
    heard("LOGIN", &|| works("changed"));
    let rules = site.socket_folder().join("data/pg_hba.conf");
    let text = fs::read_to_string(&rules).expect("the server's rules");
    if path == Path::Builtin {
        fs::write(&rules, format!("host all {user} 127.0.0.1/32 reject\n{text}")).expect("ours");
        site.sql("postgres", "SELECT pg_reload_conf()");
        heard("pg_hba.conf", &|| !works("changed"));
    }
    site.sql("postgres", &format!("DROP ROLE {user}"));
    heard("DROP ROLE", &|| !works("changed"));
    let figure = format!("heard after: {}", words.join(", "));
    let patience = HEARD_WITHIN + Duration::from_millis(100);
    let figure = match path {
        Path::Builtin => figure,
        Path::Proxied | Path::Direct => {
            format!("{figure}; rules for clients are Weir's own file (auth_hba_file)")
        }
    };
    Verdict::of(longest <= patience, figure)
}

/// A replication connection gets a server of its own, or a clear error.
fn replication(_: &Run, path: Path) -> Verdict {
    let site = Site::start(path, &wish());
    let user = USERS[0];
    site.sql("postgres", &format!("ALTER ROLE {user} REPLICATION"));
    let mut client = site.client(user, DATABASES[0]);
    client.rows("SELECT 1");
    quit(client);
    let idle = site.backends_of(user, DATABASES[0]);
    let startup = [("user", user), ("database", DATABASES[0]), ("replication", "database")];
    let mut client = RawClient::connect(site.weir_port());
    let figure = match client.authenticate(&startup, user) {
        Err(e) => return Verdict::Failed(format!("refused: {e:?}")),
        Ok(_) => {
            let system = client.rows("IDENTIFY_SYSTEM").len();
            let sql = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walsender'";
            let own: Vec<u32> = site
                .sql("postgres", sql)
                .iter()
                .filter_map(|row| row[0].as_ref()?.parse().ok())
                .collect();
            let is_own = own.len() == 1 && !idle.contains(&own[0]) && system == 1;
            quit(client);
            eventually("its server has ended", PATIENCE, || {
                site.sql("postgres", sql).is_empty().then_some(())
            });
            if !is_own {
                return Verdict::Failed(format!("walsenders {own:?}, idle servers {idle:?}"));
            }
            "a server of its own, which ends with it"
        }
    };
    Verdict::Passed(figure.to_owned())
}

/// Weir's list of servers agrees with PostgreSQL's.
fn list(_: &Run, path: Path) -> Verdict {
    let site = Site::start(path, &wish().key("default_pool_size", 20));
    let mut held = Vec::new();
    for (user, count) in USERS.into_iter().zip([7, 4]) {
        for _ in 0..count {
            let mut client = site.client(user, DATABASES[0]);
            client.rows("BEGIN");
            held.push(client);
        }
    }
    // Some become idle, some stay busy.
    for mut client in held.drain(..5) {
        client.rows("COMMIT");
        quit(client);
    }
    let seen = || {
        let all = USERS.map(|user| site.backends_of(user, DATABASES[0]).len());
        (all.iter().sum::<usize>(), site.servers(DATABASES[0]))
    };
    poll_until(Duration::from_secs(2), || (seen().0 == seen().1).then_some(()));
    let (all, listed) = seen();
    let figure = format!("{listed} servers listed, {all} in pg_stat_activity, for 11 clients");
    // A lobby may have opened backends ahead of need.
    let is_enough = if path == Path::Direct { all >= 11 } else { all == 11 };
    Verdict::of(all == listed && is_enough, figure)
}
