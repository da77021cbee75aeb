//! SUSPEND: no client is accepted and nothing new is read, until everything begun is read and sent
//! completely. Bytes that arrive meanwhile stay in the kernel.

use std::sync::atomic::Ordering;

use engine::{
    ids::{ClientId, ServerId},
    server::CloseReason,
};

use super::{Hold, Worker};

impl Worker {
    pub(super) fn suspend(&mut self) {
        self.hold = Hold::Suspended;
        self.unwatch_listeners();
    }

    /// Processes everything that happened meanwhile.
    pub(super) fn resume(&mut self) {
        if self.hold != Hold::Suspended {
            return;
        }
        self.hold = Hold::None;
        self.accepting_paused = self.watch_listeners().is_err();
        self.sockets.queue_all();
    }

    /// Is reading this client postponed?
    #[inline]
    pub(super) fn keeps_client(&self, client: ClientId) -> bool {
        match self.hold {
            Hold::None => false,
            Hold::Suspended => self.engine.look().client_at_rest(client),
            Hold::Freezing => self.engine.look().client_can_stop(client),
            Hold::Leaving => {
                let server = self.engine.look().server_of(client);
                self.engine.look().client_can_stop(client) && !self.stays(client, server)
            }
            Hold::Still => true,
        }
    }

    #[inline]
    pub(super) fn keeps_server(&self, server: ServerId) -> bool {
        match self.hold {
            Hold::None | Hold::Freezing | Hold::Leaving => false,
            Hold::Suspended => self.engine.look().server_at_rest(server),
            Hold::Still => true,
        }
    }

    pub(super) fn publish_quiet(&self) {
        let quiet = match self.hold {
            Hold::None | Hold::Leaving | Hold::Still => true,
            Hold::Freezing => {
                self.engine.look().has_come_to_rest(|client, server| self.stays(client, server))
            }
            Hold::Suspended => self.restless().0.is_empty() && self.restless().1.is_empty(),
        };
        self.shared.gauge(self.id).quiet.store(quiet, Ordering::Release);
    }

    /// Closes clients that have not come to rest in time.
    pub(super) fn drop_restless(&mut self) {
        let (clients, servers) = self.restless();
        for server in servers {
            self.engine.server_closed(server, CloseReason::SuspendTimeout, &mut self.sockets);
            self.report_outcomes();
        }
        for client in clients {
            self.engine.drop_suspended(client, &mut self.sockets);
            self.report_outcomes();
        }
    }

    fn restless(&self) -> (Vec<ClientId>, Vec<ServerId>) {
        let look = self.engine.look();
        let clients = look
            .client_ids()
            .filter(|id| !look.client_at_rest(*id) || self.sockets.client_has_pending(*id));
        let servers = look
            .server_ids()
            .filter(|id| !look.server_at_rest(*id) || self.sockets.server_has_pending(*id));
        (clients.collect(), servers.collect())
    }
}
