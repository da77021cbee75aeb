//! One connection that waits for its answers: for what is done before a run and to make its tables.

use std::time::{Duration, Instant};

use net::{Address, Caller, Poller, Received, Room};
use wire::{ErrorFields, frontend, messages::DataRow};

use crate::{
    inbox::Inbox,
    login::{Keyring, Login, server_error},
    target::{TIMEOUT_EXPIRED, Target},
};

const READ_LEN: usize = 16 * 1024;
/// COPY sends what it has when it is as long as this.
const COPY_LEN: usize = 128 * 1024;
/// Nobody waits for ever for what the kernel has been given; a lost server shows in reading.
const PATIENCE: Duration = Duration::from_secs(1);

/// A row of text.
pub(crate) type Row = Vec<Option<String>>;

pub(crate) struct Session {
    caller: Caller,
    poller: Poller,
    room: Room,
    inbox: Inbox,
    keyring: Keyring,
    /// Until it is logged in: when that has taken too long.
    deadline: Option<Instant>,
}

/// The result of one message.
enum Heard {
    More,
    Ready,
    CopyIn,
}

impl Session {
    /// Logs in at the first of the target's addresses that answers, and tells which it was.
    ///
    /// # Errors
    /// Why none of them did.
    pub(crate) fn open(target: &std::sync::Arc<Target>) -> Result<(Self, Address), String> {
        let mut reasons = Vec::new();
        for address in &target.addresses {
            let mut session = match Self::dial(target, address) {
                Ok(session) => session,
                Err(reason) => {
                    reasons.push(target.complain(address, &reason));
                    continue;
                }
            };
            // A server that answers and refuses would do so at its other addresses.
            session.log_in().map_err(|reason| target.complain(address, &reason))?;
            session.deadline = None;
            return Ok((session, address.clone()));
        }
        Err(reasons.join("\n"))
    }

    fn dial(target: &std::sync::Arc<Target>, address: &Address) -> Result<Self, String> {
        let failed = |error: std::io::Error| error.to_string();
        let caller = Caller::connect(address).map_err(failed)?;
        let poller = Poller::new().map_err(failed)?;
        poller.add(&caller, 0).map_err(failed)?;
        let mut session = Self {
            caller,
            poller,
            room: Room::new(READ_LEN),
            inbox: Inbox::default(),
            keyring: Keyring::new(target.clone()),
            deadline: target.connect_timeout.map(|timeout| Instant::now() + timeout),
        };
        loop {
            session.wait()?;
            let tls = &session.keyring.target.tls;
            match session.caller.receive(tls, &mut session.room)? {
                Received::Open => return Ok(session),
                Received::End => return Err("server closed the connection unexpectedly".into()),
                Received::Nothing | Received::Bytes(_) => {}
            }
        }
    }

    fn log_in(&mut self) -> Result<(), String> {
        let mut out = Vec::new();
        let mut login = Login::begin(&self.keyring.target, &mut out);
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

    /// Executes it and gives all rows of all its results. Notices go to standard error.
    ///
    /// # Errors
    /// The server's, or that it is gone.
    pub(crate) fn query(&mut self, sql: &str) -> Result<Vec<Row>, String> {
        let mut out = Vec::new();
        frontend::query(&mut out, sql.as_bytes());
        self.send(&out)?;
        let mut rows = Vec::new();
        self.until(|heard| matches!(heard, Heard::Ready), &mut rows)?;
        Ok(rows)
    }

    /// A COPY FROM STDIN, whose lines `fill` appends until it has no more, which it says by false.
    ///
    /// # Errors
    /// The server's, or that it is gone.
    pub(crate) fn copy(
        &mut self,
        sql: &str,
        mut fill: impl FnMut(&mut Vec<u8>) -> bool,
    ) -> Result<(), String> {
        let mut out = Vec::new();
        frontend::query(&mut out, sql.as_bytes());
        self.send(&out)?;
        self.until(|heard| matches!(heard, Heard::CopyIn), &mut Vec::new())?;
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
        self.until(|heard| matches!(heard, Heard::Ready), &mut Vec::new())
    }

    /// Takes messages until one is what is waited for. An error is told once the server is ready
    /// again.
    fn until(
        &mut self,
        is_wanted: impl Fn(&Heard) -> bool,
        rows: &mut Vec<Row>,
    ) -> Result<(), String> {
        let (mut is_done, mut error) = (false, None);
        while !is_done {
            self.hear(|code, body, _| {
                let heard = message(code, body, rows, &mut error)?;
                is_done |= is_wanted(&heard) || matches!(heard, Heard::Ready);
                Ok(())
            })?;
        }
        error.map_or(Ok(()), Err)
    }

    /// Waits for bytes and hands out the messages they complete.
    fn hear(
        &mut self,
        mut each: impl FnMut(u8, &[u8], &mut Keyring) -> Result<(), String>,
    ) -> Result<(), String> {
        self.wait()?;
        let tls = self.keyring.target.tls.clone();
        match self.caller.receive(&tls, &mut self.room)? {
            Received::Bytes(bytes) => {
                let keyring = &mut self.keyring;
                self.inbox.take(bytes, |code, body| each(code, body, keyring))
            }
            Received::End => Err("server closed the connection unexpectedly".to_owned()),
            Received::Nothing | Received::Open => Ok(()),
        }
    }

    /// Sends all of it.
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

    /// Waits for something to receive.
    fn wait(&mut self) -> Result<(), String> {
        let failed = |error: std::io::Error| error.to_string();
        self.poller.update(&self.caller, 0).map_err(failed)?;
        loop {
            let left = self.deadline.map(|end| end.saturating_duration_since(Instant::now()));
            self.poller.wait(left).map_err(failed)?;
            if !self.poller.is_empty() {
                return Ok(());
            }
            // A signal may have ended it early.
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
        // Whether it is heard makes no difference any more.
        let _ = self.caller.send(&out);
    }
}

fn message(
    code: u8,
    body: &[u8],
    rows: &mut Vec<Row>,
    error: &mut Option<String>,
) -> Result<Heard, String> {
    match code {
        b'Z' => return Ok(Heard::Ready),
        b'G' => return Ok(Heard::CopyIn),
        b'D' => {
            let row = DataRow::decode(body).map_err(|error| error.to_string())?;
            let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
            rows.push(row.values().map(|value| value.map(text)).collect());
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
    Ok(Heard::More)
}
