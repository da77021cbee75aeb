//! Eight clients that run one statement after the other, whatever happens to their connections.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::session::Session;

const CLIENTS: usize = 8;
/// The pause of a client that could not log in.
const PAUSE: Duration = Duration::from_millis(5);

/// The client of a statement, and the statement's number.
pub(super) type Number = (usize, u64);

pub(super) struct Crowd {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<Vec<Number>>>,
}

struct Shared {
    /// Returns the text of a statement.
    statement: fn(Number) -> String,
    is_over: AtomicBool,
    served: AtomicU64,
    /// Statements of each client that failed. Refused logins are not counted.
    errors: [AtomicU32; CLIENTS],
    service: Mutex<Service>,
}

/// The moments at which any client was served.
#[derive(Debug)]
struct Service {
    last: Instant,
    longest_gap: Duration,
}

impl Crowd {
    pub(super) fn start(port: u16, statement: fn(Number) -> String) -> Self {
        let shared = Arc::new(Shared {
            statement,
            is_over: AtomicBool::new(false),
            served: AtomicU64::new(0),
            errors: [const { AtomicU32::new(0) }; CLIENTS],
            service: Mutex::new(Service { last: Instant::now(), longest_gap: Duration::ZERO }),
        });
        let client = |at| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.work(port, at))
        };
        let clients = (0..CLIENTS).map(client).collect();
        Self { shared, clients }
    }

    /// Returns the number of statements that have succeeded.
    pub(super) fn served(&self) -> u64 {
        self.shared.served.load(Ordering::Relaxed)
    }

    /// Returns the number of statements that have failed, for each client.
    pub(super) fn errors(&self) -> [u32; CLIENTS] {
        self.shared.errors.each_ref().map(|errors| errors.load(Ordering::Relaxed))
    }

    /// Returns the longest time in which no client was served, up to now.
    pub(super) fn longest_gap(&self) -> Duration {
        let service = self.shared.service.lock().unwrap_or_else(PoisonError::into_inner);
        service.longest_gap.max(service.last.elapsed())
    }

    /// Ends the clients. Those that wait for an answer end when the pooler does.
    pub(super) fn end(&self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
    }

    /// Waits for the end of the clients, and returns the statements that have succeeded.
    pub(super) fn into_served(mut self) -> Vec<Number> {
        self.end();
        // A client that has panicked has said so.
        self.clients.drain(..).filter_map(|client| client.join().ok()).flatten().collect()
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.end();
        for client in self.clients.drain(..) {
            // One that has panicked has said so.
            let _ = client.join();
        }
    }
}

impl Shared {
    fn work(&self, port: u16, client: usize) -> Vec<Number> {
        let mut session = None;
        let mut served = Vec::new();
        // A statement that has failed may have been committed, so its number is not used again.
        for number in 0.. {
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            let Some(mut open) = session.take().or_else(|| Session::open(port).ok()) else {
                thread::sleep(PAUSE);
                continue;
            };
            match open.run(&(self.statement)((client, number))) {
                Ok(_) => {
                    self.note();
                    served.push((client, number));
                    session = Some(open);
                }
                Err(error) => {
                    if self.errors[client].fetch_add(1, Ordering::Relaxed) == 0 {
                        eprintln!("the first error of client {client}: {error:#}");
                    }
                }
            }
        }
        served
    }

    fn note(&self) {
        self.served.fetch_add(1, Ordering::Relaxed);
        let mut service = self.service.lock().unwrap_or_else(PoisonError::into_inner);
        service.longest_gap = service.longest_gap.max(service.last.elapsed());
        service.last = Instant::now();
    }
}
