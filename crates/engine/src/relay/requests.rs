//! Passes a linked client's messages on. Each message that the server answers is entered in the
//! ledger. Names of prepared statements are translated. Everything else goes through unread.
//!
//! Bodies are not assembled. A message is passed on byte by byte as it arrives, unless Weir has to
//! change or remember it.

use config::PoolMode;
use wire::error_fields::ErrorFields;
use wire::sqlstate::FEATURE_NOT_SUPPORTED;
use wire::{HEADER_LEN, Header, backend, bad_header, frontend};

use crate::admission::one_pool::OnePool;
use crate::cancel::signaling::Call;
use crate::client::{Client, Extended, StatementNames};
use crate::context::Context;
use crate::ids::{ClientId, Micros, ServerId};
use crate::operator::remarks::remark;
use crate::operator::stats::Stats;
use crate::relay::kept_request::Used;
use crate::relay::ledger::{Entry, Expect, Reply, Verb};
use crate::relay::stream::Splice;
use crate::routing::Place;
use crate::server::Server;
use crate::session::verdict::doubt_changed_values;
use crate::settings::PoolSettings;
use crate::shell::{Exchange, Io, Weight};
use crate::vars::TrackedNames;
use crate::watch::{Sent as Watchable, Watch};

mod doubt;
mod endings;
mod input;
mod keeping;
mod lending;
mod naming;
mod numbers;
mod parsing;
mod restoring;
mod rewinding;
mod signals;
mod statements;
mod texts;
mod turns;

pub(crate) use input::Input;
pub(crate) use restoring::{Due, Followed, Preface};

use keeping::Keeping;
use texts::Texts;
use turns::keep_pace;

const BROKEN_PARSE: &str = "broken Parse packet";

/// Limit of the bytes that Weir adds to one input. Many statements do not reach it, since Weir reads
/// no further at `OWED_BYTES_MAX`. A single statement of this length reaches it.
const PREPARED_AGAIN_LEN_MAX: usize = 64 << 20;

/// Why the reading of an input stopped.
pub(crate) enum Stop {
    /// Everything is used, except the beginning of a message that cannot be handled yet.
    Incomplete,
    Terminate,
    Violation(Violation),
    /// The message in front uses a statement that may return other columns than the client was
    /// told. Weir finds out first.
    Outdated(Used),
    /// The message in front signals another client. Weir finds out the answer first.
    Signal(Call),
}

/// An input that was handled.
pub(crate) struct Ran {
    pub(crate) stop: Stop,
    /// The number of bytes that were handled.
    pub(crate) used: usize,
    /// The beginning of the request that was kept, if it is in this input.
    pub(crate) begun_at: Option<usize>,
    /// Have the messages gone out with a preface?
    prefaced: bool,
    /// The beginning of a request in this input that the server has not received. Another server may
    /// get it.
    pub(crate) unsent: Option<usize>,
}

/// A message that no client may send.
pub(crate) struct Violation {
    /// The error text for the client.
    pub(crate) why: String,
    /// An additional text for the log.
    pub(crate) error: Option<String>,
}

impl Violation {
    /// Writes the text for the log. Returns the error text for the client.
    #[cold]
    pub(crate) fn log<X: Exchange>(
        self,
        id: ClientId,
        client: &Client,
        io: &mut impl Io<X>,
    ) -> String {
        if let Some(message) = self.error {
            remark(id, client, Weight::Error, &message, io);
        }
        self.why
    }
}

impl From<String> for Violation {
    fn from(why: String) -> Self {
        Self { why, error: None }
    }
}

/// The treatment of the message in front.
enum MessageAction {
    Pass,
    /// The message is not passed on. Its whole body is dropped.
    Drop,
    /// The message is replaced. All of it was in the input.
    Replaced,
    /// The first `usize` bytes are replaced, and the rest passes.
    Head(usize),
    /// More of the message is needed.
    Hold,
    /// See [`Stop::Outdated`].
    Confirm(Used),
}

/// A client and its server, between which messages pass.
pub(crate) struct Linked<'a, X> {
    pub(crate) id: ClientId,
    pub(crate) on: ServerId,
    pub(crate) client: &'a mut Client,
    pub(crate) server: &'a mut Server,
    /// The server's pool.
    pub(crate) pool: OnePool<'a, X>,
    pub(crate) context: &'a mut Context,
    /// The signs of known texts.
    pub(crate) texts: &'a mut sql::Cache,
    pub(crate) watch: &'a mut Option<Box<Watch>>,
    pub(crate) scratch: &'a mut Vec<u8>,
    /// Counts the messages.
    pub(crate) messages: &'a mut u64,
    /// The server is a reader, and the judges say that the client's request only reads.
    pub(crate) is_judged_read: bool,
}

impl<'a, X: Exchange> Linked<'a, X> {
    /// Handles an input and sends the messages to the server, with `preface` before them.
    #[inline(always)]
    pub(crate) fn pass(
        self,
        input: &'a Input<'_>,
        preface: Option<&mut Preface>,
        io: &mut impl Io<X>,
    ) -> Ran {
        let Self { id, on, client, server, pool, context, texts, watch, scratch, .. } = self;
        let OnePool { view, exchange, .. } = pool;
        view.stats.received += input.bytes.len() as u64;
        let input = input.all();
        if !server.ledger.runs_query() {
            server.times.query_begins(io.now());
        }
        let begins = server.ledger.is_at_rest();
        let may_be_over = keep_pace(begins, client, server, &view.settings, io.now());
        let takes_turns = view.place != Place::Writer || may_be_over;
        if begins && view.settings.keeps_clients {
            server.ledger.endings.begin(server.status.is_idle());
        }
        let keeping = Keeping::go_on(server);
        let may_move = server.session.get().is_none_or(|own| own.traces.is_empty());
        client.await_nothing();
        let texts = (server.mode == PoolMode::Auto)
            .then_some(Texts { cache: texts, history: &mut view.history });
        let mut requests = Requests {
            input,
            texts,
            at: 0,
            out: Splice::new(input, scratch),
            answers: Vec::new(),
            client,
            server,
            settings: &view.settings,
            place: view.place,
            takes_turns,
            is_judged_read: self.is_judged_read,
            names: &context.names,
            stats: &mut view.stats,
            exchange,
            serial: &mut context.serial,
            now: io.now(),
            keeping,
            may_move,
            begins,
            from: 0,
            undescribed: 0,
            messages: 0,
            call: None,
        };
        let global = &context.config.global;
        let stop = requests.run(global.max_packet_size, global.disable_pqexec);
        if let Stop::Outdated(_) | Stop::Signal(_) = stop {
            requests.rewind();
        }
        let used = requests.at;
        *self.messages += requests.messages;
        let answers = std::mem::take(&mut requests.answers);
        if begins && !requests.server.ledger.is_at_rest() {
            requests.begin(io.now());
        }
        requests.show(on, watch);
        let begun_at = requests.keep();
        let (prefaced, sent) = match preface {
            Some(preface) => preface.send(&mut requests, &stop, on, io),
            None => {
                let out = requests.out.finish();
                (false, out.is_empty() || io.send_server(on, out))
            }
        };
        // These replies come before the request, whichever server the request goes to.
        if !answers.is_empty() {
            io.send_client(id, &answers);
        }
        let unsent = begun_at.filter(|_| !sent && may_move);
        Ran { stop, used, begun_at, prefaced, unsent }
    }
}

/// The further use of a server that its client does not need yet. The client has sent part of a
/// message, or messages that Weir answers itself.
pub(crate) enum Unused {
    /// The client keeps it.
    Kept,
    /// Its traces must be judged.
    Judged,
    /// Other clients may have it until more arrives.
    Free,
}

impl Unused {
    /// `mode` is the mode in which the clean server is used.
    #[inline]
    pub(crate) fn of(
        client: &Client,
        server: &mut Server,
        mode: PoolMode,
        names: &TrackedNames,
    ) -> Self {
        let keeps = server.replication.is_some() || mode == PoolMode::Session;
        if keeps || client.stream.is_mid_message() {
            return Self::Kept;
        }
        // The traces were not examined while the client was in the middle of a message.
        doubt_changed_values(client, server, names);
        match server.has_traces() {
            true => Self::Judged,
            false => Self::Free,
        }
    }
}

/// One input from one client, on its way to the server.
struct Requests<'a, X> {
    input: &'a [u8],
    /// Everything before this position is handled.
    at: usize,
    out: Splice<'a>,
    /// Replies that the client gets at once.
    answers: Vec<u8>,
    client: &'a mut Client,
    server: &'a mut Server,
    settings: &'a PoolSettings,
    /// The place of the server's pool.
    place: Place,
    /// A request waits until those before it are answered if it may need another server, or others
    /// wait for this one.
    takes_turns: bool,
    /// The server is a reader, and the judges say that the request only reads.
    is_judged_read: bool,
    names: &'a TrackedNames,
    stats: &'a mut Stats,
    exchange: &'a mut X,
    serial: &'a mut u64,
    now: Micros,
    keeping: Option<Keeping>,
    /// May another server take over a request? Not if this server has traces.
    may_move: bool,
    /// Did the server owe nothing before this input?
    begins: bool,
    /// The position of its first message.
    from: usize,
    /// Set in auto mode.
    texts: Option<Texts<'a>>,
    /// The statement of the portal that was bound last, if the client has never been told its row
    /// description; otherwise 0.
    undescribed: u64,
    /// Number of messages that were looked at.
    messages: u64,
    /// The call in the front message. It must be decided before the message can be handled.
    call: Option<Call>,
}

impl<'a, X: Exchange> Requests<'a, X> {
    // Inlined always: without the attribute, inlining depended on the compiler and cost 2 % of a
    // transaction.
    #[inline(always)]
    fn run(&mut self, message_len_max: u32, no_simple_query: bool) -> Stop {
        self.continue_message();
        loop {
            if self.server.ledger.copies_in_doubt() && self.awaits_copy() {
                return Stop::Incomplete;
            }
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
            if self.server.ledger.is_ahead() && self.awaits_half(header) {
                return Stop::Incomplete;
            }
            if self.takes_turns && self.awaits_turn(header) {
                return Stop::Incomplete;
            }
            self.messages += 1;
            let available = rest.len().min(header.total);
            let action = match self.message(header, available) {
                Ok(action) => action,
                Err(why) => return Stop::Violation(why),
            };
            if self.out.gathered() > self.input.len() + PREPARED_AGAIN_LEN_MAX {
                let why = "statement too long to prepare again".to_owned();
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
            let drops = matches!(action, MessageAction::Drop);
            self.client.stream.handled(header.total - available, drops);
        }
    }

    /// Shows a watch the messages that were dealt with.
    #[inline(always)]
    fn show(&self, on: ServerId, watch: &mut Option<Box<Watch>>) {
        if let Some(watch) = watch {
            let sent = Watchable {
                on,
                client: self.client,
                server: self.server,
                settings: self.settings,
                begins: self.begins && !self.server.ledger.is_at_rest(),
                continued: self.from,
            };
            watch.requested(&sent, &self.input[..self.at]);
        }
    }

    /// The client was idle before these messages: a query begins, perhaps a transaction.
    #[inline(always)]
    fn begin(&mut self, now: Micros) {
        self.stats.queries += 1;
        let input = self.input.get(self.from..).unwrap_or_default();
        self.server.stages.send(input, self.client, now);
        if let Some(own) = &mut self.client.extended {
            own.repeats.go_on();
            own.pace.begin(now);
        }
        if self.client.times.request_begins(now) {
            self.stats.transactions += 1;
        }
    }

    /// Handles the rest of a message that began in an earlier input.
    #[inline(always)]
    fn continue_message(&mut self) {
        let taken = self.client.stream.take_body(self.input);
        if taken > 0 && !self.client.stream.is_dropping() {
            self.out.pass(0, taken);
        }
        if taken > 0 && self.server.session.scanning.is_some() {
            self.go_on_scan(&self.input[..taken], self.client.stream.remaining() == 0);
        }
        (self.at, self.from) = (taken, taken);
    }

    #[inline(always)]
    fn message(&mut self, header: Header, available: usize) -> Result<MessageAction, Violation> {
        use frontend::{
            BIND, CLOSE, COPY_DATA, COPY_DONE, COPY_FAIL, DESCRIBE, EXECUTE, FLUSH, FUNCTION_CALL,
            PARSE, QUERY, SYNC,
        };
        // After an error, the server discards every message up to the Sync. Weir does the same.
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
                self.note_query_ending(header, available);
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
            // A Flush with a body is an error, after which the server waits for a Sync. But no
            // reply to a Flush is expected, and another client could have the server by then.
            FLUSH if header.total != HEADER_LEN => Err("broken Flush packet".to_owned().into()),
            FLUSH => Ok(self.flush()),
            FUNCTION_CALL => {
                if !self.see_call(header, available) {
                    return Ok(MessageAction::Hold);
                }
                self.owe(Entry::new(Expect::FunctionCall, Verb::Forward));
                Ok(MessageAction::Pass)
            }
            // If a copy begins, it must be known which Syncs the server has read before.
            COPY_DATA | COPY_DONE | COPY_FAIL if self.server.ledger.may_enter_copy() => {
                let last_end = self.server.ledger.last_end();
                self.extended().awaited.begin(last_end);
                Ok(MessageAction::Hold)
            }
            // The server ignores copy data outside a copy, so it is dropped here.
            COPY_DATA => Ok(if self.server.ledger.owes_nothing() {
                MessageAction::Drop
            } else {
                MessageAction::Pass
            }),
            // Outside a copy no reply is expected, so another client could have the server by then.
            COPY_DONE | COPY_FAIL if !frontend::is_possible(header) => {
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

    #[inline]
    fn extended(&mut self) -> &mut Extended {
        self.client.extended_mut()
    }

    /// Enters a message that destroys the unnamed statement: a simple Query, or a Close.
    #[inline]
    fn owe_without_unnamed(&mut self, mut entry: Entry) {
        self.server.unnamed.destroy();
        let serial = self.next_serial();
        if let Some(extended) = &mut self.client.extended
            && let Some(undo) = extended.unnamed.remove(serial, &self.server.ledger)
        {
            entry = entry.undo(undo);
        }
        self.owe(entry);
    }

    /// If only made-up replies are owed, sends them: the server has nothing to flush. In the middle
    /// of a server's message, they wait for its end.
    fn flush(&mut self) -> MessageAction {
        let ledger = &mut self.server.ledger;
        if self.server.stream.remaining() > 0 || ledger.owes_nothing() || !ledger.only_synthesized()
        {
            return MessageAction::Pass;
        }
        while let Some(reply) = ledger.next_synthesized() {
            write_reply(reply, &mut self.answers);
        }
        MessageAction::Drop
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
                FEATURE_NOT_SUPPORTED,
                "this statement needs a session of its own (auto_unsupported = warn)",
            ),
        ),
    }
}
