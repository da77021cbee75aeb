//! Settings that are restored in one write with the client's request (`lifecycle/ahead.rs`). Only
//! the library `weir` 1.1 and later makes that safe: after a text that failed to restore settings,
//! the server refuses everything (`extension/apply.c`).

use serde::{Deserialize, Serialize};

use crate::login::server_login::ServerLogin;
use crate::session::state_report::StateReport;
use crate::values::Values;
use crate::vars::{Slots, TrackedNames};

/// The startup parameter with the key.
pub(crate) const KEY: &str = "weir.key";
const KEY_LEN: usize = 32;
/// The length of the part of the key that is in the mark of a text. The rest stays unknown to other
/// sessions, which can read texts in pg_stat_activity.
const MARK_LEN: usize = 16;

/// A secret that Weir shares with one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key([u8; KEY_LEN]);

impl Key {
    /// Writes random bytes as digits.
    pub(crate) fn new(random: [u8; KEY_LEN / 2]) -> Self {
        let digit = |value: u8| b"0123456789abcdef"[usize::from(value & 15)];
        let mut key = [0; KEY_LEN];
        for (pair, byte) in key.chunks_exact_mut(2).zip(random) {
            pair.copy_from_slice(&[digit(byte >> 4), digit(byte)]);
        }
        Self(key)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A server that can be sent settings and a request in one write.
#[derive(Debug)]
pub struct Ahead {
    key: Key,
    /// The SQL that restores the settings of the client, which has the server but has not sent a
    /// request yet.
    pending: Option<Vec<u8>>,
    /// The server's values before the settings that it is answering.
    under_way: Option<UnderWay>,
    /// Serial number of the client whose address the server shows; 0 = none.
    shown: u64,
}

/// Until the answer, the server counts as having the client's values.
#[derive(Debug)]
struct UnderWay {
    before: Values,
    /// The parameters that the server has reported since.
    reported: Slots,
}

impl Ahead {
    /// None if the server's library does not refuse requests after a failure.
    pub(crate) fn of_login(login: &ServerLogin) -> Option<Box<Self>> {
        let refuses = login.state_report.as_ref().is_some_and(StateReport::refuses_requests);
        refuses.then(|| Self::of_key(login.key))
    }

    /// A server that was sent this key at its login, and shows no client's address.
    pub(crate) fn of_key(key: Key) -> Box<Self> {
        Box::new(Self { key, pending: None, under_way: None, shown: 0 })
    }

    pub(crate) fn key(&self) -> Key {
        self.key
    }

    /// The client may be read: its settings go out with its request.
    pub(crate) fn put_off(&mut self, sql: Vec<u8>) {
        self.pending = Some(sql);
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        self.pending.take()
    }

    /// The settings were sent. `before`: the server's values without them.
    pub(crate) fn sent(&mut self, before: Values) {
        self.under_way = Some(UnderWay { before, reported: Slots::default() });
    }

    /// The server has reported a tracked parameter.
    pub(crate) fn note_reported(&mut self, slot: usize) {
        if let Some(under_way) = &mut self.under_way {
            under_way.reported.add(slot);
        }
    }

    /// The settings are answered. Corrects the server's values: a parameter that was not reported
    /// has not changed. After a RESET it can have another value than the client's, because a reload
    /// has changed the server's default.
    pub(crate) fn answered(&mut self, there: &mut Values, names: &TrackedNames) {
        let Some(UnderWay { before, reported }) = self.under_way.take() else { return };
        for slot in (0..names.len()).filter(|slot| !reported.has(*slot)) {
            if let Some(value) = before.get(slot)
                && there.get(slot) != Some(value)
            {
                there.change(|vars| vars.set(slot, value));
            }
        }
    }

    /// Does the server show the address of the client with this serial number?
    pub(crate) fn shows(&self, serial: u64) -> bool {
        self.shown == serial
    }

    pub(crate) fn note_shown(&mut self, serial: u64) {
        self.shown = serial;
    }

    /// Returns the value of `weir.client` for an address as `Io::client_place` writes it.
    pub(crate) fn of_address(&self, address: &str) -> Vec<u8> {
        [&self.key.0[..], b" ", address.as_bytes()].concat()
    }

    /// Marks a text as one that restores settings.
    pub(crate) fn marked(&self, sql: &[u8]) -> Vec<u8> {
        [b"/*weir ", &self.key.0[..MARK_LEN], b"*/", sql].concat()
    }
}
