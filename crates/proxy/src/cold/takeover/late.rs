//! The new process's half after the first hand-over. It serves clients already when it gets those
//! that were busy, and learns how many servers the old process still uses.

use std::{
    collections::VecDeque,
    io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::{Arc, atomic::Ordering},
};

use engine::{
    records::{HandoverState, Usage, UsageRecord},
    shell::OtherProcess,
};
use tokio::sync::mpsc;

use super::{
    line,
    state::{Received, TakeOverError, read_state},
};
use crate::{
    exchange::{
        hub::lock,
        late_arrivals::{Arrivals, PredecessorState, WorkerArrivals},
        lines::Letter,
        mail::ShellMail,
        shared::Shared,
    },
    log, warning,
};

/// Reads messages of the predecessor until that ends.
///
/// # Errors
/// When the system refuses threads.
pub(crate) fn follow(stream: UnixStream, shared: &Arc<Shared>) -> io::Result<()> {
    let mut line_end = PredecessorLine {
        shared: Arc::clone(shared),
        pending: None,
        schema: shared.hub.numbering().schema,
        knows_usage: false,
    };
    let last = Arc::clone(shared);
    let hear =
        move |letter, body: Vec<u8>, stream: &UnixStream| line_end.hear(letter, &body, stream);
    let ended = move || set_usage(&last, Usage::default());
    line::open(stream, shared, OtherProcess::Predecessor, hear, ended).map(drop)
}

/// The successor's end of the connection to the predecessor.
struct PredecessorLine {
    shared: Arc<Shared>,
    /// Connections that were accepted, but are not confirmed yet.
    pending: Option<Received>,
    /// The number of schema changes when both processes last agreed on it.
    schema: u64,
    /// Has it told how many servers it still uses?
    knows_usage: bool,
}

impl PredecessorLine {
    fn hear(&mut self, letter: u8, body: &[u8], stream: &UnixStream) -> io::Result<()> {
        match letter {
            b'S' => self.pending = self.accept(body, stream)?,
            b'G' => {
                if let Some(received) = self.pending.take() {
                    self.adopt(received)?;
                }
            }
            b'U' => {
                set_usage(&self.shared, Usage::from_bytes(body).map_err(io::Error::other)?);
                if !std::mem::replace(&mut self.knows_usage, true) {
                    log!("servers in use by the old process count in the limits of this one");
                }
            }
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        Ok(())
    }

    fn accept(&self, body: &[u8], stream: &UnixStream) -> io::Result<Option<Received>> {
        let received = read_state(stream, body).map_err(|error: TakeOverError| {
            warning!("the old process keeps its busy clients: {error}");
            io::Error::other(error)
        })?;
        let shared = &self.shared;
        let is_ending = shared.draining.load(Ordering::Acquire);
        let refusal = match shared.hub.switches().is_halted() {
            _ if is_ending => Some("pooler is shutting down"),
            true => Some("already suspended/paused"),
            false => None,
        };
        let Some(line) = shared.lines.to(OtherProcess::Predecessor) else { return Ok(None) };
        match refusal {
            Some(why) => {
                line.send(Letter::Frame(b'N', why.as_bytes().to_vec()));
                Ok(None)
            }
            None => {
                line.send(Letter::Frame(b'A', std::process::id().to_be_bytes().to_vec()));
                Ok(Some(received))
            }
        }
    }

    /// Gives the confirmed connections to the workers, in turn.
    fn adopt(&mut self, received: Received) -> io::Result<()> {
        let Received { mut handover_state, mut fds, .. } = received;
        let shared = &self.shared;
        handover_state.date_back_to(shared.clock.now());
        shared.hub.join_schema(self.schema, handover_state.statements.schema);
        shared.hub.resume_connections(handover_state.connections);
        self.schema = shared.hub.numbering().schema;
        let count = usize::from(shared.hub.worker_count());
        let shares = deal(&mut handover_state, &mut fds, count)?;
        let statements = handover_state.worker_records.iter().map(|records| {
            let all = records.statements.iter();
            all.map(|one| (one.id, shared.hub.restore(one))).collect()
        });
        let statements = statements.collect();
        let state = Arc::new(PredecessorState { handover_state, statements });
        shared.tell_all(|| ShellMail::Expect(Arc::clone(&state)));
        // A server that one worker gets may be used by all.
        let (done, mut all_done) = mpsc::unbounded_channel();
        shared.tell_all(|| ShellMail::Barrier(done.clone()));
        drop(done);
        while all_done.blocking_recv().is_some() {}
        let moved: usize = shares.iter().flatten().map(|parts| parts.clients.len()).sum();
        for (mailbox, parts) in shared.hub.mailboxes().iter().zip(shares) {
            let arrivals = WorkerArrivals { state: Arc::clone(&state), parts };
            mailbox.post(ShellMail::Adopt(Box::new(arrivals)));
        }
        log!("{moved} clients that were busy in the old process have been taken over");
        Ok(())
    }
}

/// Returns one share for each worker: the records of all old workers, in turn.
fn deal(
    handover_state: &mut HandoverState,
    fds: &mut VecDeque<OwnedFd>,
    workers: usize,
) -> io::Result<Vec<Vec<Arrivals>>> {
    let old_workers = handover_state.worker_records.len();
    let empty = || (0..old_workers).map(|_| Arrivals::default()).collect::<Vec<_>>();
    let mut shares: Vec<_> = (0..workers).map(|_| empty()).collect();
    let mut turns = (0..workers).cycle();
    let mut next = || fds.pop_front().ok_or(io::ErrorKind::UnexpectedEof);
    for (at, records) in handover_state.worker_records.iter_mut().enumerate() {
        for record in std::mem::take(&mut records.clients) {
            let client = next()?;
            let server = if record.server.is_some() { Some(next()?) } else { None };
            let worker = turns.next().unwrap_or_default();
            shares[worker][at].clients.push((record, client, server));
        }
        for record in std::mem::take(&mut records.parked) {
            let worker = turns.next().unwrap_or_default();
            shares[worker][at].parked.push((record, next()?));
        }
    }
    Ok(shares)
}

/// Sets how many servers of each pool the predecessor's clients use.
fn set_usage(shared: &Shared, Usage(records): Usage) {
    for pool in shared.hub.pools() {
        let mut pool = lock(&pool);
        let is_its = |record: &&UsageRecord| {
            record.database == pool.key.database && record.user == pool.key.user
        };
        let servers = records.iter().find(is_its).map_or(0, |record| record.servers);
        pool.set_elsewhere(servers);
    }
    shared.tell_all(|| ShellMail::Review);
}
