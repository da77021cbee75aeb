//! Reads mail of other workers.

use crate::admission::pool::Grant;
use crate::engine::Engine;
use crate::engine::work::Work;
use crate::ids::{ServerId, Waiter};
use crate::lifecycle::close_reason::CloseReason;
use crate::notify::listen::listens_to;
use crate::shell::{Exchange, Io, Mail};

impl<X: Exchange> Engine<X> {
    /// Closes such a server. The client that was to get it waits again, at its old place.
    fn queue_again(&mut self, waiter: Waiter, on: ServerId, io: &mut impl Io<X>) {
        let (now, worker, pool) = (io.now(), self.context.worker, self.servers[on].pool);
        self.servers[on].phase.unpark();
        self.close_server(on, CloseReason::PrimaryChanged, io);
        if !self.clients.waits(waiter, pool) {
            return;
        }
        let values = self.clients[waiter.client].digest();
        match self.pools.exchange.pool(pool, |pool| pool.requeue(worker, waiter, values, now)) {
            Grant::Server(server) => {
                let id = self.attach(server, io);
                self.join_or_place(waiter, id, io);
            }
            Grant::Queued { open: true, .. } => {
                self.open_server(pool, io);
            }
            Grant::Queued { open: false, .. } => {}
            Grant::Refused(error) => self.refuse_client(waiter.client, &error, io),
            Grant::Closed(reason) => self.disconnect(waiter.client, reason, io),
        }
    }

    pub(crate) fn read_mail(&mut self, mail: Mail<X::Transport>, io: &mut impl Io<X>) {
        let (now, worker) = (io.now(), self.context.worker);
        match mail {
            Mail::Server { waiter, server } => {
                let id = self.attach(server, io);
                let server = &*self.servers[id];
                if self.pools.known(server.pool).has_cut(server) {
                    return self.queue_again(waiter, id, io);
                }
                self.join_or_place(waiter, id, io);
            }
            Mail::Refuse { waiter, pool, error } => {
                if self.clients.waits(waiter, pool) && !self.leave_reader(waiter.client, pool) {
                    self.refuse_client(waiter.client, &error, io);
                }
            }
            Mail::Prove { pool } => {
                if self.pools.exchange.pool(pool, |pool| pool.reserve_opening(now)) {
                    self.open_server(pool, io);
                }
            }
            Mail::Cancel { key, requester } => self.cancel_asked(&key, requester, io),
            Mail::CancelDone { requester, serial, outcome } => {
                self.answer_cancel((worker, requester, serial), outcome, io);
            }
            Mail::FindProcess { process_id, requester } => {
                self.process_asked(process_id, requester, io);
            }
            Mail::ProcessFound { requester, serial, found } => {
                self.process_found((worker, requester, serial), found, io);
            }
            Mail::Signal { client, serial, terminates, requester } => {
                self.signal_asked((client, serial), terminates, requester, io);
            }
            Mail::Listen { pool, subscription } => {
                self.listeners.subscribe(subscription, &mut self.pools.one(pool));
                self.tend_listener(pool, io);
            }
            Mail::Unlisten { pool, who, channels } => {
                if self.listeners.contains(pool) {
                    self.listeners.unsubscribe(who, &channels, &mut self.pools.one(pool));
                    self.tend_listener(pool, io);
                }
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
            Mail::Attend { pool } => self.attend_more(pool, io),
            Mail::BackendCame { server, serial } => self.backend_came(server, serial, io),
            Mail::LobbyTried { pool } => {
                self.work.extend(self.lobbies.over(pool).into_iter().map(Work::Enter));
            }
            Mail::Review { pool } => self.review_pool(pool, io),
            Mail::LeftLobby { server, serial, why } => self.left_lobby(server, serial, why, io),
            Mail::IdledInLobby { server, serial } => self.idled_in_lobby(server, serial, io),
            Mail::FreePlaces => self.context.places_wanted = true,
        }
    }
}
