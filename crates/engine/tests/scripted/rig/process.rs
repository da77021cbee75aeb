//! An online restart: the engines and their shared data are new, and the sockets are the same.

use std::collections::HashMap;

use engine::ids::WorkerId;
use engine::pool::Gate;
use engine::records::{HandoverState, PoolRecord, WorkerRecords};
use engine::report::ServerState;
use engine::{Ceded, Engine, Exported, ImportTables, Imported};

use super::net::{Net, Place, Transport};
use super::shared::Shared;
use super::world::World;

/// The sockets of one record.
#[derive(Clone, Copy)]
struct Ends {
    client: Option<usize>,
    server: Option<usize>,
}

impl World {
    pub(crate) fn hand_over(&mut self) {
        let names = self.engines[0].look().tracked_names().all().to_vec();
        self.shared
            .state(|state| state.pools.iter_mut().for_each(|pool| pool.set_gate(Gate::Held)));
        let pools = self
            .shared
            .state(|state| state.pools.iter().map(|pool| Some(PoolRecord::of(pool))).collect());
        let mut parked = vec![Vec::new(); self.engines.len()];
        let (worker_records, exported) =
            self.export(|worker, transport| parked[worker].push(transport));
        let all = exported.iter().zip(&parked).enumerate();
        let ends: Vec<_> =
            all.map(|(at, (clients, parked))| ends(&self.net, at, clients, parked)).collect();
        let disabled = Vec::new();
        let statements = self.shared.state(|state| state.interner.numbering());
        let connections = self.shared.state(|state| state.connections);
        let handover_state = HandoverState {
            now: self.net.now,
            seed: [7; 32],
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
        self.cede(exported);
        for engine in &self.engines {
            assert_eq!((engine.look().client_count(), engine.look().busy_servers()), (0, 0));
        }
        let listeners = self.end_listeners();
        self.shared.state(|state| {
            assert!(state.pools.iter().all(|pool| pool.clients == 0));
            let counted = state.pools.iter().map(|pool| pool.counts().0);
            assert_eq!(counted.sum::<u32>(), listeners);
            assert_eq!((state.limits.clients(), state.limits.servers()), (0, listeners));
        });
        self.begin_anew(HandoverState::from_bytes(&bytes).expect("what was written"), ends);
    }

    /// Exports one record per worker. `tell` gets the worker and the connection of each parked
    /// server.
    pub(crate) fn export(
        &mut self,
        mut tell: impl FnMut(usize, Transport),
    ) -> (Vec<WorkerRecords>, Vec<Exported>) {
        let all = self.engines.iter_mut().enumerate();
        let export = |(worker, engine): (usize, &mut Engine<Shared>)| {
            let takes = |transport: &Transport| {
                tell(worker, *transport);
                true
            };
            engine.restart().export(|_, _| false, takes)
        };
        all.map(export).unzip()
    }

    /// Returns what was really given away.
    pub(crate) fn cede(&mut self, exported: Vec<Exported>) -> Vec<Ceded<Transport>> {
        let now = self.net.now;
        let all = self.engines.iter_mut().zip(exported);
        let ceded = all.map(|(engine, exported)| engine.restart().cede(exported, now)).collect();
        self.check_invariants();
        ceded
    }

    /// Closes the listeners, which end with the process. Returns their number.
    fn end_listeners(&mut self) -> u32 {
        let mut count = 0;
        for (worker, engine) in self.engines.iter_mut().enumerate() {
            for row in engine.report(self.net.now).servers {
                let Some(id) = row.slot else { continue };
                let mut ends = self.net.servers.iter_mut();
                let end = ends.find(|end| end.worker == worker && end.place == Place::Table(id));
                assert_eq!(row.state, ServerState::Listening);
                end.expect("its socket").place = Place::Closed;
                count += 1;
            }
        }
        count
    }

    fn begin_anew(&mut self, handover_state: HandoverState, ends: Vec<Vec<Ends>>) {
        let count = self.engines.len();
        self.shared = Shared::new(count);
        let engine = |at| {
            let worker = WorkerId(at as u16);
            Engine::new(worker, self.config.clone(), self.shared.clone(), handover_state.seed)
        };
        self.engines = (0..count).map(engine).collect();
        let mut tables =
            ImportTables::new(&handover_state.names, self.engines[0].look().tracked_names());
        self.shared.state(|state| {
            state.interner.resume(handover_state.statements);
            state.connections = handover_state.connections;
        });
        self.engines[0].restart().import_pools(handover_state.pools, &mut tables);
        let mut imported: Vec<_> = (0..count).map(|_| Imported::default()).collect();
        let mut turns = (0..count).cycle();
        for (records, ends) in handover_state.worker_records.into_iter().zip(ends) {
            self.engines
                .iter_mut()
                .for_each(|engine| engine.restart().expect_records(&records, &tables));
            let statements: HashMap<_, _> = self.shared.state(|state| {
                let all = records.statements.iter();
                all.map(|one| (one.id, state.interner.restore(one))).collect()
            });
            tables.open(&records, statements);
            let mut ends = ends.into_iter();
            for record in records.clients {
                let worker = turns.next().expect("there are workers");
                let (id, server) = self.engines[worker].restart().import_client(record, &tables);
                imported[worker].clients.push(id);
                let Ends { client, server: at } = ends.next().expect("a socket");
                let end = &mut self.net.clients[client.expect("a client's")];
                (end.worker, end.id, end.blocked) = (worker, Some(id), false);
                if let Some(at) = at {
                    self.net.servers[at].worker = worker;
                    self.net.servers[at].place = server.map_or(Place::Closed, Place::Table);
                }
            }
            for record in records.parked {
                let worker = turns.next().expect("there are workers");
                let id = self.engines[worker]
                    .restart()
                    .import_parked(record, &tables)
                    .expect("its pool");
                imported[worker].parked.push(id);
                let at = ends.next().and_then(|ends| ends.server).expect("a socket");
                self.net.servers[at].worker = worker;
                self.net.servers[at].place = Place::Table(id);
            }
        }
        for (worker, imported) in imported.into_iter().enumerate() {
            self.engines[worker].begin_imported(imported, &mut self.net.io(worker));
        }
        self.pump();
    }
}

/// The sockets of what `worker` has exported.
fn ends(net: &Net, worker: usize, exported: &Exported, parked: &[Transport]) -> Vec<Ends> {
    let server_at = |place| {
        let mut all = net.servers.iter();
        all.position(|end| end.worker == worker && end.place == place).expect("a server's socket")
    };
    let clients = exported.clients.iter().map(|client| Ends {
        client: net
            .clients
            .iter()
            .position(|end| end.worker == worker && end.id == Some(client.id)),
        server: client.server.map(|server| server_at(Place::Table(server))),
    });
    let parked = exported.parked.iter().zip(parked).map(|((pool, _), transport)| Ends {
        client: None,
        server: Some(server_at(Place::Detached(*pool, *transport))),
    });
    clients.chain(parked).collect()
}
