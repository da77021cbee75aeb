//! Runs a row's scene on a stage: the load alone, or with another activity. Besides the load's own
//! figures, a scene finds facts. A fact may have a goal.

mod ahead;
mod copy;
mod lone;
mod server;

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::generator::{Figures, Generator, Load, Place};
use super::meter::Meter;
use super::report::Sample;
use super::row::{Row, Scene};
use super::stage::Stage;
use super::{Rig, Side};
use crate::run::{Setting, Tls};
pub(super) use copy::Way;

/// A kind of additional result, which is a line of the report.
#[derive(Debug, PartialEq)]
pub(super) struct Fact {
    pub(super) key: &'static str,
    pub(super) title: &'static str,
    pub(super) goal: Option<Goal>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "at most {most}"),
            Self::AtLeast(least) => write!(f, "at least {least}"),
        }
    }
}

pub(super) type Facts = Vec<(&'static Fact, f64)>;

pub(super) const fn fact(key: &'static str, title: &'static str) -> Fact {
    Fact { key, title, goal: None }
}

pub(super) const fn bound(key: &'static str, title: &'static str, goal: Goal) -> Fact {
    Fact { key, title, goal: Some(goal) }
}

static ONE_SERVER: Fact = fact("one_server_tps", "tps of a pool of one server");
static HELD_TPS: Fact =
    bound("tps_by_one_server", "tps by those of a pool of one", Goal::AtLeast(0.9));
static LONGEST: Fact = fact("longest_by_share", "longest wait by the mean share");
static EVENNESS: Fact =
    bound("fewest_by_most", "transactions of a client, fewest by most", Goal::AtLeast(0.8));

/// The maximum time until the clients that hold servers have got them.
const HOLD_MAX: Duration = Duration::from_secs(30);
/// Idles in a transaction for longer than any run.
const HOLD: &str = "BEGIN;\n\\sleep 86400 s\nROLLBACK;\n";

/// Takes one measurement. Returns `None` if the side cannot do the row.
pub(super) fn play(rig: &Rig<'_>, row: &Row, side: Side) -> Result<Option<Sample>> {
    let Some(mut stage) = Stage::set(rig, row, side, row.servers)? else { return Ok(None) };
    let actor = Actor { rig, row };
    let played = match row.scene {
        Scene::Nothing => actor.alone(&stage),
        Scene::Held => actor.held(&stage, side),
        Scene::Among => actor.among(&stage),
        Scene::Apart => actor.apart(&stage),
        Scene::Ahead => actor.ahead(&stage),
        Scene::Pages => actor.pages(&stage),
        Scene::Copy(way) => actor.copy(&stage, way),
        Scene::Profile => actor.profile(&stage),
    };
    played.map(Some).map_err(|error| stage.explain(error))
}

struct Actor<'a> {
    rig: &'a Rig<'a>,
    row: &'a Row,
}

impl Actor<'_> {
    fn seconds(&self) -> u32 {
        self.row.seconds(self.rig.options.seconds)
    }

    /// Returns the row's load on `place`.
    fn load(&self, place: Place) -> Result<Load<'_>> {
        let script = self.row.script.map(|text| self.script("script.sql", text)).transpose()?;
        Ok(Load {
            generator: self.rig.options.generator,
            weir: &self.rig.options.weir,
            json: self.rig.workplace.file("figures.json"),
            place,
            clients: self.row.clients(self.rig.options.fleet),
            options: self.row.options,
            script,
            rate: self.row.rate,
            tls: self.row.tls != Tls::None,
            seconds: self.seconds(),
        })
    }

    fn script(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.rig.workplace.file(name);
        fs::write(&path, text).with_context(|| path.display().to_string())?;
        Ok(path)
    }

    fn alone(&self, stage: &Stage) -> Result<Sample> {
        let mut meter = Meter::new(stage);
        let figures = self.load(stage.place)?.run_with_progress(|tps| meter.note(tps))?;
        Ok(Sample::new(figures, meter.cpu_us()))
    }

    /// Lets clients hold all servers of the pool but one, then measures another pool of one server.
    fn held(&self, stage: &Stage, side: Side) -> Result<Sample> {
        let holders = self.row.servers - 1;
        let hold = Load {
            generator: Generator::Weir,
            json: self.rig.workplace.file("hold.json"),
            clients: holders as usize,
            options: &[],
            script: Some(self.script("hold.sql", HOLD)?),
            rate: None,
            seconds: 86_400,
            ..self.load(stage.place)?
        };
        let holding = hold.begin()?;
        self.until_held(holders)?;
        let mut sample = self.alone(stage)?;
        drop(holding);
        let Some(one) = Stage::set(self.rig, self.row, side, 1)? else { return Ok(sample) };
        let alone = self.load(one.place)?.run()?;
        let tps = sample.figures.tps;
        let share_ms = share_ms(self.row.clients(self.rig.options.fleet), &sample.figures);
        sample.facts = vec![(&ONE_SERVER, alone.tps), (&HELD_TPS, tps / alone.tps)];
        sample.facts.extend(sample.figures.max.map(|max| (&LONGEST, max / share_ms)));
        sample.facts.extend(sample.figures.evenness.map(|evenness| (&EVENNESS, evenness)));
        Ok(sample)
    }

    fn until_held(&self, holders: u32) -> Result<()> {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'";
        let deadline = Instant::now() + HOLD_MAX;
        while self.rig.cluster.sql(Setting::DATABASE, sql)? != holders.to_string() {
            ensure!(Instant::now() < deadline, "the servers are not held in time");
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

/// Returns the time of one turn of each client, in milliseconds, if `clients` take equal turns.
fn share_ms(clients: usize, figures: &Figures) -> f64 {
    clients as f64 / figures.tps * 1e3
}
