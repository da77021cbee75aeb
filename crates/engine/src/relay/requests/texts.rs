//! What the texts that a client sends may leave in its session (`pool_mode = auto`). A text is
//! looked at as its bytes come by, and what is found is entered with the server's traces; what it
//! leads to comes at the end of the transaction (`session/verdict.rs`). A server that reports its state
//! needs the text only for what has to be known before it is run, and for what it reports to none: what
//! was reset, and `pin_functions`.

use config::Unsupported;
use sql::{Seen, Signs};

use wire::messages::{Parse, bind_values, call_function, call_values};
use wire::{HEADER_LEN, Header};

use super::{BROKEN_PARSE, Requests};
use crate::lifecycle::close_reason::CloseReason;
use crate::relay::ledger::{Entry, Expect, Reply, Verb};
use crate::relay::parse_context::{self, ParseContext};
use crate::relay::prepared::Statement;
use crate::session::scanning::{HEAD_LEN_MAX, Scanning, Searched};
use crate::session::text_history::{Called, TextHistory};
use crate::shell::Exchange;
use crate::vars::STANDARD_CONFORMING_STRINGS;

/// A text up to this length is looked at as a whole, and a longer one while it is passed on.
const HELD_LEN_MAX: usize = 65_536;
/// An unnamed Parse up to this length is remembered as shorter ones are: one with as many parameters
/// as there can be, 65,535, and their types.
pub(super) const REMEMBERED_LEN_MAX: usize = 1_048_576;
/// Names of settings are looked for in so many bytes of a Bind or FunctionCall, which are waited for.
const SEARCHED_LEN_MAX: usize = 65_536;

/// The numbers of PostgreSQL's functions for large objects that libpq calls by FunctionCall
/// (`pg_proc.dat`): they leave nothing in the session.
const LARGE_OBJECTS: [u32; 13] =
    [715, 952, 953, 954, 955, 956, 957, 958, 964, 1004, 3170, 3171, 3172];

/// What may set a setting that has to be asked about by its name.
const MAY_SET: Signs = Signs::SETTINGS.with(Signs::OPAQUE);

/// What needs a session of its own and leaves nothing by which a probe could see it.
const UNSEEN: Signs = Signs::SEQUENCE.with(Signs::SEED).with(Signs::LOAD);

/// What may have to be answered with something else than PostgreSQL's own answer.
pub(super) const ANSWERED: Signs = Signs::SEQUENCE.with(Signs::SIGNALS);

/// Sent in place of a text that is refused, so that PostgreSQL itself says so and treats the
/// transaction as it does with any error.
const REFUSAL: &[u8] = b"DO $weir$BEGIN RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = \
    'this statement needs a session of its own (auto_unsupported = error)'; END$weir$";

/// What is known of texts.
pub(super) struct Texts<'a> {
    pub(super) cache: &'a mut sql::Cache,
    pub(super) history: &'a mut TextHistory,
}

impl Texts<'_> {
    /// May a text draw a number for which its client asks in its next transaction?
    #[inline]
    pub(super) fn is_watched(&self, seen: Seen) -> bool {
        seen.draws != 0 && self.history.sequences.is_watched(seen.draws)
    }
}

/// What a text is sent for.
#[derive(Clone, Copy)]
pub(super) enum Sent<'a> {
    /// To be run.
    Query,
    /// To be prepared.
    Parse,
    /// It was prepared before, and is to be run with the parameters in this body.
    Bind(&'a [u8]),
    /// A function is to be run with the arguments in this body.
    Call(&'a [u8]),
}

impl<'a> Sent<'a> {
    fn body(self) -> &'a [u8] {
        match self {
            Self::Query | Self::Parse => &[],
            Self::Bind(body) | Self::Call(body) => body,
        }
    }

    /// Each parameter, or the first part of it, as far as they are looked at.
    fn each_value(self, note: impl FnMut(&[u8])) {
        let body = self.body();
        let searched = &body[..body.len().min(SEARCHED_LEN_MAX)];
        match self {
            Self::Query | Self::Parse => {}
            Self::Bind(_) => bind_values(searched).for_each(note),
            Self::Call(_) => call_values(searched).for_each(note),
        }
    }

    /// May there be more parameters than are looked at?
    fn is_cut(self) -> bool {
        self.body().len() + HEADER_LEN >= SEARCHED_LEN_MAX
    }
}

/// What becomes of a text.
pub(super) enum TextCheck {
    Pass(Seen),
    /// More of it is needed.
    Hold,
    /// This goes in its place.
    Replace(&'static [u8]),
}

/// What becomes of a Query that is not passed on as it is.
pub(super) enum NotPassed {
    Hold,
    /// This text goes in its place.
    #[expect(clippy::box_collection, reason = "what is returned for every Query should be small")]
    Replace(Box<Vec<u8>>),
}

/// Of the settings that PostgreSQL hides from most, those that a session can change.
const HIDDEN: [&[u8]; 2] = [b"dynamic_library_path", b"extension_control_path"];

impl<X: Exchange> Requests<'_, X> {
    /// A Query is in front. Ok: what was seen in it, which is passed on.
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

    /// A Parse of the unnamed statement, which may not be there as a whole.
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

    /// Is a backslash in the client's strings no more than that?
    pub(super) fn has_standard_strings(&self) -> bool {
        let value = self.server.vars.get(STANDARD_CONFORMING_STRINGS);
        // A startup packet's own spelling stands where the server has that value by itself.
        value.is_none_or(|value| !value.eq_ignore_ascii_case(b"off"))
    }

    /// May that be otherwise when PostgreSQL comes to what is sent now? What has been sent already, and
    /// is not answered yet, may change it, if only for the transaction.
    fn is_unsure_of_strings(&self) -> bool {
        let signs = self.server.session.traces.signs;
        self.server.session.context_changed || signs.intersects(Signs::SETTINGS | Signs::OPAQUE)
    }

    /// A text.
    pub(super) fn see(&mut self, text: &[u8], sent: Sent<'_>) -> TextCheck {
        let standard = self.has_standard_strings();
        let unsure = self.is_unsure_of_strings();
        let Some(texts) = &mut self.texts else { return TextCheck::Pass(Seen::default()) };
        let seen = texts.cache.scan(text);
        let refuses = self.settings.auto_unsupported == Unsupported::Error;
        if refuses && seen.signs.intersects(UNSEEN) {
            // What it says in one reading alone is no reason to refuse it.
            let is_certain = |standard| sql::scan(text, standard).signs.intersects(UNSEEN);
            if unsure || is_certain(standard) {
                return TextCheck::Replace(REFUSAL);
            }
        }
        let names_others = seen.signs.contains(Signs::PREPARED);
        if names_others && self.awaits_names_in(text) {
            return TextCheck::Hold;
        }
        self.leaves(seen, text, sent);
        if names_others {
            self.lend(text);
        }
        TextCheck::Pass(seen)
    }

    /// The message in front, a Query or an unnamed Parse, has a long text, the first part of which is
    /// there.
    fn begin_scan(&mut self, sent: Sent<'_>, header: Header, available: usize) {
        let is_parse = matches!(sent, Sent::Parse);
        // The name of that statement, which is empty, is before its text.
        let text_at = HEADER_LEN + usize::from(is_parse);
        let input = self.input;
        let (before, text) = input[self.at..self.at + available].split_at(text_at);
        // What it asks for is known when it is too late.
        if !self.is_set_in_transaction(text) {
            self.forget_strangers();
        }
        // Behind that.
        let parse = if is_parse { self.next_serial() } else { 0 };
        let mut scanning = Box::new(Scanning::new(self.server.letters_of_client(), parse));
        if parse != 0 && header.total <= REMEMBERED_LEN_MAX {
            scanning.message = Some(before.to_vec());
        }
        scanning.feed(text, |part| self.search(part));
        self.server.session.scanning = Some(scanning);
    }

    /// The next part of it is there; `is_last`: the message's end.
    #[cold]
    pub(super) fn go_on_scan(&mut self, part: &[u8], is_last: bool) {
        let Some(mut scanning) = self.server.session.scanning.take() else { return };
        scanning.feed(part, |part| self.search(part));
        if !is_last {
            self.server.session.scanning = Some(scanning);
            return;
        }
        let parse = scanning.parse;
        let message = scanning.message.take();
        let found = scanning.found;
        let (mut seen, names, head) = scanning.finish();
        if found.hidden && seen.signs.intersects(Signs::SETTINGS) {
            seen.signs |= Signs::LOAD;
        }
        self.leaves(seen, &head, if parse == 0 { Sent::Query } else { Sent::Parse });
        if found.pinned && !self.server.session.traces.named {
            self.client.session_mut();
            self.server.suspect(Signs::OPAQUE, Called::default(), fingerprint(&head));
            self.server.session.traces.named = true;
        }
        if seen.signs.intersects(MAY_SET) {
            let sets = seen.signs.intersects(Signs::SETTINGS);
            self.server.note_settings(|all| all.absorb(names, sets));
        }
        if seen.signs.intersects(Signs::SETTINGS | Signs::LOCAL) {
            // It may set anything behind its beginning, which alone was kept.
            (self.server.session.context_changed, self.server.session.may_set) = (true, true);
            self.server.session.traces.outcome.doubtful = true;
        }
        let own = self.client.extended.as_mut().filter(|own| parse != 0 && own.unnamed == parse);
        if let Some(own) = own {
            own.unnamed_seen = seen;
            own.unnamed_parse = message.unwrap_or_default();
        }
    }

    /// What is known of a part of a text by its words.
    fn search(&self, part: &[u8]) -> Searched {
        Searched { pinned: self.settings.pins(part), hidden: is_hidden(part) }
    }

    /// A function is called by its number, or a statement is used that we know nothing of.
    pub(super) fn see_unknown(&mut self, sent: Sent<'_>) -> Signs {
        let seen = Seen { signs: Signs::OPAQUE, ..Seen::default() };
        self.leaves(seen, &[], sent);
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

    /// A Bind of the unnamed statement, or of one that we know nothing of.
    pub(super) fn see_bind(&mut self, name: &[u8], bind: &[u8]) -> Signs {
        if self.texts.is_none() {
            return Signs::NONE;
        }
        if name.is_empty()
            && let Some(own) = self.client.extended.take()
        {
            let seen = own.unnamed_seen;
            self.leaves(seen, text_of(&own.unnamed_parse), Sent::Bind(bind));
            let names_others = seen.signs.contains(Signs::PREPARED);
            let parse = names_others.then(|| own.unnamed_parse.clone());
            self.client.extended = Some(own);
            if let Some(parse) = parse {
                self.lend(text_of(&parse));
            }
            seen.signs
        } else {
            self.see_unknown(Sent::Bind(bind))
        }
    }

    /// A statement is used with these parameters.
    pub(super) fn see_use(&mut self, statement: &Statement, bind: &[u8]) -> Signs {
        if self.texts.is_none() {
            return Signs::NONE;
        }
        let seen = statement.seen();
        self.leaves(seen, &statement.sql, Sent::Bind(bind));
        self.lend_for(statement);
        seen.signs
    }

    /// Is more needed of a Bind of that statement, since names of settings may be among its
    /// parameters?
    pub(super) fn needs_more(&self, name: &[u8], header: Header, available: usize) -> bool {
        if !self.is_searched_later(header, available) {
            return false;
        }
        let own = self.client.extended.as_ref();
        let seen = own.and_then(|own| match name {
            b"" => Some(own.unnamed_seen),
            name => own.statements.find(name).map(|found| found.used.statement.seen()),
        });
        seen.is_none_or(|seen| seen.signs.intersects(Signs::SETTINGS | Signs::OPAQUE))
    }

    /// Is more to come of the parameters of the message in front that are looked at?
    pub(super) fn is_searched_later(&self, header: Header, available: usize) -> bool {
        self.texts.is_some() && available < header.total.min(SEARCHED_LEN_MAX)
    }

    /// A statement may name others; what it names is looked up.
    pub(super) fn lend_for(&mut self, statement: &Statement) {
        if self.texts.is_some() && statement.seen().signs.contains(Signs::PREPARED) {
            self.lend(&statement.sql);
        }
    }

    #[inline]
    fn leaves(&mut self, seen: Seen, text: &[u8], sent: Sent<'_>) {
        if self.looks_at(seen) {
            self.leave_traces(seen, text, sent);
        } else if seen.draws != 0 {
            self.server.session.last_draw = seen.draws;
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
        self.guard_numbers(seen, text);
        if !matches!(sent, Sent::Parse) {
            self.note_draws(seen);
        }
        // What is to be refused comes here only if it cannot be: it has been passed on in part, or was
        // prepared before a reload.
        let warns = self.settings.auto_unsupported == Unsupported::Warn;
        let quiet = Signs::DRAWS | Signs::LOCAL | Signs::SIGNALS;
        let quiet = if warns { quiet | UNSEEN } else { quiet };
        // Once for a text, and not for each use of a statement.
        if warns && !matches!(sent, Sent::Bind(_)) && seen.signs.intersects(UNSEEN) {
            // The server is sent nothing for it, so nothing is expected of it either.
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
        self.server.session.traces.outcome.doubtful |= moves;
        self.server.session.may_set =
            self.server.session.may_set || self.may_set(seen.signs, moves, [text, parameters]);
        let Some(texts) = &mut self.texts else { return };
        let named = self.settings.pins(text);
        if named {
            signs |= Signs::OPAQUE;
        }
        // Where the question is asked anyway it is asked about them as well.
        let may_pass = signs == Signs::OPAQUE && called.here != 0 && !self.server.has_traces();
        let is_harmless =
            may_pass && texts.history.is_harmless(called, self.exchange.schema(), self.now);
        let is_unknown = seen.signs.intersects(Signs::OPAQUE) && !is_harmless;
        // A temporary table hides another one.
        let may_hide = signs.intersects(Signs::TEMPORARY);
        self.server.session.context_changed |= moves || is_unknown || may_hide;
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
        self.server.suspect(signs, called, fingerprint(text));
        if signs.intersects(Signs::SETTINGS | Signs::DISCARD) || text.is_empty() {
            self.server.session.resets.note(text);
        }
        if signs.intersects(MAY_SET) {
            self.note_settings(seen.signs, text, sent);
            let is_unsearched = !seen.signs.intersects(Signs::SETTINGS) && sent.is_cut();
            if is_unsearched && !reports {
                self.server.doomed.get_or_insert(CloseReason::SettingsUnknown);
            }
        }
        self.server.session.traces.named |= named;
        self.server.session.traces.outcome.called |= !matches!(sent, Sent::Parse);
    }

    /// Notes what may be names of settings in a text and in its parameters.
    fn note_settings(&mut self, signs: Signs, text: &[u8], sent: Sent<'_>) {
        let sets = signs.intersects(Signs::SETTINGS);
        // What it runs is not known: it may be what SQL has prepared.
        let is_unknown = text.is_empty() && matches!(sent, Sent::Bind(_));
        self.server.note_settings(|names| {
            names.note(text, sets);
            sent.each_value(|value| names.note(value, sets));
            names.incomplete |= sets && (sent.is_cut() || is_unknown);
        });
        if !is_unknown && !signs.contains(Signs::PREPARED | Signs::OPAQUE) {
            return;
        }
        // EXECUTE runs what was prepared before.
        let prepared = [&self.server.vars, &self.client.vars].map(|vars| vars.prepared.clone());
        for one in prepared.iter().flat_map(|prepared| prepared.all()) {
            self.server.note_settings(|names| names.note(&one.value, true));
        }
    }

    /// May a text with these signs set a tracked parameter? What is set for the transaction only is
    /// mostly something else. `parts`: the text, and what it is run with.
    fn may_set(&self, signs: Signs, moves: bool, parts: [&[u8]; 2]) -> bool {
        let says =
            |name: &String| parts.iter().any(|part| parse_context::contains(part, name.as_bytes()));
        signs.intersects(Signs::SETTINGS | Signs::OPAQUE | Signs::DISCARD)
            || signs.contains(Signs::LOCAL) && (moves || self.names.all().iter().any(says))
    }

    /// These functions as they are found by their names at present: elsewhere they may be others.
    /// `moves`: the text itself changes where they are looked up.
    fn called(&self, functions: u64, moves: bool) -> Called {
        // What is suspected already is so of being moved elsewhere, too, and may be the same.
        let traces = &self.server.session.traces;
        let is_suspect = !traces.is_empty() && traces.called.names == functions;
        let is_unknown = moves || (self.server.session.context_changed && !is_suspect);
        let here = match functions == 0 || is_unknown {
            true => 0,
            false => ParseContext::of(&self.client.vars, self.names).digest(functions),
        };
        Called { names: functions, here }
    }
}

/// Is it about a setting that PostgreSQL shows only to those who may read all settings? The client may
/// be none of them (any more) when it is asked what was set.
fn is_hidden(text: &[u8]) -> bool {
    // Most of a long text is data: only what stands round a `_` is compared.
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

/// That of a Parse message; empty if the message was not kept.
pub(super) fn text_of(parse: &[u8]) -> &[u8] {
    let parse = Parse::decode(parse.get(HEADER_LEN..).unwrap_or_default());
    parse.map_or(b"", |parse| parse.sql)
}

/// What an operator knows a text by; 0 if it is not known.
fn fingerprint(text: &[u8]) -> u64 {
    match text {
        [] => 0,
        _ => wire::md5::fingerprint(&text[..text.len().min(HEAD_LEN_MAX)]),
    }
}
