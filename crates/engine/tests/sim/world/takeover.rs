//! An online restart during a run. A new process gets the records of all clients and servers and
//! goes on with them. The sockets stay the same.
//!
//! An idle connection is no longer read until all connections are idle. If that takes too long, the
//! restart is given up. In the simulator, only listeners and servers that are being opened stay
//! with the old process, and end with it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use engine::ids::WorkerId;
use engine::pool::Gate;
use engine::records::{HandoverState, PoolRecord, WorkerRecords};
use engine::{Engine, Exported, ImportTables, Imported};

use super::World;
use super::links::Links;
use super::order::Queues;
use crate::exchange::{SimExchange, Transport};
use crate::net::Place;

/// Simulated time after which the restart is given up.
const PATIENCE: u64 = 5_000_000;
pub(super) const TAKEOVERS_MAX: usize = 2;

/// The sockets of one record.
type Ends = (Option<usize>, Option<usize>);

impl World {
    pub(super) fn begin_takeover(&mut self) {
        self.takeovers += 1;
        self.taking_over = Some(self.net.now);
    }

    /// A restart is pending. Can it happen now?
    pub(super) fn may_take_over(&mut self) -> bool {
        let Some(begun) = self.taking_over else { return false };
        if self.draining.is_some() || self.net.now > begun + PATIENCE {
            self.taking_over = None;
            return false;
        }
        self.orders.iter().all(std::collections::VecDeque::is_empty)
            && self.shared.borrow().mail.iter().all(std::collections::VecDeque::is_empty)
            && self.net.cancels.iter().all(|cancel| cancel.finished)
            && self.engines.iter().all(|engine| {
                engine.look().client_ids().all(|id| engine.look().may_move(id))
                    && engine.look().has_come_to_rest(|_, _| false)
            })
    }

    pub(super) fn take_over(&mut self) {
        self.net.log(|| "another process takes over".to_owned());
        self.taking_over = None;
        self.summary.takeovers += 1;
        let names = self.engines[0].look().tracked_names().all().to_vec();
        let pools = {
            let shared = &mut *self.shared.borrow_mut();
            shared.pools.iter_mut().for_each(|pool| pool.set_gate(Gate::Held));
            shared.pools.iter().map(|pool| Some(PoolRecord::of(pool))).collect()
        };
        let mut ends: Vec<Vec<Ends>> = Vec::new();
        let (mut worker_records, mut all_exported) = (Vec::new(), Vec::new());
        for worker in 0..self.engines.len() {
            let mut parked = Vec::new();
            let takes = |at: &Transport| {
                parked.push(*at);
                true
            };
            let (records, exported) = self.engines[worker].restart().export(|_, _| false, takes);
            ends.push(self.ends(worker, &exported, &parked));
            worker_records.push(records);
            all_exported.push(exported);
        }
        let (statements, connections) = self.shared.borrow().numbering();
        let (seed, now, disabled) = ([5; 32], self.net.now, Vec::new());
        let handover_state = HandoverState {
            now,
            seed,
            names,
            statements,
            connections,
            pools,
            disabled,
            primaries: Vec::new(),
            memberships: Vec::new(),
            clusters: Vec::new(),
            addresses: Vec::new(),
            managed_sockets: false,
            deaths: 0,
            worker_records,
            lobbies: Vec::new(),
            passwords: Vec::new(),
            detached: Vec::new(),
        };
        let bytes = handover_state.to_bytes().expect("plain data");
        for (engine, exported) in self.engines.iter_mut().zip(all_exported) {
            engine.restart().cede(exported, now);
        }
        let kept = ends.iter().flatten().filter_map(|(_, server)| *server).collect::<Vec<_>>();
        self.end_all_but(&kept);
        self.begin_anew(HandoverState::from_bytes(&bytes).expect("what was written"), ends);
    }

    /// The sockets of what that worker has exported.
    fn ends(&self, worker: usize, exported: &Exported, parked: &[Transport]) -> Vec<Ends> {
        let (clients, servers) = (&self.net.client_slots[worker], &self.net.server_slots[worker]);
        let of_clients = exported.clients.iter().map(|client| {
            let server = client.server.and_then(|on| servers.get(&on.0));
            (clients.get(&client.id.0).copied(), server.copied())
        });
        let parked = parked.iter().map(|at| (None, Some(*at)));
        of_clients.chain(parked).collect()
    }

    /// Connections that are not handed over end with the process.
    fn end_all_but(&mut self, kept: &[usize]) {
        if let Some(server) = self.net.servers.first() {
            server.backend.schema.forget_begun();
        }
        self.setup.bus.count_loss();
        for (at, server) in self.net.servers.iter_mut().enumerate() {
            if !kept.contains(&at) && server.place != Place::Closed {
                server.place = Place::Closed;
                server.connecting = false;
                server.pending.clear();
                server.up.ended = true;
                server.down.broken = true;
            }
        }
        self.net.client_slots.iter_mut().for_each(HashMap::clear);
        self.net.server_slots.iter_mut().for_each(HashMap::clear);
        // A login under way ends with its process.
        self.net.passwords.clear();
        self.net.without_socket.clear();
    }

    fn begin_anew(&mut self, handover_state: HandoverState, ends: Vec<Vec<Ends>>) {
        let count = self.engines.len();
        let shared = self
            .shared
            .borrow_mut()
            .successor(handover_state.statements, handover_state.connections);
        self.shared = Rc::new(RefCell::new(shared));
        (self.queues, self.links) = (Queues::default(), Links::default());
        let config = Arc::new(self.setup.config.clone());
        let engine = |at| {
            let exchange = SimExchange(self.shared.clone());
            Engine::new(WorkerId(at as u16), config.clone(), exchange, handover_state.seed)
        };
        self.engines = (0..count).map(engine).collect();
        let mut tables =
            ImportTables::new(&handover_state.names, self.engines[0].look().tracked_names());
        self.engines[0].restart().import_pools(handover_state.pools, &mut tables);
        let mut imported: Vec<_> = (0..count).map(|_| Imported::default()).collect();
        for (records, ends) in handover_state.worker_records.into_iter().zip(ends) {
            self.engines
                .iter_mut()
                .for_each(|engine| engine.restart().expect_records(&records, &tables));
            let restored = self.shared.borrow_mut().restore(&records);
            tables.open(&records, restored);
            self.import(records, ends, &tables, &mut imported);
        }
        for (worker, imported) in imported.into_iter().enumerate() {
            let (engine, mut io) = self.engine(worker);
            engine.begin_imported(imported, &mut io);
        }
    }

    fn import(
        &mut self,
        records: WorkerRecords,
        ends: Vec<Ends>,
        tables: &ImportTables,
        imported: &mut [Imported],
    ) {
        let mut ends = ends.into_iter();
        for record in records.clients {
            let worker = self.rng.below(self.engines.len());
            let (id, on) = self.engines[worker].restart().import_client(record, tables);
            imported[worker].clients.push(id);
            let (client, server) = ends.next().expect("its sockets");
            let client = client.expect("a client's");
            let socket = &mut self.net.clients[client];
            (socket.worker, socket.slot) = (worker, Some(id));
            (socket.latch, socket.blocked) = (true, false);
            self.net.client_slots[worker].insert(id.0, client);
            if let (Some(at), Some(on)) = (server, on) {
                self.put(at, worker, on);
            }
        }
        for record in records.parked {
            let worker = self.rng.below(self.engines.len());
            let on =
                self.engines[worker].restart().import_parked(record, tables).expect("its pool");
            imported[worker].parked.push(on);
            let at = ends.next().and_then(|(_, server)| server).expect("its socket");
            self.put(at, worker, on);
        }
    }

    fn put(&mut self, at: usize, worker: usize, on: engine::ids::ServerId) {
        self.net.servers[at].place = Place::Table(worker, on);
        self.net.servers[at].latch = true;
        self.net.server_slots[worker].insert(on.0, at);
    }
}
