//! A connection that waits for its replies: for everything before a run, and for making the tables.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use net::{Address, Caller, Poller, Received, Room};
use wire::{
    ErrorFields, frontend,
    messages::{CommandComplete, DataRow, RowDescription},
};

use crate::{
    inbox::Inbox,
    login::{Keyring, Login, server_error},
    target::{TIMEOUT_EXPIRED, Target},
};

const READ_LEN: usize = 16 * 1024;
/// COPY data is sent when it is this long.
const COPY_LEN: usize = 128 * 1024;
/// The time to wait for the kernel to accept bytes. Reading detects a lost server.
const PATIENCE: Duration = Duration::from_secs(1);

/// A row of text.
pub(crate) type Row = Vec<Option<String>>;

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    /// The OID of its type.
    pub type_oid: u32,
}

/// The result of one command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// None if the command has no rows.
    pub columns: Option<Vec<Column>>,
    pub rows: Vec<Vec<Option<String>>>,
    /// The tag, such as `PAUSE`; empty until the command is complete.
    pub tag: String,
}

pub(crate) struct Session {
    caller: Caller,
    poller: Poller,
    room: Room,
    inbox: Inbox,
    target: Arc<Target>,
    keyring: Keyring,
    /// The time limit for the login; None after it.
    deadline: Option<Instant>,
}

/// The result of one message.
enum Event {
    More,
    Ready,
    CopyIn,
}

impl Session {
    /// Logs in at the first of the target's addresses that answers, and returns that address.
    ///
    /// # Errors
    /// Why no address worked.
    pub(crate) fn open(target: &Arc<Target>) -> Result<(Self, Address), String> {
        let mut reasons = Vec::new();
        for address in &target.addresses {
            let mut session = match Self::dial(target, address) {
                Ok(session) => session,
                Err(reason) => {
                    reasons.push(target.complain(address, &reason));
                    continue;
                }
            };
            // A server that answers and refuses would also do so at its other addresses.
            session.log_in().map_err(|reason| target.complain(address, &reason))?;
            session.deadline = None;
            return Ok((session, address.clone()));
        }
        Err(reasons.join("\n"))
    }

    fn dial(target: &Arc<Target>, address: &Address) -> Result<Self, String> {
        let failed = |error: std::io::Error| error.to_string();
        let caller = Caller::connect(address).map_err(failed)?;
        let poller = Poller::new().map_err(failed)?;
        poller.add(&caller, 0).map_err(failed)?;
        let mut session = Self {
            caller,
            poller,
            room: Room::new(READ_LEN),
            inbox: Inbox::default(),
            target: target.clone(),
            keyring: target.keyring(),
            deadline: target.connect_timeout.map(|timeout| Instant::now() + timeout),
        };
        loop {
            session.wait()?;
            match session.caller.receive(&target.tls, &mut session.room)? {
                Received::Open => return Ok(session),
                Received::End => return Err("server closed the connection unexpectedly".into()),
                Received::Nothing | Received::Bytes(_) => {}
            }
        }
    }

    fn log_in(&mut self) -> Result<(), String> {
        let mut out = Vec::new();
        self.target.start_up(&mut out);
        let mut login = Login::default();
        let end_point = self.caller.end_point();
        let mut is_done = false;
        while !is_done {
            self.send(&out)?;
            out.clear();
            self.hear(|code, body, keyring| {
                is_done |= login.handle((code, body), keyring, &end_point, &mut out)?;
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Runs SQL and returns all rows of all results. Notices go to standard error.
    ///
    /// # Errors
    /// The server's error, or that it is lost.
    pub(crate) fn query(&mut self, sql: &str) -> Result<Vec<Row>, String> {
        let outcomes = self.outcomes(sql)??;
        Ok(outcomes.into_iter().flat_map(|outcome| outcome.rows).collect())
    }

    /// Runs SQL and returns the result of each command, or the server's error. Notices go to
    /// standard error.
    ///
    /// # Errors
    /// When the server is lost, or ends the connection.
    pub(crate) fn outcomes(&mut self, sql: &str) -> Result<Result<Vec<Outcome>, String>, String> {
        let mut out = Vec::new();
        frontend::query(&mut out, sql.as_bytes());
        self.send(&out)?;
        let mut outcomes = Vec::new();
        let failed = self.until(|event| matches!(event, Event::Ready), &mut outcomes)?;
        Ok(failed.map(|()| outcomes))
    }

    /// Runs a COPY FROM STDIN. `fill` appends lines, and returns false when there are no more.
    ///
    /// # Errors
    /// The server's error, or that it is lost.
    pub(crate) fn copy(
        &mut self,
        sql: &str,
        mut fill: impl FnMut(&mut Vec<u8>) -> bool,
    ) -> Result<(), String> {
        let mut out = Vec::new();
        frontend::query(&mut out, sql.as_bytes());
        self.send(&out)?;
        self.until(|event| matches!(event, Event::CopyIn), &mut Vec::new())??;
        let (mut lines, mut goes_on) = (Vec::new(), true);
        while goes_on {
            goes_on = fill(&mut lines);
            if lines.len() >= COPY_LEN || !goes_on {
                out.clear();
                frontend::copy_data(&mut out, &lines);
                lines.clear();
                self.send(&out)?;
            }
        }
        out.clear();
        frontend::copy_done(&mut out);
        self.send(&out)?;
        self.until(|event| matches!(event, Event::Ready), &mut Vec::new())?
    }

    /// Reads messages until the expected one. The server's error is returned when the server is
    /// ready again.
    ///
    /// # Errors
    /// When the server is lost, or ends the connection.
    fn until(
        &mut self,
        is_wanted: impl Fn(&Event) -> bool,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<Result<(), String>, String> {
        let (mut is_done, mut error) = (false, None);
        while !is_done {
            self.hear(|code, body, _| {
                let event = message(code, body, outcomes, &mut error)?;
                is_done |= is_wanted(&event) || matches!(event, Event::Ready);
                Ok(())
            })?;
        }
        Ok(error.map_or(Ok(()), Err))
    }

    /// Waits for bytes and handles the messages that they complete.
    fn hear(
        &mut self,
        mut each: impl FnMut(u8, &[u8], &mut Keyring) -> Result<(), String>,
    ) -> Result<(), String> {
        self.wait()?;
        match self.caller.receive(&self.target.tls, &mut self.room)? {
            Received::Bytes(bytes) => {
                let keyring = &mut self.keyring;
                self.inbox.take(bytes, |code, body| each(code, body, keyring))
            }
            Received::End => Err("server closed the connection unexpectedly".to_owned()),
            Received::Nothing | Received::Open => Ok(()),
        }
    }

    /// Sends all bytes.
    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let failed = |error: std::io::Error| error.to_string();
        if bytes.is_empty() {
            return Ok(());
        }
        self.caller.send(bytes).map_err(failed)?;
        while self.caller.is_blocked() {
            self.poller.update(&self.caller, 0).map_err(failed)?;
            self.poller.wait(Some(PATIENCE)).map_err(failed)?;
            self.caller.flush().map_err(failed)?;
        }
        self.poller.update(&self.caller, 0).map_err(failed)
    }

    /// Waits for received bytes.
    fn wait(&mut self) -> Result<(), String> {
        let failed = |error: std::io::Error| error.to_string();
        self.poller.update(&self.caller, 0).map_err(failed)?;
        loop {
            let left = self.deadline.map(|end| end.saturating_duration_since(Instant::now()));
            self.poller.wait(left).map_err(failed)?;
            if !self.poller.is_empty() {
                return Ok(());
            }
            // A signal may have interrupted the wait.
            if left.is_some_and(|left| left.is_zero()) {
                return Err(TIMEOUT_EXPIRED.to_owned());
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut out = Vec::new();
        frontend::terminate(&mut out);
        // A failure does not matter any more.
        let _ = self.caller.send(&out);
    }
}

fn message(
    code: u8,
    body: &[u8],
    outcomes: &mut Vec<Outcome>,
    error: &mut Option<String>,
) -> Result<Event, String> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    match code {
        b'Z' => return Ok(Event::Ready),
        b'G' => return Ok(Event::CopyIn),
        b'D' => {
            let row = DataRow::decode(body).map_err(|error| error.to_string())?;
            let row = row.values().map(|value| value.map(text)).collect();
            current(outcomes).rows.push(row);
        }
        b'T' => {
            let found = RowDescription::decode(body).map_err(|error| error.to_string())?;
            let columns = found.columns.into_iter();
            let column = |(name, type_oid)| Column { name: text(name), type_oid };
            current(outcomes).columns = Some(columns.map(column).collect());
        }
        b'C' => {
            let done = CommandComplete::decode(body).map_err(|error| error.to_string())?;
            current(outcomes).tag = text(done.tag);
        }
        b'E' => {
            let fields = ErrorFields::decode(body).map_err(|error| error.to_string())?;
            if fields.ends_session() {
                return Err(server_error(body));
            }
            error.get_or_insert_with(|| server_error(body));
        }
        b'N' => eprintln!("{}", server_error(body)),
        _ => {}
    }
    Ok(Event::More)
}

/// Returns the result of the command that is running.
fn current(outcomes: &mut Vec<Outcome>) -> &mut Outcome {
    if outcomes.last().is_none_or(|last| !last.tag.is_empty()) {
        outcomes.push(Outcome::default());
    }
    let last = outcomes.len() - 1;
    &mut outcomes[last]
}
