//! Servers of pools with limits that were told to end. A backend keeps its slot in PostgreSQL until it
//! has ended, which takes some milliseconds. The worker's next connection to its address begins after
//! that. Otherwise PostgreSQL could refuse it, although Weir has closed a server to make room.

use std::{
    collections::{HashMap, VecDeque},
    os::fd::RawFd,
};

use engine::ids::{Micros, ServerId};

use super::{Sockets, connecting::Connecting};
use crate::data::table::Kind;
use net::sys::{Address, socket};

/// The time that a backend has to end. A backend that needs more does not hold up others.
const PATIENCE: Micros = 1_000_000;

/// The servers of this worker whose backends were told to end.
#[derive(Debug, Default)]
pub(super) struct Departures {
    sockets: HashMap<RawFd, Departing>,
    places: HashMap<Address, Place>,
}

/// A socket whose backend was told to end.
#[derive(Debug)]
struct Departing {
    address: Address,
    until: Micros,
}

/// An address at which backends are ending.
#[derive(Debug, Default)]
struct Place {
    ending: usize,
    /// The connections that wait for them, with their tickets.
    waiting: VecDeque<(ServerId, u64)>,
}

impl Sockets {
    /// Keeps the socket until the backend has closed its end.
    pub(super) fn watch_departure(&mut self, fd: RawFd, address: Address) {
        self.table.change(self.table.token(fd), Kind::Departing);
        self.departures.places.entry(address.clone()).or_default().ending += 1;
        // The wait is part of the time that the next connection may take.
        let patience = match self.config.global.server_connect_timeout.as_micros() as Micros {
            0 => PATIENCE,
            limit => PATIENCE.min(limit / 2),
        };
        let departing = Departing { address, until: self.now + patience };
        self.departures.sockets.insert(fd, departing);
        // It may have ended already.
        self.departing_event(fd);
    }

    /// Does this connection wait until a backend at its address has ended? Otherwise it begins.
    pub(super) fn waits_for_room(&mut self, server: ServerId) -> bool {
        let Some(connecting) = self.connecting.get(&server.0) else { return false };
        let address = connecting.addresses.front();
        let place = address.and_then(|address| self.departures.places.get_mut(address));
        let Some(place) = place.filter(|place| place.ending > place.waiting.len()) else {
            return false;
        };
        place.waiting.push_back((server, connecting.ticket));
        true
    }

    pub(crate) fn departing_event(&mut self, fd: RawFd) {
        let mut waste = [0; 256];
        loop {
            match socket::recv(fd, &mut waste) {
                Ok(1..) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Ok(0) | Err(_) => return self.departed(fd),
            }
        }
    }

    /// Does not wait any longer for backends that are late.
    pub(super) fn end_late_departures(&mut self) {
        let now = self.now;
        let late = self.departures.sockets.iter().filter(|(_, one)| one.until <= now);
        let late: Vec<_> = late.map(|(fd, _)| *fd).collect();
        late.into_iter().for_each(|fd| self.departed(fd));
    }

    /// Begins the connection that has waited longest for room at the address.
    fn departed(&mut self, fd: RawFd) {
        let Some(Departing { address, .. }) = self.departures.sockets.remove(&fd) else { return };
        self.discard(fd);
        let Some(place) = self.departures.places.get_mut(&address) else { return };
        place.ending -= 1;
        let connecting = &self.connecting;
        // It may have been given up.
        let waits = |(server, ticket): &(ServerId, u64)| {
            connecting.get(&server.0).map(|one: &Connecting| one.ticket) == Some(*ticket)
        };
        let next = std::iter::from_fn(|| place.waiting.pop_front()).find(waits);
        if place.ending == 0 {
            self.departures.places.remove(&address);
        }
        if let Some((server, _)) = next {
            self.try_next_address(server);
        }
    }
}
