//! Carries out what follows for clients whose transaction or session was lost with its server.

use super::Engine;
use crate::ids::{ClientId, ServerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::failed::{FAIL, Next};
use crate::lifecycle::leave::Leaving;
use crate::lifecycle::preparation::Readable;
use crate::server::Preparation;
use crate::shell::{Exchange, Io};

impl<X: Exchange> Engine<X> {
    /// Reads bytes of a client whose transaction or session was lost.
    pub(crate) fn failed_bytes(&mut self, id: ClientId, bytes: &[u8], io: &mut impl Io<X>) {
        match self.clients[id].failed_bytes(id, bytes, io) {
            Next::Wait => {}
            Next::Serve => {
                if !self.pools.changed_user.is_empty() {
                    self.follow_rename(id);
                }
                if self.link(id, io) == Readable::Now {
                    self.go_on(id, io);
                }
            }
            Next::Over => self.go_on_without(id, io),
            Next::Terminate => self.drop_client(id, Leaving::Goodbye, io),
            Next::Violation(why) => self.disconnect(id, why, io),
        }
    }

    /// Puts the server into a failed transaction. Everything else is prepared for its client.
    #[cold]
    pub(crate) fn fail_transaction(&mut self, on: ServerId, io: &mut impl Io<X>) -> Readable {
        self.servers[on].phase.prepare(Preparation::Fail);
        self.send_own_query(on, FAIL, io);
        Readable::NotYet
    }

    /// The server has answered that.
    pub(crate) fn transaction_failed(
        &mut self,
        id: ClientId,
        on: ServerId,
        io: &mut impl Io<X>,
    ) -> Readable {
        if self.clients[id].begin_failed(&mut self.servers[on], io.now()) {
            return self.ready(id, on, io);
        }
        self.disconnect_from(id, on, CloseReason::OutOfStep, io);
        self.close_server(on, CloseReason::OutOfStep, io);
        Readable::NotYet
    }
}
