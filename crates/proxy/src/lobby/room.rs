//! One lobby: the file in memory, the epoll set, and Weir's side of the rules for state words. It
//! repeats "Weir's side" of `extension/lobby.c`. The order of the steps matters.
//!
//! ```text
//!   FREE ──take──► TAKEN(0) ──admit──► ARMED ──(claim)──► OWNED(b)
//!     ▲               │ ▲  ▲             │ ▲                │  │
//!     └────vacate─────┘ │  └───recall────┘ └───(release)────┘  │
//!                       └─acknowledge── TAKEN(b) ◄──(return)───┘
//! ```

mod depart;
mod kept;
mod repair;

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use net::sys::{Epoll, epoll, shared_memory, shared_memory::SharedMemory, socket};

use engine::stats::Stats;

use super::{
    layout::{self, State, Word, activity, backend, doing, header, place as field},
    numbers::Numbers,
};

/// The events of a client at rest.
const ARMED: u32 = epoll::READABLE | epoll::PEER_DONE | epoll::ONE_SHOT;

/// The lengths of settings, statements and the unnamed statement, with which a window begins.
const HEADER: usize = 12;

/// The result of [`Room::recall`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recall {
    /// Weir has the client.
    Taken,
    /// Its backend will return it, if all lingering backends are woken now.
    Asked,
    /// There is no client, or Weir has it already.
    None,
}

/// The meaning of a backend's death for one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    None,
    /// The backend died with the client.
    Close,
    /// The backend had returned the client, and died before it could say so.
    Returned,
}

/// A backend that serves a client, or waits for the next message of a pinned one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Serving {
    pub(super) line: u32,
    /// The number of the client's transaction.
    pub(super) transaction: u64,
    /// No transaction was running when the backend said so.
    pub(super) is_pinned_idle: bool,
}

/// An order for a transaction. The backend must be interrupted then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Cancel the query.
    Cancel,
    /// Say the last words to the client, and end.
    End,
    /// Answer what the client does.
    Ask,
}

/// A backend's answer to [`Order::Ask`]: since when, by the system's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    AtRest,
    Runs(u64),
    Idles(u64),
}

#[derive(Debug)]
pub(super) struct Room {
    memory: SharedMemory,
    set: Epoll,
    numbers: Numbers,
    backends: u32,
    places: u32,
}

impl Room {
    /// # Errors
    /// When the limit of open files leaves no room, or the system refuses.
    pub(super) fn new(backends: u32, places: u32) -> io::Result<Self> {
        let size = layout::size(backends, places).ok_or(io::ErrorKind::InvalidInput)?;
        let numbers = Numbers::reserve(places)?;
        let memory = SharedMemory::new(c"weir-lobby", size)?;
        let set = Epoll::new()?;
        let store = |at, value| memory.word32(at).store(value, Ordering::SeqCst);
        memory.word64(header::MAGIC).store(layout::MAGIC, Ordering::SeqCst);
        store(header::LAYOUT, layout::LAYOUT);
        store(header::BACKENDS, backends);
        store(header::PLACES, places);
        store(header::WINDOW, layout::WINDOW as u32);
        store(header::LINES, 0);
        Ok(Self { memory, set, numbers, backends, places })
    }

    /// Opens a lobby of another process, with its file and its epoll set. The clients' sockets are
    /// to be put into their places.
    ///
    /// # Errors
    /// When this is no lobby of this size and layout, or the system refuses.
    pub(super) fn open(
        [memory, set]: [OwnedFd; 2],
        numbers: Numbers,
        backends: u32,
        places: u32,
    ) -> io::Result<Self> {
        let size = layout::size(backends, places).ok_or(io::ErrorKind::InvalidInput)?;
        let memory = SharedMemory::open(memory, size)?;
        let has = |at, value| memory.word32(at).load(Ordering::SeqCst) == value;
        let fits = memory.word64(header::MAGIC).load(Ordering::SeqCst) == layout::MAGIC
            && has(header::LAYOUT, layout::LAYOUT)
            && has(header::BACKENDS, backends)
            && has(header::PLACES, places);
        if !fits {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Self { memory, set: Epoll::of(set), numbers, backends, places })
    }

    /// Puts the socket of another process's client into its place.
    pub(super) fn put(&self, place: u32, client: OwnedFd) -> io::Result<()> {
        if place >= self.places {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.numbers.put(place, client)
    }

    pub(super) fn backends(&self) -> u32 {
        self.backends
    }

    pub(super) fn places(&self) -> u32 {
        self.places
    }

    /// Returns the descriptors that a backend gets: file and set.
    pub(super) fn descriptors(&self) -> [RawFd; 2] {
        [self.memory.file().as_raw_fd(), self.set.fd().as_raw_fd()]
    }

    /// Returns the epoll set.
    pub(super) fn set(&self) -> &OwnedFd {
        self.set.fd()
    }

    /// Returns the number of the backend's transaction: the running one or the last one.
    pub(super) fn transaction(&self, line: u32) -> u64 {
        self.of_line(line, backend::TRANSACTION).load(Ordering::SeqCst)
    }

    pub(super) fn base(&self) -> u32 {
        self.numbers.base() as u32
    }

    /// Returns the descriptor of a place's client.
    pub(super) fn socket(&self, place: u32) -> RawFd {
        self.numbers.of(place)
    }

    fn of_place(&self, place: u32, field: usize) -> usize {
        layout::place_line(self.backends, place) + field
    }

    fn place_word(&self, place: u32) -> &AtomicU64 {
        self.memory.word64(self.of_place(place, field::WORD))
    }

    fn activity(&self, line: u32) -> &AtomicU32 {
        self.memory.word32(layout::backend_line(line) + backend::ACTIVITY)
    }

    pub(super) fn word(&self, place: u32) -> Word {
        Word(self.place_word(place).load(Ordering::SeqCst))
    }

    fn swap(&self, place: u32, from: Word, to: Word) -> bool {
        let word = self.place_word(place);
        word.compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Are these settings short enough for a place?
    pub(super) fn has_room_for(settings: &[u8]) -> bool {
        settings.len() + HEADER <= layout::STATE
    }

    /// FREE → TAKEN, with this socket, these settings of its startup packet, and what it was told: the
    /// digest of its parameters and a process id. Returns false if the place is not free, or the
    /// settings are too long.
    pub(super) fn take(
        &self,
        place: u32,
        client: OwnedFd,
        settings: &[u8],
        (told, process): (u64, u32),
    ) -> io::Result<bool> {
        let word = self.word(place);
        if word.0 & 0xff != State::Free as u64 || !Self::has_room_for(settings) {
            return Ok(false);
        }
        let generation = word.generation().wrapping_add(1).max(1);
        if !self.swap(place, word, Word::new(State::Taken, None, generation)) {
            return Ok(false);
        }
        // Nothing of the client before may be left.
        for field in [field::REQUEST_US, field::TRANSACTION_US, field::TRANSACTIONS] {
            self.memory.word64(self.of_place(place, field)).store(0, Ordering::SeqCst);
        }
        self.memory.word64(self.of_place(place, field::TOLD)).store(told, Ordering::SeqCst);
        for field in [field::STRAY, field::ASKS, field::LEAVER] {
            self.memory.word32(self.of_place(place, field)).store(0, Ordering::SeqCst);
        }
        let at = self.of_place(place, field::PROCESS);
        self.memory.word32(at).store(process, Ordering::SeqCst);
        self.write_login(place, settings);
        self.numbers.put(place, client)?;
        Ok(true)
    }

    /// Writes the settings of a startup packet. Without any, the window takes no memory.
    fn write_login(&self, place: u32, settings: &[u8]) {
        let mut len = 0;
        if !settings.is_empty() {
            let window = layout::window(self.backends, self.places, place);
            // No statements follow the settings.
            self.memory.write(window, &[0; HEADER]);
            self.memory.write(window, &(settings.len() as u32).to_ne_bytes());
            self.memory.write(window + HEADER, settings);
            len = settings.len() + HEADER;
        }
        let field = self.memory.word32(self.of_place(place, field::WINDOW_LEN));
        field.store(len as u32, Ordering::SeqCst);
    }

    fn arm(&self, place: u32, generation: u32) -> io::Result<()> {
        self.set.modify(self.socket(place), ARMED, event_of(place, generation))
    }

    /// TAKEN → ARMED. The state comes first, and then the set: an event that came before the state
    /// would be forgotten. Returns false if nothing has changed.
    pub(super) fn admit(&self, place: u32) -> bool {
        let word = self.word(place);
        let generation = word.generation();
        let armed = Word::new(State::Armed, None, generation);
        if word != Word::new(State::Taken, None, generation) || !self.swap(place, word, armed) {
            return false;
        }
        // A socket that a backend has returned is in the set still.
        if self.set.add(self.socket(place), ARMED, event_of(place, generation)).is_ok()
            || self.arm(place, generation).is_ok()
        {
            return true;
        }
        self.swap(place, armed, word);
        false
    }

    /// TAKEN → FREE. The socket leaves the set before it is closed.
    pub(super) fn vacate(&self, place: u32) -> bool {
        let word = self.word(place);
        let generation = word.generation();
        if word != Word::new(State::Taken, None, generation) {
            return false;
        }
        let fd = self.socket(place);
        let _ = self.set.delete(fd);
        // Backends have copies of the descriptor.
        socket::shutdown(fd, false);
        self.numbers.clear(place);
        let window = layout::window(self.backends, self.places, place);
        let _ = shared_memory::punch(&self.memory, window, layout::WINDOW);
        self.swap(place, word, Word::new(State::Free, None, generation))
    }

    pub(super) fn recall(&self, place: u32) -> Recall {
        loop {
            let word = self.word(place);
            match word.state() {
                State::Free | State::Taken => return Recall::None,
                State::Armed => {
                    if self.swap(place, word, Word::new(State::Taken, None, word.generation())) {
                        let _ = self.set.delete(self.socket(place));
                        return Recall::Taken;
                    }
                }
                State::Owned => {
                    if self.swap(place, word, word.recalled()) {
                        return Recall::Asked;
                    }
                }
            }
        }
    }

    /// Makes a place free again that [`Room::take`] could not fill. Returns whether it is free.
    pub(super) fn untake(&self, place: u32) -> bool {
        self.word(place).0 & 0xff == State::Free as u64 || self.vacate(place)
    }

    /// TAKEN(line) → TAKEN(0), when the backend has said that it returns the client.
    pub(super) fn acknowledge(&self, place: u32, line: u32, generation: u32) -> bool {
        let word = Word::new(State::Taken, Some(line), generation);
        place < self.places && self.swap(place, word, Word::new(State::Taken, None, generation))
    }

    /// Has this backend the client of this generation?
    pub(super) fn is_owner(&self, place: u32, line: u32, generation: u32) -> bool {
        place < self.places && {
            let word = self.word(place);
            word.state() == State::Owned
                && word.owner() == Some(line)
                && word.generation() == generation
        }
    }

    /// Takes a place from a dead backend, and returns the consequence for its client. After all
    /// places, the caller calls [`Room::arm_again`], and then wakes all backends that linger. A
    /// backend that lingered had saved its client's state, and had read nothing more.
    pub(super) fn reclaim(&self, line: u32, place: u32) -> Loss {
        let word = self.word(place);
        if word.owner() != Some(line)
            || !self.swap(place, word, Word::new(State::Taken, None, word.generation()))
        {
            return Loss::None;
        }
        match word.state() {
            State::Owned if !self.lingers(line) => Loss::Close,
            State::Owned | State::Free | State::Taken | State::Armed => Loss::Returned,
        }
    }

    /// Arms every client at rest: the dead backend may have had an event, and not claimed yet.
    pub(super) fn arm_again(&self, line: u32) {
        self.activity(line).store(activity::ABSENT, Ordering::SeqCst);
        for place in 0..self.places {
            let word = self.word(place);
            if word.state() == State::Armed {
                let _ = self.arm(place, word.generation());
            }
        }
    }

    /// Prepares a line for a new backend.
    pub(super) fn clear_line(&self, line: u32) {
        let at = layout::backend_line(line);
        (0..layout::BACKEND_LINE)
            .step_by(8)
            .for_each(|field| self.memory.word64(at + field).store(0, Ordering::SeqCst));
    }

    /// Sets the number of lines in which backends look for each other.
    pub(super) fn use_lines(&self, lines: u32) {
        self.memory.word32(header::LINES).store(lines, Ordering::SeqCst);
    }

    /// Returns what the backend of a line has done for all its clients.
    pub(super) fn sums(&self, line: u32) -> Stats {
        let read = |field| self.of_line(line, field).load(Ordering::SeqCst);
        Stats {
            queries: read(backend::QUERIES),
            query_time: read(backend::QUERY_US),
            transaction_time: read(backend::TRANSACTION_US),
            ..Stats::default()
        }
    }

    fn of_line(&self, line: u32, field: usize) -> &AtomicU64 {
        self.memory.word64(layout::backend_line(line) + field)
    }

    /// Has the backend of this line ever been in the lobby? It may have left again.
    pub(super) fn has_come(&self, line: u32) -> bool {
        let at = layout::backend_line(line) + backend::PROCESS;
        self.memory.word32(at).load(Ordering::SeqCst) != 0
    }

    /// Does the backend wait for the client that it has? It may hold it.
    pub(super) fn lingers(&self, line: u32) -> bool {
        matches!(
            self.activity(line).load(Ordering::SeqCst),
            activity::LINGERING | activity::HOLDING
        )
    }

    /// Does the backend keep a client that is pinned to it, without a transaction?
    pub(super) fn keeps(&self, line: u32) -> bool {
        self.activity(line).load(Ordering::SeqCst) == activity::PINNED_IDLE
    }

    /// Is the client pinned to its backend, without a transaction?
    pub(super) fn is_pinned_idle(&self, place: u32) -> bool {
        self.serving(place).is_some_and(|serving| serving.is_pinned_idle)
    }

    /// Returns the backend that serves this client; `None` if no transaction of it runs and it is not
    /// pinned.
    pub(super) fn serving(&self, place: u32) -> Option<Serving> {
        let word = self.word(place);
        let line = word.owner().filter(|_| word.state() == State::Owned)?;
        if line >= self.backends {
            return None;
        }
        let transaction = self.of_line(line, backend::TRANSACTION).load(Ordering::SeqCst);
        let activity = self.activity(line).load(Ordering::SeqCst);
        let at = layout::backend_line(line) + backend::PLACE;
        let serves = self.memory.word32(at).load(Ordering::SeqCst) == place + 1;
        // The number is that of this client's transaction only if the client had this backend before
        // and after it was read.
        let is_pinned_idle = activity == activity::PINNED_IDLE;
        (serves && self.word(place) == word).then_some(Serving {
            line,
            transaction,
            is_pinned_idle,
        })
    }

    pub(super) fn is_owned(&self, place: u32) -> bool {
        self.word(place).state() == State::Owned
    }

    pub(super) fn sleeps(&self, line: u32) -> bool {
        self.activity(line).load(Ordering::SeqCst) == activity::SLEEPING
    }

    /// Does the client run nothing? Its backend may linger with it.
    pub(super) fn is_idle(&self, place: u32) -> bool {
        let word = self.word(place);
        match (word.state(), word.owner()) {
            (State::Owned, Some(line)) => {
                line < self.backends && (self.lingers(line) || self.is_pinned_idle(place))
            }
            (State::Owned | State::Free | State::Taken | State::Armed, _) => true,
        }
    }

    /// Does a client at rest wait for a backend?
    pub(super) fn is_waited_for(&self) -> bool {
        socket::is_readable(self.set.fd().as_raw_fd())
    }

    /// Notes that a message follows. A backend that never sleeps reads this note.
    pub(super) fn call(&self, line: u32) {
        let at = layout::backend_line(line) + backend::CALLED;
        self.memory.word32(at).store(1, Ordering::SeqCst);
    }

    /// Writes an order for a client's transaction. Its backend is to be interrupted then.
    pub(super) fn order(&self, order: Order, serving: Serving) {
        let Serving { line, transaction, .. } = serving;
        let field = match order {
            Order::Cancel => backend::CANCEL,
            Order::End => backend::END,
            Order::Ask => {
                self.of_line(line, backend::ANSWER).store(0, Ordering::SeqCst);
                backend::ASK
            }
        };
        self.of_line(line, field).store(transaction, Ordering::SeqCst);
    }

    /// Returns the answer of a backend; `None` if it has not answered yet.
    pub(super) fn answer(&self, line: u32) -> Option<Answer> {
        let answer = self.of_line(line, backend::ANSWER).load(Ordering::SeqCst);
        let since = answer >> 2;
        match answer & 3 {
            doing::AT_REST => Some(Answer::AtRest),
            doing::RUNS => Some(Answer::Runs(since)),
            doing::IDLES => Some(Answer::Idles(since)),
            _ => None,
        }
    }

    /// Leaves the body of an ErrorResponse for the backend that ends a client. Words that are too
    /// long are left out, and the client gets the backend's own.
    pub(super) fn leave_words(&self, place: u32, body: &[u8]) {
        let at = layout::window(self.backends, self.places, place) + layout::STATE;
        let body = if body.len() + 4 > layout::WORDS { &[] } else { body };
        self.memory.write(at + 4, body);
        self.memory.word32(at).store(body.len() as u32, Ordering::SeqCst);
    }

    /// Returns when the last request came and when the last transaction ended, by the system's
    /// monotonic clock; 0 = never.
    pub(super) fn times(&self, place: u32) -> (u64, u64) {
        let read = |field| self.memory.word64(self.of_place(place, field)).load(Ordering::SeqCst);
        (read(field::REQUEST_US), read(field::TRANSACTION_US))
    }

    pub(super) fn transactions(&self, place: u32) -> u64 {
        self.memory.word64(self.of_place(place, field::TRANSACTIONS)).load(Ordering::SeqCst)
    }
}

fn event_of(place: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(place)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_pinned_client_is_idle_between_its_transactions() {
        let room = Room::new(2, 3).unwrap();
        let (near, _far) = UnixStream::pair().unwrap();
        assert!(room.take(1, near.into(), b"", (0, 0)).unwrap());
        let owned = Word::new(State::Owned, Some(1), room.word(1).generation());
        room.place_word(1).store(owned.0, Ordering::SeqCst);
        let place = layout::backend_line(1) + backend::PLACE;
        room.memory.word32(place).store(2, Ordering::SeqCst);
        for (doing, is_idle, is_pinned) in [
            (1, false, false),
            (activity::LINGERING, true, false),
            (activity::HOLDING, true, false),
            (activity::PINNED_IDLE, true, true),
        ] {
            room.activity(1).store(doing, Ordering::SeqCst);
            assert_eq!((room.is_idle(1), room.is_pinned_idle(1)), (is_idle, is_pinned));
        }
    }

    #[test]
    fn a_backend_that_has_left_has_come() {
        let room = Room::new(2, 1).unwrap();
        assert!(!room.has_come(1));
        let process = layout::backend_line(1) + backend::PROCESS;
        room.memory.word32(process).store(4711, Ordering::SeqCst);
        room.activity(1).store(activity::ABSENT, Ordering::SeqCst);
        assert!(room.has_come(1));
        room.clear_line(1);
        assert!(!room.has_come(1));
    }

    #[test]
    fn an_order_and_its_answer_are_for_one_transaction() {
        let room = Room::new(2, 3).unwrap();
        let (near, _far) = UnixStream::pair().unwrap();
        assert!(room.take(1, near.into(), b"", (0, 0)).unwrap());
        assert_eq!(room.serving(1), None);
        let owned = Word::new(State::Owned, Some(1), room.word(1).generation());
        room.place_word(1).store(owned.0, Ordering::SeqCst);
        let place = layout::backend_line(1) + backend::PLACE;
        room.memory.word32(place).store(2, Ordering::SeqCst);
        room.of_line(1, backend::TRANSACTION).store(7, Ordering::SeqCst);
        let serving = room.serving(1).unwrap();
        assert_eq!((serving.line, serving.transaction), (1, 7));
        room.of_line(1, backend::ANSWER).store(5 << 2 | doing::RUNS, Ordering::SeqCst);
        assert_eq!(room.answer(1), Some(Answer::Runs(5)));
        room.order(Order::Ask, serving);
        assert_eq!(room.answer(1), None);
        assert_eq!(room.of_line(1, backend::ASK).load(Ordering::SeqCst), 7);
        assert_eq!(room.of_line(1, backend::END).load(Ordering::SeqCst), 0);
    }

    #[test]
    fn last_words_that_are_too_long_are_left_out() {
        let room = Room::new(1, 2).unwrap();
        let len = || {
            let at = layout::window(1, 2, 1) + layout::STATE;
            room.memory.word32(at).load(Ordering::SeqCst)
        };
        room.leave_words(1, b"SFATAL");
        assert_eq!(len(), 6);
        room.leave_words(1, &[b'x'; layout::WORDS]);
        assert_eq!(len(), 0);
    }

    #[test]
    fn a_place_that_could_not_be_filled_is_free_again() {
        let room = Room::new(1, 1).unwrap();
        let long = vec![b'x'; layout::WINDOW];
        assert!(!Room::has_room_for(&long));
        let (near, _far) = UnixStream::pair().unwrap();
        assert!(!room.take(0, near.into(), &long, (0, 0)).unwrap());
        assert!(room.untake(0));
        let (near, _far) = UnixStream::pair().unwrap();
        assert!(room.take(0, near.into(), b"", (0, 0)).unwrap());
        assert!(room.untake(0));
        assert_eq!(room.word(0).state(), State::Free);
    }
}
