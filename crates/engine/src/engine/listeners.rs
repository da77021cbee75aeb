//! Carries out what the machines of `notify` find: for a client that listens, and for a pool's
//! listener.

use crate::admission::pool::Pool;
use crate::engine::Engine;
use crate::ids::{ClientId, PoolId, ServerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::preparation::Readable;
use crate::notify::connection::{Answered, Tend, unfit_to_listen};
use crate::notify::listen::{Channels, Handed, Passing, Unread, waits_to_pass};
use crate::server::{Server, ServerPurpose};
use crate::shell::{Exchange, Io};
use crate::vars::Welcome;

impl<X: Exchange> Engine<X> {
    /// Returns a client's channels.
    pub(crate) fn channels(&mut self, id: ClientId) -> Channels<'_, X> {
        let Self { context, clients, servers, pools, .. } = self;
        clients.channels(id, servers, context, &mut pools.exchange)
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

    /// Closes listeners that are unused, and continues the others; called at each tick.
    pub(super) fn tend_listeners(&mut self, io: &mut impl Io<X>) {
        let now = io.now();
        for pool in self.listeners.pools() {
            match self.listeners.surplus(&mut self.pools.one(pool), now) {
                Some((server, why)) => self.lose_server(server, why, io),
                None => self.tend_listener(pool, io),
            }
        }
    }

    /// Closes listeners after an operator's order: those with an outdated address, and those whose
    /// pool is paused or closed. Their clients ask again.
    pub(super) fn review_listeners(&mut self, io: &mut impl Io<X>) {
        for id in self.listeners.pools() {
            if self.pools.exchange.pool(id, |pool| pool.keeps_listener()) {
                self.tend_listener(id, io);
            }
            let Some(server) = self.listeners.server(id) else { continue };
            let Server { epoch, doomed, .. } = *self.servers[server];
            let unfit = self.pools.exchange.pool(id, |pool| unfit_to_listen(pool, epoch));
            if let Some(why) = doomed.or(unfit) {
                self.lose_server(server, why, io);
            }
        }
    }

    /// Opens or continues a pool's listener.
    pub(super) fn tend_listener(&mut self, id: PoolId, io: &mut impl Io<X>) {
        if !self.listeners.contains(id) {
            return;
        }
        let server = self.listeners.server(id).map(|on| &mut *self.servers[on]);
        match self.listeners.tend(&mut self.pools.one(id), server, &mut self.context, io) {
            Tend::Nothing => {}
            Tend::Open => {
                self.open_listener(id, io);
                self.listeners.warn_deaf(&mut self.pools.one(id));
            }
        }
    }

    /// Opens a listener with a free seat, or that of an idle server.
    fn open_listener(&mut self, id: PoolId, io: &mut impl Io<X>) {
        let now = io.now();
        let claim = self.pools.view(id).claim(id);
        if !self.pools.exchange.pool(id, Pool::reserve_listener) {
            // There is no room now; the next tick tries again, as for a seat.
            return;
        }
        let has_seat = loop {
            match self.pools.exchange.limits(|limits| limits.listener_seat(&claim, now)) {
                Ok(()) => break true,
                Err(Some(lack)) if self.evict(&lack, io) => {}
                Err(_) => break false,
            }
        };
        self.listeners.open(has_seat, &mut self.pools.one(id));
        if has_seat {
            self.connect_server(id, Some(ServerPurpose::Listen), io);
        }
    }

    /// Completes the listener's login. `rest` followed it.
    pub(crate) fn listener_opened(
        &mut self,
        on: ServerId,
        welcome: Welcome,
        rest: &[u8],
        io: &mut impl Io<X>,
    ) {
        let server = &mut *self.servers[on];
        let id = server.pool;
        let pool = &mut self.pools.one(id);
        let opened = self.listeners.opened(on, server, welcome, pool, io);
        if opened.opens_another {
            self.open_server(id, io);
        }
        if let Some(why) = opened.unfit {
            return self.lose_server(on, why, io);
        }
        self.tend_listener(id, io);
        if !rest.is_empty() {
            self.reply_bytes(on, rest, io);
        }
    }

    /// Continues after the listener's replies to LISTEN and UNLISTEN.
    pub(crate) fn listener_answered(&mut self, on: ServerId, io: &mut impl Io<X>) {
        let server = &mut *self.servers[on];
        let id = server.pool;
        match self.listeners.answered(server, &mut self.pools.one(id)) {
            Answered::Obeyed => self.tend_listener(id, io),
            Answered::Refused => {
                self.lose_server(on, CloseReason::ListenRefused, io);
                self.listeners.pause(id, io.now());
            }
            Answered::ReadAll => self.lose_server(on, CloseReason::PrimaryLost, io),
        }
    }
}
