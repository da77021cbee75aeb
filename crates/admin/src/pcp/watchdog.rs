//! `pcp_watchdog_info`: the Weirs of a cluster with `etcd`, as Pgpool-II shows its watchdog.

use serde_json::{Value, json};

use super::Refusal;
use super::frame::{Answer, DONE};
use super::request::Which;
use crate::snapshot::{ClusterRow, MemberRow, Snapshot};

/// Pgpool-II's states of a node of its watchdog, with their names.
const LEADER: (u8, &str) = (4, "LEADER");
const STANDBY: (u8, &str) = (7, "STANDBY");
const LOST: (u8, &str) = (8, "LOST");
/// A node that is not reached by the others.
const ISOLATED: (u8, &str) = (12, "NETWORK ISOLATION");

/// Answers with the members of the first cluster that has some.
pub(super) fn members(out: &mut Vec<u8>, snapshot: &Snapshot, which: Which) -> Result<(), Refusal> {
    let with_members = |cluster: &&ClusterRow| !cluster.members.is_empty();
    let Some(cluster) = snapshot.clusters.iter().find(with_members) else {
        return Err("watchdog is not enabled".into());
    };
    // Pgpool-II has the local one first.
    let (mut all, others): (Vec<_>, Vec<_>) = cluster.members.iter().partition(|own| own.is_self);
    all.extend(others);
    let chosen: Vec<_> = match which {
        Which::All => all.iter().enumerate().collect(),
        Which::One(id) => {
            let at = usize::try_from(id).ok().filter(|at| *at < all.len());
            let at = at.ok_or_else(|| Refusal::Error(format!("invalid watchdog node id {id}")))?;
            vec![(at, &all[at])]
        }
    };
    let (alive, needed) = (cluster.members_in(&["leader", "member"]), all.len() as u64 / 2 + 1);
    let leader = all.iter().find(|own| own.state == "leader");
    let leader_name = leader.map_or("Not_Set", |own| own.name.as_str());
    let nodes: Vec<_> = chosen.iter().map(|(at, own)| node(*at, own)).collect();
    let text = json!({
        "RemoteNodeCount": all.len() - 1,
        "MemberRemoteNodeCount": all.len() - 1,
        "NodesRequireForQuorum": needed,
        "QuorumStatus": if alive >= needed { 1 } else { -1 },
        "AliveNodeCount": alive,
        // The tool shows it as "VIP up on local node".
        "Escalated": u8::from(cluster.has_address()),
        "LeaderNodeName": leader_name,
        "LeaderHostName": host_and_port(leader_name).0,
        "NodeCount": nodes.len(),
        "WatchdogNodes": nodes,
    });
    Answer::new(out, b'w').text(DONE).text(&text.to_string()).end();
    Ok(())
}

fn node(at: usize, member: &MemberRow) -> Value {
    let (state, state_name) = match member.state {
        "leader" => LEADER,
        "member" => STANDBY,
        "unreached" => ISOLATED,
        _ => LOST,
    };
    let (host, port) = host_and_port(&member.name);
    json!({
        "ID": at,
        "State": state,
        "StateName": state_name,
        "Membership": 0,
        "MembershipString": "MEMBER",
        "NodeName": member.name,
        "HostName": host,
        "DelegateIP": "Not_Set",
        // The members talk to etcd, and not to each other.
        "WdPort": 0,
        "PgpoolPort": port,
        "Priority": 1,
    })
}

/// Returns the parts of a member's usual name. Another name is that of a host, with port 0.
fn host_and_port(name: &str) -> (&str, u16) {
    let parts = name.rsplit_once(':');
    let parts = parts.and_then(|(host, port)| Some((host, port.parse().ok()?)));
    parts.unwrap_or((name, 0))
}
