//! An application's connection, as plain data. What happens to it is in `login/steps.rs`,
//! `lifecycle/link.rs` and `relay/requests.rs`. An idle client is this struct and nothing else:
//! what is rare sits behind a box.
//!
//! ```text
//!  Login ─► Idle ⇄ Waiting ─► Preparing ─► Linked ─► Idle …
//!    └────► Canceling (a cancel request is a connection of its own)
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use crate::cancel::outcome::CancelOutcome;
use crate::cancel::signaling::Signaling;
pub use crate::ids::Identity;
use crate::ids::{Micros, PoolId, ServerId, Waiter};
use crate::lifecycle::replication::Replication;
use crate::login::auth::{Login, LoginStep};
use crate::relay::prepared::ClientStatements;
use crate::relay::stream::Stream;
use crate::session::carried::Order;
use crate::session::state::Session;
use crate::values::{Digest, Values};
use crate::vars::Slots;
use sql::Seen;

/// What the client waits for, or we wait for from it.
#[derive(Debug)]
pub enum ClientPhase {
    /// The rest of its login.
    Login(Box<Login>),
    /// Its next request; it has no server.
    Idle,
    /// A server. Its bytes stay in the kernel.
    Waiting(Waiter),
    /// The server, which is being prepared for it.
    Preparing(Waiter),
    /// It has a server.
    Linked,
    /// Its cancel request: answers of so many workers are missing.
    Canceling { answers_missing: u16, outcome: CancelOutcome },
}

#[derive(Debug)]
pub struct Client {
    pub phase: ClientPhase,
    /// Tells this connection from all others of this worker, past ones included.
    pub serial: u64,
    pub identity: Arc<Identity>,
    /// Set when the client is authenticated.
    pub pool: Option<PoolId>,
    pub server: Option<ServerId>,
    /// Does it count in the limits on clients, as who it is? The console's do not.
    pub counted: bool,
    /// What was done during its present wait for a server, or its last one.
    pub while_waiting: WhileWaiting,
    /// Process id (upper half) and secret (lower half) given to the client for cancel requests, when
    /// it was told that it is logged in; 0 before that.
    pub key: u64,
    pub key_form: KeyForm,
    /// Was its present request sent a second time, its first server having been lost?
    pub resent: bool,
    pub vars: Values,
    /// Of these it has said itself what it wants; the others are as the server has them.
    pub given: Slots,
    pub stream: Stream,
    pub extended: Option<Box<Extended>>,
    /// Where there is more to its session than its transactions (`pool_mode = auto`).
    pub session: Option<Box<Session>>,
    /// It speaks the replication protocol.
    pub replication: Option<Box<Replication>>,
    /// As long as it has its present server: a reload does not change that in the middle of a batch,
    /// nor for statements it has already.
    pub statement_names: StatementNames,
    pub connected_at: Micros,
    /// When its present request came, or its last one; when its last reply went.
    pub request_at: Micros,
    /// When its present transaction began; 0 = it has none.
    pub transaction_at: Micros,
}

/// Each of these is done once for each wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct WhileWaiting {
    /// The client was told that it waits (`query_wait_notify`).
    pub notified: bool,
    /// The bytes that it has sent were looked at (`cancel/ahead.rs`).
    pub looked_at: bool,
}

/// The secret of a client's cancel key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyForm {
    /// Of 4 bytes.
    #[default]
    Short,
    /// With a tag that only Weir can compute (protocol 3.2).
    Long,
}

/// The names of a client's prepared statements on its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatementNames {
    /// The client's own.
    #[default]
    Own,
    /// Weir's.
    Translated,
}

/// What a client has that used the extended query protocol.
#[derive(Debug, Default)]
pub struct Extended {
    pub statements: ClientStatements,
    /// Serial number of the Parse of its unnamed statement; 0 = it has none.
    pub unnamed: u64,
    /// Serial number of the last message that changed it where the server may have had another one:
    /// until it is answered nobody knows which one is there. 0 = none.
    pub unnamed_doubt: u64,
    /// What that statement may leave in the session.
    pub unnamed_seen: Seen,
    /// The names that its latest Binds and Describes have used, with their serial numbers: what
    /// is not answered yet, and perhaps more. By the time of an error the client may have lost the
    /// name, or have several for the statement.
    pub uses: VecDeque<(u64, Arc<[u8]>)>,
    /// That Parse message, to be sent again to another server. Empty if it was too long to keep.
    pub unnamed_parse: Vec<u8>,
    /// What is held of its input cannot be dealt with before the message with this serial number is
    /// answered; 0 = it does not wait for that.
    pub awaits: u64,
    /// How often its next Bind was held back to find out what the statement returns
    /// ([`crate::relay::kept_request::QUESTIONS_MAX`]).
    pub questions: u8,
    /// Was the statement of its present request prepared anew, the server having refused it? That is
    /// done once.
    pub renewed: bool,
    /// What is held of the client's input was dealt with before, and nothing of it was sent.
    pub rewound: bool,
    /// Which of its portals may discard prepared statements when they are executed.
    pub discarding: Discarding,
    /// It signals another client, and is held back until that is decided.
    pub signaling: Option<Box<Signaling>>,
}

/// Portals of a client that may discard prepared statements.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Discarding {
    pub unnamed: bool,
    /// Any of the others.
    pub named: bool,
    /// The one name that the unnamed one deallocates, if that is all it does.
    pub deallocates: Option<Arc<[u8]>>,
}

impl Extended {
    /// Has the client a prepared statement, named or unnamed?
    pub fn has_statements(&self) -> bool {
        self.unnamed != 0 || !self.statements.is_empty()
    }

    /// Message `serial` uses that name; those before `first` have been answered.
    pub fn note_name(&mut self, serial: u64, name: Arc<[u8]>, first: u64) {
        while self.uses.front().is_some_and(|(serial, _)| *serial < first) {
            self.uses.pop_front();
        }
        self.uses.push_back((serial, name));
    }

    /// The client's name for the statement that message `serial` uses.
    pub fn name_used(&self, serial: u64) -> Option<&[u8]> {
        let at = self.uses.binary_search_by_key(&serial, |(serial, _)| *serial).ok()?;
        self.uses.get(at).map(|(_, name)| &**name)
    }
}

impl Client {
    pub fn new(serial: u64, login: Login, now: Micros, nobody: Arc<Identity>) -> Self {
        Self {
            phase: ClientPhase::Login(Box::new(login)),
            serial,
            identity: nobody,
            pool: None,
            server: None,
            counted: false,
            while_waiting: WhileWaiting::default(),
            key: 0,
            key_form: KeyForm::default(),
            resent: false,
            vars: Values::default(),
            given: Slots::default(),
            stream: Stream::default(),
            extended: None,
            session: None,
            replication: None,
            statement_names: StatementNames::default(),
            connected_at: now,
            request_at: now,
            transaction_at: 0,
        }
    }

    /// Has it been told that it is logged in?
    #[inline]
    pub fn is_welcomed(&self) -> bool {
        self.key != 0
    }

    /// Is it not read until an answer has come?
    pub fn awaits_answer(&self) -> bool {
        self.extended.as_ref().is_some_and(|own| own.awaits != 0)
    }

    /// What it waited for has come, or does not matter any more.
    #[inline]
    pub fn await_nothing(&mut self) {
        if let Some(own) = &mut self.extended {
            own.awaits = 0;
        }
    }

    /// It waits for a server anew.
    pub fn begin_wait(&mut self) {
        if std::mem::take(&mut self.while_waiting.looked_at)
            && let Some(own) = &mut self.extended
        {
            own.signaling = None;
        }
    }

    /// Is another client being signaled for it, or was it?
    pub fn signals(&self) -> bool {
        self.extended.as_ref().is_some_and(|own| own.signaling.is_some())
    }

    /// Is it decided what its call is answered with?
    pub fn is_signal_decided(&self) -> bool {
        let signaling = self.extended.as_ref().and_then(|own| own.signaling.as_ref());
        signaling.is_some_and(|one| one.is_decided())
    }

    /// The process id that it was told at its login.
    pub fn process_id(&self) -> u32 {
        (self.key >> 32) as u32
    }

    /// The pool it waits for a server of, and its place in the queue.
    pub fn wait(&self) -> Option<(PoolId, Waiter)> {
        match &self.phase {
            ClientPhase::Waiting(waiter) => Some((self.pool?, *waiter)),
            ClientPhase::Login(login) => login.wait(),
            ClientPhase::Idle
            | ClientPhase::Preparing(_)
            | ClientPhase::Linked
            | ClientPhase::Canceling { .. } => None,
        }
    }

    /// What a server should have to serve it without being asked first; before its welcome that is
    /// not known.
    pub fn digest(&self) -> Option<Digest> {
        self.is_welcomed().then(|| self.vars.digest())
    }

    /// Is it expected to say something for its login? If it goes instead, it may have been somebody
    /// who only wanted to know whether we are there.
    pub fn is_probe(&self) -> bool {
        let ClientPhase::Login(login) = &self.phase else { return false };
        !matches!(login.step, LoginStep::Proving(_) | LoginStep::Asking(_))
    }

    /// What is known of its session. If that was nothing, it begins with what the client has now.
    pub fn session_mut(&mut self) -> &mut Session {
        let vars = &self.vars;
        self.session.get_or_insert_with(|| Box::new(Session::new(vars.clone())))
    }

    /// In which order its settings are made on another server.
    pub fn order(&self) -> Order {
        let known = self.session.as_ref().and_then(|session| session.order);
        known.unwrap_or_else(|| self.vars.carried.usual_order())
    }

    pub fn name(&self) -> (&str, &str) {
        (&self.identity.database, &self.identity.user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most connections of most poolers are clients at rest.
    #[test]
    fn a_client_at_rest_is_small() {
        assert!(size_of::<Client>() <= 168, "{} bytes", size_of::<Client>());
    }
}
