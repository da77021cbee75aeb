//! The ways in: every event of the shell comes through one of these methods. Each chooses the machine
//! that deals with the event, and ends with the work that this leaves ([`Engine::finish`]).

use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::link::Readable;
use crate::server::Settling;
use std::sync::Arc;

use config::Config;

use super::{Drain, Engine, limits_users};
use crate::admission::pool::Parked;
use crate::cancel::outcome::CancelEnd;
use crate::client::{Client, ClientPhase};
use crate::handover::import::Imported;
use crate::ids::{ClientId, Micros, PoolId, ServerId};
use crate::login::auth::{Login, LoginStep, Peer};
use crate::server::{LoginStage, Preparation, ServerPhase};
use crate::shell::{Checked, Exchange, Io, Mail};

/// Of clients.
impl<X: Exchange> Engine<X> {
    /// A new connection. `None` if the table is full: nothing can be said to it.
    pub fn accept(&mut self, peer: Peer, now: Micros, _io: &mut impl Io<X>) -> Option<ClientId> {
        let id = ClientId(u32::try_from(self.clients.vacant_key()).ok()?);
        let login = Login { peer, ..Login::default() };
        let serial = self.exchange.next_connection();
        self.clients.insert(Client::new(serial, login, now, self.nobody.clone()));
        Some(id)
    }

    /// May this client's bytes be read now? A client without a server asks for one first; until
    /// it has it, its bytes stay in the kernel.
    pub fn client_readable(&mut self, id: ClientId, now: Micros, io: &mut impl Io<X>) -> bool {
        let Some(client) = self.clients.get_mut(id.0 as usize) else { return false };
        match client.phase {
            // While PostgreSQL is asked about it, or its proof must wait, nothing can be done with
            // what it says.
            ClientPhase::Login(ref login) => {
                let asks = matches!(
                    login.step,
                    LoginStep::Proving(_) | LoginStep::Asking(_) | LoginStep::Checking(_)
                );
                !asks && !login.held
            }
            ClientPhase::Linked => !client.awaits_answer(),
            ClientPhase::Canceling { .. } => true,
            ClientPhase::Waiting(_) | ClientPhase::Preparing(_) => false,
            ClientPhase::Idle => {
                client.request_at = now;
                let readable = self.link(id, now, io);
                if !self.has_work() {
                    return readable == Readable::Now;
                }
                self.finish(now, io);
                let client = self.clients.get(id.0 as usize);
                client.is_some_and(|client| matches!(client.phase, ClientPhase::Linked))
            }
        }
    }

    /// Bytes of a client that may be read.
    pub fn client_bytes(&mut self, id: ClientId, bytes: &[u8], now: Micros, io: &mut impl Io<X>) {
        let Some(client) = self.clients.get(id.0 as usize) else { return };
        match client.phase {
            ClientPhase::Login(_) => self.login_bytes(id, bytes, now, io),
            ClientPhase::Linked => self.request_bytes(id, bytes, now, io),
            // It has said all it may say.
            ClientPhase::Canceling { .. } => {}
            ClientPhase::Idle | ClientPhase::Waiting(_) | ClientPhase::Preparing(_) => {
                debug_assert!(false, "bytes were read from a client that has no server");
            }
        }
        self.finish(now, io);
    }

    /// There was nothing to read from a client after all, though it was given a server for it.
    pub fn client_quiet(&mut self, id: ClientId, now: Micros, io: &mut impl Io<X>) {
        if let Some(client) = self.clients.get(id.0 as usize)
            && let (ClientPhase::Linked, Some(on)) = (&client.phase, client.server)
        {
            self.give_back_unused(id, on, now, io);
        }
        self.finish(now, io);
    }

    /// The client's socket is gone.
    pub fn client_closed(&mut self, id: ClientId, now: Micros, io: &mut impl Io<X>) {
        self.client_lost(id, now, io);
        self.finish(now, io);
    }

    /// The client said goodbye and closed its side, without a server to hear it.
    pub fn client_left(&mut self, id: ClientId, now: Micros, io: &mut impl Io<X>) {
        self.client_said_goodbye(id, now, io);
        self.finish(now, io);
    }

    /// What was to be found out about the client with that serial number.
    pub fn checked(
        &mut self,
        id: ClientId,
        serial: u64,
        checked: &Checked,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        self.take_check(id, serial, checked, now, io);
        self.finish(now, io);
    }

    /// Too many are logging in: those go that have kept us waiting, since they came or since they were
    /// asked for their proof. If nobody has, those go whose proofs have to wait. They wait for us, but
    /// for what was wrong before; whoever fills all places with such must not shut everybody else out.
    pub fn crowd_out(&mut self, now: Micros, io: &mut impl Io<X>) {
        self.end_slow_logins(now, io);
        self.finish(now, io);
    }
}

/// Of servers.
impl<X: Exchange> Engine<X> {
    /// The socket of a new server is connected. It is not secure yet.
    pub fn server_reached(&mut self, id: ServerId) {
        let phase = self.servers.get_mut(id.0 as usize).map(|server| &mut server.phase);
        if let Some(ServerPhase::Connecting(login)) = phase {
            login.stage = LoginStage::Reached;
        }
    }

    /// The socket of a new server is there: say who we are.
    pub fn server_connected(&mut self, id: ServerId, _now: Micros, io: &mut impl Io<X>) {
        self.send_startup(id, io);
    }

    pub fn server_bytes(&mut self, id: ServerId, bytes: &[u8], now: Micros, io: &mut impl Io<X>) {
        let Some(server) = self.servers.get_mut(id.0 as usize) else { return };
        // What has lain unread does not show that the server lives.
        if !matches!(server.phase, ServerPhase::Preparing(Preparation::Hear)) {
            server.times.replied_at = now;
        }
        match server.phase {
            ServerPhase::Login(_) => self.server_login_bytes(id, bytes, now, io),
            ServerPhase::Connecting(_) => {
                debug_assert!(false, "bytes from a server that is not connected");
            }
            ServerPhase::Preparing(_)
            | ServerPhase::Linked
            | ServerPhase::Finishing
            | ServerPhase::Settling(_)
            | ServerPhase::Listening
            | ServerPhase::Parked => self.reply_bytes(id, bytes, now, io),
        }
        self.finish(now, io);
    }

    /// There was nothing to read on the socket of a server after all.
    pub fn server_quiet(&mut self, id: ServerId, now: Micros, io: &mut impl Io<X>) {
        let Some(server) = self.servers.get(id.0 as usize) else { return };
        match server.phase {
            ServerPhase::Settling(_) if server.is_clean() => self.settled(id, now, io),
            ServerPhase::Preparing(Preparation::Hear) => self.prepared(id, now, io),
            _ => {}
        }
        self.finish(now, io);
    }

    /// Something happened on the socket of a parked server. If it still is parked here, it gets a
    /// slot again and is read, since an idle server has nothing to say but bad news.
    pub fn parked_readable(
        &mut self,
        pool: PoolId,
        is_it: impl Fn(&X::Transport) -> bool,
        io: &mut impl Io<X>,
    ) -> Option<ServerId> {
        let worker = self.worker;
        let is_it = |parked: &Parked<_>| is_it(&parked.transport);
        let parked = self.exchange.pool(pool, |pool| pool.take_parked(worker, is_it))?;
        let id = self.attach(parked, io);
        self.server_mut(id).phase = ServerPhase::Settling(Settling::Fresh);
        Some(id)
    }

    /// The server's socket is gone, or it has said something it must not.
    pub fn server_closed(
        &mut self,
        id: ServerId,
        reason: CloseReason<'_>,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        self.lose_server(id, reason, now, io);
        self.finish(now, io);
    }

    /// A cancel request is under way no longer.
    pub fn cancel_finished(
        &mut self,
        cancel: u64,
        end: CancelEnd,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        self.end_cancel(cancel, end, now, io);
        self.finish(now, io);
    }
}

/// Of other workers, of other processes, and of operators.
impl<X: Exchange> Engine<X> {
    /// What another worker has to say.
    pub fn handle_mail(&mut self, mail: Mail<X::Transport>, now: Micros, io: &mut impl Io<X>) {
        self.read_mail(mail, now, io);
        self.finish(now, io);
    }

    /// What was imported is ours now: servers without a client are parked, clients that waited for a
    /// server wait again, and a client whose database is not configured any more is told so.
    pub fn begin_imported(&mut self, imported: Imported, now: Micros, io: &mut impl Io<X>) {
        let Imported { clients, parked } = imported;
        for id in parked {
            self.place(id, now, io);
        }
        self.finish(now, io);
        self.begin_imported_clients(clients, now, io);
        self.finish(now, io);
    }

    /// The configuration was read again; the pools know already.
    pub fn set_config(&mut self, config: Arc<Config>) {
        self.limits_users = limits_users(&config);
        self.warms_pools = true;
        self.config = config;
        self.credentials.clear();
        self.exchange.limits(|limits| limits.guesses.clear());
        for (id, view) in self.pools.iter_mut() {
            let settings = self.exchange.pool(id, |pool| pool.settings.clone());
            if settings.forced_user {
                self.changed_user.retain(|pool| *pool != id);
            } else if view.settings.forced_user {
                self.changed_user.push(id);
            }
            view.settings = settings;
        }
    }

    /// From now on nobody new is let in, or nobody is linked any more.
    pub fn begin_drain(&mut self, how: Drain, now: Micros, io: &mut impl Io<X>) {
        self.drain = Some(how);
        if how == Drain::WaitForServers {
            self.close_gates();
        }
        self.review(now, io);
    }

    /// The client that the operator chose (KILL_CLIENT). False if it has gone meanwhile.
    pub fn kill_client(
        &mut self,
        id: ClientId,
        serial: u64,
        now: Micros,
        io: &mut impl Io<X>,
    ) -> bool {
        let found = self.clients.get(id.0 as usize).is_some_and(|client| client.serial == serial);
        if found {
            self.disconnect(id, "admin forced disconnect", now, io);
        }
        self.finish(now, io);
        found
    }

    /// The client did not come to rest in time for a suspension.
    pub fn drop_suspended(&mut self, id: ClientId, now: Micros, io: &mut impl Io<X>) {
        if self.clients.contains(id.0 as usize) {
            self.disconnect(id, "suspend_timeout", now, io);
        }
        self.finish(now, io);
    }

    /// A host name leads elsewhere; `is_there` and `is_parked_there` tell which servers are connected
    /// to an address that `host` has left.
    pub fn close_moved(
        &mut self,
        host: &str,
        is_there: impl Fn(ServerId) -> bool,
        is_parked_there: impl Fn(&X::Transport) -> bool,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        self.close_moved_of_host(host, is_there, is_parked_there, now, io);
        self.finish(now, io);
    }
}
