//! Any bytes of a client of the console.
//!
//! The first byte chooses the settings, the second is a seed for cuts, and the rest are the
//! client's bytes. Replies must be whole messages and must not depend on the cuts. Users who may
//! only look must not reload or shut down the process.

mod stream;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use admin::{
    Boxed, Buffers, ClientRow, ClientState, Connection, Console, Control, Login, NotReloaded,
    Order, Recording, Shutdown,
};
use admin::{Judgement, Memory, PoolRow, ServerRow, ServerState, Snapshot};
use config::{Config, ConsoleColumns, PcpUser, PcpUsers, PoolMode};
use engine::averages::Averages;
use engine::facts::Facts;
use engine::ids::PoolId;
use engine::stats::Stats;
use engine::switches::Switches;
use wire::{HEADER_LEN, backend};

use self::stream::Pipe;
use crate::cuts::Cuts;
use crate::rng::Rng;
use crate::seen::{message, without_shown_bytes};
use crate::world::base_config;

const LEN_MAX: usize = 40_000;

pub fn console(data: &[u8]) {
    let [settings, seed, bytes @ ..] = data else { return };
    let bytes = &bytes[..bytes.len().min(LEN_MAX)];
    let admin = settings & 1 != 0;
    let fails = settings & 2 != 0;
    let whole = play(admin, fails, bytes, Cuts::Whole);
    let cut = play(admin, fails, bytes, Cuts::Random(Rng::new(u64::from(*seed))));
    // Times differ between two runs, so only the types of the messages are compared.
    assert_eq!(whole.codes, cut.codes, "cuts make a difference");
    assert_eq!(whole.end, cut.end, "cuts make a difference");
    assert_eq!(whole.changes, cut.changes, "cuts make a difference");
    assert!(admin || whole.changes == 0, "somebody without the right changed something");
}

struct Outcome {
    /// The types of all replies.
    codes: Vec<u8>,
    /// The reason for the end.
    end: String,
    /// Commands that were executed, except SHOW.
    changes: usize,
}

fn play(admin: bool, fails: bool, bytes: &[u8], cuts: Cuts) -> Outcome {
    let process = Arc::new(Process { fails, changes: AtomicUsize::new(0) });
    let console = Console::new(process.clone());
    let login = Login {
        label: String::new(),
        admin,
        process_id: 1,
        secret: [1; 4],
        connection: connection(),
        unread: Vec::new(),
    };
    let mut pipe = Pipe::new(bytes, cuts);
    let end = {
        // Neither the pipe nor the process ever blocks.
        let serving = std::pin::pin!(console.serve(&mut pipe, login));
        match serving.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(end) => without_shown_bytes(end.unwrap_or_default()),
            Poll::Pending => panic!("the console waits for nothing"),
        }
    };
    let codes = codes(&pipe.written);
    assert!(
        codes.last().is_some_and(|code| !GO_ON.contains(code)) || end == DOWN,
        "the last message is none to end with"
    );
    Outcome { codes, end, changes: process.changes.load(Ordering::Relaxed) }
}

/// Messages that are never the last ones of an answer.
const GO_ON: [u8; 3] = [backend::DATA_ROW, backend::NOTICE, backend::PARAMETER_DESCRIPTION];

/// The reason for the end after a shutdown, which needs no text.
const DOWN: &str = "";

fn codes(mut written: &[u8]) -> Vec<u8> {
    let mut codes = Vec::new();
    while let Some((code, body)) = message(written) {
        codes.push(code);
        written = &written[HEADER_LEN + body.len()..];
    }
    assert!(written.is_empty(), "part of a message: {}", written.escape_ascii());
    codes
}

/// The MD5 of `secret`.
const MD5: &str = "5ebe2294ecd0e0f08eab7690d2a6ee69";

/// The process that the console belongs to.
pub(crate) struct Process {
    /// True if its configuration is invalid.
    pub(crate) fails: bool,
    pub(crate) changes: AtomicUsize,
}

impl Process {
    fn change(&self) -> Result<(), String> {
        self.changes.fetch_add(1, Ordering::Relaxed);
        if self.fails { Err("line 1".into()) } else { Ok(()) }
    }
}

impl Control for Process {
    fn explain_route(&self, _: &[u8]) -> Vec<Judgement> {
        Vec::new()
    }

    fn snapshot(&self) -> Boxed<'_, Snapshot> {
        Box::pin(std::future::ready(snapshot()))
    }

    fn recording(&self) -> Boxed<'_, Recording> {
        Box::pin(std::future::ready(Recording::default()))
    }

    fn timings(&self) -> Recording {
        Recording::default()
    }

    fn reload(&self) -> Boxed<'_, Result<Vec<String>, NotReloaded>> {
        Box::pin(std::future::ready(
            self.change()
                .map(|()| Vec::new())
                .map_err(|kept| NotReloaded { kept: vec![kept], mistakes: Vec::new() }),
        ))
    }

    fn config(&self) -> Arc<Config> {
        let mut config = base_config();
        config.global.console_columns = ConsoleColumns::Weir;
        let user = |name: &str, is_admin| PcpUser { name: name.into(), md5: MD5.into(), is_admin };
        config.pcp_users = PcpUsers(vec![user("admin", true), user("viewer", false)]);
        Arc::new(config)
    }

    fn shutdown(&self, _: Shutdown) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    fn refusal(&self, _: &Order) -> Option<String> {
        None
    }

    fn order(&self, _: Order) -> Boxed<'_, Result<(), String>> {
        Box::pin(std::future::ready(self.change()))
    }

    fn give_up(&self) {}

    fn abandoned(&self) {}

    fn set(&self, _: String, _: String) -> Boxed<'_, Result<Option<String>, String>> {
        Box::pin(std::future::ready(self.change().map(|()| None)))
    }

    fn note(&self, _: &str) {}

    fn error(&self, _: &str) {}

    fn pooler_error(&self, _: &str, _: &str) {}
}

fn snapshot() -> Snapshot {
    let pool = PoolRow {
        id: PoolId(0),
        database: "app".into(),
        user: "alice".into(),
        pool_mode: PoolMode::Transaction,
        proxied: None,
        oldest_wait: 0,
        at_node: None,
        routes: Vec::new(),
        stats: Stats::default(),
    };
    Snapshot {
        switches: Switches::default(),
        config: Arc::new(base_config()),
        pools: vec![pool],
        clients: vec![ClientRow { state: ClientState::Active, connection: connection() }],
        servers: vec![ServerRow {
            state: ServerState::Idle,
            connection: connection(),
            doing: None,
            pin: None,
        }],
        cancels: Vec::new(),
        listeners: Vec::new(),
        dns_hosts: Vec::new(),
        dns_zones: Vec::new(),
        dns_queries: 0,
        averages: Arc::new(Averages::new(0)),
        watched: Vec::new(),
        workers: Vec::new(),
        clusters: Vec::new(),
        health: Vec::new(),
        memory: Memory::default(),
        taken_at: 1,
        local_time: |moment| moment.to_string(),
    }
}

fn connection() -> Connection {
    Connection {
        id: 1,
        fd: 1,
        pool: Some(PoolId(0)),
        database: "app".into(),
        user: "alice".into(),
        peer: None,
        local: None,
        connected_at: 1,
        request_at: 1,
        wait: 0,
        close_needed: false,
        link: 0,
        remote_pid: 0,
        tls: String::new(),
        facts: Facts::default(),
        application_name: "fuzz".into(),
        buffers: Buffers::default(),
        replication: "none",
    }
}
