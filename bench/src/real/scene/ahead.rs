//! Measures a client beside another one that sends requests without ever waiting for answers. Both
//! share one server.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result};

use super::actor::Actor;
use crate::real::fact::{Fact, Goal, bound};
use crate::real::place::Place;
use crate::real::sample::Sample;
use crate::real::stage::Stage;

static LONGEST: Fact = bound("longest_ms", "the longest wait, ms", Goal::AtMost(200.0));

/// A request that takes about a millisecond.
const REQUEST: &[u8] = b"Q\0\0\0\x1bSELECT pg_sleep(0.001)\0";

impl Actor<'_> {
    pub(super) fn ahead(&self, stage: &Stage) -> Result<Sample> {
        let endless = Endless::begin(stage.place)?;
        let figures = self.load(stage.place)?.run()?;
        drop(endless);
        let facts = vec![(&LONGEST, figures.max.context("no longest wait")?)];
        Ok(Sample { facts, ..Sample::new(figures, None) })
    }
}

/// The client that does not wait. It ends when this is dropped.
struct Endless {
    stream: TcpStream,
    threads: Vec<JoinHandle<()>>,
}

impl Endless {
    fn begin(place: Place) -> Result<Self> {
        let stream = place.connect()?;
        let (mut reads, mut writes) = (stream.try_clone()?, stream.try_clone()?);
        let requests = REQUEST.repeat(100);
        let mut answers = vec![0; 65_536];
        let threads = vec![
            thread::spawn(move || while writes.write_all(&requests).is_ok() {}),
            thread::spawn(move || while reads.read(&mut answers).is_ok_and(|len| len > 0) {}),
        ];
        Ok(Self { stream, threads })
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        // The pooler may have closed it.
        let _ = self.stream.shutdown(Shutdown::Both);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
