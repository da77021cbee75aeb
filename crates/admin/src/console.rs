//! The console of the process: its connections, and their messages.
//!
//! ```text
//!  Login ─► welcome ─► message ─► reply ─► message … ─► why it ended
//! ```
//!
//! * `session.rs`: one connection
//! * `extended.rs`: statements and portals

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;

use self::extended::Prepared;
use self::session::Session;
use crate::NAME;
use crate::control::Control;
use crate::recording::Recording;
use crate::reply;
use crate::show::{Needs, Selected, View};
use crate::snapshot::{ClientRow, ClientState, Connection};

mod extended;
mod session;

/// A console client that is authenticated and has not been welcomed yet.
#[derive(Clone, Debug)]
pub struct Login {
    /// The prefix of log lines about the connection.
    pub label: String,
    /// May it change anything (`admin_users`), or only SHOW (`stats_users`)?
    pub admin: bool,
    /// The process id of the key for cancel requests.
    pub process_id: u32,
    pub secret: [u8; 4],
    /// Its row in SHOW CLIENTS. The console replaces the database; `id` must be unique among all
    /// clients.
    pub connection: Connection,
    /// Bytes that followed its login.
    pub unread: Vec<u8>,
}

/// The console; there is one per process.
pub struct Console {
    control: Arc<dyn Control>,
    /// Its connections, by id.
    open: Mutex<BTreeMap<u64, Open>>,
    /// The number of connections so far that have sent a query.
    sessions: AtomicU64,
    /// The number of connections so far.
    logins: AtomicU64,
    /// Has the log said that a SHOW leaves out columns?
    has_noted_columns: AtomicBool,
}

struct Open {
    row: ClientRow,
    /// Process id and secret, for cancel requests.
    key: (u32, [u8; 4]),
    signals: Arc<Signals>,
    /// When its last query came.
    request: Option<Instant>,
}

/// Signals of other tasks to a connection.
#[derive(Debug, Default)]
struct Signals {
    /// Stop waiting for the present command.
    cancel: Notify,
    /// End the connection.
    kill: Notify,
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console").field("open", &self.open().len()).finish_non_exhaustive()
    }
}

impl Console {
    pub fn new(control: Arc<dyn Control>) -> Self {
        Self {
            control,
            open: Mutex::default(),
            sessions: AtomicU64::default(),
            logins: AtomicU64::default(),
            has_noted_columns: AtomicBool::default(),
        }
    }

    /// Serves one connection from its welcome to its end. Returns the reason for the end, for the
    /// log; None if the whole process ends. The stream is dropped without closing it.
    pub async fn serve<S>(&self, stream: S, login: Login) -> Option<String>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let id = login.connection.id;
        let connection = Connection { database: NAME.to_owned(), ..login.connection };
        let mut out = Vec::new();
        let name = &connection.application_name;
        reply::welcome(&mut out, name, login.process_id, login.secret);
        let row = ClientRow { state: ClientState::Active, connection };
        let signals = Arc::new(Signals::default());
        let key = (login.process_id, login.secret);
        self.logins.fetch_add(1, Ordering::Relaxed);
        self.open().insert(id, Open { row, key, signals: Arc::clone(&signals), request: None });
        let _entry = Entry { console: self, id };
        let session = Session {
            console: self,
            id,
            signals,
            label: login.label,
            admin: login.admin,
            stream,
            received: login.unread,
            out,
            prepared: Prepared::default(),
        };
        session.run().await
    }

    /// Cancels the command of the client with this key, if it belongs to the console.
    pub fn cancel(&self, process_id: u32, secret: &[u8]) {
        let is_meant = |open: &&Open| open.key.0 == process_id && open.key.1 == secret;
        if let Some(open) = self.open().values().find(is_meant) {
            open.signals.cancel.notify_waiters();
        }
    }

    /// Ends the connection with this number in SHOW CLIENTS. Returns false if there is none.
    fn kill(&self, number: u64) -> bool {
        let open = self.open();
        let found = open.iter().find(|(id, _)| *id & i32::MAX as u64 == number);
        found.inspect(|(_, open)| open.signals.kill.notify_one()).is_some()
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<u64, Open>> {
        // Each change of the map is one call, so a panic elsewhere leaves it consistent.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_request(&self, id: u64) {
        if let Some(open) = self.open().get_mut(&id) {
            let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            open.row.connection.request_at = i64::try_from(since_epoch.as_secs()).unwrap_or(0);
            if open.request.replace(Instant::now()).is_none() {
                self.sessions.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Logs, at the first SHOW that leaves out columns, how to get them.
    fn note_columns(&self, selected: &Selected) {
        if selected.is_shortened() && !self.has_noted_columns.swap(true, Ordering::Relaxed) {
            let name = selected.show.name();
            self.control.note(&format!(
                "SHOW {name} has PgBouncer's columns only, as console_columns says; \
                 SHOW {name} EXTENDED has Weir's own as well"
            ));
        }
    }

    async fn view(&self, Selected { show, has_own }: &Selected) -> View {
        let snapshot = self.control.snapshot().await;
        let recording = match show.needs() {
            Needs::Recording => self.control.recording().await,
            Needs::Timings => self.control.timings(),
            Needs::Nothing => Recording::default(),
        };
        let row = |open: &Open| {
            let mut row = open.row.clone();
            let wait = open.request.map_or(0, |request| request.elapsed().as_micros());
            row.connection.wait = u64::try_from(wait).unwrap_or(u64::MAX);
            row
        };
        let [sessions, logins] =
            [&self.sessions, &self.logins].map(|count| count.load(Ordering::Relaxed));
        let consoles = self.open().values().map(row).collect();
        let has_own = *has_own;
        View { snapshot, recording, consoles, sessions, logins, has_own }
    }
}

/// Lists a connection as long as it is served, even if serving it is aborted.
struct Entry<'a> {
    console: &'a Console,
    id: u64,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut open = self.console.open();
        open.remove(&self.id);
        let is_last = open.is_empty();
        drop(open);
        if is_last {
            self.console.control.abandoned();
        }
    }
}
