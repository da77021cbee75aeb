//! Actions of an operator during a run: RELOAD, PAUSE, SUSPEND, RESUME, RECONNECT, DISABLE, KILL,
//! SHUTDOWN. Pools learn of them at once and workers one after another, as in the proxy.

use std::collections::VecDeque;
use std::sync::Arc;

use config::Config;
use engine::Drain;
use engine::ids::ClientId;
use engine::server::CloseReason;
use engine::settings::settings_for;
use engine::switches::Switches;

use super::takeover::TAKEOVERS_MAX;
use super::{Action, World};
use crate::exchange::Transport;

const RELOADS_MAX: usize = 6;

/// The databases there are.
pub(crate) const DATABASES: [&str; 2] = ["db0", "db1"];

/// A command or a signal. Without a database it applies to all.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verb {
    Reload,
    Pause(Option<&'static str>),
    Resume(Option<&'static str>),
    Suspend,
    /// The time limit of SUSPEND is over.
    EndSuspense,
    Reconnect(Option<&'static str>),
    Disable(&'static str),
    Enable(&'static str),
    Kill(&'static str),
    Note(usize),
    KillNoted(Noted),
    Shutdown,
    /// An online restart.
    Restart,
    /// The configuration of all servers is reloaded.
    ReloadServers,
}

/// A client as the operator has seen it. Another client may have its slot by now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted {
    client: usize,
    worker: usize,
    slot: ClientId,
    serial: u64,
}

/// An order to a worker.
#[derive(Clone, Debug)]
pub(super) enum Order {
    Config(Arc<Config>),
    /// The pools have been closed, opened or renewed.
    Review,
    Suspend,
    Resume,
    EndSuspense,
    Kill(&'static str),
    KillClient(ClientId, u64),
    Drain(Drain),
}

impl World {
    pub(super) fn possible_for_operator(&mut self, actions: &mut Vec<Action>) {
        let is_idle = actions.is_empty();
        let mut do_it = |verb| actions.push(Action::Operate(verb));
        let may_reload = self.setup.reloads && self.stormy && self.reloads < RELOADS_MAX;
        if may_reload && self.rng.once_in(150) {
            do_it(Verb::Reload);
        }
        if self.setup.reloads_servers && self.stormy && self.rng.once_in(40) {
            do_it(Verb::ReloadServers);
        }
        let switches = self.shared.borrow().switches.clone();
        // Every wait has a limit.
        let patience = if is_idle { 10 } else { 60 };
        let is_over = !self.stormy || self.rng.once_in(patience);
        if is_over && (switches.paused || switches.suspended) {
            do_it(Verb::Resume(None));
        }
        for name in DATABASES.into_iter().filter(|name| is_over && switches.database(name).paused) {
            do_it(Verb::Resume(Some(name)));
        }
        if switches.suspended && self.rng.once_in(40) {
            do_it(Verb::EndSuspense);
        }
        let interrupts = self.setup.interrupts && self.stormy && self.draining.is_none();
        if interrupts && self.rng.once_in(60) {
            do_it(self.whim(&switches));
        }
        if interrupts && self.noted.is_none() && self.rng.once_in(40) {
            do_it(Verb::Note(self.rng.below(self.clients.len())));
        }
        if let Some(noted) = self.outdated_note().filter(|_| interrupts && self.rng.once_in(10)) {
            do_it(Verb::KillNoted(noted));
        }
        let is_free = !switches.is_halted() && !switches.any_database_paused();
        let may_drain = self.setup.drain.is_some() && self.draining.is_none() && is_free;
        if may_drain && self.rng.once_in(400) {
            do_it(Verb::Shutdown);
        }
        let may_restart = self.setup.restarts
            && self.stormy
            && self.taking_over.is_none()
            && self.takeovers < TAKEOVERS_MAX;
        if may_restart && self.draining.is_none() && self.rng.once_in(200) {
            actions.push(Action::Operate(Verb::Restart));
        }
        let heard = self.orders.iter().enumerate().filter(|(_, orders)| !orders.is_empty());
        actions.extend(heard.map(|(worker, _)| Action::Order(worker)));
    }

    fn whim(&mut self, switches: &Switches) -> Verb {
        let name = DATABASES[usize::from(self.rng.once_in(4))];
        let one = self.rng.once_in(2).then_some(name);
        match self.rng.below(16) {
            _ if switches.suspended || switches.paused => Verb::Reconnect(one),
            0..=5 => Verb::Pause(one),
            6 if !switches.any_database_paused() => Verb::Suspend,
            7 | 8 if switches.database(name).disabled => Verb::Enable(name),
            // If only PostgreSQL can check passwords, no client reaches the console.
            7 | 8 if !self.setup.proves => Verb::Disable(name),
            9 => Verb::Kill(name),
            10 => match self.noted {
                Some(noted) => Verb::KillNoted(noted),
                None => Verb::Note(self.rng.below(self.clients.len())),
            },
            _ => Verb::Reconnect(one),
        }
    }

    pub(super) fn operate(&mut self, verb: Verb) {
        self.net.log(|| format!("{verb:?}"));
        match verb {
            Verb::Reload => self.reload(),
            Verb::Pause(name) => self.switch(|switches| switch_pause(switches, name, true)),
            Verb::Resume(name) => {
                self.switch(|switches| {
                    switch_pause(switches, name, false);
                    switches.suspended &= name.is_some();
                });
                self.tell_all(&Order::Resume);
            }
            Verb::Suspend => {
                self.switch(|switches| switches.suspended = true);
                self.tell_all(&Order::Suspend);
            }
            Verb::EndSuspense => self.tell_all(&Order::EndSuspense),
            Verb::Reconnect(name) => self.reconnect(name),
            Verb::Disable(name) => {
                self.switch(|switches| switches.database_mut(name).disabled = true);
                self.net.disabled.insert(name);
            }
            Verb::Enable(name) => {
                self.switch(|switches| switches.database_mut(name).disabled = false);
                self.net.disabled.remove(name);
                self.net.clients.iter_mut().for_each(|client| client.barred = false);
            }
            Verb::Kill(name) => {
                self.switch(|switches| switches.database_mut(name).paused = true);
                self.tell_all(&Order::Kill(name));
            }
            Verb::Note(at) => self.note(at),
            Verb::KillNoted(Noted { worker, slot, serial, .. }) => {
                self.noted = None;
                self.orders[worker].push_back(Order::KillClient(slot, serial));
            }
            Verb::Shutdown => self.shut_down(),
            Verb::Restart => self.begin_takeover(),
            Verb::ReloadServers => {
                if let Some(server) = self.net.servers.first() {
                    server.backend.schema.reload();
                }
            }
        }
    }

    fn switch(&mut self, change: impl FnOnce(&mut Switches)) {
        self.shared.borrow_mut().switch(change);
        self.tell_all(&Order::Review);
    }

    fn reload(&mut self) {
        self.reloads += 1;
        self.setup.change(&mut self.rng);
        self.net.log(|| format!("{:?}", self.setup.keys));
        let config = Arc::new(self.setup.config.clone());
        let manner = self.shared.borrow().manner();
        for pool in &mut self.shared.borrow_mut().pools {
            if let Some(mut settings) = settings_for(&config, &pool.key) {
                manner.adapt(&mut settings, &pool.key);
                pool.set_settings(settings);
            }
        }
        self.tell_all(&Order::Config(config));
    }

    fn reconnect(&mut self, name: Option<&str>) {
        let mut shared = self.shared.borrow_mut();
        let meant = |pool: &&mut engine::pool::Pool<Transport>| {
            name.is_none_or(|name| name == pool.key.database)
        };
        for pool in shared.pools.iter_mut().filter(meant) {
            pool.replace_servers();
            self.links.replaced.insert(pool.id, self.net.now);
        }
        drop(shared);
        self.tell_all(&Order::Review);
    }

    /// The operator sees a client in SHOW CLIENTS, and will disconnect it later.
    fn note(&mut self, client: usize) {
        let socket = &self.net.clients[client];
        let Some(slot) = socket.slot else { return };
        let report = self.engines[socket.worker].report(self.net.now);
        if let Some(row) = report.clients.iter().find(|row| row.id == slot) {
            let (worker, serial) = (socket.worker, row.serial);
            self.noted = Some(Noted { client, worker, slot, serial });
        }
    }

    /// The note of the operator, if another client has that slot now.
    fn outdated_note(&self) -> Option<Noted> {
        let noted = self.noted?;
        let now = self.net.client_slots[noted.worker].get(&noted.slot.0)?;
        (*now != noted.client).then_some(noted)
    }

    fn shut_down(&mut self) {
        let Some(how) = self.setup.drain else { return };
        self.draining = Some(how);
        if how == Drain::WaitForServers {
            self.shared.borrow_mut().switch(|switches| switches.closed = true);
            self.setup.bus.forbid_listeners();
        }
        self.tell_all(&Order::Drain(how));
    }

    /// A shutdown that waits only for servers ends the process when all servers are free. That
    /// disconnects the remaining clients. If one of them still expects an answer, the other checks
    /// report it.
    pub(super) fn end_shutdown(&mut self) {
        let all_know = self.orders.iter().all(VecDeque::is_empty);
        let is_over = self.engines.iter().all(|engine| engine.look().busy_servers() == 0);
        if self.draining != Some(Drain::WaitForServers) || !all_know || !is_over {
            return;
        }
        for at in 0..self.clients.len() {
            let client = &self.clients[at];
            if !client.is_done() && !client.is_absent() && client.reference.is_quiet() {
                self.client_vanishes(at);
            }
        }
    }

    fn tell_all(&mut self, order: &Order) {
        self.orders.iter_mut().for_each(|orders| orders.push_back(order.clone()));
    }

    pub(super) fn obey(&mut self, worker: usize) {
        let Some(order) = self.orders[worker].pop_front() else { return };
        let (engine, mut io) = self.engine(worker);
        match order {
            Order::Config(config) => {
                engine.notes().set_config(config);
                engine.review(&mut io);
            }
            Order::Review => engine.review(&mut io),
            Order::Kill(name) => engine.kill(|its| its == name, &mut io),
            Order::KillClient(client, serial) => {
                engine.kill_client(client, serial, &mut io);
            }
            Order::Drain(how) => engine.begin_drain(how, &mut io),
            Order::Suspend => self.suspended[worker] = true,
            Order::Resume => self.suspended[worker] = false,
            Order::EndSuspense => self.drop_restless(worker),
        }
    }

    /// As the shell does: connections with half-read or half-sent messages are closed.
    fn drop_restless(&mut self, worker: usize) {
        if !self.suspended[worker] {
            return;
        }
        let engine = &self.engines[worker];
        let unsent = |at: Option<&usize>| at.is_some_and(|at| self.net.clients[*at].is_stuck());
        let slots = &self.net.client_slots[worker];
        let clients = engine
            .look()
            .client_ids()
            .filter(|id| !engine.look().client_at_rest(*id) || unsent(slots.get(&id.0)));
        let clients: Vec<_> = clients.collect();
        let slots = &self.net.server_slots[worker];
        let unsent = |at: Option<&usize>| at.is_some_and(|at| self.net.servers[*at].is_stuck());
        let servers = engine
            .look()
            .server_ids()
            .filter(|id| !engine.look().server_at_rest(*id) || unsent(slots.get(&id.0)));
        let servers: Vec<_> = servers.collect();
        let (engine, mut io) = self.engine(worker);
        for id in servers {
            engine.server_closed(id, CloseReason::SuspendTimeout, &mut io);
        }
        for id in clients {
            engine.drop_suspended(id, &mut io);
        }
    }
}

fn switch_pause(switches: &mut Switches, name: Option<&str>, paused: bool) {
    match name {
        None => switches.paused = paused,
        Some(name) => switches.database_mut(name).paused = paused,
    }
}
