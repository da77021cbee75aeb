//! The members of a cluster, for the console and the metrics.

use ::cluster::fleet::{Phase, Term};
use net::sys::process;

use super::state::Fleet;
use crate::exchange::hub::lock;

/// A Weir at one moment, as this Weir knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberInfo {
    pub name: String,
    /// `leader`, `member`, `silent`, `starting` or `unreached`.
    pub state: &'static str,
    pub is_self: bool,
    pub version: String,
    /// The number of the last term that it has confirmed.
    pub confirmed: u64,
    /// The state of each node, as it sees them: `a=writable, b=down`.
    pub sees: String,
    /// It has the virtual address.
    pub has_address: bool,
    /// For this Weir: microseconds until its lease ends.
    pub lease: Option<u64>,
    /// For this Weir: why etcd does not do what it is asked for.
    pub trouble: String,
}

/// All members at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetInfo {
    pub members: Vec<MemberInfo>,
    /// The present term; empty if there is none.
    pub term: String,
    pub number: u64,
    /// The member whose console has got FAILOVER PAUSE; empty if none.
    pub paused_by: String,
}

/// Returns a term as operators read it.
pub(super) fn term_in_words(term: &Term) -> String {
    let Term { number, writer, phase, .. } = term;
    let (node, timeline) = (&writer.node, writer.timeline);
    match phase {
        Phase::Serving => format!("term {number}: node {node} is the primary, timeline {timeline}"),
        Phase::Draining { to } => format!("term {number}: switchover from node {node} to {to}"),
        Phase::Closed { ordered: Some(to), .. } => {
            format!("term {number}: node {to} is promoted in the place of node {node}")
        }
        Phase::Closed { is_fenced: true, ordered: None } => {
            format!("term {number}: node {node} is fenced")
        }
        Phase::Closed { is_fenced: false, ordered: None } => {
            format!("term {number}: node {node} is lost")
        }
    }
}

impl Fleet {
    /// Returns the members, by name.
    pub(in crate::cold::cluster) fn info(&self) -> FleetInfo {
        let membership = lock(&self.membership);
        let (view, me, now) = (membership.view(), membership.me(), process::boottime_us());
        let is_unreached = !membership.is_in();
        let own_trouble = || {
            let of_etcd = membership.trouble().map(str::to_owned);
            let of_access = || lock(&self.trouble).clone();
            let of_address = || {
                let state = lock(&self.address);
                state.unfit.clone().or_else(|| state.trouble.clone())
            };
            of_etcd.or_else(of_access).or_else(of_address).unwrap_or_default()
        };
        let mut names: Vec<_> = view.members.keys().cloned().collect();
        if !names.contains(&me.member) {
            names.push(me.member.clone());
        }
        let member = |name: String| {
            let is_self = name == me.member;
            let known = view.members.get(&name);
            let sees = view.seen.get(&name).into_iter().flatten();
            let sees: Vec<_> = sees.map(|(node, seen)| format!("{node}={}", seen.state)).collect();
            let leader = view.leader.as_ref().map(|leader| leader.record.member.as_str());
            let holder = view.address.as_ref().map(|own| own.record.member.as_str());
            // This Weir knows whether it has brought the address.
            let has_address =
                if is_self { lock(&self.address).is_here } else { holder == Some(&name) };
            let state = match (is_self && is_unreached, sees.is_empty()) {
                (true, _) => "unreached",
                (false, true) => "silent",
                (false, false) if leader == Some(&name) => "leader",
                (false, false) => "member",
            };
            MemberInfo {
                state,
                is_self,
                has_address,
                version: known.map_or_else(String::new, |own| own.version.clone()),
                confirmed: known.map_or(0, |own| own.confirmed),
                sees: sees.join(", "),
                lease: is_self.then(|| membership.lease().until().saturating_sub(now)),
                trouble: if is_self { own_trouble() } else { String::new() },
                name,
            }
        };
        FleetInfo {
            members: names.into_iter().map(member).collect(),
            term: view.present().map(term_in_words).unwrap_or_default(),
            number: view.present().map_or(0, |term| term.number),
            paused_by: view.pause.as_ref().map_or_else(String::new, |pause| pause.by.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use ::cluster::fleet::Writer;

    use super::*;

    #[test]
    fn a_term_is_told_in_words() {
        let writer = || Writer { node: "a".to_owned(), timeline: 3, system: 1 };
        let ordered = Phase::Closed { is_fenced: true, ordered: Some("b".to_owned()) };
        for (phase, words) in [
            (Phase::Serving, "term 1: node a is the primary, timeline 3"),
            (Phase::Draining { to: "b".to_owned() }, "term 1: switchover from node a to b"),
            (ordered, "term 1: node b is promoted in the place of node a"),
        ] {
            assert_eq!(term_in_words(&Term::after(None, writer(), phase)), words);
        }
    }
}
