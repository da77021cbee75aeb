//! The console of the process: its connections, and what happens on each of them.
//!
//! ```text
//!  Login ─► welcome ─► message ─► reply ─► message … ─► why it ended
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::NAME;
use crate::command::{self, Command, Invalid};
use crate::control::{Control, Shutdown};
use crate::message::{self, MESSAGE_BYTES_MAX, Message};
use crate::reply;
use crate::show::View;
use crate::snapshot::{ClientRow, ClientState, Connection};

/// A client of the console that has proven who it is and was told nothing yet.
#[derive(Clone, Debug)]
pub struct Login {
    /// May it change anything (`admin_users`), or only look (`stats_users`)?
    pub admin: bool,
    /// For cancel requests.
    pub process_id: u32,
    pub secret: [u8; 4],
    /// How SHOW CLIENTS shows it. Database and user are replaced by the console's own, as
    /// PgBouncer does; `id` must be unique among all clients.
    pub connection: Connection,
    /// Bytes that were received behind its login.
    pub unread: Vec<u8>,
}

/// One for the process.
pub struct Console {
    control: Arc<dyn Control>,
    /// Its connections, by their ids.
    open: Mutex<BTreeMap<u64, Open>>,
}

struct Open {
    row: ClientRow,
    /// When its last query came.
    request: Option<Instant>,
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console").field("open", &self.open().len()).finish_non_exhaustive()
    }
}

impl Console {
    pub fn new(control: Arc<dyn Control>) -> Self {
        Self { control, open: Mutex::default() }
    }

    /// Serves one connection from its welcome to its end, and returns why it ended, for the log.
    /// The stream is not closed, only dropped.
    pub async fn serve<S>(&self, stream: S, login: Login) -> String
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let id = login.connection.id;
        let connection =
            Connection { database: NAME.to_owned(), user: NAME.to_owned(), ..login.connection };
        let mut out = Vec::new();
        let name = &connection.application_name;
        reply::welcome(&mut out, name, login.process_id, login.secret);
        let row = ClientRow { state: ClientState::Active, connection };
        self.open().insert(id, Open { row, request: None });
        let _entry = Entry { console: self, id };
        let session =
            Session { console: self, id, admin: login.admin, stream, received: login.unread, out };
        session.run().await
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<u64, Open>> {
        // Each change of the map is one call, so a panic elsewhere leaves nothing half done.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_request(&self, id: u64) {
        if let Some(open) = self.open().get_mut(&id) {
            let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            open.row.connection.request_at = i64::try_from(since_epoch.as_secs()).unwrap_or(0);
            open.request = Some(Instant::now());
        }
    }

    async fn view(&self) -> View {
        let snapshot = self.control.snapshot().await;
        let row = |open: &Open| {
            let mut row = open.row.clone();
            let wait = open.request.map_or(0, |request| request.elapsed().as_micros());
            row.connection.wait = u64::try_from(wait).unwrap_or(u64::MAX);
            row
        };
        View { snapshot, consoles: self.open().values().map(row).collect() }
    }
}

/// Keeps a connection listed as long as it is served, also when serving it is given up midway.
struct Entry<'a> {
    console: &'a Console,
    id: u64,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.console.open().remove(&self.id);
    }
}

/// One connection.
struct Session<'a, S> {
    console: &'a Console,
    id: u64,
    admin: bool,
    stream: S,
    /// Not taken apart yet.
    received: Vec<u8>,
    /// Not sent yet.
    out: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<'_, S> {
    async fn run(mut self) -> String {
        loop {
            let ended = self.answer_all().await;
            if let Err(error) = self.flush().await {
                return error.to_string();
            }
            if let Err(reason) = ended {
                return reason;
            }
            // One read may bring many messages, but never much more than the longest.
            let room = (MESSAGE_BYTES_MAX + 1).saturating_sub(self.received.len()).max(1) as u64;
            match (&mut self.stream).take(room).read_buf(&mut self.received).await {
                Ok(0) => return "client unexpected eof".to_owned(),
                Ok(_) => (),
                Err(error) => return error.to_string(),
            }
        }
    }

    /// Answers what has been received as a whole.
    async fn answer_all(&mut self) -> Result<(), String> {
        loop {
            let message = match message::take(&mut self.received) {
                Ok(Some(message)) => message,
                Ok(None) => return Ok(()),
                Err(reason) => return Err(self.give_up(&reason)),
            };
            self.answer(message).await?;
            // Replies are long where there are many clients: one at a time is enough to hold.
            self.flush().await.map_err(|error| error.to_string())?;
        }
    }

    async fn flush(&mut self) -> std::io::Result<()> {
        self.stream.write_all(&self.out).await?;
        self.out.clear();
        self.stream.flush().await
    }

    async fn answer(&mut self, message: Message) -> Result<(), String> {
        let refusal = match message {
            Message::Query(text) => {
                self.console.note_request(self.id);
                self.query(&text).await?;
                reply::ready(&mut self.out);
                return Ok(());
            }
            Message::Terminate => return Err("client close request".to_owned()),
            Message::Extended => {
                "extended query protocol not supported by admin console".to_owned()
            }
            Message::Other(code) => {
                format!("unsupported packet type for admin console: {code}")
            }
        };
        reply::error(&mut self.out, refusal);
        reply::ready(&mut self.out);
        Err(self.give_up("bad packet"))
    }

    /// Carries out a query; all but its ReadyForQuery.
    async fn query(&mut self, text: &[u8]) -> Result<(), String> {
        let command = match Command::parse(text) {
            Ok(command) => command,
            Err(Invalid::Arguments) => {
                reply::error(&mut self.out, "bad arguments");
                return Ok(());
            }
            Err(Invalid::Unknown) => {
                let message = [b"invalid command '", text, b"', use SHOW HELP;"].concat();
                reply::error(&mut self.out, message);
                return Ok(());
            }
        };
        if command.needs_admin() && !self.admin {
            reply::error(&mut self.out, "admin access needed");
            return Ok(());
        }
        self.execute(command).await
    }

    async fn execute(&mut self, command: Command) -> Result<(), String> {
        let out = &mut self.out;
        match command {
            Command::Show(show) => reply::show(out, show, self.console.view().await),
            Command::Help => {
                reply::notice(out, "Console usage", Some(&command::help()));
                reply::done(out, "SHOW");
            }
            Command::Parameter(name, value) => reply::parameter(out, name, value),
            Command::SetParameter => {
                reply::notice(out, "SET ignored", None);
                reply::done(out, "SET");
            }
            Command::Reload => match self.console.control.reload().await {
                Ok(()) => reply::done(out, "RELOAD"),
                Err(reason) => reply::reload_failed(out, &reason),
            },
            Command::Shutdown(how) => {
                self.console.control.shutdown(how);
                if how == Shutdown::Now {
                    return Err("shutting down".to_owned());
                }
                reply::done(out, "SHUTDOWN");
            }
            Command::Later(name) => {
                reply::error(out, format!("{name} is not supported yet by Weir"));
            }
        }
        Ok(())
    }

    /// Tells the client why its connection ends.
    fn give_up(&mut self, reason: &str) -> String {
        reply::fatal(&mut self.out, reason);
        reason.to_owned()
    }
}
