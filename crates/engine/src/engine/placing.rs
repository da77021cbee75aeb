//! Decides where a server without a client goes: to a waiting client of any worker, to a pool that
//! starves for its seat, or into its own pool as parked.

use super::Engine;
use super::work::Joining;
use crate::admission::pool::{Next, Parked};
use crate::admission::shares::TURN;
use crate::ids::ServerId;
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::principal;
use crate::server::Server;
use crate::session::on_server::WayBack;
use crate::shell::{Exchange, Io, Mail};

impl<X: Exchange> Engine<X> {
    pub(crate) fn place(&mut self, id: ServerId, io: &mut impl Io<X>) {
        let now = io.now();
        let worker = self.context.worker;
        let Server { pool, epoch, times, .. } = *self.servers[id];
        // After its login, a server serves its own pool for some time: the login was expensive.
        let is_new = times.opened_within(TURN, now);
        // Does no other pool have a better right to the seat?
        let mut is_ours = is_new;
        let may_return = !self.context.has_successor;
        loop {
            let servers = &mut self.servers;
            // Parking happens under the pool's lock, so no client can begin to wait in between.
            let next = self.pools.exchange.pool(pool, |pool| {
                if pool.asks_free(epoch, now) {
                    return Next::Ask;
                }
                let mut next = pool.release(worker, epoch, is_ours, now);
                if matches!(next, Next::Park) && may_return {
                    let session = servers[id].session.get();
                    if session.is_some_and(|own| matches!(own.way_back, WayBack::Open)) {
                        next = pool.next_of_lobby();
                    }
                }
                if matches!(next, Next::Park) {
                    let mut server = servers.remove(id);
                    server.park();
                    let transport = io.detach_server(id, server.pool);
                    pool.park(worker, Parked { server, transport });
                }
                next
            });
            match next {
                Next::Park => {}
                Next::Enlist => self.seats().enlist(id, io),
                Next::Ask => {
                    let (server, settings) = (&mut *self.servers[id], self.pools.settings(pool));
                    principal::ask(id, server, None, settings, &mut self.context, io);
                }
                Next::Local(waiter) => {
                    let serial = self.servers[id].serial;
                    self.work.join(Joining { server: id, serial, waiter });
                }
                Next::Remote(to, waiter) => {
                    let mut server = self.servers.remove(id);
                    server.leave_worker();
                    server.park();
                    let transport = io.detach_server(id, pool);
                    let server = Parked { server, transport };
                    self.pools.exchange.post(to, Mail::Server { waiter, server });
                }
                Next::Yield(serial) if !self.pools.known(pool).yields(serial, now) => {
                    is_ours = is_new;
                    continue;
                }
                Next::Contest(serial) if !self.pools.known(pool).is_outrivaled(serial, now) => {
                    is_ours = true;
                    continue;
                }
                Next::Yield(_) | Next::Contest(_) => {
                    self.seats().close(id, CloseReason::Evicted, io);
                }
                Next::Close(reason) => self.seats().close(id, reason, io),
            }
            return;
        }
    }
}
