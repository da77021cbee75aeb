//! One lobby of a direct pool, on Weir's side: the file in memory, the epoll set, and the descriptors of
//! its clients.
//!
//! The rules for the state words and the layout of the file are in `extension/lobby.c`, which is
//! compiled into this crate and into the library for PostgreSQL. `extension/test/model` checks that
//! file.
//!
//! * `library`: the functions of `lobby.c`
//! * `numbers`: descriptors with fixed numbers

mod library;
mod numbers;

pub use numbers::{FIRST_NUMBER, Numbers};

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
    sync::Arc,
};

use net::sys::{Epoll, shared_memory::SharedMemory, socket};

use library::{View, constants as c};

/// A Weir and a library of different layouts cannot share a lobby.
pub const LAYOUT: u32 = c::LOBBY_LAYOUT;
/// The value of SIGINT that announces an order.
pub const SIGNAL: u32 = c::LOBBY_SIGNAL;
pub const BACKENDS_MAX: u32 = c::LOBBY_BACKENDS_MAX;
pub const PLACES_MAX: u32 = c::LOBBY_PLACES_MAX;

/// The state of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Free,
    /// Weir has the client. With an owner, that backend has just returned it.
    Taken,
    /// At rest, and in the epoll set.
    Armed,
    /// A backend has the client.
    Owned,
}

/// A copy of a place's state word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(u64);

impl Word {
    /// Returns the state. One that does not exist counts as taken, which no backend touches.
    pub fn state(self) -> State {
        match library::lobby_state_of(self.0) {
            c::LOBBY_FREE => State::Free,
            c::LOBBY_ARMED => State::Armed,
            c::LOBBY_OWNED => State::Owned,
            _ => State::Taken,
        }
    }

    pub fn owner(self) -> Option<u32> {
        library::lobby_owner_of(self.0).checked_sub(1)
    }

    pub fn generation(self) -> u32 {
        library::lobby_generation_of(self.0)
    }
}

/// The result of [`Room::recall`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recall {
    /// Weir has the client.
    Taken,
    /// Its backend will return it, if all lingering backends are woken now.
    Asked,
    /// There is no client, or Weir has it already.
    None,
}

/// The meaning of a backend's death for one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    None,
    /// The backend died with the client.
    Close,
    /// The backend had returned the client, and died before it could say so.
    Returned,
}

/// A backend that serves a client, or waits for the next message of a pinned one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serving {
    pub line: u32,
    /// The number of the client's transaction.
    pub transaction: u64,
    /// No transaction was running when the backend said so.
    pub is_pinned_idle: bool,
}

/// An order for a transaction. The backend must be interrupted then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Cancel the query.
    Cancel,
    /// Say the last words to the client, and end.
    End,
    /// Answer what the client does.
    Ask,
}

/// A backend's answer to [`Order::Ask`]: since when, by the system's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    AtRest,
    Runs(u64),
    Idles(u64),
}

/// The work of a backend for all its clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub queries: u64,
    pub query_us: u64,
    pub transaction_us: u64,
}

/// Counts of backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    pub all: u32,
    /// Backends that keep a client between its transactions.
    pub keeping: u32,
    /// Backends that keep a client because its state is too large.
    pub large: u32,
}

#[derive(Debug)]
pub struct Room {
    view: View,
    set: Epoll,
    /// Other lobbies may share them.
    numbers: Arc<Numbers>,
    backends: u32,
    places: u32,
}

impl Room {
    /// Makes a lobby with a place for each of the numbers.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn new(backends: u32, numbers: Arc<Numbers>) -> io::Result<Self> {
        let places = numbers.count();
        let size = size(backends, places)?;
        let memory = SharedMemory::new(c"weir-lobby", size)?;
        let view = View::format(memory, backends, places).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self::of(view, Epoll::new()?, numbers, backends, places))
    }

    /// Opens a lobby of another process, with its file and its epoll set. The clients' sockets are
    /// to be put into their places.
    ///
    /// # Errors
    /// When this is no lobby of this size and layout, or the system refuses.
    pub fn open(
        [memory, set]: [OwnedFd; 2],
        numbers: Arc<Numbers>,
        backends: u32,
        places: u32,
    ) -> io::Result<Self> {
        let memory = SharedMemory::open(memory, size(backends, places)?)?;
        let view = View::open(memory, backends, places).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self::of(view, Epoll::of(set), numbers, backends, places))
    }

    fn of(mut view: View, set: Epoll, numbers: Arc<Numbers>, backends: u32, places: u32) -> Self {
        view.use_descriptors(set.fd().as_raw_fd(), numbers.base(), numbers.blank());
        Self { view, set, numbers, backends, places }
    }

    /// Puts the socket of another process's client into its place. Returns false if that has failed.
    pub fn put(&self, place: u32, client: &OwnedFd) -> bool {
        library::lobby_put(&self.view, place, client.as_raw_fd())
    }

    pub fn backends(&self) -> u32 {
        self.backends
    }

    pub fn places(&self) -> u32 {
        self.places
    }

    /// Returns the descriptors that a backend gets: file and set.
    pub fn descriptors(&self) -> [RawFd; 2] {
        [self.view.memory().file().as_raw_fd(), self.set.fd().as_raw_fd()]
    }

    /// Returns the epoll set.
    pub fn set(&self) -> &OwnedFd {
        self.set.fd()
    }

    pub fn base(&self) -> u32 {
        self.numbers.base().cast_unsigned()
    }

    /// Returns the descriptor of a place's client.
    pub fn socket(&self, place: u32) -> RawFd {
        self.numbers.of(place)
    }

    pub fn word(&self, place: u32) -> Word {
        Word(library::lobby_word(&self.view, place))
    }

    /// Are these settings short enough for a place?
    pub fn has_room_for(settings: &[u8]) -> bool {
        library::lobby_has_room_for(settings.len())
    }

    /// FREE → TAKEN, with this socket, these settings of its startup packet, and what it was told: the
    /// digest of its parameters and a process id. Returns false if the place is not free, the settings
    /// are too long, or the system refuses.
    pub fn take(
        &self,
        place: u32,
        client: &OwnedFd,
        settings: &[u8],
        (told, process): (u64, u32),
    ) -> bool {
        Self::has_room_for(settings)
            && library::lobby_take(&self.view, place, told, process) != 0
            && self.view.write_login(place, settings)
            && self.put(place, client)
    }

    /// Makes a place free again that [`Room::take`] could not fill. Returns whether it is free.
    pub fn untake(&self, place: u32) -> bool {
        library::lobby_untake(&self.view, place)
    }

    /// TAKEN → ARMED. Returns false if nothing has changed.
    pub fn admit(&self, place: u32) -> bool {
        library::lobby_admit(&self.view, place)
    }

    /// TAKEN → FREE. The client's connection ends.
    pub fn vacate(&self, place: u32) -> bool {
        library::lobby_vacate(&self.view, place, c::PARTING_ENDS)
    }

    /// TAKEN → FREE, without an end of the connection: another part of Weir has a copy of its
    /// descriptor.
    pub fn let_go(&self, place: u32) -> bool {
        library::lobby_vacate(&self.view, place, c::PARTING_GOES_ON)
    }

    pub fn recall(&self, place: u32) -> Recall {
        match library::lobby_recall(&self.view, place) {
            c::RECALL_TAKEN => Recall::Taken,
            c::RECALL_ASKED => Recall::Asked,
            _ => Recall::None,
        }
    }

    /// TAKEN(line) → TAKEN(0), when the backend has said that it returns the client.
    pub fn acknowledge(&self, place: u32, line: u32, generation: u32) -> bool {
        library::lobby_acknowledge(&self.view, place, line, generation)
    }

    /// Has this backend the client of this generation?
    pub fn is_owner(&self, place: u32, line: u32, generation: u32) -> bool {
        library::lobby_is_owner(&self.view, place, line, generation)
    }

    /// Takes a place from a dead backend, and returns the consequence for its client. After all
    /// places, the caller calls [`Room::arm_again`], and then wakes all backends that linger.
    pub fn reclaim(&self, line: u32, place: u32) -> Loss {
        match library::lobby_reclaim(&self.view, line, place) {
            c::LOSS_CLOSE => Loss::Close,
            c::LOSS_RETURNED => Loss::Returned,
            _ => Loss::None,
        }
    }

    /// Arms every client at rest: the dead backend may have had an event, and not claimed yet.
    pub fn arm_again(&self, line: u32) {
        library::lobby_arm_again(&self.view, line);
    }

    /// Prepares a line for a new backend.
    pub fn clear_line(&self, line: u32) {
        library::lobby_clear_line(&self.view, line);
    }

    /// Sets the number of lines in which backends look for each other.
    pub fn use_lines(&self, lines: u32) {
        library::lobby_use_lines(&self.view, lines);
    }

    /// Tells the backends whether clients that listen leave the lobby.
    pub fn set_gives_up(&self, gives_up: bool) {
        library::lobby_set_gives_up(&self.view, gives_up);
    }

    /// Notes that a message follows. A backend that never sleeps reads this note.
    pub fn call(&self, line: u32) {
        library::lobby_call(&self.view, line);
    }

    /// Leaves the body of an ErrorResponse for the backend that ends a client. Words that are too
    /// long are left out, and the client gets the backend's own.
    pub fn leave_words(&self, place: u32, body: &[u8]) {
        self.view.leave_words(place, body);
    }

    /// Does a client at rest wait for a backend?
    pub fn is_waited_for(&self) -> bool {
        socket::is_readable(self.set.fd().as_raw_fd())
    }
}

/// A client that leaves with its backend.
impl Room {
    /// Returns the line of the backend that has returned this client to leave with it.
    pub fn leaver(&self, place: u32) -> Option<u32> {
        let mut line = 0;
        library::lobby_leaver(&self.view, place, &mut line).then_some(line)
    }

    /// Returns the state of a client, and the channels to which it listens if it leaves.
    pub fn state_of(&self, place: u32) -> (Vec<u8>, Vec<u8>) {
        let (mut state, mut channels) = (0, 0);
        library::lobby_lengths(&self.view, place, &mut state, &mut channels);
        let read = |from, len| self.view.read_window(place, from, len);
        (read(0, state), read(state, channels))
    }
}

/// Steps that only a lobby of a process that was killed needs.
impl Room {
    /// The backend of this line is not in the lobby, as far as is known.
    pub fn leave(&self, line: u32) {
        library::lobby_leave(&self.view, line);
    }

    /// Arms a client at rest, or one that a backend has: it may not be in the set, or may have lost its
    /// event.
    pub fn arm_anew(&self, place: u32) {
        library::lobby_arm_anew(&self.view, place);
    }

    /// Frees a place whose client nobody knows, whatever its state is. Unless another lobby has its
    /// number, the socket is closed.
    pub fn free(&self, place: u32, has_number: bool) {
        library::lobby_free(&self.view, place, has_number);
    }

    /// Closes the socket of a place whose client has left.
    pub fn clear(&self, place: u32) {
        library::lobby_clear(&self.view, place);
    }
}

/// The state of a backend.
impl Room {
    fn activity(&self, line: u32) -> u32 {
        library::lobby_activity(&self.view, line)
    }

    /// Returns what the backend of a line has done for all its clients.
    pub fn sums(&self, line: u32) -> Sums {
        let mut sums = Sums::default();
        let Sums { queries, query_us, transaction_us } = &mut sums;
        library::lobby_sums(&self.view, line, queries, query_us, transaction_us);
        sums
    }

    /// Returns the number of the backend's transaction: the running one or the last one.
    pub fn transaction(&self, line: u32) -> u64 {
        library::lobby_transaction(&self.view, line)
    }

    /// Has the backend of this line ever been in the lobby? It may have left again.
    pub fn has_come(&self, line: u32) -> bool {
        library::lobby_has_come(&self.view, line)
    }

    pub fn sleeps(&self, line: u32) -> bool {
        self.activity(line) == c::LOBBY_SLEEPING
    }

    /// Does the backend wait for the client that it has? It may hold it.
    pub fn lingers(&self, line: u32) -> bool {
        library::lobby_lingers(&self.view, line)
    }

    /// Does the backend wait for the client that it has, which may ask for a number?
    pub fn holds(&self, line: u32) -> bool {
        self.activity(line) == c::LOBBY_HOLDING
    }

    /// Does the backend keep a client that is pinned to it, without a transaction?
    pub fn keeps(&self, line: u32) -> bool {
        self.activity(line) == c::LOBBY_PINNED_IDLE
    }

    /// Is the state of the client that the backend keeps too large for its place?
    pub fn is_too_large(&self, line: u32) -> bool {
        library::lobby_is_too_large(&self.view, line)
    }

    pub fn kept(&self) -> Kept {
        let mut kept = Kept { all: 0, keeping: 0, large: 0 };
        let Kept { all, keeping, large } = &mut kept;
        library::lobby_kept(&self.view, all, keeping, large);
        kept
    }

    /// Writes an order for a client's transaction. Its backend is to be interrupted then.
    pub fn order(&self, order: Order, serving: Serving) {
        let order = match order {
            Order::Cancel => c::LOBBY_CANCEL,
            Order::End => c::LOBBY_END,
            Order::Ask => c::LOBBY_ASK,
        };
        library::lobby_order(&self.view, serving.line, order, serving.transaction);
    }

    /// Returns the answer of a backend; `None` if it has not answered yet.
    pub fn answer(&self, line: u32) -> Option<Answer> {
        let mut since = 0;
        match library::lobby_answer(&self.view, line, &mut since) {
            c::LOBBY_AT_REST => Some(Answer::AtRest),
            c::LOBBY_RUNS => Some(Answer::Runs(since)),
            c::LOBBY_IDLES => Some(Answer::Idles(since)),
            _ => None,
        }
    }
}

/// The state of a client.
impl Room {
    /// Returns the backend that serves this client; `None` if no transaction of it runs and it is not
    /// pinned.
    pub fn serving(&self, place: u32) -> Option<Serving> {
        let mut serving = Serving { line: 0, transaction: 0, is_pinned_idle: false };
        let Serving { line, transaction, is_pinned_idle } = &mut serving;
        library::lobby_serving(&self.view, place, line, transaction, is_pinned_idle)
            .then_some(serving)
    }

    /// Is the client pinned to its backend, without a transaction?
    pub fn is_pinned_idle(&self, place: u32) -> bool {
        self.serving(place).is_some_and(|serving| serving.is_pinned_idle)
    }

    pub fn is_owned(&self, place: u32) -> bool {
        self.word(place).state() == State::Owned
    }

    /// Does the client run nothing? Its backend may linger with it.
    pub fn is_idle(&self, place: u32) -> bool {
        library::lobby_is_idle(&self.view, place)
    }

    /// Returns when the last request came and when the last transaction ended, by the system's
    /// monotonic clock; 0 = never.
    pub fn times(&self, place: u32) -> (u64, u64) {
        let (mut request, mut transaction) = (0, 0);
        library::lobby_times(&self.view, place, &mut request, &mut transaction);
        (request, transaction)
    }

    pub fn transactions(&self, place: u32) -> u64 {
        library::lobby_transactions(&self.view, place)
    }
}

/// The file of a lobby that no process takes over.
#[derive(Debug)]
pub struct Stranded(View);

impl Stranded {
    /// Returns `None` if the file is no lobby of this size and layout.
    pub fn open(file: OwnedFd, backends: u32, places: u32) -> Option<Self> {
        let memory = SharedMemory::open(file, size(backends, places).ok()?).ok()?;
        View::open(memory, backends, places).map(Self)
    }

    /// Takes a client at rest, so that no backend claims it. Returns false if a backend has it.
    pub fn take(&self, place: u32) -> bool {
        library::lobby_strand(&self.0, place)
    }
}

fn size(backends: u32, places: u32) -> io::Result<usize> {
    let size = library::lobby_size(backends, places);
    if size == 0 { Err(io::ErrorKind::InvalidInput.into()) } else { Ok(size) }
}

#[cfg(test)]
mod tests;
