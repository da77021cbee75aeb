//! SUSPEND and RESUME of the lobbies. While they are suspended, Weir has all clients at rest, so no
//! backend reads them. A client that keeps a backend is not stopped: its backend waits for it alone.

use std::sync::atomic::Ordering;

use engine::{server::CloseReason, shell::Closing};
use room::Recall;

use super::Service;

impl Service {
    pub(super) fn suspend(&mut self) {
        self.is_suspended = true;
        for at in self.all() {
            let lobby = &mut self.lobbies[at];
            for place in lobby.guests.places() {
                // The others are returned at the ends of their transactions.
                if lobby.room.recall(place) == Recall::Taken {
                    lobby.guests.hold(place);
                }
            }
            self.wake_lingerers(at);
        }
        self.note_quiet();
    }

    /// Notes whether no transaction runs any more.
    pub(super) fn note_quiet(&self) {
        let is_quiet = self.lobbies.iter().all(|(_, lobby)| {
            let mut places = lobby.guests.places();
            places.all(|place| !lobby.room.is_owned(place) || lobby.room.is_pinned_idle(place))
        });
        self.shared.lobby.quiet.store(is_quiet, Ordering::Release);
    }

    /// Disconnects the clients whose transactions have not ended in time.
    pub(super) fn end_suspense(&mut self) {
        let why = CloseReason::SuspendTimeout;
        for at in self.all() {
            let (guests, around) = self.guests_of(at);
            for place in guests.places() {
                if around.room.is_owned(place) && !around.room.is_pinned_idle(place) {
                    let when = Closing::AtOnce;
                    guests.disconnect(place, why.cause(), why.text(), when, &around);
                }
            }
            self.interrupt_ordered(at);
        }
    }

    pub(super) fn resume(&mut self) {
        self.is_suspended = false;
        for at in self.all() {
            for place in self.lobbies[at].guests.take_held() {
                self.admit(at, place);
            }
        }
    }
}
