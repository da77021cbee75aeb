//! One thread of a run: its clients, and the loop that passes events to them.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use net::{Address, Caller, Poller, Received, Room};

use crate::{
    client::{Client, Link, Micros, Next, Shared, State},
    plan::Plan,
    random::Random,
    stats::{Published, Stats},
    target::TIMEOUT_EXPIRED,
};

/// Maximal number of concurrent logins before a run. It is below any listen backlog, so the kernel
/// drops none, which would be repeated a second later.
const LOGINS_MAX: usize = 100;
/// The time to wait when a unix socket's backlog is full.
const RETRY_US: Micros = 1_000;
const READ_LEN: usize = 64 * 1024;
/// The number of clients that gave up and are reported one by one.
const COMPLAINTS_MAX: u64 = 10;

/// A message from a thread to its starter.
#[derive(Debug)]
pub(crate) enum Word {
    /// All its clients are logged in.
    Ready,
    /// A client could not log in, or the thread cannot continue, with the reason.
    Failed(String),
    Done(Box<Stats>),
}

/// The data that the threads of a run share besides the plan.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) address: Address,
    /// The published figures of each thread.
    pub(crate) published: Vec<Published>,
    /// The number of clients that gave up, and the reason of the first one.
    pub(crate) aborted: AtomicU64,
    pub(crate) first_error: Mutex<Option<String>>,
}

/// Does a thread's share of the run. The transactions begin when `go` sends the start of the run.
pub(crate) fn work(
    plan: &Plan,
    common: &Common,
    thread: usize,
    words: &mpsc::Sender<Word>,
    go: &mpsc::Receiver<Instant>,
) {
    let done = Worker::new(plan, common, thread).and_then(|mut worker| {
        worker.log_everyone_in()?;
        let _ = words.send(Word::Ready);
        // `go` is dropped when another thread's clients could not log in.
        go.recv().map_or(Ok(None), |start| worker.run(start).map(Some))
    });
    let _ = match done {
        Ok(Some(stats)) => words.send(Word::Done(Box::new(stats))),
        Ok(None) => Ok(()),
        Err(error) => words.send(Word::Failed(error)),
    };
}

struct Worker<'a> {
    common: &'a Common,
    published: &'a Published,
    shared: Shared<'a>,
    clients: Vec<Client>,
    /// The number of clients that have not left.
    left: usize,
    poller: Poller,
    room: Room,
    timers: BinaryHeap<Reverse<(Micros, usize)>>,
    /// With a time limit for logins: when each began, and its client, the oldest first.
    logins: VecDeque<(Micros, usize)>,
    /// From here on, a client that gives up does not end the run.
    is_running: bool,
}

impl<'a> Worker<'a> {
    fn new(plan: &'a Plan, common: &'a Common, thread: usize) -> Result<Self, String> {
        let clients: Vec<Client> =
            plan.share(thread).map(|number| Client::new(number, plan)).collect();
        let shared = Shared {
            plan,
            keyring: plan.target.keyring(),
            stats: Stats::default(),
            random: Random::new(
                plan.seed ^ (thread as u64 + 1).wrapping_mul(0xa076_1d64_78bd_642f),
            ),
            next_start: 0.0,
            out: Vec::new(),
            logins: 0,
            start: Instant::now(),
        };
        Ok(Self {
            common,
            published: &common.published[thread],
            shared,
            left: clients.len(),
            clients,
            poller: Poller::new().map_err(|error| error.to_string())?,
            room: Room::new(READ_LEN),
            timers: BinaryHeap::new(),
            logins: VecDeque::new(),
            is_running: false,
        })
    }

    /// # Errors
    /// The first client that could not log in, and the reason.
    fn log_everyone_in(&mut self) -> Result<(), String> {
        if self.shared.plan.reconnects {
            return Ok(());
        }
        let under_way_max = (LOGINS_MAX / self.shared.plan.threads).max(1);
        let mut begun = 0;
        while self.shared.logins < self.clients.len() {
            while begun < self.clients.len() && begun - self.shared.logins < under_way_max {
                self.follow_up(begun, Ok(Next::Connection))?;
                begun += 1;
            }
            self.turn()?;
        }
        Ok(())
    }

    fn run(&mut self, start: Instant) -> Result<Stats, String> {
        self.shared.start = start;
        self.timers.clear();
        self.is_running = true;
        for index in 0..self.clients.len() {
            self.go_on(index)?;
        }
        while self.left > 0 {
            self.turn()?;
            self.published.store(&self.shared.stats);
        }
        let mut stats = std::mem::take(&mut self.shared.stats);
        self.clients.iter().for_each(|client| stats.add_client(client.transactions));
        Ok(stats)
    }

    /// Waits for events and handles all of them.
    fn turn(&mut self) -> Result<(), String> {
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        let next = timer.into_iter().chain(self.login_deadline()).min();
        let timeout = next.map(|at| Duration::from_micros(at.saturating_sub(self.shared.now())));
        self.poller.wait(timeout).map_err(|error| error.to_string())?;
        for at in 0..self.poller.len() {
            let event = self.poller.event(at);
            let index = event.token as usize;
            if event.writable && self.clients[index].state != State::Dialing {
                self.flush(index)?;
            }
            if event.readable || self.clients[index].state == State::Dialing {
                self.receive(index)?;
            }
        }
        let now = self.shared.now();
        while let Some(Reverse((at, index))) = self.timers.peek().copied()
            && at <= now
        {
            self.timers.pop();
            self.go_on(index)?;
        }
        while self.login_deadline().is_some_and(|at| at <= now)
            && let Some((_, index)) = self.logins.pop_front()
        {
            self.give_up(index, TIMEOUT_EXPIRED)?;
        }
        Ok(())
    }

    /// Returns when the oldest login in progress takes too long.
    fn login_deadline(&mut self) -> Option<Micros> {
        let timeout = self.shared.plan.target.connect_timeout?;
        while let Some((dialed, index)) = self.logins.front().copied() {
            let client = &self.clients[index];
            if client.is_connecting() && client.dialed == Some(dialed) {
                return Some(dialed + timeout.as_micros() as Micros);
            }
            self.logins.pop_front();
        }
        None
    }

    fn go_on(&mut self, index: usize) -> Result<(), String> {
        let client = &mut self.clients[index];
        if client.is_gone() {
            return Ok(());
        }
        let next = client.go_on(&mut self.shared);
        self.follow_up(index, next)
    }

    fn flush(&mut self, index: usize) -> Result<(), String> {
        let Some(link) = &mut self.clients[index].link else { return Ok(()) };
        let flushed = link.caller.flush().map_err(|error| error.to_string());
        self.follow_up(index, flushed.map(|()| Next::Reply))
    }

    /// Reads once and passes the bytes to the client.
    fn receive(&mut self, index: usize) -> Result<(), String> {
        let client = &mut self.clients[index];
        let Some(link) = &mut client.link else { return Ok(()) };
        let received = link.caller.receive(&self.shared.plan.target.tls, &mut self.room);
        let next = match received {
            Ok(Received::Nothing) => Ok(Next::Reply),
            Ok(Received::Open) => {
                client.opened(&mut self.shared);
                Ok(Next::Reply)
            }
            Ok(Received::Bytes(bytes)) => hear(client, bytes, &mut self.shared),
            Ok(Received::End) => Err("server closed the connection unexpectedly".to_owned()),
            Err(error) => Err(error),
        };
        self.follow_up(index, next)
    }

    /// Sends the client's output, and arranges what it waits for.
    fn follow_up(&mut self, index: usize, next: Result<Next, String>) -> Result<(), String> {
        let client = &mut self.clients[index];
        let said = std::mem::take(&mut self.shared.out);
        let next = next.and_then(|next| match &mut client.link {
            Some(link) if !said.is_empty() => {
                link.caller.send(&said).map(|()| next).map_err(|error| error.to_string())
            }
            _ => Ok(next),
        });
        self.shared.out = said;
        self.shared.out.clear();
        match next {
            Ok(Next::Reply) => {}
            Ok(Next::Until(at)) => self.timers.push(Reverse((at, index))),
            Ok(Next::Connection) => return self.dial(index),
            Ok(Next::Nothing) => self.left -= 1,
            Err(reason) => return self.give_up(index, &reason),
        }
        self.watch(index).map_err(|error| error.to_string())
    }

    fn dial(&mut self, index: usize) -> Result<(), String> {
        let now = self.shared.now();
        let client = &mut self.clients[index];
        // After a full backlog it is still the same login.
        if client.dialed.is_none() {
            client.dialed = Some(now);
            if self.shared.plan.target.connect_timeout.is_some() {
                self.logins.push_back((now, index));
            }
        }
        match Caller::connect(&self.common.address) {
            Ok(caller) => {
                self.poller.add(&caller, index as u64).map_err(|error| error.to_string())?;
                client.link = Some(Link::new(caller));
                client.state = State::Dialing;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                client.state = State::New;
                self.timers.push(Reverse((now + RETRY_US, index)));
                Ok(())
            }
            Err(error) => self.give_up(index, &error.to_string()),
        }
    }

    /// Watches for room to send while there is unsent output.
    fn watch(&mut self, index: usize) -> io::Result<()> {
        let Some(link) = &mut self.clients[index].link else { return Ok(()) };
        let is_blocked = link.caller.is_blocked();
        if is_blocked != link.watched_blocked {
            link.watched_blocked = is_blocked;
            self.poller.update(&link.caller, index as u64)?;
        }
        Ok(())
    }

    /// Handles a client that gives up. Before the run it ends the run.
    fn give_up(&mut self, index: usize, reason: &str) -> Result<(), String> {
        let client = &mut self.clients[index];
        let full = match client.is_connecting() {
            true => self.shared.plan.target.complain(&self.common.address, reason),
            false => reason.to_owned(),
        };
        if !self.is_running {
            return Err(format!(
                "{full}\ncould not create connection for client {}",
                client.number
            ));
        }
        let complaint = format!("{}: {full}", client.describe());
        if self.common.aborted.fetch_add(1, Ordering::Relaxed) < COMPLAINTS_MAX {
            eprintln!("weir bench: error: {complaint}");
        }
        let mut first = self.common.first_error.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(complaint);
        client.state = State::Aborted;
        client.link = None;
        self.left -= 1;
        self.shared.stats.aborted += 1;
        Ok(())
    }
}

/// Passes messages to a client. Returns what it waits for after the last one.
fn hear(client: &mut Client, bytes: &[u8], shared: &mut Shared<'_>) -> Result<Next, String> {
    let Some(link) = &mut client.link else { return Ok(Next::Reply) };
    let mut inbox = std::mem::take(&mut link.inbox);
    let mut next = Next::Reply;
    inbox.take(bytes, |code, body| {
        match client.handle(code, body, shared)? {
            // A message behind the last reply, such as a notice, changes nothing.
            Next::Reply => {}
            other => next = other,
        }
        Ok(())
    })?;
    if let Some(link) = &mut client.link {
        link.inbox = inbox;
    }
    Ok(next)
}
