//! Prepared statements by name, for modes in which a client meets a different server each time.
//!
//! A statement is its text, its parameter types, and where the names in the text are looked up
//! (`parse_context.rs`). Equal ones are one [`Statement`] with one name on the servers, however many clients
//! call it by whatever names of their own.
//!
//! PostgreSQL settles the types that a client leaves open when it reads the text, and keeps to them
//! even if the table is another one later. So a text that is prepared after a change of the schema
//! is another statement than the same text before.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, OnceLock};

use foldhash::fast::RandomState;
use sql::Seen;

use crate::relay::kept_request::Used;
use crate::relay::parse_context::ParseContext;

/// Statements whose name begins like this belong to the pooler.
pub const SERVER_NAME_PREFIX: &[u8] = b"weir_";

/// One statement, shared by all who prepared it.
#[derive(Debug, PartialEq, Eq)]
pub struct Statement {
    pub id: u64,
    /// The name it has on every server that knows it.
    pub server_name: Box<[u8]>,
    pub sql: Box<[u8]>,
    /// Parameter types as the client sent them: count and OIDs.
    pub types: Box<[u8]>,
    /// What it meant to whoever parsed it.
    pub(crate) context: ParseContext,
    /// What it may leave in a session; looked for when that is first of interest.
    pub(crate) seen: OnceLock<Seen>,
    /// Does the text say that prepared statements are discarded? Looked for likewise.
    pub(crate) discards: OnceLock<bool>,
    /// How many changes of the schema had been seen when it was first prepared.
    pub(crate) schema: u64,
}

impl Statement {
    /// What it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.server_name.len() + self.sql.len() + self.types.len()
    }

    pub fn seen(&self) -> Seen {
        *self.seen.get_or_init(|| sql::scan_either(&self.sql))
    }
}

/// What a shared name takes beside its letters: the numbers of those who share it.
const NAME_COUNTS_BYTES: usize = 2 * size_of::<usize>();

/// Tables with so few entries are not looked through for what is not used any more.
const SWEPT_MIN: usize = 64;

/// A client's own names.
#[derive(Debug, Default)]
pub struct ClientStatements {
    by_name: HashMap<Arc<[u8]>, Named, RandomState>,
    /// Names that the client has closed, and by which message: those whose Close may not be answered
    /// yet.
    closed: HashMap<Arc<[u8]>, u64, RandomState>,
    /// The same in the order of the messages.
    closes: VecDeque<(u64, Arc<[u8]>)>,
    /// What the client was last told about the rows of a statement, by its number.
    told: HashMap<u64, Told, RandomState>,
    /// Names and shapes that came, and names that were discarded, since all were last looked through.
    changes: usize,
}

/// What one of the client's names stands for, and since which of its messages.
#[derive(Clone, Debug)]
struct Named {
    statement: Arc<Statement>,
    since: u64,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    shape: Shape,
    /// Serial number of the message that asked.
    at: u64,
}

/// What a client has by one of its names.
#[derive(Debug)]
pub struct Found {
    pub name: Arc<[u8]>,
    pub used: Used,
    /// What the client was last told about the statement's rows.
    pub told: Option<Shape>,
}

impl ClientStatements {
    /// What one name takes beside its letters.
    pub const ENTRY_BYTES: usize = size_of::<(Arc<[u8]>, Named)>() + NAME_COUNTS_BYTES;

    /// What the client has by that name.
    pub fn find(&self, name: &[u8]) -> Option<Found> {
        let (name, named) = self.by_name.get_key_value(name)?;
        let used = Used { statement: named.statement.clone(), since: named.since };
        Some(Found { name: name.clone(), used, told: self.told(named) })
    }

    /// Serial number of the message that gave it that name, or took it away; that may be forgotten
    /// once it is answered.
    pub fn changed(&self, name: &[u8]) -> Option<u64> {
        let named = self.by_name.get(name).map(|named| named.since);
        named.max(self.closed.get(name).copied())
    }

    /// Every Close is answered.
    #[inline]
    pub fn forget_closes(&mut self) {
        if !self.closes.is_empty() {
            (self.closed, self.closes) = Default::default();
        }
    }

    /// Message `serial` closes the name; those before `first` have been answered.
    pub fn note_close(&mut self, name: &Arc<[u8]>, serial: u64, first: u64) {
        while let Some((old, _)) = self.closes.front()
            && *old < first
            && let Some((old, name)) = self.closes.pop_front()
        {
            if self.closed.get(&name) == Some(&old) {
                self.closed.remove(&name);
            }
        }
        self.closed.insert(name.clone(), serial);
        self.closes.push_back((serial, name.clone()));
    }

    fn told(&self, named: &Named) -> Option<Shape> {
        let told = self.told.get(&named.statement.id)?;
        (told.at >= named.since).then_some(told.shape)
    }

    /// What the client was last told about the rows of a statement that it parsed with message
    /// `since`.
    pub fn shape(&self, since: u64) -> Option<Shape> {
        self.told(self.by_name.values().find(|named| named.since == since)?)
    }

    /// The client has been told with the answer to message `at` what the statement with this number
    /// returns.
    pub fn set_shape(&mut self, id: u64, shape: Shape, at: u64) {
        if self.told.insert(id, Told { shape, at }).is_none() {
            self.changes += 1;
            self.sweep();
        }
    }

    /// `since` is the serial number of the Parse.
    pub fn insert(&mut self, name: Arc<[u8]>, statement: Arc<Statement>, since: u64) {
        self.by_name.insert(name, Named { statement, since });
    }

    /// Shapes of statements that the client does not have any more are forgotten, as soon as that is
    /// worth looking through all of them.
    fn sweep(&mut self) {
        if self.changes <= self.by_name.len() + SWEPT_MIN {
            return;
        }
        self.changes = 0;
        let used: HashSet<u64> = self.by_name.values().map(|named| named.statement.id).collect();
        self.told.retain(|id, _| used.contains(id));
    }

    /// The name, what it stood for, and since which Parse.
    pub fn remove(&mut self, name: &[u8]) -> Option<(Arc<[u8]>, Arc<Statement>, u64)> {
        let (name, named) = self.by_name.remove_entry(name)?;
        if self.by_name.capacity() > SWEPT_MIN && self.by_name.len() < self.by_name.capacity() / 8 {
            self.by_name.shrink_to(2 * self.by_name.len());
        }
        Some((name, named.statement, named.since))
    }

    /// The Parse with this serial number had no effect.
    pub fn remove_parsed(&mut self, name: &[u8], since: u64) {
        if self.by_name.get(name).is_some_and(|named| named.since == since) {
            self.remove(name);
        }
    }

    /// The Close had no effect; but the name may have a new meaning already.
    pub fn restore(&mut self, name: Arc<[u8]>, statement: Arc<Statement>, since: u64) {
        let named = Named { statement, since };
        self.by_name.entry(name).or_insert(named);
    }

    /// `DISCARD ALL` or `DEALLOCATE ALL` was done as message number `serial`: what was parsed
    /// later in the same pipeline stays.
    pub fn discard_before(&mut self, serial: u64) {
        self.by_name.retain(|_, named| named.since > serial);
        self.by_name.shrink_to(2 * self.by_name.len());
        self.told.retain(|_, told| told.at > serial);
        self.told.shrink_to(2 * self.told.len());
    }

    /// Name, statement, since when, and what the client was told of its rows; for another process.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Arc<Statement>, u64, Option<u64>)> {
        self.by_name.iter().map(|(name, named)| {
            let shape = self.told(named).map(|Shape(digest)| digest);
            (&**name, &named.statement, named.since, shape)
        })
    }

    /// As [`ClientStatements::iter`] gave it.
    pub fn import(
        &mut self,
        name: Vec<u8>,
        statement: Arc<Statement>,
        since: u64,
        shape: Option<u64>,
    ) {
        if let Some(digest) = shape {
            let at = self.told.get(&statement.id).map_or(since, |told| told.at.max(since));
            self.told.insert(statement.id, Told { shape: Shape(digest), at });
        }
        self.by_name.insert(name.into(), Named { statement, since });
    }

    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// What the names take; the statements are shared.
    pub fn bytes(&self) -> usize {
        let names: usize = self.by_name.keys().map(|name| name.len()).sum();
        names + self.by_name.capacity() * Self::ENTRY_BYTES
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Has the client no name, not even one that it has again if a Close has no effect?
    pub fn is_surely_empty(&self) -> bool {
        self.is_empty() && self.closes.is_empty()
    }
}

/// In place of a serial number: the statement may be on the server or not, so it has to be closed
/// before it is prepared anew.
pub const DOUBTFUL: u64 = u64::MAX;

/// What one server has prepared, the least recently used first to go.
#[derive(Debug, Default)]
pub struct ServerStatements {
    by_id: HashMap<u64, Prepared, RandomState>,
    clock: u64,
}

#[derive(Debug)]
struct Prepared {
    statement: Arc<Statement>,
    used: u64,
    since: u64,
    /// What it was seen to return. PostgreSQL refuses it rather than have it return anything else.
    shape: Option<Shape>,
}

/// What is known of a statement that a server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Serial number of the Parse that made it; [`DOUBTFUL`] if nobody knows whether it is there.
    pub since: u64,
    pub shape: Option<Shape>,
}

impl ServerStatements {
    /// What one statement takes here.
    pub const ENTRY_BYTES: usize = size_of::<(u64, Prepared)>();

    /// What is known of the statement; counts as a use.
    pub fn touch(&mut self, id: u64) -> Option<Standing> {
        self.clock += 1;
        let prepared = self.by_id.get_mut(&id)?;
        prepared.used = self.clock;
        Some(Standing { since: prepared.since, shape: prepared.shape })
    }

    /// Message `serial` has shown what the statement returns, unless it was prepared anew behind it.
    pub fn set_shape(&mut self, id: u64, serial: u64, shape: Shape) {
        if let Some(prepared) = self.by_id.get_mut(&id).filter(|one| one.since <= serial) {
            prepared.shape = Some(shape);
        }
    }

    /// It is not what its users expect of it: it has to be closed and prepared anew.
    pub fn doubt(&mut self, id: u64) {
        if let Some(prepared) = self.by_id.get_mut(&id) {
            prepared.since = DOUBTFUL;
        }
    }

    /// Serial number of the Parse that made it; [`DOUBTFUL`] if nobody knows whether it is there.
    pub fn since(&self, id: u64) -> Option<u64> {
        self.by_id.get(&id).map(|prepared| prepared.since)
    }

    /// Is it known that the server has the statement?
    pub fn is_sure(&self, id: u64) -> bool {
        self.since(id).is_some_and(|since| since != DOUBTFUL)
    }

    /// The Parse with this serial number had no effect.
    pub fn remove_parsed(&mut self, id: u64, since: u64) {
        if self.since(id) == Some(since) {
            self.by_id.remove(&id);
        }
    }

    /// A Close had no effect, unless the statement has been prepared again behind it.
    pub fn restore(&mut self, statement: Arc<Statement>, since: u64) {
        if !self.by_id.contains_key(&statement.id) {
            self.insert(statement, since);
        }
    }

    pub fn insert(&mut self, statement: Arc<Statement>, since: u64) {
        self.clock += 1;
        let prepared = Prepared { statement, used: self.clock, since, shape: None };
        self.by_id.insert(prepared.statement.id, prepared);
    }

    pub fn remove(&mut self, id: u64) -> Option<Arc<Statement>> {
        self.by_id.remove(&id).map(|prepared| prepared.statement)
    }

    /// Make room for one more within `limit`: the least recently used statement, taken out, and
    /// since when it was there.
    pub fn evict(&mut self, limit: u32) -> Option<(Arc<Statement>, u64)> {
        if self.by_id.len() < limit as usize {
            return None;
        }
        let id = self.by_id.values().min_by_key(|prepared| prepared.used)?.statement.id;
        self.by_id.remove(&id).map(|prepared| (prepared.statement, prepared.since))
    }

    /// The least recently used first; with each, whether it is doubtful.
    pub fn by_use(&self) -> Vec<(&Arc<Statement>, bool)> {
        let mut all: Vec<_> = self.by_id.values().collect();
        all.sort_by_key(|prepared| prepared.used);
        all.into_iter().map(|one| (&one.statement, one.since == DOUBTFUL)).collect()
    }

    pub fn discard_before(&mut self, serial: u64) {
        self.by_id.retain(|_, prepared| prepared.since > serial);
    }

    /// The server comes from another worker, whose serial numbers mean nothing here: all it has
    /// is older than anything to come.
    pub fn age(&mut self) {
        for prepared in self.by_id.values_mut().filter(|prepared| prepared.since != DOUBTFUL) {
            prepared.since = 0;
        }
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// What the list takes; the statements are shared.
    pub fn bytes(&self) -> usize {
        self.by_id.capacity() * Self::ENTRY_BYTES
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}

/// A digest of the rows that a statement returns: names and types of the columns, by which PostgreSQL
/// itself tells whether a result has changed. Whether they come as text or binary is each
/// execution's own affair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape(u64);

impl Shape {
    /// Of a statement that returns no rows.
    pub const NONE: Self = Self(0);

    /// From the body of a RowDescription; `None` if it is malformed.
    pub fn of_rows(body: &[u8]) -> Option<Self> {
        use std::hash::{BuildHasher as _, Hasher as _};
        /// The table and the number of a column in it.
        const ORIGIN: usize = 4 + 2;
        /// Type, size and modifier, before the format code.
        const TYPE: usize = 4 + 2 + 4;
        let mut hasher = foldhash::fast::FixedState::default().build_hasher();
        let (count, mut rest) = body.split_first_chunk()?;
        for _ in 0..u16::from_be_bytes(*count) {
            let name_len = rest.iter().position(|byte| *byte == 0)?;
            let (name, behind) = rest.split_at_checked(name_len + 1)?;
            let (kind, behind) = behind.get(ORIGIN..)?.split_at_checked(TYPE)?;
            // Letters have other bytes in the encodings of other clients.
            if name.is_ascii() {
                hasher.write(name);
            }
            hasher.write(kind);
            rest = behind.get(2..)?;
        }
        rest.is_empty().then(|| Self(hasher.finish() | 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::interner::Interner;

    fn rows(columns: &[(&str, u32, u16)]) -> Vec<u8> {
        let mut body = (columns.len() as u16).to_be_bytes().to_vec();
        for (name, kind, format) in columns {
            body.extend_from_slice(name.as_bytes());
            body.extend_from_slice(&[0; 1 + 4 + 2]);
            body.extend_from_slice(&kind.to_be_bytes());
            body.extend_from_slice(&[0; 2 + 4]);
            body.extend_from_slice(&format.to_be_bytes());
        }
        body
    }

    #[test]
    fn a_shape_is_names_and_types_but_not_formats() {
        let shape = Shape::of_rows(&rows(&[("a", 23, 0), ("b", 25, 0)]));
        assert!(shape.is_some() && shape != Some(Shape::NONE));
        assert_eq!(shape, Shape::of_rows(&rows(&[("a", 23, 1), ("b", 25, 0)])));
        assert_ne!(shape, Shape::of_rows(&rows(&[("a", 20, 0), ("b", 25, 0)])));
        assert_ne!(shape, Shape::of_rows(&rows(&[("a", 23, 0), ("c", 25, 0)])));
        assert_ne!(shape, Shape::of_rows(&rows(&[("a", 23, 0)])));
        // UTF-8 and LATIN1 of another client, as far as a text can show it.
        let letters = |name| Shape::of_rows(&rows(&[(name, 23, 0)]));
        assert_eq!(letters("\u{e9}"), letters("\u{c3}\u{a9}"));
    }

    #[test]
    fn a_malformed_description_has_no_shape() {
        let whole = rows(&[("a", 23, 0), ("b", 25, 0)]);
        for len in 0..whole.len() {
            assert_eq!(Shape::of_rows(&whole[..len]), None, "{len} bytes");
        }
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut interner = Interner::default();
        let mut server = ServerStatements::default();
        let all: Vec<_> =
            (0..3).map(|n| interner.intern(&[n], b"", ParseContext::COMMON)).collect();
        all.iter().for_each(|statement| server.insert(statement.clone(), 0));
        assert_eq!(server.touch(all[0].id), Some(Standing { since: 0, shape: None }));
        assert_eq!(server.evict(4), None);
        assert_eq!(server.evict(3).unwrap().0.id, all[1].id);
    }

    #[test]
    fn what_was_shown_of_a_statement_is_not_said_of_one_that_was_prepared_behind_it() {
        let statement = Interner::default().intern(b"1", b"", ParseContext::COMMON);
        let mut server = ServerStatements::default();
        let shape = |server: &mut ServerStatements| server.touch(statement.id)?.shape;
        server.insert(statement.clone(), 5);
        server.set_shape(statement.id, 4, Shape(1));
        assert_eq!(shape(&mut server), None);
        server.set_shape(statement.id, 6, Shape(1));
        assert_eq!(shape(&mut server), Some(Shape(1)));
        server.insert(statement.clone(), 7);
        assert_eq!(shape(&mut server), None);
    }

    #[test]
    fn a_discard_spares_what_was_parsed_behind_it() {
        let mut interner = Interner::default();
        let mut client = ClientStatements::default();
        client.insert(b"old"[..].into(), interner.intern(b"1", b"", ParseContext::COMMON), 3);
        client.insert(b"new"[..].into(), interner.intern(b"2", b"", ParseContext::COMMON), 5);
        client.discard_before(4);
        assert!(client.find(b"old").is_none() && client.find(b"new").is_some());
    }
}
