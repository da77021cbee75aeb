//! Direct pools: PostgreSQL's backends serve the clients' sockets (docs/direct.md).

mod ahead;
mod console;
mod crash;
mod descriptors;
mod idle;
pub(crate) mod kills;
mod large;
mod leavers;
mod limits;
mod listen;
mod listeners;
mod many;
mod memory;
pub(crate) mod moments;
mod names;
mod parameters;
mod reasons;
mod refused;
mod restart;
mod roles;
mod seats;
pub(crate) mod shared;
mod timings;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use testkit::{Authority, Pooler, Postgres, RawClient, Setup, Version, eventually, frontend};

use crate::support;

const PATIENCE: Duration = Duration::from_secs(20);

/// A server with the library, and a pooler whose only pool is direct.
struct Direct {
    // Dropped first.
    pooler: Pooler,
    postgres: Postgres,
    database: String,
}

impl Direct {
    fn start(size: u32) -> Self {
        Self::start_with(size, |setup| setup)
    }

    fn start_with(size: u32, change: impl FnOnce(Setup) -> Setup) -> Self {
        let direct = Self::begin(size, change);
        // The first client waits for the trial.
        drop(direct.client());
        assert_eq!(direct.column("data_path"), "direct", "{}", direct.pooler.log());
        direct
    }

    /// Does the same, and does not expect the pool to be direct.
    fn begin(size: u32, change: impl FnOnce(Setup) -> Setup) -> Self {
        let postgres = Postgres::start_with_library(Version::Installed);
        let socket = postgres.socket_folder().join("direct");
        postgres.set("weir.control_socket", &socket.to_string_lossy());
        let database = postgres.database();
        let setup = Pooler::before(&postgres)
            .set("pool_mode", "auto")
            .set("default_pool_size", size)
            .set("data_path", "direct")
            .set("direct_socket", socket.display())
            .database(&database, "");
        Self { pooler: change(setup).start(), postgres, database }
    }

    fn socket(&self) -> PathBuf {
        self.postgres.socket_folder().join("direct")
    }

    #[track_caller]
    fn client(&self) -> RawClient {
        self.pooler.client(&self.database)
    }

    fn clients(&self, count: usize) -> Vec<RawClient> {
        (0..count).map(|_| self.client()).collect()
    }

    /// Returns a column of the pool's row in SHOW POOLS; empty for NULL.
    fn column(&self, name: &str) -> String {
        let pools = self.pooler.console().query("SHOW POOLS EXTENDED");
        let at = pools.columns.iter().position(|column| column == name).expect("a column");
        let row = pools.rows.iter().find(|row| row[0].as_deref() == Some(&self.database));
        row.expect("the pool's row")[at].clone().unwrap_or_default()
    }

    /// Returns how long each of the clients that wait has waited.
    fn waits(&self) -> Vec<Duration> {
        let shown = self.pooler.admin("SHOW CLIENTS").with("state", "waiting");
        let number = |text: &str| text.parse::<u64>().expect("a number");
        let seconds = shown.column("wait").into_iter().map(number);
        let micros = shown.column("wait_us").into_iter().map(number);
        let all = seconds.zip(micros);
        all.map(|(seconds, micros)| Duration::from_micros(seconds * 1_000_000 + micros)).collect()
    }

    fn backends(&self) -> Vec<u32> {
        self.postgres.backends(&self.database)
    }

    /// Waits until so many backends serve clients or are kept by them. All other clients are then at
    /// rest: a backend is still busy with a client for a moment after its last reply.
    fn until_active(&self, count: usize) {
        eventually("all other clients are at rest", PATIENCE, || {
            (self.column("sv_active") == count.to_string()).then_some(())
        });
    }
}

fn pid(client: &mut RawClient) -> u32 {
    client.value("SELECT pg_backend_pid()").parse().expect("a number")
}

/// Sends these messages and returns the last row's only value, or the error's code.
#[track_caller]
fn ask(client: &mut RawClient, messages: &[Vec<u8>]) -> String {
    client.send(messages.concat());
    let answer = client.read_to_ready();
    if let Some(error) = answer.iter().find_map(|message| message.error()) {
        return error.code().to_owned();
    }
    let row = answer.iter().rfind(|message| message.tag == b'D').map(|message| message.row());
    row.and_then(|row| row.into_iter().next().flatten()).unwrap_or_default()
}

fn execute(name: &str) -> Vec<u8> {
    [frontend::bind("", name, &[]), frontend::execute("", 0)].concat()
}

#[test]
fn many_clients_are_served_by_few_backends_core() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(4);
    let mut clients = direct.clients(100);
    let mut busy = || {
        let busy = clients.iter_mut().enumerate();
        busy.for_each(|(number, client)| {
            client.rows(&format!("SET application_name = 'client {number}'"));
            let text = format!("SELECT 'own {number}'");
            assert_eq!(ask(client, &[frontend::parse("s", &text), frontend::sync()]), "");
        });
    };
    busy();
    for round in 0..3 {
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.value("SHOW application_name"), format!("client {number}"));
            client.rows("BEGIN");
            let own = ask(client, &[execute("s"), frontend::sync()]);
            assert_eq!(own, format!("own {number}"), "round {round}");
            client.rows("COMMIT");
        }
    }
    assert!(direct.backends().len() <= 4);
    let shown = direct.pooler.console().query("SHOW CLIENTS").rows.len();
    assert_eq!(shown, 101, "the console is one of them");
    assert_eq!(direct.column("cl_active"), "100");
    drop(clients);
    eventually("all have left", PATIENCE, || (direct.column("cl_active") == "0").then_some(()));
}

#[test]
fn servers_are_opened_while_all_are_busy_and_no_more_than_the_pool_has() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(3);
    let mut clients = direct.clients(6);
    for client in &mut clients {
        client.send(frontend::query("SELECT pg_sleep(0.5)"));
    }
    eventually("three servers work", PATIENCE, || (direct.backends().len() == 3).then_some(()));
    for client in &mut clients {
        assert!(client.read_to_ready().iter().all(|message| message.error().is_none()));
    }
    assert_eq!(direct.backends().len(), 3);
    eventually("all are idle", PATIENCE, || (direct.column("sv_idle") == "3").then_some(()));
}

#[test]
fn a_query_is_cancelled_and_no_other_clients_core_strict() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(1);
    let mut client = direct.client();
    client.send(frontend::query("SELECT pg_sleep(60)"));
    support::until_running_at(&direct.postgres, &direct.database, "SELECT pg_sleep(60)");
    client.cancel(direct.pooler.port());
    let error = client.read_to_ready().iter().find_map(|message| message.error());
    assert_eq!(error.expect("it was cancelled").code(), "57014");
    // The client is idle, so another client's query goes on.
    let mut other = direct.client();
    other.send(frontend::query("SELECT pg_sleep(0.5), 7"));
    support::until_running_at(&direct.postgres, &direct.database, "SELECT pg_sleep(0.5), 7");
    client.cancel(direct.pooler.port());
    assert!(other.read_to_ready().iter().all(|message| message.error().is_none()));
    assert_eq!(client.value("SELECT 7"), "7");
}

#[test]
fn a_backend_that_ends_takes_its_client_only() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(2);
    let mut clients = direct.clients(3);
    clients[1].rows("SET work_mem = '5MB'");
    clients[0].rows("BEGIN");
    let backend = pid(&mut clients[0]);
    clients[2].rows("SELECT 1");
    direct.postgres.sql("postgres", &format!("SELECT pg_terminate_backend({backend})"));
    let told = clients[0].read_to_end();
    let codes: Vec<_> = told.iter().filter_map(|message| message.error()).collect();
    assert!(codes.iter().any(|error| error.code() == "57P01"), "{codes:?}");
    assert_eq!(clients[1].value("SHOW work_mem"), "5MB");
    assert_eq!(clients[2].value("SELECT 2"), "2");
    // The pool is as large as before.
    for client in &mut clients[1..] {
        client.rows("BEGIN");
    }
    assert_eq!(direct.backends().len(), 2);
}

/// Sends the first client's next request to the backend that the second one had. Returns the number
/// of that backend. The third client is left in a transaction, on the other one.
fn change_places([one, two, three]: [&mut RawClient; 3], first: &str, second: &[&str]) -> u32 {
    one.rows(first);
    one.rows("BEGIN");
    second.iter().for_each(|text| drop(two.rows(text)));
    two.rows("BEGIN");
    let backend = pid(two);
    one.rows("COMMIT");
    three.rows("BEGIN");
    assert_ne!(pid(three), backend);
    two.rows("COMMIT");
    backend
}

#[test]
fn a_backend_that_refuses_a_clients_setting_is_replaced() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(2);
    let [mut one, mut two, mut three] = [(); 3].map(|()| direct.client());
    let temporary = ["CREATE TEMP TABLE mine AS SELECT 1", "DROP TABLE mine"];
    let clients = [&mut one, &mut two, &mut three];
    let old = change_places(clients, "SET temp_buffers = '3MB'", &temporary);
    assert_eq!(one.value("SHOW temp_buffers"), "3MB");
    assert_ne!(pid(&mut one), old);
    assert_eq!(two.value("SELECT 2"), "2");
    assert!(!direct.backends().contains(&old));
}

#[test]
fn a_client_whose_setting_all_backends_refuse_is_told() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(2);
    let [mut one, mut two, mut three] = [(); 3].map(|()| direct.client());
    one.rows("CREATE TEXT SEARCH CONFIGURATION gone (COPY = simple)");
    let set = "SET default_text_search_config = 'public.gone'";
    let drop = ["DROP TEXT SEARCH CONFIGURATION gone"];
    change_places([&mut one, &mut two, &mut three], set, &drop);
    one.send(frontend::query("SELECT 1"));
    let told = one.read_to_end();
    let texts: Vec<_> = told.iter().filter_map(|message| message.error()).collect();
    assert!(texts.iter().any(|error| error.message().contains("cannot be restored")), "{texts:?}");
    assert_eq!(two.value("SELECT 2"), "2");
    assert_eq!(three.value("SELECT 3"), "3");
}

#[test]
fn copy_data_behind_an_error_is_read_to_its_end() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start_with(2, |setup| setup.set("tcp_socket_buffer", 65_536));
    let mut client = direct.client();
    client.rows("CREATE TABLE numbers (a int)");
    let data = frontend::copy_data(&[b'1'; 1000]).repeat(4000);
    for _ in 0..20 {
        client.send(frontend::query("COPY numbers FROM STDIN"));
        client.read_until(|message| message.tag == b'G');
        client.send([frontend::copy_data(b"no number\n"), data.clone()].concat());
        assert!(client.read_to_ready().iter().any(|message| message.error().is_some()));
        assert_eq!(client.value("SELECT 1"), "1");
    }
}

#[test]
fn a_client_that_is_lost_in_a_transaction_leaves_nothing_core_strict() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(1);
    let mut client = direct.client();
    client.rows("CREATE TABLE lost (a int)");
    client.rows("BEGIN; INSERT INTO lost VALUES (1)");
    drop(client);
    let mut other = direct.client();
    assert_eq!(other.value("SELECT count(*) FROM lost"), "0");
}

#[test]
fn paused_clients_wait_and_go_on() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(2);
    let mut clients = direct.clients(2);
    clients[0].rows("SET work_mem = '6MB'");
    clients[1].rows("BEGIN");
    let mut console = direct.pooler.console();
    console.send(frontend::query(&format!("PAUSE {}", direct.database)));
    // A transaction goes on, and PAUSE waits for it.
    assert_eq!(clients[1].value("SELECT 1"), "1");
    clients[1].rows("COMMIT");
    assert!(console.read_to_ready().iter().all(|message| message.error().is_none()));
    eventually("no server is left", PATIENCE, || direct.backends().is_empty().then_some(()));
    let begun = Instant::now();
    clients[0].send(frontend::query("SHOW work_mem"));
    clients[1].send(frontend::query("SELECT 2"));
    eventually("both have waited for longer than Weir takes to open a server", PATIENCE, || {
        let waits = direct.waits();
        assert!(waits.iter().all(|wait| *wait <= begun.elapsed()), "{waits:?}");
        let is_long = |wait: &Duration| *wait > Duration::from_millis(300);
        (waits.len() == 2 && waits.iter().all(is_long)).then_some(())
    });
    assert!(direct.backends().is_empty());
    console.rows(&format!("RESUME {}", direct.database));
    assert!(clients[0].read_to_ready().iter().any(|message| message.tag == b'D'));
    assert!(clients[1].read_to_ready().iter().any(|message| message.tag == b'D'));
    assert_eq!(clients[0].value("SHOW work_mem"), "6MB");
}

#[test]
fn reconnect_gives_new_servers_and_keeps_clients() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(1);
    let mut client = direct.client();
    client.rows("SET work_mem = '7MB'");
    let old = pid(&mut client);
    direct.pooler.console().rows("RECONNECT");
    eventually("the old server is gone", PATIENCE, || {
        (!direct.backends().contains(&old)).then_some(())
    });
    assert_eq!(client.value("SHOW work_mem"), "7MB");
    assert_ne!(pid(&mut client), old);
}

#[test]
fn killed_clients_are_told() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(2);
    let mut clients = direct.clients(2);
    clients[1].rows("BEGIN");
    direct.pooler.console().rows(&format!("KILL {}", direct.database));
    let told = clients[0].read_to_end();
    assert!(told.iter().any(|message| message.error().is_some()), "{told:?}");
    clients[1].read_to_end();
    eventually("no server is left", PATIENCE, || direct.backends().is_empty().then_some(()));
    direct.pooler.console().rows(&format!("RESUME {}", direct.database));
    assert_eq!(direct.client().value("SELECT 3"), "3");
}

#[test]
fn a_switch_to_the_proxy_takes_effect_at_once() {
    if !support::only_weir() {
        return;
    }
    let mut direct = Direct::start(1);
    let mut clients = direct.clients(2);
    clients[0].rows("SELECT 1");
    clients[1].rows("BEGIN");
    direct.pooler.reconfigure(|ini| ini.set("data_path", "proxy"));
    direct.pooler.reload();
    let told = clients[0].read_to_end();
    assert!(told.iter().any(|message| message.error().is_some()), "{told:?}");
    // A transaction goes on to its end.
    assert_eq!(clients[1].value("SELECT 3"), "3");
    clients[1].rows("COMMIT");
    let told = clients[1].read_to_end();
    assert!(told.iter().any(|message| message.error().is_some()), "{told:?}");
    assert_eq!(direct.client().value("SELECT 4"), "4");
    assert_eq!(direct.column("data_path"), "proxy");
    assert_eq!(direct.column("why"), "");
}

/// Idle servers of the proxied pool make room, whichever worker has them.
#[test]
fn a_switch_to_direct_serves_clients_at_once() {
    if !support::only_weir() {
        return;
    }
    let mut direct = Direct::start_with(2, |setup| setup.workers(2));
    for round in 0..8 {
        direct.pooler.reconfigure(|ini| ini.set("data_path", "proxy"));
        direct.pooler.reload();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    let mut client = direct.client();
                    (0..10).for_each(|_| assert_eq!(client.value("SELECT 1"), "1"));
                });
            }
        });
        direct.pooler.reconfigure(|ini| ini.set("data_path", "direct"));
        direct.pooler.reload();
        let began = Instant::now();
        assert_eq!(direct.client().value("SELECT 4"), "4");
        assert!(began.elapsed() < PATIENCE, "{round}: {:?}", began.elapsed());
    }
}

/// Weir's own connections may have TLS, also on this machine. The clients' have none.
#[test]
fn servers_whose_own_connection_has_tls_serve_clients() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::begin(2, |setup| {
        // No other server is opened to be asked for its role.
        setup.set("server_tls_sslmode", "require").set("role_check_interval", 0)
    });
    direct.postgres.offer_tls(&Authority::new("weir test").server());
    drop(direct.client());
    assert_eq!(direct.column("data_path"), "direct", "{}", direct.pooler.log());
    let mut clients = direct.clients(3);
    for round in 0..2 {
        for client in &mut clients {
            client.rows("BEGIN");
            assert_eq!(client.value("SELECT 9"), "9", "{round}");
            client.rows("COMMIT");
        }
    }
    // The error of a backend without a client goes to Weir.
    direct.postgres.sql("postgres", "SELECT pg_terminate_backend(pid) FROM pg_stat_ssl WHERE ssl");
    eventually("no server is left", PATIENCE, || direct.backends().is_empty().then_some(()));
    clients.iter_mut().for_each(|client| assert_eq!(client.value("SELECT 9"), "9"));
    let servers = direct.pooler.admin("SHOW SERVERS").with("database", &direct.database);
    let tls = servers.column("tls");
    // Another one may still be connecting.
    assert!(tls.iter().any(|tls| tls.starts_with("TLSv1")), "{tls:?}");
}

#[test]
fn idle_and_waiting_clients_have_their_limits() {
    if !support::only_weir() {
        return;
    }
    let limits = |setup: Setup| setup.set("query_wait_timeout", 1).set("client_idle_timeout", 4);
    let direct = Direct::start_with(1, limits);
    let mut clients = direct.clients(2);
    clients[0].rows("BEGIN");
    clients[1].send(frontend::query("SELECT 1"));
    let told = clients[1].read_to_end();
    let texts: Vec<_> = told.iter().filter_map(|message| message.error()).collect();
    assert!(texts.iter().any(|error| error.message() == "query_wait_timeout"), "{texts:?}");
    let begun = Instant::now();
    clients[0].rows("COMMIT");
    let told = clients[0].read_to_end();
    let texts: Vec<_> = told.iter().filter_map(|message| message.error()).collect();
    assert!(texts.iter().any(|error| error.message() == "client_idle_timeout"), "{texts:?}");
    assert!(begun.elapsed() > Duration::from_secs(3), "{:?}", begun.elapsed());
}

#[test]
fn backends_end_with_weir() {
    if !support::only_weir() {
        return;
    }
    let mut direct = Direct::start(2);
    let mut client = direct.client();
    client.rows("SELECT 1");
    direct.pooler.kill9();
    eventually("no server is left", PATIENCE, || direct.backends().is_empty().then_some(()));
    direct.pooler.restart();
    assert_eq!(direct.client().value("SELECT 9"), "9");
    assert_eq!(direct.column("data_path"), "direct");
}

#[test]
fn no_client_sees_anothers_session_core_strict() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(3);
    let end = Instant::now() + Duration::from_secs(5);
    std::thread::scope(|scope| {
        for number in 0..12 {
            let direct = &direct;
            scope.spawn(move || {
                let mut round = 0;
                while Instant::now() < end {
                    let mut client = direct.client();
                    for _ in 0..20 {
                        round += 1;
                        talk(&mut client, number, round);
                    }
                    client.send(frontend::terminate());
                }
            });
        }
    });
    assert!(direct.backends().len() <= 3);
}

/// One client's visit: everything that it has set must be its own.
fn talk(client: &mut RawClient, number: u32, round: u32) {
    let own = format!("{number} {round}");
    client.rows(&format!("SET app.own = '{own}'"));
    let text = format!("SELECT '{own}'");
    let prepare = [frontend::close_statement("s"), frontend::parse("s", &text), frontend::sync()];
    assert_eq!(ask(client, &prepare), "");
    assert_eq!(client.value("SHOW app.own"), own);
    assert_eq!(ask(client, &[execute("s"), frontend::sync()]), own);
    client.rows("BEGIN");
    assert_eq!(ask(client, &[execute("s"), frontend::sync()]), own);
    client.rows(if round.is_multiple_of(2) { "COMMIT" } else { "ROLLBACK" });
    let unnamed = [frontend::parse("", &text), execute(""), frontend::sync()];
    assert_eq!(ask(client, &unnamed), own);
}

/// Drivers prepare the unnamed statement, wait for its description, and run it then.
#[test]
fn an_unnamed_statement_lasts_until_it_is_run() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(1);
    let mut clients = direct.clients(2);
    for round in 0..3 {
        let describe = frontend::describe_statement("");
        let prepare = [frontend::parse("", "SELECT 'mine'"), describe, frontend::sync()];
        assert_eq!(ask(&mut clients[0], &prepare), "");
        clients[1].send(frontend::query("SELECT 'other'"));
        assert_eq!(ask(&mut clients[0], &[execute(""), frontend::sync()]), "mine", "{round}");
        assert!(clients[1].read_to_ready().iter().any(|message| message.tag == b'D'));
    }
}

#[test]
fn a_client_that_leaves_within_a_message_is_removed() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(1);
    let mut other = direct.client();
    let mut client = direct.client();
    let message = frontend::query("SELECT 1");
    client.send(&message[..7]);
    // The backend has returned it, and serves others.
    assert_eq!(other.value("SELECT 2"), "2");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(direct.column("cl_active"), "2");
    drop(client);
    eventually("it is removed", PATIENCE, || (direct.column("cl_active") == "1").then_some(()));
    // One whose message is completed is served.
    let mut client = direct.client();
    client.send(&message[..7]);
    std::thread::sleep(Duration::from_millis(300));
    client.send(&message[7..]);
    assert!(client.read_to_ready().iter().any(|message| message.tag == b'D'));
}

fn descriptors(direct: &Direct) -> usize {
    let folder = format!("/proc/{}/fd", direct.pooler.pid());
    std::fs::read_dir(folder).expect("the process is there").count()
}

#[test]
fn a_lobby_reserves_descriptors_only_while_the_pool_is_direct() {
    if !support::only_weir() {
        return;
    }
    let many = |setup: Setup| setup.set("max_client_conn", 2_000);
    let mut direct = Direct::begin(1, many);
    // Logins of the console make no lobby.
    assert!(descriptors(&direct) < 1_000);
    drop(direct.client());
    assert_eq!(direct.column("data_path"), "direct");
    assert!(descriptors(&direct) > 2_000);
    direct.pooler.reconfigure(|ini| ini.set("data_path", "proxy"));
    direct.pooler.reload();
    eventually("they are free", PATIENCE, || (descriptors(&direct) < 1_000).then_some(()));
    direct.pooler.reconfigure(|ini| ini.set("data_path", "direct"));
    direct.pooler.reload();
    assert_eq!(direct.client().value("SELECT 3"), "3");
    assert_eq!(direct.column("data_path"), "direct");
}
