//! A direct connection whose session state is known. After each text it checks for changes that the
//! text had no sign of.

use std::collections::BTreeSet;

use sql::{Signs, scan};
use testkit::{Message, Postgres, RawClient, ServerError, frontend};

/// A query for all of a session's state that PostgreSQL shows, as rows of a kind and an object. Custom
/// settings, which are not in `pg_settings`, are queried by name.
const STATE: &str = "\
SELECT 'setting', name || ' ' || setting FROM pg_catalog.pg_settings \
  WHERE source = 'session' AND name !~ '^transaction_' \
UNION ALL SELECT 'setting', 'role ' || pg_catalog.current_setting('role') \
UNION ALL SELECT 'setting', 'user ' || session_user \
UNION ALL SELECT 'setting', n || ' ' || pg_catalog.current_setting(n, true) \
  FROM (VALUES ('local.thing'), ('transaction.thing'), ('constraints.thing')) v (n) \
  WHERE pg_catalog.current_setting(n, true) <> '' \
UNION ALL SELECT 'prepared', name FROM pg_catalog.pg_prepared_statements \
UNION ALL SELECT 'cursor', name FROM pg_catalog.pg_cursors WHERE is_holdable \
UNION ALL SELECT 'lock', pg_catalog.concat_ws(' ', classid, objid, objsubid, mode) \
  FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND pid = pg_catalog.pg_backend_pid() \
UNION ALL SELECT 'channel', c FROM pg_catalog.pg_listening_channels() c \
UNION ALL SELECT 'temporary', 'class ' || oid FROM pg_catalog.pg_class \
  WHERE relnamespace = pg_catalog.pg_my_temp_schema() \
UNION ALL SELECT 'temporary', 'type ' || oid FROM pg_catalog.pg_type \
  WHERE typnamespace = pg_catalog.pg_my_temp_schema() \
UNION ALL SELECT 'temporary', 'function ' || oid FROM pg_catalog.pg_proc \
  WHERE pronamespace = pg_catalog.pg_my_temp_schema() \
UNION ALL SELECT 'temporary', 'operator ' || oid FROM pg_catalog.pg_operator \
  WHERE oprnamespace = pg_catalog.pg_my_temp_schema() \
UNION ALL SELECT 'slot', slot_name FROM pg_catalog.pg_replication_slots \
  WHERE temporary AND active_pid = pg_catalog.pg_backend_pid() \
UNION ALL SELECT 'origin', 'set' WHERE pg_catalog.pg_replication_origin_session_is_setup()";

/// The kinds of [`STATE`], with the signs of texts that may change them.
const KINDS: [(&str, Signs); 8] = [
    ("setting", Signs::SETTINGS),
    ("prepared", Signs::PREPARED),
    ("cursor", Signs::CURSOR),
    ("lock", Signs::LOCK),
    ("channel", Signs::LISTEN),
    ("temporary", Signs::TEMPORARY),
    ("slot", Signs::LOAD),
    ("origin", Signs::LOAD),
];

type State = BTreeSet<(String, String)>;

pub(super) struct Session {
    client: RawClient,
    state: State,
    /// The signs of the texts since the last look at the state.
    signs: Signs,
    texts: Vec<String>,
    standard_strings: bool,
}

/// The changes by a text, or by all texts since the last one outside of a transaction.
#[derive(Debug)]
pub(super) struct Change {
    /// The kinds of state that are new or gone.
    pub(super) kinds: BTreeSet<String>,
    /// The kinds of state that no text had a sign of.
    pub(super) missed: BTreeSet<String>,
    pub(super) texts: Vec<String>,
}

impl Session {
    pub(super) fn new(postgres: &Postgres, database: &str) -> Self {
        let mut client = postgres.superuser(database);
        // The session will switch to other users as well.
        let function = "pg_replication_origin_session_is_setup()";
        client.rows(&format!("GRANT EXECUTE ON FUNCTION {function} TO PUBLIC"));
        let state = look(&mut client);
        Self { client, state, signs: Signs::NONE, texts: Vec::new(), standard_strings: true }
    }

    /// Runs a text. Returns the error that it ended with, and the changes unless a transaction is
    /// open.
    pub(super) fn run(&mut self, text: &str) -> (Option<ServerError>, Option<Change>) {
        self.signs |= scan(text.as_bytes(), self.standard_strings).signs;
        self.texts.push(text.to_owned());
        let messages = converse(&mut self.client, text);
        let idle = messages.last().is_some_and(|last| last.tag == b'Z' && last.body == b"I");
        self.standard_strings =
            self.client.parameters.get("standard_conforming_strings").is_none_or(|on| on == "on");
        let error = messages.iter().find(|message| message.tag == b'E').and_then(Message::error);
        (error, idle.then(|| self.change()))
    }

    fn change(&mut self) -> Change {
        let now = look(&mut self.client);
        let new: BTreeSet<_> = now.difference(&self.state).map(|(kind, _)| kind.clone()).collect();
        let gone = self.state.difference(&now).map(|(kind, _)| kind.clone());
        let takes = Signs::RELEASE | Signs::DISCARD;
        let missed = |kind: &str, also: Signs| {
            let (_, sign) = KINDS.iter().find(|(name, _)| *name == kind).expect("a kind of STATE");
            !self.signs.intersects(*sign | Signs::OPAQUE | also)
        };
        let missed_new = new.iter().filter(|kind| missed(kind, Signs::NONE)).cloned();
        let missed_gone = gone.clone().filter(|kind| missed(kind, takes));
        let change = Change {
            missed: missed_new.chain(missed_gone).collect(),
            kinds: new.iter().cloned().chain(gone).collect(),
            texts: std::mem::take(&mut self.texts),
        };
        (self.state, self.signs) = (now, Signs::NONE);
        change
    }
}

fn look(client: &mut RawClient) -> State {
    let rows = client.rows(STATE).into_iter();
    rows.map(|mut row| {
        let thing = row.pop().flatten().unwrap_or_default();
        (row.pop().flatten().unwrap_or_default(), thing)
    })
    .collect()
}

/// Sends a text and returns all answers. COPY FROM STDIN gets no data. The last message is
/// ReadyForQuery, unless the server has ended the connection.
fn converse(client: &mut RawClient, text: &str) -> Vec<Message> {
    client.send(frontend::query(text));
    let mut messages = Vec::new();
    while let Ok(Some(message)) = client.try_read() {
        let tag = message.tag;
        if tag == b'G' {
            client.send(frontend::message(b'c', b""));
        }
        messages.push(message);
        if tag == b'Z' {
            break;
        }
    }
    messages
}
