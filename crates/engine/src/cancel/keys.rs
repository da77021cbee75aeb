//! The cancel keys that this worker has given to its clients at login. The upper half of a key is
//! the process id, the lower half is the secret.

use std::collections::BTreeMap;

use wire::cancel_key;
use wire::startup::CancelKey;

use crate::client::Client;
use crate::context::Context;
use crate::ids::ClientId;
use crate::shell::{Exchange, Io};

/// Attempts to draw a cancel key with an unused process id.
const DRAWN_MAX: usize = 8;

/// The clients by cancel key, ordered by process id.
#[derive(Debug, Default)]
pub(crate) struct Keys(BTreeMap<u64, ClientId>);

impl Keys {
    /// Notes the key of a client that has been welcomed.
    pub(crate) fn insert(&mut self, key: u64, id: ClientId) {
        self.0.insert(key, id);
    }

    /// Forgets the key of a client that has left.
    pub(crate) fn remove(&mut self, key: u64) {
        self.0.remove(&key);
    }

    /// Returns the client that has the process id and the secret of this key. The rest of the key
    /// must be right, too ([`Client::has_tag`]).
    pub(crate) fn find(&self, key: &CancelKey, context: &Context) -> Option<ClientId> {
        self.0.get(&number_of(key, context)?).copied()
    }

    /// Returns the clients that have this process id, normally at most one.
    pub(crate) fn of_process(&self, process_id: u32) -> impl Iterator<Item = ClientId> + '_ {
        let first = u64::from(process_id) << 32;
        let keys = self.0.range(first..=first | u64::from(u32::MAX));
        keys.map(|(_, id)| *id)
    }

    /// Draws an unused cancel key. `process_id`: its process id, if that is given.
    pub(crate) fn draw<X: Exchange>(
        &self,
        peer: u16,
        process_id: Option<u32>,
        io: &mut impl Io<X>,
    ) -> u64 {
        let mut key = self.draw_any(peer, io);
        if let Some(process_id) = process_id {
            key = (u64::from(process_id) << 32) | (key & 0xffff_ffff);
        }
        while key == 0 || self.0.contains_key(&key) {
            key = (key & !0xffff_ffff) | u64::from((key as u32).wrapping_add(4));
        }
        key
    }

    /// Draws a cancel key whose process id no other client of this worker has, if possible. With
    /// peers there are few process ids.
    fn draw_any<X: Exchange>(&self, peer: u16, io: &mut impl Io<X>) -> u64 {
        let mut key = 0;
        for _ in 0..DRAWN_MAX {
            let mut random = [0; 8];
            io.random(&mut random);
            key = u64::from_be_bytes(random) & 0x7fff_ffff_ffff_ffff;
            // With peers a key names its process, which leaves no room for a server's process id.
            if peer > 0 {
                key = cancel_key::of_peer(key, peer);
            }
            key = cancel_key::of_no_process(key);
            if self.of_process((key >> 32) as u32).next().is_none() {
                break;
            }
        }
        key
    }
}

impl Client {
    /// Has this key the tag of the client's own key, if that has one?
    pub(crate) fn has_tag(&self, key: &CancelKey, context: &Context) -> bool {
        key.number().is_some_and(|(_, tag)| self.key.has_tag(tag, &context.seed))
    }
}

/// Returns the key's process id and secret, as its client got them.
fn number_of(key: &CancelKey, context: &Context) -> Option<u64> {
    let (number, _) = key.number()?;
    match context.config.global.peer_id > 0 {
        true => Some(cancel_key::fresh(number)),
        false => Some(number),
    }
}
