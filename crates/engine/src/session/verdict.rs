//! Decides what a transaction has left in its session, and what follows (`pool_mode = auto`).
//! `engine/sessions.rs` carries it out.
//!
//! ```text
//!  transaction over ─┬─ no traces ─► unlink
//!                    ├─ pinned, no new traces ─► the client keeps the server
//!                    └─ traces ─► probe ─┬─ settings ─► carried: they are the client's from now on
//!                                        ├─ objects ──► pinned: the client keeps the server
//!                                        ├─ no answer ─► pinned; asked again after the next one
//!                                        └─ neither ──► unlink
//!  A server that reports its state is not probed: the answer is there already (`state_report.rs`).
//!  If it cannot tell its state, only a client that listens has it asked, for the channels.
//!  the client goes ── pinned, or not probed yet ─► DISCARD ALL ─► others may have the server
//! ```
//!
//! PostgreSQL itself is asked once the transaction is over. So Weir needs no rules for commits,
//! rollbacks, savepoints, SET LOCAL and functions. Texts only decide whether it is asked at all.

use std::collections::{BTreeSet, HashSet};

use config::{PoolMode, Unsupported};
use sql::Signs;
use wire::{backend, frontend};

use crate::admission::view::PoolView;
use crate::client::{Client, ClientPhase};
use crate::context::Context;
use crate::ids::{ClientId, Micros, ServerId, Waiter};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::pair::Pair;
use crate::notify::listen::{must_ask_for_channels, portable_channels};
use crate::relay::ledger::Expect;
use crate::routing::Place;
use crate::server::{Preparation, Server, ServerPhase};
use crate::session::left::{Left, Topics};
use crate::session::new_values::{Ended, NewValues};
use crate::session::pins::{Pinned, Pins};
use crate::session::probe::Probe;
use crate::session::resets::Resets;
use crate::session::sequences::DrawnNumbers;
use crate::session::setting_names::SettingNames;
use crate::session::state::{AllLent, Numbers, Traces};
use crate::session::text_history::CANDIDATES_MAX;
use crate::session::{probe, state_report};
use crate::shell::{Event, Exchange, Io};
use crate::values::{ClientValues, Values};
use crate::vars::{Slots, TrackedNames, Vars};

pub(crate) const FORGET: &[u8] = b"DISCARD ALL";

/// The decision about a session after the end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// Nothing keeps the client on the server.
    Released,
    /// The client keeps the server, and has not changed anything since it was decided so.
    Kept,
    /// The client is held back until a question or a cancel request is over.
    Asked,
    /// The client keeps the server. `is_known`: its values are known.
    Pinned { is_known: bool },
}

impl<X: Exchange> Pair<'_, X> {
    /// Decides what follows when the client's transaction is over and this or an earlier one has
    /// left traces on the server, and when the probe is answered.
    pub(crate) fn judge(&mut self, io: &mut impl Io<X>) -> Judged {
        if matches!(*self.server.phase, ServerPhase::Preparing(Preparation::Probe(_))) {
            return self.probed(io);
        }
        let now = io.now();
        let Self { id, on, .. } = *self;
        let (client, server) = (&mut *self.client, &mut *self.server);
        // After a cancel request the client is held back until there is a verdict.
        let is_held = matches!(*client.phase, ClientPhase::Preparing(_));
        let signs = server.session.traces.signs;
        let is_put_off = server.session.traces.put_off;
        server.context_change.end_transaction(is_put_off);
        server.session.own().may_set = is_put_off;
        if server.session.state_report.is_some() && !server.needs_verdict() && !is_held {
            let session = server.session.own();
            (session.traces, session.resets) = (Traces::default(), Resets::default());
            if !server.has_traces() {
                server.session.own().forget_values();
                return Judged::Released;
            }
        }
        if server.session.traces.is_empty() {
            server.session.own().forget_values();
        }
        if !server.session.traces.are_due() {
            return Judged::Kept;
        }
        if server.cancel.is_under_way() {
            await_cancel(id, client, server, now);
            return Judged::Asked;
        }
        client.phase.hold_back(Waiter::served(id, server.pool, now));
        remember_setting_names(server, self.pool.view);
        let hears = must_ask_for_channels(client, server);
        let asks = server.session.state_report.is_none();
        if !asks && !hears && server.session.lent.is_empty() {
            server.phase.ask(Preparation::Probe(None));
            return self.probed(io);
        }
        // A report does not list lent statements.
        let topics = Topics {
            settings: asks && signs.intersects(Signs::SETTINGS | Signs::DISCARD | Signs::OPAQUE),
            objects: hears
                || asks && (server.session.pinned.is_some() || !(Signs::SETTINGS.contains(signs))),
        };
        let carried = server.vars.carried.all().iter().map(|setting| &*setting.name);
        let found = server
            .session
            .setting_names
            .iter()
            .flat_map(|names| names.iter())
            .map(|(name, _)| name);
        let customs = carried.filter(|name| name.contains(&b'.')).chain(found);
        let customs: BTreeSet<&[u8]> = self.pool.view.history.customs().chain(customs).collect();
        let letters = server.letters();
        let customs = customs.into_iter().filter(|name| letters.include(name) == Some(true));
        let login = self.pool.view.settings.login_user().as_bytes();
        let sql = probe::question(topics, login, customs, &server.session.lent);
        server.ask_what_is_left(on, Preparation::Probe, topics, &sql, self.context, io);
        self.take_lent_back(io);
        Judged::Asked
    }

    /// Once the probe is answered, the lent statements are deallocated.
    fn take_lent_back(&mut self, io: &mut impl Io<X>) {
        let lent = &self.server.session.lent;
        if lent.is_empty() {
            return;
        }
        let mut messages = Vec::new();
        lent.keys().for_each(|name| frontend::close_statement(&mut messages, name));
        frontend::sync(&mut messages);
        let mut expected = vec![Expect::Close; lent.len()];
        expected.push(Expect::Sync);
        self.server.ask(self.on, &expected, 0, &messages, self.context, io);
    }

    /// The probe is answered, or a report has made it unnecessary.
    fn probed(&mut self, io: &mut impl Io<X>) -> Judged {
        let left = self.take_left();
        if let Some(left) = &left {
            let defaults = self.explain_changes(left, io);
            if !defaults.is_empty() {
                let names = &self.context.names;
                self.pool.defaults_changed(self.server, defaults, false, names);
            }
        }
        self.decide(left, io)
    }

    /// Takes what the probe and the server's report tell of the session; `None` if they do not.
    fn take_left(&mut self) -> Option<Left> {
        let server = &mut *self.server;
        let error = server.own_error.take();
        let answer = server.phase.probe().and_then(Option::take).map(|probe| probe.finish());
        let told = server.session.state_report.as_ref().map(|report| report.state());
        if error.is_some() {
            return None;
        }
        match (answer, told) {
            (None, told) => told.flatten(),
            (Some(answer), None) => answer,
            (Some(answer), Some(told)) => {
                let answer = answer?;
                if told.is_none() {
                    self.channels().take(&answer);
                }
                told.map(|told| Left { lent: answer.lent, ..told })
            }
        }
    }

    /// Decides, now that the probe is answered or a report has made it unnecessary.
    fn decide(&mut self, left: Option<Left>, io: &mut impl Io<X>) -> Judged {
        let is_known = left.is_some();
        let unseen = take_events(self.client.serial, self.server, self.pool.view, is_known);
        let (traces, named) = take_traces(self.server, is_known);
        let lent = std::mem::take(&mut self.server.session.own().lent);
        let mut pins = unseen;
        if !self.server.session.drawn.is_empty() {
            pins |= Pins::DRAWN;
        }
        if let Some(pinned) = &self.server.session.pinned {
            pins |= pinned.pins.unseen();
        }
        match left {
            Some(left) => {
                pins |= left.pins;
                forget_deallocated(self.client, &lent, &left);
                let changed = self.take_over((traces, named.as_deref()), &left, io);
                let schema = self.pool.exchange.schema();
                let (server, view) = (&*self.server, &mut *self.pool.view);
                judge_functions(server, view, schema, traces, changed, left.pins, io.now());
                if let Some(channels) = &left.channels
                    && self.channels().hears_on(channels)
                {
                    pins |= Pins::LISTEN;
                }
            }
            None => {
                // A client that kept a reader could not write any more. It keeps the state that it
                // had before, and the reader's session is reset.
                if self.pool.view.place == Place::Writer {
                    pins |= Pins::UNVERIFIED;
                }
                // Another client's probe must not fail because of names that were only guessed.
                self.pool.view.history.forget_candidates();
            }
        }
        let may_hide = may_hide_settings(self.server, self.pool.view, traces);
        if pins.is_empty() {
            self.server.session.own().pinned = None;
            if may_hide {
                // The session is discarded.
                self.server.doubt_settings();
            }
            return Judged::Released;
        }
        if may_hide {
            self.server.doomed.retire(CloseReason::SettingsUnknown);
        }
        pin(self.server, self.pool.view, pins, traces.knows_text, io);
        Judged::Pinned { is_known }
    }

    /// Tracked parameters have changed. If the session has set them, they are the client's. Otherwise
    /// the server's default has changed, and a client with a value of its own keeps that value.
    /// Returns the parameters whose defaults have changed.
    fn explain_changes(&mut self, left: &Left, io: &mut impl Io<X>) -> Slots {
        let (client, server) = (&mut *self.client, &*self.server);
        let mut defaults = Slots::default();
        let Some(report) = &server.session.state_report else { return defaults };
        let changed = report.changed();
        if changed == Slots::default() {
            return defaults;
        }
        let set_before = report.state_before();
        let names = &self.context.names;
        let is_in = |left: Option<&Left>, slot: usize| {
            let settings = left.and_then(|left| left.settings.as_ref());
            settings
                .is_some_and(|all| all.all().iter().any(|one| names.slot(&one.name) == Some(slot)))
        };
        let session = &server.session;
        let is_reset = |slot: usize| {
            let traces = &session.traces;
            let name = names.name(slot).as_bytes();
            traces.outcome.ran && session.resets.include(name, traces.resets)
        };
        let mut out = Vec::new();
        for slot in (0..names.len()).filter(|slot| changed.has(*slot)) {
            let Some(value) = server.vars.get(slot) else { continue };
            let is_given = client.vars.given().has(slot);
            let followed = session.followed.as_ref().and_then(|before| before.get(slot));
            if is_in(Some(left), slot) || is_in(set_before.as_ref(), slot) {
                if is_given && client.vars.get(slot) != Some(value) {
                    client.vars.change(|vars| vars.set(slot, value));
                    backend::parameter_status(&mut out, names.name(slot).as_bytes(), value);
                }
            } else if let Some(own) = followed.filter(|_| is_given) {
                let own = if is_reset(slot) { value } else { own };
                let is_told = client.vars.get(slot) == Some(own) || own != value;
                client.vars.change(|vars| vars.set(slot, own));
                if !is_told {
                    backend::parameter_status(&mut out, names.name(slot).as_bytes(), own);
                }
            } else if let Some(session) = client.session.as_mut().filter(|_| !is_given) {
                session.startup.change(|vars| vars.set(slot, value));
                defaults.add(slot);
            }
        }
        if !out.is_empty() {
            io.send_client(self.id, &out);
        }
        defaults
    }

    /// The state that the server reports becomes the state of client and server. Returns true if
    /// anything has changed.
    fn take_over(
        &mut self,
        (traces, named): (Traces, Option<&SettingNames>),
        left: &Left,
        io: &mut impl Io<X>,
    ) -> bool {
        if let Some(settings) = &left.settings {
            self.pool.view.history.learn_customs(settings);
        }
        let (client, server) = (&mut *self.client, &mut *self.server);
        let channels = left.channels.as_ref();
        let channels = channels.map(|there| portable_channels(client, server, there, left.pins));
        let startup = client.session_mut().startup.clone();
        let session = server.session.own();
        let before = session.before.take().unwrap_or_else(|| server.vars.clone());
        let followed = session.followed.take();
        let ended = Ended {
            names: &self.context.names,
            left,
            channels,
            traces,
            resets: std::mem::take(&mut session.resets),
            named,
            reports: session.state_report.is_some(),
            there: &server.vars,
            before: &before,
            followed: followed.as_deref(),
            at_login: &server.welcome.vars,
            given: client.vars.given(),
            startup: &startup,
            own: &client.vars,
        };
        let NewValues { there, own, given } = ended.values();
        let changed = there != *server.vars;
        let there = self.context.shared_vars.share(Values::new(there));
        let own = self.context.shared_vars.share(Values::new(own));
        report_changes(self.id, &there, &own, &self.context.names, io);
        server.vars = there;
        client.vars = ClientValues::new(own, given);
        changed
    }
}

/// Has the transaction changed a value that the client has given? If no text leaves a setting
/// behind, a reload has changed the server's default, and the probe shows that.
#[inline(always)]
pub(crate) fn doubt_changed_values(client: &Client, server: &mut Server, names: &TrackedNames) {
    if server.session.get().is_some_and(|own| own.before.is_some()) {
        compare_values(client, server, names);
    }
}

#[inline(never)]
fn compare_values(client: &Client, server: &mut Server, names: &TrackedNames) {
    let Some(before) = &server.session.before else { return };
    let there = &server.vars;
    let has_changed = |slot: usize| {
        client.vars.given().has(slot)
            && before.get(slot) != there.get(slot)
            && client.vars.get(slot) == there.get(slot)
    };
    if server.session.state_report.is_none() && (0..names.len()).any(has_changed) {
        server.doubt_settings();
    }
}

/// The probe waits until the cancel request is over, so that the request cannot hit the probe.
fn await_cancel(id: ClientId, client: &mut Client, server: &mut Server, now: Micros) {
    let waiter = Waiter::served(id, server.pool, now);
    client.phase.hold_back(waiter);
    server.phase.ask(Preparation::AwaitCancel);
}

/// Takes the traces of the transaction, and the names of settings that it has set. If the probe has
/// failed, nothing is known about the change, and no trace may be forgotten.
#[inline]
fn take_traces(server: &mut Server, is_known: bool) -> (Traces, Option<Box<SettingNames>>) {
    let traces = server.session.traces;
    if is_known {
        let session = server.session.own();
        session.traces = Traces::default();
        return (traces, session.setting_names.take());
    }
    server.context_change.note();
    let session = server.session.own();
    (session.may_set, session.traces.put_off) = (true, true);
    (traces, None)
}

/// If only functions made the transaction suspect, the verdict also applies to these functions.
#[inline]
fn judge_functions(
    server: &Server,
    view: &mut PoolView,
    schema: u64,
    traces: Traces,
    changed: bool,
    pins: Pins,
    now: Micros,
) {
    if server.session.state_report.is_some() {
        return;
    }
    let is_unknown = matches!(*server.doomed, Some(CloseReason::SettingsUnknown));
    let Some(called) = traces.suspects() else { return };
    let was_pinned = server.session.pinned.is_some();
    if changed || !(pins.is_empty() || was_pinned) {
        view.history.has_left_something(called);
    } else if is_unknown || view.history.has_dropped() {
        // The probe has not asked for all settings.
    } else if pins.is_empty() && traces.outcome.is_proof() {
        view.history.has_left_nothing(called, schema, now);
    }
}

/// Remembers the names that this transaction has set: later functions may set them without
/// naming them.
#[inline]
pub(crate) fn remember_setting_names(server: &Server, view: &mut PoolView) {
    let Some(names) = &server.session.setting_names else { return };
    for kind in [true, false] {
        let names = names.iter().filter(|(_, sets)| *sets == kind).take(CANDIDATES_MAX);
        names.for_each(|(name, sets)| view.history.note_custom(name, sets));
    }
}

/// Reasons to keep the server that neither its state nor a probe shows. `client` is the
/// client's serial number. `is_known`: the verdict uses everything that was reported.
#[inline]
fn take_events(client: u64, server: &mut Server, view: &mut PoolView, is_known: bool) -> Pins {
    let mut pins = server.unseen_pins();
    let session = server.session.own();
    let Some(report) = &mut session.state_report else { return pins };
    let events = report.events();
    match is_known {
        true => report.judged(),
        false => report.put_off(),
    }
    if events.discards {
        session.numbers = Numbers::Of(client);
        if let Some(pinned) = &mut session.pinned {
            pinned.pins = pinned.pins.without(Pins::SEQUENCE);
        }
    }
    // From now on Weir makes sure that no client of the pool can read another client's number.
    view.history.asks_numbers |= events.pins.contains(Pins::SEQUENCE);
    if view.settings.auto_unsupported == Unsupported::Warn {
        pins = pins.without(state_report::OF_EVENTS);
    }
    pins
}

/// May a function have left a setting for which the probe did not ask?
#[inline]
fn may_hide_settings(server: &Server, view: &PoolView, traces: Traces) -> bool {
    traces.signs.intersects(Signs::OPAQUE)
        && server.session.state_report.is_none()
        && view.history.has_dropped()
}

/// Pins the server to its client, or changes the reasons.
fn pin<X: Exchange>(
    server: &mut Server,
    view: &PoolView,
    pins: Pins,
    knows_text: bool,
    io: &mut impl Io<X>,
) {
    let since = io.now();
    if let Some(pinned) = server.pinned_mut() {
        pinned.pins = pins;
        return;
    }
    let fingerprint = if knows_text { server.session.text.fingerprint() } else { 0 };
    let pinned = Pinned { pins, since, fingerprint };
    server.session.own().pinned = Some(Box::new(pinned));
    let name = (view.identity.database.as_str(), view.identity.user.as_str());
    io.event(Event::Pinned { name, reason: &pinned.to_string() });
}

impl Server {
    /// Sends the probe. `step` decides what happens with the answer.
    pub(crate) fn ask_what_is_left<X: Exchange>(
        &mut self,
        on: ServerId,
        step: impl FnOnce(Option<Box<Probe>>) -> Preparation,
        topics: Topics,
        question: &[u8],
        context: &mut Context,
        io: &mut impl Io<X>,
    ) {
        self.phase.ask(step(Some(Box::new(Probe::new(topics)))));
        self.send_own_query(on, question, context, io);
    }

    /// Can DISCARD ALL end everything that the session contains?
    pub(crate) fn can_be_discarded(&self) -> bool {
        (self.pins() | self.unseen_pins()).lasting().is_empty()
    }

    /// Notes that DISCARD ALL has ended the session.
    pub(crate) fn clear_session(&mut self) {
        let session = self.session.own();
        session.traces = Traces::default();
        session.pinned = None;
        session.drawn = DrawnNumbers::default();
        session.lent.clear();
        session.resets = Resets::default();
        session.setting_names = None;
        session.state_report.take_if(|report| !report.is_known());
        session.state_report.iter_mut().for_each(|report| report.judged());
        if self.mode != PoolMode::Auto {
            self.session.end();
        }
        self.drop_foreign_settings();
    }
}

/// Sends the client a ParameterStatus for each of its values that differs from `told`, the values
/// that the server has reported to it.
pub(crate) fn report_changes<X: Exchange>(
    id: ClientId,
    told: &Vars,
    own: &Vars,
    names: &TrackedNames,
    io: &mut impl Io<X>,
) {
    let mut out = Vec::new();
    for slot in 0..names.len() {
        if let Some(value) = own.get(slot)
            && told.get(slot) != Some(value)
        {
            backend::parameter_status(&mut out, names.name(slot).as_bytes(), value);
        }
    }
    if !out.is_empty() {
        io.send_client(id, &out);
    }
}

/// Lent statements that no longer exist were deallocated by the client's SQL.
#[inline]
fn forget_deallocated(client: &mut Client, lent: &AllLent, left: &Left) {
    let Some(extended) = &mut client.extended else { return };
    let there: HashSet<&[u8]> = left.lent.iter().map(|name| &**name).collect();
    for name in lent.keys().filter(|name| !there.contains(&***name)) {
        extended.statements.remove(name);
    }
}
