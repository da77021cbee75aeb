//! PostgreSQL ends and comes back. Clients at rest keep connection, settings and statements.

use std::path::Path;
use std::time::Duration;

use testkit::{RawClient, eventually, frontend};

use super::{Direct, PATIENCE, ask, execute, pid};
use crate::support;

const SIZE: u32 = 4;
const CLIENTS: usize = 24;

/// A client at rest: its settings and statements, and whether it has got all of them.
struct Resting {
    client: RawClient,
    number: usize,
}

impl Resting {
    fn new(direct: &Direct, number: usize) -> Self {
        let mut client = direct.client();
        client.rows(&format!("SET application_name = 'client {number}'; SET work_mem = '7MB'"));
        let named = frontend::parse("own", &format!("SELECT 'named {number}'"));
        ask(&mut client, &[named, frontend::sync()]);
        let unnamed = frontend::parse("", &format!("SELECT 'unnamed {number}'"));
        // Until it is bound, it would keep the backend.
        ask(&mut client, &[unnamed, execute(""), frontend::sync()]);
        Self { client, number }
    }

    fn send(&mut self) {
        let number = self.number;
        let setting = "SELECT current_setting('application_name') || current_setting('work_mem')";
        let parts = match number % 3 {
            0 => vec![frontend::query(setting)],
            1 => vec![execute("own"), frontend::sync()],
            _ => vec![execute(""), frontend::sync()],
        };
        self.client.send(parts.concat());
    }

    #[track_caller]
    fn expect(&mut self, when: &str) {
        let number = self.number;
        let expected = match number % 3 {
            0 => format!("client {number}7MB"),
            1 => format!("named {number}"),
            _ => format!("unnamed {number}"),
        };
        self.client.set_timeout(PATIENCE);
        let answer = self.client.read_to_ready();
        assert!(answer.iter().all(|message| message.error().is_none()), "{when}: {answer:?}");
        let row = answer.iter().find(|message| message.tag == b'D').expect("a row").row();
        assert_eq!(row[0].as_deref(), Some(&*expected), "{when}");
    }
}

fn is_lost(client: &mut RawClient) -> bool {
    client.set_timeout(PATIENCE);
    client.read_to_end().iter().all(|message| message.tag != b'Z')
}

/// The ways in which PostgreSQL ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// One backend is killed, so PostgreSQL starts all processes again: one that runs a transaction,
    /// or one that waits.
    Busy,
    Idle,
    Postmaster,
    Restart,
}

impl End {
    fn bring(self, direct: &Direct, busy: u32) {
        match self {
            Self::Busy => support::kill9(busy),
            Self::Idle => {
                let all = direct.backends();
                support::kill9(*all.iter().find(|pid| **pid != busy).expect("another backend"));
            }
            Self::Postmaster => direct.postgres.kill9(),
            Self::Restart => direct.postgres.stop(),
        }
    }

    fn undo(self, direct: &Direct) {
        match self {
            Self::Busy | Self::Idle => {}
            Self::Postmaster | Self::Restart => direct.postgres.launch(),
        }
        eventually("PostgreSQL is up again", PATIENCE, || direct.postgres.is_ready());
    }
}

#[test]
fn clients_at_rest_keep_all_when_postgresql_crashes_or_restarts() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(SIZE);
    direct.postgres.sql("postgres", "CHECKPOINT");
    let mut resting: Vec<_> = (0..CLIENTS).map(|number| Resting::new(&direct, number)).collect();
    for end in [End::Busy, End::Idle, End::Postmaster, End::Restart, End::Busy] {
        let (mut busy, mut pinned, mut listens) =
            (direct.client(), direct.client(), direct.client());
        busy.rows("BEGIN");
        pinned.rows("CREATE TEMP TABLE own (a int)");
        listens.rows("CREATE TEMP TABLE own (a int); LISTEN news");
        // A second backend, at least.
        resting[0].send();
        resting[0].expect("before");
        direct.until_active(3);
        let (backend, all) = (pid(&mut busy), direct.backends());
        end.bring(&direct, backend);
        // One that still lives would take a request, and lose its client.
        let are_gone = || !all.iter().any(|pid| Path::new(&format!("/proc/{pid}")).exists());
        eventually("the backends are gone", PATIENCE, || are_gone().then_some(()));
        // Some ask while PostgreSQL is away, and the others when it is back.
        let (early, late) = resting.split_at_mut(CLIENTS / 2);
        early.iter_mut().for_each(Resting::send);
        end.undo(&direct);
        early.iter_mut().for_each(|client| client.expect(&format!("{end:?}, early")));
        late.iter_mut().for_each(Resting::send);
        late.iter_mut().for_each(|client| client.expect(&format!("{end:?}, late")));
        for client in [&mut busy, &mut pinned, &mut listens] {
            assert!(is_lost(client), "{end:?}");
        }
        // Others are let in, and the pool is what it was.
        let mut next = direct.client();
        assert_eq!(next.value("SHOW work_mem"), "4MB", "{end:?}");
        assert_eq!(direct.column("data_path"), "direct", "{end:?}");
        assert_eq!(direct.column("maxwait"), "0", "{end:?}");
    }
    eventually("no server is left over", PATIENCE, || {
        (direct.backends().len() <= SIZE as usize).then_some(())
    });
}

/// A client does not wait for PostgreSQL for ever.
#[test]
fn a_request_waits_for_postgresql_as_long_as_query_wait_timeout_says() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start_with(SIZE, |setup| setup.set("query_wait_timeout", 1));
    let (mut asks, mut rests) = (direct.client(), direct.client());
    rests.rows("SET work_mem = '7MB'");
    direct.until_active(0);
    direct.postgres.stop();
    asks.send(frontend::query("SELECT 1"));
    asks.set_timeout(Duration::from_secs(10));
    let answer = asks.read_to_end();
    let error = answer.iter().find_map(|message| message.error()).expect("it is told");
    assert_eq!(error.message(), "query_wait_timeout");
    direct.postgres.launch();
    eventually("PostgreSQL is up again", PATIENCE, || direct.postgres.is_ready());
    assert_eq!(rests.value("SHOW work_mem"), "7MB");
}
