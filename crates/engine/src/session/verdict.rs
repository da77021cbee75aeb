//! What a transaction has left in its session, and what follows from it (`pool_mode = auto`).
//!
//! ```text
//!  transaction over ─┬─ no traces ─► unlink
//!                    ├─ pinned, no new traces ─► the client keeps the server
//!                    └─ traces ─► probe ─┬─ settings ─► carried: they are the client's from now on
//!                                        ├─ objects ──► pinned: the client keeps the server
//!                                        ├─ no answer ─► pinned; asked again behind the next one
//!                                        └─ neither ──► unlink
//!  A server that reports its state is not probed: the answer is there already (`state_report.rs`).
//!  the client goes ── pinned, or not probed yet ─► DISCARD ALL ─► others may have the server
//! ```
//!
//! PostgreSQL itself is asked, once the transaction is over: so commits, rollbacks, savepoints,
//! SET LOCAL and functions need no rules of ours. Texts only decide whether it is asked at all.

use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::link::Readable;
use crate::server::Settling;
use std::collections::{BTreeSet, HashSet};

use config::Unsupported;
use sql::Signs;
use wire::{backend, frontend};

use crate::client::{Client, ClientPhase};
use crate::engine::Engine;
use crate::ids::{ClientId, Micros, ServerId, Waiter};
use crate::relay::ledger::Expect;
use crate::server::{Preparation, ServerPhase};
use crate::session::carried::{Carried, ROLE, Setting};
use crate::session::pins::{Pinned, Pins};
use crate::session::probe::{self, Left, Probe, Topics};
use crate::session::resets::Resets;
use crate::session::sequences::DrawnNumbers;
use crate::session::state::{AllLent, Numbers, Traces};
use crate::session::state_report;
use crate::session::text_history::CANDIDATES_MAX;
use crate::shell::{Exchange, Io};
use crate::values::Values;
use crate::vars::{Slots, TrackedNames, Vars};

const FORGET: &[u8] = b"DISCARD ALL";

impl<X: Exchange> Engine<X> {
    /// The client's transaction is over, and there are traces of it on the server, or of an
    /// earlier one.
    pub(crate) fn judge(&mut self, id: ClientId, on: ServerId, now: Micros, io: &mut impl Io<X>) {
        // After a cancel request the client waits, and goes on when there is a verdict.
        let is_held = matches!(self.client(id).phase, ClientPhase::Preparing(_));
        let server = self.server_mut(on);
        let signs = server.session.traces.signs;
        (server.session.context_changed, server.session.may_set) =
            (server.session.traces.put_off, server.session.traces.put_off);
        if server.session.state_report.is_some() && !server.needs_verdict() && !is_held {
            // What there was is there still, and nothing else.
            (server.session.traces, server.session.resets) = (Traces::default(), Resets::default());
            if !server.has_traces() {
                server.session.before = None;
                return self.unlink(id, on, now, io);
            }
        }
        if server.session.traces.is_empty() {
            server.session.before = None;
        }
        if !server.session.traces.are_due() {
            self.tell_untold(id, now, io);
            if self.clients.contains(id.0 as usize) {
                self.pass_channels(id, on, now, io);
            }
            return;
        }
        if self.server(on).cancel.is_some() {
            return self.await_cancel(id, on, now);
        }
        self.client_mut(id).phase =
            ClientPhase::Preparing(Waiter { client: id, ticket: 0, since: now });
        self.remember_setting_names(on);
        let server = self.server_mut(on);
        let (pool, asks) = (server.pool, server.session.state_report.is_none());
        if !asks && server.session.lent.is_empty() {
            server.phase = ServerPhase::Preparing(Preparation::Probe(None));
            return self.probed(on, now, io);
        }
        // Of statements that were lent no report tells.
        let server = self.server(on);
        let topics = Topics {
            settings: asks && signs.intersects(Signs::SETTINGS | Signs::DISCARD | Signs::OPAQUE),
            objects: asks
                && (server.session.pinned.is_some() || !(Signs::SETTINGS.contains(signs))),
        };
        let Some(view) = self.pools.get(pool) else { return };
        let carried = server.vars.carried.all().iter().map(|setting| &*setting.name);
        let found = server
            .session
            .setting_names
            .iter()
            .flat_map(|names| names.iter())
            .map(|(name, _)| name);
        let customs = carried.filter(|name| name.contains(&b'.')).chain(found);
        let customs: BTreeSet<&[u8]> = view.history.customs().chain(customs).collect();
        let letters = server.letters();
        let customs = customs.into_iter().filter(|name| letters.include(name) == Some(true));
        let login = view.settings.login_user().as_bytes();
        let sql = probe::question(topics, login, customs, &server.session.lent);
        self.ask_what_is_left(on, Preparation::Probe, topics, &sql, now, io);
        self.take_lent_back(on, io);
    }

    /// What this transaction has named others may set unseen.
    pub(crate) fn remember_setting_names(&mut self, on: ServerId) {
        let server = &self.servers[on.0 as usize];
        let Some(view) = self.pools.get_mut(server.pool) else { return };
        let Some(names) = &server.session.setting_names else { return };
        for kind in [true, false] {
            let names = names.iter().filter(|(_, sets)| *sets == kind).take(CANDIDATES_MAX);
            names.for_each(|(name, sets)| view.history.note_custom(name, sets));
        }
    }

    /// It is asked when the cancel request is over, which was meant for the transaction.
    fn await_cancel(&mut self, id: ClientId, on: ServerId, now: Micros) {
        self.client_mut(id).phase =
            ClientPhase::Preparing(Waiter { client: id, ticket: 0, since: now });
        self.server_mut(on).phase = ServerPhase::Preparing(Preparation::AwaitCancel);
    }

    /// Statements that were lent are gone when the probe is answered.
    fn take_lent_back(&mut self, on: ServerId, io: &mut impl Io<X>) {
        let server = self.server(on);
        if server.session.lent.is_empty() {
            return;
        }
        let mut messages = Vec::new();
        server.session.lent.keys().for_each(|name| frontend::close_statement(&mut messages, name));
        frontend::sync(&mut messages);
        let mut expected = vec![Expect::Close; server.session.lent.len()];
        expected.push(Expect::Sync);
        self.ask(on, &expected, 0, &messages, io);
    }

    /// Sends the probe's question; `step` says what becomes of the answer.
    pub(crate) fn ask_what_is_left(
        &mut self,
        on: ServerId,
        step: impl FnOnce(Option<Box<Probe>>) -> Preparation,
        topics: Topics,
        question: &[u8],
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let server = self.server_mut(on);
        server.phase = ServerPhase::Preparing(step(Some(Box::new(Probe::new(topics)))));
        self.send_own_query(on, question, now, io);
    }

    /// The probe is answered, or what it would ask was reported.
    pub(crate) fn probed(&mut self, on: ServerId, now: Micros, io: &mut impl Io<X>) {
        let server = self.server_mut(on);
        let Some(id) = server.client else { return };
        let error = server.own_error.take();
        let answer = server.phase.probe().and_then(Option::take).map(|probe| probe.finish());
        let told = server.session.state_report.as_ref().map(|report| report.state());
        let left = match (answer, told) {
            (None, told) => told.flatten(),
            (Some(answer), None) => answer,
            (Some(answer), Some(told)) => {
                answer.zip(told).map(|(answer, told)| Left { lent: answer.lent, ..told })
            }
        };
        let left = left.filter(|_| error.is_none());
        if let Some(left) = &left {
            self.explain_changes(id, on, left, io);
        }
        let unseen = self.take_events(id, on, left.is_some());
        let server = self.server_mut(on);
        let traces = server.session.traces;
        match left {
            Some(_) => {
                server.session.traces = Traces::default();
                server.session.setting_names = None;
            }
            // It has changed what nobody knows: none of that may be forgotten.
            None => {
                server.session.traces.put_off = true;
                (server.session.context_changed, server.session.may_set) = (true, true);
            }
        }
        let lent = std::mem::take(&mut server.session.lent);
        let mut pins = unseen;
        if !server.session.drawn.is_empty() {
            pins |= Pins::DRAWN;
        }
        if let Some(pinned) = &server.session.pinned {
            pins |= pinned.pins.unseen();
        }
        match left {
            Some(left) => {
                pins |= left.pins;
                self.forget_deallocated(id, &lent, &left);
                let changed = self.take_over(id, on, traces, &left, io);
                self.judge_functions(on, traces, changed, left.pins, now);
                if let Some(channels) = &left.channels
                    && self.hears_on(id, channels)
                {
                    pins |= Pins::LISTEN;
                }
            }
            None => {
                pins |= Pins::UNVERIFIED;
                // Nobody else's question may fail for the sake of names that were only guessed.
                let pool = self.server(on).pool;
                let view = self.pools.get_mut(pool);
                view.into_iter().for_each(|view| view.history.forget_candidates());
            }
        }
        if pins.is_empty() {
            self.server_mut(on).session.pinned = None;
            return self.unlink(id, on, now, io);
        }
        self.pin(on, pins, traces.fingerprint, now);
        if self.prepare(id, on, now, io) == Readable::Now {
            self.tell_untold(id, now, io);
            if self.clients.contains(id.0 as usize) && !self.pass_channels(id, on, now, io) {
                self.go_on(id, io);
            }
        }
    }

    /// Reasons to keep the server that neither its state nor a probe shows. `is_known`: a verdict is
    /// taken from all that was reported.
    fn take_events(&mut self, id: ClientId, on: ServerId, is_known: bool) -> Pins {
        let serial = self.client(id).serial;
        let server = self.server_mut(on);
        let (mut pins, pool) = (server.unseen_pins(), server.pool);
        let Some(report) = &mut server.session.state_report else { return pins };
        let events = report.events();
        match is_known {
            true => report.judged(),
            false => report.put_off(),
        }
        if events.discards {
            server.session.numbers = Numbers::Of(serial);
            if let Some(pinned) = &mut server.session.pinned {
                pinned.pins = pinned.pins.without(Pins::SEQUENCE);
            }
        }
        if let Some(view) = self.pools.get_mut(pool) {
            // From now on nobody in the pool is to find a stranger's.
            view.history.asks_numbers |= events.pins.contains(Pins::SEQUENCE);
            if view.settings.auto_unsupported == Unsupported::Warn {
                pins = pins.without(state_report::OF_EVENTS);
            }
        }
        pins
    }

    /// Tracked parameters have changed, and no text was seen to change them. Those that the session
    /// has set are the client's; else the server's own default is another one.
    fn explain_changes(&mut self, id: ClientId, on: ServerId, left: &Left, io: &mut impl Io<X>) {
        let server = &self.servers[on.0 as usize];
        let Some(report) = &server.session.state_report else { return };
        let unexplained = report.unexplained();
        if unexplained == Slots::default() {
            return;
        }
        let before = report.state_before();
        let names = self.names.clone();
        let is_in = |left: Option<&Left>, slot: usize| {
            let settings = left.and_then(|left| left.settings.as_ref());
            settings
                .is_some_and(|all| all.all().iter().any(|one| names.slot(&one.name) == Some(slot)))
        };
        let there = server.vars.clone();
        let client = &mut self.clients[id.0 as usize];
        let mut out = Vec::new();
        for slot in (0..names.len()).filter(|slot| unexplained.has(*slot)) {
            let Some(value) = there.get(slot) else { continue };
            let is_given = client.given.has(slot);
            if is_in(Some(left), slot) || is_in(before.as_ref(), slot) {
                if is_given {
                    client.vars.change(|vars| vars.set(slot, value));
                    backend::parameter_status(&mut out, names.name(slot).as_bytes(), value);
                }
            } else if let Some(session) = client.session.as_mut().filter(|_| !is_given) {
                session.startup.change(|vars| vars.set(slot, value));
            }
        }
        if !out.is_empty() {
            io.send_client(id, &out);
        }
    }

    /// What was lent and is not there any more its client has deallocated by SQL.
    fn forget_deallocated(&mut self, id: ClientId, lent: &AllLent, left: &Left) {
        let Some(extended) = &mut self.client_mut(id).extended else { return };
        let there: HashSet<&[u8]> = left.lent.iter().map(|name| &**name).collect();
        for name in lent.keys().filter(|name| !there.contains(&***name)) {
            extended.statements.remove(name);
        }
    }

    fn pin(&mut self, on: ServerId, pins: Pins, fingerprint: u64, now: Micros) {
        let server = self.server_mut(on);
        match &mut server.session.pinned {
            Some(pinned) => pinned.pins = pins,
            None => {
                server.session.pinned = Some(Box::new(Pinned { pins, since: now, fingerprint }))
            }
        }
    }

    /// What the server says of its session is what client and server have from now on. True if
    /// anything is not as it was.
    fn take_over(
        &mut self,
        id: ClientId,
        on: ServerId,
        traces: Traces,
        left: &Left,
        io: &mut impl Io<X>,
    ) -> bool {
        self.client_mut(id).session_mut();
        let server = self.server_mut(on);
        let reports = server.session.state_report.is_some();
        let there = server.vars.clone();
        let before = server.session.before.take().unwrap_or_else(|| there.clone());
        let resets = std::mem::take(&mut server.session.resets);
        let names = self.names.clone();
        let mut now_there = Vars::clone(&there);
        if let Some(prepared) = &left.prepared {
            now_there.prepared = prepared.clone();
        }
        if let Some(channels) = &left.channels {
            now_there.channels = self.portable_channels(id, on, channels, left.pins);
        }
        let mut own = now_there.clone();
        let had = &self.client(id).vars.prepared;
        let prepared = match traces.deallocates {
            true => now_there.prepared.clone(),
            // And those that the server could not prepare when the client came.
            false => now_there.prepared.with(had.without(&before.prepared)),
        };
        if let Some(settings) = &left.settings {
            self.learn_customs(on, settings);
            // One that the server has not reported is tracked in vain.
            let untracked = |setting: &&Setting| {
                names.slot(&setting.name).is_none_or(|slot| there.get(slot).is_none())
            };
            let carried = settings.all().iter().filter(untracked).cloned().collect();
            now_there.carried = Carried::new(carried);
            let session = self.client(id).session.as_deref();
            let startup = session.map(|session| session.startup.clone()).unwrap_or_default();
            // A report tells which of the two it is.
            if !reports && !traces.signs.intersects(Signs::OPAQUE) {
                keep_cleared(&mut now_there, &startup, &before, &resets);
            }
            own = now_there.clone();
            go_back(&mut own, &startup, &before, settings);
            let is_reset = |name: &str| traces.resets && resets.may_include(name.as_bytes());
            go_back_tracked(&mut own, &startup, &before, is_reset, settings, &names);
            let client = self.client_mut(id);
            let is_set = settings.all().iter().filter_map(|one| names.slot(&one.name));
            is_set.for_each(|slot| client.given.add(slot));
        }
        stay_as_given(&mut own, self.client(id), &there, &names);
        own.prepared = prepared;
        let changed = now_there != *there;
        let now_there = self.shared_vars.share(Values::new(now_there));
        let own = self.shared_vars.share(Values::new(own));
        self.report_changes(id, &now_there, &own, io);
        self.server_mut(on).vars = now_there;
        self.client_mut(id).vars = own;
        changed
    }

    pub(crate) fn learn_customs(&mut self, on: ServerId, there: &Carried) {
        let pool = self.server(on).pool;
        let Some(view) = self.pools.get_mut(pool) else { return };
        for setting in there.all().iter().filter(|setting| setting.name.contains(&b'.')) {
            view.history.learn_custom(&setting.name);
        }
    }

    /// The client knows what the server has reported; where its own value is another one, it is
    /// told so.
    pub(crate) fn report_changes(
        &self,
        id: ClientId,
        told: &Vars,
        own: &Vars,
        io: &mut impl Io<X>,
    ) {
        let mut out = Vec::new();
        for slot in 0..self.names.len() {
            if let Some(value) = own.get(slot)
                && told.get(slot) != Some(value)
            {
                backend::parameter_status(&mut out, self.names.name(slot).as_bytes(), value);
            }
        }
        if !out.is_empty() {
            io.send_client(id, &out);
        }
    }

    /// If only its functions have made the transaction suspect, something is known of them now.
    fn judge_functions(
        &mut self,
        on: ServerId,
        traces: Traces,
        changed: bool,
        pins: Pins,
        now: Micros,
    ) {
        let schema = self.exchange.schema();
        let server = self.server(on);
        let (pool, was_pinned) = (server.pool, server.session.pinned.is_some());
        if server.session.state_report.is_some() {
            return;
        }
        let (Some(called), Some(view)) = (traces.suspects(), self.pools.get_mut(pool)) else {
            return;
        };
        if changed || !(pins.is_empty() || was_pinned) {
            view.history.has_left_something(called);
        } else if pins.is_empty() && traces.outcome.is_proof() {
            view.history.has_left_nothing(called, schema, now);
        }
    }

    /// The client has gone; what it has left goes too.
    pub(crate) fn forget_session(&mut self, on: ServerId, now: Micros, io: &mut impl Io<X>) {
        let pins = self.server(on).session.pinned.as_ref().map_or(Pins::NONE, |pinned| pinned.pins);
        if !(pins | self.server(on).unseen_pins()).lasting().is_empty() {
            return self.close_server(on, CloseReason::StateCannotBeDiscarded, now, io);
        }
        self.server_mut(on).phase = ServerPhase::Settling(Settling::Forget);
        self.send_own_query(on, FORGET, now, io);
    }

    /// Nothing of the session is left.
    pub(crate) fn session_forgotten(&mut self, on: ServerId, now: Micros, io: &mut impl Io<X>) {
        let server = self.server_mut(on);
        server.session.traces = Traces::default();
        server.session.pinned = None;
        server.session.drawn = DrawnNumbers::default();
        server.session.lent.clear();
        server.session.resets = Resets::default();
        server.session.setting_names = None;
        server.session.state_report.take_if(|report| !report.is_known());
        server.session.state_report.iter_mut().for_each(|report| report.judged());
        server.drop_foreign_settings();
        self.settled(on, now, io);
    }
}

/// A role that was left, or a setting of the application's that was emptied, looks as if it was reset.
/// If nothing of the kind was said it is not: that is its value now, where the startup packet has
/// another one.
fn keep_cleared(there: &mut Vars, startup: &Vars, before: &Vars, resets: &Resets) {
    let names = startup.carried.all().iter().map(|setting| &setting.name);
    let cleared = names.filter(|name| before.carried.get(name).is_some());
    let cleared = cleared.filter(|name| !resets.may_include(name)).filter_map(|name| {
        let value: &[u8] = match &**name {
            ROLE => b"none",
            name if name.contains(&b'.') => b"",
            _ => return None,
        };
        Some(Setting { name: name.clone(), value: value.into() })
    });
    let cleared: Vec<_> = cleared.collect();
    there.carried = there.carried.with(cleared.iter());
}

/// RESET takes a setting back to what it was when the session began. For the server that is its own
/// login; for the client its startup packet, which the server has not seen. `before`: what the
/// server had when the transaction began.
fn go_back(own: &mut Vars, startup: &Vars, before: &Vars, there: &Carried) {
    let mut settings = own.carried.all().to_vec();
    for setting in startup.carried.all() {
        let was_there = before.carried.get(&setting.name).is_some();
        let is_missing =
            there.get(&setting.name).is_none() && own.carried.get(&setting.name).is_none();
        if was_there && is_missing {
            settings.push(setting.clone());
        }
    }
    own.carried = Carried::new(settings);
}

/// What the server has changed by itself, and its client did not follow (`replies/parameters.rs`).
fn stay_as_given(own: &mut Vars, client: &Client, there: &Vars, names: &TrackedNames) {
    for slot in 0..names.len() {
        if let Some(value) = client.vars.get(slot)
            && there.get(slot) != Some(value)
            && client.given.has(slot)
        {
            own.set(slot, value);
        }
    }
}

/// A tracked parameter has been reset if it does not count as set in the session, and is not what
/// it was; or, where what it was is the server's own value, if it was reset by its name.
fn go_back_tracked(
    own: &mut Vars,
    startup: &Vars,
    before: &Vars,
    resets: impl Fn(&str) -> bool,
    there: &Carried,
    names: &TrackedNames,
) {
    for slot in 0..names.len() {
        let is_set = there.all().iter().any(|one| names.slot(&one.name) == Some(slot));
        let changed = before.get(slot) != own.get(slot);
        let is_reset = !is_set && (changed || resets(names.name(slot)));
        if let (Some(value), true) = (startup.get(slot), is_reset) {
            own.set(slot, value);
        }
    }
}
