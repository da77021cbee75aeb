//! The conversations during which a process dies. Each flow has a few messages and their answers.

use testkit::{Message, RawClient, Role, frontend};

/// The number of rows that each writing flow adds to `t`, all or none.
pub(super) const ROWS: u64 = 2;

/// The id of the function `lower(text)`.
const LOWER: u32 = 870;

/// One message of a client, and the type of the message that ends its answer, if it has one.
pub(super) struct Step {
    pub(super) bytes: Vec<u8>,
    pub(super) answer: Option<u8>,
}

/// A conversation.
pub(super) struct Flow {
    pub(super) name: &'static str,
    pub(super) steps: Vec<Step>,
    /// The step that may commit [`ROWS`] rows, once it is sent as a whole.
    pub(super) commits: Option<usize>,
    /// True if the flow begins before the login.
    pub(super) logs_in: bool,
}

impl Flow {
    fn new(name: &'static str, steps: Vec<Step>, commits: Option<usize>) -> Self {
        Self { name, steps, commits, logs_in: false }
    }

    /// Returns the possible numbers of rows in `t` after the client has sent at most `whole` steps.
    pub(super) fn possible_rows(&self, whole: usize) -> &'static [u64] {
        match self.commits {
            Some(step) if whole > step => &[0, ROWS],
            _ => &[0],
        }
    }
}

/// Plays steps to the end of the last answer, or to the end of the connection.
pub(super) fn play(client: &mut RawClient, steps: &[Step]) -> Vec<Message> {
    let mut heard = Vec::new();
    for step in steps {
        // A dead server accepts nothing, but its last error can still be read.
        let _ = client.try_send(&step.bytes);
        let Some(answer) = step.answer else { continue };
        loop {
            match client.try_read().expect("it gets an answer, or its connection ends") {
                Some(message) => heard.push(message),
                None => return heard,
            }
            if heard.last().is_some_and(|message| message.tag == answer) {
                break;
            }
        }
    }
    heard
}

/// Returns all flows that begin after the login.
pub(super) fn all() -> Vec<Flow> {
    vec![
        Flow::new("simple query", vec![asks(INSERT)], Some(0)),
        Flow::new("transaction", vec![asks("BEGIN"), asks(INSERT), asks("COMMIT")], Some(2)),
        extended_batch(),
        named_statement(),
        copy_in(),
        Flow::new("copy out", vec![asks("COPY (SELECT generate_series(1, 3)) TO STDOUT")], None),
        Flow::new(
            "function call",
            vec![answered(frontend::function_call(LOWER, &["KILLED"]), b'Z')],
            None,
        ),
    ]
}

/// Returns the login, with the password as clear text.
pub(super) fn login(database: &str) -> Flow {
    let startup = frontend::startup(&[("user", Role::APP), ("database", database)]);
    let steps =
        vec![answered(startup, b'R'), answered(frontend::password(Role::APP_PASSWORD), b'Z')];
    Flow { name: "login", steps, commits: None, logs_in: true }
}

const INSERT: &str = "INSERT INTO t VALUES (1), (2) RETURNING n";

fn extended_batch() -> Flow {
    let steps = vec![
        silent(frontend::parse("", INSERT)),
        silent(frontend::bind("", "", &[])),
        silent(frontend::describe_portal("")),
        silent(frontend::execute("", 0)),
        answered(frontend::sync(), b'Z'),
    ];
    // PostgreSQL commits at Sync. A connection that ends without it is rolled back.
    Flow::new("extended batch", steps, Some(4))
}

fn named_statement() -> Flow {
    let steps = vec![
        silent(frontend::parse("s", "INSERT INTO t VALUES ($1), (2)")),
        answered(frontend::sync(), b'Z'),
        silent(frontend::bind("", "s", &[Some("1")])),
        silent(frontend::execute("", 0)),
        answered(frontend::sync(), b'Z'),
        silent(frontend::close_statement("s")),
        answered(frontend::sync(), b'Z'),
    ];
    Flow::new("named prepared", steps, Some(4))
}

fn copy_in() -> Flow {
    let steps = vec![
        answered(frontend::query("COPY t FROM STDIN"), b'G'),
        silent(frontend::copy_data(b"1\n")),
        silent(frontend::copy_data(b"2\n")),
        answered(frontend::copy_done(), b'Z'),
    ];
    Flow::new("copy in", steps, Some(3))
}

fn asks(sql: &str) -> Step {
    answered(frontend::query(sql), b'Z')
}

fn answered(bytes: Vec<u8>, answer: u8) -> Step {
    Step { bytes, answer: Some(answer) }
}

fn silent(bytes: Vec<u8>) -> Step {
    Step { bytes, answer: None }
}
