//! The workload of the thesis: each connection inserts 52 rows into five tables with foreign keys, in one
//! transaction. Connections come one after another, and thirty at a time.

use std::thread;
use std::time::Instant;

use admin::{Axis, Panel, chart, cumulative};
use load::Summary;
use testkit::{Postgres, RawClient, Relay, eventually};

use crate::requirement::Requirement;
use crate::results::{Table, Verdict};
use crate::run::Run;
use crate::site::{PATIENCE, Path, Site, Wish, quit};

pub(crate) const ALL: &[Requirement] = &[
    Requirement { name: "one after another", show: serial },
    Requirement { name: "thirty at a time", show: parallel },
    Requirement { name: "an idle server is chosen faster", show: chosen },
];

const DATABASE: &str = "bsu";
const USER: &str = "dbuser1";
/// The pool has room for all clients at a time, as in the thesis.
const CAPACITY: usize = 32;
const AT_A_TIME: usize = 30;

/// The tables, each with the columns that do not depend on the order of the connections.
const TABLES: [(&str, &str); 5] = [
    ("address", "addr_mykey, addr_street1, addr_city, addr_state, addr_zip"),
    ("customer", "c_mykey, c_uname, c_addr_mykey"),
    ("author", "a_mykey, a_fname, a_lname"),
    ("item", "i_mykey, i_title, i_a_mykey, i_subject, i_cost"),
    ("orders", "o_i_mykey, o_addr_mykey, o_c_mykey, o_total"),
];

const SCHEMA: &str = "
    CREATE TABLE address (addr_id serial, addr_mykey varchar(20) PRIMARY KEY,
        addr_street1 varchar(40), addr_city varchar(30), addr_state varchar(20),
        addr_zip varchar(10));
    CREATE TABLE customer (c_id serial, c_mykey varchar(20) PRIMARY KEY, c_uname varchar(20),
        c_addr_mykey varchar(20) REFERENCES address MATCH FULL);
    CREATE TABLE author (a_id serial, a_mykey varchar(20) PRIMARY KEY, a_fname varchar(20),
        a_lname varchar(20));
    CREATE TABLE item (i_id serial, i_mykey varchar(20) PRIMARY KEY, i_title varchar(60),
        i_a_mykey varchar(20) REFERENCES author MATCH FULL, i_subject varchar(60),
        i_cost numeric(15,2));
    CREATE TABLE orders (o_id serial PRIMARY KEY,
        o_i_mykey varchar(20) REFERENCES item MATCH FULL,
        o_addr_mykey varchar(20) REFERENCES address,
        o_c_mykey varchar(20) REFERENCES customer MATCH FULL, o_total numeric(15,2));
    GRANT ALL ON ALL TABLES IN SCHEMA public TO PUBLIC;
    GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO PUBLIC";

/// The times of one connection, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// From the first packet until the first request may be sent.
    initial: f64,
    /// Until the connection is closed.
    total: f64,
}

/// A database in which a workload runs, and its port.
#[derive(Clone, Copy)]
struct Arm<'a> {
    postgres: &'a Postgres,
    port: u16,
}

impl Arm<'_> {
    /// Makes empty tables.
    fn prepare(self) {
        let names = TABLES.map(|(name, _)| name).join(", ");
        self.postgres.sql(DATABASE, &format!("DROP TABLE IF EXISTS {names} CASCADE; {SCHEMA}"));
    }

    /// Returns all rows, without the numbers that depend on the order of the connections.
    fn dump(self) -> Vec<Vec<Option<String>>> {
        let dump = |(name, columns)| {
            let sql = format!("SELECT '{name}', ({columns})::text FROM {name} ORDER BY 2");
            self.postgres.sql(DATABASE, &sql)
        };
        TABLES.into_iter().flat_map(dump).collect()
    }

    /// Runs these connections, one after another.
    fn connections(self, numbers: impl Iterator<Item = usize>) -> Vec<Times> {
        numbers.map(|number| self.connection(number)).collect()
    }

    /// Runs one connection. `number` makes its keys different from those of all others.
    fn connection(self, number: usize) -> Times {
        let began = Instant::now();
        let elapsed = || began.elapsed().as_secs_f64() * 1e3;
        let mut client = RawClient::login(self.port, USER, DATABASE, USER)
            .unwrap_or_else(|error| panic!("login {number}: {error:?}"));
        let initial = elapsed();
        client.rows("BEGIN");
        for sql in inserts(number) {
            client.rows(&sql);
        }
        client.rows("COMMIT");
        quit(client);
        Times { initial, total: elapsed() }
    }

    fn run(self, count: usize, at_a_time: usize) -> Vec<Times> {
        self.prepare();
        thread::scope(|scope| {
            let mut clients = Vec::new();
            for first in 0..at_a_time {
                let numbers = (first..count).step_by(at_a_time);
                clients.push(scope.spawn(move || self.connections(numbers)));
            }
            let done = clients.into_iter().map(|client| client.join().expect("it has ended"));
            done.flatten().collect()
        })
    }
}

/// Makes the tables, with the rows of so many connections.
pub(crate) fn fill(site: &Site, database: &str, connections: usize) {
    let mut superuser = site.superuser(database);
    superuser.rows(SCHEMA);
    for number in 0..connections {
        superuser.rows(&format!("BEGIN; {}; COMMIT", inserts(number).join("; ")));
    }
    superuser.rows("ANALYZE");
}

/// The 52 inserts of one connection.
fn inserts(number: usize) -> Vec<String> {
    let mut all = Vec::new();
    for at in 0..4 {
        all.push(format!(
            "INSERT INTO address (addr_mykey, addr_street1, addr_city, addr_state, addr_zip) VALUES \
             ('ad{number}-{at}', '{at} Main Street', 'Springfield', 'NT', '{number}')"
        ));
        all.push(format!(
            "INSERT INTO customer (c_mykey, c_uname, c_addr_mykey) VALUES \
             ('c{number}-{at}', 'customer {at}', 'ad{number}-{at}')"
        ));
    }
    for at in 0..10 {
        all.push(format!(
            "INSERT INTO author (a_mykey, a_fname, a_lname) VALUES \
             ('au{number}-{at}', 'Ann', 'Author {at}')"
        ));
        all.push(format!(
            "INSERT INTO item (i_mykey, i_title, i_a_mykey, i_subject, i_cost) VALUES \
             ('i{number}-{at}', 'Book {at}', 'au{number}-{at}', 'history', {at}.50)"
        ));
    }
    for at in 0..24 {
        let (item, buyer) = (at % 10, at % 4);
        all.push(format!(
            "INSERT INTO orders (o_i_mykey, o_addr_mykey, o_c_mykey, o_total) VALUES \
             ('i{number}-{item}', 'ad{number}-{buyer}', 'c{number}-{buyer}', {at}.25)"
        ));
    }
    all
}

fn wish() -> Wish {
    Wish::new(&[DATABASE], &[USER])
        .key("max_server_connections", CAPACITY)
        .setting("fsync = off\nmax_connections = 100")
}

fn serial(run: &Run, path: Path) -> Verdict {
    compare("serial", run, path, run.count(1_000, 100), 1)
}

fn parallel(run: &Run, path: Path) -> Verdict {
    compare("parallel", run, path, run.count(1_000, 120), AT_A_TIME)
}

/// Runs the workload directly and through Weir by turns, three times, and compares the medians: the
/// initial time must not be longer through Weir, and the total not longer than both the direct one and
/// that through a relay that only passes bytes on. The data must be equal.
fn compare(name: &str, run: &Run, path: Path, count: usize, at_a_time: usize) -> Verdict {
    let site = Site::start(path, &wish());
    // Bytes of a direct pool pass through no other process.
    let relay = (path != Path::Direct).then(|| Relay::before(site.port()));
    let mut arms = vec![("direct", site.port()), ("pooled", site.weir_port())];
    arms.extend(relay.as_ref().map(|relay| ("relayed", relay.port())));
    let mut times = vec![Vec::new(); arms.len()];
    let mut dumps = Vec::new();
    for _ in 0..3 {
        for ((_, port), times) in arms.iter().zip(&mut times) {
            let arm = Arm { postgres: &site, port: *port };
            times.extend(arm.run(count, at_a_time));
            dumps.push(arm.dump());
        }
    }
    let expected = count * inserts(0).len();
    if let Some(dump) = dumps.iter().find(|dump| dump.len() != expected || **dump != dumps[0]) {
        let figure = format!("the data differ: {} rows, {expected} expected", dump.len());
        return Verdict::Failed(figure);
    }
    let names: Vec<_> = arms.iter().map(|(name, _)| *name).collect();
    let medians = tables(name, run, path, &names, &times);
    plot(name, run, path, &names, &times);
    let [(direct_initial, direct), (initial, total)] = [medians[0], medians[1]];
    let [initial, total] = [initial / direct_initial, total / direct];
    let relayed = medians.get(2).map(|(_, total)| total / direct);
    let beside = relayed.map(|total| format!(", of a bare relay {total:.2}")).unwrap_or_default();
    let growth = match at_a_time {
        1 => {
            let [direct, pooled] = [0, 1].map(|arm| growth(&times[arm][..count]));
            format!("; last tenth by first {pooled:.2}, direct {direct:.2}")
        }
        _ => String::new(),
    };
    let figure = format!(
        "initial time {initial:.2} of direct ({direct_initial:.2} ms), total {total:.2} \
         ({direct:.1} ms){beside}; {count} connections three times, {expected} equal rows{growth}",
    );
    Verdict::of(initial <= 1.0 && total <= relayed.unwrap_or(1.0).max(1.0), figure)
}

/// Writes the thesis' table, and returns the medians of each arm: the initial time and the total.
fn tables(
    name: &str,
    run: &Run,
    path: Path,
    arms: &[&str],
    times: &[Vec<Times>],
) -> Vec<(f64, f64)> {
    let mut table =
        Table::new(["arm", "interval", "mean", "median", "range", "min", "max", "count"]);
    let mut medians = Vec::new();
    for (arm, times) in arms.iter().zip(times) {
        let of = |of: fn(&Times) -> f64| summary(times.iter().map(of).collect());
        let [initial, total] = [of(|one| one.initial), of(|one| one.total)];
        table.row(row(arm, "initial", initial));
        table.row(row(arm, "total", total));
        medians.push((initial.median, total.median));
    }
    table.write(&format!("{name}-{}", path.file()), run);
    medians
}

/// Compares the last tenth of the connections of a run with the first. In the thesis, direct
/// transactions became some fifty times slower during a run.
fn growth(times: &[Times]) -> f64 {
    let median = |times: &[Times]| summary(times.iter().map(|one| one.total).collect()).median;
    let tenth = times.len() / 10;
    median(&times[times.len() - tenth..]) / median(&times[..tenth])
}

/// Draws the share of connections that took at most a time, as the thesis does.
fn plot(name: &str, run: &Run, path: Path, arms: &[&str], times: &[Vec<Times>]) {
    let panel = |title: &str, of: fn(&Times) -> f64| Panel {
        title: format!("{title}, {}: connections that took at most a time", path.name()),
        across: Axis::Times,
        up: Axis::Shares,
        lines: times
            .iter()
            .map(|of_arm| cumulative(&of_arm.iter().map(of).collect::<Vec<_>>()))
            .collect(),
    };
    let panels = [panel("Initial time", |one| one.initial), panel("Total", |one| one.total)];
    run.write(&format!("{name}-{}.svg", path.file()), &chart(arms, &panels));
}

/// The time of a client's request when an idle server is there, and when a new one must be opened.
fn chosen(run: &Run, path: Path) -> Verdict {
    if path == Path::Direct {
        return Verdict::NotHere("a lobby opens another backend as soon as it has lost one");
    }
    // In this mode the client has no server between its requests.
    let site = Site::start(path, &wish().key("pool_mode", "transaction"));
    let mut client = site.client(USER, DATABASE);
    let mut request = || {
        let began = Instant::now();
        client.rows("SELECT 1");
        began.elapsed().as_secs_f64() * 1e3
    };
    let (mut idle, mut new) = (Vec::new(), Vec::new());
    for _ in 0..run.count(200, 40) {
        request();
        idle.push(request());
        let of_pool = format!("datname = '{DATABASE}' AND usename = '{USER}'");
        let end = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {of_pool}");
        site.sql("postgres", &end);
        eventually("Weir knows that its servers are gone", PATIENCE, || {
            let is_gone =
                site.backends_of(USER, DATABASE).is_empty() && site.servers(DATABASE) == 0;
            is_gone.then_some(())
        });
        new.push(request());
    }
    let (idle, new) = (summary(idle), summary(new));
    let ratio = idle.median / new.median;
    let figure = format!(
        "a request with an idle server {:.3} ms, with a new one {:.3} ms: {ratio:.3}, at most 0.5",
        idle.median, new.median
    );
    Verdict::of(ratio <= 0.5, figure)
}

/// Returns the thesis' columns for an interval.
fn row(arm: &str, interval: &str, times: Summary) -> [String; 8] {
    let Summary { mean, median, range, minimum, maximum, count } = times;
    let [mean, median, range, minimum, maximum] =
        [mean, median, range, minimum, maximum].map(|time| format!("{time:.3}"));
    [arm.into(), interval.into(), mean, median, range, minimum, maximum, count.to_string()]
}

fn summary(times: Vec<f64>) -> Summary {
    Summary::of(times).expect("there are connections")
}
