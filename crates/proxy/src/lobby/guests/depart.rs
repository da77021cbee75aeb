//! A client that leaves the lobby and stays connected.

use engine::shell::Guest;

use super::{Around, Guests};
use crate::{exchange::peer::Peer, lobby::held::Key};

impl Guests {
    /// Gives up a client that is Weir's. Its connection and its counts go on elsewhere.
    pub(in crate::lobby) fn let_go(
        &mut self,
        place: u32,
        around: &Around<'_>,
    ) -> Option<(Guest, Peer)> {
        let Around { room, shared, held, at, .. } = *around;
        let seated = self.seated.remove(&place)?;
        self.past += seated.stats(place, room);
        if self.by_key.get(&seated.guest.key) == Some(&place) {
            self.by_key.remove(&seated.guest.key);
        }
        if room.let_go(place) {
            self.put_back(place);
            // Not before: another process would not know that the place is to be vacated.
            held.remove(Key::Guest(at, place));
        }
        shared.lobby.guest_left();
        Some((seated.guest, seated.peer))
    }
}
