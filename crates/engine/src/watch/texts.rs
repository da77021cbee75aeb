//! The texts of clients: a fingerprint, a sample without literals, and signs.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::quality::RandomState;
use sql::Signs;

use crate::settings::PoolSettings;

/// The number of bytes of a text that are searched for signs.
pub(super) const HEAD_LEN_MAX: usize = 65_536;
/// The maximum length of the part of a text that is normalized, and the maximum length of a normal
/// form.
pub(crate) const NORMALIZED_LEN_MAX: usize = 16_384;
const NORMAL_LEN_MAX: usize = 4_096;
/// The number of characters of a normal form that are shown.
pub const SAMPLE_CHARS_MAX: usize = 200;
/// Texts that a worker remembers, about 400 bytes each.
const TEXTS_MAX: usize = 2_048;
/// Names of prepared statements that a worker remembers, for all clients together.
const NAMES_MAX: usize = 8_192;

/// A text as an operator may see it.
#[derive(Debug, PartialEq, Eq)]
pub struct Text {
    /// PostgreSQL's `left(md5(normal form), 16)` as a number.
    pub fingerprint: u64,
    /// The beginning of the normal form.
    pub sample: Box<str>,
    /// Does it only begin or end a transaction?
    pub(super) is_control: bool,
    pub(super) seen: Signs,
    /// Is it a match of `pin_functions`?
    pub(super) is_pinned: bool,
    pub(super) words: Words,
}

/// Facts that the words of a normal form tell more exactly than the signs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) temporary: bool,
    /// ON COMMIT DROP, and no AS: the table's contents call no function.
    pub(super) on_commit_drop: bool,
    /// It takes an advisory lock of the session, and does not only release one.
    pub(super) locks: bool,
    pub(super) discards_all: bool,
    /// It asks for the server's process id, and does not only compare it within the statement.
    pub(super) keeps_process_id: bool,
}

impl Words {
    fn of(normal: &str, seen: Signs) -> Self {
        let has = |words: &str| normal.contains(words);
        Self {
            temporary: has("temp ") || has("temporary ") || has("pg_temp."),
            on_commit_drop: has("on commit drop") && !has(" as "),
            locks: has("advisory_lock"),
            discards_all: normal == "discard all",
            keeps_process_id: seen.contains(Signs::PROCESS_ID)
                && sql::keeps_process_id(normal.as_bytes()),
        }
    }
}

/// The normal form of a text, and its fingerprint.
pub(crate) fn with_normal_form<R>(
    head: &[u8],
    is_whole: bool,
    f: impl FnOnce(&[u8], u64) -> R,
) -> R {
    let mut normal = [0; NORMAL_LEN_MAX];
    let first = &head[..head.len().min(NORMALIZED_LEN_MAX)];
    let len = sql::normalize(first, is_whole && first.len() == head.len(), &mut normal);
    f(&normal[..len], wire::md5::fingerprint(&normal[..len]))
}

impl Text {
    fn new(head: &[u8], is_whole: bool, settings: &PoolSettings) -> Self {
        with_normal_form(head, is_whole, |normal, fingerprint| {
            Self::of(head, normal, fingerprint, settings)
        })
    }

    fn of(head: &[u8], normal: &[u8], fingerprint: u64, settings: &PoolSettings) -> Self {
        let first = &head[..head.len().min(NORMALIZED_LEN_MAX)];
        let normal = String::from_utf8_lossy(normal);
        let seen = sql::scan_either(head).signs;
        Self {
            fingerprint,
            sample: sample(&normal),
            is_control: is_control(&normal),
            seen,
            is_pinned: settings.pins(first),
            words: Words::of(&normal, seen),
        }
    }
}

fn sample(normal: &str) -> Box<str> {
    match normal.char_indices().nth(SAMPLE_CHARS_MAX) {
        None => normal.into(),
        Some((end, _)) => normal[..end].into(),
    }
}

fn is_control(normal: &str) -> bool {
    let word = normal.split([' ', ';']).next().unwrap_or_default();
    let controls = matches!(
        word,
        "begin" | "start" | "commit" | "end" | "rollback" | "abort" | "savepoint" | "release"
    );
    // A text of several statements is more than its BEGIN.
    controls && !normal.contains(';')
}

/// Tables of fixed size, without chains: of two entries with the same slot, the later one stays. A
/// client cannot choose slots, since the hashes are secret.
#[derive(Debug)]
pub(super) struct Texts {
    hasher: RandomState,
    known: Box<[Slot]>,
    /// Texts by client and name.
    named: Box<[Slot]>,
    /// Part of each hash of a text. With another one, no text is known.
    epoch: u64,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    hash: u64,
    /// The length of a text, or the client of a name.
    tag: u64,
    text: Option<Arc<Text>>,
}

impl Default for Texts {
    fn default() -> Self {
        Self {
            hasher: RandomState::default(),
            known: vec![Slot::default(); TEXTS_MAX].into(),
            named: vec![Slot::default(); NAMES_MAX].into(),
            epoch: 0,
        }
    }
}

impl Texts {
    /// Returns what is known of a text, whose end may be missing.
    pub(super) fn of(&mut self, text: &[u8], settings: &PoolSettings) -> Arc<Text> {
        let head = &text[..text.len().min(HEAD_LEN_MAX)];
        let hash = self.hasher.hash_one((self.epoch, head));
        let slot = &mut self.known[hash as usize % TEXTS_MAX];
        let tag = text.len() as u64;
        if let Some(known) = slot.text.as_ref().filter(|_| (slot.hash, slot.tag) == (hash, tag)) {
            return known.clone();
        }
        let made = Arc::new(Text::new(head, head.len() == text.len(), settings));
        *slot = Slot { hash, tag, text: Some(made.clone()) };
        made
    }

    /// Notes the text of a client's prepared statement.
    pub(super) fn name(&mut self, client: u64, name: &[u8], text: Arc<Text>) {
        let hash = self.hasher.hash_one((client, name));
        self.named[hash as usize % NAMES_MAX] = Slot { hash, tag: client, text: Some(text) };
    }

    /// Returns the text of a client's prepared statement, if it is remembered.
    pub(super) fn named(&self, client: u64, name: &[u8]) -> Option<Arc<Text>> {
        let hash = self.hasher.hash_one((client, name));
        let slot = &self.named[hash as usize % NAMES_MAX];
        slot.text.clone().filter(|_| (slot.hash, slot.tag) == (hash, client))
    }

    /// From now on, each text is read anew.
    pub(super) fn forget_signs(&mut self) {
        self.epoch += 1;
    }
}
