//! The time that a warm backend saves. The thesis' pooled transactions were eight times as fast, although it had
//! changed nothing but the start of a connection, and it could not say why. Here a session reads
//! either one table or many, and the saved time is split: the start, and the requests.

use std::time::Instant;

use testkit::{Dice, RawClient};

use crate::process::private_mb;
use crate::requirement::Requirement;
use crate::results::{Table, Verdict};
use crate::run::Run;
use crate::site::{Path, Site, Wish, pid, quit};
use crate::tables;

pub(crate) const ALL: &[Requirement] =
    &[Requirement { name: "a warm backend reads many tables faster", show: warm }];

const DATABASE: &str = "bsu";
const USER: &str = "dbuser1";
/// The tables that a session reads, with ten requests.
const READS: usize = 50;
/// The requests of a warm backend take at most this part of a new one's.
const WARM_MAX: f64 = 0.5;

/// The times of one session, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// From the first packet until the first request may be sent.
    start: f64,
    /// Until the last answer is there.
    requests: f64,
}

/// The tables that a session reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    One,
    /// Other ones each time, of so many.
    Many {
        of: usize,
    },
}

impl Reads {
    fn name(self) -> String {
        match self {
            Self::One => "1 table".to_owned(),
            Self::Many { of } => format!("{READS} of {of} tables"),
        }
    }

    fn run(self, client: &mut RawClient, dice: &mut Dice) {
        match self {
            Self::One => tables::read(client, [0; READS]),
            Self::Many { of } => tables::read(client, tables::drawn(dice, READS, of)),
        }
    }
}

/// The times of one kind of session: a quarter of the sessions took less. Other programs of the machine
/// disturb the slower ones.
#[derive(Clone, Copy, Debug)]
struct Typical {
    start: f64,
    requests: f64,
}

impl Typical {
    fn of(times: &[Times]) -> Self {
        let quartile = |of: fn(&Times) -> f64| {
            let mut times: Vec<_> = times.iter().map(of).collect();
            times.sort_by(f64::total_cmp);
            times[times.len() / 4]
        };
        Self { start: quartile(|one| one.start), requests: quartile(|one| one.requests) }
    }

    fn total(self) -> f64 {
        self.start + self.requests
    }
}

fn session(port: u16, reads: Reads, dice: &mut Dice) -> Times {
    let began = Instant::now();
    let elapsed = || began.elapsed().as_secs_f64() * 1e3;
    let mut client = RawClient::login(port, USER, DATABASE, USER)
        .unwrap_or_else(|error| panic!("the login fails: {error:?}"));
    let start = elapsed();
    reads.run(&mut client, dice);
    let requests = elapsed() - start;
    quit(client);
    Times { start, requests }
}

/// Sessions come one after another, directly and through a pool of one server by turns.
fn warm(run: &Run, path: Path) -> Verdict {
    const BATCH: usize = 10;
    let of = run.count(2_000, 500);
    let all = [Reads::One, Reads::Many { of }];
    let site = Site::start(path, &Wish::new(&[DATABASE], &[USER]).key("default_pool_size", 1));
    tables::make(&site, DATABASE, of);
    let mut first = site.client(USER, DATABASE);
    let server = pid(&mut first);
    let new_mb = private_mb(&[server]);
    tables::read(&mut first, 0..of);
    let warm_mb = private_mb(&[server]);
    quit(first);
    let kinds = all.map(|reads| {
        let mut dice = Dice::new(47);
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..run.count(30, 6) {
            for (port, times) in [site.port(), site.weir_port()].into_iter().zip(&mut times) {
                times.extend((0..BATCH).map(|_| session(port, reads, &mut dice)));
            }
        }
        times.map(|times| Typical::of(&times))
    });
    let mut last = site.client(USER, DATABASE);
    let is_same = pid(&mut last) == server;
    let mut table = Table::new(["session reads", "arm", "start", "requests", "total"]);
    for (reads, arms) in all.into_iter().zip(kinds) {
        for (name, typical) in ["direct", "pooled"].into_iter().zip(arms) {
            let Typical { start, requests } = typical;
            let [start, requests, total] =
                [start, requests, typical.total()].map(|time| format!("{time:.3}"));
            table.row([reads.name(), name.to_owned(), start, requests, total]);
        }
    }
    table.write(&format!("warm-{}", path.file()), run);
    let [[one_direct, one_pooled], [direct, pooled]] = kinds;
    let factor = direct.total() / pooled.total();
    let saved = direct.total() - pooled.total();
    let by_start = (direct.start - pooled.start) / saved;
    let figure = format!(
        "a session that reads {}: direct {:.1} ms, pooled {:.1} ms: factor {factor:.1}; of the \
         saved time {:.0} % by the start, {:.0} % by warm caches; {}: factor {:.1}; a warm \
         backend has {warm_mb:.1} MB, a new one {new_mb:.1} MB",
        all[1].name(),
        direct.total(),
        pooled.total(),
        by_start * 100.0,
        (1.0 - by_start) * 100.0,
        all[0].name(),
        one_direct.total() / one_pooled.total(),
    );
    let is_warm = pooled.requests <= WARM_MAX * direct.requests;
    Verdict::of(is_same && is_warm && factor >= 1.0, figure)
}
