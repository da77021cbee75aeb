//! The messages of floods, and the state of their client before the flood.

use testkit::frontend::{
    bind, close_portal, close_statement, copy_data, copy_done, copy_fail, describe_portal,
    describe_statement, execute, flush, function_call, message, parse, query, startup, sync,
    terminate,
};
use testkit::{Pooler, RawClient, Role};

/// One kind of message, or several that are sent together. `n` is the number of those before.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) make: fn(n: usize) -> Vec<u8>,
    /// The number of messages in a sample. Messages that are cheap for PostgreSQL are more.
    pub(super) sample: usize,
}

const fn kind(name: &'static str, sample: usize, make: fn(usize) -> Vec<u8>) -> Kind {
    Kind { name, make, sample }
}

pub(super) const PARSE: Kind = kind("Parse", 5_000, |_| parse("", "select 1"));
pub(super) const SYNC: Kind = kind("Sync", 200_000, |_| sync());
pub(super) const NAMED_PARSE: Kind =
    kind("Parse (named)", 5_000, |n| parse(&format!("s{n}"), "select 1"));

/// Texts that differ in more than their literals.
pub(super) const DIFFERENT_QUERY: Kind =
    kind("Query (another text each)", 20_000, |n| query(&format!("select 1 as c{n}")));

pub(super) const KINDS: [Kind; 24] = [
    kind("Query (empty)", 5_000, |_| query("")),
    kind("Query (fails)", 5_000, |_| query("x")),
    PARSE,
    NAMED_PARSE,
    kind("Parse (fails)", 5_000, |_| parse("", "x")),
    kind("Bind", 5_000, |_| bind("", "", &[])),
    kind("Bind (missing)", 5_000, |_| bind("", "nothing", &[])),
    kind("Describe", 5_000, |_| describe_statement("kept")),
    kind("Describe (missing)", 5_000, |_| describe_statement("nothing")),
    kind("Describe portal", 5_000, |_| describe_portal("")),
    kind("Describe portal (missing)", 5_000, |_| describe_portal("nothing")),
    kind("Execute", 5_000, |_| execute("", 0)),
    kind("Execute (missing)", 5_000, |_| execute("nothing", 0)),
    kind("Close (named)", 5_000, |n| close_statement(&format!("s{}", n.saturating_sub(1)))),
    kind("Close portal", 5_000, |_| close_portal("")),
    SYNC,
    kind("Flush", 200_000, |_| flush()),
    kind("FunctionCall", 5_000, |_| function_call(0, &[])),
    kind("CopyData", 50_000, |_| copy_data(b"x\n")),
    kind("CopyDone", 50_000, |_| copy_done()),
    kind("CopyFail", 50_000, |_| copy_fail("no")),
    kind("PasswordMessage", 50_000, |_| message(b'p', b"secret\0")),
    kind("Terminate", 50_000, |_| terminate()),
    kind("an unknown type", 50_000, |_| message(b'?', &[])),
];

/// Patterns that once were slow. They are still slow in a pooler whose work for a message grows
/// with the number of pending replies.
pub(super) const PATTERNS: [Kind; 8] = [
    kind("Parse (named), Close", 30_000, |n| {
        [parse(&format!("s{n}"), "select 1"), close_statement(&format!("s{n}"))].concat()
    }),
    kind("Parse (named), Sync", 2_500, |n| [parse(&format!("s{n}"), "select 1"), sync()].concat()),
    kind("COPY, CopyFail", 2_500, |_| [query("copy nowhere from stdin"), copy_fail("no")].concat()),
    kind("EXECUTE a", 2_500, |_| {
        [parse("", "execute a"), bind("", "", &[]), execute("", 0), sync()].concat()
    }),
    kind("Bind (missing), Sync", 2_500, |_| [bind("", "nothing", &[]), sync()].concat()),
    kind("Describe (missing), Sync", 2_500, |_| [describe_statement("nothing"), sync()].concat()),
    kind("Parse (fails), Sync", 2_500, |_| [parse("", "x"), sync()].concat()),
    kind("CopyFail, CopyDone", 25_000, |_| [copy_fail("no"), copy_done()].concat()),
];

/// Returns Parse messages with names for the first half, then the Close of each.
pub(super) fn parse_then_close(count: usize) -> Vec<u8> {
    let parses = (0..count / 2).flat_map(|n| parse(&format!("s{n}"), "select 1"));
    parses.chain((0..count / 2).flat_map(|n| close_statement(&format!("s{n}")))).collect()
}

/// Returns a transaction in which SQL executes many statements of the protocol by their names.
pub(super) fn execute_each(count: usize) -> Vec<u8> {
    let pairs = (0..count / 2).flat_map(|n| {
        [parse(&format!("s{n}"), "select 1"), query(&format!("execute s{n}"))].concat()
    });
    query("begin").into_iter().chain(pairs).collect()
}

/// The state that the client has entered before its flood.
pub(super) struct State {
    pub(super) name: &'static str,
    /// The pool modes in which this state differs from the others.
    modes: &'static [&'static str],
    enter: Enter,
}

enum Enter {
    /// Steps of the client after its login.
    LoggedIn(fn(&mut RawClient)),
    /// The client is not logged in. Its flood follows its startup packet.
    Login,
    /// Another client holds the only server of its pool for a while.
    Waiting,
}

const ALL: &[&str] = &["auto", "transaction", "session"];

pub(super) const STATES: [State; 11] = [
    state("idle", ALL, |_| ()),
    state("in a transaction", ALL, |client| ask(client, "begin")),
    state("in a failed one", ALL, |client| {
        ask(client, "begin");
        ask(client, "x");
    }),
    state("copying in", ALL, |client| {
        ask(client, "begin");
        ask(client, "create temp table flooded (x text) on commit drop");
        client.send(query("copy flooded from stdin"));
        client.read_until(|message| message.tag == b'G');
    }),
    state("copying out", ALL, |client| {
        client
            .send(query("copy (select repeat('x', 100) from generate_series(1, 10000)) to stdout"));
    }),
    state("in a batch", ALL, |client| {
        client.send([parse("", "select 1"), flush()].concat());
        client.read_until(|message| message.tag == b'1');
    }),
    state("skipping after an error", ALL, |client| {
        client.send([bind("", "nothing", &[]), flush()].concat());
        client.read_until(|message| message.tag == b'E');
    }),
    state("pinned", &["auto"], |client| ask(client, "create temp table pinned (x int)")),
    state("listening", &["auto", "session"], |client| ask(client, "listen flood")),
    State { name: "logging in", modes: ALL, enter: Enter::Login },
    State { name: "waiting for a server", modes: &["auto", "transaction"], enter: Enter::Waiting },
];

const fn state(
    name: &'static str,
    modes: &'static [&'static str],
    enter: fn(&mut RawClient),
) -> State {
    State { name, modes, enter: Enter::LoggedIn(enter) }
}

fn ask(client: &mut RawClient, sql: &str) {
    client.send(query(sql));
    client.read_to_ready();
}

/// A client that is ready to begin a flood.
pub(super) struct Flooder {
    pub(super) client: RawClient,
    /// Bytes to send before the flood.
    pub(super) first: Vec<u8>,
    /// The client that holds the server that the flooder waits for.
    _holder: Option<RawClient>,
}

/// Returns the name of an entry for the same database with a single server.
pub(super) fn narrow(database: &str) -> String {
    format!("{database}_narrow")
}

impl State {
    pub(super) fn is_of(&self, mode: &str) -> bool {
        self.modes.contains(&mode)
    }

    /// May the server end the connection because of such a message? During a login and a COPY, it
    /// expects few kinds of messages.
    pub(super) fn may_end(&self, kind: &Kind) -> bool {
        let of_copies = ["CopyData", "CopyDone", "CopyFail", "Sync", "Flush"];
        matches!(self.enter, Enter::Login)
            || self.name == "copying in" && !of_copies.contains(&kind.name)
            || ["PasswordMessage", "Terminate", "an unknown type"].contains(&kind.name)
    }

    pub(super) fn begin(&self, pooler: &Pooler, database: &str) -> Flooder {
        let (mut first, mut holder) = (Vec::new(), None);
        let mut client = match self.enter {
            Enter::LoggedIn(_) => pooler.client(database),
            Enter::Login => {
                first = startup(&[("user", Role::APP), ("database", database)]);
                RawClient::connect(pooler.port())
            }
            Enter::Waiting => {
                let mut other = pooler.client(&narrow(database));
                ask(&mut other, "begin");
                other.send([query("select pg_sleep(0.2)"), query("commit")].concat());
                holder = Some(other);
                pooler.client(&narrow(database))
            }
        };
        client.set_timeout(super::PATIENCE);
        if let Enter::LoggedIn(enter) = self.enter {
            client.send([parse("kept", "select 1"), sync()].concat());
            client.read_to_ready();
            enter(&mut client);
        }
        Flooder { client, first, _holder: holder }
    }
}
