//! A connection to PostgreSQL, as plain data. `lifecycle/open.rs` logs it in, `engine/linking.rs`
//! links it to clients, `relay/replies.rs` reads its replies.
//!
//! ```text
//!  Connecting ─► Login ─┬─► (pool: parked) ─► Preparing ─► Linked ─► Settling ─┐
//!                       │        ▲                           │                │
//!                       │        └───────────────────────────┴────────────────┘
//! ```

use std::sync::Arc;

use config::PoolMode;
use sql::Signs;
use wire::startup::CancelKey;

use crate::cancel::outcome::ServerCancel;
use crate::encoding::Letters;
use crate::ids::{ClientId, Micros, PoolId};
pub use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::close_reason::Doomed;
use crate::lifecycle::link::Link;
use crate::lifecycle::own_query::OwnError;
pub use crate::lifecycle::preparation::Preparation;
use crate::lifecycle::replication::ReplicationKind;
pub use crate::login::server_login::{LoginStage, ProtocolVersion, ServerLogin, ServerPurpose};
use crate::operator::stages::Stages;
use crate::operator::timings::Choice;
use crate::phase::Phase;
pub use crate::phase::{ServerPhase, Settling};
use crate::relay::changes::Changes;
use crate::relay::kept_request::Kept;
use crate::relay::ledger::Ledger;
use crate::relay::parse_context::ContextChange;
use crate::relay::prepared::ServerStatements;
use crate::relay::status::Status;
use crate::relay::stream::Stream;
use crate::relay::unnamed::ServerUnnamed;
use crate::session::ahead::Ahead;
use crate::session::carried::Carried;
use crate::session::on_server::{SchemaChanges, SessionBox};
use crate::session::pins::{Pinned, Pins};
use crate::session::sequences::DrawnNumbers;
use crate::session::setting_names::SettingNames;
use crate::session::state::{Numbers, Traces};
use crate::session::text_history::{CANDIDATES_MAX, Called};
use crate::times::ServerTimes;
use crate::values::Values;
use crate::vars::{CLIENT_ENCODING, Welcome};

/// The parameter that is `on` while PostgreSQL replays a primary's log.
pub(crate) const RECOVERY: &[u8] = b"in_hot_standby";

#[derive(Debug)]
pub struct Server {
    /// Identifies the connection among all present and past ones; shown in logs.
    pub serial: u64,
    pub pool: PoolId,
    /// The pool's epoch when the server was opened.
    pub epoch: u64,
    /// The pool's mode when the server was opened. The server keeps it, whatever the pool's mode is
    /// now ([`Server::mode_in`]).
    pub mode: PoolMode,
    pub phase: Phase<ServerPhase>,
    pub client: Link<ClientId>,
    pub ledger: Ledger,
    pub stream: Stream,
    pub status: Status,
    /// BackendKeyData, for cancel requests.
    pub key: CancelKey,
    /// The parameters that it reported at login, or as its defaults since then, for the welcome of its
    /// first client. The pool's own may have been forgotten meanwhile (RECONNECT).
    pub welcome: Arc<Welcome>,
    pub vars: Values,
    pub statements: ServerStatements,
    pub kept: Kept,
    pub unnamed: ServerUnnamed,
    pub times: ServerTimes,
    /// Number of times that it was given to a client.
    pub uses: u64,
    pub stages: Stages,
    pub cancel: ServerCancel,
    pub doomed: Doomed,
    pub own_error: OwnError,
    pub changes: Changes,
    pub context_change: ContextChange,
    pub session: SessionBox,
    /// Was it opened with the keys of its user's own SCRAM proof, for which `user=` stands in the
    /// configuration? Other users may not use it ([`crate::settings::PoolSettings::own_verifier`]).
    pub own_keys: bool,
    /// The number of the password of `password_command` that it has logged in with.
    pub password_number: Option<u64>,
    /// Was an idle server of another pool closed for its seat?
    pub took_seat: bool,
    /// Set if it speaks the replication protocol: it is used by one client only, and closed with
    /// it.
    pub replication: Option<ReplicationKind>,
}

impl Server {
    pub fn new(pool: PoolId, serial: u64, login: ServerLogin, now: Micros) -> Self {
        Self {
            serial,
            pool,
            epoch: 0,
            mode: PoolMode::default(),
            phase: Phase::<ServerPhase>::new(login),
            client: Link::default(),
            ledger: Ledger::default(),
            stream: Stream::default(),
            status: Status::default(),
            key: CancelKey::default(),
            welcome: Arc::default(),
            vars: Values::default(),
            statements: ServerStatements::default(),
            kept: Kept::default(),
            unnamed: ServerUnnamed::default(),
            times: ServerTimes::connect(now),
            uses: 0,
            stages: Stages::default(),
            cancel: ServerCancel::default(),
            doomed: Doomed::default(),
            own_error: OwnError::default(),
            changes: Changes::default(),
            context_change: ContextChange::default(),
            session: SessionBox::default(),
            own_keys: false,
            password_number: None,
            took_seat: false,
            replication: None,
        }
    }

    /// Returns the way in which its client got it.
    #[cold]
    pub(crate) fn choice(&self) -> Choice {
        let (queued_at, _) = self.stages.assigned_at();
        let is_new = self.times.opened_at() >= queued_at && self.times.is_unused();
        match (is_new, self.took_seat) {
            (true, true) => Choice::Evicting,
            (true, false) => Choice::New,
            (false, _) if self.times.has_moved() => Choice::Stolen,
            (false, _) => Choice::Reused,
        }
    }

    /// Returns the state of its login.
    #[inline]
    pub(crate) fn login_mut(&mut self) -> &mut ServerLogin {
        self.phase.login_mut().expect("only called while the server is logging in")
    }

    /// Begins to use the server in this mode.
    pub fn use_in(&mut self, mode: PoolMode) {
        self.mode = mode;
        if mode == PoolMode::Auto {
            self.session.own();
        }
    }

    /// Returns the mode in which the server is used, if the pool's mode is `pool` now. The server
    /// keeps its own mode, because no other mode knows what its client has left there. Exception:
    /// in transaction and statement mode, a session of session mode ends with the transaction.
    pub fn mode_in(&self, pool: PoolMode) -> PoolMode {
        match (self.mode, pool) {
            (PoolMode::Session, PoolMode::Transaction | PoolMode::Statement) => pool,
            (mode, _) => mode,
        }
    }

    /// May a text have another meaning here, for a reason that the client's settings do not show?
    pub fn has_own_meanings(&self) -> bool {
        self.context_change.is_possible() || self.pins().contains(Pins::TEMPORARY)
    }

    /// Returns the reasons for which its client keeps the server.
    #[inline]
    pub fn pins(&self) -> Pins {
        let pinned = self.session.get().and_then(|own| own.pinned.as_deref());
        pinned.map_or(Pins::NONE, |pinned| pinned.pins)
    }

    #[inline]
    pub fn is_pinned(&self) -> bool {
        self.session.get().is_some_and(|own| own.pinned.is_some())
    }

    pub fn pinned_mut(&mut self) -> Option<&mut Pinned> {
        self.session.get_mut()?.pinned.as_deref_mut()
    }

    /// Returns what is known about sending settings and a request in one write, if that is possible.
    pub fn ahead_mut(&mut self) -> Option<&mut Ahead> {
        self.session.get_mut()?.ahead.as_deref_mut()
    }

    /// Prepares it for another worker, where this worker's serial numbers mean nothing.
    pub fn leave_worker(&mut self) {
        self.statements.age();
        self.times.moves();
        self.ledger.leave_worker();
        self.kept.forget();
        self.unnamed.destroy();
        // The clients' serial numbers mean nothing there.
        if let Some(session) = self.session.get_mut()
            && session.numbers != Numbers::Nobodys
        {
            session.numbers = Numbers::Strangers;
        }
    }

    /// Has no other client drawn the numbers that `lastval` would return?
    pub fn has_numbers_of(&self, client: u64) -> bool {
        [Numbers::Nobodys, Numbers::Of(client)].contains(&self.session.numbers)
    }

    /// Notes the signs of a text that is about to run. `text` is empty if the text is not known, and
    /// None if the text was noted before.
    pub fn suspect(&mut self, signs: Signs, called: Called, text: Option<&[u8]>) {
        self.remember_vars();
        let session = self.session.own();
        session.traces.add(signs, called);
        if signs.intersects(Signs::OPAQUE) {
            session.schema = SchemaChanges::MayBeUnseen;
        }
        if let Some(text) = text {
            session.traces.knows_text = session.text.keep(text);
        }
    }

    /// Returns the letters that a probe can contain, whatever the clients' encodings are.
    pub fn letters(&self) -> Letters {
        Letters::of(self.encoding(), self.encoding())
    }

    /// Returns those of them that the client's texts can be searched for.
    pub fn letters_of_client(&self) -> Letters {
        Letters::of(self.encoding(), self.vars.get(CLIENT_ENCODING))
    }

    /// Are there more names of settings to probe than a pool remembers?
    pub fn has_too_many_names(&self) -> bool {
        let count = self.session.setting_names.as_ref().map_or(0, |names| names.iter().count());
        self.session.traces.incomplete || count > CANDIDATES_MAX
    }

    /// Returns PostgreSQL's version, as the server reported it.
    pub fn version(&self) -> &[u8] {
        self.reported(b"server_version").unwrap_or_default()
    }

    /// Returns the encoding of the database.
    fn encoding(&self) -> Option<&[u8]> {
        self.reported(b"server_encoding")
    }

    /// Is its node known to be no standby? PostgreSQL 14 and later report it, before the answer to
    /// the first write at the latest.
    pub fn has_left_recovery(&self) -> bool {
        self.reported(RECOVERY) == Some(b"off")
    }

    /// Returns a parameter that is not tracked, as it was last reported.
    fn reported(&self, parameter: &[u8]) -> Option<&[u8]> {
        let mut reported = self.welcome.fixed().iter();
        let found = reported.find(|(name, _)| name == parameter);
        found.map(|(_, value)| value.as_slice())
    }

    /// Notes the settings that a text may change, which is about to run.
    pub fn note_settings(&mut self, note: impl FnOnce(&mut SettingNames)) {
        if self.session.state_report.is_some() {
            // The state report contains all of them.
            return;
        }
        let letters = self.letters_of_client();
        let session = self.session.own();
        let names = session.setting_names.get_or_insert_with(|| SettingNames::new(letters).into());
        names.letters = letters;
        note(names);
        session.traces.incomplete |= names.incomplete;
    }

    /// Do settings of its client go out with the next request?
    pub fn awaits_settings(&self) -> bool {
        self.session.ahead.as_ref().is_some_and(|ahead| ahead.is_pending())
    }

    /// Notes that a transaction is over, and that the next one may begin before Weir can find out
    /// what the first one has left.
    pub fn leave_unjudged(&mut self) {
        if let Some(session) = self.session.get_mut() {
            session.traces.earlier |= !session.traces.is_empty();
        }
    }

    /// Must Weir decide about more than unchanged state?
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

    /// Returns reasons to pin the server that neither its state nor a probe shows.
    pub fn unseen_pins(&self) -> Pins {
        let named = if self.session.traces.named { Pins::FUNCTION } else { Pins::NONE };
        match &self.session.state_report {
            Some(report) => named | report.events().pins,
            None => named | self.session.traces.unseen_pins(),
        }
    }

    /// Remembers the values from before the transaction, when something may change them for the
    /// first time.
    pub fn remember_vars(&mut self) {
        if let Some(session) = self.session.get_mut()
            && session.traces.is_empty()
            && session.before.is_none()
        {
            session.before = Some(self.vars.clone());
        }
    }

    /// Notes that the server has changed a parameter by itself, and its client has another value.
    pub fn has_changed_by_itself(&mut self) {
        // Texts that are parsed until the end of the transaction have the server's meaning.
        self.context_change.note();
        if self.is_pinned() {
            // A pinned server is not linked again, so it is probed.
            self.doubt_settings();
        }
    }

    /// Has the server state of its client that another client must not see?
    pub fn has_traces(&self) -> bool {
        self.session.get().is_some_and(|session| {
            session.pinned.is_some() || !session.traces.is_empty() || !session.drawn.is_empty()
        })
    }

    /// Is the server pinned because its client has asked for a drawn number?
    pub fn keeps_numbers(&self) -> bool {
        let asks = self.session.traces.signs.intersects(Signs::SEQUENCE);
        asks || self.pins().contains(Pins::SEQUENCE)
    }

    /// Has its client asked for a drawn number without a text that shows it?
    pub fn has_asked_unseen(&self) -> bool {
        let report = self.session.state_report.as_ref();
        report.is_some_and(|report| report.events().pins.contains(Pins::SEQUENCE))
    }

    /// Ends the hold for drawn numbers. Returns these numbers.
    pub fn take_hold(&mut self) -> DrawnNumbers {
        let session = self.session.own();
        if let Some(pinned) = &mut session.pinned {
            pinned.pins = pinned.pins.without(Pins::DRAWN);
        }
        session.pinned.take_if(|pinned| pinned.pins.is_empty());
        std::mem::take(&mut session.drawn)
    }

    /// Is the server held because its client may ask for a drawn number?
    pub fn is_held(&self) -> bool {
        !self.session.drawn.is_empty() || self.pins().contains(Pins::DRAWN)
    }

    /// Does nothing but drawn numbers keep the server for its client?
    pub fn keeps_only_numbers(&self) -> bool {
        self.is_held()
            && self.session.traces.is_empty()
            && self.session.pinned.as_ref().is_none_or(|pinned| pinned.pins == Pins::DRAWN)
    }

    /// Has the server settings of a client that PostgreSQL does not report?
    pub fn has_foreign_settings(&self) -> bool {
        self.vars.has_untracked()
    }

    /// Notes that the settings are unknown: no other client may see them.
    pub fn doubt_settings(&mut self) {
        self.session.own().traces.signs |= Signs::SETTINGS | Signs::PREPARED;
    }

    /// Notes a RESET, perhaps of `all` settings. In auto mode, a probe finds out what is left.
    pub fn was_reset(&mut self, all: bool, mode: PoolMode) {
        if let Some(session) = self.session.get_mut() {
            session.traces.resets = true;
        }
        match mode {
            PoolMode::Auto => {}
            PoolMode::Session | PoolMode::Transaction | PoolMode::Statement if all => {
                self.drop_foreign_settings();
            }
            PoolMode::Session | PoolMode::Transaction | PoolMode::Statement => self.doubt_carried(),
        }
    }

    /// Notes that the carried settings have unknown values: the next client sets or resets them.
    pub fn doubt_carried(&mut self) {
        if !self.vars.carried.is_empty() {
            self.vars.change(|vars| vars.carried = vars.carried.of_unknown_values());
        }
    }

    /// Has the server no unreported settings except those of `connect_query`?
    pub fn is_as_opened(&self) -> bool {
        self.vars.carried == self.welcome.vars.carried
            && self.vars.prepared.is_empty()
            && self.vars.channels.is_empty()
    }

    /// Notes that all of them were undone.
    pub fn drop_foreign_settings(&mut self) {
        if self.has_foreign_settings() {
            self.vars.change(|vars| {
                (vars.carried, vars.prepared) = (Carried::default(), Carried::default());
                vars.channels = Carried::default();
            });
        }
    }

    /// Has the server answered to its mark, and is it clean?
    pub(crate) fn is_marking(&self) -> bool {
        matches!(*self.phase, ServerPhase::Settling(Settling::Mark)) && self.is_clean()
    }

    /// Is the server fit for another client? It owes no reply, has no open transaction, and no
    /// message is half read.
    pub fn is_clean(&self) -> bool {
        self.ledger.is_at_rest() && self.status.is_idle() && self.stream.at_boundary()
    }

    /// Is no message of the server half read?
    pub(crate) fn is_read_whole(&self) -> bool {
        !matches!(*self.phase, ServerPhase::Connecting(_) | ServerPhase::Login(_))
            && self.stream.at_boundary()
    }
}
