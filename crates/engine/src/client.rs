//! An application's connection, as plain data. `login/steps.rs`, `engine/linking.rs` and
//! `relay/requests.rs` handle it. An idle client is only this struct: data that few clients have is
//! in boxes.

use std::sync::Arc;

use crate::admission::membership::Membership;
use crate::cancel::client_key::ClientKey;
use crate::cancel::signaling::Signaling;
use crate::context::Context;
pub use crate::ids::Identity;
use crate::ids::{Micros, PoolId, ServerId, Waiter};
use crate::lifecycle::link::Link;
use crate::lifecycle::replication::Replication;
use crate::lifecycle::while_waiting::WhileWaiting;
use crate::login::auth::{Login, LoginStep};
use crate::login::console::is_console;
pub use crate::phase::ClientPhase;
use crate::phase::Phase;
use crate::relay::awaited_reply::AwaitedReply;
use crate::relay::discarding::Discarding;
use crate::relay::kept_request::Resent;
use crate::relay::names_used::NamesUsed;
use crate::relay::pace::Pace;
use crate::relay::prepared::ClientStatements;
use crate::relay::repeats::Repeats;
use crate::relay::stream::Stream;
use crate::relay::unnamed::ClientUnnamed;
use crate::session::carried::Order;
use crate::session::state::Session;
use crate::times::ClientTimes;
use crate::values::{ClientValues, Digest, Values};
use crate::vars::{Vars, Welcome};
use config::Config;

#[derive(Debug)]
pub struct Client {
    pub phase: Phase<ClientPhase>,
    /// Identifies the connection among all present and past ones of the process.
    pub serial: u64,
    pub identity: Arc<Identity>,
    pub pool: Membership,
    pub server: Link<ServerId>,
    pub while_waiting: WhileWaiting,
    /// For cancel requests; from the client's welcome.
    pub key: ClientKey,
    pub resent: Resent,
    pub vars: ClientValues,
    pub stream: Stream,
    pub extended: Option<Box<Extended>>,
    /// Set if the session has more than transactions (`pool_mode = auto`).
    pub session: Option<Box<Session>>,
    /// Set if it speaks the replication protocol.
    pub replication: Option<Box<Replication>>,
    /// Valid as long as it has the present server. A reload must not change it in the middle of a
    /// batch, nor for existing statements.
    pub statement_names: StatementNames,
    pub times: ClientTimes,
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

/// The state of a client that has used the extended query protocol.
#[derive(Debug, Default)]
pub struct Extended {
    pub statements: ClientStatements,
    pub unnamed: ClientUnnamed,
    pub names_used: NamesUsed,
    /// The held input waits for this reply.
    pub awaited: AwaitedReply,
    pub repeats: Repeats,
    pub discarding: Discarding,
    /// The limits on how far it may send ahead.
    pub(crate) pace: Pace,
    pub signaling: Signaling,
}

impl Extended {
    /// Has the client a prepared statement, named or unnamed?
    pub fn has_statements(&self) -> bool {
        self.unnamed.exists() || !self.statements.is_empty()
    }

    /// Returns the text of the statement of this name, as far as it is kept. The unnamed statement's
    /// name is empty.
    pub fn text_of(&self, name: &[u8]) -> Option<&[u8]> {
        match name {
            b"" => Some(self.unnamed.text()),
            name => self.statements.text_of(name),
        }
    }
}

impl Client {
    pub fn new(serial: u64, login: Login, now: Micros) -> Self {
        let nobody = login.requested.clone();
        Self {
            phase: Phase::<ClientPhase>::new(login),
            serial,
            identity: nobody,
            pool: Membership::default(),
            server: Link::default(),
            while_waiting: WhileWaiting::default(),
            key: ClientKey::default(),
            resent: Resent::default(),
            vars: ClientValues::default(),
            stream: Stream::default(),
            extended: None,
            session: None,
            replication: None,
            statement_names: StatementNames::default(),
            times: ClientTimes::connect(now),
        }
    }

    /// Returns the state of its login.
    #[inline]
    pub(crate) fn login_mut(&mut self) -> &mut Login {
        self.phase.login_mut().expect("only called while the client is logging in")
    }

    /// Does this client wait for `auth_query`?
    #[inline]
    pub(crate) fn asks(&self) -> bool {
        matches!(&*self.phase, ClientPhase::Login(login)
            if matches!(login.step, LoginStep::Asking(_)))
    }

    /// Does this client wait to prove its password?
    #[inline]
    pub(crate) fn proves(&self) -> bool {
        matches!(&*self.phase, ClientPhase::Login(login)
            if matches!(login.step, LoginStep::Proving(_)))
    }

    /// Does this client wait for a trial?
    pub(crate) fn awaits_trial(&self) -> bool {
        matches!(&*self.phase, ClientPhase::Login(login) if matches!(login.step, LoginStep::Trial))
    }

    /// Does this client wait until a server has told what a new one would be?
    pub(crate) fn awaits_check(&self) -> bool {
        matches!(&*self.phase, ClientPhase::Login(login)
            if matches!(login.step, LoginStep::PrincipalCheck))
    }

    /// Does this client log in to the console?
    pub(crate) fn wants_console(&self, config: &Config) -> bool {
        matches!(&*self.phase, ClientPhase::Login(login)
            if is_console(config, &login.requested.database))
    }

    /// Returns the state of the extended query protocol, which begins with its first use.
    // Inlined: the compiler did not always see that only the first request needs more than a test,
    // which cost 1 % of a transaction.
    #[inline(always)]
    pub(crate) fn extended_mut(&mut self) -> &mut Extended {
        #[cold]
        fn begin(none: &mut Option<Box<Extended>>) -> &mut Extended {
            none.insert(Box::default())
        }
        match &mut self.extended {
            Some(extended) => extended,
            none => begin(none),
        }
    }

    /// Has the client been told that it is logged in?
    #[inline]
    pub fn is_welcomed(&self) -> bool {
        self.key.is_given()
    }

    /// Is the client not read until a reply has come?
    pub fn awaits_answer(&self) -> bool {
        self.extended.as_ref().is_some_and(|own| own.awaited.is_some())
    }

    /// Is no message of the client half read? Messages that wait for replies are continued when the
    /// replies are read.
    pub(crate) fn is_read_whole(&self) -> bool {
        match *self.phase {
            ClientPhase::Login(_) => false,
            ClientPhase::Idle
            | ClientPhase::Waiting(_)
            | ClientPhase::Preparing(_)
            | ClientPhase::Linked
            | ClientPhase::Failed(_)
            | ClientPhase::Canceling { .. } => self.awaits_answer() || self.stream.at_boundary(),
        }
    }

    /// Ends waiting for a reply that has come or no longer matters.
    #[inline]
    pub fn await_nothing(&mut self) {
        if let Some(own) = &mut self.extended {
            own.awaited.end();
        }
    }

    /// The present request is over. A statement of the next one may be prepared again.
    pub fn end_request(&mut self) {
        if let Some(own) = &mut self.extended {
            own.repeats.request_ends();
        }
    }

    /// Begins a new wait for a server.
    #[inline]
    pub fn begin_wait(&mut self) {
        if self.while_waiting.begin()
            && let Some(own) = &mut self.extended
        {
            own.signaling.end();
        }
    }

    /// Is a signal of this client under way or decided?
    pub fn signals(&self) -> bool {
        self.extended.as_ref().is_some_and(|own| own.signaling.is_some())
    }

    /// Is the reply to its signal decided?
    pub fn is_signal_decided(&self) -> bool {
        self.extended.as_ref().is_some_and(|own| own.signaling.is_decided())
    }

    /// Forgets a decision, which is valid for the first call only.
    pub(crate) fn forget_decided(&mut self) {
        // If the client still waits for an earlier message, the call was not processed yet.
        if let Some(own) = self.extended.as_mut().filter(|own| !own.awaited.is_some()) {
            own.signaling.take_decided();
        }
    }

    /// Returns the process id from the client's welcome.
    pub fn process_id(&self) -> u32 {
        self.key.process_id()
    }

    /// Returns its place in a pool's queue, if it waits there.
    pub fn wait(&self) -> Option<Waiter> {
        match &*self.phase {
            ClientPhase::Waiting(waiter) => Some(*waiter),
            ClientPhase::Login(login) => login.wait(),
            ClientPhase::Idle
            | ClientPhase::Preparing(_)
            | ClientPhase::Linked
            | ClientPhase::Failed(_)
            | ClientPhase::Canceling { .. } => None,
        }
    }

    /// Does it wait in this pool's queue with this ticket? Tickets are counted per pool, and a new
    /// client may use the slot of the waiter's.
    #[inline]
    pub(crate) fn waits_as(&self, waiter: Waiter, pool: PoolId) -> bool {
        self.wait().is_some_and(|own| own.pool == pool && own.ticket == waiter.ticket)
    }

    /// Fills in the pool's values where the client gave none. The client is told these values at
    /// login, and must find them on every server.
    pub(crate) fn complete_vars(&mut self, welcome: &Welcome, context: &mut Context) {
        let all = match self.vars.is_empty() {
            true => welcome.vars.clone(),
            false => {
                let mut own = Vars::clone(&self.vars);
                own.carry_unreported(&welcome.vars, &context.names);
                Values::new(own.or(&welcome.vars))
            }
        };
        *self.vars = context.shared_vars.share(all);
    }

    /// Returns the digest of the values that its server should have; None before its welcome, when
    /// it is unknown.
    #[inline]
    pub fn digest(&self) -> Option<Digest> {
        self.is_welcomed().then(|| self.vars.digest())
    }

    /// Is the client logging in, and not waiting for PostgreSQL? If it disconnects now, it may only
    /// have tested whether Weir is up.
    pub fn is_probe(&self) -> bool {
        let ClientPhase::Login(login) = &*self.phase else { return false };
        !login.step.awaits_postgres()
    }

    /// Returns its session, which begins with the client's present values.
    pub fn session_mut(&mut self) -> &mut Session {
        let vars = &self.vars;
        self.session.get_or_insert_with(|| Box::new(Session::new(Values::clone(vars))))
    }

    /// Returns the order in which its settings are made on a server.
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

    /// Most connections of a typical pooler are idle clients.
    #[test]
    fn a_client_at_rest_is_small() {
        assert!(size_of::<Client>() <= 176, "{} bytes", size_of::<Client>());
    }
}
