//! Selects on standbys: the CPU time of the pooler, and that of the nodes.

use anyhow::{Context, Result};

use super::front::{Front, OnLoss, Side};
use super::nodes::Rig;
use crate::real::fact::{Fact, Facts, fact};
use crate::real::generator::{Generator, Load};
use crate::real::place::Place;

const CLIENTS: usize = 8;

static TPS: Fact = fact("tps", "selects a second");
pub(super) static CPU: Fact = fact("pooler_cpu_us", "the pooler's CPU for a select, µs");
pub(super) static PER_NODE_CPU: Fact =
    fact("reads_per_node_cpu_s", "selects per CPU second of the busiest node");

/// Runs pgbench with these options. The CPU time includes the logins of its few clients.
pub(super) fn play(rig: &Rig<'_>, side: Side, options: &[&str]) -> Result<Facts> {
    let nodes = &rig.nodes;
    let front = Front::start(side, nodes, &OnLoss::NOTHING)?;
    let load = Load {
        generator: Generator::Pgbench,
        weir: &rig.options.weir,
        json: rig.options.json.clone(),
        place: Place::at(front.port()),
        clients: CLIENTS,
        options,
        script: None,
        rate: None,
        tls: false,
        seconds: rig.options.seconds,
    };
    let (cpu_s, node_s) = (front.cpu_s()?, nodes.cpu_s()?);
    let figures = load.run()?;
    let cpu_s = front.cpu_s()? - cpu_s;
    let node_s = nodes.cpu_s()?.into_iter().zip(node_s).map(|(now, before)| now - before);
    let busiest_s = node_s.reduce(f64::max).context("no node")?;
    Ok(vec![
        (&TPS, figures.tps),
        (&CPU, cpu_s * 1e6 / figures.transactions),
        (&PER_NODE_CPU, figures.transactions / busiest_s),
    ])
}
