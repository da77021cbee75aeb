//! Copies a table of some hundred megabytes with psql: to /dev/null, or from a file. The load
//! generators do not support COPY.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::actor::Actor;
use crate::real::fact::{Fact, fact};
use crate::real::generator::Figures;
use crate::real::place::{Place, output, program};
use crate::real::row::Way;
use crate::real::sample::Sample;
use crate::real::stage::Stage;
use crate::run::Setting;

static SPEED: Fact = fact("mb_per_s", "MB a second");
static CPU_PER_GB: Fact = fact("pooler_cpu_s_per_gb", "the pooler's CPU, s for a GB");

/// A table of a million rows of a hundred bytes, and the table that they are copied into.
const TABLES: &str = "CREATE UNLOGGED TABLE IF NOT EXISTS copied AS \
     SELECT n, repeat(md5(n::text), 3) AS filler FROM generate_series(1, 1000000) AS n; \
     CREATE UNLOGGED TABLE IF NOT EXISTS landed (LIKE copied)";

impl Actor<'_> {
    /// Copies again and again for the length of a measurement. Each copy is a psql of its own; its
    /// start and login take a negligible part of the time.
    pub(super) fn copy(&self, stage: &Stage, way: Way) -> Result<Sample> {
        let file = self.copied()?;
        let path = file.display();
        let command = match way {
            Way::Out => "\\copy copied TO '/dev/null'".to_owned(),
            Way::In => format!("\\copy landed FROM '{path}'"),
        };
        let until = Duration::from_secs(u64::from(self.seconds()));
        let (mut copies, mut took, mut spent_ns) = (0.0, Duration::ZERO, 0);
        while took < until {
            self.rig.cluster.sql(Setting::DATABASE, "TRUNCATE landed")?;
            let before_ns = stage.cpu_ns()?;
            let begun = Instant::now();
            psql(&stage.place, &command)?;
            took += begun.elapsed();
            spent_ns += stage.cpu_ns()?.zip(before_ns).map_or(0, |(now, before)| now - before);
            copies += 1.0;
        }
        let (seconds, bytes) = (took.as_secs_f64(), fs::metadata(&file)?.len() as f64 * copies);
        let figures = Figures {
            transactions: copies,
            tps: copies / seconds,
            mean: seconds * 1e3 / copies,
            ..Figures::default()
        };
        let mut sample = Sample::new(figures, None);
        sample.facts.push((&SPEED, bytes / 1e6 / seconds));
        if stage.has_pooler() {
            // Nanoseconds for a byte are seconds for a GB.
            sample.facts.push((&CPU_PER_GB, spent_ns as f64 / bytes));
        }
        Ok(sample)
    }

    /// Returns the file with the table's rows, which is created on first use.
    fn copied(&self) -> Result<PathBuf> {
        let file = self.rig.workplace.file("copied.txt");
        if !file.exists() {
            self.rig.cluster.sql(Setting::DATABASE, TABLES)?;
            let command = format!("\\copy copied TO '{}'", file.display());
            psql(&self.rig.cluster.place(), &command)?;
        }
        Ok(file)
    }
}

fn psql(place: &Place, command: &str) -> Result<String> {
    let mut psql = Command::new(program("psql")?);
    place.lead(&mut psql);
    output(psql.env("PGSSLMODE", "disable").args(["-X", "-q", "-c", command]))
}
