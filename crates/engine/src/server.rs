//! A connection to PostgreSQL, as plain data. What happens to it is in `lifecycle/open.rs` (until it
//! is logged in), `lifecycle/link.rs` (given out and taken back) and `relay/replies.rs` (in use).
//!
//! ```text
//!  Connecting ─► Login ─┬─► (pool: parked) ─► Preparing ─► Linked ─► Settling ─┐
//!                       │        ▲                           │                │
//!                       │        └───────────────────────────┴────────────────┘
//! ```

use std::sync::Arc;

use config::PoolMode;
use sql::Signs;
use wire::scram::ScramClient;

use crate::encoding::Letters;
use crate::ids::{ClientId, Micros, PoolId};
pub use crate::lifecycle::close_reason::CloseReason;
pub use crate::lifecycle::preparation::Preparation;
use crate::lifecycle::replication::ReplicationKind;
use crate::login::auth_answer::AuthAnswer;
use crate::login::server_secret::ServerSecret;
use crate::relay::kept_request::{KeptRequest, Outline};
use crate::relay::ledger::Ledger;
use crate::relay::prepared::ServerStatements;
use crate::relay::stream::Stream;
use crate::session::carried::Carried;
use crate::session::on_server::ServerSession;
use crate::session::pins::Pins;
use crate::session::probe::Probe;
use crate::session::sequences::DrawnNumbers;
use crate::session::setting_names::SettingNames;
use crate::session::state::{Numbers, Traces};
use crate::session::state_report::StateReport;
use crate::session::text_history::{CANDIDATES_MAX, Called};
use crate::values::Values;
use crate::vars::{CLIENT_ENCODING, Welcome};

/// What the server connection waits for.
#[derive(Debug)]
pub enum ServerPhase {
    /// For the socket.
    Connecting(Box<ServerLogin>),
    /// For the end of the login.
    Login(Box<ServerLogin>),
    /// For a client to take it: it is in no worker's table.
    Parked,
    /// For the answer to a message of ours; its client is held back until then.
    Preparing(Preparation),
    /// For its client's messages and PostgreSQL's answers.
    Linked,
    /// For the end of what a lost client has asked of it.
    Finishing,
    /// For what is in the way of the next client. It has none.
    Settling(Settling),
    /// For notifications, to pass them on. It never has a client.
    Listening,
}

impl ServerPhase {
    /// Is its client held back since it signals another one?
    pub fn is_signaling(&self) -> bool {
        matches!(self, Self::Preparing(Preparation::Signal(_)))
    }

    /// The answer to a probe that is being collected.
    pub fn probe(&mut self) -> Option<&mut Option<Box<Probe>>> {
        if let Self::Preparing(step) = self { step.probe() } else { None }
    }

    /// The answer to a question about a user that is being collected.
    pub fn auth_answer(&mut self) -> Option<&mut Option<Box<AuthAnswer>>> {
        if let Self::Preparing(step) = self { step.auth_answer() } else { None }
    }

    /// Are rows collected that it sends now?
    pub fn collects_rows(&self) -> bool {
        matches!(
            self,
            Self::Preparing(
                Preparation::Probe(Some(_))
                    | Preparation::Recount(Some(_))
                    | Preparation::Ask(Some(_))
                    | Preparation::Signal(Some(_))
            )
        )
    }

    /// Are descriptions of rows collected, too?
    pub fn collects_columns(&self) -> bool {
        matches!(self, Self::Preparing(Preparation::Ask(Some(_)) | Preparation::Signal(Some(_))))
    }
}

/// What is in the way of a server's next client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settling {
    /// Nothing is known to be: it was opened, released or taken from the parked ones just now.
    Fresh,
    /// The answer to what it was asked for a client that has left.
    LastAnswer,
    /// The pool's reset query.
    Reset,
    /// DISCARD ALL, which ends the last client's session.
    Forget,
    /// UNLISTEN: it has told of what the last client listened to.
    Unlisten,
    /// A cancel request under way, which would hit the next client's query.
    Cancel,
}

/// For whose sake a server is opened, if not for that of whoever comes first. Its failure is that
/// client's own affair and says nothing about the pool.
#[derive(Debug)]
pub enum ServerPurpose {
    /// To find out whether this is the client's password.
    Proof { client: ClientId, password: Vec<u8> },
    /// To be this client's and nobody else's.
    Replication { client: ClientId },
    /// To take this client's settings, which another server has refused.
    Settings { client: ClientId },
    /// To listen for all clients of the pool.
    Listen,
}

impl ServerPurpose {
    /// The client that it is opened for, if it is for one.
    pub fn client(&self) -> Option<ClientId> {
        match self {
            Self::Proof { client, .. }
            | Self::Replication { client }
            | Self::Settings { client } => Some(*client),
            Self::Listen => None,
        }
    }

    /// What the server is logged in to with in place of the pool's secret.
    pub fn password(&self) -> Option<&[u8]> {
        match self {
            Self::Proof { password, .. } => Some(password),
            Self::Replication { .. } | Self::Settings { .. } | Self::Listen => None,
        }
    }
}

/// A login to PostgreSQL in progress.
#[derive(Debug, Default)]
pub struct ServerLogin {
    pub stage: LoginStage,
    pub version: ProtocolVersion,
    pub scram: Option<ScramClient>,
    pub server_secret: Option<ServerSecret>,
    pub welcome: Welcome,
    pub purpose: Option<ServerPurpose>,
    /// Did the server ask for a password at all?
    pub challenged: bool,
    /// It is asked to report the state of its session.
    pub asks_report: bool,
    pub state_report: Option<StateReport>,
}

/// How far a login to PostgreSQL has come.
#[derive(Debug, Default)]
pub enum LoginStage {
    #[default]
    Connecting,
    /// The socket is connected. It is being secured, or the server asks who we are.
    Reached,
    Authenticated,
    /// `connect_query` runs.
    ConnectQuery,
    /// The server tells what that has set.
    Asked(Probe),
}

/// The version of the protocol on a new server: 3 and this minor number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolVersion {
    /// The server is asked to speak it.
    Offered(u16),
    /// The server has agreed to it, or negotiated, or at any rate gone on.
    Settled(u16),
}

impl ProtocolVersion {
    pub fn minor(self) -> u16 {
        match self {
            Self::Offered(minor) | Self::Settled(minor) => minor,
        }
    }

    pub fn settle(&mut self) {
        *self = Self::Settled(self.minor());
    }
}

impl Default for ProtocolVersion {
    fn default() -> Self {
        Self::Offered(0)
    }
}

impl ServerLogin {
    /// It has reported the state of its session.
    pub fn hear_state(&mut self, value: &[u8]) {
        match &mut self.state_report {
            Some(report) => report.hear(value, false),
            None if self.asks_report => self.state_report = StateReport::at_login(value),
            None => {}
        }
        self.state_report.take_if(|report| !report.is_known());
    }

    /// The client's password, if that is what is to be found out.
    pub fn proof(&self) -> Option<&[u8]> {
        self.purpose.as_ref().and_then(ServerPurpose::password)
    }
}

#[derive(Debug)]
pub struct Server {
    /// Tells this connection from all others, past ones included; shown in logs.
    pub serial: u64,
    pub pool: PoolId,
    /// The pool's epoch when it was opened.
    pub epoch: u64,
    /// The pool's mode at that time: in that mode its clients use it, whatever the pool's is now
    /// ([`Server::mode_in`]).
    pub mode: PoolMode,
    pub phase: ServerPhase,
    pub client: Option<ClientId>,
    pub ledger: Ledger,
    pub stream: Stream,
    /// Of the last ReadyForQuery: `I`dle, in a `T`ransaction, in a failed one (`E`).
    pub status: u8,
    /// BackendKeyData, for cancel requests.
    pub process_id: u32,
    pub secret: Box<[u8]>,
    /// What it reported of itself at its login: a client that has not been welcomed yet is told
    /// that, even if the pool has forgotten its own (RECONNECT) while the two were brought together.
    pub welcome: Arc<Welcome>,
    pub vars: Values,
    pub statements: ServerStatements,
    /// The present request, or the last one.
    pub kept: Option<Box<KeptRequest>>,
    /// Serial number of the client's Parse that made the present unnamed statement; 0 = none that
    /// anybody may use.
    pub unnamed: u64,
    pub times: Times,
    /// The cancel request for it that is under way: no other client may have the server before that is
    /// over, or the wrong query would be hit.
    pub cancel: Option<u64>,
    /// It is to be closed as soon as nobody uses it, for this reason.
    pub doomed: Option<CloseReason<'static>>,
    /// A message of ours was answered with an error.
    pub own_error: Option<String>,
    /// Its present transaction has changed the schema.
    pub changes_schema: bool,
    pub session: ServerSession,
    /// It has told of what a client listens to that has left it.
    pub disturbed: bool,
    /// It speaks the replication protocol: it never is anybody else's, and ends with its client.
    pub replication: Option<ReplicationKind>,
}

impl Server {
    pub fn new(pool: PoolId, serial: u64, login: ServerLogin, now: Micros) -> Self {
        Self {
            serial,
            pool,
            epoch: 0,
            mode: PoolMode::default(),
            phase: ServerPhase::Connecting(Box::new(login)),
            client: None,
            ledger: Ledger::default(),
            stream: Stream::default(),
            status: b'I',
            process_id: 0,
            secret: Box::default(),
            welcome: Arc::default(),
            vars: Values::default(),
            statements: ServerStatements::default(),
            kept: None,
            unnamed: 0,
            times: Times::all_at(now),
            cancel: None,
            doomed: None,
            own_error: None,
            changes_schema: false,
            session: ServerSession::default(),
            disturbed: false,
            replication: None,
        }
    }

    /// In which mode its client has it, where `pool` is the mode of the pool now. What a session has
    /// left there is not known in any other mode, so it stays the client's; but in PgBouncer's other
    /// modes nobody has a session, and a server that was a session's ends with the transaction.
    pub fn mode_in(&self, pool: PoolMode) -> PoolMode {
        match (self.mode, pool) {
            (PoolMode::Session, PoolMode::Transaction | PoolMode::Statement) => pool,
            (mode, _) => mode,
        }
    }

    /// May a text mean something else there than elsewhere, which its client's settings do not tell?
    pub fn has_own_meanings(&self) -> bool {
        let pins = self.session.pinned.as_ref().map_or(Pins::NONE, |pinned| pinned.pins);
        self.session.context_changed || pins.contains(Pins::TEMPORARY)
    }

    /// It goes to another worker, where this worker's serial numbers mean nothing.
    pub fn leave_worker(&mut self) {
        self.statements.age();
        self.ledger.leave_worker();
        if let Some(kept) = &mut self.kept {
            kept.outline = Outline::default();
        }
        self.unnamed = 0;
        // Of clients whose serial numbers mean nothing there.
        if self.session.numbers != Numbers::Nobodys {
            self.session.numbers = Numbers::Strangers;
        }
    }

    /// Its client, which has this serial number, has nothing to do with it any more.
    pub fn lose_client(&mut self, serial: u64) {
        self.client = None;
        self.session.before = None;
        self.session.deallocations.clear();
        (self.session.context_changed, self.session.may_set) = (false, false);
        self.session.last_draw = 0;
        self.session.numbers = self.session.numbers.after(serial);
    }

    /// Has nobody else drawn the numbers that `lastval` would tell?
    pub fn has_numbers_of(&self, client: u64) -> bool {
        [Numbers::Nobodys, Numbers::Of(client)].contains(&self.session.numbers)
    }

    /// A text in which that was seen is about to be run.
    pub fn suspect(&mut self, signs: Signs, called: Called, fingerprint: u64) {
        self.remember_vars();
        self.session.traces.add(signs, called, fingerprint);
    }

    /// Letters that a question to it can contain, whatever encoding its clients have.
    pub fn letters(&self) -> Letters {
        Letters::of(self.encoding(), self.encoding())
    }

    /// Those of them that its client's texts can be searched for.
    pub fn letters_of_client(&self) -> Letters {
        Letters::of(self.encoding(), self.vars.get(CLIENT_ENCODING))
    }

    /// Are there more names of settings to be asked about than a pool remembers?
    pub fn has_too_many_names(&self) -> bool {
        let count = self.session.setting_names.as_ref().map_or(0, |names| names.iter().count());
        self.session.traces.incomplete || count > CANDIDATES_MAX
    }

    /// Of PostgreSQL, as it reports it.
    pub fn version(&self) -> &[u8] {
        self.reported(b"server_version").unwrap_or_default()
    }

    /// That of its database.
    fn encoding(&self) -> Option<&[u8]> {
        self.reported(b"server_encoding")
    }

    /// What it reported at its login and cannot change.
    fn reported(&self, parameter: &[u8]) -> Option<&[u8]> {
        let mut reported = self.welcome.fixed().iter();
        let found = reported.find(|(name, _)| name == parameter);
        found.map(|(_, value)| value.as_slice())
    }

    /// Notes what a text that is about to be run may set.
    pub fn note_settings(&mut self, note: impl FnOnce(&mut SettingNames)) {
        if self.session.state_report.is_some() {
            // It tells of all of them.
            return;
        }
        let letters = self.letters_of_client();
        let names =
            self.session.setting_names.get_or_insert_with(|| SettingNames::new(letters).into());
        names.letters = letters;
        note(names);
        self.session.traces.incomplete |= names.incomplete;
    }

    /// It has reported the state of its session.
    pub fn hear_state(&mut self, value: &[u8]) {
        let is_clients = match self.phase {
            ServerPhase::Linked | ServerPhase::Finishing => true,
            ServerPhase::Preparing(ref step) => step.is_clients(),
            ServerPhase::Connecting(_)
            | ServerPhase::Login(_)
            | ServerPhase::Parked
            | ServerPhase::Settling(_)
            | ServerPhase::Listening => false,
        };
        if is_clients {
            self.remember_vars();
        }
        let Some(report) = &mut self.session.state_report else { return };
        report.hear(value, is_clients);
        if is_clients {
            self.session.traces.note_report();
        } else if !report.is_known() {
            // What a client leaves behind that would not show, since it is as unknown as this.
            self.session.state_report = None;
        }
    }

    /// A tracked parameter has changed, and no text was seen that may have changed it.
    pub fn note_unexplained(&mut self, slot: usize) {
        self.session.traces.note_report();
        if let Some(report) = &mut self.session.state_report {
            report.note_unexplained(slot);
        }
    }

    /// Is there more to be judged than that nothing has changed?
    pub fn needs_verdict(&self) -> bool {
        let Traces { signs, named, deallocates, resets, .. } = self.session.traces;
        let says = Signs::SETTINGS | Signs::DISCARD | Signs::PREPARED;
        let is_news = self.session.state_report.as_ref().is_some_and(|report| report.is_news());
        is_news
            || signs.intersects(says)
            || named
            || deallocates
            || resets
            || !self.session.lent.is_empty()
    }

    /// Reasons to keep it that are seen neither in its state nor by a probe.
    pub fn unseen_pins(&self) -> Pins {
        let named = if self.session.traces.named { Pins::FUNCTION } else { Pins::NONE };
        match &self.session.state_report {
            Some(report) => named | report.events().pins,
            None => named | self.session.traces.unseen_pins(),
        }
    }

    /// Something may change them, or changes them, for the first time in the transaction.
    pub fn remember_vars(&mut self) {
        if self.session.traces.is_empty() && self.session.before.is_none() {
            self.session.before = Some(self.vars.clone());
        }
    }

    /// It has changed one of its parameters by itself, and its client has another value.
    pub fn has_changed_by_itself(&mut self) {
        // What is parsed until the transaction is over is read by it.
        self.session.context_changed = true;
        if self.session.pinned.is_some() {
            // It is not given to its client anew, but asked.
            self.doubt_settings();
        }
    }

    /// Has it state of its client's that another one must not find?
    pub fn has_traces(&self) -> bool {
        self.session.pinned.is_some()
            || !self.session.traces.is_empty()
            || !self.session.drawn.is_empty()
    }

    /// Does its client keep it since it has asked for a number?
    pub fn keeps_numbers(&self) -> bool {
        let asks = self.session.traces.signs.intersects(Signs::SEQUENCE);
        asks || self.session.pinned.as_ref().is_some_and(|one| one.pins.contains(Pins::SEQUENCE))
    }

    /// Has its client asked for a number where no text shows it?
    pub fn has_asked_unseen(&self) -> bool {
        let report = self.session.state_report.as_ref();
        report.is_some_and(|report| report.events().pins.contains(Pins::SEQUENCE))
    }

    /// Its client does not keep it for a question about numbers any more. Returns what was drawn.
    pub fn take_hold(&mut self) -> DrawnNumbers {
        if let Some(pinned) = &mut self.session.pinned {
            pinned.pins = pinned.pins.without(Pins::DRAWN);
        }
        self.session.pinned.take_if(|pinned| pinned.pins.is_empty());
        std::mem::take(&mut self.session.drawn)
    }

    /// May its client ask for a number that it has drawn?
    pub fn is_held(&self) -> bool {
        let pins = self.session.pinned.as_ref().map_or(Pins::NONE, |pinned| pinned.pins);
        !self.session.drawn.is_empty() || pins.contains(Pins::DRAWN)
    }

    /// Is something here that is not reported, and that a client has carried here?
    pub fn has_foreign_settings(&self) -> bool {
        self.vars.has_untracked()
    }

    /// It is not known (any more) which of them there are: nobody may have it as it is.
    pub fn doubt_settings(&mut self) {
        self.session.traces.signs |= Signs::SETTINGS | Signs::PREPARED;
    }

    /// Something was reset, perhaps `all` there is. What that leaves is asked in auto mode.
    pub fn was_reset(&mut self, all: bool, mode: PoolMode) {
        self.session.traces.resets = true;
        match mode {
            PoolMode::Auto => {}
            PoolMode::Session | PoolMode::Transaction | PoolMode::Statement if all => {
                self.drop_foreign_settings();
            }
            PoolMode::Session | PoolMode::Transaction | PoolMode::Statement => self.doubt_carried(),
        }
    }

    /// Which values they have is not known (any more): whoever comes sets or resets them.
    pub fn doubt_carried(&mut self) {
        if !self.vars.carried.is_empty() {
            self.vars.change(|vars| vars.carried = vars.carried.of_unknown_values());
        }
    }

    /// Has it what `connect_query` has set, and nothing else that is not reported?
    pub fn is_as_opened(&self) -> bool {
        self.vars.carried == self.welcome.vars.carried
            && self.vars.prepared.is_empty()
            && self.vars.channels.is_empty()
    }

    /// They have been undone.
    pub fn drop_foreign_settings(&mut self) {
        if self.has_foreign_settings() {
            self.vars.change(|vars| {
                (vars.carried, vars.prepared) = (Carried::default(), Carried::default());
                vars.channels = Carried::default();
            });
        }
    }

    /// Nothing is owed, no transaction is open, no message is half read: fit for another client.
    pub fn is_clean(&self) -> bool {
        self.ledger.is_settled() && self.status == b'I' && self.stream.at_boundary()
    }
}

/// When things happened to a server last.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// When its socket was opened.
    pub connected_at: Micros,
    /// When it was logged in.
    pub opened_at: Micros,
    /// Last time it was taken back.
    pub released_at: Micros,
    /// Last time it was sent a message of ours.
    pub asked_at: Micros,
    /// Last time its client sent anything.
    pub heard_at: Micros,
    /// Last time it sent anything.
    pub replied_at: Micros,
}

impl Times {
    pub fn all_at(now: Micros) -> Self {
        Self {
            connected_at: now,
            opened_at: now,
            released_at: now,
            asked_at: now,
            heard_at: now,
            replied_at: now,
        }
    }
}
