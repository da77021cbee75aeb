//! The clients and the servers of one worker, by their ids.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

use slab::Slab;

use super::pools::Pools;
use crate::admission::pool::Parked;
use crate::client::Client;
use crate::context::Context;
use crate::ids::{ClientId, PoolId, ServerId, Waiter};
use crate::notify::listen::{Channels, waits_to_pass};
use crate::operator::standing::Standing;
use crate::server::Server;
use crate::shell::{Exchange, Io};

pub(crate) type Clients = Table<ClientId, Client>;
pub(crate) type Servers = Table<ServerId, Box<Server>>;

/// Connections by id. An id is a slot, which a later connection gets again.
#[derive(Debug)]
pub(crate) struct Table<I, T> {
    slots: Slab<T>,
    ids: PhantomData<I>,
}

/// The number of a slot.
pub(crate) trait Id: Copy {
    fn new(slot: usize) -> Self;
    fn slot(self) -> usize;
}

impl Id for ClientId {
    #[inline(always)]
    fn new(slot: usize) -> Self {
        Self(slot as u32)
    }

    #[inline(always)]
    fn slot(self) -> usize {
        self.0 as usize
    }
}

impl Id for ServerId {
    #[inline(always)]
    fn new(slot: usize) -> Self {
        Self(slot as u32)
    }

    #[inline(always)]
    fn slot(self) -> usize {
        self.0 as usize
    }
}

impl<I, T> Default for Table<I, T> {
    fn default() -> Self {
        Self { slots: Slab::new(), ids: PhantomData }
    }
}

impl<I: Id, T> Table<I, T> {
    #[inline(always)]
    pub(crate) fn get(&self, id: I) -> Option<&T> {
        self.slots.get(id.slot())
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.slots.get_mut(id.slot())
    }

    #[inline(always)]
    pub(crate) fn contains(&self, id: I) -> bool {
        self.slots.contains(id.slot())
    }

    #[inline]
    pub(crate) fn insert(&mut self, connection: T) -> I {
        I::new(self.slots.insert(connection))
    }

    /// Panics if the table has no connection with this id.
    #[inline]
    #[track_caller]
    pub(crate) fn remove(&mut self, id: I) -> T {
        self.slots.remove(id.slot())
    }

    /// Is there no id for another connection?
    pub(crate) fn is_full(&self) -> bool {
        u32::try_from(self.slots.vacant_key()).is_err()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of slots that have memory and no connection.
    pub(crate) fn free_slots(&self) -> usize {
        self.slots.capacity() - self.slots.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.slots.iter().map(|(slot, connection)| (I::new(slot), connection))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (I, &mut T)> {
        self.slots.iter_mut().map(|(slot, connection)| (I::new(slot), connection))
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = I> {
        self.iter().map(|(id, _)| id)
    }

    pub(crate) fn ids_where(&self, test: impl Fn(&T) -> bool) -> Vec<I> {
        self.iter().filter(|(_, connection)| test(connection)).map(|(id, _)| id).collect()
    }
}

impl Clients {
    /// Does this waiter's client still wait, with the same ticket?
    pub(crate) fn waits(&self, waiter: Waiter, pool: PoolId) -> bool {
        let found = self.get(waiter.client);
        found.is_some_and(|client| client.waits_as(waiter, pool))
    }

    /// Returns a client's channels. Its server is in `servers`.
    pub(super) fn channels<'a, X>(
        &'a mut self,
        id: ClientId,
        servers: &'a mut Servers,
        context: &'a mut Context,
        exchange: &'a mut X,
    ) -> Channels<'a, X> {
        let client = &mut self[id];
        let server = client.server.map(|on| (on, &mut *servers[on]));
        Channels { id, client, server, context, exchange }
    }
}

impl Servers {
    /// Does this server exist, without a client?
    pub(crate) fn is_free(&self, id: ServerId, serial: u64) -> bool {
        let found = self.get(id);
        found.is_some_and(|found| found.serial == serial && found.client.is_none())
    }

    /// Adds a server that comes from its pool or from another worker.
    pub(super) fn attach<X: Exchange>(
        &mut self,
        Parked { server, transport }: Parked<X::Transport>,
        pools: &mut Pools<X>,
        io: &mut impl Io<X>,
    ) -> ServerId {
        pools.view(server.pool);
        let id = self.insert(server);
        io.attach_server(id, transport);
        id
    }

    /// Returns the server with this id, if it still is the one with this serial number.
    pub(super) fn with_serial(&mut self, id: ServerId, serial: u64) -> Option<&mut Server> {
        self.get_mut(id).filter(|found| found.serial == serial).map(|server| &mut **server)
    }

    /// Returns the servers of a pool. Logins for one client alone are left out, because they belong
    /// to the client.
    pub(super) fn standings(&self, pool: PoolId) -> Vec<(ServerId, Standing)> {
        let own = self.iter().filter(|(_, server)| server.pool == pool);
        own.filter_map(|(id, server)| Some((id, Standing::of(server)?))).collect()
    }

    /// Returns the servers of a pool that are logged in.
    pub(super) fn logged_in(&self, pool: PoolId) -> Vec<ServerId> {
        let is_open = |server: &Server| Standing::of(server) == Some(Standing::LoggedIn);
        self.ids_where(|server| server.pool == pool && is_open(server))
    }

    /// Returns the servers that their clients keep only because they listen.
    pub(super) fn kept_to_listen(&self) -> Vec<(ClientId, ServerId)> {
        let kept = self.iter().filter(|(_, server)| waits_to_pass(server));
        kept.filter_map(|(on, server)| Some(((*server.client)?, on))).collect()
    }

    /// Nothing has happened to a server since it was chosen for a waiting client. Only the rest of one
    /// event has run since then. That closes servers with a client, in a login, with an overdue reply
    /// or in the pool. This one is none of these. KILL closes all, but empties the queue first.
    pub(crate) fn assert_free(&self, id: ServerId, serial: u64) {
        debug_assert!(self.is_free(id, serial), "the server has changed hands");
    }
}

impl<I: Id, T> Index<I> for Table<I, T> {
    type Output = T;

    #[inline(always)]
    #[track_caller]
    fn index(&self, id: I) -> &T {
        &self.slots[id.slot()]
    }
}

impl<I: Id, T> IndexMut<I> for Table<I, T> {
    #[inline(always)]
    #[track_caller]
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.slots[id.slot()]
    }
}
