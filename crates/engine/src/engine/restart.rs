//! An online restart: the clients and servers become records for another process ([`Restart::export`],
//! [`Restart::cede`]), and records become clients and servers (`import.rs`). Nothing is sent before
//! [`Engine::begin_imported`], since until then the other process may still own them.

use super::Engine;
use super::pools::Pools;
use super::tables::{Clients, Servers};
use super::work::{self, Work};
use crate::admission::pool::Parked;
use crate::cancel::keys::Keys;
use crate::client::{Client, ClientPhase};
use crate::context::Context;
use crate::handover::export::{Ceded, Exported, ExportedClient, RecordWriter};
use crate::handover::import::Imported;
use crate::handover::records::WorkerRecords;
use crate::ids::{ClientId, Micros, PoolId, ServerId};
use crate::lifecycle::attend;
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::preparation::Readable;
use crate::notify::listen::{Unread, end_listening};
use crate::operator::timings::Timings;
use crate::routing::Sessions;
use crate::server::ServerPhase;
use crate::session::text_history::CustomsRecord;
use crate::session::verdict::remember_setting_names;
use crate::shell::{Exchange, Io};

mod import;

/// The connections of one worker, which go to another process or come from one.
#[derive(Debug)]
pub struct Restart<'a, X> {
    context: &'a mut Context,
    clients: &'a mut Clients,
    servers: &'a mut Servers,
    pools: &'a mut Pools<X>,
    keys: &'a mut Keys,
    sessions: &'a mut Sessions,
    timings: &'a mut Option<Box<Timings>>,
    work: &'a mut work::Queue,
}

impl<X: Exchange> Engine<X> {
    pub fn restart(&mut self) -> Restart<'_, X> {
        let Self { context, clients, servers, pools, keys, sessions, work, .. } = self;
        let timings = &mut self.transactions.timings;
        Restart { context, clients, servers, pools, keys, sessions, timings, work }
    }

    /// Begins to serve what was imported. Servers without a client are parked, and waiting clients
    /// wait again. A client whose database is no longer configured is disconnected.
    pub fn begin_imported(&mut self, imported: Imported, io: &mut impl Io<X>) {
        let Imported { mut clients, parked, attending } = imported;
        let now = io.clock();
        for id in clients.iter().copied() {
            if let Some(client) = self.clients.get(id)
                && let Some(view) = client.pool.id().and_then(|pool| self.pools.views.get(pool))
            {
                self.sessions.suppose_write((id, client.serial), &view.settings, now);
            }
        }
        for id in parked {
            self.place(id, io);
        }
        for id in attending {
            if let Some(server) = self.servers.get_mut(id) {
                attend::begin(server, &mut self.pools.one(server.pool), io);
            }
        }
        self.finish(io);
        clients.retain(|id| self.clients.contains(*id));
        for id in clients.iter().copied() {
            if !self.clients[id].vars.channels.is_empty() {
                let told = self.channels(id).listen_again(io);
                if let Err(Unread) = told {
                    self.disconnect(id, Unread::WHY, io);
                }
            }
        }
        for id in clients.iter().copied() {
            let Some(client) = self.clients.get(id) else { continue };
            let is_preparing = matches!(*client.phase, ClientPhase::Preparing(_));
            if matches!(*client.phase, ClientPhase::Failed(_)) {
                if self.clients[id].has_request_to_route() {
                    self.work.push(Work::Route(id));
                }
            } else if let Some(on) = client.server.filter(|_| is_preparing)
                && self.prepare(id, on, io) == Readable::Now
            {
                // It has left its lobby with this server.
                self.go_on(id, io);
            }
        }
        let is_idle = |client: &Client| matches!(*client.phase, ClientPhase::Idle);
        clients.retain(|id| self.clients.get(*id).is_some_and(is_idle));
        // The client that has waited longest comes first again.
        clients.sort_by_key(|id| self.clients[*id].times.request_at());
        for id in clients {
            let Some(client) = self.clients.get(id) else { continue };
            let replicates = client.replication.is_some();
            let asks = replicates || !client.is_welcomed() || client.stream.holds_message();
            match client.pool.id() {
                None => self.disconnect(id, CloseReason::DatabaseRemoved, io),
                Some(_) => {
                    if asks && self.link(id, io) == Readable::Now {
                        self.go_on(id, io);
                    }
                }
            }
        }
        self.finish(io);
    }
}

/// The old process.
impl<X: Exchange> Restart<'_, X> {
    /// Writes the records of all clients that may move, except those that `stays` selects. It also
    /// writes the parked servers of this worker that `takes_parked` selects, which is called in the
    /// order of the records. Servers of direct pools are all written: the caller knows which of
    /// them another process can take.
    pub fn export(
        &mut self,
        stays: impl Fn(ClientId, Option<ServerId>) -> bool,
        mut takes_parked: impl FnMut(&X::Transport) -> bool,
    ) -> (WorkerRecords, Exported) {
        for (_, server) in self.servers.iter() {
            if let Some(view) = self.pools.views.get_mut(server.pool) {
                remember_setting_names(server, view);
            }
        }
        let mut writer = RecordWriter::default();
        let mut exported = Exported::default();
        for id in self.clients.ids_where(|_| true) {
            let client = &self.clients[id];
            let view = client.pool.id().and_then(|pool| self.pools.views.get(pool));
            let may_move = client.may_move(view, client.server.map(|on| &*self.servers[on]));
            if !may_move || stays(id, *client.server) {
                continue;
            }
            let mut record = writer.client(client);
            if let Some(on) = *client.server {
                let server = &*self.servers[on];
                let epoch = self.pools.exchange.pool(server.pool, |pool| pool.epoch());
                record.server = Some(writer.server(server, epoch, Some(client)));
            }
            writer.records.clients.push(record);
            let (serial, server) = (client.serial, *client.server);
            exported.clients.push(ExportedClient { id, serial, server });
        }
        let worker = self.context.worker;
        for id in self.pools.exchange.pool_ids() {
            self.pools.exchange.pool(id, |pool| {
                let epoch = pool.epoch();
                for Parked { server, transport } in pool.idle_at(worker) {
                    if takes_parked(transport) {
                        let record = writer.server(server, epoch, None);
                        writer.records.parked.push(record);
                        exported.parked.push((id, server.serial));
                    }
                }
            });
        }
        for (id, server) in self.servers.iter() {
            if let Some(record) = writer.attending(server, &mut self.pools.exchange) {
                exported.attending.push((id, record.serial));
                writer.records.attending.push(record);
            }
        }
        writer.records.serial = self.context.serial;
        let customs = self.pools.views.iter().map(|(id, view)| view.history.customs_record(id.0));
        let is_empty = |record: &CustomsRecord| {
            *record == CustomsRecord { pool: record.pool, ..CustomsRecord::default() }
        };
        writer.records.customs = customs.filter(|record| !is_empty(record)).collect();
        (writer.records, exported)
    }

    /// Writes the record of one server whose backend is in a lobby, or is about to come there.
    /// Returns `None` if it is gone, or has not logged in yet.
    pub fn export_attending(&mut self, id: ServerId, serial: u64) -> Option<WorkerRecords> {
        let server = self.servers.get(id).filter(|server| server.serial == serial)?;
        let mut writer = RecordWriter::default();
        let record = writer.attending(server, &mut self.pools.exchange)?;
        writer.records.attending.push(record);
        writer.records.serial = self.context.serial;
        Some(writer.records)
    }

    /// Forgets everything that was exported, without sending a message: another process owns it
    /// now. Returns the connections. Clients that have left meanwhile are omitted, since their
    /// slots may be in use again.
    pub fn cede(&mut self, exported: Exported, now: Micros) -> Ceded<X::Transport> {
        let Exported { mut clients, parked, mut attending } = exported;
        clients.retain_mut(|client| self.cede_client(client, now));
        let parked = parked.into_iter();
        let parked = parked.filter_map(|(pool, serial)| self.cede_parked(pool, serial, now));
        let parked = parked.collect();
        attending.retain(|(id, serial)| self.cede_attending(*id, *serial, now));
        let attending = attending.into_iter().map(|(id, _)| id).collect();
        Ceded { clients, parked, attending }
    }

    fn cede_client(&mut self, exported: &mut ExportedClient, now: Micros) -> bool {
        let ExportedClient { id, serial, .. } = *exported;
        if self.clients.get(id).is_none_or(|client| client.serial != serial) {
            return false;
        }
        let client = self.clients.remove(id);
        self.sessions.leave(id);
        exported.server = *client.server;
        self.keys.remove(client.key.number());
        end_listening(self.context.worker, id, &client, &mut self.pools.exchange);
        if client.pool.is_counted() {
            self.pools.exchange.limits(|limits| limits.client_left(&client.identity));
        }
        if let Some(pool) = client.pool.id() {
            let worker = self.context.worker;
            self.pools.exchange.pool(pool, |pool| {
                pool.clients -= 1;
                if let ClientPhase::Waiting(waiter) = &*client.phase {
                    pool.forget(worker, waiter.ticket);
                }
            });
        }
        if let Some(on) = *client.server {
            let server = self.servers.remove(on);
            self.pools.forget_server(&server, now);
        }
        true
    }

    fn cede_parked(&mut self, id: PoolId, serial: u64, now: Micros) -> Option<X::Transport> {
        let worker = self.context.worker;
        let is_it = |parked: &Parked<_>| parked.server.serial == serial;
        let parked = self.pools.exchange.pool(id, |pool| pool.take_parked(worker, is_it))?;
        self.pools.view(id);
        self.pools.forget_server(&parked.server, now);
        Some(parked.transport)
    }

    fn cede_attending(&mut self, id: ServerId, serial: u64, now: Micros) -> bool {
        if self.servers.get(id).is_none_or(|server| server.serial != serial) {
            return false;
        }
        let server = self.servers.remove(id);
        if let ServerPhase::Attending { came: true, .. } = *server.phase {
            self.pools.exchange.pool(server.pool, |pool| pool.attending_gone(server.epoch));
        }
        self.pools.forget_server(&server, now);
        true
    }
}
