//! The answers with facts.

use config::PcpCompat;

use super::Refusal;
use super::frame::{Answer, DONE, done};
use super::request::Which;
use crate::pgpool::{self, Node, Process, millis, time};
use crate::snapshot::Snapshot;

/// The tools multiply weights by this.
const WEIGHT_ONE: f64 = i32::MAX as f64;
/// The longest texts for which the tools have room, in bytes.
const NAME_LEN_MAX: usize = 63;
const ITEM_LEN_MAX: usize = 63;
const VALUE_LEN_MAX: usize = 511;
const DESCRIPTION_LEN_MAX: usize = 79;

pub(super) fn node_count(out: &mut Vec<u8>, snapshot: &Snapshot) {
    let count: usize = snapshot.clusters.iter().map(|cluster| cluster.nodes.len()).sum();
    Answer::new(out, b'l').text(DONE).number(count).end();
}

/// Returns the node with this id.
pub(super) fn find(nodes: &[Node], id: i64) -> Result<&Node, Refusal> {
    let found = nodes.iter().find(|node| i64::from(node.id) == id);
    found.ok_or_else(|| Refusal::Error(format!("invalid node id {id}")))
}

pub(super) fn nodes(out: &mut Vec<u8>, snapshot: &Snapshot, which: Which) -> Result<(), Refusal> {
    let all = pgpool::nodes(snapshot);
    let chosen: Vec<_> = match which {
        Which::All => all.iter().collect(),
        Which::One(id) => vec![find(&all, id)?],
    };
    Answer::new(out, b'i').text("ArraySize").number(chosen.len()).end();
    for node in chosen {
        let row = &node.row;
        let answer = Answer::new(out, b'i').text("NodeInfo").text(&row.host).number(row.port);
        // There is no quarantine.
        let answer = answer.number(node.status.number()).number(0).text(node.pg_status);
        let answer = answer.text(&format!("{:.6}", node.weight * WEIGHT_ONE));
        let answer = answer.number(node.role.number()).text(node.pg_role());
        let answer = match snapshot.config.global.pcp_compat {
            PcpCompat::Before => answer,
            // The delay is in bytes.
            PcpCompat::Since => answer.number(0),
        };
        let answer = answer.number(row.lag_bytes.unwrap_or(0));
        let answer = answer.text(&row.replication_state).text(&row.sync_state);
        answer.number(row.changed_at).end();
    }
    done(out, b'i');
    Ok(())
}

pub(super) fn health(out: &mut Vec<u8>, snapshot: &Snapshot, id: i64) -> Result<(), Refusal> {
    let all = pgpool::nodes(snapshot);
    let node = find(&all, id)?;
    let (row, checks) = (&node.row, &node.row.checks);
    let answer = Answer::new(out, b'h').text(DONE).number(node.id).text(&row.host);
    let answer = answer.number(row.port).text(node.status.word()).text(node.role.word());
    let answer = answer.text(&node.changed_at).number(checks.total);
    let answer = answer.number(checks.total - checks.failed).number(checks.failed);
    // Nodes are never skipped and not asked again at once.
    let answer = answer.number(0).number(0).text("0.000000").number(0);
    let answer = answer.number(millis(checks.longest)).number(millis(checks.shortest));
    let answer = answer.text(&format!("{:.6}", checks.average_ms()));
    let times = [checks.last, checks.last_success, None, checks.last_failure];
    let times = times.map(|at| time(snapshot, at));
    times.iter().fold(answer, |answer, time| answer.text(time)).end();
    Ok(())
}

pub(super) fn process_count(out: &mut Vec<u8>, snapshot: &Snapshot) {
    let all = pgpool::processes(snapshot);
    let answer = Answer::new(out, b'n').text(DONE).number(all.len());
    all.iter().fold(answer, |answer, process| answer.number(process.pid)).end();
}

pub(super) fn processes(
    out: &mut Vec<u8>,
    snapshot: &Snapshot,
    which: Which,
) -> Result<(), Refusal> {
    let mut all = pgpool::processes(snapshot);
    if let Which::One(pid) = which {
        all.retain(|process| i64::try_from(process.pid) == Ok(pid));
        if all.is_empty() {
            return Err("invalid process ID".into());
        }
    }
    Answer::new(out, b'p').text("ArraySize").number(all.len()).end();
    for process in &all {
        let Process { pid, database, user, connected_at, node, backend_pid, status, .. } = process;
        let answer = Answer::new(out, b'p').text("ProcessInfo").number(pid).text(connected_at);
        // So many clients before, and one pool.
        let answer = answer.number(0).number(0).number(node).cut(database, NAME_LEN_MAX);
        let answer = answer.cut(user, NAME_LEN_MAX).text(&process.server_opened_at);
        let answer = answer.text(connected_at).text("").number(process.idle);
        // The protocol's version, the counter of the pool, and "is connected" behind the pid.
        let answer =
            answer.number(3).number(0).number(1).number(backend_pid).number(1).text(status);
        // From 4.5 and 4.7 on. Older tools ignore these.
        let answer = answer.number(u8::from(process.is_at_reader)).text(&process.client_host);
        answer.text(&process.client_port).text("").end();
    }
    done(out, b'p');
    Ok(())
}

pub(super) fn settings(out: &mut Vec<u8>, snapshot: &Snapshot) {
    let all = pgpool::settings(snapshot);
    let count = (all.len() as u32).to_be_bytes();
    Answer::new(out, b'b').text("ArraySize").bytes(&count).end();
    for [item, value, description] in &all {
        let answer = Answer::new(out, b'b').text("ProcessConfig").cut(item, ITEM_LEN_MAX);
        answer.cut(value, VALUE_LEN_MAX).cut(description, DESCRIPTION_LEN_MAX).end();
    }
    done(out, b'b');
}
