//! The clients of one lobby, on Weir's side: their identities and limits, and how they are
//! disconnected.

mod depart;
mod records;
mod words;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use engine::{
    facts::Facts,
    ids::{Micros, WorkerId},
    own_error::{Cause, OwnError},
    report::{ClientRow, ClientState, Reading},
    server::CloseReason,
    shell::{Closing, Guest},
    stats::Stats,
};
use net::sys::{Epoll, socket, socket::Traffic};
use room::{Answer, Order, Recall, Room, Serving, State};
use wire::error_fields::ErrorFields;

pub(super) use words::{no_place, refuse, tell};
use words::{send_error, wait_detail};

use super::{
    held::{HeldList, Key},
    limits::{Doing, Limits, Look, Verdict},
    places::Places,
};
use crate::{
    exchange::{
        hub::lock,
        peer::Peer,
        reports::{ClientInfo, IN_LOBBY, pointer},
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
    pub(super) held: &'a HeldList,
    /// The number of the lobby.
    pub(super) at: usize,
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
    /// The bytes of its connection when it was handed in.
    login: Traffic,
    /// SUSPEND keeps it from the backends.
    is_held: bool,
    /// The next look at its transaction, if there are time limits.
    look: Option<Look>,
    /// The last time that a backend could not restore its settings.
    refusal: Option<Refusal>,
    /// Set if it is to be disconnected, and a backend has it.
    ending: Option<Dismissal>,
}

/// A backend could not restore a client's settings.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    /// The backend's number, until it has ended.
    backend: Option<usize>,
    /// The client's transactions until then.
    transactions: u64,
}

/// The end of a client that a backend has.
#[derive(Debug)]
struct Dismissal {
    cause: Cause,
    reason: String,
    when: Closing,
    since: Micros,
    /// The backend was ordered to tell the client, and to end.
    is_ordered: bool,
}

/// The time in which a backend must obey an order to end, before its client's connection is cut.
const ORDER_PATIENCE: Micros = 1_000_000;

impl Seated {
    pub(super) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// The bytes of a client on a unix socket are not counted.
    fn stats(&self, place: u32, room: &Room) -> Stats {
        let traffic = socket::traffic(room.socket(place)).unwrap_or(self.login);
        Stats {
            transactions: room.transactions(place),
            received: traffic.received.saturating_sub(self.login.received),
            sent: traffic.sent.saturating_sub(self.login.sent),
            ..Stats::default()
        }
    }
}

/// The clients of one lobby, by their places.
#[derive(Debug)]
pub(super) struct Guests {
    seated: BTreeMap<u32, Box<Seated>>,
    places: Arc<Places>,
    /// The places that this lobby has taken.
    own: BTreeSet<u32>,
    /// The place of each client by its number for cancel requests.
    by_key: HashMap<u64, u32>,
    /// Clients that are to be disconnected as soon as Weir has them.
    endings: u32,
    /// The counters of clients that have left.
    past: Stats,
    /// The lines of backends to which an order was written. They are to be interrupted.
    ordered: Vec<u32>,
}

impl Guests {
    pub(super) fn new(places: Arc<Places>) -> Self {
        Self {
            seated: BTreeMap::new(),
            places,
            own: BTreeSet::new(),
            by_key: HashMap::new(),
            endings: 0,
            past: Stats::default(),
            ordered: Vec::new(),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.seated.len()
    }

    /// Does a backend have a client that is to be disconnected?
    pub(super) fn has_ending(&self) -> bool {
        self.endings > 0
    }

    pub(super) fn at(&self, place: u32) -> Option<&Seated> {
        self.seated.get(&place).map(Box::as_ref)
    }

    /// Returns the figures of all clients, past and present.
    pub(super) fn stats(&self, room: &Room) -> Stats {
        let mut all = self.past;
        for place in self.places() {
            all += self.at(place).map_or(Stats::default(), |seated| seated.stats(place, room));
        }
        all
    }

    /// Returns the places with a client.
    pub(super) fn places(&self) -> impl Iterator<Item = u32> + use<> {
        let taken: Vec<_> = self.seated.keys().copied().collect();
        taken.into_iter()
    }

    /// Returns the places that lobbies share with this one.
    pub(super) fn shared_places(&self) -> &Arc<Places> {
        &self.places
    }

    /// Takes a free place.
    pub(super) fn free_place(&mut self) -> Option<u32> {
        let place = self.places.take()?;
        self.own.insert(place);
        Some(place)
    }

    /// Takes this place, unless another lobby has it. Returns whether this one has it.
    pub(super) fn claim(&mut self, place: u32) -> bool {
        if self.places.claim(place) {
            self.own.insert(place);
        }
        self.own.contains(&place)
    }

    /// Gives back a place whose number no longer refers to a client's socket.
    pub(super) fn put_back(&mut self, place: u32) {
        if self.own.remove(&place) {
            self.places.give_back(place);
        }
    }

    /// Returns the places that this lobby has, with a client or without.
    pub(super) fn own_places(&self) -> Vec<u32> {
        self.own.iter().copied().collect()
    }

    /// `login`: the bytes of its connection so far.
    pub(super) fn seat(
        &mut self,
        place: u32,
        (guest, peer): (Guest, Peer),
        login: Traffic,
        now: Micros,
    ) {
        self.by_key.insert(guest.key, place);
        let seated = Box::new(Seated {
            guest,
            peer,
            since: now,
            waiting_since: 0,
            login,
            is_held: false,
            look: None,
            refusal: None,
            ending: None,
        });
        self.seated.insert(place, seated);
    }

    /// Keeps a client that is Weir's from the backends.
    pub(super) fn hold(&mut self, place: u32) {
        if let Some(seated) = self.seated.get_mut(&place) {
            seated.is_held = true;
        }
    }

    /// Returns the clients that were kept from the backends.
    pub(super) fn take_held(&mut self) -> Vec<u32> {
        let held = self
            .seated
            .iter_mut()
            .filter_map(|(place, seated)| std::mem::take(&mut seated.is_held).then_some(*place));
        held.collect()
    }

    /// Notes that a backend could not restore the client's settings. Returns false if no backend ever
    /// could, or a second one could not for the same request.
    pub(super) fn note_refusal(&mut self, place: u32, backend: usize, room: &Room) -> bool {
        let Some(seated) = self.seated.get_mut(&place) else { return false };
        let transactions = room.transactions(place);
        if transactions == 0 || seated.refusal.is_some_and(|last| last.transactions == transactions)
        {
            return false;
        }
        seated.refusal = Some(Refusal { backend: Some(backend), transactions });
        true
    }

    /// Returns the clients that wait for the end of this backend.
    pub(super) fn take_refused(&mut self, by: usize) -> Vec<u32> {
        let refused = self.seated.iter_mut().filter_map(|(place, seated)| {
            let refusal = seated.refusal.as_mut()?;
            refusal.backend.take_if(|backend| *backend == by).map(|_| *place)
        });
        refused.collect()
    }

    /// Returns the client with this serial number.
    pub(super) fn of_serial(&self, serial: u64) -> Option<u32> {
        let is_it = |place: &u32| self.at(*place).is_some_and(|one| one.guest.serial == serial);
        self.places().find(is_it)
    }

    /// Disconnects a client that is Weir's, with an error if there is one to tell.
    pub(super) fn end(&mut self, place: u32, why: Ending<'_>, around: &Around<'_>) {
        let Around { room, shared, port, own, held, at } = *around;
        // If it is not seated here, the number may be that of another lobby's client.
        let Some(seated) = self.seated.remove(&place) else { return };
        // Weir may be waiting for the rest of a message.
        let _ = own.delete(room.socket(place));
        self.past += seated.stats(place, room);
        let Seated { mut guest, peer, ending, .. } = *seated;
        if let Some(timing) = guest.timing.take() {
            lock(&shared.ended).add(timing.done(shared.clock.now()));
        }
        if self.by_key.get(&guest.key) == Some(&place) {
            self.by_key.remove(&guest.key);
        }
        self.endings -= u32::from(ending.is_some());
        let own = |cause, reason: &str| OwnError::new(cause, reason).fields(guest.codes, None);
        let (told, reason): (_, Cow<'_, str>) = match (&ending, why) {
            // Its backend has told it so.
            (Some(Dismissal { reason, is_ordered: true, .. }), Ending::Lost) => {
                (None, reason.into())
            }
            (Some(Dismissal { cause, reason, .. }), _) => {
                (Some(own(*cause, reason)), reason.into())
            }
            (None, Ending::Told(cause, reason)) => (Some(own(cause, reason)), reason.into()),
            (None, Ending::Refused(error)) => (Some(error.clone()), error.message()),
            (None, Ending::Left) => (None, "client close request or eof".into()),
            (None, Ending::Lost) => (None, "server conn crashed?".into()),
        };
        if let Some(told) = told {
            send_error(room.socket(place), &told);
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
            self.put_back(place);
            // Not before: another process would not know that the place is to be vacated.
            held.remove(Key::Guest(at, place));
        }
        leave(&guest, shared);
    }

    /// Disconnects a client, whoever has it. A backend that has it is told to return it or, if that
    /// would take too long, to end it.
    pub(super) fn disconnect(
        &mut self,
        place: u32,
        cause: Cause,
        reason: &str,
        when: Closing,
        around: &Around<'_>,
    ) {
        let Around { room, shared, .. } = *around;
        let Some(seated) = self.seated.get_mut(&place) else { return };
        match room.recall(place) {
            Recall::Taken => {
                self.end(place, Ending::Told(cause, reason), around);
            }
            // Its backend has returned it, or Weir waits for the rest of a message.
            Recall::None if room.word(place).owner().is_none() => {
                self.end(place, Ending::Told(cause, reason), around);
            }
            Recall::Asked | Recall::None => {
                self.endings += u32::from(seated.ending.is_none());
                let (reason, since) = (reason.to_owned(), shared.clock.now());
                let ending = Dismissal { cause, reason, when, since, is_ordered: false };
                seated.ending = Some(ending);
                self.press(place, around);
            }
        }
    }

    /// Disconnects a client that has sent a request, with this error. No backend has it.
    pub(super) fn refuse(&mut self, place: u32, error: &ErrorFields, around: &Around<'_>) {
        let Around { room, .. } = *around;
        let waits =
            room.word(place).state() == State::Armed && socket::is_readable(room.socket(place));
        if waits && room.recall(place) == Recall::Taken {
            self.end(place, Ending::Refused(error), around);
        }
    }

    /// Repeats the orders for all clients that are to be disconnected.
    pub(super) fn press_all(&mut self, around: &Around<'_>) {
        for place in self.places() {
            self.press(place, around);
        }
    }

    /// Orders the backend to end this client, unless its transaction is to be waited for. A backend
    /// never returns a pinned client, and ends with it.
    fn press(&mut self, place: u32, around: &Around<'_>) {
        let Around { room, shared, .. } = *around;
        let Some(seated) = self.seated.get_mut(&place) else { return };
        let Some(ending) = &mut seated.ending else { return };
        let Some(serving) = room.serving(place) else { return };
        if ending.when != Closing::AtOnce && !serving.is_pinned_idle {
            return;
        }
        // An earlier order may have come after the end of its transaction.
        let mut words = Vec::new();
        let error = OwnError::new(ending.cause, &*ending.reason);
        wire::backend::error(&mut words, &error.fields(seated.guest.codes, None));
        room.leave_words(place, &words[wire::HEADER_LEN..]);
        room.order(Order::End, serving);
        self.ordered.push(serving.line);
        ending.is_ordered = true;
        if shared.clock.now().saturating_sub(ending.since) > ORDER_PATIENCE {
            socket::shutdown(room.socket(place), false);
        }
    }

    /// Returns the lines of the backends that are to be interrupted.
    pub(super) fn take_ordered(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.ordered)
    }

    /// Disconnects the clients whose transactions have passed a limit.
    pub(super) fn keep_limits(&mut self, limits: &Limits, around: &Around<'_>) {
        let Some(shortest) = limits.shortest() else { return };
        for place in self.places() {
            let Some(late) = self.judge(place, limits, shortest, around) else { continue };
            self.disconnect(place, late.cause(), late.text(), Closing::AtOnce, around);
        }
    }

    /// Returns the limit that a client has passed. Asks its backend if one may have been passed.
    fn judge(
        &mut self,
        place: u32,
        limits: &Limits,
        shortest: Micros,
        around: &Around<'_>,
    ) -> Option<CloseReason<'static>> {
        let Around { room, shared, .. } = *around;
        let seated = self.seated.get_mut(&place)?;
        let Some(serving) = room.serving(place).filter(|_| seated.ending.is_none()) else {
            seated.look = None;
            return None;
        };
        let now = shared.clock.now();
        let (began, ended) = room.times(place);
        let began = from_monotonic(began, shared);
        let first = Look {
            transaction: serving.transaction,
            due: began.max(from_monotonic(ended, shared)) + shortest,
            asked_at: 0,
        };
        let is_same = |look: &Look| look.transaction == serving.transaction;
        let look = seated.look.filter(is_same).unwrap_or(first);
        if now <= look.due {
            seated.look = Some(look);
            return None;
        }
        let answer = room.answer(serving.line).filter(|_| look.asked_at != 0);
        let Some(answer) = answer else {
            room.order(Order::Ask, serving);
            self.ordered.push(serving.line);
            let asked_at = if look.asked_at == 0 { now } else { look.asked_at };
            seated.look = Some(Look { asked_at, ..look });
            return None;
        };
        let doing = doing(answer, shared);
        // The client may have begun something else since.
        match limits.judge(doing, begin_of(doing, began, serving), look.asked_at) {
            Verdict::Late(reason) => Some(reason),
            Verdict::NotBefore(due) => {
                seated.look = Some(Look { due, asked_at: 0, ..look });
                None
            }
        }
    }

    /// Disconnects the clients that have been idle or have waited for too long.
    /// `is_starved`: no backend is free, and a client waits.
    pub(super) fn expire(&mut self, is_starved: bool, limits: &Limits, around: &Around<'_>) {
        let Around { room, shared, .. } = *around;
        let now = shared.clock.now();
        let mut kept = None;
        for place in self.places() {
            let state = room.word(place).state();
            let idle_since = self.idle_since(place, room, shared);
            let Some(seated) = self.seated.get_mut(&place) else { continue };
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
            if waits && is_over(wait_limit, seated.waiting_since) {
                let identity = &seated.guest.identity;
                let detail = wait_detail(
                    &identity.database,
                    &identity.user,
                    *kept.get_or_insert_with(|| room.kept()),
                );
                let error = OwnError::new(Cause::QueryWaitTimeout, "query_wait_timeout");
                let error = error.fields(seated.guest.codes, Some(&detail));
                self.refuse(place, &error, around);
                continue;
            }
            // Waiting for a server is part of the query.
            let (cause, why) = if waits && is_over(limits.query, seated.waiting_since) {
                (Cause::QueryTimeout, "query_timeout")
            } else if !waits && room.is_idle(place) && is_over(idle_limit, idle_since) {
                (Cause::IdleTimeout, "client_idle_timeout")
            } else if room.is_pinned_idle(place) && is_over(limits.pinned, idle_since) {
                (Cause::IdleTimeout, "pin_timeout")
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

    /// Returns a row for each client. `serial_of` returns the serial number of a line's server.
    pub(super) fn rows<'a>(
        &'a self,
        room: &'a Room,
        shared: &'a Shared,
        serial_of: &'a impl Fn(u32) -> u64,
    ) -> impl Iterator<Item = ClientInfo> + 'a {
        self.places().filter_map(move |place| {
            let Seated { guest, peer, waiting_since, .. } = self.at(place)?;
            let server = room.serving(place).map_or(0, |serving| serial_of(serving.line));
            let idle_since = self.idle_since(place, room, shared);
            let (state, request_at) = match (server, *waiting_since) {
                (0, 0) => (ClientState::Idle, idle_since),
                (0, since) => (ClientState::Waiting, since),
                _ => (ClientState::Active, idle_since),
            };
            let row = ClientRow {
                id: IN_LOBBY,
                serial: guest.serial,
                identity: guest.identity.clone(),
                pool: Some(guest.pool),
                state,
                connected_at: guest.connected_at,
                request_at,
                server,
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
    Told(Cause, &'a str),
    /// The client gets this error of PostgreSQL's.
    Refused(&'a ErrorFields),
}

/// Returns what a client does, by Weir's clock.
fn doing(answer: Answer, shared: &Shared) -> Doing {
    match answer {
        Answer::AtRest => Doing::AtRest,
        Answer::Idles(since) => Doing::Idles(from_monotonic(since, shared)),
        Answer::Runs(since) => Doing::Runs(from_monotonic(since, shared)),
    }
}

/// Returns when the transaction began. The line of a pinned client may not tell it yet.
fn begin_of(doing: Doing, began: Micros, serving: Serving) -> Micros {
    match doing {
        Doing::Runs(since) | Doing::Idles(since) if serving.is_pinned_idle => since,
        Doing::AtRest | Doing::Runs(_) | Doing::Idles(_) => began,
    }
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
