//! `extension/lobby.c`: its functions for Weir's side, and the constants of `lobby.h`.
//!
//! Other processes may write every byte of the file at any time. So `lobby.c` copies each value before
//! it checks it, and compares each index with the counts that the view was opened with.

#![expect(unsafe_code, reason = "functions of C, with the conditions of each call checked")]

use std::{
    ffi::{c_int, c_void},
    marker::PhantomData,
    ops::Deref,
    os::fd::RawFd,
};

use net::sys::shared_memory::SharedMemory;

#[allow(dead_code, unused_parens, reason = "build.rs writes all constants of the header")]
pub(crate) mod constants {
    include!(concat!(env!("OUT_DIR"), "/lobby.rs"));
}

/// The structure `Lobby` of C. There are only references to it, made by [`View`].
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Lobby {
    contents: [u8; 0],
    marker: PhantomData<*mut u8>,
}

// SAFETY: these are the declarations of `lobby.h`; an enum of C without negative values is a `u32`. A
// function that is safe takes no pointer but references. A `Lobby` is open, and its file is mapped while
// it is borrowed. The functions keep no pointer.
unsafe extern "C" {
    safe fn lobby_view_size() -> usize;
    fn lobby_open_as_weir(
        lobby: *mut Lobby,
        memory: *mut c_void,
        backends: u32,
        places: u32,
    ) -> bool;
    fn lobby_use(lobby: *mut Lobby, set: c_int, base: c_int, file: c_int, blank: c_int);
    fn lobby_format(memory: *mut c_void, size: usize, backends: u32, places: u32) -> bool;
    fn lobby_write_login(
        lobby: &Lobby,
        place: u32,
        settings: *const c_void,
        settings_len: usize,
    ) -> bool;
    fn lobby_read_window(lobby: &Lobby, place: u32, from: u32, into: *mut c_void, len: u32)
    -> bool;
    fn lobby_leave_words(lobby: &Lobby, place: u32, body: *const c_void, len: usize);

    pub(crate) safe fn lobby_size(backends: u32, places: u32) -> usize;
    pub(crate) safe fn lobby_word(lobby: &Lobby, place: u32) -> u64;
    pub(crate) safe fn lobby_state_of(word: u64) -> u32;
    pub(crate) safe fn lobby_owner_of(word: u64) -> u32;
    pub(crate) safe fn lobby_generation_of(word: u64) -> u32;
    pub(crate) safe fn lobby_put(lobby: &Lobby, place: u32, socket: c_int) -> bool;
    pub(crate) safe fn lobby_clear(lobby: &Lobby, place: u32);
    pub(crate) safe fn lobby_clear_line(lobby: &Lobby, backend: u32);
    pub(crate) safe fn lobby_use_lines(lobby: &Lobby, lines: u32);
    pub(crate) safe fn lobby_set_gives_up(lobby: &Lobby, gives_up: bool);
    pub(crate) safe fn lobby_take(lobby: &Lobby, place: u32, told: u64, process: u32) -> u32;
    pub(crate) safe fn lobby_has_room_for(settings_len: usize) -> bool;
    pub(crate) safe fn lobby_untake(lobby: &Lobby, place: u32) -> bool;
    pub(crate) safe fn lobby_admit(lobby: &Lobby, place: u32) -> bool;
    pub(crate) safe fn lobby_vacate(lobby: &Lobby, place: u32, parting: u32) -> bool;
    pub(crate) safe fn lobby_recall(lobby: &Lobby, place: u32) -> u32;
    pub(crate) safe fn lobby_acknowledge(
        lobby: &Lobby,
        place: u32,
        backend: u32,
        generation: u32,
    ) -> bool;
    pub(crate) safe fn lobby_is_owner(
        lobby: &Lobby,
        place: u32,
        backend: u32,
        generation: u32,
    ) -> bool;
    pub(crate) safe fn lobby_reclaim(lobby: &Lobby, backend: u32, place: u32) -> u32;
    pub(crate) safe fn lobby_arm_again(lobby: &Lobby, backend: u32);
    pub(crate) safe fn lobby_call(lobby: &Lobby, backend: u32);
    pub(crate) safe fn lobby_leaver(lobby: &Lobby, place: u32, backend: &mut u32) -> bool;
    pub(crate) safe fn lobby_lengths(
        lobby: &Lobby,
        place: u32,
        state: &mut u32,
        channels: &mut u32,
    );
    pub(crate) safe fn lobby_leave(lobby: &Lobby, backend: u32);
    pub(crate) safe fn lobby_arm_anew(lobby: &Lobby, place: u32);
    pub(crate) safe fn lobby_free(lobby: &Lobby, place: u32, has_number: bool);
    pub(crate) safe fn lobby_strand(lobby: &Lobby, place: u32) -> bool;
    pub(crate) safe fn lobby_activity(lobby: &Lobby, backend: u32) -> u32;
    pub(crate) safe fn lobby_lingers(lobby: &Lobby, backend: u32) -> bool;
    pub(crate) safe fn lobby_has_come(lobby: &Lobby, backend: u32) -> bool;
    pub(crate) safe fn lobby_is_too_large(lobby: &Lobby, backend: u32) -> bool;
    pub(crate) safe fn lobby_transaction(lobby: &Lobby, backend: u32) -> u64;
    pub(crate) safe fn lobby_sums(
        lobby: &Lobby,
        backend: u32,
        queries: &mut u64,
        query_us: &mut u64,
        transaction_us: &mut u64,
    );
    pub(crate) safe fn lobby_kept(lobby: &Lobby, all: &mut u32, keeping: &mut u32, large: &mut u32);
    pub(crate) safe fn lobby_serving(
        lobby: &Lobby,
        place: u32,
        backend: &mut u32,
        transaction: &mut u64,
        is_pinned_idle: &mut bool,
    ) -> bool;
    pub(crate) safe fn lobby_is_idle(lobby: &Lobby, place: u32) -> bool;
    pub(crate) safe fn lobby_times(
        lobby: &Lobby,
        place: u32,
        request_us: &mut u64,
        transaction_us: &mut u64,
    );
    pub(crate) safe fn lobby_transactions(lobby: &Lobby, place: u32) -> u64;
    pub(crate) safe fn lobby_order(lobby: &Lobby, backend: u32, order: u32, transaction: u64);
    pub(crate) safe fn lobby_answer(lobby: &Lobby, backend: u32, since_us: &mut u64) -> u32;
}

/// The file of a lobby as this process sees it.
#[derive(Debug)]
pub(crate) struct View {
    memory: SharedMemory,
    /// A `Lobby`.
    lobby: Box<[u64]>,
}

impl View {
    /// Writes a header into a file of zeros, and opens it. Returns `None` if the file has another size
    /// than `lobby_size(backends, places)`.
    pub(crate) fn format(memory: SharedMemory, backends: u32, places: u32) -> Option<Self> {
        let (start, size) = (memory.start().as_ptr().cast(), memory.size());
        // SAFETY: so many bytes are mapped. No other process has this file yet.
        let is_done = unsafe { lobby_format(start, size, backends, places) };
        is_done.then(|| Self::open(memory, backends, places))?
    }

    /// Opens a file. Returns `None` if it is no lobby of this layout, or of other counts.
    pub(crate) fn open(memory: SharedMemory, backends: u32, places: u32) -> Option<Self> {
        if memory.size() != lobby_size(backends, places) {
            return None;
        }
        let mut lobby =
            vec![0_u64; lobby_view_size().div_ceil(size_of::<u64>())].into_boxed_slice();
        let start = memory.start().as_ptr().cast();
        // SAFETY: the structure has room and is aligned. The file is mapped and has the size that
        // belongs to these counts.
        let is_open =
            unsafe { lobby_open_as_weir(lobby.as_mut_ptr().cast(), start, backends, places) };
        is_open.then_some(Self { memory, lobby })
    }

    /// Sets the descriptors of this process: those of the set, of the first place, and of the file for
    /// a place without a client.
    pub(crate) fn use_descriptors(&mut self, set: RawFd, base: RawFd, blank: RawFd) {
        let file = std::os::fd::AsRawFd::as_raw_fd(self.memory.file());
        // SAFETY: the structure is open and borrowed by nobody else.
        unsafe { lobby_use(self.lobby.as_mut_ptr().cast(), set, base, file, blank) }
    }

    pub(crate) fn memory(&self) -> &SharedMemory {
        &self.memory
    }
}

impl Deref for View {
    type Target = Lobby;

    fn deref(&self) -> &Lobby {
        // SAFETY: the structure is open. Its file is mapped as long as this view lives.
        unsafe { &*self.lobby.as_ptr().cast() }
    }
}

impl Lobby {
    pub(crate) fn write_login(&self, place: u32, settings: &[u8]) -> bool {
        // SAFETY: the slice has so many bytes, which are only read.
        unsafe { lobby_write_login(self, place, settings.as_ptr().cast(), settings.len()) }
    }

    /// Returns a copy of `len` bytes of a window; none if they are not in its state.
    pub(crate) fn read_window(&self, place: u32, from: u32, len: u32) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        // SAFETY: the vector has room for so many bytes.
        match unsafe { lobby_read_window(self, place, from, bytes.as_mut_ptr().cast(), len) } {
            true => bytes,
            false => Vec::new(),
        }
    }

    pub(crate) fn leave_words(&self, place: u32, body: &[u8]) {
        // SAFETY: the slice has so many bytes, which are only read.
        unsafe { lobby_leave_words(self, place, body.as_ptr().cast(), body.len()) }
    }
}

/// The other side, for tests.
#[cfg(test)]
pub(crate) mod backend {
    use super::Lobby;

    // SAFETY: these are the declarations of `backend.c` and `lobby.h`. The tests use lines that exist.
    unsafe extern "C" {
        pub(crate) safe fn backend_serve(lobby: &Lobby, me: u32, place: u32, transaction: u64);
        pub(crate) safe fn backend_act(lobby: &Lobby, me: u32, activity: u32);
        pub(crate) safe fn backend_answer(lobby: &Lobby, me: u32, doing: u32, since_us: u64);
        pub(crate) safe fn backend_read(lobby: &Lobby, me: u32, order: u32) -> u64;
        pub(crate) safe fn lobby_enter(lobby: &Lobby, me: u32, process: u32, latch: u32);
        pub(crate) safe fn lobby_claim(
            lobby: &Lobby,
            me: u32,
            event: u64,
            place: &mut u32,
            generation: &mut u32,
        ) -> u32;
        pub(crate) safe fn lobby_return(lobby: &Lobby, me: u32, place: u32, generation: u32)
        -> u32;
        safe fn lobby_words(lobby: &Lobby, place: u32) -> *const u32;
    }

    /// Returns the length of the last words of a place.
    pub(crate) fn words_len(lobby: &Lobby, place: u32) -> u32 {
        // SAFETY: the place exists. The words begin with their length.
        unsafe { lobby_words(lobby, place).read_volatile() }
    }
}
