//! Eight clients that run a statement again and again, whatever happens to their connections.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::session::Session;

const CLIENTS: usize = 8;
/// The pause of a client that could not log in.
const PAUSE: Duration = Duration::from_millis(5);

pub(super) struct Crowd {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<()>>,
}

struct Shared {
    is_over: AtomicBool,
    served: AtomicU64,
    /// Statements that failed. Refused logins are not counted.
    errors: AtomicU32,
    service: Mutex<Service>,
}

/// The moments at which any client was served.
#[derive(Debug)]
struct Service {
    last: Instant,
    longest_gap: Duration,
}

impl Crowd {
    pub(super) fn start(port: u16, statement: &'static str) -> Self {
        let shared = Arc::new(Shared {
            is_over: AtomicBool::new(false),
            served: AtomicU64::new(0),
            errors: AtomicU32::new(0),
            service: Mutex::new(Service { last: Instant::now(), longest_gap: Duration::ZERO }),
        });
        let client = |_| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.work(port, statement))
        };
        let clients = (0..CLIENTS).map(client).collect();
        Self { shared, clients }
    }

    /// Returns the number of statements that have succeeded.
    pub(super) fn served(&self) -> u64 {
        self.shared.served.load(Ordering::Relaxed)
    }

    pub(super) fn errors(&self) -> u32 {
        self.shared.errors.load(Ordering::Relaxed)
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
    fn work(&self, port: u16, statement: &str) {
        let mut session = None;
        while !self.is_over.load(Ordering::Relaxed) {
            let Some(mut open) = session.take().or_else(|| Session::open(port).ok()) else {
                thread::sleep(PAUSE);
                continue;
            };
            match open.run(statement) {
                Ok(_) => {
                    self.note();
                    session = Some(open);
                }
                Err(error) => {
                    let is_first = self.errors.fetch_add(1, Ordering::Relaxed) == 0;
                    if is_first {
                        eprintln!("the first error of a client: {error:#}");
                    }
                }
            }
        }
    }

    fn note(&self) {
        self.served.fetch_add(1, Ordering::Relaxed);
        let mut service = self.service.lock().unwrap_or_else(PoisonError::into_inner);
        service.longest_gap = service.longest_gap.max(service.last.elapsed());
        service.last = Instant::now();
    }
}
