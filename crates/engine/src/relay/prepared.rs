//! Prepared statements by name, for modes in which a client meets a different server each time.
//!
//! A statement is its text, its parameter types, and the context in which names in the text are
//! looked up (`parse_context.rs`). Equal statements of many clients are one [`Statement`] with one
//! name on the servers, whatever names the clients use.
//!
//! When PostgreSQL reads a text, it decides the types that the client has left open. It keeps them
//! even if the table changes later. So a text that is prepared after a schema change is a new
//! statement.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, OnceLock};

use foldhash::fast::RandomState;
use sql::Seen;

use crate::relay::kept_request::Used;
use crate::relay::parse_context::ParseContext;

/// Names of Weir's own statements begin like this.
pub const SERVER_NAME_PREFIX: &[u8] = b"weir_";

/// One statement, shared by all clients that have prepared it.
#[derive(Debug, PartialEq, Eq)]
pub struct Statement {
    pub id: u64,
    /// Its name on every server.
    pub server_name: Box<[u8]>,
    pub sql: Box<[u8]>,
    /// Parameter types as the client sent them: count and OIDs.
    pub types: Box<[u8]>,
    /// Its meaning for the client that parsed it.
    pub(crate) context: ParseContext,
    /// Signs of the state that it may leave in a session. Found out when first needed.
    pub(crate) seen: OnceLock<Seen>,
    /// Does the text discard prepared statements? Found out when it is first needed.
    pub(crate) discards: OnceLock<bool>,
    /// The number of schema changes before it was first prepared.
    pub(crate) schema: u64,
}

impl Statement {
    /// Memory that it takes, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.server_name.len() + self.sql.len() + self.types.len()
    }

    pub fn seen(&self) -> Seen {
        *self.seen.get_or_init(|| sql::scan_either(&self.sql))
    }
}

/// Memory of a shared name besides its letters: its two reference counts.
const NAME_COUNTS_BYTES: usize = 2 * size_of::<usize>();

/// Smaller tables are not searched for unused entries.
const SWEPT_MIN: usize = 64;

/// A client's own names.
#[derive(Debug, Default)]
pub struct ClientStatements {
    by_name: HashMap<Arc<[u8]>, Named, RandomState>,
    /// Names that the client has closed, with the Close's serial number, if that may not be
    /// answered yet.
    closed: HashMap<Arc<[u8]>, u64, RandomState>,
    /// The closed names with their serial numbers, in the order of the messages.
    closes: VecDeque<(u64, Arc<[u8]>)>,
    /// The row description that the client was last told for each statement, by the statement's
    /// number.
    told: HashMap<u64, Told, RandomState>,
    /// New names and shapes, and discarded names, since the last search for unused entries.
    changes: usize,
}

/// The statement behind a client's name, and the serial number of its Parse.
#[derive(Clone, Debug)]
struct Named {
    statement: Arc<Statement>,
    since: u64,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    shape: Shape,
    /// Serial number of the Describe.
    at: u64,
}

/// The statement that a client has under one of its names.
#[derive(Debug)]
pub struct Found {
    pub name: Arc<[u8]>,
    pub used: Used,
    /// The row description that the client was last told.
    pub told: Option<Shape>,
}

impl ClientStatements {
    /// Memory of one name besides its letters, in bytes.
    pub const ENTRY_BYTES: usize = size_of::<(Arc<[u8]>, Named)>() + NAME_COUNTS_BYTES;

    /// Returns what the client has under that name.
    pub fn find(&self, name: &[u8]) -> Option<Found> {
        let (name, named) = self.by_name.get_key_value(name)?;
        let used = Used { statement: named.statement.clone(), since: named.since };
        Some(Found { name: name.clone(), used, told: self.told(named) })
    }

    /// The text of the statement of that name.
    pub fn text_of(&self, name: &[u8]) -> Option<&[u8]> {
        self.by_name.get(name).map(|named| &*named.statement.sql)
    }

    /// Serial number of the message that last made or removed that name. Once that message is
    /// answered, it may be forgotten.
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

    /// Message `serial` closes the name. All messages before `first` are answered.
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

    /// Returns what the client was last told about the rows of the statement that it parsed with
    /// message `since`.
    pub fn shape(&self, since: u64) -> Option<Shape> {
        self.told(self.by_name.values().find(|named| named.since == since)?)
    }

    /// The answer to message `at` has told the client what the statement with this number returns.
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

    /// Forgets shapes of statements that the client no longer has, once there may be enough of
    /// them.
    fn sweep(&mut self) {
        if self.changes <= self.by_name.len() + SWEPT_MIN {
            return;
        }
        self.changes = 0;
        let used: HashSet<u64> = self.by_name.values().map(|named| named.statement.id).collect();
        self.told.retain(|id, _| used.contains(id));
    }

    /// Removes a name. Returns it with its statement and the serial number of its Parse.
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

    /// The Close had no effect. The name may already have a new meaning, which stays.
    pub fn restore(&mut self, name: Arc<[u8]>, statement: Arc<Statement>, since: u64) {
        let named = Named { statement, since };
        self.by_name.entry(name).or_insert(named);
    }

    /// Message `serial` was `DISCARD ALL` or `DEALLOCATE ALL`. Statements that were parsed later in
    /// the same pipeline stay.
    pub fn discard_before(&mut self, serial: u64) {
        self.by_name.retain(|_, named| named.since > serial);
        self.by_name.shrink_to(2 * self.by_name.len());
        self.told.retain(|_, told| told.at > serial);
        self.told.shrink_to(2 * self.told.len());
    }

    /// Each name with its statement, the serial number of its Parse, and the shape that the client
    /// was told. For another process.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Arc<Statement>, u64, Option<u64>)> {
        self.by_name.iter().map(|(name, named)| {
            let shape = self.told(named).map(|Shape(digest)| digest);
            (&**name, &named.statement, named.since, shape)
        })
    }

    /// Adds an entry that [`ClientStatements::iter`] of another process returned.
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

    /// Memory of the names, in bytes. The statements are shared and not counted.
    pub fn bytes(&self) -> usize {
        let names: usize = self.by_name.keys().map(|name| name.len()).sum();
        names + self.by_name.capacity() * Self::ENTRY_BYTES
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Has the client no name, even if every pending Close has no effect?
    pub fn is_surely_empty(&self) -> bool {
        self.is_empty() && self.closes.is_empty()
    }
}

/// Stands in place of a serial number: Weir does not know whether the server has the statement. It
/// must be closed before it is prepared again.
pub const DOUBTFUL: u64 = u64::MAX;

/// The statements that one server has prepared. The least recently used one is evicted first.
#[derive(Debug, Default)]
pub struct ServerStatements {
    by_id: HashMap<u64, Prepared, RandomState>,
    /// Pairs of last use and statement number. An entry may be outdated: the statement was used
    /// again or removed. This is checked only at the front, so that a use costs nothing here.
    by_age: BinaryHeap<Reverse<(u64, u64)>>,
    clock: u64,
}

#[derive(Debug)]
struct Prepared {
    statement: Arc<Statement>,
    used: u64,
    /// Its use number in `by_age`.
    listed: u64,
    since: u64,
    /// The rows it was seen to return. If they change, PostgreSQL refuses the statement.
    shape: Option<Shape>,
}

/// The knowledge of a server's copy of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Serial number of the Parse that made it; [`DOUBTFUL`] if the server may not have it.
    pub since: u64,
    pub shape: Option<Shape>,
}

impl ServerStatements {
    /// Memory of one entry, in bytes.
    pub const ENTRY_BYTES: usize = size_of::<(u64, Prepared)>();

    /// Returns what is known of the statement. Counts as a use.
    pub fn touch(&mut self, id: u64) -> Option<Standing> {
        self.clock += 1;
        let prepared = self.by_id.get_mut(&id)?;
        prepared.used = self.clock;
        Some(Standing { since: prepared.since, shape: prepared.shape })
    }

    /// Message `serial` has shown what the statement returns, unless it was prepared again after
    /// it.
    pub fn set_shape(&mut self, id: u64, serial: u64, shape: Shape) {
        if let Some(prepared) = self.by_id.get_mut(&id).filter(|one| one.since <= serial) {
            prepared.shape = Some(shape);
        }
    }

    /// The copy is not what its users expect. It must be closed and prepared again.
    pub fn doubt(&mut self, id: u64) {
        if let Some(prepared) = self.by_id.get_mut(&id) {
            prepared.since = DOUBTFUL;
        }
    }

    /// The server may have lost any of them.
    pub fn doubt_all(&mut self) {
        self.by_id.values_mut().for_each(|prepared| prepared.since = DOUBTFUL);
    }

    /// Serial number of the Parse that made it; [`DOUBTFUL`] if the server may not have it.
    pub fn since(&self, id: u64) -> Option<u64> {
        self.by_id.get(&id).map(|prepared| prepared.since)
    }

    /// Is it certain that the server has the statement?
    pub fn is_sure(&self, id: u64) -> bool {
        self.since(id).is_some_and(|since| since != DOUBTFUL)
    }

    /// The Parse with this serial number had no effect.
    pub fn remove_parsed(&mut self, id: u64, since: u64) {
        if self.since(id) == Some(since) {
            self.by_id.remove(&id);
        }
    }

    /// A Close had no effect, unless the statement was discarded or prepared again meanwhile.
    pub fn restore(&mut self, statement: Arc<Statement>) {
        if !self.by_id.contains_key(&statement.id) {
            self.insert(statement, DOUBTFUL);
        }
    }

    pub fn insert(&mut self, statement: Arc<Statement>, since: u64) {
        self.clock += 1;
        let (id, used) = (statement.id, self.clock);
        let prepared = Prepared { statement, used, listed: used, since, shape: None };
        self.by_id.insert(id, prepared);
        self.by_age.push(Reverse((used, id)));
        self.sweep();
    }

    /// Removes the entries of statements that have gone, once they are more than half of the list.
    fn sweep(&mut self) {
        if self.by_age.len() > 2 * self.by_id.len() + SWEPT_MIN {
            let Self { by_id, by_age, .. } = self;
            by_age.retain(|Reverse((used, id))| {
                by_id.get(id).is_some_and(|prepared| prepared.listed == *used)
            });
            by_age.shrink_to(2 * by_age.len());
        }
    }

    pub fn remove(&mut self, id: u64) -> Option<Arc<Statement>> {
        self.by_id.remove(&id).map(|prepared| prepared.statement)
    }

    /// Removes the least recently used statement, if there is no room for one more within `limit`.
    pub fn evict(&mut self, limit: u32) -> Option<Arc<Statement>> {
        if self.by_id.len() < limit as usize {
            return None;
        }
        while let Some(Reverse((used, id))) = self.by_age.pop() {
            let Some(prepared) = self.by_id.get_mut(&id).filter(|one| one.listed == used) else {
                continue;
            };
            if prepared.used == used {
                let oldest = self.by_id.remove(&id);
                return oldest.map(|prepared| prepared.statement);
            }
            prepared.listed = prepared.used;
            self.by_age.push(Reverse((prepared.used, id)));
        }
        None
    }

    /// All statements, the least recently used first. The flag tells whether it is doubtful.
    pub fn by_use(&self) -> Vec<(&Arc<Statement>, bool)> {
        let mut all: Vec<_> = self.by_id.values().collect();
        all.sort_by_key(|prepared| prepared.used);
        all.into_iter().map(|one| (&one.statement, one.since == DOUBTFUL)).collect()
    }

    pub fn discard_before(&mut self, serial: u64) {
        self.by_id.retain(|_, prepared| prepared.since > serial);
        self.sweep();
    }

    /// The server comes from another worker, whose serial numbers have no meaning here. All its
    /// statements count as older than any message to come.
    pub fn age(&mut self) {
        for prepared in self.by_id.values_mut().filter(|prepared| prepared.since != DOUBTFUL) {
            prepared.since = 0;
        }
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Memory of the list, in bytes. The statements are shared and not counted.
    pub fn bytes(&self) -> usize {
        self.by_id.capacity() * Self::ENTRY_BYTES
            + self.by_age.capacity() * size_of::<Reverse<(u64, u64)>>()
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}

/// A digest of a statement's row description: names and types of the columns. PostgreSQL compares
/// the same to tell whether a result has changed. Text or binary format belongs to each execution
/// and does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape(u64);

impl Shape {
    /// The shape of a statement that returns no rows.
    pub const NONE: Self = Self(0);

    /// Digests the body of a RowDescription; `None` if it is malformed.
    pub fn of_rows(body: &[u8]) -> Option<Self> {
        use std::hash::{BuildHasher as _, Hasher as _};
        /// The table, and the number of the column in it.
        const ORIGIN: usize = 4 + 2;
        /// Type, size and modifier, before the format code.
        const TYPE: usize = 4 + 2 + 4;
        let mut hasher = foldhash::fast::FixedState::default().build_hasher();
        let (count, mut rest) = body.split_first_chunk()?;
        for _ in 0..u16::from_be_bytes(*count) {
            let name_len = rest.iter().position(|byte| *byte == 0)?;
            let (name, behind) = rest.split_at_checked(name_len + 1)?;
            let (kind, behind) = behind.get(ORIGIN..)?.split_at_checked(TYPE)?;
            // Other letters have different bytes in other clients' encodings.
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
        // The name is the same letter in UTF-8 and in LATIN1.
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
        assert_eq!(server.evict(3).unwrap().id, all[1].id);
    }

    #[test]
    fn a_statement_that_goes_and_comes_again_counts_as_used_then() {
        let mut interner = Interner::default();
        let mut server = ServerStatements::default();
        let all: Vec<_> =
            (0..3).map(|n| interner.intern(&[n], b"", ParseContext::COMMON)).collect();
        all.iter().for_each(|statement| server.insert(statement.clone(), 0));
        server.remove(all[0].id);
        server.insert(all[0].clone(), 0);
        server.touch(all[1].id);
        let order = std::iter::from_fn(|| server.evict(1)).map(|statement| statement.id);
        assert_eq!(order.collect::<Vec<_>>(), [all[2].id, all[0].id, all[1].id]);
    }

    #[test]
    fn the_order_of_use_lists_existing_statements_only() {
        let statement = Interner::default().intern(b"1", b"", ParseContext::COMMON);
        let mut server = ServerStatements::default();
        for _ in 0..100 * SWEPT_MIN {
            server.insert(statement.clone(), 0);
            server.remove(statement.id);
        }
        assert!(server.by_age.len() <= SWEPT_MIN + 1);
        assert!(server.bytes() < 100 * SWEPT_MIN, "{} bytes", server.bytes());
    }

    #[test]
    fn a_description_does_not_apply_to_a_statement_that_was_prepared_after_it() {
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
    fn a_discard_spares_statements_that_were_parsed_after_it() {
        let mut interner = Interner::default();
        let mut client = ClientStatements::default();
        client.insert(b"old"[..].into(), interner.intern(b"1", b"", ParseContext::COMMON), 3);
        client.insert(b"new"[..].into(), interner.intern(b"2", b"", ParseContext::COMMON), 5);
        client.discard_before(4);
        assert!(client.find(b"old").is_none() && client.find(b"new").is_some());
    }
}
