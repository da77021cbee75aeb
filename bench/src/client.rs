//! One client of the load generator, as a state machine. It logs in, sends a query, compares each
//! byte of the answer, and repeats. A wrong answer is an error.

mod flood;
mod reply;

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Error, Result, bail, ensure};
use load::Login;
use wire::frontend;

use crate::frame::{Frame, put};
use crate::traffic::{Protocol, Traffic, Work};
use flood::Flood;
use reply::Reply;

const SELECT: &str = "SELECT abalance FROM pgbench_accounts WHERE aid = ";

/// One connection to the pooler.
#[derive(Debug)]
pub(crate) struct Client {
    step: Step,
    /// The values that this client has set, in the form in which each answer shows them. Empty if
    /// it has set none.
    values: String,
    asked: Instant,
    /// Complete answers since the count was last taken.
    pub(crate) transactions: u64,
}

/// The event that a client waits for.
#[derive(Debug)]
enum Step {
    /// The end of the login, of which AuthenticationOk and BackendKeyData have arrived or not.
    Login {
        login: Box<Login>,
        is_authenticated: bool,
        has_key: bool,
    },
    /// The answer to the SET commands.
    Set(Reply),
    /// The answer to the client's only Parse.
    Prepare(Reply),
    /// The order to send the next query.
    Idle,
    Answer(Reply),
    /// The answers to a flood, some of which may not be sent yet.
    Flood(Flood),
    /// The end of the connection, after Terminate.
    End,
}

impl Client {
    /// Creates a client and appends its startup packet to `out`.
    pub(crate) fn start(traffic: &mut Traffic, out: &mut Vec<u8>) -> Self {
        traffic.logging_in += 1;
        let credentials = &traffic.credentials;
        frontend::startup(
            out,
            0,
            &[
                ("user", credentials.user.as_str()),
                ("database", &credentials.database),
                ("application_name", "weir-bench"),
                ("client_encoding", "UTF8"),
            ],
        );
        let step = Step::Login { login: Box::default(), is_authenticated: false, has_key: false };
        Self { step, values: String::new(), asked: Instant::now(), transactions: 0 }
    }

    /// Returns whether the client is logged in and waits for no answer.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.step, Step::Idle)
    }

    /// Sends the next query, unless one is in flight.
    pub(crate) fn ask(&mut self, traffic: &mut Traffic, out: &mut Vec<u8>) {
        self.ask_due(Instant::now(), traffic, out);
    }

    /// Sends the next query like [`Self::ask`], but measures its latency from the time `due`.
    pub(crate) fn ask_due(&mut self, due: Instant, traffic: &mut Traffic, out: &mut Vec<u8>) {
        if let Step::Idle = self.step {
            self.asked = due;
            if let Work::Flood { pattern, messages } = traffic.work {
                let mut flood = Flood::new(pattern, messages, traffic.next_number());
                flood.send(out);
                self.step = Step::Flood(flood);
                return;
            }
            self.step = Step::Answer(match traffic.work {
                Work::Query(protocol) => {
                    ask_number(protocol, traffic.next_number(), &self.values, out)
                }
                Work::Bulk { row_bytes, total_bytes } => {
                    let text = format!("SELECT bulk {row_bytes} {total_bytes}\0");
                    put(out, b'Q', &[text.as_bytes()]);
                    Reply::to_bulk(row_bytes, total_bytes)
                }
                Work::Login | Work::Flood { .. } => return,
            });
        }
    }

    /// Called when everything in `out` has been sent: appends the next piece of a flood.
    pub(crate) fn refill(&mut self, out: &mut Vec<u8>) {
        if let Step::Flood(flood) = &mut self.step {
            flood.send(out);
        }
    }

    /// Handles the whole messages in `bytes` and returns their length.
    pub(crate) fn handle(
        &mut self,
        bytes: &[u8],
        traffic: &mut Traffic,
        out: &mut Vec<u8>,
    ) -> Result<usize> {
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            if let Step::Answer(reply) = &mut self.step
                && let Some(rows) = reply.rows_in_progress()
            {
                let count = rows.check(rest)?;
                traffic.bytes += count as u64;
                used += count;
                if !rows.is_done() {
                    return Ok(used);
                }
                continue;
            }
            let Some((frame, length)) = Frame::split(rest)? else { return Ok(used) };
            used += length;
            self.handle_message(frame, traffic, out)?;
        }
    }

    /// Handles the end of the connection, closed by the pooler.
    pub(crate) fn handle_end(&mut self, traffic: &mut Traffic) -> Result<()> {
        if let Step::Flood(_) = self.step {
            // A pooler may close the connection of a client that floods it.
            self.step = Step::End;
            traffic.ready -= 1;
            return Ok(());
        }
        ensure!(
            matches!(self.step, Step::End),
            "the pooler closed a client's connection, which was waiting for {}",
            self.waits_for()
        );
        traffic.logins += 1;
        traffic.latency.record(self.asked.elapsed());
        traffic.logging_in -= 1;
        Ok(())
    }

    fn handle_message(
        &mut self,
        frame: Frame<'_>,
        traffic: &mut Traffic,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        if let Step::Flood(flood) = &mut self.step {
            traffic.bytes += frame.body.len() as u64 + 5;
            if flood.handle(frame)? {
                traffic.transactions += flood.messages();
                self.step = Step::Idle;
            }
            return Ok(());
        }
        if frame.tag == b'E' {
            bail!("{} in answer to a {}", frame.error_text(), self.waits_for());
        }
        match &mut self.step {
            Step::Login { login, is_authenticated, has_key } => {
                *is_authenticated |= (frame.tag, frame.body) == (b'R', &[0; 4][..]);
                *has_key |= frame.tag == b'K' && frame.body.len() == 8;
                let keyring = &mut traffic.credentials.keyring;
                let message = (frame.tag, frame.body);
                if login.handle(message, keyring, &Arc::default(), out).map_err(Error::msg)? {
                    ensure!(*is_authenticated, "ready for queries without AuthenticationOk");
                    ensure!(*has_key, "ready for queries without a cancel key");
                    ensure!(frame.body == b"I", "logged in within a transaction");
                    self.logged_in(traffic, out);
                }
            }
            Step::Set(reply) => {
                if reply.handle(frame)? {
                    self.prepare(traffic, out);
                }
            }
            Step::Prepare(reply) => {
                if reply.handle(frame)? {
                    self.become_ready(traffic);
                }
            }
            Step::Answer(reply) => {
                if reply.handle(frame)? {
                    traffic.count_transaction(self.asked);
                    self.transactions += 1;
                    self.step = Step::Idle;
                    match traffic.sessions.at_work {
                        _ if !traffic.running => {}
                        0 => self.ask(traffic, out),
                        _ => traffic.turns += 1,
                    }
                }
            }
            Step::Idle | Step::Flood(_) | Step::End => match frame.tag {
                b'S' | b'N' => {}
                other => bail!("message {:?} that nobody asked for", other as char),
            },
        }
        Ok(())
    }

    fn logged_in(&mut self, traffic: &mut Traffic, out: &mut Vec<u8>) {
        if traffic.work == Work::Login {
            put(out, b'X', &[]);
            self.step = Step::End;
            return;
        }
        if let Some(group) = traffic.next_group() {
            let (settings, values) = settings_of(group);
            put(out, b'Q', &[settings.as_bytes(), b"\0"]);
            self.values = values;
            self.step = Step::Set(Reply::to_settings());
            return;
        }
        self.prepare(traffic, out);
    }

    /// Called after the settings are set. Sends Parse if the run uses a prepared statement.
    fn prepare(&mut self, traffic: &mut Traffic, out: &mut Vec<u8>) {
        if traffic.work != Work::Query(Protocol::Prepared) {
            return self.become_ready(traffic);
        }
        put(out, b'P', &[b"P_0\0", SELECT.as_bytes(), b"$1;\0\0\0"]);
        put(out, b'S', &[]);
        self.step = Step::Prepare(Reply::to_parse());
    }

    fn become_ready(&mut self, traffic: &mut Traffic) {
        traffic.logging_in -= 1;
        traffic.ready += 1;
        self.step = Step::Idle;
    }

    fn waits_for(&self) -> &'static str {
        match self.step {
            Step::Login { .. } => "login",
            Step::Set(_) => "SET",
            Step::Prepare(_) => "Parse",
            Step::Idle => "nothing",
            Step::Answer(_) => "query",
            Step::Flood(_) => "flood",
            Step::End => "Terminate",
        }
    }
}

/// Returns the SET commands of a client of `group`, and the values as each answer shows them,
/// sorted by the names of the settings.
fn settings_of(group: usize) -> (String, String) {
    let (path, timeout, memory) = (format!("group_{group}"), 60_000 + group, 4_096 + group);
    let settings = format!(
        "SET search_path = '{path}';SET statement_timeout = '{timeout}';SET work_mem = '{memory}';"
    );
    (settings, format!(" {path} {timeout} {memory}"))
}

/// Appends the select for `number` and returns the expected reply of a session that has these
/// values.
fn ask_number(protocol: Protocol, number: u32, values: &str, out: &mut Vec<u8>) -> Reply {
    let number = number.to_string();
    let (select, digits) = (SELECT.as_bytes(), number.as_bytes());
    let answer = format!("{number}{values}");
    let name: &[u8] = match protocol {
        Protocol::Simple => {
            put(out, b'Q', &[select, digits, b";\0"]);
            return Reply::to_simple(answer.as_bytes());
        }
        Protocol::Extended => {
            put(out, b'P', &[b"\0", select, b"$1;\0\0\0"]);
            b"\0"
        }
        Protocol::Prepared => b"P_0\0",
    };
    let length = (digits.len() as u32).to_be_bytes();
    put(out, b'B', &[b"\0", name, b"\0\0\0\x01", &length, digits, b"\0\0"]);
    put(out, b'D', &[b"P\0"]);
    put(out, b'E', &[b"\0\0\0\0\0"]);
    put(out, b'S', &[]);
    Reply::to_extended(answer.as_bytes(), protocol == Protocol::Extended)
}

#[cfg(test)]
mod tests;
