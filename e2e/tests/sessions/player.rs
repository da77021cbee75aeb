//! A connection that plays a session, and what it has prepared.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use testkit::{Message, RawClient, frontend};

use crate::compare::comparable;
use crate::script::{Check, Request, Step};

/// The name of a statement and a portal that no script uses.
const OWN: &str = "of_the_reader";

/// Values from ParameterStatus.
pub(crate) type Parameters = BTreeMap<String, String>;
/// Payloads in order, by channel and notifying session.
pub(crate) type News = BTreeMap<(String, String), Vec<String>>;
/// Rows of a statement, each as it comes in DataRow.
pub(crate) type Rows = BTreeSet<Vec<u8>>;

/// The answers to one write.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) replies: Vec<Message>,
    /// The transaction status, or 0 if the connection is closed.
    pub(crate) status: u8,
    pub(crate) parameters: Parameters,
    /// The earliest time of the step's statement, in seconds since 1970: see `Check::Moment`.
    pub(crate) moment: f64,
}

/// The readings of a statement's literals.
#[derive(Debug, Default)]
struct Readings {
    /// The texts that it may have.
    texts: BTreeSet<String>,
    rows: Rows,
}

/// A connection that plays a session.
#[derive(Debug)]
pub(crate) struct Player {
    pub(crate) client: RawClient,
    pub(crate) news: News,
    /// The last status that was heard.
    status: u8,
    /// No transaction of the session has begun before this time, except those that are over.
    idle_since: f64,
    /// The earliest time of the Parse of each statement, by its name.
    moments: BTreeMap<&'static str, f64>,
    readings: BTreeMap<&'static str, Readings>,
}

impl Player {
    pub(crate) fn new(client: RawClient) -> Self {
        Self {
            client,
            news: News::new(),
            status: b'I',
            idle_since: now(),
            moments: BTreeMap::new(),
            readings: BTreeMap::new(),
        }
    }

    /// Plays the requests of a step.
    pub(crate) fn play(&mut self, step: &Step, requests: &[Request]) -> Result<Heard, String> {
        if self.status == b'I' {
            self.idle_since = now();
        }
        let mut heard = self.write(&Step::bytes(requests), Step::readies(requests))?;
        let has_failed = heard.replies.iter().any(|message| message.tag == b'E');
        for request in requests {
            let Request::Parse { name, sql } = request else { continue };
            // If the step has failed, the statement may be the one before.
            if !has_failed {
                self.moments.insert(name, self.idle_since);
                self.readings.remove(name);
            }
            self.moments.entry(name).or_insert(self.idle_since);
            self.readings.entry(name).or_default().texts.insert(sql.clone());
        }
        if let Check::Moment(name) = step.check {
            heard.moment = self.moments.get(name).copied().unwrap_or(f64::MAX);
        }
        Ok(heard)
    }

    /// Writes the bytes, and reads until `readies` ReadyForQuery have come.
    fn write(&mut self, bytes: &[u8], readies: usize) -> Result<Heard, String> {
        let mut heard = Heard::default();
        if self.client.try_send(bytes).is_err() {
            return Ok(heard);
        }
        let mut count = 0;
        while count < readies {
            match self.client.try_read() {
                Ok(Some(message)) => {
                    if message.tag == b'Z' {
                        count += 1;
                        heard.status = message.body[0];
                    }
                    self.note(&message);
                    heard.replies.extend(comparable(&message));
                }
                Ok(None) => {
                    heard.status = 0;
                    break;
                }
                Err(error) => return Err(format!("{error}; so far {:?}", heard.replies)),
            }
        }
        self.status = heard.status;
        heard.parameters.clone_from(&self.client.parameters);
        Ok(heard)
    }

    /// Returns the rows that the step may also have: see `Check::Reading`. For direct connections.
    pub(crate) fn readings(&mut self, step: &Step, heard: &Heard) -> Result<Rows, String> {
        let used = match step.check {
            Check::Reading(name) => Some(name),
            Check::Equal | Check::Moment(_) => None,
        };
        let names: Vec<_> = self.readings.keys().copied().collect();
        for name in names.into_iter().filter(|name| is_of_literals(name)) {
            // Within a transaction, a query may take the snapshot that a later statement needs.
            if heard.status == b'I' || heard.status == b'T' && used == Some(name) {
                self.read_anew(name)?;
            }
        }
        let Some(readings) = used.and_then(|name| self.readings.get_mut(name)) else {
            return Ok(Rows::new());
        };
        readings.rows.extend(rows(&heard.replies));
        Ok(readings.rows.clone())
    }

    /// Notes what the statement's texts mean at present.
    fn read_anew(&mut self, name: &'static str) -> Result<(), String> {
        let texts: Vec<_> = self.readings[name].texts.iter().cloned().collect();
        for sql in texts {
            let batch = [
                frontend::parse(OWN, &sql),
                frontend::bind(OWN, OWN, &[]),
                frontend::execute(OWN, 0),
                frontend::close_statement(OWN),
                frontend::sync(),
            ];
            let heard = self.write(&batch.concat(), 1)?;
            let readings = self.readings.get_mut(name).expect("it was there a moment ago");
            readings.rows.extend(rows(&heard.replies));
        }
        Ok(())
    }

    /// Notes a notification.
    pub(crate) fn note(&mut self, message: &Message) {
        if message.tag == b'A' {
            let mut texts = message.body[4..].split(|byte| *byte == 0);
            let mut text =
                || String::from_utf8_lossy(texts.next().unwrap_or_default()).into_owned();
            let (channel, payload) = (text(), text());
            let notifier = payload.split('-').next().unwrap_or_default().to_owned();
            self.news.entry((channel, notifier)).or_default().push(payload);
        }
    }

    /// Ends the transaction and reads pending messages.
    pub(crate) fn rest(&mut self) -> Result<(), String> {
        self.write(&frontend::query("ROLLBACK"), 1)?;
        self.write(&frontend::query("SELECT 1"), 1)?;
        Ok(())
    }

    pub(crate) fn count_news(&self) -> usize {
        self.news.values().map(Vec::len).sum()
    }
}

/// Returns the time in seconds since 1970, as `extract(epoch FROM now())` does.
pub(crate) fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    // PostgreSQL has microseconds.
    (since.as_secs_f64() * 1e6).floor() / 1e6
}

/// Returns whether only steps with `Check::Reading` use statements of this name.
fn is_of_literals(name: &str) -> bool {
    matches!(name, "l" | "m")
}

fn rows(replies: &[Message]) -> impl Iterator<Item = Vec<u8>> {
    replies.iter().filter(|message| message.tag == b'D').map(|message| message.body.clone())
}
