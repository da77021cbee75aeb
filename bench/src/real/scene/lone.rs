//! Measures a single client beside thousands. In their pool it should get its turns as they do. In
//! a pool of its own it should hardly be affected.

use anyhow::{Context, Result};

use super::actor::{Actor, EVENNESS, share_ms};
use crate::real::fact::{Fact, Goal, bound, fact};
use crate::real::generator::{Figures, Generator, Load};
use crate::real::place::Place;
use crate::real::row::ONE;
use crate::real::sample::Sample;
use crate::real::stage::Stage;

static P50: Fact = fact("lone_p50_ms", "the lone client's p50, ms");
static COUNT: Fact = fact("lone_transactions", "its transactions");
static P50_SHARE: Fact = bound("lone_p50_by_share", "its p50 by clients / tps", Goal::AtMost(1.15));
static P99_SHARE: Fact = bound("lone_p99_by_share", "its p99 by clients / tps", Goal::AtMost(2.0));
static AT_REST: Fact = fact("rest_p50_ms", "p50 with nobody else there, ms");
static BY_REST: Fact =
    bound("lone_p50_by_rest", "its p50 by that with nobody else", Goal::AtMost(1.5));
static BY_REST_BUSY: Fact = fact("lone_p50_by_rest", "its p50 by that with nobody else");
static DIRECT: Fact = fact("direct_p50_ms", "p50 of one directly at that time, ms");
static OVER_DIRECT: Fact =
    bound("lone_p50_over_direct_ms", "its p50 above the direct one's, ms", Goal::AtMost(2.0));

/// Returns how much longer the other clients work than the single one, in seconds. This covers its
/// login, which waits in the queue twice, and its last transaction.
fn longer(clients: usize) -> u32 {
    3 + clients as u32 / 2_000
}

impl Actor<'_> {
    /// Runs the single client in the same pool.
    pub(super) fn among(&self, stage: &Stage) -> Result<Sample> {
        let mut crowd = self.load(stage.place)?;
        crowd.seconds += longer(crowd.clients);
        let clients = crowd.clients + 1;
        let crowd = crowd.begin()?;
        let lone = Load {
            json: self.rig.workplace.file("lone.json"),
            clients: 1,
            ..self.load(stage.place)?
        };
        let (lone, figures) = (lone.run()?, crowd.finish()?);
        let share = share_ms(clients, &figures);
        let facts = vec![
            (&P50, p50(&lone)?),
            (&COUNT, lone.transactions),
            (&P50_SHARE, p50(&lone)? / share),
            (&P99_SHARE, lone.p99.context("no p99")? / share),
            (&EVENNESS, figures.evenness.context("no counts of clients")?),
        ];
        Ok(Sample { facts, ..Sample::new(figures, None) })
    }

    /// Runs the single client as another user in another database, and so in another pool: alone,
    /// beside the others, and beside them without the pooler.
    pub(super) fn apart(&self, stage: &Stage) -> Result<Sample> {
        let at_rest = self.lone(stage.place.other())?;
        let mut crowd = self.load(stage.place)?;
        crowd.seconds = 2 * crowd.seconds + longer(crowd.clients);
        let crowd = crowd.begin()?;
        let lone = self.lone(stage.place.other())?;
        let direct = self.lone(self.rig.cluster.place().other())?;
        let figures = crowd.finish()?;
        let by_rest = if self.row.script.is_some() { &BY_REST } else { &BY_REST_BUSY };
        let facts = vec![
            (&AT_REST, p50(&at_rest)?),
            (&P50, p50(&lone)?),
            (by_rest, p50(&lone)? / p50(&at_rest)?),
            (&DIRECT, p50(&direct)?),
            (&OVER_DIRECT, p50(&lone)? - p50(&direct)?),
        ];
        Ok(Sample { facts, ..Sample::new(figures, None) })
    }

    /// Runs one client with one small select after another.
    fn lone(&self, place: Place) -> Result<Figures> {
        Load {
            generator: Generator::Weir,
            json: self.rig.workplace.file("lone.json"),
            clients: 1,
            options: &[],
            script: Some(self.script("lone.sql", ONE)?),
            ..self.load(place)?
        }
        .run()
    }
}

fn p50(figures: &Figures) -> Result<f64> {
    figures.p50.context("no p50")
}
