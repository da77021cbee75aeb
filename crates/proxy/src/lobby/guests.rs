//! The clients of one lobby, on Weir's side: their identities and limits, and how they are
//! disconnected.

use std::{collections::HashMap, os::fd::RawFd};

use config::ErrorCodes;
use engine::{
    facts::Facts,
    ids::{ClientId, Micros, WorkerId},
    own_error::{Cause, OwnError},
    report::{ClientRow, ClientState, Reading},
    shell::{Closing, Guest},
};
use net::sys::{Epoll, socket};

use super::{
    layout::State,
    room::{Recall, Room},
};
use crate::{
    exchange::{
        hub::lock,
        peer::Peer,
        reports::{ClientInfo, pointer},
        shared::Shared,
    },
    log,
    log::About,
};

/// The objects that the methods of [`Guests`] need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around<'a> {
    pub(super) room: &'a Room,
    pub(super) shared: &'a Shared,
    /// `listen_port`, for the log.
    pub(super) port: u16,
    /// The thread's own epoll set.
    pub(super) own: &'a Epoll,
}

/// A client in a place.
#[derive(Debug)]
pub(super) struct Seated {
    pub(super) guest: Guest,
    pub(super) peer: Peer,
    /// When it was handed in.
    since: Micros,
    /// Since when it waits for a backend; 0 = it does not.
    waiting_since: Micros,
    /// Why it is to be disconnected as soon as Weir has it.
    ending: Option<(Cause, String)>,
    /// It was told so already.
    is_told: bool,
}

impl Seated {
    pub(super) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }
}

/// The places of one lobby.
#[derive(Debug)]
pub(super) struct Guests {
    seated: Vec<Option<Box<Seated>>>,
    free: Vec<u32>,
    /// The place of each client by its number for cancel requests.
    by_key: HashMap<u64, u32>,
    /// Clients that are to be disconnected as soon as Weir has them.
    endings: u32,
    /// Transactions of clients that have left.
    transactions: u64,
}

impl Guests {
    pub(super) fn new(places: u32) -> Self {
        Self {
            seated: (0..places).map(|_| None).collect(),
            free: (0..places).rev().collect(),
            by_key: HashMap::new(),
            endings: 0,
            transactions: 0,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.seated.len() - self.free.len()
    }

    /// Does a backend have a client that is to be disconnected?
    pub(super) fn has_ending(&self) -> bool {
        self.endings > 0
    }

    pub(super) fn at(&self, place: u32) -> Option<&Seated> {
        self.seated.get(place as usize)?.as_deref()
    }

    /// Returns the number of transactions so far.
    pub(super) fn transactions(&self, room: &Room) -> u64 {
        self.transactions + self.places().map(|place| room.transactions(place)).sum::<u64>()
    }

    /// Returns the places with a client.
    pub(super) fn places(&self) -> impl Iterator<Item = u32> + use<> {
        let taken = self.seated.iter().enumerate().filter(|(_, seated)| seated.is_some());
        let taken: Vec<_> = taken.map(|(place, _)| place as u32).collect();
        taken.into_iter()
    }

    /// Returns a free place.
    pub(super) fn free_place(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// Takes back a place that was not used.
    pub(super) fn put_back(&mut self, place: u32) {
        self.free.push(place);
    }

    pub(super) fn seat(&mut self, place: u32, guest: Guest, peer: Peer, now: Micros) {
        self.by_key.insert(guest.key, place);
        let seated =
            Seated { guest, peer, since: now, waiting_since: 0, ending: None, is_told: false };
        self.seated[place as usize] = Some(Box::new(seated));
    }

    /// Disconnects a client that is Weir's, with an error if there is one to tell.
    pub(super) fn end(&mut self, place: u32, why: Ending<'_>, around: &Around<'_>) {
        let Around { room, shared, port, own } = *around;
        // Weir may be waiting for the rest of a message.
        let _ = own.delete(room.socket(place));
        let Some(seated) = self.seated[place as usize].take() else { return };
        let Seated { guest, peer, ending, is_told, .. } = *seated;
        if self.by_key.get(&guest.key) == Some(&place) {
            self.by_key.remove(&guest.key);
        }
        self.endings -= u32::from(ending.is_some());
        self.transactions += room.transactions(place);
        let (cause, reason) = match (&ending, why) {
            (Some((cause, reason)), _) => (Some(*cause), reason.as_str()),
            (None, Ending::Said(cause, reason)) => (Some(cause), reason),
            (None, Ending::Left) => (None, "client close request or eof"),
            (None, Ending::Lost) => (None, "server conn crashed?"),
        };
        if let Some(cause) = cause.filter(|_| !is_told) {
            tell(room.socket(place), cause, reason, guest.codes);
        }
        let age = shared.clock.now().saturating_sub(guest.connected_at) / 1_000_000;
        let address = peer.label(port);
        let about = About {
            side: 'C',
            number: Some(pointer(room.socket(place))),
            database: &guest.identity.database,
            user: &guest.identity.user,
            address: &address,
        };
        log!(of about, "closing because: {reason} (age={age}s)");
        if room.vacate(place) {
            self.free.push(place);
        }
        leave(&guest, shared);
    }

    /// Disconnects a client, whoever has it. If a backend has it, that is told to return it. If that
    /// would take too long, its connection is ended now.
    pub(super) fn disconnect(
        &mut self,
        place: u32,
        cause: Cause,
        reason: &str,
        when: Closing,
        around: &Around<'_>,
    ) {
        let room = around.room;
        let Some(seated) = &mut self.seated[place as usize] else { return };
        match room.recall(place) {
            Recall::Taken => {
                self.end(place, Ending::Said(cause, reason), around);
            }
            // A backend that returns it has said so already, or Weir waits for a whole message.
            Recall::None if room.word(place).owner().is_none() => {
                self.end(place, Ending::Said(cause, reason), around);
            }
            Recall::Asked | Recall::None => {
                self.endings += u32::from(seated.ending.is_none());
                seated.ending = Some((cause, reason.to_owned()));
                if when == Closing::AtOnce && !room.is_idle(place) {
                    socket::shutdown(room.socket(place), false);
                }
                self.end_if_pinned(place, room);
            }
        }
    }

    /// Disconnects pinned clients that are to be disconnected, as soon as their transactions are
    /// over. Their backends do not return them, and end with them.
    pub(super) fn end_pinned(&mut self, room: &Room) {
        for place in self.places() {
            self.end_if_pinned(place, room);
        }
    }

    fn end_if_pinned(&mut self, place: u32, room: &Room) {
        let Some(seated) = &mut self.seated[place as usize] else { return };
        let Some((cause, reason)) = seated.ending.as_ref().filter(|_| !seated.is_told) else {
            return;
        };
        if room.is_pinned_idle(place) {
            tell(room.socket(place), *cause, reason, seated.guest.codes);
            socket::shutdown(room.socket(place), false);
            seated.is_told = true;
        }
    }

    /// Disconnects the clients that have been idle or have waited for too long.
    /// `is_starved`: no backend is free, and a client waits.
    pub(super) fn expire(&mut self, is_starved: bool, around: &Around<'_>) {
        let Around { room, shared, .. } = *around;
        let now = shared.clock.now();
        for place in self.places() {
            let state = room.word(place).state();
            let idle_since = self.idle_since(place, room, shared);
            let Some(seated) = &mut self.seated[place as usize] else { continue };
            if seated.is_ending() {
                continue;
            }
            let waits =
                is_starved && state == State::Armed && socket::is_readable(room.socket(place));
            seated.waiting_since = match (waits, seated.waiting_since) {
                (false, _) => 0,
                (true, 0) => now,
                (true, since) => since,
            };
            let Guest { idle_limit, wait_limit, .. } = seated.guest;
            let is_over = |limit: Micros, since: Micros| limit > 0 && now > since + limit;
            let (cause, why) = if waits && is_over(wait_limit, seated.waiting_since) {
                (Cause::QueryWaitTimeout, "query_wait_timeout")
            } else if !waits && room.is_idle(place) && is_over(idle_limit, idle_since) {
                (Cause::IdleTimeout, "client_idle_timeout")
            } else {
                continue;
            };
            self.disconnect(place, cause, why, Closing::AfterTransaction, around);
        }
    }

    /// Returns when the client's last transaction ended, by Weir's clock.
    fn idle_since(&self, place: u32, room: &Room, shared: &Shared) -> Micros {
        let (request, transaction) = room.times(place);
        let since = self.at(place).map_or(0, |seated| seated.since);
        from_monotonic(request.max(transaction), shared).max(since)
    }

    /// Returns the client with this cancel key.
    pub(super) fn of_key(&self, number: u64, tag: &[u8]) -> Option<u32> {
        let place = *self.by_key.get(&number)?;
        self.at(place).is_some_and(|seated| is_same(&seated.guest.tag, tag)).then_some(place)
    }

    /// Returns a row for each client.
    pub(super) fn rows<'a>(
        &'a self,
        room: &'a Room,
        shared: &'a Shared,
    ) -> impl Iterator<Item = ClientInfo> + 'a {
        self.places().filter_map(move |place| {
            let Seated { guest, peer, .. } = self.at(place)?;
            let state = if room.is_idle(place) { ClientState::Idle } else { ClientState::Active };
            let row = ClientRow {
                id: ClientId(u32::MAX),
                serial: guest.serial,
                identity: guest.identity.clone(),
                pool: Some(guest.pool),
                state,
                connected_at: guest.connected_at,
                request_at: self.idle_since(place, room, shared),
                server: 0,
                facts: Facts::default(),
                application_name: guest.application_name.clone(),
                replication: None,
                reading: Reading::default(),
            };
            let fd = room.socket(place);
            Some(ClientInfo {
                worker: WorkerId(0),
                pointer: pointer(fd),
                link: 0,
                peer: peer.clone(),
                local: socket::local_address(fd).unwrap_or_default(),
                tls: String::new(),
                unsent: 0,
                row,
            })
        })
    }
}

/// The end of a client's connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ending<'a> {
    /// The client has left.
    Left,
    /// Its backend has ended, and may have sent the client an error.
    Lost,
    /// The client is told.
    Said(Cause, &'a str),
}

/// Refuses a client that has no place in the lobby.
pub(super) fn refuse(guest: &Guest, fd: RawFd, why: &str, shared: &Shared) {
    tell(fd, Cause::TooManyClients, why, guest.codes);
    leave(guest, shared);
}

fn tell(fd: RawFd, cause: Cause, why: &str, codes: ErrorCodes) {
    let mut out = Vec::new();
    wire::backend::error(&mut out, &OwnError::new(cause, why).fields(codes, None));
    // A client that does not read does not get it.
    let _ = socket::send(fd, &out);
}

/// Takes a client out of the counts.
fn leave(guest: &Guest, shared: &Shared) {
    if let Some(Some(pool)) = shared.hub.slots().get(guest.pool.0 as usize) {
        lock(pool).clients -= 1;
    }
    if guest.is_counted {
        shared.hub.client_left(&guest.identity);
    }
    shared.lobby.guest_left();
}

/// Compares two tags in the same time, wherever they differ.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// Returns a time of the system's monotonic clock by Weir's clock; 0 stays 0.
fn from_monotonic(at: u64, shared: &Shared) -> Micros {
    match at {
        0 => 0,
        at => {
            let age = net::sys::process::monotonic_us().saturating_sub(at);
            shared.clock.now().saturating_sub(age)
        }
    }
}
