//! The layout of the file in memory, as `extension/lobby.h` defines it. The test compares the two.

pub(super) const MAGIC: u64 = 0x7962_6f4c_7269_6557;
pub(super) const LAYOUT: u32 = 10;
/// The value of SIGINT that announces an order.
pub(super) const SIGNAL: u32 = 0x5269_6557;
pub(super) const PAGE: usize = 4096;
/// Length of a place's line.
pub(super) const LINE: usize = 64;
pub(super) const BACKEND_LINE: usize = 128;
pub(super) const WINDOW: usize = 256 * 1024;
/// The end of a window: what a backend says to its client when it ends on Weir's order.
pub(super) const WORDS: usize = 1024;
/// The rest of a window: the client's state.
pub(super) const STATE: usize = WINDOW - WORDS;
pub(super) const BACKENDS_MAX: u32 = 1024;
pub(super) const PLACES_MAX: u32 = 128 * 1024;

/// Offsets in the header.
pub(super) mod header {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const LAYOUT: usize = 8;
    pub(crate) const BACKENDS: usize = 12;
    pub(crate) const PLACES: usize = 16;
    pub(crate) const WINDOW: usize = 20;
    pub(crate) const LINES: usize = 28;
    pub(crate) const GIVES_UP: usize = 36;
}

/// Offsets in a backend's line.
pub(super) mod backend {
    pub(crate) const PROCESS: usize = 0;
    pub(crate) const ACTIVITY: usize = 4;
    pub(crate) const PLACE: usize = 8;
    pub(crate) const TRANSACTION: usize = 16;
    pub(crate) const CANCEL: usize = 24;
    pub(crate) const END: usize = 32;
    pub(crate) const ASK: usize = 40;
    pub(crate) const CALLED: usize = 48;
    pub(crate) const TOO_LARGE: usize = 52;
    pub(crate) const ANSWER: usize = 56;
    pub(crate) const QUERIES: usize = 64;
    pub(crate) const QUERY_US: usize = 72;
    pub(crate) const TRANSACTION_US: usize = 80;
}

/// Offsets in a place's line.
pub(super) mod place {
    pub(crate) const WORD: usize = 0;
    pub(crate) const REQUEST_US: usize = 8;
    pub(crate) const TRANSACTION_US: usize = 16;
    pub(crate) const TRANSACTIONS: usize = 24;
    pub(crate) const TOLD: usize = 32;
    pub(crate) const WINDOW_LEN: usize = 40;
    pub(crate) const STRAY: usize = 44;
    pub(crate) const ASKS: usize = 48;
    pub(crate) const PROCESS: usize = 52;
    pub(crate) const LEAVER: usize = 56;
    pub(crate) const CHANNELS_LEN: usize = 60;
}

/// The lowest bits of an answer.
pub(super) mod doing {
    pub(crate) const AT_REST: u64 = 1;
    pub(crate) const RUNS: u64 = 2;
    pub(crate) const IDLES: u64 = 3;
}

/// The activities of a backend.
pub(super) mod activity {
    pub(crate) const ABSENT: u32 = 0;
    pub(crate) const SLEEPING: u32 = 2;
    pub(crate) const LINGERING: u32 = 3;
    /// Its client is pinned, and no transaction runs.
    pub(crate) const PINNED_IDLE: u32 = 4;
    /// It waits for its client, which may ask for a number.
    pub(crate) const HOLDING: u32 = 5;
}

/// The state of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    /// Weir has the client. With an owner, that backend has just returned it.
    Taken,
    /// At rest, and in the epoll set.
    Armed,
    /// A backend has the client.
    Owned,
}

/// A state word: state in bits 0 to 7, RECALL, the owner + 1 in bits 16 to 31, the generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) u64);

const RECALL: u64 = 1 << 8;

impl Word {
    pub(super) fn new(state: State, owner: Option<u32>, generation: u32) -> Self {
        let owner = owner.map_or(0, |line| u64::from(line) + 1);
        Self(state as u64 | owner << 16 | u64::from(generation) << 32)
    }

    /// Returns the state. One that does not exist counts as taken, which no backend touches.
    pub(super) fn state(self) -> State {
        match self.0 & 0xff {
            0 => State::Free,
            2 => State::Armed,
            3 => State::Owned,
            _ => State::Taken,
        }
    }

    pub(super) fn owner(self) -> Option<u32> {
        ((self.0 >> 16) as u16).checked_sub(1).map(u32::from)
    }

    pub(super) fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(super) fn recalled(self) -> Self {
        Self(self.0 | RECALL)
    }
}

fn lines_size(backends: u32, places: u32) -> usize {
    (backends as usize * BACKEND_LINE + places as usize * LINE).next_multiple_of(PAGE)
}

/// Returns the size of the file; `None` if there are too many or no backends or places.
pub(super) fn size(backends: u32, places: u32) -> Option<usize> {
    let fits = (1..=BACKENDS_MAX).contains(&backends) && (1..=PLACES_MAX).contains(&places);
    fits.then(|| PAGE + lines_size(backends, places) + places as usize * WINDOW)
}

pub(super) fn backend_line(line: u32) -> usize {
    PAGE + line as usize * BACKEND_LINE
}

pub(super) fn place_line(backends: u32, place: u32) -> usize {
    PAGE + backends as usize * BACKEND_LINE + place as usize * LINE
}

pub(super) fn window(backends: u32, places: u32, place: u32) -> usize {
    PAGE + lines_size(backends, places) + place as usize * WINDOW
}

#[cfg(test)]
mod tests {
    use std::{path::Path, process::Command};

    use super::*;

    const PROGRAM: &str = r#"
#include "lobby.h"
#include <stdio.h>
#define SHOW(value) printf("%llu\n", (unsigned long long) (value))
int main(void)
{
    SHOW(LOBBY_MAGIC); SHOW(LOBBY_LAYOUT); SHOW(LOBBY_SIGNAL); SHOW(LOBBY_LINE); SHOW(LOBBY_WINDOW);
    SHOW(LOBBY_BACKEND_LINE); SHOW(LOBBY_WORDS); SHOW(LOBBY_STATE);
    SHOW(LOBBY_BACKENDS_MAX); SHOW(LOBBY_PLACES_MAX);
    SHOW(offsetof(LobbyHeader, magic)); SHOW(offsetof(LobbyHeader, layout));
    SHOW(offsetof(LobbyHeader, backends)); SHOW(offsetof(LobbyHeader, places));
    SHOW(offsetof(LobbyHeader, window));
    SHOW(offsetof(LobbyHeader, lines)); SHOW(offsetof(LobbyHeader, gives_up));
    SHOW(offsetof(LobbyBackend, process));
    SHOW(offsetof(LobbyBackend, activity)); SHOW(offsetof(LobbyBackend, place));
    SHOW(offsetof(LobbyBackend, transaction)); SHOW(offsetof(LobbyBackend, cancel));
    SHOW(offsetof(LobbyBackend, end)); SHOW(offsetof(LobbyBackend, ask));
    SHOW(offsetof(LobbyBackend, called)); SHOW(offsetof(LobbyBackend, too_large));
    SHOW(offsetof(LobbyBackend, answer));
    SHOW(offsetof(LobbyBackend, queries)); SHOW(offsetof(LobbyBackend, query_us));
    SHOW(offsetof(LobbyBackend, transaction_us));
    SHOW(offsetof(LobbyPlace, word)); SHOW(offsetof(LobbyPlace, request_us));
    SHOW(offsetof(LobbyPlace, transaction_us)); SHOW(offsetof(LobbyPlace, transactions));
    SHOW(offsetof(LobbyPlace, told)); SHOW(offsetof(LobbyPlace, window_len));
    SHOW(offsetof(LobbyPlace, stray)); SHOW(offsetof(LobbyPlace, asks));
    SHOW(offsetof(LobbyPlace, process)); SHOW(offsetof(LobbyPlace, leaver));
    SHOW(offsetof(LobbyPlace, channels_len));
    SHOW(LOBBY_AT_REST); SHOW(LOBBY_RUNS); SHOW(LOBBY_IDLES);
    SHOW(LOBBY_ABSENT); SHOW(LOBBY_SLEEPING); SHOW(LOBBY_LINGERING);
    SHOW(LOBBY_PINNED_IDLE); SHOW(LOBBY_HOLDING);
    SHOW(LOBBY_FREE); SHOW(LOBBY_TAKEN); SHOW(LOBBY_ARMED); SHOW(LOBBY_OWNED);
    SHOW(lobby_size(3, 70)); SHOW(lobby_size(0, 1)); SHOW(lobby_size(1, 0));
    SHOW(lobby_size(LOBBY_BACKENDS_MAX + 1, 1)); SHOW(lobby_size(1, LOBBY_PLACES_MAX + 1));
    static unsigned char memory[4096];
    Lobby lobby = {.memory = memory, .backends = 3, .places = 70};
    SHOW((unsigned char *) lobby_backend(&lobby, 2) - memory);
    SHOW((unsigned char *) lobby_place(&lobby, 69) - memory);
    SHOW(lobby_window(&lobby, 69) - memory); SHOW(lobby_words(&lobby, 69) - memory);
    return 0;
}
"#;

    fn ours() -> Vec<u64> {
        let offsets = [
            header::MAGIC,
            header::LAYOUT,
            header::BACKENDS,
            header::PLACES,
            header::WINDOW,
            header::LINES,
            header::GIVES_UP,
            backend::PROCESS,
            backend::ACTIVITY,
            backend::PLACE,
            backend::TRANSACTION,
            backend::CANCEL,
            backend::END,
            backend::ASK,
            backend::CALLED,
            backend::TOO_LARGE,
            backend::ANSWER,
            backend::QUERIES,
            backend::QUERY_US,
            backend::TRANSACTION_US,
            place::WORD,
            place::REQUEST_US,
            place::TRANSACTION_US,
            place::TRANSACTIONS,
            place::TOLD,
            place::WINDOW_LEN,
            place::STRAY,
            place::ASKS,
            place::PROCESS,
            place::LEAVER,
            place::CHANNELS_LEN,
        ];
        let mut all = vec![MAGIC, LAYOUT.into(), SIGNAL.into(), LINE as u64, WINDOW as u64];
        all.extend([BACKEND_LINE, WORDS, STATE].map(|size| size as u64));
        all.extend([u64::from(BACKENDS_MAX), u64::from(PLACES_MAX)]);
        all.extend(offsets.map(|offset| offset as u64));
        all.extend([doing::AT_REST, doing::RUNS, doing::IDLES]);
        all.extend([activity::ABSENT, activity::SLEEPING, activity::LINGERING].map(u64::from));
        all.extend([activity::PINNED_IDLE, activity::HOLDING].map(u64::from));
        all.extend([State::Free, State::Taken, State::Armed, State::Owned].map(|it| it as u64));
        let sizes = [(3, 70), (0, 1), (1, 0), (BACKENDS_MAX + 1, 1), (1, PLACES_MAX + 1)];
        all.extend(sizes.map(|(backends, places)| size(backends, places).unwrap_or(0) as u64));
        let window = window(3, 70, 69);
        all.extend(
            [backend_line(2), place_line(3, 69), window, window + STATE].map(|at| at as u64),
        );
        all
    }

    #[test]
    fn it_is_the_layout_of_the_library() {
        let extension = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../extension");
        let folder = std::env::temp_dir().join(format!("weir-layout-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (source, program) = (folder.join("layout.c"), folder.join("layout"));
        std::fs::write(&source, PROGRAM).unwrap();
        let built = Command::new("cc")
            .arg("-std=gnu11")
            .arg("-I")
            .arg(&extension)
            .args([&source, &extension.join("lobby.c")])
            .arg("-o")
            .arg(&program)
            .status()
            .unwrap();
        assert!(built.success(), "the program of the test cannot be compiled");
        let output = Command::new(&program).output().unwrap().stdout;
        std::fs::remove_dir_all(&folder).unwrap();
        let theirs: Vec<u64> =
            String::from_utf8(output).unwrap().lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(theirs, ours());
    }

    #[test]
    fn a_word_has_its_parts() {
        let word = Word::new(State::Owned, Some(7), 9);
        assert_eq!((word.state(), word.owner(), word.generation()), (State::Owned, Some(7), 9));
        assert_eq!(word.recalled().owner(), Some(7));
        assert_eq!(Word::new(State::Armed, None, 1).owner(), None);
        assert_eq!(Word(0xfe).state(), State::Taken);
    }
}
