//! The risk that a failover loses commits of the last primary, by the answers of all nodes.

use std::fmt::Write as _;

use super::{Cluster, Primary};
use crate::Micros;
use crate::commits::{self, Doubt, Guarantee, Member, Told};
use crate::fact::Lsn;

impl Cluster {
    /// Returns for which nodes the commits of the last primary waited, or why they can be lost with
    /// it.
    ///
    /// # Errors
    /// Why an acknowledged commit may be on no other node.
    pub fn guarantee(&self) -> Result<&Guarantee, &Doubt> {
        self.commits.state()
    }

    /// Returns why a failover may lose commits of the last primary, and what to do about it. None: it
    /// cannot, or that is not known yet.
    #[must_use]
    pub fn risk(&self) -> Option<String> {
        match self.guarantee() {
            Ok(_) | Err(Doubt::Unasked) => None,
            Err(doubt) => Some(format!("{doubt}; to avoid it, {}", self.remedy(doubt))),
        }
    }

    /// Returns what an operator can do about a doubt, so that no commit can be lost.
    fn remedy(&self, doubt: &Doubt) -> String {
        match doubt {
            Doubt::Level(_) => return "set synchronous_commit = on".to_owned(),
            Doubt::Twice { .. }
            | Doubt::Spelling { .. }
            | Doubt::Cascaded { .. }
            | Doubt::Imposter { .. } => {
                return "let only the node itself stream under its application_name, and from the \
                        primary"
                    .to_owned();
            }
            Doubt::Unasked | Doubt::Reloaded => return "wait for its next answer".to_owned(),
            Doubt::Asynchronous
            | Doubt::Unreadable(_)
            | Doubt::Anyone
            | Doubt::NoNode(_)
            | Doubt::Default
            | Doubt::Shared { .. } => {}
        }
        let members: Vec<_> = self.members(0).collect();
        let listed = self.last_primary().and_then(|at| self.nodes[usize::from(at.0)].replication());
        let number = listed.and_then(|own| commits::StandbyNames::parse(&own.names));
        let names = commits::safe_names(number.map_or(1, |own| own.number), &members);
        let mut text = format!("set synchronous_standby_names = '{names}'");
        for node in commits::misnamed(&members) {
            let _ =
                write!(text, ", and application_name={node} in primary_conninfo of node {node}");
        }
        text
    }

    /// Returns the nodes, as of the time when the primary was asked.
    fn members(&self, at: Micros) -> impl Iterator<Item = Member<'_>> {
        self.nodes.iter().zip(self.nodes()).map(move |(node, id)| Member {
            id,
            name: &node.name,
            standby_name: node.standby_name(),
            replication: node.replication(),
            is_apart: node.was_apart(at),
        })
    }

    /// Judges whether commits of the primary can be lost.
    pub(super) fn judge_commits(&mut self, primary: Primary, wal: Lsn, now: Micros) {
        let Primary { node, timeline, .. } = primary;
        let own = &self.nodes[usize::from(node.0)];
        let asked_at = own.sampled_at;
        let loaded = own.replication().map_or_else(String::new, |told| told.loaded.clone());
        let members: Vec<_> = self.members(asked_at).collect();
        let confirmers = commits::confirmers(node, &members);
        let told = Told { primary: node, timeline, wal, asked_at, loaded: &loaded };
        self.commits.learn(&told, confirmers, now);
    }
}
