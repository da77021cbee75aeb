//! Clients that read what they have written themselves.

use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};

use super::front::{Front, OnLoss, Side};
use super::nodes::{Nodes, Rig};
use super::session::Session;
use crate::real::fact::{Fact, Facts, Goal, bound, fact};

const CLIENTS: u32 = 8;
/// Sessions of each client, one after the other. Pgpool-II chooses the node of a session at its
/// login.
const SESSIONS: u32 = 10;
/// Writes of each session, each of which is read.
const WRITES: u32 = 25;

static STALE: Fact = bound("stale", "stale reads of 2,000", Goal::AtMost(0.0));
static SHARE: Fact = fact("on_standbys", "share of reads on standbys");
static SHARE_PAUSED: Fact = bound("on_standbys", "share of reads on standbys", Goal::AtLeast(0.3));

/// Reads at once, while the standbys replay each commit 500 ms later.
pub(super) fn delayed(rig: &Rig<'_>, side: Side) -> Result<Facts> {
    let front = Front::start(side, &rig.nodes, &OnLoss::NOTHING)?;
    let delay = |time: &str| {
        Nodes::set(rig.nodes.standbys(), &format!("recovery_min_apply_delay = '{time}'"));
    };
    delay("500ms");
    let read = Reads::of_all(&front, &rig.nodes, Duration::ZERO);
    delay("0");
    rig.nodes.settle();
    let read = read?;
    Ok(vec![(&STALE, f64::from(read.stale)), (&SHARE, read.share())])
}

/// Reads 100 ms behind each write.
pub(super) fn paused(rig: &Rig<'_>, side: Side) -> Result<Facts> {
    let front = Front::start(side, &rig.nodes, &OnLoss::NOTHING)?;
    let read = Reads::of_all(&front, &rig.nodes, Duration::from_millis(100))?;
    Ok(vec![(&STALE, f64::from(read.stale)), (&SHARE_PAUSED, read.share())])
}

/// The outcome of the reads.
#[derive(Debug, Default)]
struct Reads {
    all: u32,
    stale: u32,
    on_standbys: u32,
}

impl Reads {
    /// Has all clients write and read, with this pause between a write and its read.
    fn of_all(front: &Front, nodes: &Nodes, pause: Duration) -> Result<Self> {
        nodes.primary().sql(crate::run::Setting::DATABASE, "TRUNCATE acts");
        nodes.settle();
        let (port, primary) = (front.port(), u32::from(nodes.primary().port()));
        let clients = (0..CLIENTS)
            .map(|client| thread::spawn(move || Self::of_one(port, primary, client, pause)));
        let mut sum = Self::default();
        for client in clients.collect::<Vec<_>>() {
            let read = client.join().map_err(|_| anyhow!("a client has panicked"))??;
            sum.all += read.all;
            sum.stale += read.stale;
            sum.on_standbys += read.on_standbys;
        }
        Ok(sum)
    }

    fn of_one(port: u16, primary: u32, client: u32, pause: Duration) -> Result<Self> {
        let mut read = Self::default();
        for session in 0..SESSIONS {
            let mut open = Session::open(port)?;
            for write in 1..=WRITES {
                let id = session * WRITES + write;
                open.run(&format!("INSERT INTO acts VALUES ({client}, {id})"))?;
                thread::sleep(pause);
                let sql = format!("SELECT max(id), here() FROM acts WHERE client = {client}");
                let row = open.run(&sql)?.into_iter().next().unwrap_or_default();
                let is = |at: usize, value: u32| {
                    row.get(at).is_some_and(|cell| *cell == Some(value.to_string()))
                };
                read.all += 1;
                read.stale += u32::from(!is(0, id));
                read.on_standbys += u32::from(!is(1, primary));
            }
        }
        Ok(read)
    }

    fn share(&self) -> f64 {
        f64::from(self.on_standbys) / f64::from(self.all)
    }
}
