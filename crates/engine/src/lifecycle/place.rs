//! A server without a client goes where it is needed most: to a client that waits, here or on another
//! worker; to another pool that starves for its seat; or to rest.

use crate::admission::pool::{Next, Parked};
use crate::admission::shares::TURN;
use crate::engine::Engine;
use crate::ids::{Micros, ServerId};
use crate::server::{Server, ServerPhase, Times};
use crate::shell::{Exchange, Io, Mail};

impl<X: Exchange> Engine<X> {
    pub(crate) fn place(&mut self, id: ServerId, now: Micros, io: &mut impl Io<X>) {
        self.place_one(id, false, now, io);
    }

    /// `is_ours`: other pools have no better right to its seat.
    pub(crate) fn place_one(
        &mut self,
        id: ServerId,
        is_ours: bool,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let worker = self.worker;
        let Server { pool, epoch, times: Times { opened_at, .. }, .. } = *self.server(id);
        // A login was paid for, however long it took.
        let is_ours = is_ours || now.saturating_sub(opened_at) < TURN;
        let servers = &mut self.servers;
        // Parking happens under the pool's lock: between "nobody waits" and "it is parked" nobody
        // may begin to wait.
        let next = self.exchange.pool(pool, |pool| {
            let next = pool.release(worker, epoch, is_ours, now);
            if next == Next::Park {
                let mut server = servers.remove(id.0 as usize);
                server.phase = ServerPhase::Parked;
                let transport = io.detach_server(id, server.pool);
                pool.park(worker, Parked { server, transport });
            }
            next
        });
        match next {
            Next::Park => {}
            Next::Local(waiter) => self.join_soon(id, waiter),
            Next::Remote(to, waiter) => {
                let mut server = self.servers.remove(id.0 as usize);
                server.leave_worker();
                server.phase = ServerPhase::Parked;
                let transport = io.detach_server(id, pool);
                let server = Parked { server, transport };
                self.exchange.post(to, Mail::Server { waiter, server });
            }
            Next::Yield(serial) => self.yield_server(id, serial, now, io),
            Next::Contest(serial) => self.contest(id, serial, now, io),
            Next::Close(reason) => self.close_server(id, reason, now, io),
        }
    }
}
