//! The thread of the lobbies. It hands descriptors to backends, takes clients back, and has more
//! servers opened while all are busy. While backends serve clients, it only wakes up at intervals.

mod clients;
mod coming;
mod depart;
mod descriptors;
mod handover;
mod holding;
mod idle;
mod look;
mod name;
mod repair;
mod report;
mod role;
mod suspend;
mod tickets;
mod unserved;

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
    path::Path,
    sync::{Arc, mpsc::Receiver},
};

use config::{Config, Proxied};
use engine::{
    ids::{Micros, PoolId, WorkerId},
    pool::Pool,
    settings::PoolKey,
    shell::{Attending, Mail},
    stats::Stats,
};
use net::sys::{Epoll, Events, epoll, process::Process, socket};
use room::{Loss, Room, Sums};
use slab::Slab;

use super::{
    control::{self, FromBackend, Reason, Received, Seat, ToBackend, Unnamed},
    guests::{Around, Ending, Guests},
    held::{HeldList, Key},
    limits::Limits,
    places::Places,
    seatings::Seatings,
};
use crate::{
    exchange::{hub::lock, lobby_door::LobbyRequest, shared::Shared, transport::Transport},
    warning,
};
use depart::Leaving;
use holding::Home;
pub(crate) use holding::{Predecessor, Succession};
use idle::{Idle, UNATTENDED};
use look::{COMING_LOOK_MS, LOOK_MS, Rhythm};
use name::Name;
use repair::Returning;
use role::{Backend, Role};
use tickets::Tickets;
use unserved::Unserved;

const WAKE: u64 = 0;
const LISTENER: u64 = 1;
const HOLDER: u64 = 2;
const BACKEND: u64 = 1 << 62;
const PARTIAL: u64 = 1 << 63;

/// The time in which a backend that has ended is replaced as soon as a client waits. Later the lobby
/// counts as one that grows.
const SHORT_MAX: Micros = 200_000;

#[derive(Debug)]
struct Lobby {
    pool: PoolId,
    /// The pool's key: its number may become another pool's.
    key: PoolKey,
    /// The worker that is asked for servers: the one that opened the last.
    worker: WorkerId,
    room: Room,
    guests: Guests,
    seatings: Seatings,
    /// The backend of each line. A backend that ends keeps its line for a while.
    lines: Vec<Option<usize>>,
    idle: Idle,
    /// The counters of backends that have ended.
    past: Stats,
    /// The counters at the beginning, if another process had the lobby before.
    before: Stats,
    /// Since when requests have waited and no backend has been idle; 0 = that is not so.
    starved_since: Micros,
    /// When the clients' limits were looked at last.
    judged_at: Micros,
    /// When it was last asked for a server.
    asked_at: Micros,
    /// Until then, a client that waits gets another server at once: a backend has ended, as by a
    /// client that left in a transaction, and was not replaced.
    short_until: Micros,
    unserved: Unserved,
}

impl Lobby {
    fn new(pool: PoolId, key: PoolKey, room: Room, places: Arc<Places>) -> Self {
        Self {
            pool,
            key,
            worker: WorkerId(0),
            guests: Guests::new(places),
            seatings: Seatings::new(room.places()),
            lines: Vec::new(),
            idle: Idle::default(),
            past: Stats::default(),
            before: Stats::default(),
            room,
            starved_since: 0,
            judged_at: 0,
            asked_at: 0,
            short_until: 0,
            unserved: Unserved::default(),
        }
    }

    /// Does a client at rest wait, and is no backend idle?
    fn is_starved(&self) -> bool {
        !self.has_sleeper() && self.room.is_waited_for()
    }

    /// Returns what the backend of a line has done for all its clients.
    fn sums(&self, line: u32) -> Stats {
        let Sums { queries, query_us, transaction_us } = self.room.sums(line);
        Stats {
            queries,
            query_time: query_us,
            transaction_time: transaction_us,
            ..Stats::default()
        }
    }

    fn has_sleeper(&self) -> bool {
        (0..self.lines.len() as u32).any(|line| self.room.sleeps(line))
    }

    /// Returns a line for this backend; `None` if there are too many backends.
    fn assign_line(&mut self, number: usize) -> Option<u32> {
        let free = self.lines.iter().position(Option::is_none);
        let line = free.unwrap_or(self.lines.len());
        if line as u32 >= self.room.backends() {
            return None;
        }
        if free.is_none() {
            self.lines.push(None);
        }
        self.lines[line] = Some(number);
        self.room.clear_line(line as u32);
        self.room.use_lines(self.lines.len() as u32);
        Some(line as u32)
    }
}

/// Other lobbies keep the numbers of its places, so the sockets of clients that are still there are closed.
impl Drop for Lobby {
    fn drop(&mut self) {
        for place in self.guests.own_places() {
            self.room.clear(place);
            self.guests.put_back(place);
        }
    }
}

/// The thread's state.
pub(crate) struct Service {
    shared: Arc<Shared>,
    port: u16,
    requests: Receiver<LobbyRequest>,
    /// Requests that came while nothing was to change.
    deferred: VecDeque<LobbyRequest>,
    own: Epoll,
    listener: OwnedFd,
    name: Name,
    /// Does the thread wait for connections? It pauses when none can be accepted.
    is_listening: bool,
    backends: Slab<Backend>,
    tickets: Tickets,
    lobbies: Slab<Lobby>,
    /// The counters of lobbies that have ended.
    past: Vec<(PoolId, PoolKey, Stats)>,
    places_wanted: u32,
    rhythm: Rhythm,
    is_suspended: bool,
    /// Another process will take over.
    is_settling: bool,
    /// For the next process, if this one is killed.
    held: HeldList,
    /// The process that has the list, too.
    holder: Option<Process>,
    succession: Option<Succession>,
    returning: Vec<Returning>,
    leaving: Vec<Leaving>,
}

/// Opens the socket for backends, if the configuration has one. Backends find it when its name is
/// published.
///
/// `succeeds`: another process may have the socket, from which this one takes over.
///
/// # Errors
/// When it cannot be opened, or another process listens there.
pub(crate) fn open(
    config: &Config,
    shared: &Arc<Shared>,
    succession: Option<Succession>,
    succeeds: bool,
) -> io::Result<Option<(Service, Unnamed)>> {
    let path = &config.global.direct_socket;
    if path.is_empty() {
        return Ok(None);
    }
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("direct_socket = {path}: {error}"));
    // Backends of the other process's servers would come here. The server has one process of its own.
    if !succeeds && !config.global.is_own_socket() && control::is_listened_at(Path::new(path)) {
        let why = "another process listens there; each Weir needs a socket of its own";
        return Err(named(io::Error::new(io::ErrorKind::AddrInUse, why)));
    }
    let (listener, unnamed) = control::listen(Path::new(path)).map_err(named)?;
    let name = Name::of(&unnamed).map_err(named)?;
    let Some(requests) = shared.lobby.open() else { return Ok(None) };
    let own = Epoll::new()?;
    own.add(shared.lobby.wake.fd(), epoll::READABLE | epoll::EDGE, WAKE)?;
    own.add(listener.as_raw_fd(), epoll::READABLE, LISTENER)?;
    let mut service = Service {
        shared: Arc::clone(shared),
        port: config.global.listen_port,
        requests,
        deferred: VecDeque::new(),
        own,
        listener,
        name,
        backends: Slab::new(),
        tickets: Tickets::default(),
        lobbies: Slab::new(),
        past: Vec::new(),
        rhythm: Rhythm::default(),
        is_suspended: false,
        is_settling: false,
        held: HeldList::default(),
        holder: None,
        succession,
        returning: Vec::new(),
        leaving: Vec::new(),
        is_listening: true,
        places_wanted: config.global.max_client_conn.clamp(1, room::PLACES_MAX),
    };
    service.begin_list(&config.global)?;
    Ok(Some((service, unnamed)))
}

impl Service {
    /// Works until Weir ends.
    pub(crate) fn run(mut self) {
        self.succeed();
        let mut events = Events::with_room(64);
        while self.serve_requests() {
            let pause = self.welcome_coming().min(self.look_if_due());
            let pause = pause.min(self.note_settled()).min(self.hold_servers());
            if let Err(error) = self.own.wait(&mut events, pause) {
                warning!("the lobbies cannot wait for events: {error}");
                return;
            }
            for at in 0..events.len() {
                let (token, flags) = events.at(at);
                self.event(token, flags);
            }
        }
    }

    fn event(&mut self, token: u64, flags: u32) {
        match token {
            WAKE => return,
            LISTENER => self.accept(),
            HOLDER => self.holder_ended(),
            _ if token & UNATTENDED != 0 => self.unwatch((token & !UNATTENDED) as usize),
            _ if token & PARTIAL != 0 => self.partial_event(token, flags),
            _ => return self.backend_event((token & !BACKEND) as usize),
        }
        self.rhythm.note_news();
    }

    /// Returns false when Weir ends.
    fn serve_requests(&mut self) -> bool {
        while let Some(request) = self.next_request() {
            self.rhythm.note_news();
            match request {
                LobbyRequest::Expect(server) => self.expect(server),
                LobbyRequest::AskToLeave(serial) => self.ask_to_leave(serial),
                LobbyRequest::BackendClosed { pool, serial } => self.server_closed(pool, serial),
                LobbyRequest::Home { serial, home } => self.home_found(serial, home),
                LobbyRequest::Guest(arriving) => self.take_in(arriving),
                LobbyRequest::Close { pool, when, why } => self.close_pool(pool, when, &why),
                LobbyRequest::Refuse { pool, error } => self.refuse_waiting(pool, &error),
                LobbyRequest::Departed(serial) => self.departed(serial),
                LobbyRequest::KillClient(serial) => self.kill_client(serial),
                LobbyRequest::Suspend => self.suspend(),
                LobbyRequest::EndSuspense => self.end_suspense(),
                LobbyRequest::Resume => self.resume(),
                LobbyRequest::Cancel { key, requester } => self.cancel(&key, requester),
                // The asking task may have stopped waiting.
                LobbyRequest::Report(reply) => drop(reply.send(self.report())),
                LobbyRequest::Settle => self.is_settling = true,
                LobbyRequest::Export(reply) => {
                    // The asking task may have stopped waiting.
                    drop(reply.send(self.export()));
                    self.keep_still();
                }
                LobbyRequest::Cede { pools, .. } => {
                    self.is_settling = false;
                    pools.into_iter().for_each(|pool| self.cede(pool));
                }
                LobbyRequest::Thaw => self.is_settling = false,
                LobbyRequest::End => return false,
            }
        }
        true
    }

    /// Returns the lobby of a pool, and makes it if there is none. None if there is no such pool, or
    /// no room for its clients.
    fn lobby_of(&mut self, pool: PoolId) -> Option<usize> {
        if let Some(at) = self.find(pool) {
            return Some(at);
        }
        let key = self.pool(pool, |pool| pool.key.clone())?;
        let made = self
            .places()
            .and_then(|places| Ok((Room::new(room::BACKENDS_MAX, places.numbers())?, places)));
        let made = made.inspect_err(|error| {
            let PoolKey { database, user, .. } = &key;
            warning!("the pool {database}/{user} cannot be direct and is proxied: {error}");
        });
        let (room, places) = made.ok()?;
        let at = self.lobbies.insert(Lobby::new(pool, key, room, places));
        self.note_mode(at);
        self.hold_lobby(at);
        Some(at)
    }

    /// Returns the places for another lobby: those of the lobbies that there are, if they are enough.
    fn places(&self) -> io::Result<Arc<Places>> {
        let all = self.lobbies.iter().map(|(_, lobby)| lobby.guests.shared_places());
        let most = all.max_by_key(|places| places.count()).cloned();
        match most {
            Some(enough) if enough.count() >= self.places_wanted => Ok(enough),
            // Another process has reserved them, for a smaller max_client_conn.
            Some(fewer) => Places::reserve(self.places_wanted).or(Ok(fewer)),
            None => Places::reserve(self.places_wanted),
        }
    }

    /// Calls `f` with the pool that has this number now.
    fn pool<R>(&self, id: PoolId, f: impl FnOnce(&Pool<Transport>) -> R) -> Option<R> {
        let slots = self.shared.hub.slots();
        let found = slots.get(id.0 as usize).and_then(Option::as_ref)?;
        let pool = lock(found);
        Some(f(&pool))
    }

    fn all(&self) -> Vec<usize> {
        self.lobbies.iter().map(|(at, _)| at).collect()
    }

    /// Returns the lobby of the pool that has this number now.
    fn find(&self, pool: PoolId) -> Option<usize> {
        let mut own = self.lobbies.iter().filter(|(_, lobby)| lobby.pool == pool);
        let is_own = |lobby: &Lobby| self.pool(pool, |pool| pool.key == lobby.key) == Some(true);
        own.find(|(_, lobby)| is_own(lobby)).map(|(at, _)| at)
    }

    fn limits(&self, at: usize) -> Limits {
        let Lobby { pool, key, .. } = &self.lobbies[at];
        let found = self.pool(*pool, |pool| (pool.key == *key).then(|| Limits::of(&pool.settings)));
        found.flatten().unwrap_or_default()
    }

    /// Frees a lobby without clients and backends if its pool is gone or proxied.
    fn free_unused(&mut self, at: usize) {
        let lobby = &self.lobbies[at];
        if lobby.guests.count() > 0 || lobby.lines.iter().any(Option::is_some) {
            return;
        }
        let is_used =
            self.pool(lobby.pool, |pool| pool.key == lobby.key && pool.proxied().is_none());
        if is_used != Some(true) {
            self.unwatch(at);
            let lobby = self.lobbies.remove(at);
            self.held.remove(Key::Lobby(at));
            self.bequeath(&lobby);
        }
    }

    fn post(&self, worker: WorkerId, mail: Mail<Transport>) {
        self.shared.hub.mailbox(worker).post(mail.into());
    }

    fn backend_event(&mut self, number: usize) {
        while let Some(backend) = self.backends.get(number) {
            match control::read(backend.fd.as_raw_fd()) {
                Received::Nothing => return,
                Received::End => {
                    self.rhythm.note_news();
                    return self.backend_ended(number);
                }
                Received::Message(message) => {
                    match message {
                        FromBackend::Need { .. } => self.rhythm.note_need(),
                        _ => self.rhythm.note_news(),
                    }
                    if !self.handle(number, &message) {
                        return self.expel(number, &message);
                    }
                }
            }
        }
    }

    /// Ends a backend that does not keep to the rules. Then its clients are freed.
    fn expel(&self, number: usize, message: &FromBackend) {
        let Backend { fd, role, .. } = &self.backends[number];
        if let Some(Role { server, .. }) = role {
            let process = server.process;
            warning!(
                "direct_socket: backend {process} is expelled: it may not send {message:?} now"
            );
        }
        socket::shutdown(fd.as_raw_fd(), false);
    }

    /// Handles a backend's message. Returns false if the backend may not send it now.
    fn handle(&mut self, number: usize, message: &FromBackend) -> bool {
        let role = self.backends[number].role.as_ref();
        let role = role.map(|role| (role.room, role.line, role.is_inherited));
        match (message.clone(), role) {
            (FromBackend::Hello(hello), None) => self.greet(number, hello),
            (FromBackend::Need { place, generation }, Some(_)) => {
                self.give_descriptor(number, Seat { place, generation })
            }
            (
                FromBackend::Returned { place, generation, reason },
                Some((room, line, is_inherited)),
            ) => {
                let has_returned = self.lobbies[room].room.acknowledge(place, line, generation);
                if has_returned {
                    self.take_back(room, place, reason, number);
                }
                has_returned || is_inherited
            }
            (FromBackend::Left, Some(_)) => {
                if let Some(role) = &mut self.backends[number].role {
                    self.held.remove(Key::Line(role.room, role.line));
                    role.has_left = true;
                    role.home = Home::None;
                    let Attending { server, serial, worker, .. } = role.server;
                    // The engine knows of one that has left with its client.
                    if !role.departs {
                        self.post(worker, Mail::LeftLobby { server, serial, why: None });
                    }
                }
                true
            }
            (FromBackend::Hello(_), Some(_))
            | (FromBackend::Need { .. } | FromBackend::Returned { .. } | FromBackend::Left, None) => {
                false
            }
        }
    }

    fn send(&self, number: usize, message: ToBackend, descriptors: &[RawFd]) -> bool {
        let backend = &self.backends[number];
        if let Some(role) = &backend.role {
            self.lobbies[role.room].room.call(role.line);
        }
        control::send(backend.fd.as_raw_fd(), message, descriptors)
    }

    fn by_serial(&self, serial: u64) -> Option<usize> {
        let is_it = |backend: &Backend| {
            backend.role.as_ref().is_some_and(|role| role.server.serial == serial)
        };
        self.backends.iter().find(|(_, backend)| is_it(backend)).map(|(number, _)| number)
    }

    fn ask_to_leave(&mut self, serial: u64) {
        let Some(number) = self.by_serial(serial) else { return };
        let is_told = self.send(number, ToBackend::Leave, &[]);
        if let Some(role) = &mut self.backends[number].role {
            role.leaves = !is_told;
            self.lobbies[role.room].idle.note_asked(role.line);
        }
    }

    /// The engine has closed the server.
    fn server_closed(&mut self, pool: PoolId, serial: u64) {
        let never_came = self.tickets.withdraw(serial);
        if let Some(number) = self.by_serial(serial) {
            self.hold_line(number, None);
            if let Some(role) = &mut self.backends[number].role {
                role.is_closed = true;
                role.home = Home::None;
            }
            self.dismiss(number);
        } else if let Some(at) = self.find(pool) {
            if never_came {
                self.note_unserved(at);
            }
            self.replace_lost(at);
        }
    }

    /// A backend has ended, and its server is closed. Has another one opened if a client waits: the
    /// next look may be late for that.
    fn replace_lost(&mut self, at: usize) {
        let lobby = &mut self.lobbies[at];
        lobby.short_until = self.shared.clock.now() + SHORT_MAX;
        if lobby.guests.count() > 0 && lobby.is_starved() {
            self.ask_for_server(at);
        }
    }

    /// A backend notices it at the control socket, and ends as soon as it has no client.
    fn dismiss(&self, number: usize) {
        let backend = &self.backends[number];
        if let Some(role) = &backend.role {
            self.lobbies[role.room].room.call(role.line);
        }
        socket::shutdown(backend.fd.as_raw_fd(), true);
    }

    /// The backend's process has ended.
    fn backend_ended(&mut self, number: usize) {
        let backend = self.backends.remove(number);
        let _ = self.own.delete(backend.fd.as_raw_fd());
        self.tickets.end(number);
        let Some(role) = backend.role else { return };
        let Role { server, room: at, line, came, has_left, is_closed, is_welcome, .. } = role;
        if !came {
            let Attending { server, serial, worker, .. } = server;
            // It may have come, served a client, and ended since the last look.
            let mail = match self.lobbies[at].room.has_come(line) {
                true => Mail::BackendCame { server, serial },
                false => {
                    // One that was not welcome has not waited long enough.
                    let why = is_welcome.then_some(Proxied::TooFewDescriptors);
                    Mail::LeftLobby { server, serial, why }
                }
            };
            self.post(worker, mail);
        }
        // Otherwise it has no client.
        if !has_left {
            self.reclaim(at, line, number);
        }
        if self.lobbies[at].room.transaction(line) > 0 {
            self.lobbies[at].unserved.end();
        } else if !has_left {
            self.note_unserved(at);
        }
        let lobby = &mut self.lobbies[at];
        lobby.past += lobby.sums(line);
        lobby.room.clear_line(line);
        lobby.lines[line as usize] = None;
        lobby.idle.forget(line);
        for place in lobby.guests.take_refused(number) {
            self.admit(at, place);
        }
        // Not before: the next process must know that the line's backend has ended.
        self.held.remove(Key::Line(at, line));
        self.wake_lingerers(at);
        // Otherwise its server still has the place in the pool.
        if is_closed {
            self.replace_lost(at);
        }
    }

    /// Takes the clients of a backend that has ended.
    fn reclaim(&mut self, at: usize, line: u32, number: usize) {
        for place in 0..self.lobbies[at].room.places() {
            match self.lobbies[at].room.reclaim(line, place) {
                Loss::None => {}
                Loss::Close => self.end(at, place, Ending::Lost),
                // It was to leave with this backend.
                Loss::Returned if self.lobbies[at].room.leaver(place).is_some() => {
                    self.end(at, place, Ending::Lost);
                }
                Loss::Returned => self.take_back(at, place, Reason::Recalled, number),
            }
        }
        self.end_leavers(number);
        self.lobbies[at].room.arm_again(line);
    }

    fn wake_lingerers(&self, at: usize) {
        let lobby = &self.lobbies[at];
        for (line, number) in lobby.lines.iter().enumerate() {
            if let Some(number) = number
                && lobby.room.lingers(line as u32)
            {
                // With a full queue it is awake already.
                self.send(*number, ToBackend::Wake, &[]);
            }
        }
    }

    fn ask_for_server(&mut self, at: usize) {
        if self.is_settling {
            return;
        }
        let (now, lobby) = (self.shared.clock.now(), &mut self.lobbies[at]);
        if lobby.unserved.pauses(now) {
            return;
        }
        lobby.asked_at = now;
        lobby.short_until = 0;
        let (worker, pool) = (lobby.worker, lobby.pool);
        self.post(worker, Mail::Attend { pool });
    }

    /// Returns the guests of a lobby, and what their methods need.
    fn guests_of(&mut self, at: usize) -> (&mut Guests, Around<'_>) {
        let lobby = &mut self.lobbies[at];
        let around = Around {
            room: &lobby.room,
            shared: &self.shared,
            port: self.port,
            own: &self.own,
            held: &self.held,
            at,
        };
        (&mut lobby.guests, around)
    }
}
