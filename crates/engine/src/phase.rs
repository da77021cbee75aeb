//! The phases of clients and servers. This file alone changes them: each function here is a
//! transition, and panics if the present phase does not allow it. A client or server in a wrong
//! phase could otherwise get another one's bytes.
//!
//! ```text
//!  client  Login ─► Idle ⇄ Waiting ⇄ Preparing ⇄ Linked ─► Idle …
//!            │        ▲                    │           └────► Failed (its server is lost)
//!            │        └────────────────────┴───────────────────┘
//!            └────► Canceling (a cancel request is a connection of its own)
//!
//!  server  Connecting ─► Login ─► Settling ⇄ Parked ─► Preparing ⇄ Linked ─► Settling …
//!                                    │                     └──────────┴────► Finishing ─► Settling
//!                                    └────► Listening, Attending ─► Settling, Preparing
//! ```
//!
//! A connection of another process, or of a lobby, goes from the first phase to its own one.

use std::ops::Deref;

use crate::cancel::outcome::CancelOutcome;
use crate::ids::{Micros, Newcomer, Waiter};
use crate::lifecycle::loss::Failed;
use crate::lifecycle::own_query::OwnQuery;
use crate::lifecycle::preparation::Preparation;
use crate::login::auth::Login;
use crate::login::auth_answer::AuthAnswer;
use crate::login::server_login::ServerLogin;
use crate::session::probe::Probe;

/// The state of a client: what it waits for, or what Weir expects from it.
#[derive(Debug)]
pub enum ClientPhase {
    /// The rest of its login.
    Login(Box<Login>),
    /// Its next request; it has no server.
    Idle,
    /// A server. The client's bytes stay in the kernel.
    Waiting(Waiter),
    /// Its server, which is being prepared.
    Preparing(Waiter),
    /// It has a server.
    Linked,
    /// Its next message. Its transaction or its session was lost with its server.
    Failed(Box<Failed>),
    /// The end of its cancel request; answers of this many workers are missing.
    Canceling { answers_missing: u16, outcome: CancelOutcome },
}

/// The state of a server: what it waits for.
#[derive(Debug)]
pub enum ServerPhase {
    /// The connection to be made.
    Connecting(Box<ServerLogin>),
    /// The end of the login.
    Login(Box<ServerLogin>),
    /// A client. The server is in no worker's table.
    Parked,
    /// The reply to Weir's own query; its client is held back until then.
    Preparing(Preparation),
    /// Its client's messages and PostgreSQL's replies.
    Linked,
    /// The end of the query of a lost client.
    Finishing,
    /// The end of whatever prevents linking it. It has no client.
    Settling(Settling),
    /// Notifications, to forward them. It never has a client.
    Listening,
    /// Its end: PostgreSQL's backend serves clients' sockets itself. `came`: it is in the lobby.
    /// `asked`: it was asked to leave.
    Attending { came: bool, asked: bool },
}

/// The obstacle to linking a server to its next client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settling {
    /// Nothing is known: the server was opened, released or unparked just now.
    Fresh,
    /// The reply to a query for a client that has left.
    LastAnswer,
    /// The pool's reset query.
    Reset,
    /// DISCARD ALL, which ends the last client's session.
    Forget,
    /// UNLISTEN: it has sent a notification for the last client.
    Unlisten,
    /// RESET of the parameters that the last client may have set (`lifecycle/defaults.rs`).
    Explain,
    /// SET of the mark of a server that has been idle for long (`lifecycle/mark.rs`).
    Mark,
    /// The end of its session, and the ticket with which its backend goes to the lobby.
    Enlist,
    /// A cancel request under way, which could cancel the next client's query.
    Cancel,
}

impl Settling {
    /// Returns the query of Weir's own that is running.
    pub(crate) fn own_query(self) -> Option<OwnQuery> {
        match self {
            Self::Reset => Some(OwnQuery::Reset),
            Self::Forget | Self::Unlisten | Self::Explain | Self::Enlist => Some(OwnQuery::Forget),
            Self::Fresh | Self::LastAnswer | Self::Mark | Self::Cancel => None,
        }
    }
}

/// The state of a client that was with another process, or in a lobby.
pub(crate) enum Restored {
    Idle,
    Linked,
    Failed(Failed),
}

/// The phase of a client or a server. Everybody may look at it.
#[derive(Debug)]
pub struct Phase<P>(P);

impl<P> Deref for Phase<P> {
    type Target = P;

    #[inline(always)]
    fn deref(&self) -> &P {
        &self.0
    }
}

/// A set of phases: one bit for each.
type Set = u16;

/// The phases of a client, or those of a server.
trait Phases {
    /// The others own nothing, so the general drop is avoided.
    const OWNING: Set;

    fn bit(&self) -> Set;
}

/// The phases of a client.
mod client {
    use super::Set;

    pub(super) const LOGIN: Set = 1;
    pub(super) const IDLE: Set = 1 << 1;
    pub(super) const WAITING: Set = 1 << 2;
    pub(super) const PREPARING: Set = 1 << 3;
    pub(super) const LINKED: Set = 1 << 4;
    pub(super) const FAILED: Set = 1 << 5;
    pub(super) const CANCELING: Set = 1 << 6;
}

/// The phases of a server.
mod server {
    use super::Set;

    pub(super) const CONNECTING: Set = 1;
    pub(super) const LOGIN: Set = 1 << 1;
    pub(super) const PARKED: Set = 1 << 2;
    pub(super) const PREPARING: Set = 1 << 3;
    pub(super) const LINKED: Set = 1 << 4;
    pub(super) const FINISHING: Set = 1 << 5;
    pub(super) const FRESH: Set = 1 << 6;
    pub(super) const ENLISTING: Set = 1 << 7;
    pub(super) const SETTLING_OTHERWISE: Set = 1 << 8;
    pub(super) const LISTENING: Set = 1 << 9;
    pub(super) const ATTENDING: Set = 1 << 10;
    pub(super) const SETTLING: Set = FRESH | ENLISTING | SETTLING_OTHERWISE;
}

#[cold]
#[inline(never)]
fn refuse(verb: &str, bit: Set) -> ! {
    // The phase itself may contain a password or a client's data.
    panic!("{verb} is not possible in phase {}", bit.trailing_zeros())
}

impl Phases for ClientPhase {
    const OWNING: Set = client::LOGIN | client::FAILED;

    #[inline(always)]
    fn bit(&self) -> Set {
        match self {
            Self::Login(_) => client::LOGIN,
            Self::Idle => client::IDLE,
            Self::Waiting(_) => client::WAITING,
            Self::Preparing(_) => client::PREPARING,
            Self::Linked => client::LINKED,
            Self::Failed(_) => client::FAILED,
            Self::Canceling { .. } => client::CANCELING,
        }
    }
}

impl Phases for ServerPhase {
    const OWNING: Set = server::CONNECTING | server::LOGIN | server::PREPARING;

    #[inline(always)]
    fn bit(&self) -> Set {
        match self {
            Self::Connecting(_) => server::CONNECTING,
            Self::Login(_) => server::LOGIN,
            Self::Parked => server::PARKED,
            Self::Preparing(_) => server::PREPARING,
            Self::Linked => server::LINKED,
            Self::Finishing => server::FINISHING,
            Self::Settling(Settling::Fresh) => server::FRESH,
            Self::Settling(Settling::Enlist) => server::ENLISTING,
            Self::Settling(
                Settling::LastAnswer
                | Settling::Reset
                | Settling::Forget
                | Settling::Unlisten
                | Settling::Explain
                | Settling::Mark
                | Settling::Cancel,
            ) => server::SETTLING_OTHERWISE,
            Self::Listening => server::LISTENING,
            Self::Attending { .. } => server::ATTENDING,
        }
    }
}

impl ServerPhase {
    /// Is the server's client held back because it signals another one?
    pub fn is_signaling(&self) -> bool {
        matches!(self, Self::Preparing(Preparation::Signal(_)))
    }

    /// Are the rows that the server sends now collected?
    pub fn collects_rows(&self) -> bool {
        matches!(
            self,
            Self::Preparing(
                Preparation::Probe(Some(_))
                    | Preparation::Recount(Some(_))
                    | Preparation::Ask(Some(_))
                    | Preparation::TellPrincipal(_)
                    | Preparation::Signal(Some(_))
            )
        )
    }

    /// Are their row descriptions collected, too?
    pub fn collects_columns(&self) -> bool {
        matches!(
            self,
            Self::Preparing(
                Preparation::Ask(Some(_))
                    | Preparation::TellPrincipal(_)
                    | Preparation::Signal(Some(_))
            )
        )
    }
}

/// Goes from one of the phases `from` to another phase.
#[inline(always)]
fn enter<P: Phases>(phase: &mut P, verb: &str, from: Set, to: P) {
    let bit = phase.bit();
    if bit & from == 0 {
        refuse(verb, bit);
    }
    let old = std::mem::replace(phase, to);
    if bit & from & P::OWNING == 0 {
        std::mem::forget(old);
    }
}

impl Phase<ClientPhase> {
    pub(crate) fn new(login: Login) -> Self {
        Self(ClientPhase::Login(Box::new(login)))
    }

    /// Ends the login, and returns its state.
    pub(crate) fn leave_login(&mut self) -> Login {
        let old = std::mem::replace(&mut self.0, ClientPhase::Idle);
        let ClientPhase::Login(login) = old else { refuse("leave_login", old.bit()) };
        *login
    }

    /// Begins a client that has logged in elsewhere.
    pub(crate) fn restore(&mut self, as_what: Restored) {
        let to = match as_what {
            Restored::Idle => ClientPhase::Idle,
            Restored::Linked => ClientPhase::Linked,
            Restored::Failed(failed) => ClientPhase::Failed(Box::new(failed)),
        };
        enter(&mut self.0, "restore", client::LOGIN, to);
    }

    /// The connection is a cancel request, which is answered by so many, or sent once more.
    pub(crate) fn cancel(&mut self, answers_missing: u16) {
        let outcome = CancelOutcome::Unknown;
        let to = ClientPhase::Canceling { answers_missing, outcome };
        enter(&mut self.0, "cancel", client::LOGIN | client::CANCELING, to);
    }

    /// The client takes a place in the queue, or returns to it, because its server was lost before
    /// its own messages were sent.
    #[inline(always)]
    pub(crate) fn queue(&mut self, waiter: Waiter) {
        let from = client::IDLE | client::WAITING | client::PREPARING;
        enter(&mut self.0, "queue", from, ClientPhase::Waiting(waiter));
    }

    /// A client in a queue has waited since this moment.
    pub(crate) fn count_wait_from(&mut self, since: Micros) {
        if let ClientPhase::Waiting(waiter) = &mut self.0 {
            waiter.since = since;
        }
    }

    /// The client leaves the queue, if it is in one. Its request is routed again.
    pub(crate) fn leave_queue(&mut self) {
        enter(&mut self.0, "leave_queue", client::IDLE | client::WAITING, ClientPhase::Idle);
    }

    /// The client has got a server, which is prepared now. `served`: its wait if it has not waited.
    /// Returns its wait.
    #[inline]
    pub(crate) fn prepare(&mut self, served: Waiter) -> Waiter {
        let waiter = if let ClientPhase::Waiting(waiter) = self.0 { waiter } else { served };
        let from = client::IDLE | client::WAITING;
        enter(&mut self.0, "prepare", from, ClientPhase::Preparing(waiter));
        waiter
    }

    /// The client keeps its server, and waits until something about it is known.
    #[inline]
    pub(crate) fn hold_back(&mut self, waiter: Waiter) {
        let from = client::LINKED | client::PREPARING;
        enter(&mut self.0, "hold_back", from, ClientPhase::Preparing(waiter));
    }

    /// The client's messages may go to its server.
    #[inline]
    pub(crate) fn link(&mut self) {
        enter(&mut self.0, "link", client::PREPARING, ClientPhase::Linked);
    }

    /// The client has no server any more.
    #[inline]
    pub(crate) fn unlink(&mut self) {
        let from = client::LINKED | client::PREPARING | client::IDLE;
        enter(&mut self.0, "unlink", from, ClientPhase::Idle);
    }

    /// The client has lost its transaction or its session.
    pub(crate) fn lose(&mut self, failed: Box<Failed>) {
        let from = client::LINKED | client::PREPARING | client::IDLE;
        enter(&mut self.0, "lose", from, ClientPhase::Failed(failed));
    }

    /// Takes what it has lost. The client has nothing then.
    pub(crate) fn take_failed(&mut self) -> Option<Box<Failed>> {
        if !matches!(self.0, ClientPhase::Failed(_)) {
            return None;
        }
        let old = std::mem::replace(&mut self.0, ClientPhase::Idle);
        if let ClientPhase::Failed(failed) = old { Some(failed) } else { None }
    }

    /// Returns since when it waits for its server, which is being prepared.
    pub(crate) fn prepared_since(&self) -> Option<Micros> {
        if let ClientPhase::Preparing(waiter) = self.0 { Some(waiter.since) } else { None }
    }

    /// Returns the state of its login.
    #[inline]
    pub(crate) fn login_mut(&mut self) -> Option<&mut Login> {
        if let ClientPhase::Login(login) = &mut self.0 { Some(login) } else { None }
    }

    /// Takes an answer to its cancel request. Returns how many are missing, and the outcome.
    pub(crate) fn cancel_answered(
        &mut self,
        answer: CancelOutcome,
    ) -> Option<(u16, CancelOutcome)> {
        let ClientPhase::Canceling { answers_missing, outcome } = &mut self.0 else { return None };
        *outcome = answer.max(*outcome);
        *answers_missing -= 1;
        Some((*answers_missing, *outcome))
    }
}

impl Phase<ServerPhase> {
    pub(crate) fn new(login: ServerLogin) -> Self {
        Self(ServerPhase::Connecting(Box::new(login)))
    }

    /// The connection is made.
    pub(crate) fn begin_login(&mut self) -> Option<&mut ServerLogin> {
        let ServerPhase::Connecting(login) = &mut self.0 else { return None };
        let login = std::mem::take(login);
        enter(&mut self.0, "begin_login", server::CONNECTING, ServerPhase::Login(login));
        self.login_mut()
    }

    /// Ends the login, and returns its state.
    pub(crate) fn end_login(&mut self) -> ServerLogin {
        let old = std::mem::replace(&mut self.0, ServerPhase::Settling(Settling::Fresh));
        let ServerPhase::Login(login) = old else { refuse("end_login", old.bit()) };
        *login
    }

    /// Begins a server that another process has opened.
    pub(crate) fn restore(&mut self) {
        enter(&mut self.0, "restore", server::CONNECTING, ServerPhase::Settling(Settling::Fresh));
    }

    /// The server does not go to the client that was to get it, or was taken from the pool.
    pub(crate) fn unpark(&mut self) {
        let from = server::PARKED | server::SETTLING;
        enter(&mut self.0, "unpark", from, ServerPhase::Settling(Settling::Fresh));
    }

    /// The server goes to the pool or to another worker ([`crate::server::Server::park`]).
    #[inline]
    pub(crate) fn park(&mut self) {
        enter(&mut self.0, "park", server::PARKED | server::SETTLING, ServerPhase::Parked);
    }

    /// Weir's own query prepares the server for its client, or asks for one that logs in.
    #[inline]
    pub(crate) fn prepare(&mut self, step: Preparation) {
        let from = server::PARKED | server::SETTLING | server::PREPARING;
        enter(&mut self.0, "prepare", from, ServerPhase::Preparing(step));
    }

    /// The server leaves the lobby with its client.
    pub(crate) fn leave_lobby(&mut self, step: Preparation) {
        enter(&mut self.0, "leave_lobby", server::ATTENDING, ServerPhase::Preparing(step));
    }

    /// Weir asks something while the client has the server.
    #[inline]
    pub(crate) fn ask(&mut self, step: Preparation) {
        let from = server::LINKED | server::PREPARING;
        enter(&mut self.0, "ask", from, ServerPhase::Preparing(step));
    }

    /// The client's messages may go to the server.
    #[inline]
    pub(crate) fn link(&mut self) {
        let from = server::PARKED | server::SETTLING | server::PREPARING;
        enter(&mut self.0, "link", from, ServerPhase::Linked);
    }

    /// The server has no client, and something must end before it gets another one.
    #[inline]
    pub(crate) fn settle(&mut self, why: Settling) {
        let from = server::PARKED
            | server::PREPARING
            | server::LINKED
            | server::FINISHING
            | server::SETTLING
            | server::ATTENDING;
        enter(&mut self.0, "settle", from, ServerPhase::Settling(why));
    }

    /// The client is gone, and its query still runs.
    pub(crate) fn finish(&mut self) {
        let from = server::LINKED | server::PREPARING;
        enter(&mut self.0, "finish", from, ServerPhase::Finishing);
    }

    /// The server was opened to listen for all clients of the pool.
    pub(crate) fn listen(&mut self) {
        enter(&mut self.0, "listen", server::FRESH, ServerPhase::Listening);
    }

    /// The server's backend goes to the lobby.
    pub(crate) fn attend(&mut self, came: bool, asked: bool) {
        let from = server::FRESH | server::ENLISTING;
        enter(&mut self.0, "attend", from, ServerPhase::Attending { came, asked });
    }

    /// Returns the state of its login, once the connection is made.
    #[inline]
    pub(crate) fn login_mut(&mut self) -> Option<&mut ServerLogin> {
        if let ServerPhase::Login(login) = &mut self.0 { Some(login) } else { None }
    }

    /// Returns the same while the connection is made.
    pub(crate) fn connecting_mut(&mut self) -> Option<&mut ServerLogin> {
        if let ServerPhase::Connecting(login) = &mut self.0 { Some(login) } else { None }
    }

    /// Returns the state of the login of a server that is closed before its end.
    pub(crate) fn into_login(self) -> Option<Box<ServerLogin>> {
        let (ServerPhase::Connecting(login) | ServerPhase::Login(login)) = self.0 else {
            return None;
        };
        Some(login)
    }

    /// Returns the reply to a probe that is being collected.
    pub(crate) fn probe(&mut self) -> Option<&mut Option<Box<Probe>>> {
        if let ServerPhase::Preparing(step) = &mut self.0 { step.probe() } else { None }
    }

    /// Returns the reply about a user that is being collected.
    pub(crate) fn auth_answer(&mut self) -> Option<&mut Option<Box<AuthAnswer>>> {
        if let ServerPhase::Preparing(step) = &mut self.0 { step.auth_answer() } else { None }
    }

    /// Takes the request that was sent behind its client's settings.
    pub(crate) fn take_request(&mut self) -> Option<Vec<u8>> {
        let ServerPhase::Preparing(Preparation::Ahead(request)) = &mut self.0 else {
            return None;
        };
        Some(std::mem::take(request))
    }

    /// Ends the question about its role. Returns the answer so far, and the client that waits for it.
    pub(crate) fn end_question(&mut self) -> Option<(Option<AuthAnswer>, Option<Newcomer>)> {
        let ServerPhase::Preparing(Preparation::TellPrincipal(question)) = &mut self.0 else {
            return None;
        };
        let answer = question.answer.take().map(|answer| *answer);
        let newcomer = question.newcomer.take();
        self.settle(Settling::Fresh);
        Some((answer, newcomer))
    }

    /// Its backend has come to the lobby. Returns false if that is known, or not expected.
    pub(crate) fn came(&mut self) -> bool {
        let ServerPhase::Attending { came, .. } = &mut self.0 else { return false };
        !std::mem::replace(came, true)
    }

    /// Its backend is asked to leave the lobby.
    pub(crate) fn asked_to_leave(&mut self) {
        if let ServerPhase::Attending { asked, .. } = &mut self.0 {
            *asked = true;
        }
    }
}
