//! The ways in which a client leaves, and what they mean for its server. `engine/leaving.rs` ends the
//! client, `engine/losses.rs` the server.

use std::borrow::Cow;
use std::sync::Arc;

use config::ErrorCodes;
use wire::error_fields::ErrorFields;
use wire::sqlstate::{ADMIN_SHUTDOWN, CONNECTION_FAILURE};

use crate::client::Client;
use crate::ids::{ClientId, Identity, Micros, ServerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::operator::transactions::Transactions;
use crate::operator::waits::WaitDetail;
use crate::own_error::{CONFIG_ERROR, Cause, OwnError, judges_user};
use crate::phase::Phase;
use crate::server::{LoginStage, Server, ServerPhase, ServerPurpose, Settling};
use crate::shell::{Event, Exchange, Io};

/// The way in which a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving<'a> {
    /// The client sent Terminate.
    Goodbye,
    /// The client's socket was closed.
    Lost,
    /// Weir closes the connection without an error message; only the log has the reason. Such a
    /// client does not speak the protocol, or expects no answer (a cancel request).
    Unanswered(&'a str),
    /// Weir closes the connection, with an error message if one can be sent.
    Refused(Cause, &'a str),
    /// Another client has terminated this one; it gets an error message if one can be sent.
    Terminated,
}

impl<'a> Leaving<'a> {
    pub(crate) fn reason(self) -> &'a str {
        match self {
            Self::Goodbye => "client close request",
            Self::Lost => "client unexpected eof",
            Self::Refused(_, why) | Self::Unanswered(why) => why,
            Self::Terminated => TERMINATED,
        }
    }
}

/// PostgreSQL's words for it.
const TERMINATED: &str = "terminating connection due to administrator command";

/// The end of a client's connection, and what the client is told.
#[derive(Debug)]
pub(crate) enum Ending<'a> {
    /// Nothing.
    Silent(Leaving<'a>),
    /// An error of Weir's own, with a DETAIL if the client gets such fields.
    Refused(OwnError<'a>, Option<&'a WaitDetail>),
    /// An error of PostgreSQL's.
    ByServer(&'a ErrorFields),
    /// PostgreSQL's error for a terminated backend.
    Terminated,
}

impl<'a, T: Into<OwnError<'a>>> From<T> for Ending<'a> {
    fn from(why: T) -> Self {
        Self::Refused(why.into(), None)
    }
}

impl<'a> From<&'a ErrorFields> for Ending<'a> {
    fn from(error: &'a ErrorFields) -> Self {
        Self::ByServer(error)
    }
}

impl<'a> From<&'a Arc<ErrorFields>> for Ending<'a> {
    fn from(error: &'a Arc<ErrorFields>) -> Self {
        Self::ByServer(error)
    }
}

impl<'a> From<Leaving<'a>> for Ending<'a> {
    fn from(leaving: Leaving<'a>) -> Self {
        Self::Silent(leaving)
    }
}

impl Ending<'_> {
    /// A client whose login asks about its user is not told what PostgreSQL says about another user.
    pub(crate) fn of(self, client: &Client) -> Self {
        match self {
            Self::ByServer(error) if client.asks() && judges_user(error) => CONFIG_ERROR.into(),
            Self::Silent(_) | Self::Refused(..) | Self::ByServer(_) | Self::Terminated => self,
        }
    }

    /// Returns the text of the error.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Silent(leaving) => leaving.reason().into(),
            Self::Refused(why, _) => why.text.as_ref().into(),
            Self::ByServer(error) => error.message(),
            Self::Terminated => TERMINATED.into(),
        }
    }

    /// `text`: that of the error.
    pub(crate) fn leaving<'b>(&'b self, text: &'b str) -> Leaving<'b> {
        match self {
            Self::Silent(leaving) => *leaving,
            Self::Refused(why, _) => Leaving::Refused(why.cause, text),
            Self::ByServer(_) => Leaving::Refused(Cause::ServerRefusal, text),
            Self::Terminated => Leaving::Terminated,
        }
    }

    /// Returns the error for the client.
    pub(crate) fn error(&self, codes: ErrorCodes) -> Option<Cow<'_, ErrorFields>> {
        match self {
            Self::Silent(_) => None,
            Self::Refused(why, detail) => {
                let mut error = why.fields(codes, detail.map(|detail| detail.text.as_str()));
                if codes == ErrorCodes::Weir && detail.is_some_and(|detail| detail.is_unreachable) {
                    error.replace(b'C', CONNECTION_FAILURE);
                }
                Some(Cow::Owned(error))
            }
            Self::ByServer(error) => Some(Cow::Borrowed(error)),
            // As PostgreSQL terminates a backend.
            Self::Terminated => {
                Some(Cow::Owned(ErrorFields::new("FATAL", ADMIN_SHUTDOWN, TERMINATED)))
            }
        }
    }
}

/// Logs that a client's connection ends.
pub(crate) fn log_client_closing<X: Exchange>(
    id: ClientId,
    client: &Client,
    leaving: Leaving<'_>,
    io: &mut impl Io<X>,
) {
    if leaving == Leaving::Lost && client.is_probe() {
        return;
    }
    io.event(Event::ClientClosing {
        client: id,
        name: client.name(),
        reason: leaving.reason(),
        age: io.now().saturating_sub(client.times.connected_at()),
        error: matches!(leaving, Leaving::Refused(..) | Leaving::Terminated),
    });
}

/// The effect of a client that has left on its server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Departure {
    /// Cancel what the server is doing.
    pub cancels: bool,
    /// The server has received only part of the client's last message.
    pub in_message: bool,
    /// The client had settings that PostgreSQL does not report.
    pub had_settings: bool,
}

impl Departure {
    /// `cancels_lost`: are the queries of lost clients cancelled?
    pub(crate) fn of(client: &Client, leaving: Leaving<'_>, cancels_lost: bool) -> Self {
        let cancels = match leaving {
            Leaving::Lost => cancels_lost,
            Leaving::Terminated => true,
            Leaving::Goodbye | Leaving::Unanswered(_) | Leaving::Refused(..) => false,
        };
        Self {
            cancels: cancels && client.replication.is_none(),
            in_message: client.stream.is_mid_message(),
            had_settings: client.vars.has_untracked(),
        }
    }
}

/// The state of a server whose client has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakenBack {
    /// It has to reply to something first.
    Waits,
    /// It has to reply to something first, which is cancelled.
    Cancels,
    Free,
    /// It was opened for this client.
    Unused,
    /// It cannot be used again.
    NotReady,
}

impl Server {
    /// Decides what happens now that its client has left. `needs_success`: it must not be used again
    /// if it was in a query.
    pub(crate) fn take_back<X: Exchange>(
        &mut self,
        on: ServerId,
        left: Departure,
        needs_success: bool,
        io: &mut impl Io<X>,
    ) -> TakenBack {
        let Departure { cancels, in_message, had_settings } = left;
        match *self.phase {
            // Weir's own query is running, and the client has sent nothing: wait for the reply.
            ServerPhase::Preparing(ref step)
                if step.asks() || !(step.has_sent() || self.ledger.owes_nothing()) =>
            {
                let (applies, renews) = (step.applies(), step.renews());
                self.phase.settle(Settling::LastAnswer);
                let is_half = self.has_foreign_settings() || had_settings;
                if applies && is_half {
                    // Weir does not find out which of the settings were set.
                    self.doubt_settings();
                }
                match cancels && renews && !self.ledger.owes_nothing() {
                    true => TakenBack::Cancels,
                    false => TakenBack::Waits,
                }
            }
            ServerPhase::Connecting(_) | ServerPhase::Login(_) => TakenBack::Unused,
            _ if self.is_clean() && !in_message => TakenBack::Free,
            _ if cancels && self.ledger.works_on_the_last_request() => {
                // The server can be used again only if it will reply to everything, and if the
                // cancel request cannot hit a message of Weir's own.
                let whole = !in_message && io.server_flushed(on);
                let ledger = &self.ledger;
                if needs_success || !whole || !ledger.ends_by_itself() || ledger.owes_weir() {
                    self.doomed.condemn(CloseReason::NotReady);
                }
                self.phase.finish();
                self.times.asked(io.now());
                TakenBack::Cancels
            }
            ServerPhase::Parked
            | ServerPhase::Preparing(_)
            | ServerPhase::Linked
            | ServerPhase::Finishing
            | ServerPhase::Settling(_)
            | ServerPhase::Listening
            | ServerPhase::Attending { .. } => TakenBack::NotReady,
        }
    }
}

/// Remembers the client's transaction on this server, which ends before its time.
pub(crate) fn cut_transaction(
    client: &mut Client,
    server: &mut Server,
    transactions: &mut Transactions,
    now: Micros,
) {
    if client.times.in_transaction() {
        if let Some(described) = server.stages.finish(client, server.pool, false, now) {
            transactions.over(described);
        }
        client.times.transaction_ends();
    }
}

/// Logs that a server is closed. `identity` is its pool's.
pub(crate) fn log_server_closing<X: Exchange>(
    id: ServerId,
    server: &Server,
    identity: &Identity,
    reason: CloseReason<'_>,
    io: &mut impl Io<X>,
) {
    let repeats = matches!(&*server.phase, ServerPhase::Login(login)
        if matches!(login.stage, LoginStage::Refused { repeats: true }));
    io.event(Event::ServerClosing {
        server: id,
        name: (&identity.database, &identity.user),
        reason: reason.text(),
        age: server.times.age(io.now()),
        failed: reason.is_failure(),
        repeats,
    });
}

/// Returns the purpose of a server that is not logged in.
pub(crate) fn purpose_of(phase: Phase<ServerPhase>) -> Option<ServerPurpose> {
    phase.into_login()?.purpose
}
