//! Reads mail of other workers.

use crate::admission::pool::{Grant, Parked};
use crate::engine::Engine;
use crate::engine::work::Work;
use crate::ids::Waiter;
use crate::lifecycle::close_reason::CloseReason;
use crate::notify::listen::listens_to;
use crate::shell::{Exchange, Io, Mail};

impl<X: Exchange> Engine<X> {
    /// Gives a server that another worker has sent to its waiter. If the server's node is not the
    /// primary any more, closes the server, and the waiter waits again, at its old place.
    fn server_came(&mut self, waiter: Waiter, sent: Parked<X::Transport>, io: &mut impl Io<X>) {
        let on = self.servers.attach(sent, &mut self.pools, io);
        let server = &*self.servers[on];
        let (now, worker, pool) = (io.now(), self.context.worker, server.pool);
        if !self.pools.known(pool).has_cut(server) {
            return self.join_waiter(waiter, on, io);
        }
        self.servers[on].phase.unpark();
        self.seats().close(on, CloseReason::PrimaryChanged, io);
        if !self.clients.waits(waiter, pool) {
            return;
        }
        let values = self.clients[waiter.client].digest();
        match self.pools.exchange.pool(pool, |pool| pool.requeue(worker, waiter, values, now)) {
            Grant::Server(server) => {
                let id = self.servers.attach(server, &mut self.pools, io);
                self.join_waiter(waiter, id, io);
            }
            Grant::Queued { open: true, .. } => {
                self.open_server(pool, io);
            }
            Grant::Queued { open: false, .. } => {}
            Grant::Refused(error) => self.disconnect(waiter.client, &error, io),
            Grant::Closed(reason) => self.disconnect(waiter.client, reason, io),
        }
    }

    pub(crate) fn read_mail(&mut self, mail: Mail<X::Transport>, io: &mut impl Io<X>) {
        let (now, worker) = (io.now(), self.context.worker);
        match mail {
            Mail::Server { waiter, server } => self.server_came(waiter, server, io),
            Mail::Refuse { waiter, pool, error } => {
                if self.clients.waits(waiter, pool)
                    && !self.paths().leave_reader(waiter.client, pool)
                {
                    self.disconnect(waiter.client, &error, io);
                }
            }
            Mail::Prove { pool } => {
                if self.pools.exchange.pool(pool, |pool| pool.reserve_opening(now)) {
                    self.open_server(pool, io);
                }
            }
            Mail::Cancel { key, requester } => {
                let asked = self.cancellation().asked(&key, requester, io);
                self.follow_request(asked, io);
            }
            Mail::CancelDone { requester, serial, outcome } => {
                let requester = (worker, requester, serial);
                let told = self.cancellation().answer(requester, outcome);
                self.follow_request(told, io);
            }
            Mail::FindProcess { process_id, requester } => {
                let asked = self.cancellation().process_asked(process_id, requester, io);
                self.follow_request(asked, io);
            }
            Mail::ProcessFound { requester, serial, found } => {
                let requester = (worker, requester, serial);
                let found = self.cancellation().process_found(requester, found, io);
                self.follow_request(found, io);
            }
            Mail::Signal { client, serial, terminates, requester } => {
                let whom = (client, serial);
                let signaled = self.cancellation().signaled(whom, terminates, requester, io);
                self.follow_request(signaled, io);
            }
            Mail::Listen { pool, subscription } => {
                let step = self.pool_listeners().subscribe(pool, subscription, io);
                self.follow_listener(step, io);
            }
            Mail::Unlisten { pool, who, channels } => {
                let step = self.pool_listeners().unsubscribe(pool, who, &channels, io);
                self.follow_listener(step, io);
            }
            Mail::Listening { client, serial, request, mark, again } => {
                let to = [(client, serial)];
                self.tell_each(&to, |own, io| own.begun(request, &mark, again, io), io);
            }
            Mail::Notified { to, body } => {
                self.tell_each(&to, |own, io| own.notified(&body, io), io);
            }
            Mail::Unheard { pool, how } => {
                for id in self.clients.ids_where(|client| listens_to(client, pool)) {
                    self.channels(id).unheard(how);
                }
            }
            Mail::Deaf { to } => self.tell_each(&to, |own, io| own.deaf(io), io),
            Mail::Attend { pool } => self.work.push(Work::Attend(pool)),
            Mail::BackendCame { server, serial } => self.seats().backend_came(server, serial, io),
            Mail::LobbyTried { pool } => {
                self.work.extend(self.lobbies.over(pool).into_iter().map(Work::Enter));
            }
            Mail::Review { pool } => self.review_pool(pool, io),
            Mail::LeftLobby { server, serial, why } => {
                self.seats().left_lobby(server, serial, why, io);
            }
            Mail::IdledInLobby { server, serial } => {
                self.seats().idled_in_lobby(server, serial, io);
            }
            Mail::FreePlaces => self.context.places_wanted = true,
            Mail::Password { server, serial, issued } => self.connect(server, serial, issued, io),
        }
    }
}
