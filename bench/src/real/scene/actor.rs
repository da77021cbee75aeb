//! Plays a row on a stage: the load alone, with its figures.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::real::fact::{Fact, Goal, bound};
use crate::real::generator::{Figures, Load};
use crate::real::meter::Meter;
use crate::real::place::Place;
use crate::real::rig::Rig;
use crate::real::row::Row;
use crate::real::sample::Sample;
use crate::real::stage::Stage;
use crate::run::Tls;

pub(super) static EVENNESS: Fact =
    bound("fewest_by_most", "transactions of a client, fewest by most", Goal::AtLeast(0.8));

pub(super) struct Actor<'a> {
    pub(super) rig: &'a Rig<'a>,
    pub(super) row: &'a Row,
}

impl Actor<'_> {
    pub(super) fn seconds(&self) -> u32 {
        self.row.seconds(self.rig.options.seconds)
    }

    /// Returns the row's load on `place`.
    pub(super) fn load(&self, place: Place) -> Result<Load<'_>> {
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

    pub(super) fn script(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.rig.workplace.file(name);
        fs::write(&path, text).with_context(|| path.display().to_string())?;
        Ok(path)
    }

    pub(super) fn alone(&self, stage: &Stage) -> Result<Sample> {
        let mut meter = Meter::new(stage);
        let figures = self.load(stage.place)?.run_with_progress(|tps| meter.note(tps))?;
        Ok(Sample::new(figures, meter.cpu_us()))
    }
}

/// Returns the time of one turn of each client, in milliseconds, if `clients` take equal turns.
pub(super) fn share_ms(clients: usize, figures: &Figures) -> f64 {
    clients as f64 / figures.tps * 1e3
}
