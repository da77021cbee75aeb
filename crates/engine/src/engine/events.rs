//! The entry points: the shell calls one of these methods for every event. Each passes the event to
//! one machine, and then does the follow-up work ([`Engine::finish`]).

use super::Engine;
use crate::admission::pool::Parked;
use crate::client::ClientPhase;
use crate::ids::{ClientId, PoolId, ServerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::leave::Leaving;
use crate::lifecycle::preparation::Readable;
use crate::lifecycle::release::Cleaning;
use crate::login::auth::Awaited;
use crate::login::patience::CROWDED_OUT;
use crate::own_error::{Cause, OwnError};
use crate::server::{Preparation, ServerPhase};
use crate::shell::{Checked, Drain, Exchange, Io, Mail};

/// Events of clients.
impl<X: Exchange> Engine<X> {
    /// May this client's bytes be read now? A client without a server requests one first. Until it
    /// has one, its bytes stay in the kernel.
    pub fn client_readable(&mut self, id: ClientId, io: &mut impl Io<X>) -> bool {
        let now = io.now();
        let Some(client) = self.clients.get_mut(id) else { return false };
        match *client.phase {
            // While PostgreSQL is asked about the client, or its proof must wait, its messages
            // cannot be processed.
            ClientPhase::Login(ref login) => login.step.awaits() != Awaited::Answer && !login.held,
            ClientPhase::Linked => !client.awaits_answer(),
            ClientPhase::Failed(_) | ClientPhase::Canceling { .. } => true,
            ClientPhase::Waiting(_) | ClientPhase::Preparing(_) => false,
            ClientPhase::Idle => {
                let Some(pool) = client.pool.id() else { return false };
                client.times.request_came(now);
                let (worker, values) = (self.context.worker, client.digest());
                let grant = self.pools.exchange.pool(pool, |pool| match pool.settings.routing {
                    Some(_) => None,
                    None => Some(pool.request(worker, id, values, now)),
                });
                // With routing, the request is read first.
                let Some(grant) = grant else {
                    let serial = self.clients[id].serial;
                    return !self.sessions.holds(id, serial);
                };
                let readable = self.take_grant(id, pool, grant, now, io);
                if self.work.is_empty() {
                    return readable == Readable::Now;
                }
                self.finish(io);
                let client = self.clients.get(id);
                client.is_some_and(|client| matches!(*client.phase, ClientPhase::Linked))
            }
        }
    }

    /// Reads bytes of a client that may be read.
    pub fn client_bytes(&mut self, id: ClientId, bytes: &[u8], io: &mut impl Io<X>) {
        let Some(client) = self.clients.get(id) else { return };
        match *client.phase {
            ClientPhase::Login(_) => {
                let step = self.door(id).bytes(bytes, io);
                self.after_login(id, step, io);
            }
            // Only pools with routing have verdicts.
            ClientPhase::Linked if self.verdicts.is_some() => {
                let is_judged = self.paths().judge_kept(id, bytes, io.now());
                self.request_bytes(id, bytes, io);
                if is_judged {
                    self.paths().note_handled(id, bytes.len());
                }
            }
            ClientPhase::Linked => self.request_bytes(id, bytes, io),
            ClientPhase::Idle => self.route_bytes(id, bytes, io),
            ClientPhase::Failed(_) => self.failed_bytes(id, bytes, io),
            // The request has been read; the rest is ignored.
            ClientPhase::Canceling { .. } => {}
            ClientPhase::Waiting(_) | ClientPhase::Preparing(_) => {
                debug_assert!(false, "bytes were read from a client that has no server");
            }
        }
        self.finish(io);
    }

    /// Takes back the server of a client that turned out to have sent nothing.
    pub fn client_quiet(&mut self, id: ClientId, io: &mut impl Io<X>) {
        if let Some(client) = self.clients.get(id)
            && let (ClientPhase::Linked, Some(on)) = (&*client.phase, *client.server)
        {
            self.give_back_unused(id, on, io);
        }
        self.finish(io);
    }

    /// Closes a client whose socket was closed.
    pub fn client_closed(&mut self, id: ClientId, io: &mut impl Io<X>) {
        if self.clients.contains(id) {
            self.disconnect(id, Leaving::Lost, io);
        }
        self.finish(io);
    }

    /// Closes a client that sent Terminate while it had no server.
    pub fn client_left(&mut self, id: ClientId, io: &mut impl Io<X>) {
        if self.clients.contains(id) {
            self.disconnect(id, Leaving::Goodbye, io);
        }
        self.finish(io);
    }

    /// Takes the result of a check for the client with this serial number.
    pub fn checked(&mut self, id: ClientId, serial: u64, checked: &Checked, io: &mut impl Io<X>) {
        if self.clients.get(id).is_some_and(|client| client.serial == serial) {
            let mut door = self.door(id);
            let step = door.checked(checked, io.now());
            let step = step.unwrap_or_else(|| door.go_on(io));
            self.after_login(id, step, io);
        }
        self.finish(io);
    }

    /// Disconnects clients, because too many are logging in. First those that delay their own
    /// login. If there are none, those whose proofs must wait after earlier failures. Otherwise
    /// such clients could fill all places and keep others out.
    pub fn crowd_out(&mut self, io: &mut impl Io<X>) {
        for id in self.overdue(io.now()).slow_logins(|_| true) {
            self.disconnect(id, OwnError::new(Cause::TooManyClients, CROWDED_OUT), io);
        }
        self.finish(io);
    }
}

/// Events of servers.
impl<X: Exchange> Engine<X> {
    /// Sends the startup packet to a new server, whose connection is ready.
    pub fn server_connected(&mut self, id: ServerId, io: &mut impl Io<X>) {
        if self.servers.contains(id) {
            self.new_server(id).send_startup(io);
        }
    }

    #[inline]
    pub fn server_bytes(&mut self, id: ServerId, bytes: &[u8], io: &mut impl Io<X>) {
        let Some(server) = self.servers.get_mut(id) else { return };
        // Unread bytes from before do not prove that the server is alive.
        if !matches!(*server.phase, ServerPhase::Preparing(Preparation::Hear)) {
            server.times.replied(io.now());
        }
        match *server.phase {
            ServerPhase::Login(_) => self.server_login_bytes(id, bytes, io),
            ServerPhase::Connecting(_) => {
                debug_assert!(false, "bytes from a server that is not connected");
            }
            ServerPhase::Preparing(_)
            | ServerPhase::Linked
            | ServerPhase::Finishing
            | ServerPhase::Settling(_)
            | ServerPhase::Listening
            | ServerPhase::Parked => self.reply_bytes(id, bytes, io),
            // An error between two clients, which PostgreSQL's log has.
            ServerPhase::Attending { .. } => {}
        }
        self.finish(io);
    }

    /// Continues with a server whose socket turned out to have nothing to read.
    pub fn server_quiet(&mut self, id: ServerId, io: &mut impl Io<X>) {
        let Some(server) = self.servers.get(id) else { return };
        match *server.phase {
            ServerPhase::Settling(_) if server.is_clean() => self.release(id, Cleaning::GoesOn, io),
            ServerPhase::Preparing(Preparation::Hear) => self.prepared(id, io),
            ServerPhase::Connecting(_)
            | ServerPhase::Login(_)
            | ServerPhase::Parked
            | ServerPhase::Preparing(_)
            | ServerPhase::Linked
            | ServerPhase::Finishing
            | ServerPhase::Settling(_)
            | ServerPhase::Listening
            | ServerPhase::Attending { .. } => {}
        }
        self.finish(io);
    }

    /// Takes a parked server, whose socket has an event, back into the table, if it still is parked
    /// here. It is read, because messages of an idle server usually announce its end.
    pub fn parked_readable(
        &mut self,
        pool: PoolId,
        is_it: impl Fn(&X::Transport) -> bool,
        io: &mut impl Io<X>,
    ) -> Option<ServerId> {
        let worker = self.context.worker;
        let is_it = |parked: &Parked<_>| is_it(&parked.transport);
        let parked = self.pools.exchange.pool(pool, |pool| pool.take_parked(worker, is_it))?;
        Some(self.seats().take_in(parked, io))
    }

    /// Deals with a server whose socket was closed, or that has sent something invalid.
    pub fn server_closed(&mut self, id: ServerId, reason: CloseReason<'_>, io: &mut impl Io<X>) {
        self.lose_server(id, reason, io);
        self.finish(io);
    }
}

/// Events of other workers, of other processes, and of operators.
impl<X: Exchange> Engine<X> {
    /// Reads mail of another worker.
    pub fn handle_mail(&mut self, mail: Mail<X::Transport>, io: &mut impl Io<X>) {
        self.read_mail(mail, io);
        self.finish(io);
    }

    /// Begins a shutdown.
    pub fn begin_drain(&mut self, how: Drain, io: &mut impl Io<X>) {
        self.context.drain = Some(how);
        if how == Drain::WaitForServers {
            self.pools.close_gates();
        }
        self.review(io);
    }

    /// Closes the client that the operator chose (KILL_CLIENT). Returns false if it has left
    /// meanwhile.
    pub fn kill_client(&mut self, id: ClientId, serial: u64, io: &mut impl Io<X>) -> bool {
        let found = self.clients.get(id).is_some_and(|client| client.serial == serial);
        if found {
            self.disconnect(id, OwnError::new(Cause::Operator, "admin forced disconnect"), io);
        }
        self.finish(io);
        found
    }

    /// Closes a client that did not come to rest in time for SUSPEND.
    pub fn drop_suspended(&mut self, id: ClientId, io: &mut impl Io<X>) {
        if self.clients.contains(id) {
            self.disconnect(id, CloseReason::SuspendTimeout, io);
        }
        self.finish(io);
    }

    /// Closes servers after a host's address has changed. `is_there` and `is_parked_there` select
    /// the servers at an address that `host` no longer has.
    pub fn close_moved(
        &mut self,
        host: &str,
        is_there: impl Fn(ServerId) -> bool,
        is_parked_there: impl Fn(&X::Transport) -> bool,
        io: &mut impl Io<X>,
    ) {
        let worker = self.context.worker;
        for id in self.pools.views.ids() {
            if !self.pools.settings(id).leads_to(host) {
                continue;
            }
            // They finish their current work, and are not linked again.
            for (on, server) in self.servers.iter_mut() {
                if server.pool == id && is_there(on) {
                    server.doomed.retire(CloseReason::CloseNeeded);
                }
            }
            let parked = self.pools.exchange.pool(id, |pool| {
                let fits = |parked: &Parked<_>| is_parked_there(&parked.transport);
                pool.condemn_where(fits, CloseReason::Obsolete);
                pool.take_condemned(worker)
            });
            self.seats().close_parked(parked, io);
        }
        self.finish(io);
    }
}
