//! What an operator does in mid-run: the configuration is read again, the pooler is paused and
//! resumed, its servers are replaced, it is shut down. The pools learn of it at once and the
//! workers one by one, as in the proxy.

use std::sync::Arc;

use config::Config;
use engine::Drain;
use engine::pool::{Gate, Pool};
use engine::settings::settings_for;

use super::{Action, World};

const RELOADS_MAX: usize = 6;

#[derive(Clone, Debug)]
pub(super) enum Order {
    Config(Arc<Config>),
    /// The pools have been closed, opened or renewed.
    Review,
    Drain(Drain),
}

impl World {
    pub(super) fn possible_for_operator(&mut self, actions: &mut Vec<Action>) {
        let may_reload = self.setup.reloads && self.stormy && self.reloads < RELOADS_MAX;
        if may_reload && self.rng.once_in(150) {
            actions.push(Action::Reload);
        }
        let may_interrupt = self.setup.interrupts && self.stormy && self.draining.is_none();
        if self.paused {
            // Nobody waits for ever.
            if !self.stormy || self.rng.once_in(60) {
                actions.push(Action::Resume);
            }
        } else if may_interrupt && self.rng.once_in(200) {
            actions.push(Action::Pause);
        }
        if may_interrupt && self.rng.once_in(200) {
            actions.push(Action::Reconnect);
        }
        let may_drain = self.setup.drain.is_some() && self.draining.is_none();
        if may_drain && self.rng.once_in(400) {
            actions.push(Action::Drain);
        }
        let heard = self.orders.iter().enumerate().filter(|(_, orders)| !orders.is_empty());
        actions.extend(heard.map(|(worker, _)| Action::Order(worker)));
    }

    pub(super) fn reload(&mut self) {
        self.reloads += 1;
        self.setup.change(&mut self.rng);
        self.net.log(|| format!("reload: {:?}", self.setup.keys));
        let config = Arc::new(self.setup.config.clone());
        for pool in &mut self.shared.borrow_mut().pools {
            if let Some(settings) = settings_for(&config, &pool.key) {
                pool.set_settings(settings);
            }
        }
        self.tell_all(&Order::Config(config));
    }

    pub(super) fn pause(&mut self, paused: bool) {
        self.net.log(|| if paused { "pause".into() } else { "resume".into() });
        self.paused = paused;
        let gate = if paused { Gate::Paused } else { Gate::Open };
        // A pooler that is being shut down stays shut.
        if self.draining != Some(Drain::WaitForServers) {
            self.shared.borrow_mut().pools.iter_mut().for_each(|pool| pool.set_gate(gate));
        }
        self.tell_all(&Order::Review);
    }

    /// RECONNECT.
    pub(super) fn reconnect(&mut self) {
        self.net.log(|| "reconnect".into());
        self.shared.borrow_mut().pools.iter_mut().for_each(Pool::replace_servers);
        self.tell_all(&Order::Review);
    }

    pub(super) fn drain(&mut self) {
        let Some(how) = self.setup.drain else { return };
        self.net.log(|| format!("drain: {how:?}"));
        self.draining = Some(how);
        if how == Drain::WaitForServers {
            let gate = Gate::Closed("server shutting down");
            self.shared.borrow_mut().pools.iter_mut().for_each(|pool| pool.set_gate(gate));
        }
        self.tell_all(&Order::Drain(how));
    }

    fn tell_all(&mut self, order: &Order) {
        self.orders.iter_mut().for_each(|orders| orders.push_back(order.clone()));
    }

    pub(super) fn obey(&mut self, worker: usize) {
        let Some(order) = self.orders[worker].pop_front() else { return };
        let now = self.net.now;
        let (engine, mut io) = self.engine(worker);
        match order {
            Order::Config(config) => {
                engine.set_config(config);
                engine.review(now, &mut io);
            }
            Order::Review => engine.review(now, &mut io),
            Order::Drain(how) => engine.begin_drain(how, now, &mut io),
        }
    }
}
