//! What a linked client sends: every message that will be answered is entered in the server's
//! ledger, names of prepared statements are translated, and all else goes through unseen.
//!
//! Bodies are not assembled: a message is passed on as its bytes come, unless the pooler has to
//! change it or to remember it.

use config::PoolMode;
use sql::Seen;
use wire::error_fields::ErrorFields;
use wire::messages::Parse;
use wire::{HEADER_LEN, Header, backend, bad_header, frontend};

use crate::cancel::signaling::Call;
use crate::client::{Client, Extended, StatementNames};
use crate::engine::Engine;
use crate::ids::{ClientId, Micros};
use crate::lifecycle::leave::Leaving;
use crate::operator::stats::Stats;
use crate::relay::kept_request::Used;
use crate::relay::ledger::{Entry, Expect, Reply, Undo, Verb};
use crate::relay::stream::Splice;
use crate::server::Server;
use crate::settings::PoolSettings;
use crate::shell::{Exchange, Io};
use crate::vars::TrackedNames;

mod doubt;
mod keeping;
mod lending;
mod naming;
mod numbers;
mod rewinding;
mod signals;
mod statements;
mod texts;

use keeping::Keeping;
pub(crate) use signals::call_of;
use texts::{NotPassed, REMEMBERED_LEN_MAX, Sent, TextCheck, Texts};

/// An unnamed Parse up to this length is remembered, in case its Bind comes in another
/// transaction and finds another server. In auto mode longer ones are, too.
const UNNAMED_KEPT_LEN_MAX: usize = 16_384;
const BROKEN_PARSE: &str = "broken Parse packet";

/// What one input may make us add to it, in bytes: a few small Binds can name many long statements
/// that the server does not have (any more).
const PREPARED_AGAIN_LEN_MAX: usize = 64 << 20;

/// PostgreSQL closes the connection for a longer message that ends a copy (`postgres.c`,
/// `PQ_SMALL_MESSAGE_LIMIT`), maybe only when it is somebody else's: where there is no copy nobody
/// waits for what becomes of the message.
const SMALL_LEN_MAX: usize = 10_000;

/// Why the reading of an input stopped.
enum Stop {
    /// All is used but the beginning of a message that cannot be dealt with yet.
    Incomplete,
    Terminate,
    Violation(Violation),
    /// The message in front uses a statement that this server does not have, and that may return
    /// other columns than the client was told of. It has to be known whether it does.
    Outdated(Used),
    /// The message in front signals another client. What it is answered with has to be known.
    Signal(Call),
}

/// What no client may do.
struct Violation {
    /// What the client is told.
    why: String,
    /// What the log has to say besides.
    error: Option<String>,
}

impl From<String> for Violation {
    fn from(why: String) -> Self {
        Self { why, error: None }
    }
}

/// What is done with the message in front.
enum MessageAction {
    Pass,
    /// It is not passed on; its whole body is dropped.
    Drop,
    /// It is not passed on in this form; it was in the input as a whole.
    Replaced,
    /// `usize` bytes of it were replaced, the rest passes.
    Head(usize),
    /// More of it is needed.
    Hold,
    /// See [`Stop::Outdated`].
    Confirm(Used),
}

impl<X: Exchange> Engine<X> {
    pub(crate) fn request_bytes(
        &mut self,
        id: ClientId,
        bytes: &[u8],
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let client = &mut self.clients[id.0 as usize];
        let Some(on) = client.server else { return };
        let server = &mut *self.servers[on.0 as usize];
        let Some(view) = self.pools.get_mut(server.pool) else { return };
        view.stats.received += bytes.len() as u64;
        server.times.heard_at = now;
        let begins = server.ledger.is_at_rest();
        let keeping = Keeping::go_on(server);
        let may_keep = server.session.traces.is_empty();
        client.await_nothing();
        let joined = client.stream.take_joined(bytes);
        let input = joined.as_deref().unwrap_or(bytes);
        let texts = (server.mode == PoolMode::Auto)
            .then_some(Texts { cache: &mut self.texts, history: &mut view.history });
        let mut requests = Requests {
            input,
            texts,
            at: 0,
            out: Splice::new(input, &mut self.scratch),
            answers: Vec::new(),
            client,
            server,
            settings: &view.settings,
            names: &self.names,
            stats: &mut view.stats,
            exchange: &mut self.exchange,
            serial: &mut self.serial,
            now,
            keeping,
            may_keep,
            begins,
            from: 0,
            undescribed: 0,
            messages: 0,
            call: None,
        };
        let global = &self.config.global;
        let stop = requests.run(global.max_packet_size, global.disable_pqexec);
        if let Stop::Outdated(_) | Stop::Signal(_) = stop {
            requests.rewind();
        }
        let used = requests.at;
        self.messages += requests.messages;
        let answers = std::mem::take(&mut requests.answers);
        if begins && !requests.server.ledger.is_at_rest() {
            requests.begin(now);
        }
        let begun_at = requests.keep();
        let out = requests.out.finish();
        let sent = out.is_empty() || io.send_server(on, out);
        // They answer what stands before the request, wherever that ends up.
        if !answers.is_empty() {
            io.send_client(id, &answers);
        }
        if !sent && let Some(begun_at) = begun_at {
            let again = input[begun_at..].to_vec();
            return self.resend(id, on, again, now, io);
        }
        match stop {
            Stop::Incomplete => {
                let client = &mut self.clients[id.0 as usize];
                if used < input.len() {
                    client.stream.hold_rest(joined, bytes, used);
                }
                self.give_back_unused(id, on, now, io);
            }
            Stop::Outdated(of) => {
                let client = &mut self.clients[id.0 as usize];
                client.stream.hold_rest(joined, bytes, used);
                self.confirm_shape(id, on, of, now, io);
            }
            Stop::Signal(call) => {
                let client = &mut self.clients[id.0 as usize];
                client.stream.hold_rest(joined, bytes, used);
                self.begin_signal(id, on, call, now, io);
            }
            Stop::Terminate => self.drop_client(id, Leaving::Goodbye, now, io),
            Stop::Violation(violation) => self.violated(id, violation, now, io),
        }
    }

    #[cold]
    fn violated(&mut self, id: ClientId, violation: Violation, now: Micros, io: &mut impl Io<X>) {
        let Violation { why, error } = violation;
        if let Some(message) = error {
            self.client_trouble(id, &message, io);
        }
        self.disconnect(id, &why, now, io);
    }

    /// Nothing was asked of the server (the client has sent part of a message, or what needs no
    /// server): others may have it until there is more.
    pub(crate) fn give_back_unused(
        &mut self,
        id: ClientId,
        on: crate::ids::ServerId,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let server = self.server(on);
        let keeps = server.replication.is_some() || self.mode_of(on) == PoolMode::Session;
        if !server.is_clean() || keeps || self.client(id).stream.is_mid_message() {
            return;
        }
        // They were not looked into while the client was in the middle of a message.
        if server.has_traces() {
            return self.judge(id, on, now, io);
        }
        self.unlink(id, on, now, io);
    }
}

/// One input of one client under way to its server.
struct Requests<'a, X> {
    input: &'a [u8],
    /// How far it was dealt with.
    at: usize,
    out: Splice<'a>,
    /// For the client, at once.
    answers: Vec<u8>,
    client: &'a mut Client,
    server: &'a mut Server,
    settings: &'a PoolSettings,
    names: &'a TrackedNames,
    stats: &'a mut Stats,
    exchange: &'a mut X,
    serial: &'a mut u64,
    now: Micros,
    keeping: Option<Keeping>,
    /// Is all known that earlier transactions have left on the server? Else no other server has it.
    may_keep: bool,
    /// Did the server owe nothing before this input?
    begins: bool,
    /// Where its first message begins.
    from: usize,
    /// In auto mode.
    texts: Option<Texts<'a>>,
    /// The statement of the portal last bound, if the client has never been told what it returns;
    /// or 0.
    undescribed: u64,
    /// How many messages were looked at.
    messages: u64,
    /// The message in front is this call, which has to be decided before it can be dealt with.
    call: Option<Call>,
}

impl<'a, X: Exchange> Requests<'a, X> {
    // As `keep`, it has one caller. Whether the compiler saw that was chance, and cost 2 % of a transaction.
    #[inline(always)]
    fn run(&mut self, message_len_max: u32, no_simple_query: bool) -> Stop {
        self.continue_message();
        loop {
            let rest = &self.input[self.at..];
            let header = match Header::parse(rest) {
                Ok(Some(header)) => header,
                Ok(None) => return Stop::Incomplete,
                Err(_) => return Stop::Violation(bad_header(rest).into()),
            };
            if header.total > message_len_max as usize {
                return Stop::Violation(bad_header(rest).into());
            }
            if no_simple_query && header.code == frontend::QUERY {
                let error = Some("client used \"Query\" packet type".to_owned());
                return Stop::Violation(Violation { why: "PQexec disallowed".into(), error });
            }
            if header.code == frontend::TERMINATE {
                return Stop::Terminate;
            }
            if self.server.ledger.owes_many() && self.awaits_half() {
                return Stop::Incomplete;
            }
            self.messages += 1;
            let available = rest.len().min(header.total);
            let action = match self.message(header, available) {
                Ok(action) => action,
                Err(why) => return Stop::Violation(why),
            };
            if self.out.gathered() > self.input.len() + PREPARED_AGAIN_LEN_MAX {
                let why = "too many statements to prepare again at once".to_owned();
                return Stop::Violation(why.into());
            }
            let (from, to) = (self.at, self.at + available);
            match action {
                MessageAction::Pass => self.out.pass(from, to),
                MessageAction::Head(len) => self.out.pass(from + len, to),
                MessageAction::Drop | MessageAction::Replaced => {}
                MessageAction::Hold => return self.call.map_or(Stop::Incomplete, Stop::Signal),
                MessageAction::Confirm(used) => return Stop::Outdated(used),
            }
            self.at = to;
            self.client.stream.remaining = header.total - available;
            self.client.stream.dropping = matches!(action, MessageAction::Drop);
        }
    }

    /// So much is owed that the client must wait. False if it need not after all: all of it could be
    /// answered at once, or the server waits for what the client says.
    #[cold]
    fn awaits_half(&mut self) -> bool {
        let ledger = &self.server.ledger;
        if ledger.in_copy() || ledger.is_skipping() || matches!(self.flush(), MessageAction::Drop) {
            return false;
        }
        let Some(serial) = self.server.ledger.middle() else { return false };
        frontend::flush(self.out.insert());
        self.extended().awaits = serial;
        true
    }

    /// The client was idle before these messages: a query begins, perhaps a transaction.
    fn begin(&mut self, now: Micros) {
        self.stats.queries += 1;
        self.client.request_at = now;
        if let Some(own) = &mut self.client.extended {
            own.rewound = false;
        }
        if self.client.transaction_at == 0 {
            self.stats.transactions += 1;
            self.client.transaction_at = now;
        }
    }

    /// The rest of a message whose beginning came earlier.
    fn continue_message(&mut self) {
        let taken = self.client.stream.take_body(self.input);
        if taken > 0 && !self.client.stream.dropping {
            self.out.pass(0, taken);
        }
        if taken > 0 && self.server.session.scanning.is_some() {
            self.go_on_scan(&self.input[..taken], self.client.stream.remaining == 0);
        }
        (self.at, self.from) = (taken, taken);
    }

    fn message(&mut self, header: Header, available: usize) -> Result<MessageAction, Violation> {
        use frontend::{
            BIND, CLOSE, COPY_DATA, COPY_DONE, COPY_FAIL, DESCRIBE, EXECUTE, FLUSH, FUNCTION_CALL,
            PARSE, QUERY, SYNC,
        };
        // After an error the server discards everything but a Sync: so do we.
        if self.server.ledger.is_skipping() && header.code != SYNC {
            return match header.code {
                QUERY | PARSE | BIND | DESCRIBE | EXECUTE | CLOSE | FUNCTION_CALL | COPY_DATA
                | COPY_DONE | COPY_FAIL | FLUSH => Ok(MessageAction::Drop),
                other => Err(unknown(other)),
            };
        }
        match header.code {
            QUERY => {
                let seen = match self.see_query(header, available) {
                    Ok(seen) => seen,
                    Err(not_passed) => return Ok(self.answer_otherwise(not_passed)),
                };
                let discards = self.query_discards(seen, header, available);
                let entry = Entry::new(Expect::Query, Verb::Forward);
                self.owe_without_unnamed(entry);
                if discards {
                    self.note_query_discards(header, available);
                }
                self.note_begin(header, available);
                Ok(MessageAction::Pass)
            }
            SYNC => {
                self.owe(Entry::new(Expect::Sync, Verb::Forward));
                Ok(MessageAction::Pass)
            }
            EXECUTE => {
                self.owe(Entry::new(Expect::Execute, Verb::Forward));
                self.note_execute();
                Ok(MessageAction::Pass)
            }
            PARSE => Ok(self.parse(header, available)?),
            BIND => Ok(self.bind(header, available)?),
            DESCRIBE => Ok(self.describe(header, available)?),
            CLOSE => Ok(self.close(header, available)?),
            // One with a body is an error, behind which the server waits for a Sync. But nothing is
            // expected of a Flush, and somebody else may have the server by then.
            FLUSH if header.total != HEADER_LEN => Err("broken Flush packet".to_owned().into()),
            FLUSH => Ok(self.flush()),
            FUNCTION_CALL => {
                if !self.see_call(header, available) {
                    return Ok(MessageAction::Hold);
                }
                self.owe(Entry::new(Expect::FunctionCall, Verb::Forward));
                Ok(MessageAction::Pass)
            }
            // Outside a copy the server ignores these, so a client without one is not worth one.
            COPY_DATA => Ok(if self.server.ledger.owes_nothing() {
                MessageAction::Drop
            } else {
                MessageAction::Pass
            }),
            COPY_DONE | COPY_FAIL if header.total - 1 > SMALL_LEN_MAX => {
                Err("broken CopyDone or CopyFail packet".to_owned().into())
            }
            COPY_DONE | COPY_FAIL => {
                if self.server.ledger.owes_nothing() {
                    return Ok(MessageAction::Drop);
                }
                self.owe(Entry::new(Expect::CopyEnd, Verb::Forward));
                Ok(MessageAction::Pass)
            }
            other => Err(unknown(other)),
        }
    }

    /// The Query in front is not passed on as it is.
    #[cold]
    fn answer_otherwise(&mut self, not_passed: NotPassed) -> MessageAction {
        match not_passed {
            NotPassed::Hold => MessageAction::Hold,
            NotPassed::Replace(text) => {
                self.owe_without_unnamed(Entry::new(Expect::Query, Verb::Forward));
                frontend::query(self.out.insert(), &text);
                MessageAction::Replaced
            }
        }
    }

    fn owe(&mut self, mut entry: Entry) {
        *self.serial += 1;
        entry.serial = *self.serial;
        self.note(&entry);
        self.server.ledger.owe(entry);
    }

    fn next_serial(&self) -> u64 {
        *self.serial + 1
    }

    fn tracks(&self) -> bool {
        self.client.statement_names == StatementNames::Translated
    }

    // Whether the compiler saw that only a client's first request needs more than a look was chance, and
    // cost 1 % of a transaction.
    #[inline]
    fn extended(&mut self) -> &mut Extended {
        #[cold]
        fn begin(none: &mut Option<Box<Extended>>) -> &mut Extended {
            none.insert(Box::default())
        }
        match &mut self.client.extended {
            Some(extended) => extended,
            none => begin(none),
        }
    }

    /// A simple Query, and of course a Close, destroys the unnamed statement.
    #[inline]
    fn owe_without_unnamed(&mut self, mut entry: Entry) {
        self.server.unnamed = 0;
        if let Some(extended) = &mut self.client.extended {
            let before = std::mem::take(&mut extended.unnamed);
            // An earlier message that took it away may have no effect.
            if before != 0 || !self.server.ledger.has_answered(extended.unnamed_doubt) {
                extended.unnamed_doubt = *self.serial + 1;
                entry = entry.undo(Undo::DropUnnamed { before });
            }
        }
        self.owe(entry);
    }

    /// With nothing but made-up replies due there is nothing the server could flush. In the middle
    /// of a message of the server's they come when it is at its end.
    fn flush(&mut self) -> MessageAction {
        let ledger = &mut self.server.ledger;
        if self.server.stream.remaining > 0 || ledger.owes_nothing() || !ledger.only_synthesized() {
            return MessageAction::Pass;
        }
        while let Some(reply) = ledger.next_synthesized() {
            write_reply(reply, &mut self.answers);
        }
        MessageAction::Drop
    }

    fn parse(&mut self, header: Header, available: usize) -> Result<MessageAction, String> {
        if !self.tracks() {
            self.owe(Entry::new(Expect::Parse, Verb::Forward));
            return Ok(MessageAction::Pass);
        }
        let whole = available == header.total;
        if available <= HEADER_LEN {
            // Without even the end of a name it will never be more than that.
            return if whole { Err(BROKEN_PARSE.into()) } else { Ok(MessageAction::Hold) };
        }
        let unnamed = self.input[self.at + HEADER_LEN] == 0;
        if unnamed {
            if !whole && header.total <= UNNAMED_KEPT_LEN_MAX {
                return Ok(MessageAction::Hold);
            }
            self.stats.client_parses += 1;
            return self.parse_unnamed(header, available);
        }
        if !whole {
            return Ok(MessageAction::Hold);
        }
        let input = self.input;
        let body = &input[self.at + HEADER_LEN..self.at + header.total];
        let parse = Parse::decode(body).map_err(|_| BROKEN_PARSE.to_owned())?;
        if self.awaits_name(parse.name) {
            return Ok(MessageAction::Hold);
        }
        // What the text itself changes comes later.
        let context = self.parse_context();
        let mut parse = parse;
        match self.see(parse.sql, Sent::Parse) {
            TextCheck::Pass(_) => {}
            TextCheck::Hold => return Ok(MessageAction::Hold),
            TextCheck::Replace(sql) => {
                parse = Parse { sql, types_raw: frontend::NO_TYPES, ..parse }
            }
        }
        self.stats.client_parses += 1;
        self.parse_named(&parse, context);
        Ok(MessageAction::Replaced)
    }

    fn parse_unnamed(&mut self, header: Header, available: usize) -> Result<MessageAction, String> {
        let whole = available == header.total;
        let (seen, replaced) = match self.see_parse(header, available)? {
            TextCheck::Pass(seen) => (seen, None),
            TextCheck::Hold => return Ok(MessageAction::Hold),
            TextCheck::Replace(text) => (Seen::default(), Some(text)),
        };
        self.stats.server_parses += 1;
        let serial = self.next_serial();
        // What is not there as a whole is remembered on its way, in auto mode.
        let kept_len_max =
            if self.texts.is_some() { REMEMBERED_LEN_MAX } else { UNNAMED_KEPT_LEN_MAX };
        let input = self.input;
        let message = &input[self.at..];
        let there = std::mem::replace(&mut self.server.unnamed, serial);
        let doubt = self.extended().unnamed_doubt;
        // What was to bring the client's own there may have no effect.
        let is_in_doubt = !self.server.ledger.has_answered(doubt);
        let extended = self.extended();
        extended.unnamed_seen = seen;
        let before = std::mem::replace(&mut extended.unnamed, serial);
        if before == 0 || before != there || is_in_doubt {
            extended.unnamed_doubt = serial;
        }
        // What was refused is refused wherever it is used.
        let kept = match replaced {
            Some(text) => {
                let mut refusal = Vec::new();
                frontend::parse(&mut refusal, b"", text, frontend::NO_TYPES);
                refusal
            }
            None if whole && header.total <= kept_len_max => message[..header.total].to_vec(),
            None => Vec::new(),
        };
        let message = std::mem::replace(&mut extended.unnamed_parse, kept);
        let undo = Undo::ParseUnnamed { before, message };
        self.owe(Entry::new(Expect::Parse, Verb::Forward).undo(undo));
        Ok(match replaced {
            None => MessageAction::Pass,
            Some(text) => {
                frontend::parse(self.out.insert(), b"", text, frontend::NO_TYPES);
                MessageAction::Replaced
            }
        })
    }
}

fn unknown(code: u8) -> Violation {
    let error = Some(format!("unknown pkt from client: {code}/{code:#x}"));
    Violation { why: "unknown pkt".to_owned(), error }
}

pub(crate) fn write_reply(reply: Reply, out: &mut Vec<u8>) {
    match reply {
        Reply::ParseComplete => backend::parse_complete(out),
        Reply::CloseComplete => backend::close_complete(out),
        Reply::Unsupported => backend::notice(
            out,
            &ErrorFields::new(
                "WARNING",
                "0A000",
                "this statement needs a session of its own (auto_unsupported = warn)",
            ),
        ),
    }
}
