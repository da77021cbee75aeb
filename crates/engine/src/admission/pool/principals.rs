//! Data about a pool's servers: role, database and stored settings, and the answer of a server that
//! was asked (`principal.rs`).

use crate::ids::Micros;

/// The role and the database of a server, and the settings that its login gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// OID of the role.
    pub role: u32,
    /// OID of the database.
    pub database: u32,
    /// Stands for the rows of `pg_db_role_setting` that apply.
    pub settings: String,
}

/// A server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The OIDs of the role and the database that the server has logged in to.
    pub server: (u32, u32),
    /// The principal of a new server; None: its login would fail.
    pub new: Option<Principal>,
}

impl Answer {
    /// Reads the two columns of the question's only row.
    pub fn parse(server: &str, new: &str) -> Option<Self> {
        let pair = |text: &str| -> Option<(u32, u32)> {
            let (role, database) = text.split_once(' ')?;
            Some((role.parse().ok()?, database.parse().ok()?))
        };
        let mut parts = new.splitn(3, ' ');
        let mut oid = || parts.next()?.parse().ok();
        let new = match (oid(), oid()) {
            (Some(role), Some(database)) => {
                let settings = parts.next().unwrap_or_default().to_owned();
                Some(Principal { role, database, settings })
            }
            _ => None,
        };
        Some(Self { server: pair(server)?, new })
    }
}

#[derive(Debug)]
pub(super) struct Principals {
    /// The principal of a new server when a server was last asked.
    pub(super) known: Option<Principal>,
    /// When a server was last asked, since the pool's servers were replaced.
    pub(super) asked_at: Option<Micros>,
    /// Servers that are being asked.
    pub(super) asked: u32,
    /// The next server that becomes free from this time on is asked.
    pub(super) due_at: Micros,
    /// The node cannot answer.
    pub(super) is_unable: bool,
    /// OID of the role, as the library has last told it.
    pub(super) told: Option<u32>,
    /// The number of answers in a row by which a server is not what its own names mean.
    pub(super) disagreements: u32,
    /// The number of servers in a row that were lost while they were asked, each opened after the loss
    /// of the one before.
    pub(super) losses: u32,
    /// When the last one was lost.
    pub(super) lost_at: Micros,
    /// The pool of a standby: all servers are newer than the change that was noticed at this moment.
    pub(super) as_of: Micros,
}

/// After more such answers in a row, the node is not asked any more: it is a pooler itself, and gives
/// names another meaning than PostgreSQL does.
pub(super) const DISAGREEMENTS_MAX: u32 = 3;

/// After more such losses in a row, the node is not asked any more.
pub(super) const LOSSES_MAX: u32 = 2;

impl Default for Principals {
    fn default() -> Self {
        Self {
            known: None,
            asked_at: None,
            asked: 0,
            due_at: Micros::MAX,
            is_unable: false,
            told: None,
            disagreements: 0,
            losses: 0,
            lost_at: 0,
            as_of: 0,
        }
    }
}

/// The upper 16 bits of an epoch count how often the pool's logins have begun to lead to another role.
pub(super) const ROLE_STEP: u64 = 1 << 48;

/// Returns the upper 16 bits of an epoch.
pub fn role_changes(epoch: u64) -> u16 {
    (epoch / ROLE_STEP) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(role: u32, settings: &str) -> Principal {
        Principal { role, database: 5, settings: settings.into() }
    }

    #[test]
    fn an_answer_has_the_servers_oids_and_those_of_a_new_server() {
        let parsed = |new| Answer::parse("17 5", new).unwrap();
        assert_eq!(parsed("17 5").new, Some(principal(17, "")));
        assert_eq!(parsed("18 5 0.18.725.(0,1) x").new, Some(principal(18, "0.18.725.(0,1) x")));
        assert_eq!(parsed("5").new, None);
        assert_eq!(parsed("").new, None);
        assert_eq!(parsed("5").server, (17, 5));
        assert_eq!(Answer::parse("17", "17 5"), None);
    }
}
