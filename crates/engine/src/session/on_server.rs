//! The state of the session on a server (`pool_mode = auto`): plain data. Most of it concerns the
//! current transaction of the server's client.

use std::ops::Deref;
use std::sync::LazyLock;

use crate::relay::text::KeptText;
use crate::session::ahead::Ahead;
use crate::session::pins::Pinned;
use crate::session::resets::Resets;
use crate::session::scanning::Scanning;
use crate::session::sequences::DrawnNumbers;
use crate::session::setting_names::SettingNames;
use crate::session::state::{AllLent, Deallocations, Numbers, Traces};
use crate::session::state_report::StateReport;
use crate::values::Values;

/// The session on a server. Only servers of auto mode have one, with one exception: if a client of
/// another mode leaves settings in an unknown state, its server has one until they are discarded.
///
/// Without one, the fields read as those of a session in which nothing was left.
#[derive(Debug, Default)]
pub struct SessionBox(Option<Box<ServerSession>>);

impl SessionBox {
    #[inline]
    pub fn get(&self) -> Option<&ServerSession> {
        self.0.as_deref()
    }

    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut ServerSession> {
        self.0.as_deref_mut()
    }

    /// Returns the session, to change it. Creates it if there is none.
    #[inline]
    pub fn own(&mut self) -> &mut ServerSession {
        self.0.get_or_insert_default()
    }

    pub fn end(&mut self) {
        self.0 = None;
    }
}

impl Deref for SessionBox {
    type Target = ServerSession;

    #[inline]
    fn deref(&self) -> &ServerSession {
        static NOTHING_LEFT: LazyLock<ServerSession> = LazyLock::new(ServerSession::default);
        match &self.0 {
            Some(own) => own,
            None => &NOTHING_LEFT,
        }
    }
}

#[derive(Debug, Default)]
pub struct ServerSession {
    /// Traces of the client's current transaction in the session. A probe clears them.
    pub traces: Traces,
    /// The last text that may have left some, if [`Traces::knows_text`].
    pub text: KeptText,
    /// The session's values before that transaction, or before the first of its parameters changed.
    pub before: Option<Values>,
    /// The client's values before it was first told a new one that may be the server's default.
    pub followed: Option<Values>,
    /// The scan of the client's current message, if its text is long.
    pub scanning: Option<Box<Scanning>>,
    /// Settings that the transaction's texts may have reset.
    pub resets: Resets,
    /// Application settings (`app.tenant`) that the transaction's texts may have set.
    pub setting_names: Option<Box<SettingNames>>,
    /// Do the transaction's texts say that a tracked parameter may have changed, at least within
    /// the transaction?
    pub may_set: bool,
    pub schema: SchemaChanges,
    /// Statements that Weir has prepared under the client's own names, for this transaction.
    pub lent: AllLent,
    /// Statement names that the transaction's texts deallocate.
    pub deallocations: Deallocations,
    /// The reasons for which the client keeps this server.
    pub pinned: Option<Box<Pinned>>,
    /// The client whose sequence numbers `currval` would return on this server.
    pub numbers: Numbers,
    /// Numbers that the client has drawn and may still ask for.
    pub drawn: DrawnNumbers,
    /// The last text by which the client may have drawn a number (`sequences.rs`); 0 = none.
    pub last_draw: u32,
    /// The server's reports of its session, if it sends state reports.
    pub state_report: Option<Box<StateReport>>,
    /// Set if settings and a request can be sent in one write.
    pub ahead: Option<Box<Ahead>>,
    pub way_back: WayBack,
    /// The server has sent a notification for a client that has left it.
    pub disturbed: bool,
    pub past: Past,
}

/// A server's way to its pool's lobby.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WayBack {
    #[default]
    None,
    /// A client has brought it from there. It goes back when it is free.
    Open,
    /// It is on its way, with this ticket.
    Ticket(String),
}

/// Do command tags show all changes of the schema in the transaction?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchemaChanges {
    #[default]
    Seen,
    /// A function, DO or CALL may make others, and COMMIT PREPARED.
    MayBeUnseen,
}

/// Has a client used the server since its login, and given it back?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Past {
    #[default]
    Used,
    New,
}

impl ServerSession {
    /// Forgets earlier values, as every change since then is explained.
    pub fn forget_values(&mut self) {
        (self.before, self.followed) = (None, None);
    }

    /// The client with this serial number has given the server back.
    pub fn lose_client(&mut self, serial: u64) {
        self.past = Past::Used;
        self.ahead.iter_mut().for_each(|ahead| drop(ahead.take()));
        self.forget_values();
        self.deallocations.clear();
        self.may_set = false;
        self.schema = SchemaChanges::Seen;
        self.last_draw = 0;
        self.numbers = self.numbers.after(serial);
    }
}
