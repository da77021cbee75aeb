//! The real thing: a real PostgreSQL under the load of `weir bench` or of pgbench, directly, through
//! PgBouncer and through Weir, in turn. What is read are transactions a second and latencies, as a user
//! has them, and the CPU time of the pooler; PostgreSQL takes most of the machine, so a pooler shows less
//! than in `run`.

mod cluster;
mod generator;
mod report;
mod row;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::process::CpuTime;
use crate::run::{Binary, Pooler, Setting, Tls, Workplace, find_pgbouncer};
use cluster::Cluster;
use generator::{Generator, Place};
use report::{Report, Sample};
use row::{ROWS, Row};

/// Whom the clients talk to, in the order of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Direct,
    PgBouncer,
    Weir,
}

const SIDES: [Side; 3] = [Side::Direct, Side::PgBouncer, Side::Weir];

#[derive(Debug, Args)]
pub(crate) struct RealOptions {
    /// The rows to measure; see --list. When none is named, all but those of thousands of clients
    #[arg(value_name = "ROW")]
    rows: Vec<String>,
    /// Name the rows and end
    #[arg(long)]
    list: bool,
    /// How long each measurement lasts
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// How many times the sides are measured in turn
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Accounts in units of 100,000
    #[arg(long, default_value_t = 10)]
    scale: u32,
    /// What puts the load on: weir or pgbench, which knows no percentiles
    #[arg(long, value_enum, default_value_t = Generator::Weir)]
    generator: Generator,
    /// Weir's program
    #[arg(long, value_name = "PATH", default_value = "target/release/weir")]
    weir: PathBuf,
    /// PgBouncer's program, looked for in the usual places when not given
    #[arg(long, value_name = "PATH")]
    pgbouncer: Option<PathBuf>,
    /// Where every single measurement is written
    #[arg(long, value_name = "FILE", default_value = "bench/out/real.json")]
    json: PathBuf,
}

/// Measures the rows asked for, prints the tables and writes every measurement as JSON.
///
/// # Errors
///
/// When PostgreSQL or a pooler cannot be started, and at the end when a row failed. The other rows are
/// measured all the same.
pub(crate) fn run(options: &RealOptions) -> Result<()> {
    if options.list {
        ROWS.iter().for_each(|row| println!("{row}"));
        return Ok(());
    }
    let rows = row::select(&options.rows)?;
    let workplace = Workplace::create()?;
    let pgbouncer = match &options.pgbouncer {
        Some(path) => path.clone(),
        None => find_pgbouncer()?,
    };
    let rig = Rig {
        poolers: [Binary::new(&workplace, &pgbouncer)?, Binary::new(&workplace, &options.weir)?],
        cluster: Cluster::start(&workplace)?,
        workplace: &workplace,
        options,
    };
    eprintln!("filling the tables, scale {}", options.scale);
    generator::initialise(&options.weir, &rig.cluster.place(), options.scale)?;
    let mut report = Report::new(options, &rig.poolers);
    let mut failed = Vec::new();
    for row in rows {
        report.begin(row);
        for round in 0..options.rounds {
            for side in rig.order(round) {
                match rig.sample(row, side) {
                    Ok(Some(sample)) => report.add(side, sample),
                    Ok(None) => {}
                    Err(error) => {
                        eprintln!("{} ({side:?}): {error:#}", row.name);
                        failed.push(row.name);
                    }
                }
            }
            eprintln!("{:<16} {}/{}", row.name, round + 1, options.rounds);
        }
    }
    println!("{}", report.to_text());
    report.write_json(&options.json)?;
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

struct Rig<'a> {
    poolers: [Binary; 2],
    cluster: Cluster,
    workplace: &'a Workplace,
    options: &'a RealOptions,
}

impl Rig<'_> {
    /// The other way round every second time, so that what drifts falls on all.
    fn order(&self, round: usize) -> [Side; 3] {
        let mut sides = SIDES;
        if round % 2 == 1 {
            sides.reverse();
        }
        sides
    }

    /// One measurement; none where a side has not what the row needs.
    fn sample(&self, row: &Row, side: Side) -> Result<Option<Sample>> {
        let binary = match side {
            // The server has no certificate, and room for so many only.
            Side::Direct if row.tls != Tls::None || row.clients > Cluster::CLIENTS_MAX => {
                return Ok(None);
            }
            Side::Direct => return self.measure(row, &self.cluster.place(), None).map(Some),
            Side::PgBouncer => &self.poolers[0],
            Side::Weir => &self.poolers[1],
        };
        if row.is_prepared() && !binary.prepares_statements() {
            return Ok(None);
        }
        let setting = Setting {
            unix: false,
            scram: false,
            prepared: row.is_prepared(),
            tls: row.tls,
            pool_mode: "transaction",
            servers: row.servers,
            clients_max: row.clients.max(Setting::CLIENTS_MAX),
            cores: None,
        };
        let mut pooler = Pooler::start(self.workplace, binary, &setting, &self.cluster.address())?;
        let place = Place::of(&pooler.address)?;
        let measured = self.measure(row, &place, Some(pooler.pid()));
        measured.map(Some).map_err(|error| pooler.explain(&error))
    }

    fn measure(&self, row: &Row, place: &Place, pooler: Option<u32>) -> Result<Sample> {
        let script = match row.script {
            Some(text) => {
                let path = self.workplace.file("script.sql");
                std::fs::write(&path, text).with_context(|| path.display().to_string())?;
                Some(path)
            }
            None => None,
        };
        let cpu = || pooler.map_or(Ok(CpuTime::default()), CpuTime::of);
        let before = cpu()?;
        let seconds = Duration::from_secs(self.options.seconds.into());
        let json = self.workplace.file("figures.json");
        let figures = self.options.generator.run(
            &self.options.weir,
            row,
            script.as_deref(),
            place,
            seconds,
            &json,
        )?;
        let spent = cpu()? - before;
        Ok(Sample::new(figures, pooler.map(|_| spent.run_ns)))
    }
}
