//! Counts of failures and of closed servers by kind, for the metrics.

use std::ops::AddAssign;

use crate::lifecycle::close_reason::CloseReason;
use crate::own_error::Cause;

/// The ways in which a server connection fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerFailure {
    /// The address cannot be connected to.
    Connect,
    /// The server answers, and the login does not succeed.
    Login,
    /// A server that was logged in has ended the connection, or has sent a message that no request
    /// had asked for.
    Lost,
}

impl ServerFailure {
    const ALL: [Self; 3] = [Self::Connect, Self::Login, Self::Lost];

    fn label(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Login => "login",
            Self::Lost => "lost",
        }
    }
}

/// The names of the reasons for which logged-in servers are closed.
const CLOSES: [(CloseReason<'static>, &str); 7] = [
    (CloseReason::LifetimeOver, "lifetime"),
    (CloseReason::IdleTimeout, "idle"),
    (CloseReason::MaxUses, "uses"),
    (CloseReason::MaxMemory, "memory"),
    (CloseReason::TooMany, "surplus"),
    (CloseReason::TooManySpare, "spare"),
    (CloseReason::Evicted, "evicted"),
];

/// The failures and the closed servers since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    clients: [u64; Cause::ALL.len()],
    servers: [u64; ServerFailure::ALL.len()],
    /// Counts of the reasons of [`CLOSES`], of failures, and of all others.
    closes: [u64; CLOSES.len() + 2],
}

impl Failures {
    pub(crate) fn count_client(&mut self, cause: Cause) {
        self.clients[cause as usize] += 1;
    }

    pub(crate) fn count_server(&mut self, failure: ServerFailure) {
        self.servers[failure as usize] += 1;
    }

    /// Counts a logged-in server that is closed.
    pub(crate) fn count_close(&mut self, why: CloseReason<'_>) {
        let named = CLOSES.iter().position(|(reason, _)| *reason == why);
        let unnamed = CLOSES.len() + usize::from(!why.is_failure());
        self.closes[named.unwrap_or(unnamed)] += 1;
    }

    /// Returns the closed servers, by the name of the reason.
    pub fn closes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = CLOSES.into_iter().map(|(_, name)| name).chain(["failure", "other"]);
        names.zip(self.closes)
    }

    /// Returns the errors that clients got, by the name of the cause.
    pub fn of_clients(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Cause::ALL.into_iter().map(|cause| (cause.label(), self.clients[cause as usize]))
    }

    /// Returns the failures of servers, by their name.
    pub fn of_servers(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = ServerFailure::ALL.into_iter();
        all.map(|failure| (failure.label(), self.servers[failure as usize]))
    }
}

impl AddAssign for Failures {
    fn add_assign(&mut self, other: Self) {
        let add = |(own, other): (&mut u64, u64)| *own += other;
        self.clients.iter_mut().zip(other.clients).for_each(add);
        self.servers.iter_mut().zip(other.servers).for_each(add);
        self.closes.iter_mut().zip(other.closes).for_each(add);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_a_counter_and_a_name_of_its_own() {
        let mut failures = Failures::default();
        for cause in Cause::ALL {
            failures.count_client(cause);
        }
        failures.count_server(ServerFailure::Login);
        let mut twice = failures;
        twice += failures;
        assert!(twice.of_clients().all(|(_, count)| count == 2), "{twice:?}");
        let servers: Vec<_> = twice.of_servers().collect();
        assert_eq!(servers, [("connect", 0), ("login", 2), ("lost", 0)]);
        for why in [CloseReason::MaxUses, CloseReason::Lost, CloseReason::Paused] {
            twice.count_close(why);
        }
        let closed = twice.closes().filter(|(_, count)| *count == 1);
        assert_eq!(closed.map(|(name, _)| name).collect::<Vec<_>>(), ["uses", "failure", "other"]);
        let names: std::collections::BTreeSet<_> =
            twice.of_clients().map(|(name, _)| name).collect();
        assert_eq!(names.len(), Cause::ALL.len());
    }
}
