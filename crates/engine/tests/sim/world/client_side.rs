//! Actions of clients, and of the shell with their sockets.

use engine::cancel::CancelEnd;
use wire::startup;

use super::{Action, Side, World};
use crate::client::{Client, Phase, recovery};
use crate::net::READ_LEN_MAX;
use crate::reference::show_all;
use crate::script::{Manner, Step};

impl World {
    pub(super) fn possible_for_client(&mut self, at: usize, actions: &mut Vec<Action>) {
        let now = self.net.now;
        if self.clients[at].is_absent() {
            return self.possible_for_absent(at, actions);
        }
        let socket = &self.net.clients[at];
        let client = &self.clients[at];
        if client.can_go_on(now) && !self.awaits_sleep(at) {
            actions.push(Action::ClientGoesOn(at));
        }
        let speaks = now >= client.thinks_until && !client.is_done();
        if !client.to_send.is_empty() && socket.up.room() > 0 && speaks {
            actions.push(Action::ClientSends(at));
        }
        let has_answer = !socket.down.data.is_empty() || socket.down.is_at_end();
        if has_answer && !client.is_done() && now >= client.deaf_until {
            actions.push(Action::ClientReads(at));
        }
        let careless = self.setup.careless && self.stormy && !client.is_done();
        // More likely in the middle of a message, or while Weir queries its server.
        let odds = match client.to_send.is_empty() {
            _ if careless && self.is_asked_by_pooler(at) => 10,
            true => 4000,
            false => 500,
        };
        if careless && self.rng.once_in(odds) {
            actions.push(Action::ClientVanishes(at));
        }
        let socket = &self.net.clients[at];
        if !socket.pending.is_empty() && socket.down.room() > 0 {
            actions.push(Action::ShellFlushesClient(at));
        }
        let Some(slot) = socket.slot else { return };
        // The client is not read while the server's kernel buffer is full.
        let engine = &self.engines[socket.worker];
        let stalled = engine.look().server_of(slot).is_some_and(|on| {
            let at = self.net.server_slots[socket.worker].get(&on.0);
            at.is_some_and(|at| !self.net.servers[*at].pending.is_empty())
        });
        let is_left = self.suspended[socket.worker] && engine.look().client_at_rest(slot)
            || self.taking_over.is_some() && engine.look().client_can_stop(slot);
        if socket.latch && !socket.blocked && !stalled && !is_left {
            actions.push(Action::ShellReadsClient(at));
        }
        if self.stormy && !socket.latch && !socket.blocked && self.rng.once_in(200) {
            actions.push(Action::SpuriousEvent(at));
        }
    }

    /// It comes now and then, or when all others are done. It does not come to a Weir that refuses
    /// all.
    fn possible_for_absent(&mut self, at: usize, actions: &mut Vec<Action>) {
        if self.draining.is_some() {
            self.clients[at].phase = Phase::Done;
            return;
        }
        let is_last = self.clients.iter().all(|client| client.is_done() || client.is_absent());
        let worker = self.net.clients[at].worker;
        if !self.suspended[worker]
            && self.taking_over.is_none()
            && (is_last || self.rng.once_in(150))
        {
            actions.push(Action::ClientComes(at));
        }
    }

    /// It is to cancel a sleep that has not begun yet.
    fn awaits_sleep(&self, at: usize) -> bool {
        let client = &self.clients[at];
        let wants = matches!(client.script.front(), Some(Step::CancelSleep { .. }));
        wants && client.reference.backend.sleep().is_some() && !self.sleeps(at)
    }

    fn sleeps(&self, at: usize) -> bool {
        let mut servers = self.net.servers.iter();
        servers.any(|server| server.backend.sleeper() == Some(at) && !server.backend.is_gone())
    }

    fn is_asked_by_pooler(&self, at: usize) -> bool {
        let socket = &self.net.clients[at];
        let on = socket.slot.and_then(|slot| self.engines[socket.worker].look().server_of(slot));
        let server = on.and_then(|on| self.net.server_slots[socket.worker].get(&on.0));
        let Some(server) = server.filter(|_| self.setup.may_be_auto()) else {
            return false;
        };
        let unread: Vec<u8> = self.net.servers[*server].up.data.iter().copied().collect();
        let says = |words: &[u8]| unread.windows(words.len()).any(|part| part == words);
        // Weir sets its settings, probes its server, or moves its channels.
        says(b"set_config") || says(b"SELECT kind") || says(b"NOTIFY \"_weir_")
    }

    pub(super) fn client_goes_on(&mut self, at: usize) {
        let Some(step) = self.clients[at].script.pop_front() else { return };
        let client = &mut self.clients[at];
        match step {
            Step::Send(bytes) => {
                self.net.log(|| format!("client {at} will send {}", show_all(&bytes)));
                client.reference.sent(&bytes);
                client.follow_channels();
                client.may_lose_session |= client.reference.backend.has_lost_role();
                client.to_send.extend(bytes);
                self.summary.requests += 1;
            }
            Step::Await | Step::Hear => {}
            Step::Recover => {
                self.summary.kept += 1;
                client.to_send.extend(recovery(at));
            }
            Step::AwaitRecovery => {}
            Step::Think(micros) => client.thinks_until = self.net.now + micros,
            Step::Cancel { wrong } => self.ask_cancel(at, wrong),
            Step::CancelSleep { tries } => {
                if self.sleeps(at) {
                    self.ask_cancel(at, false);
                    // A cancel request that arrives while another one is pending has no effect.
                    let client = &mut self.clients[at];
                    client.thinks_until = self.net.now + 70_000;
                    if tries > 1 {
                        client.script.push_front(Step::CancelSleep { tries: tries - 1 });
                    }
                }
            }
            Step::Doomed => client.may_end = true,
            Step::Lax => client.is_lax = true,
            Step::Leave(manner) => self.client_leaves(at, manner),
        }
    }

    fn ask_cancel(&mut self, at: usize, wrong: bool) {
        let client = &mut self.clients[at];
        let Some((pid, mut secret)) = client.key.clone() else { return };
        match wrong {
            true => secret[3] ^= 1,
            false => client.cancels += 1,
        }
        let canceler = Client::canceler(pid, &secret, client.who.clone());
        let canceler = self.add_client(canceler);
        self.accept(canceler);
    }

    fn client_leaves(&mut self, at: usize, manner: Manner) {
        self.net.log(|| format!("client {at} leaves: {manner:?}"));
        let socket = &mut self.net.clients[at];
        match manner {
            Manner::Terminate => {
                let mut bytes = Vec::new();
                wire::frontend::terminate(&mut bytes);
                self.clients[at].to_send.extend(bytes);
                self.clients[at].phase = Phase::Leaving;
            }
            Manner::Stay => {}
            Manner::Finish => {
                socket.up.ended = true;
                socket.latch = true;
                self.clients[at].phase = Phase::Leaving;
            }
            Manner::Reset => {
                socket.up.data.clear();
                socket.up.ended = true;
                socket.down.broken = true;
                socket.down.data.clear();
                // The kernel reports this whether or not the client is read.
                socket.latch = true;
                socket.blocked = false;
                self.clients[at].phase = Phase::Done;
            }
        }
    }

    /// Lets a client vanish at any moment of its work.
    pub(super) fn client_vanishes(&mut self, at: usize) {
        let lost = self.rng.once_in(2);
        self.clients[at].to_send.clear();
        self.client_leaves(at, if lost { Manner::Reset } else { Manner::Finish });
    }

    pub(super) fn client_sends(&mut self, at: usize) {
        let client = &mut self.clients[at];
        let socket = &mut self.net.clients[at];
        let count = self.rng.chunk(client.to_send.len()).min(socket.up.room());
        let (count, dies) = self.speak(Side::Client, count);
        let client = &mut self.clients[at];
        let socket = &mut self.net.clients[at];
        let bytes: Vec<u8> = client.to_send.drain(..count).collect();
        socket.up.write(&bytes);
        socket.latch = true;
        if dies {
            self.client_vanishes(at);
        }
    }

    pub(super) fn client_reads(&mut self, at: usize) -> Result<(), String> {
        let client = &mut self.clients[at];
        let pipe = &mut self.net.clients[at].down;
        if pipe.is_at_end() {
            return client.ended();
        }
        let count = self.rng.chunk(pipe.data.len());
        let was_running = matches!(client.phase, Phase::Running);
        client.receive(&pipe.read(count))?;
        if !was_running && matches!(client.phase, Phase::Running) && self.net.clients[at].barred {
            return Err(format!("let in to {}, which is disabled", client.who.database));
        }
        if self.setup.sluggish && self.stormy && self.rng.once_in(40) {
            client.deaf_until = self.net.now + self.rng.below(300_000) as u64;
        }
        if client.reference.is_at_rest() {
            client.may_lose_session = client.reference.backend.has_lost_role();
            client.reference.backend.copy_refused = false;
            // Every result that it was told is true.
            for tag in client.reference.backend.inserted.drain(..) {
                if !self.inserted.contains(&tag) {
                    return Err(format!("{tag} was acknowledged and never done"));
                }
            }
        }
        if was_running && matches!(client.phase, Phase::Leaving) {
            // After a disconnect, a driver closes its side, whatever Weir does.
            client.to_send.clear();
            self.client_leaves(at, Manner::Finish);
        }
        Ok(())
    }

    pub(super) fn shell_reads_client(&mut self, at: usize) {
        let socket = &mut self.net.clients[at];
        let Some(slot) = socket.slot else { return };
        let worker = socket.worker;
        if socket.up.is_at_end() {
            socket.latch = false;
            let (engine, mut io) = self.engine(worker);
            return engine.client_closed(slot, &mut io);
        }
        // This comes first, since the engine may resume the client in the call.
        socket.blocked = true;
        let (engine, mut io) = self.engine(worker);
        let wanted = engine.client_readable(slot, &mut io);
        let socket = &mut self.net.clients[at];
        if socket.slot != Some(slot) {
            return;
        }
        if !wanted {
            return;
        }
        socket.blocked = false;
        let available = socket.up.data.len().min(READ_LEN_MAX);
        if available == 0 {
            socket.latch = socket.up.ended;
            let (engine, mut io) = self.engine(worker);
            return engine.client_quiet(slot, &mut io);
        }
        let bytes = socket.up.read(self.rng.chunk(available));
        socket.latch = !socket.up.data.is_empty() || socket.up.ended;
        let (engine, mut io) = self.engine(worker);
        engine.client_bytes(slot, &bytes, &mut io);
    }

    /// Tells the engine that the request is over.
    pub(super) fn cancel_ends(&mut self, at: usize, end: CancelEnd) {
        let cancel = &mut self.net.cancels[at];
        cancel.finished = true;
        let (worker, cancel) = (cancel.worker, cancel.cancel);
        let (engine, mut io) = self.engine(worker);
        engine.cancel_finished(cancel, end, &mut io);
    }

    /// It is late and may still arrive, or it is lost.
    pub(super) fn cancel_fails(&mut self, at: usize) {
        let is_late = self.rng.once_in(2);
        self.net.cancels[at].delivered = !is_late;
        self.net.cancels[at].due += self.rng.below(100_000) as u64;
        let end = if is_late { CancelEnd::Late { sent: true } } else { CancelEnd::Unsent };
        self.cancel_ends(at, end);
    }

    pub(super) fn cancel_arrives(&mut self, at: usize) -> Result<(), String> {
        let cancel = &mut self.net.cancels[at];
        cancel.delivered = true;
        let Ok(startup::StartupRequest::Cancel(key)) = startup::parse(&cancel.packet) else {
            return Err("a malformed cancel request".into());
        };
        let found = self.net.servers.iter().position(|server| {
            let backend = &server.backend;
            backend.pid == key.pid && backend.secret[..] == key.secret[..] && !backend.is_gone()
        });
        let Some(found) = found else { return Ok(()) };
        let backend = &mut self.net.servers[found].backend;
        let sleeper = backend.sleeper();
        if !backend.cancel() {
            return Ok(());
        }
        self.net.servers[found].wakes_at = None;
        self.summary.cancels_hit += 1;
        // Weir itself may cancel the query of a client that has left.
        let asked = sleeper.is_some_and(|client| {
            self.clients[client].cancels > 0 || self.net.clients[client].slot.is_none()
        });
        self.run_server(found);
        if asked { Ok(()) } else { Err(format!("canceled {sleeper:?}, who had not asked for it")) }
    }
}
