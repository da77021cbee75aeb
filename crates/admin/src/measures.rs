//! The measures: what a page of metrics has, each defined once. The page and the tables of
//! `docs/metrics.md` come from there. To add a measure, write a row in `measures/weir.rs`.
//!
//! * `weir.rs`: Weir's own names
//! * `exporter.rs`: the names that PgBouncer's exporter has for the same
//! * `exposition.rs`: the text formats
//! * `protobuf.rs`: the form with native histograms
//! * `docs.rs`: `docs/metrics.md`

pub(crate) mod docs;
mod exporter;
mod exposition;
mod protobuf;
mod weir;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use config::{Config, MetricsHistograms, MetricsNames};
use engine::{
    failures::Failures,
    figures::{ClientCounts, PoolFigures},
    histogram::Histogram,
    stats::Stats,
    switches::Switches,
};

use self::{
    exposition::{Lines, TextForm},
    protobuf::Families,
};
use crate::{
    NAME,
    show::databases::{self, Current, DatabaseLine},
    snapshot::{ClusterRow, RouteRow},
};

/// Everything measured at one moment. The console's own connections are not in it.
#[derive(Clone, Debug)]
pub struct Measures {
    pub config: Arc<Config>,
    pub workers: u16,
    pub switches: Switches,
    /// Clients without a pool: those that log in, and cancel requests.
    pub clients: ClientCounts,
    pub failures: Failures,
    /// The certificates that Weir shows: the key of each, and the end of its validity in seconds since
    /// 1970.
    pub certificates: Vec<(&'static str, i64)>,
    /// Of databases with a `password_command`.
    pub passwords: Vec<PasswordRow>,
    /// By name.
    pub clusters: Vec<ClusterRow>,
    /// The reasons for the place of routed requests.
    pub routes: Vec<RouteRow>,
    /// In the order in which they were made.
    pub pools: Vec<PoolMeasures>,
    /// Prepared statements that differ in text or types, and the bytes they take.
    pub statements: (usize, usize),
    /// Names and zones that were looked up, and names that are being looked up.
    pub dns: (usize, usize, usize),
    /// Is the whole of the last reload in force?
    pub reload_succeeded: bool,
    /// When a reload succeeded last, in seconds since 1970; the start counts as one.
    pub reload_success_at: i64,
}

/// The password of a database that a program prints.
#[derive(Clone, Debug)]
pub struct PasswordRow {
    pub database: String,
    /// Runs of the program that failed.
    pub failures: u64,
    /// Microseconds until the end of the password; 0 if it has ended, or there is none.
    pub remaining: u64,
}

/// A pool at one moment, or several of the same database and user.
#[derive(Clone, Debug, Default)]
pub struct PoolMeasures {
    /// The database as clients call it.
    pub database: String,
    /// The user its servers are logged in as.
    pub user: String,
    /// Servers at most; 0 is no limit.
    pub size: u32,
    /// Further ones for clients that wait for long.
    pub reserve: u32,
    /// Microseconds the first client in the queue has been waiting; 0 = nobody waits.
    pub oldest_wait: u64,
    pub figures: PoolFigures,
    /// Cancel requests for its servers: sent, and not sent yet.
    pub cancels: (u64, u64),
}

impl PoolMeasures {
    fn add(&mut self, other: &Self) {
        self.size += other.size;
        self.reserve += other.reserve;
        self.oldest_wait = self.oldest_wait.max(other.oldest_wait);
        self.figures += &other.figures;
        self.cancels.0 += other.cancels.0;
        self.cancels.1 += other.cancels.1;
    }
}

impl Measures {
    /// The page of all measures that the configuration asks for.
    pub fn page(self, form: Exposition) -> Vec<u8> {
        let names = self.config.global.metrics_names;
        let (board, mut page) = (Board::new(self), form.empty_page());
        if names != MetricsNames::PgbouncerExporter {
            weir::GROUPS.iter().for_each(|group| group.write(&board, &mut *page));
        }
        if names != MetricsNames::Weir {
            exporter::GROUPS.iter().for_each(|group| group.write(&board, &mut *page));
        }
        page.end()
    }
}

/// The form of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    /// Prometheus' text format, version 0.0.4.
    Text,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
    /// Prometheus' messages of protobuf, with native histograms.
    Protobuf,
}

impl Exposition {
    fn empty_page(self) -> Box<dyn Page> {
        match self {
            Self::Text => Box::new(Lines::new(TextForm::Prometheus)),
            Self::OpenMetrics => Box::new(Lines::new(TextForm::OpenMetrics)),
            Self::Protobuf => Box::<Families>::default(),
        }
    }
}

/// A label of a sample: its name and its text.
type Label<'a> = (&'static str, Cow<'a, str>);

/// A page as it is written.
trait Page {
    /// The samples of this measure follow.
    fn begin(&mut self, name: &str, kind: Kind, help: &str);
    fn sample(&mut self, name: &str, labels: &[Label<'_>], value: Value<'_>);
    fn end(self: Box<Self>) -> Vec<u8>;
}

/// Pools that have metrics of their own, so that a page has a limit. The others are added up.
const POOLS_MAX: usize = 500;
/// The database and the user of the pools that are added up.
const OTHER: &str = "other";

/// A count of one kind.
struct Count {
    reason: &'static str,
    count: u64,
}

/// A certificate that Weir shows.
struct CertificateEnd {
    key: &'static str,
    not_after: i64,
}

/// The rows of all groups: the measures, added up where that is needed.
struct Board {
    /// The measures of pools, added up by database and user.
    measures: Measures,
    /// The rows of SHOW DATABASES, without the console.
    databases: Vec<DatabaseLine>,
    /// The statistics of each database that has a pool.
    stats: Vec<DatabaseStats>,
    pool_count: usize,
    /// All pools added up, without a name.
    total: PoolMeasures,
    client_errors: Vec<Count>,
    server_failures: Vec<Count>,
    server_closes: Vec<Count>,
    certificates: Vec<CertificateEnd>,
}

/// The counters of a database's pools.
#[derive(Default)]
struct DatabaseStats {
    database: String,
    stats: Stats,
}

impl Board {
    fn new(mut measures: Measures) -> Self {
        let pools = &mut measures.pools;
        let pool_count = pools.len();
        for pool in pools.iter_mut().skip(POOLS_MAX) {
            (pool.database, pool.user) = (OTHER.to_owned(), OTHER.to_owned());
        }
        pools.sort_by(|a, b| (&a.database, &a.user).cmp(&(&b.database, &b.user)));
        pools.dedup_by(|next, kept| {
            let is_same = (&next.database, &next.user) == (&kept.database, &kept.user);
            if is_same {
                kept.add(next);
            }
            is_same
        });
        let mut stats: Vec<DatabaseStats> = Vec::new();
        for PoolMeasures { database, figures, .. } in pools.iter() {
            if stats.last().is_none_or(|last| last.database != *database) {
                stats.push(DatabaseStats { database: database.clone(), ..Default::default() });
            }
            if let Some(last) = stats.last_mut() {
                last.stats += figures.stats;
            }
        }
        let mut total = PoolMeasures::default();
        pools.iter().for_each(|pool| total.add(pool));
        let count = |(reason, count)| Count { reason, count };
        let end =
            |(key, not_after): &(&'static str, i64)| CertificateEnd { key, not_after: *not_after };
        Self {
            databases: database_lines(&measures),
            stats,
            pool_count,
            total,
            client_errors: measures.failures.of_clients().map(count).collect(),
            server_failures: measures.failures.of_servers().map(count).collect(),
            server_closes: measures.failures.closes().map(count).collect(),
            certificates: measures.certificates.iter().map(end).collect(),
            measures,
        }
    }

    /// Clients by state.
    fn clients(&self) -> ClientCounts {
        let mut all = self.measures.clients;
        self.measures.pools.iter().for_each(|pool| all += pool.figures.clients);
        all
    }

    /// The pools whose histograms the page has.
    fn times(&self) -> Vec<&PoolMeasures> {
        match self.measures.config.global.metrics_histograms {
            MetricsHistograms::Pool => self.measures.pools.iter().collect(),
            MetricsHistograms::Total => vec![&self.total],
            MetricsHistograms::None => Vec::new(),
        }
    }

    /// Servers in any state.
    fn servers(&self) -> u64 {
        self.measures.pools.iter().map(|pool| pool.figures.servers.all()).sum()
    }
}

fn database_lines(measures: &Measures) -> Vec<DatabaseLine> {
    let Measures { config, switches, pools, .. } = measures;
    let mut current: BTreeMap<&str, Current> = BTreeMap::new();
    for PoolMeasures { database, figures, .. } in pools {
        let own = current.entry(database).or_default();
        own.clients += figures.clients.all() as usize;
        own.connections += figures.servers.all() as usize;
    }
    let configured = config.databases.keys().map(String::as_str);
    let switched = switches.switched().map(String::as_str);
    let names: BTreeSet<_> = configured.chain(current.keys().copied()).chain(switched).collect();
    let lines = names.into_iter().filter(|name| *name != NAME).filter_map(|name| {
        let own = Current {
            switches: switches.database(name),
            ..current.remove(name).unwrap_or_default()
        };
        let database = config.database(name)?;
        Some(databases::line(config, &database, own))
    });
    lines.collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It only grows, but begins anew when the process does.
    Counter,
    Gauge,
    Histogram,
    /// Always 1: the labels tell.
    Info,
}

/// The value of a measure.
enum Value<'a> {
    Number(u64),
    /// Given in microseconds, told in seconds.
    Seconds(u64),
    /// Durations and their sum in microseconds, told in seconds.
    Durations(&'a Histogram, u64),
}

/// The definition of one measure. `R` is the type that it is read from.
struct Measure<R> {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    value: for<'a> fn(&'a R) -> Value<'a>,
}

/// The text that a label has for a row.
type LabelOf<R> = for<'a> fn(&'a R) -> Cow<'a, str>;

/// Measures of the same things.
struct Group<R: 'static> {
    /// The things that are measured: a heading of the documentation, and the sentence below it.
    title: &'static str,
    about: &'static str,
    labels: &'static [(&'static str, LabelOf<R>)],
    measures: &'static [Measure<R>],
    rows: for<'a> fn(&'a Board) -> Vec<&'a R>,
}

/// A [`Group`] whose row type does not matter.
trait Measured: Sync {
    fn title(&self) -> &'static str;
    fn about(&self) -> &'static str;
    fn labels(&self) -> Vec<&'static str>;
    fn heads(&self) -> Vec<Head>;
    fn write(&self, board: &Board, page: &mut dyn Page);
}

/// A measure apart from its value.
struct Head {
    name: &'static str,
    kind: Kind,
    help: &'static str,
}

impl<R> Measured for Group<R> {
    fn title(&self) -> &'static str {
        self.title
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn labels(&self) -> Vec<&'static str> {
        self.labels.iter().map(|(name, _)| *name).collect()
    }

    fn heads(&self) -> Vec<Head> {
        let head = |own: &Measure<R>| Head { name: own.name, kind: own.kind, help: own.help };
        self.measures.iter().map(head).collect()
    }

    /// The samples of a measure stand together, as the formats want it. A label without a text is left
    /// out: Prometheus makes no difference between the two.
    fn write(&self, board: &Board, page: &mut dyn Page) {
        let rows = (self.rows)(board);
        if rows.is_empty() {
            return;
        }
        let labels = rows.iter().map(|row| {
            let own = self.labels.iter().map(|(name, text)| (*name, text(row)));
            own.filter(|(_, text)| !text.is_empty()).collect()
        });
        let labels: Vec<Vec<Label<'_>>> = labels.collect();
        for Measure { name, kind, help, value } in self.measures {
            page.begin(name, *kind, help);
            for (row, labels) in rows.iter().zip(&labels) {
                page.sample(name, labels, value(row));
            }
        }
    }
}

const fn counter<R>(
    name: &'static str,
    value: for<'a> fn(&'a R) -> Value<'a>,
    help: &'static str,
) -> Measure<R> {
    Measure { name, kind: Kind::Counter, help, value }
}

const fn gauge<R>(
    name: &'static str,
    value: for<'a> fn(&'a R) -> Value<'a>,
    help: &'static str,
) -> Measure<R> {
    Measure { name, kind: Kind::Gauge, help, value }
}

const fn histogram<R>(
    name: &'static str,
    value: for<'a> fn(&'a R) -> Value<'a>,
    help: &'static str,
) -> Measure<R> {
    Measure { name, kind: Kind::Histogram, help, value }
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<usize> for Value<'_> {
    fn from(number: usize) -> Self {
        Self::Number(number as u64)
    }
}

impl From<u32> for Value<'_> {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<bool> for Value<'_> {
    fn from(holds: bool) -> Self {
        Self::Number(holds.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_of(pools: usize) -> String {
        page_with(MetricsHistograms::Pool, pools)
    }

    fn page_with(histograms: MetricsHistograms, pools: usize) -> String {
        let page = measures_with(histograms, pools).page(Exposition::Text);
        String::from_utf8(page).expect("a text")
    }

    /// Returns the measures of this number of pools with one transaction each.
    fn measures_with(histograms: MetricsHistograms, pools: usize) -> Measures {
        let pool = |number: usize| {
            let database = format!("database{number:04}");
            let mut pool = PoolMeasures { database, user: "app".into(), ..Default::default() };
            pool.figures.stats.transactions = 1;
            pool.figures.durations.transaction.record(1_000);
            pool
        };
        let mut config = Config::default();
        config.global.metrics_histograms = histograms;
        Measures {
            config: config.into(),
            workers: 1,
            switches: Switches::default(),
            clients: ClientCounts::default(),
            failures: Failures::default(),
            certificates: Vec::new(),
            passwords: Vec::new(),
            clusters: Vec::new(),
            routes: Vec::new(),
            pools: (0..pools).map(pool).collect(),
            statements: (0, 0),
            dns: (0, 0, 0),
            reload_succeeded: true,
            reload_success_at: 0,
        }
    }

    #[test]
    fn histograms_are_most_of_a_page_unless_they_are_left_out() {
        let size = |histograms, form| measures_with(histograms, 200).page(form).len();
        let text = |histograms| size(histograms, Exposition::Text);
        let (pool, total) = (text(MetricsHistograms::Pool), text(MetricsHistograms::Total));
        let none = text(MetricsHistograms::None);
        let native = size(MetricsHistograms::Pool, Exposition::Protobuf);
        assert!(none < total && total < none + 10_000, "{pool} {total} {none}");
        assert!(3 * total < pool && 2 * native < pool, "{pool} {total} {none} {native}");
    }

    #[test]
    fn pools_beyond_the_limit_are_added_up() {
        let page = page_of(POOLS_MAX + 100);
        let name = "weir_pool_transactions_total{";
        let rows: Vec<_> = page.lines().filter(|line| line.starts_with(name)).collect();
        assert_eq!(rows.len(), POOLS_MAX + 1);
        let other = rows.iter().find(|row| row.contains("database=\"other\",user=\"other\""));
        assert!(other.is_some_and(|row| row.ends_with(" 100")), "{other:?}");
        assert!(page.contains("\nweir_pools 600\n"), "all of them are counted");
        // However many pools there are, the page has the same number of lines.
        assert_eq!(page_of(20 * POOLS_MAX).lines().count(), page.lines().count());
        assert!(page_of(POOLS_MAX).lines().count() < page.lines().count());
    }

    #[test]
    fn histograms_are_those_of_pools_or_of_all_pools_or_left_out() {
        let counts = |page: &str| -> Vec<String> {
            let counts =
                page.lines().filter(|line| line.starts_with("weir_pool_transaction_seconds_count"));
            counts.map(str::to_owned).collect()
        };
        let total = page_with(MetricsHistograms::Total, POOLS_MAX + 100);
        assert_eq!(counts(&total), ["weir_pool_transaction_seconds_count 600"]);
        assert!(total.contains("\nweir_pool_transaction_seconds_bucket{le=\"+Inf\"} 600\n"));
        let none = page_with(MetricsHistograms::None, 2);
        assert_eq!((counts(&none).len(), none.contains("_bucket")), (0, false));
        let pool = page_of(2);
        assert_eq!(counts(&pool).len(), 2);
        for page in [&pool, &none, &page_with(MetricsHistograms::Total, 2)] {
            let transactions =
                page.lines().filter(|line| line.starts_with("weir_pool_transactions_total{"));
            assert_eq!(transactions.count(), 2, "the other metrics stay");
        }
    }
}
