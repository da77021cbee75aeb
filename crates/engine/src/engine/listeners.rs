//! LISTEN for many clients by one connection: does what follows from the machines of `notify`, for a
//! client that listens and for a pool's listener ([`PoolListeners`]).

use super::Engine;
use super::pools::Pools;
use super::tables::Servers;
use crate::admission::pool::Pool;
use crate::context::Context;
use crate::ids::{ClientId, PoolId, ServerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::notify::connection::{Answered, Listeners, Tend, unfit_to_listen};
use crate::notify::listen::{Channels, Unread};
use crate::notify::listener::{Subscriber, Subscription};
use crate::server::{Server, ServerPurpose};
use crate::shell::{Exchange, Io};
use crate::vars::Welcome;

/// The listeners of this worker's pools, and their servers.
#[derive(Debug)]
pub(crate) struct PoolListeners<'a, X> {
    context: &'a mut Context,
    servers: &'a mut Servers,
    pools: &'a mut Pools<X>,
    listeners: &'a mut Listeners,
}

/// The next step for a pool's listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum ListenerStep {
    Nothing,
    /// It is to be opened, with a free seat or that of an idle server.
    Open(PoolId),
    Close(ServerId, CloseReason<'static>),
    /// PostgreSQL has refused LISTEN: it is closed, and the next one is opened after a pause.
    Refused(ServerId, PoolId),
}

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

    pub(crate) fn pool_listeners(&mut self) -> PoolListeners<'_, X> {
        let Self { context, servers, pools, listeners, .. } = self;
        PoolListeners { context, servers, pools, listeners }
    }

    /// Does what follows for a pool's listener.
    pub(crate) fn follow_listener(&mut self, step: ListenerStep, io: &mut impl Io<X>) {
        match step {
            ListenerStep::Nothing => {}
            ListenerStep::Open(id) => {
                let now = io.now();
                let claim = self.pools.view(id).claim(id);
                // If there is no room now, the next tick tries again, as for a seat.
                if self.pools.exchange.pool(id, Pool::reserve_listener) {
                    let has_seat = loop {
                        match self.pools.exchange.limits(|limits| limits.listener_seat(&claim, now))
                        {
                            Ok(()) => break true,
                            Err(Some(lack)) if self.seats().evict(&lack, io) => {}
                            Err(_) => break false,
                        }
                    };
                    self.listeners.open(has_seat, &mut self.pools.one(id));
                    if has_seat {
                        self.connect_server(id, None, Some(ServerPurpose::Listen), io);
                    }
                }
                self.listeners.warn_deaf(&mut self.pools.one(id));
            }
            ListenerStep::Close(server, why) => self.lose_server(server, why, io),
            ListenerStep::Refused(server, id) => {
                self.lose_server(server, CloseReason::ListenRefused, io);
                self.listeners.pause(id, io.now());
            }
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
        let step = self.pool_listeners().tend(id, io);
        self.follow_listener(step, io);
        if !rest.is_empty() {
            self.reply_bytes(on, rest, io);
        }
    }
}

impl<X: Exchange> PoolListeners<'_, X> {
    /// Takes a client's request for channels.
    pub(crate) fn subscribe(
        &mut self,
        pool: PoolId,
        subscription: Subscription,
        io: &mut impl Io<X>,
    ) -> ListenerStep {
        self.listeners.subscribe(subscription, &mut self.pools.one(pool));
        self.tend(pool, io)
    }

    /// A client needs the channels no more.
    pub(crate) fn unsubscribe(
        &mut self,
        pool: PoolId,
        who: Subscriber,
        channels: &[Box<[u8]>],
        io: &mut impl Io<X>,
    ) -> ListenerStep {
        if !self.listeners.contains(pool) {
            return ListenerStep::Nothing;
        }
        self.listeners.unsubscribe(who, channels, &mut self.pools.one(pool));
        self.tend(pool, io)
    }

    /// Closes a listener that is unused, or continues; called at each tick.
    pub(crate) fn close_or_tend(&mut self, pool: PoolId, io: &mut impl Io<X>) -> ListenerStep {
        match self.listeners.surplus(&mut self.pools.one(pool), io.now()) {
            Some((server, why)) => ListenerStep::Close(server, why),
            None => self.tend(pool, io),
        }
    }

    /// Closes a listener after an operator's order: one with an outdated address, or one whose pool
    /// is paused or closed. Its clients ask again.
    pub(crate) fn review(&mut self, id: PoolId, io: &mut impl Io<X>) -> ListenerStep {
        let step = match self.pools.exchange.pool(id, |pool| pool.keeps_listener()) {
            true => self.tend(id, io),
            false => ListenerStep::Nothing,
        };
        let Some(server) = self.listeners.server(id) else { return step };
        let Server { epoch, doomed, .. } = *self.servers[server];
        let unfit = self.pools.exchange.pool(id, |pool| unfit_to_listen(pool, epoch));
        (*doomed).or(unfit).map_or(step, |why| ListenerStep::Close(server, why))
    }

    /// Opens or continues a pool's listener, if the pool has one.
    pub(crate) fn tend(&mut self, id: PoolId, io: &mut impl Io<X>) -> ListenerStep {
        let server = self.listeners.server(id).map(|on| &mut *self.servers[on]);
        match self.listeners.tend(&mut self.pools.one(id), server, self.context, io) {
            Tend::Nothing => ListenerStep::Nothing,
            Tend::Open => ListenerStep::Open(id),
        }
    }

    /// Continues after the listener's replies to LISTEN and UNLISTEN.
    pub(crate) fn answered(&mut self, on: ServerId, io: &mut impl Io<X>) -> ListenerStep {
        let server = &mut *self.servers[on];
        let id = server.pool;
        match self.listeners.answered(server, &mut self.pools.one(id)) {
            Answered::Obeyed => self.tend(id, io),
            Answered::Refused => ListenerStep::Refused(on, id),
            Answered::ReadAll => ListenerStep::Close(on, CloseReason::PrimaryLost),
        }
    }
}
