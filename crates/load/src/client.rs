//! One client: its connection, and its position in its script. Its worker owns sockets and clocks;
//! it reports events, and the client returns what it waits for.
//!
//! ```text
//!  New ─► Dialing ─► LoggingIn ─► Ready ─► (is due) ─► Throttled ─► (runs) ─► Replying ─┐
//!   ▲                                        ▲                         ▲  └─► Sleeping ─┤
//!   └─────────────── with -C ────────────────┴──────── at the end ─────┴────────────────┤
//!                                            └─ RollingBack, after a failure ◄──────────┘
//! ```

mod link;
mod reply;
mod send;
mod transaction;

use std::time::Instant;

pub(crate) use self::link::Link;
use self::reply::Reply;
use crate::{login::Keyring, plan::Plan, random::Random, stats::Stats};

/// Microseconds since the run began.
pub(crate) type Micros = u64;

/// The data that the clients of one thread share.
#[derive(Debug)]
pub(crate) struct Shared<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) keyring: Keyring,
    pub(crate) stats: Stats,
    pub(crate) random: Random,
    /// When the next transaction begins, under a rate.
    pub(crate) next_start: f64,
    /// Output of the present client, which its worker sends.
    pub(crate) out: Vec<u8>,
    /// The number of completed logins.
    pub(crate) logins: usize,
    /// When the run began; before it, when the thread began.
    pub(crate) start: Instant,
}

impl Shared<'_> {
    pub(crate) fn now(&self) -> Micros {
        self.start.elapsed().as_micros() as Micros
    }

    /// Has the time for new transactions ended?
    fn is_over(&self) -> bool {
        self.plan.duration_us.is_some_and(|end| self.now() >= end)
    }
}

#[derive(Debug)]
pub(crate) struct Client {
    /// Its number among all clients of the run, from 0.
    pub(crate) number: usize,
    pub(crate) link: Option<Link>,
    pub(crate) state: State,
    /// The number of the present action of the script.
    at: usize,
    variables: Vec<Option<i64>>,
    random: Random,
    scheduled: Micros,
    begun: Micros,
    /// A transaction is due and waits for its connection.
    is_due: bool,
    /// When the connection began, until it is logged in.
    pub(crate) dialed: Option<Micros>,
    pub(crate) transactions: u64,
    reply: Reply,
    /// True for the number of each statement that the server has prepared.
    prepared: Vec<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The client has no connection.
    New,
    /// The socket is connecting, or TLS is starting.
    Dialing,
    LoggingIn,
    /// Waiting for the run to begin, or for its turn.
    Ready,
    Throttled,
    Replying,
    Sleeping,
    RollingBack,
    /// It has done all its transactions.
    Finished,
    /// It has given up.
    Aborted,
}

/// The event that a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A reply of its server.
    Reply,
    /// This time.
    Until(Micros),
    /// A connection, which its worker must open.
    Connection,
    /// Nothing more to do.
    Nothing,
}

impl Client {
    pub(crate) fn new(number: usize, plan: &Plan) -> Self {
        let mut seeds = Random::new(plan.seed);
        let random =
            Random::new(seeds.next() ^ (number as u64).wrapping_mul(0xd134_2543_de82_ef95));
        let mut variables = plan.variables.clone();
        if let Some(slot) = plan.names.find("client_id") {
            variables[slot] = Some(number as i64);
        }
        Self {
            number,
            link: None,
            state: State::New,
            at: 0,
            variables,
            random,
            scheduled: 0,
            begun: 0,
            is_due: false,
            dialed: None,
            transactions: 0,
            reply: Reply::default(),
            prepared: Vec::new(),
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.state, State::Finished | State::Aborted)
    }

    /// Takes one message of the server.
    ///
    /// # Errors
    /// Why the client must give up.
    pub(crate) fn handle(
        &mut self,
        code: u8,
        body: &[u8],
        shared: &mut Shared<'_>,
    ) -> Result<Next, String> {
        match self.state {
            State::LoggingIn => self.handle_login(code, body, shared),
            State::Replying => {
                if self.reply.handle(code, body, &mut self.prepared)? {
                    return self.replied(shared);
                }
                Ok(Next::Reply)
            }
            State::RollingBack => {
                if self.reply.handle(code, body, &mut self.prepared)? {
                    return self.rolled_back(shared);
                }
                Ok(Next::Reply)
            }
            // A notice, a notification or the value of a parameter.
            _ if matches!(code, b'N' | b'S' | b'A') => Ok(Next::Reply),
            _ if code == b'E' => Err(crate::login::server_error(body)),
            _ => Err(format!("unexpected message {:?}", char::from(code))),
        }
    }

    /// Begins the login; the connection is ready, with TLS if configured.
    pub(crate) fn opened(&mut self, shared: &mut Shared<'_>) {
        if let Some(link) = &mut self.link {
            link.begin_login();
            shared.plan.target.start_up(&mut shared.out);
        }
        self.state = State::LoggingIn;
    }

    fn handle_login(
        &mut self,
        code: u8,
        body: &[u8],
        shared: &mut Shared<'_>,
    ) -> Result<Next, String> {
        let Some(link) = &mut self.link else { return Ok(Next::Connection) };
        if !link.handle_login(code, body, &mut shared.keyring, &mut shared.out)? {
            return Ok(Next::Reply);
        }
        if let Some(dialed) = self.dialed.take() {
            shared.stats.connecting.record(shared.now().saturating_sub(dialed));
        }
        shared.logins += 1;
        self.prepared = vec![false; shared.plan.script.statements];
        self.state = State::Ready;
        if std::mem::take(&mut self.is_due) { self.begin(shared) } else { Ok(Next::Reply) }
    }

    /// Is it not logged in yet?
    pub(crate) fn is_connecting(&self) -> bool {
        matches!(self.state, State::New | State::Dialing | State::LoggingIn)
    }

    /// Returns its present command for an error message.
    pub(crate) fn describe(&self) -> String {
        if self.is_connecting() {
            return format!("client {} aborted while establishing connection", self.number);
        }
        // pgbench's words. There is one script, and one query in a command.
        format!("client {} script 0 aborted in command {} query 0", self.number, self.at)
    }
}
