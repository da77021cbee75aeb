//! Finds out what a client's texts may leave in the session (`pool_mode = auto`). A text is
//! examined while its bytes pass, and the result is added to the server's traces.
//! `session/verdict.rs` acts on them when the transaction is over.
//!
//! On a server that reports its state, texts matter in two cases only: facts that Weir must know
//! before the text is executed, and facts that no report contains (resets and `pin_functions`).

use config::Unsupported;
use sql::{Seen, Signs};

use wire::messages::{Parse, bind_values, call_function, call_values};
use wire::{HEADER_LEN, Header, frontend};

use super::{BROKEN_PARSE, MessageAction, Requests};
use crate::lifecycle::close_reason::CloseReason;
use crate::relay::ledger::{Entry, Expect, Reply, Verb};
use crate::relay::parse_context::{self, ParseContext};
use crate::relay::prepared::Statement;
use crate::session::carried::HIDDEN;
use crate::session::scanning::{Scanning, Searched};
use crate::session::text_history::{Called, TextHistory};
use crate::shell::Exchange;
use crate::vars::STANDARD_CONFORMING_STRINGS;

/// A text up to this length is examined as a whole, a longer one while it is passed on.
const HELD_LEN_MAX: usize = 65_536;
/// An unnamed Parse up to this length is remembered. It has room for the most parameters that are
/// possible, 65,535, with their types.
pub(super) const REMEMBERED_LEN_MAX: usize = 1_048_576;
/// The number of bytes of a Bind or FunctionCall that Weir waits for, to search them for names of
/// settings.
const SEARCHED_LEN_MAX: usize = 65_536;

/// OIDs of PostgreSQL's large-object functions that libpq calls by FunctionCall (`pg_proc.dat`).
/// They leave nothing in the session.
const LARGE_OBJECTS: [u32; 13] =
    [715, 952, 953, 954, 955, 956, 957, 958, 964, 1004, 3170, 3171, 3172];

/// Signs of a text that may set a setting for which the probe must ask by name.
const MAY_SET: Signs = Signs::SETTINGS.with(Signs::OPAQUE);

/// Signs of a text that needs a session of its own, and whose effect a probe cannot see.
const UNSEEN: Signs = Signs::SEQUENCE.with(Signs::SEED).with(Signs::LOAD);

/// Signs of a text that Weir may have to answer itself.
pub(super) const ANSWERED: Signs = Signs::SEQUENCE.with(Signs::SIGNALS);

/// Sent in place of a refused text. So PostgreSQL itself reports the error and fails the
/// transaction as after any other error.
const REFUSAL: &[u8] = b"DO $weir$BEGIN RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = \
    'this statement needs a session of its own (auto_unsupported = error)'; END$weir$";

/// A worker's knowledge of texts.
pub(super) struct Texts<'a> {
    pub(super) cache: &'a mut sql::Cache,
    pub(super) history: &'a mut TextHistory,
}

impl Texts<'_> {
    /// Does Weir expect that the client asks for the number that the text draws?
    #[inline]
    pub(super) fn is_watched(&self, seen: Seen) -> bool {
        seen.draws != 0 && self.history.sequences.is_watched(seen.draws)
    }
}

/// The purpose of a text.
#[derive(Clone, Copy)]
pub(super) enum Sent<'a> {
    /// It is executed.
    Query,
    /// It is prepared.
    Parse,
    /// It was prepared earlier, and is executed with the parameters in this body.
    Bind(&'a [u8]),
    /// A function is called with the arguments in this body.
    Call(&'a [u8]),
}

impl<'a> Sent<'a> {
    fn body(self) -> &'a [u8] {
        match self {
            Self::Query | Self::Parse => &[],
            Self::Bind(body) | Self::Call(body) => body,
        }
    }

    /// Calls `note` with each parameter, or its first part, within the searched bytes.
    fn each_value(self, note: impl FnMut(&[u8])) {
        let body = self.body();
        let searched = &body[..body.len().min(SEARCHED_LEN_MAX)];
        match self {
            Self::Query | Self::Parse => {}
            Self::Bind(_) => bind_values(searched).for_each(note),
            Self::Call(_) => call_values(searched).for_each(note),
        }
    }

    /// May there be parameters beyond the searched bytes?
    fn is_cut(self) -> bool {
        self.body().len() + HEADER_LEN >= SEARCHED_LEN_MAX
    }
}

/// The treatment of a text.
pub(super) enum TextCheck {
    Pass(Seen),
    /// More of the text is needed.
    Hold,
    /// This text is sent in its place.
    Replace(&'static [u8]),
}

/// The treatment of a Query that is not passed on unchanged.
pub(super) enum NotPassed {
    Hold,
    /// This text is sent in its place.
    #[expect(clippy::box_collection, reason = "what is returned for every Query should be small")]
    Replace(Box<Vec<u8>>),
}

impl<X: Exchange> Requests<'_, X> {
    /// The Query in front is held or replaced.
    #[cold]
    pub(super) fn answer_otherwise(&mut self, not_passed: NotPassed) -> MessageAction {
        match not_passed {
            NotPassed::Hold => MessageAction::Hold,
            NotPassed::Replace(text) => {
                self.owe_without_unnamed(Entry::new(Expect::Query, Verb::Forward));
                frontend::query(self.out.insert(), &text);
                MessageAction::Replaced
            }
        }
    }

    /// Examines the Query in front. Ok: it is passed on; what was seen in it.
    #[inline(always)]
    pub(super) fn see_query(
        &mut self,
        header: Header,
        available: usize,
    ) -> Result<Seen, NotPassed> {
        if self.texts.is_none() {
            return Ok(Seen::default());
        }
        if available < header.total {
            if header.total <= HELD_LEN_MAX {
                return Err(NotPassed::Hold);
            }
            self.begin_scan(Sent::Query, header, available);
            return Ok(Seen::default());
        }
        let input = self.input;
        let body = &input[self.at + HEADER_LEN..self.at + header.total];
        let text = body.strip_suffix(&[0]).unwrap_or(body);
        match self.see(text, Sent::Query) {
            TextCheck::Pass(seen) if seen.signs.intersects(ANSWERED) => {
                self.see_answered(seen, text)
            }
            TextCheck::Pass(seen) => Ok(seen),
            TextCheck::Hold => Err(NotPassed::Hold),
            TextCheck::Replace(text) => Err(NotPassed::Replace(Box::new(text.to_vec()))),
        }
    }

    /// Examines a Parse of the unnamed statement, which may be incomplete.
    pub(super) fn see_parse(
        &mut self,
        header: Header,
        available: usize,
    ) -> Result<TextCheck, String> {
        if self.texts.is_none() {
            return Ok(TextCheck::Pass(Seen::default()));
        }
        if available < header.total {
            self.begin_scan(Sent::Parse, header, available);
            return Ok(TextCheck::Pass(Seen { signs: Signs::OPAQUE, ..Seen::default() }));
        }
        let input = self.input;
        let body = &input[self.at + HEADER_LEN..self.at + header.total];
        let parse = Parse::decode(body).map_err(|_| BROKEN_PARSE.to_owned())?;
        Ok(self.see(parse.sql, Sent::Parse))
    }

    /// Is `standard_conforming_strings` on, so that a backslash in a string is only a backslash?
    pub(super) fn has_standard_strings(&self) -> bool {
        let value = self.server.vars.get(STANDARD_CONFORMING_STRINGS);
        // The value may still be spelled as in the client's startup packet.
        value.is_none_or(|value| !value.eq_ignore_ascii_case(b"off"))
    }

    /// May that setting have changed when PostgreSQL reads the next message? Unanswered messages
    /// may change it, if only for the transaction.
    fn is_unsure_of_strings(&self) -> bool {
        let signs = self.server.session.traces.signs;
        self.server.context_change.is_possible()
            || signs.intersects(Signs::SETTINGS | Signs::OPAQUE)
    }

    /// Examines a text.
    pub(super) fn see(&mut self, text: &[u8], sent: Sent<'_>) -> TextCheck {
        let standard = self.has_standard_strings();
        let unsure = self.is_unsure_of_strings();
        let Some(texts) = &mut self.texts else { return TextCheck::Pass(Seen::default()) };
        let seen = texts.cache.scan(text);
        let refuses = self.settings.auto_unsupported == Unsupported::Error;
        if refuses && seen.signs.intersects(UNSEEN) {
            // A text is not refused for a sign that only one of two readings shows.
            let is_certain = |standard| sql::scan(text, standard).signs.intersects(UNSEEN);
            if unsure || is_certain(standard) {
                return TextCheck::Replace(REFUSAL);
            }
        }
        let names_others = seen.signs.contains(Signs::PREPARED);
        if names_others && self.awaits_names_in(text) {
            return TextCheck::Hold;
        }
        self.leaves(seen, || text, sent);
        if names_others {
            self.lend(text);
        }
        TextCheck::Pass(seen)
    }

    /// Begins to examine a long text in the message in front, a Query or an unnamed Parse. Its
    /// first part is in the input.
    fn begin_scan(&mut self, sent: Sent<'_>, header: Header, available: usize) {
        let is_parse = matches!(sent, Sent::Parse);
        // The empty name of the unnamed statement is before its text.
        let text_at = HEADER_LEN + usize::from(is_parse);
        let input = self.input;
        let (before, text) = input[self.at..self.at + available].split_at(text_at);
        // It would be known too late whether the text asks for a number.
        if !self.is_set_in_transaction(text) {
            self.forget_strangers();
        }
        // Its serial number comes after that query's.
        let parse = if is_parse { self.next_serial() } else { 0 };
        let mut scanning = Box::new(Scanning::new(self.server.letters_of_client(), parse));
        if parse != 0 && header.total <= REMEMBERED_LEN_MAX {
            scanning.message = Some(before.to_vec());
        }
        scanning.feed(text, |part| self.search(part));
        self.server.session.own().scanning = Some(scanning);
    }

    /// Examines the next part. `is_last`: the part ends the message.
    #[cold]
    pub(super) fn go_on_scan(&mut self, part: &[u8], is_last: bool) {
        let Some(mut scanning) = self.server.session.own().scanning.take() else { return };
        scanning.feed(part, |part| self.search(part));
        if !is_last {
            self.server.session.own().scanning = Some(scanning);
            return;
        }
        let parse = scanning.parse;
        let message = scanning.message.take();
        let found = scanning.found;
        let (mut seen, names, head) = scanning.finish();
        if found.hidden && seen.signs.intersects(Signs::SETTINGS) {
            seen.signs |= Signs::LOAD;
        }
        self.leaves(seen, || &head, if parse == 0 { Sent::Query } else { Sent::Parse });
        if found.pinned && !self.server.session.traces.named {
            self.client.session_mut();
            self.server.suspect(Signs::OPAQUE, Called::default(), Some(&head));
            self.server.session.own().traces.named = true;
        }
        if seen.signs.intersects(MAY_SET) {
            let sets = seen.signs.intersects(Signs::SETTINGS);
            self.server.note_settings(|all| all.absorb(names, sets));
        }
        if seen.signs.intersects(Signs::SETTINGS | Signs::LOCAL) {
            // Only the beginning was kept, so the rest may set anything.
            self.server.context_change.note();
            let session = self.server.session.own();
            session.may_set = true;
            session.traces.outcome.doubtful = true;
        }
        if let Some(own) = self.client.extended.as_mut().filter(|_| parse != 0) {
            own.unnamed.complete(parse, seen, message);
        }
    }

    /// Searches a part of a text for certain words.
    fn search(&self, part: &[u8]) -> Searched {
        Searched { pinned: self.settings.pins(part), hidden: is_hidden(part) }
    }

    /// A function is called by its number, or an unknown statement is used.
    pub(super) fn see_unknown(&mut self, sent: Sent<'_>) -> Signs {
        let seen = Seen { signs: Signs::OPAQUE, ..Seen::default() };
        self.leaves(seen, || &[], sent);
        seen.signs
    }

    /// A function is called by its number. False if more of the message is needed.
    pub(super) fn see_call(&mut self, header: Header, available: usize) -> bool {
        let body = &self.input[self.at + HEADER_LEN..self.at + available];
        if self.texts.is_none() || call_function(body).is_some_and(|it| LARGE_OBJECTS.contains(&it))
        {
            return true;
        }
        let is_there = !self.is_searched_later(header, available);
        if is_there {
            self.see_unknown(Sent::Call(body));
        }
        is_there
    }

    /// Examines a Bind of the unnamed statement, or of an unknown one.
    pub(super) fn see_bind(&mut self, name: &[u8], bind: &[u8]) -> Signs {
        if self.texts.is_none() {
            return Signs::NONE;
        }
        if name.is_empty()
            && let Some(own) = self.client.extended.take()
        {
            let seen = own.unnamed.seen();
            self.leaves(seen, || own.unnamed.text(), Sent::Bind(bind));
            let names_others = seen.signs.contains(Signs::PREPARED);
            let text = names_others.then(|| own.unnamed.text().to_vec());
            self.client.extended = Some(own);
            if let Some(text) = text {
                self.lend(&text);
            }
            seen.signs
        } else {
            self.see_unknown(Sent::Bind(bind))
        }
    }

    /// Examines the use of a statement with these parameters.
    pub(super) fn see_use(&mut self, statement: &Statement, bind: &[u8]) -> Signs {
        if self.texts.is_none() {
            return Signs::NONE;
        }
        let seen = statement.seen();
        self.leaves(seen, || &statement.sql, Sent::Bind(bind));
        self.lend_for(statement);
        seen.signs
    }

    /// Is more needed of a Bind of that statement, because its parameters may contain names of
    /// settings?
    pub(super) fn needs_more(&self, name: &[u8], header: Header, available: usize) -> bool {
        if !self.is_searched_later(header, available) {
            return false;
        }
        let own = self.client.extended.as_ref();
        let seen = own.and_then(|own| match name {
            b"" => Some(own.unnamed.seen()),
            name => own.statements.find(name).map(|found| found.used.statement.seen()),
        });
        seen.is_none_or(|seen| seen.signs.intersects(Signs::SETTINGS | Signs::OPAQUE))
    }

    /// Are parameters of the message in front still to come, within the searched bytes?
    pub(super) fn is_searched_later(&self, header: Header, available: usize) -> bool {
        self.texts.is_some() && available < header.total.min(SEARCHED_LEN_MAX)
    }

    /// A statement may name other statements. These are lent to the server.
    pub(super) fn lend_for(&mut self, statement: &Statement) {
        if self.texts.is_some() && statement.seen().signs.contains(Signs::PREPARED) {
            self.lend(&statement.sql);
        }
    }

    /// Most texts leave nothing, and then nobody asks for theirs.
    #[inline]
    fn leaves<'t>(&mut self, seen: Seen, text: impl FnOnce() -> &'t [u8], sent: Sent<'_>) {
        if self.looks_at(seen) {
            self.leave_traces(seen, text(), sent);
        } else if seen.draws != 0 {
            self.server.session.own().last_draw = seen.draws;
        }
    }

    #[inline]
    fn looks_at(&self, seen: Seen) -> bool {
        let Some(texts) = &self.texts else { return false };
        texts.history.asks_numbers
            || !self.settings.pin_functions.is_empty()
            || !seen.signs.is_empty()
            || texts.is_watched(seen)
    }

    #[cold]
    fn leave_traces(&mut self, seen: Seen, text: &[u8], sent: Sent<'_>) {
        // Also a function that leaves nothing in the session.
        if seen.signs.intersects(Signs::OPAQUE) {
            self.server.note_unseen_changes();
        }
        self.guard_numbers(seen, text);
        if !matches!(sent, Sent::Parse) {
            self.note_draws(seen);
        }
        // A text that should be refused comes here only if part of it was already sent, or if it
        // was prepared before a reload.
        let warns = self.settings.auto_unsupported == Unsupported::Warn;
        let quiet = Signs::DRAWS | Signs::LOCAL | Signs::SIGNALS | Signs::PROCESS_ID;
        let quiet = if warns { quiet | UNSEEN } else { quiet };
        // Once for a text, and not for each use of a statement.
        if warns && !matches!(sent, Sent::Bind(_)) && seen.signs.intersects(UNSEEN) {
            // The entry is for the warning only: the server gets no message.
            self.owe(Entry::new(Expect::Close, Verb::Synthesize(Reply::Unsupported)));
        }
        let mut signs = seen.signs.without(quiet);
        let parameters = sent.body();
        let moves = parse_context::may_change_context(seen.signs, text, parameters);
        let reports = self.server.session.state_report.is_some();
        let called = match reports {
            true => Called::default(),
            false => self.called(seen.functions, moves),
        };
        self.server.session.own().traces.outcome.doubtful |= moves;
        let may_set =
            self.server.session.may_set || self.may_set(seen.signs, moves, [text, parameters]);
        self.server.session.own().may_set = may_set;
        let Some(texts) = &mut self.texts else { return };
        let named = self.settings.pins(text);
        if named {
            signs |= Signs::OPAQUE;
        } else if seen.signs.contains(Signs::PROCESS_ID) && sql::keeps_process_id(text) {
            self.stats.process_ids += 1;
        }
        // If the server is probed anyway, the probe also covers these functions.
        let may_pass = signs == Signs::OPAQUE && called.here != 0 && !self.server.has_traces();
        let is_harmless =
            may_pass && texts.history.is_harmless(called, self.exchange.schema(), self.now);
        let is_unknown = seen.signs.intersects(Signs::OPAQUE) && !is_harmless;
        // A temporary table hides a table of the same name.
        let may_hide = signs.intersects(Signs::TEMPORARY);
        if moves || is_unknown || may_hide {
            self.server.context_change.note();
        }
        if signs.is_empty() || (is_harmless && !named) {
            return;
        }
        if !reports
            && signs.intersects(Signs::SETTINGS)
            && (is_hidden(text) || is_hidden(parameters))
        {
            signs |= Signs::LOAD;
        }
        self.client.session_mut();
        self.server.suspect(signs, called, Some(text));
        if signs.intersects(Signs::SETTINGS | Signs::DISCARD) || text.is_empty() {
            self.server.session.own().resets.note(text);
        }
        if signs.intersects(MAY_SET) {
            self.note_settings(seen.signs, text, sent);
            let is_unsearched = !seen.signs.intersects(Signs::SETTINGS) && sent.is_cut();
            if is_unsearched && !reports {
                self.server.doomed.retire(CloseReason::SettingsUnknown);
            }
        }
        let traces = &mut self.server.session.own().traces;
        traces.named |= named;
        traces.outcome.called |= !matches!(sent, Sent::Parse);
    }

    /// Notes possible names of settings in a text and its parameters.
    fn note_settings(&mut self, signs: Signs, text: &[u8], sent: Sent<'_>) {
        let sets = signs.intersects(Signs::SETTINGS);
        // It is unknown what the Bind executes. SQL may have prepared it.
        let is_unknown = text.is_empty() && matches!(sent, Sent::Bind(_));
        self.server.note_settings(|names| {
            names.note(text, sets);
            sent.each_value(|value| names.note(value, sets));
            names.incomplete |= sets && (sent.is_cut() || is_unknown);
        });
        if !is_unknown && !signs.contains(Signs::PREPARED | Signs::OPAQUE) {
            return;
        }
        // EXECUTE runs a text that was prepared earlier.
        let prepared = [&self.server.vars, &self.client.vars].map(|vars| vars.prepared.clone());
        for one in prepared.iter().flat_map(|prepared| prepared.all()) {
            self.server.note_settings(|names| names.note(&one.value, true));
        }
    }

    /// May a text with these signs set a tracked parameter? A setting for the transaction only
    /// (LOCAL) counts if the text names one. `parts`: the text, and its parameters.
    fn may_set(&self, signs: Signs, moves: bool, parts: [&[u8]; 2]) -> bool {
        let says =
            |name: &String| parts.iter().any(|part| parse_context::contains(part, name.as_bytes()));
        signs.intersects(Signs::SETTINGS | Signs::OPAQUE | Signs::DISCARD)
            || signs.contains(Signs::LOCAL) && (moves || self.names.all().iter().any(says))
    }

    /// Identifies these functions as their names resolve at present. `moves`: the text itself
    /// changes where names are looked up.
    fn called(&self, functions: u64, moves: bool) -> Called {
        // Functions that are already suspected are suspected of changing that as well.
        let traces = &self.server.session.traces;
        let is_suspect = !traces.is_empty() && traces.called.names == functions;
        let is_unknown = moves || (self.server.context_change.is_possible() && !is_suspect);
        let here = match functions == 0 || is_unknown {
            true => 0,
            false => ParseContext::of(&self.client.vars, self.names).digest(functions),
        };
        Called { names: functions, here }
    }
}

/// Does the text name a setting that PostgreSQL shows only to members of `pg_read_all_settings`?
/// The probe may run as a user who is no member.
fn is_hidden(text: &[u8]) -> bool {
    // Most of a long text is data, so only the words around a `_` are compared.
    let mut from = 0;
    while let Some(at) = text.get(from..).and_then(|rest| rest.iter().position(|it| *it == b'_')) {
        let (before, after) = text.split_at(from + at);
        let is_there = |name: &&[u8]| {
            let at = name.iter().position(|it| *it == b'_').unwrap_or_default();
            let (first, rest) = name.split_at(at);
            let start = before.len().checked_sub(first.len()).and_then(|at| before.get(at..));
            start.is_some_and(|start| start.eq_ignore_ascii_case(first))
                && after.get(..rest.len()).is_some_and(|end| end.eq_ignore_ascii_case(rest))
        };
        if HIDDEN.iter().any(is_there) {
            return true;
        }
        from += at + 1;
    }
    false
}
