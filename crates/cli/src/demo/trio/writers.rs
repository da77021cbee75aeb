//! Eight clients that write through Weir, and remember what they were told. Half of them write in
//! transactions.

use std::{
    collections::{BTreeSet, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tokio::{net::TcpStream, time::sleep};
use tokio_postgres::{Client, Config, NoTls, config::SslMode};

use super::super::names::{DEMO, LOOPBACK};

pub(super) const CLIENTS: usize = 8;
/// The pause of a client that could not connect, and between two writes.
const PAUSE: Duration = Duration::from_millis(5);

/// The clients' memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    /// The number of rows that were acknowledged.
    pub(super) acknowledged: u64,
    /// The number of each client's next row. All before it are acknowledged or unclear.
    next: [u64; CLIENTS],
    /// Rows whose commit ended with an error, by client and number.
    unclear: HashSet<(usize, u64)>,
    /// Errors of each client since the last [`Writers::begin`].
    pub(super) errors: [u32; CLIENTS],
    pub(super) last_error: String,
    /// The longest time of one write since then.
    pub(super) longest: Duration,
}

pub(super) struct Writers {
    told: Arc<Mutex<Told>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Writers {
    pub(super) fn start(port: u16, password: &str) -> Self {
        let told = Arc::new(Mutex::new(Told::default()));
        let is_over = Arc::new(AtomicBool::new(false));
        let (memory, over, password) =
            (Arc::clone(&told), Arc::clone(&is_over), password.to_owned());
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            // Without a runtime nothing is written, which the table shows.
            let Ok(runtime) = runtime else { return };
            runtime.block_on(async {
                for client in 0..CLIENTS {
                    tokio::spawn(write(client, port, password.clone(), Arc::clone(&memory)));
                }
                while !over.load(Ordering::Relaxed) {
                    sleep(PAUSE).await;
                }
            });
        });
        Self { told, is_over, thread: Some(thread) }
    }

    /// Forgets errors and waits.
    pub(super) fn begin(&self) {
        let mut told = self.lock();
        (told.errors, told.longest) = ([0; CLIENTS], Duration::ZERO);
        told.last_error.clear();
    }

    pub(super) fn told(&self) -> Told {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Told {
    /// Returns the numbers of rows that are lost, and that are there twice, by all rows of the
    /// table: `client|number` in each line.
    pub(super) fn compare(&self, rows: &str) -> (u64, u64) {
        let mut seen = BTreeSet::new();
        let mut twice = 0;
        for line in rows.lines() {
            let Some((client, number)) = line.split_once('|') else { continue };
            let (Ok(client), Ok(number)) = (client.parse(), number.parse()) else { continue };
            twice += u64::from(!seen.insert((client, number)));
        }
        let is_lost = |row: &(usize, u64)| !seen.contains(row) && !self.unclear.contains(row);
        let told =
            (0..CLIENTS).flat_map(|client| (0..self.next[client]).map(move |at| (client, at)));
        (told.filter(is_lost).count() as u64, twice)
    }
}

/// Writes forever.
async fn write(client: usize, port: u16, password: String, told: Arc<Mutex<Told>>) {
    let mut connection: Option<Client> = None;
    for number in 0.. {
        let began = Instant::now();
        let result = async {
            let open = match connection.take() {
                Some(open) if !open.is_closed() => open,
                _ => connect(port, &password).await?,
            };
            let insert = format!("INSERT INTO writes VALUES ({client}, {number})");
            let written = match client % 2 {
                0 => open.batch_execute(&insert).await,
                _ => in_transaction(&open, &insert).await,
            };
            if written.is_err() {
                let _ = open.batch_execute("ROLLBACK").await;
            }
            connection = Some(open);
            written.map_err(|error| describe(&error))
        };
        let result: Result<(), String> = result.await;
        {
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            told.longest = told.longest.max(began.elapsed());
            told.next[client] = number + 1;
            match result {
                Ok(()) => told.acknowledged += 1,
                Err(why) => {
                    told.unclear.insert((client, number));
                    told.errors[client] += 1;
                    told.last_error = why;
                }
            }
        }
        sleep(PAUSE).await;
    }
}

async fn in_transaction(client: &Client, insert: &str) -> Result<(), tokio_postgres::Error> {
    for statement in ["BEGIN", insert, "COMMIT"] {
        client.batch_execute(statement).await?;
    }
    Ok(())
}

async fn connect(port: u16, password: &str) -> Result<Client, String> {
    let stream = TcpStream::connect((LOOPBACK, port)).await.map_err(|error| error.to_string())?;
    let mut settings = Config::new();
    settings.user(DEMO).password(password).dbname(DEMO).ssl_mode(SslMode::Disable);
    let connected = settings.connect_raw(stream, NoTls).await;
    let (client, connection) = connected.map_err(|error| describe(&error))?;
    // The client learns by its next statement that the connection has ended.
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(said) => format!("{} {}", said.code().code(), said.message()),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_and_doubled_rows_are_found() {
        let unclear = HashSet::from([(1, 1)]);
        let mut next = [0; CLIENTS];
        (next[0], next[1]) = (2, 2);
        let told = Told { acknowledged: 3, unclear, next, ..Told::default() };
        assert_eq!(told.compare("0|0\n0|1\n1|0\n"), (0, 0));
        assert_eq!(told.compare("0|0\n0|1\n1|0\n1|1\n"), (0, 0));
        assert_eq!(told.compare("0|0\n0|1\n1|1\n"), (1, 0));
        assert_eq!(told.compare("0|0\n0|1\n0|1\n1|0\n"), (0, 1));
        // A row that was written meanwhile does not make up for a lost one.
        assert_eq!(told.compare("0|0\n0|2\n1|0\n"), (1, 0));
    }
}
