//! A relay before a server, for faults of the network. While it is cut, bytes arrive nowhere and no
//! connection ends, as if all packets were dropped. When it is healed, it delivers what it has kept,
//! as TCP does.
//!
//! A new connection is accepted while the relay is cut, and gets no answer.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From clients to the server.
    There,
    /// From the server to clients.
    Back,
}

#[derive(Debug)]
pub struct Relay {
    port: u16,
    /// The port to which it leads.
    server: Arc<AtomicU16>,
    cuts: Arc<Cuts>,
}

#[derive(Debug, Default)]
struct Cuts {
    /// Each way at most once.
    cut: Mutex<Vec<Way>>,
    healed: Condvar,
}

impl Relay {
    /// Relays a free port of 127.0.0.1 to this one.
    #[must_use]
    pub fn before(server: u16) -> Self {
        Self::at((Ipv4Addr::LOCALHOST, 0), server)
    }

    /// Relays this address to a port of 127.0.0.1.
    #[must_use]
    pub fn at(address: (Ipv4Addr, u16), server: u16) -> Self {
        let listener = TcpListener::bind(address).expect("a free port");
        let port = listener.local_addr().expect("a bound socket").port();
        let cuts = Arc::new(Cuts::default());
        let server = Arc::new(AtomicU16::new(server));
        let (own, to) = (Arc::clone(&cuts), Arc::clone(&server));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (own, server) = (Arc::clone(&own), to.load(Ordering::Relaxed));
                thread::spawn(move || connect(client, server, &own));
            }
        });
        Self { port, server, cuts }
    }

    /// Leads new connections to another port of 127.0.0.1.
    pub fn lead_to(&self, server: u16) {
        self.server.store(server, Ordering::Relaxed);
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Passes nothing on, in these directions.
    pub fn cut(&self, ways: &[Way]) {
        *self.cuts.lock() = ways.to_vec();
    }

    /// Passes nothing on in this direction either.
    pub fn cut_more(&self, way: Way) {
        let mut cut = self.cuts.lock();
        if !cut.contains(&way) {
            cut.push(way);
        }
    }

    /// Passes on everything again.
    pub fn heal(&self) {
        self.cuts.lock().clear();
        self.cuts.healed.notify_all();
    }
}

impl Cuts {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Way>> {
        self.cut.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until this direction is not cut.
    fn wait(&self, way: Way) {
        let cut = self.lock();
        let wait = self.healed.wait_while(cut, |cut| cut.contains(&way));
        drop(wait.unwrap_or_else(PoisonError::into_inner));
    }
}

fn connect(client: TcpStream, server: u16, cuts: &Arc<Cuts>) {
    cuts.wait(Way::There);
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) else { return };
    for (from, to, way) in [(&client, &server, Way::There), (&server, &client, Way::Back)] {
        let clone = |one: &TcpStream| one.try_clone().expect("a second handle");
        let (from, to, cuts) = (clone(from), clone(to), Arc::clone(cuts));
        thread::spawn(move || pass(from, to, way, &cuts));
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, way: Way, cuts: &Cuts) {
    let mut chunk = [0; 16_384];
    loop {
        let len = from.read(&mut chunk).unwrap_or(0);
        cuts.wait(way);
        // The other side may have closed its end.
        if len == 0 || to.write_all(&chunk[..len]).is_err() {
            let _ = to.shutdown(Shutdown::Both);
            return;
        }
    }
}
