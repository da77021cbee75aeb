//! The kill matrix of direct pools (`direct::kills`) for the parties of a server that runs Weir
//! itself: the supervisor and the pooler. WEIR_TESTS=full tries both at all moments.

use testkit::{Builtin, Postgres, RawClient, Role, Version, eventually};

use super::{
    adoption::until_adopted,
    direct::{PATIENCE, server, until_direct},
    life::until_replaced,
};
use crate::direct::{
    kills::{is_lost, setting_of},
    moments::{MOMENTS, Moment, Site, Victim, reach},
};
use crate::support;

/// The size of the pool. One server is the victim's, one the busy bystander's.
const SIZE: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Party {
    /// The server starts all its processes again. The pooler goes on.
    Supervisor,
    Pooler,
}

impl Site for Builtin {
    fn postgres(&self) -> &Postgres {
        self
    }

    fn database(&self) -> &str {
        "postgres"
    }

    fn port(&self) -> u16 {
        self.pooler_port()
    }

    fn weir(&self) -> u32 {
        self.pooler_pid()
    }

    fn client(&self) -> RawClient {
        Self::client(self, "postgres")
    }

    fn suspend(&self) -> RawClient {
        unreachable!("the pooler in the server has no SUSPEND")
    }
}

/// Does the victim lose its connection? `None`: that depends on how far its login had come.
fn loses(party: Party, moment: Moment) -> Option<bool> {
    match (party, moment) {
        (Party::Supervisor, _) => Some(moment.has_backend()),
        (Party::Pooler, Moment::HandOff) => None,
        (Party::Pooler, _) => Some(moment == Moment::Login),
    }
}

fn end(server: &Builtin, party: Party) {
    let pooler = server.pooler_pid();
    match party {
        Party::Supervisor => {
            until_adopted(server, || support::kill9(server.supervisor_pid().expect("it runs")));
            assert_eq!(server.pooler_pid(), pooler);
        }
        Party::Pooler => {
            support::kill9(pooler);
            drop(until_replaced(server, pooler));
        }
    }
}

fn try_cell(server: &Builtin, party: Party, moment: Moment) {
    let what = format!("{party:?} at {moment:?}");
    eprintln!("{what}");
    let client = || server.client("postgres");
    let mut busy = client();
    busy.rows("BEGIN; SET LOCAL work_mem = '7MB'");
    let mut resting = client();
    resting.rows("SET work_mem = '5MB'");
    let Victim { client: mut victim, others, .. } = reach(server, moment, SIZE);
    end(server, party);
    drop(others);
    let expected = loses(party, moment);
    let is_victim_lost = is_lost(&mut victim, expected == Some(true));
    assert!(expected.is_none_or(|expected| expected == is_victim_lost), "{what}");
    assert_eq!(
        is_lost(&mut busy, party == Party::Supervisor),
        party == Party::Supervisor,
        "{what}"
    );
    assert!(!is_lost(&mut resting, false), "{what}");
    assert_eq!(setting_of(&mut resting), "5MB", "{what}");
    if party == Party::Pooler {
        assert_eq!(setting_of(&mut busy), "7MB", "{what}");
    }
    if !is_victim_lost {
        match moment {
            Moment::AtRest | Moment::Ready => assert_eq!(setting_of(&mut victim), "6MB", "{what}"),
            // The pooler may have ended before it had cancelled the query.
            Moment::Cancel => victim.cancel(server.pooler_port()),
            _ => {}
        }
    }
    drop((victim, busy, resting));
    let mut next = client();
    assert_eq!(next.value("SELECT count(*) FROM copied"), "0", "{what}");
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    eventually(&format!("nothing is left: {what}"), PATIENCE, || {
        let backends = server.backends("postgres").len();
        (next.value(locks) == "0" && backends <= SIZE as usize).then_some(())
    });
}

#[test]
fn only_those_lose_that_the_matrix_names_strict() {
    if !support::only_weir() {
        return;
    }
    let server = server(Version::Installed, &format!("weir.session_pool_size = {SIZE}"));
    server.set_rules("host all all 127.0.0.1/32 trust");
    eventually("the rule lets it in", PATIENCE, || {
        server.login(Role::APP, "postgres", "another password").ok()
    });
    let table = "CREATE TABLE copied (a int); GRANT ALL ON copied TO app";
    server.sql("postgres", &format!("SET synchronous_commit = on; {table}"));
    until_direct(&server);
    let is_full = std::env::var("WEIR_TESTS").is_ok_and(|which| which == "full");
    let is_short = |party, moment| match party {
        Party::Supervisor => [Moment::Ready, Moment::InResult].contains(&moment),
        Party::Pooler => [Moment::Ready, Moment::HandOff, Moment::Cancel].contains(&moment),
    };
    for party in [Party::Supervisor, Party::Pooler] {
        let moments = MOMENTS.into_iter().filter(|moment| *moment != Moment::Recall);
        for moment in moments.filter(|moment| is_full || is_short(party, *moment)) {
            try_cell(&server, party, moment);
        }
    }
}
