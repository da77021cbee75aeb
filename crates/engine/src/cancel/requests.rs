//! Cancel requests. Only one worker knows the key of a client, so the worker that receives a
//! request asks all of them. The client's worker sends the server's own key to the server's
//! address, and links the server to no other client until that is over. A peer's key is forwarded
//! to that peer with an increased hop count. If the peer cannot be reached, the request is repeated
//! until `cancel_wait_timeout`.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use wire::startup::CancelKey;
use wire::{cancel_key, frontend};

use crate::cancel::outcome::{CancelEnd, CancelOutcome, Requester};
use crate::cancel::signaling::Verdict;
use crate::client::Client;
use crate::context::Context;
use crate::ids::{ClientId, Identity, Micros, PoolId, ServerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::operator::report::{CancelRow, CancelTarget};
use crate::server::{Preparation, Server, ServerPhase};
use crate::settings::Target;
use crate::shell::{Event, Exchange, Io, OtherProcess};

/// The pause after a failed attempt to reach a peer.
const PEER_RETRY: Micros = 1_000_000;

/// The cancel requests on their way, by the number by which the shell knows them.
#[derive(Debug, Default)]
pub(crate) struct Cancels(HashMap<u64, Cancel, RandomState>);

/// A cancel request on its way to PostgreSQL or to a peer.
#[derive(Debug)]
struct Cancel {
    to: To,
    /// The client that waits for the request to end; None if the server's own client was lost.
    requester: Option<Requester>,
    /// When it is tried again, if the peer could not be reached.
    again_at: Option<Micros>,
}

/// The destination of a cancel request.
#[derive(Debug)]
enum To {
    /// To the server in this slot, if its serial number still is the same.
    Server(ServerId, u64),
    /// To this peer, with the key from the client's request.
    Peer(u32, CancelKey),
    /// To the other process of an online restart.
    Process,
}

/// A cancel request that is over.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The server that it was for, and the server's serial number.
    pub(crate) server: Option<(ServerId, u64)>,
    pub(crate) requester: Option<Requester>,
}

/// A cancel request that is to be repeated.
#[derive(Debug)]
pub(crate) struct Due {
    pub(crate) key: CancelKey,
    pub(crate) requester: Requester,
}

impl Cancels {
    fn begin(&mut self, cancel: u64, to: To, requester: Option<Requester>) {
        self.0.insert(cancel, Cancel { to, requester, again_at: None });
    }

    /// Forwards the request to the other processes of an online restart, which may serve the key's
    /// client. Returns the number of processes asked.
    pub(crate) fn ask_processes<X: Exchange>(
        &mut self,
        key: &CancelKey,
        requester: Requester,
        context: &mut Context,
        io: &mut impl Io<X>,
    ) -> u16 {
        let mut packet = Vec::new();
        frontend::cancel_request(&mut packet, key.pid, &key.secret);
        let mut asked = 0;
        for to in [OtherProcess::Predecessor, OtherProcess::Successor] {
            let cancel = context.next_serial();
            if io.forward_to_process(cancel, to, requester.1, &packet) {
                self.begin(cancel, To::Process, Some(requester));
                asked += 1;
            }
        }
        asked
    }

    /// Forwards the request to the peer that the key belongs to. Err: why that is not possible.
    pub(crate) fn pass_on<X: Exchange>(
        &mut self,
        key: &CancelKey,
        requester: Requester,
        context: &mut Context,
        io: &mut impl Io<X>,
    ) -> Result<(), &'static str> {
        let Some((peer, number)) = passed_on(key) else {
            return Err("failed to forward cancel request because its TTL was exhausted");
        };
        let target = context.config.peers.get(&peer).and_then(|entry| {
            let host = entry.hosts.first()?;
            Some(Target::new(host, entry.port))
        });
        let target = target.ok_or("could not find peer to forward request to")?;
        let mut secret = (number as u32).to_be_bytes().to_vec();
        secret.extend_from_slice(key.secret.get(4..).unwrap_or_default());
        let mut packet = Vec::new();
        frontend::cancel_request(&mut packet, key.pid, &secret);
        let cancel = context.next_serial();
        self.begin(cancel, To::Peer(peer, key.clone()), Some(requester));
        io.forward_cancel(cancel, peer, &target, &packet);
        Ok(())
    }

    /// Sends a request to a server, unless one is under way. `identity`: its pool's.
    pub(crate) fn send<X: Exchange>(
        &mut self,
        on: ServerId,
        server: &mut Server,
        requester: Option<Requester>,
        identity: &Identity,
        context: &mut Context,
        io: &mut impl Io<X>,
    ) {
        if server.cancel.is_under_way() {
            return;
        }
        let cancel = context.next_serial();
        server.cancel.begin();
        let mut packet = Vec::new();
        frontend::cancel_request(&mut packet, server.key.pid, &server.key.secret);
        self.begin(cancel, To::Server(on, server.serial), requester);
        io.event(Event::CancelOpening { name: (&identity.database, &identity.user) });
        io.send_cancel(cancel, on, &packet);
    }

    /// Ends a request. One for a peer that could not be reached is kept, to be repeated.
    pub(crate) fn end(&mut self, id: u64, end: CancelEnd, now: Micros) -> Option<Ended> {
        let cancel = self.0.remove(&id)?;
        let requester = cancel.requester;
        match cancel.to {
            To::Server(server, serial) => Some(Ended { server: Some((server, serial)), requester }),
            To::Peer(..) if end == CancelEnd::Unsent => {
                let again_at = Some(now + PEER_RETRY);
                self.0.insert(id, Cancel { again_at, ..cancel });
                None
            }
            To::Peer(..) | To::Process => Some(Ended { server: None, requester }),
        }
    }

    /// Removes the requests for peers that are to be repeated now, and returns them.
    pub(crate) fn take_due(&mut self, now: Micros) -> Vec<Due> {
        let is_due = |cancel: &Cancel| cancel.again_at.is_some_and(|at| at <= now);
        let mut due: Vec<_> = self.0.extract_if(|_, cancel| is_due(cancel)).collect();
        due.sort_unstable_by_key(|(id, _)| *id);
        let of_peer = |(_, cancel): (u64, Cancel)| match cancel {
            Cancel { to: To::Peer(_, key), requester: Some(requester), .. } => {
                Some(Due { key, requester })
            }
            Cancel { to: To::Peer(..) | To::Server(..) | To::Process, .. } => None,
        };
        due.into_iter().filter_map(of_peer).collect()
    }

    /// Returns the requests on their way to servers and peers, the oldest first. `pool_of` returns
    /// the pool of the server in a slot, if it has this serial number.
    pub(crate) fn rows(&self, pool_of: impl Fn(ServerId, u64) -> Option<PoolId>) -> Vec<CancelRow> {
        let row = |(&id, cancel): (&u64, &Cancel)| {
            let to = match cancel.to {
                To::Server(server, serial) => CancelTarget::Pool(pool_of(server, serial)?),
                To::Peer(peer, _) => CancelTarget::Peer(peer),
                To::Process => return None,
            };
            let requester = cancel.requester.map_or(0, |(_, _, serial)| serial);
            Some(CancelRow { id, to, requester })
        };
        let mut rows: Vec<_> = self.0.iter().filter_map(row).collect();
        rows.sort_unstable_by_key(|row| row.id);
        rows
    }
}

/// Does this key belong to a client of a peer?
pub(crate) fn is_of_peer(key: &CancelKey, context: &Context) -> bool {
    let own = context.config.global.peer_id;
    own > 0 && key.number().is_some_and(|(number, _)| u32::from(cancel_key::peer(number)) != own)
}

/// Returns the peer of a key, and the key's number for the peer; None if the request was forwarded
/// too often.
fn passed_on(key: &CancelKey) -> Option<(u32, u64)> {
    let (number, _) = key.number()?;
    Some((u32::from(cancel_key::peer(number)), cancel_key::passed_on(number)?))
}

/// The effect that the end of a cancel request has on its server.
#[derive(Debug)]
pub(crate) enum CancelOver {
    /// Nothing.
    GoesOn,
    /// This client's transaction is over, and what it has left may be judged now.
    MayBeJudged(ClientId),
    /// It may get another client.
    IsFree,
}

impl Server {
    /// Does it work for its client, so that a cancel request has an effect? While one is under way,
    /// another one has no effect.
    pub(crate) fn takes_cancel(&self) -> Result<(), CancelOutcome> {
        // A query of Weir's own may wait for a lock as long as the client's request would.
        let renews = matches!(
            &*self.phase, ServerPhase::Preparing(step) if step.renews() || step.has_sent()
        );
        let works = renews || matches!(*self.phase, ServerPhase::Linked);
        let busy = works && !self.ledger.owes_nothing();
        match (busy, self.cancel.is_under_way()) {
            (true, false) => Ok(()),
            (true, true) => Err(CancelOutcome::Sent),
            (false, _) => Err(CancelOutcome::Idle),
        }
    }

    /// Ends the request for this server. Another client may get the server only if the request can
    /// no longer reach it.
    pub(crate) fn cancel_over(&mut self, end: CancelEnd) -> CancelOver {
        self.cancel.end();
        if end == (CancelEnd::Late { sent: true }) {
            self.doomed.condemn(CloseReason::CancelMayCome);
        }
        let waits = matches!(*self.phase, ServerPhase::Finishing | ServerPhase::Settling(_));
        let over = self.doomed.is_some() || self.ledger.is_at_rest();
        let judged = matches!(*self.phase, ServerPhase::Preparing(Preparation::AwaitCancel))
            && self.is_clean();
        match *self.client {
            Some(client) if judged => CancelOver::MayBeJudged(client),
            None if waits && over => CancelOver::IsFree,
            Some(_) | None => CancelOver::GoesOn,
        }
    }
}

/// The effect that an answer has on the client that has sent a cancel request or a signal.
#[derive(Debug)]
pub(crate) enum Answered {
    /// It waits for more, or for nothing.
    Waits,
    /// Its cancel request is over.
    Over(CancelOutcome),
    /// Its call that signals another client is decided.
    Decided(Verdict),
}

impl Client {
    /// Takes one answer.
    pub(crate) fn cancel_answered(&mut self, answer: CancelOutcome) -> Answered {
        match self.phase.cancel_answered(answer) {
            None => self.signaled(answer).map_or(Answered::Waits, Answered::Decided),
            Some((0, outcome)) => Answered::Over(outcome),
            Some(_) => Answered::Waits,
        }
    }
}
