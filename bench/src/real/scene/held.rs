//! Measures a pool whose servers are held by clients that idle in a transaction, all but one.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::actor::{Actor, EVENNESS, share_ms};
use crate::real::fact::{Fact, Goal, bound, fact};
use crate::real::generator::{Generator, Load};
use crate::real::rig::Side;
use crate::real::sample::Sample;
use crate::real::stage::Stage;
use crate::run::Setting;

static ONE_SERVER: Fact = fact("one_server_tps", "tps of a pool of one server");
static HELD_TPS: Fact =
    bound("tps_by_one_server", "tps by those of a pool of one", Goal::AtLeast(0.9));
static LONGEST: Fact = fact("longest_by_share", "longest wait by the mean share");

/// The maximum time until the clients that hold servers have got them.
const HOLD_MAX: Duration = Duration::from_secs(30);
/// Idles in a transaction for longer than any run.
const HOLD: &str = "BEGIN;\n\\sleep 86400 s\nROLLBACK;\n";

impl Actor<'_> {
    /// Lets clients hold all servers of the pool but one, then measures another pool of one server.
    pub(super) fn held(&self, stage: &Stage, side: Side) -> Result<Sample> {
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
