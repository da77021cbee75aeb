//! Listening for clients by a connection of the pool's. The rules are in the folder `notify`.

use crate::engine::Engine;
use crate::ids::{ClientId, ServerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::preparation::Readable;
use crate::notify::listen::{Channels, Handed, Passing, Unread, waits_to_pass};
use crate::shell::{Exchange, Io};

impl<X: Exchange> Engine<X> {
    /// Returns a client's channels.
    pub(crate) fn channels(&mut self, id: ClientId) -> Channels<'_, X> {
        let client = &mut self.clients[id];
        let server = client.server.map(|on| (on, &mut *self.servers[on]));
        let (context, exchange) = (&mut self.context, &mut self.pools.exchange);
        Channels { id, client, server, context, exchange }
    }

    /// Has the channels of each of these clients do `hear`. The clients are given with their serial
    /// numbers.
    pub(super) fn tell_each<I: Io<X>>(
        &mut self,
        to: &[(ClientId, u64)],
        mut hear: impl FnMut(&mut Channels<'_, X>, &mut I) -> Result<(), Unread>,
        io: &mut I,
    ) {
        for &(id, serial) in to {
            if self.clients.get(id).is_some_and(|client| client.serial == serial)
                && let Err(Unread) = hear(&mut self.channels(id), io)
            {
                self.disconnect(id, Unread::WHY, io);
            }
        }
    }

    /// Sends the kept messages to a client, if that is allowed now.
    pub(crate) fn tell_untold(&mut self, id: ClientId, io: &mut impl Io<X>) {
        if let Err(Unread) = self.channels(id).tell_untold(io) {
            self.disconnect(id, Unread::WHY, io);
        }
    }

    /// Continues after the server of a client was told to send the mark.
    pub(crate) fn handed_over(
        &mut self,
        id: ClientId,
        on: ServerId,
        io: &mut impl Io<X>,
    ) -> Readable {
        match self.channels(id).handed_over(io) {
            Ok(Handed::Nothing) => return Readable::Now,
            Ok(Handed::Again) => return self.prepare(id, on, io),
            Ok(Handed::Over) => self.unlink(id, on, io),
            Err(Unread) => self.disconnect(id, Unread::WHY, io),
        }
        Readable::NotYet
    }

    /// Begins the take-overs that had to wait.
    pub(super) fn pass_channels(&mut self, io: &mut impl Io<X>) {
        let kept = self.servers.iter().filter(|(_, server)| waits_to_pass(server));
        let kept: Vec<_> = kept.filter_map(|(on, server)| Some((server.client?, on))).collect();
        for (id, on) in kept {
            match self.channels(id).pass_late(io) {
                Passing::Begun | Passing::Waits => {}
                Passing::Paused => self.keep_client(id, on, CloseReason::Paused, io),
            }
        }
    }
}
