//! Keeps one shared copy of each prepared statement, and numbers new ones. The interner is behind a
//! lock, so callers do slow work before they take it.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::sync::{Arc, OnceLock, Weak};

use foldhash::fast::RandomState;

use crate::handover::records::{Numbering, StatementRecord};
use crate::relay::parse_context::{self, ParseContext};
use crate::relay::prepared::{SERVER_NAME_PREFIX, Statement};

#[derive(Debug, Default)]
pub struct Interner {
    /// Statements by hash. Statements with equal hashes are in one list.
    known: HashMap<u64, Vec<Weak<Statement>>, RandomState>,
    hasher: RandomState,
    next_id: u64,
    /// The number of schema changes seen so far.
    schema: u64,
    /// When `known` has this many entries, unused ones are removed.
    sweep_at: usize,
}

impl Interner {
    /// Returns the shared copy of that statement, or makes a new one.
    pub fn intern(&mut self, sql: &[u8], types: &[u8], context: ParseContext) -> Arc<Statement> {
        let known = self.find(sql, types, context);
        known.unwrap_or_else(|| self.add(sql, types, context, parse_context::is_of_its_moment(sql)))
    }

    /// Returns the shared copy of that statement, if there is one.
    pub fn find(&self, sql: &[u8], types: &[u8], context: ParseContext) -> Option<Arc<Statement>> {
        let twins = self.known.get(&self.hash(sql, types, context))?;
        twins.iter().filter_map(Weak::upgrade).find(|known| {
            known.schema == self.schema
                && known.context == context
                && *known.sql == *sql
                && *known.types == *types
        })
    }

    /// Adds a statement that [`Interner::find`] has not found, unless another thread has added it
    /// since. `is_of_its_moment`: see [`parse_context::is_of_its_moment`], which is slow for a long
    /// text.
    pub fn add(
        &mut self,
        sql: &[u8],
        types: &[u8],
        context: ParseContext,
        is_of_its_moment: bool,
    ) -> Arc<Statement> {
        if let Some(known) = self.find(sql, types, context) {
            return known;
        }
        self.next_id += 1;
        let hash = self.hash(sql, types, context);
        let context =
            if is_of_its_moment { ParseContext::private(0, self.next_id) } else { context };
        let statement = Arc::new(Statement {
            id: self.next_id,
            server_name: server_name(self.next_id),
            sql: sql.into(),
            types: types.into(),
            context,
            seen: OnceLock::new(),
            discards: OnceLock::new(),
            schema: self.schema,
        });
        if !is_of_its_moment {
            self.share(hash, &statement);
        }
        statement
    }

    fn share(&mut self, hash: u64, statement: &Arc<Statement>) {
        let twins = self.known.entry(hash).or_default();
        // A text that is prepared and closed again and again fills one list here, which the sweep
        // would not notice.
        twins.retain(|weak| weak.strong_count() > 0);
        twins.push(Arc::downgrade(statement));
        self.sweep();
    }

    fn hash(&self, sql: &[u8], types: &[u8], context: ParseContext) -> u64 {
        self.hasher.hash_one((sql, types, context))
    }

    /// Tables, types or functions have changed: from now on, equal texts are new statements.
    pub fn schema_changed(&mut self) {
        self.schema += 1;
    }

    /// The number of schema changes.
    pub fn schema(&self) -> u64 {
        self.schema
    }

    /// Returns the state of the numbering, for another process.
    pub fn numbering(&self) -> Numbering {
        Numbering { last_id: self.next_id, schema: self.schema }
    }

    /// Continues the numbering of another process. Nothing may have been interned before.
    pub fn resume(&mut self, numbering: Numbering) {
        (self.next_id, self.schema) = (numbering.last_id, numbering.schema);
    }

    /// Numbers new statements from `last_id` on. The other process does not use these numbers, so a
    /// statement of this process can be handed over to it.
    pub fn number_from(&mut self, last_id: u64) {
        self.next_id = last_id;
    }

    /// Adopts the schema changes that the other process, which continued from `base` as this one
    /// did, has seen. If either process has seen one, the order of changes and statements is
    /// unknown, so equal texts are new statements.
    pub fn join_schema(&mut self, base: u64, theirs: u64) {
        if self.schema != base || theirs != base {
            self.schema = self.schema.max(theirs) + 1;
        }
    }

    /// Adds a statement of the other process, under the number that servers know. The numbering has
    /// been resumed before.
    pub fn restore(&mut self, one: &StatementRecord) -> Arc<Statement> {
        let context = ParseContext(one.context);
        let hash = self.hash(&one.sql, &one.types, context);
        let twins = self.known.get(&hash).into_iter().flatten();
        // If both processes have prepared an equal statement, it has two names on the servers.
        if let Some(known) = twins.filter_map(Weak::upgrade).find(|known| known.id == one.id) {
            return known;
        }
        let statement = Arc::new(Statement {
            id: one.id,
            server_name: server_name(one.id),
            sql: one.sql.as_slice().into(),
            types: one.types.as_slice().into(),
            context,
            seen: OnceLock::new(),
            discards: OnceLock::new(),
            schema: one.schema,
        });
        if !parse_context::is_of_its_moment(&one.sql) {
            self.share(hash, &statement);
        }
        statement
    }

    /// Has the schema changed since that statement was first prepared?
    pub fn is_outdated(&self, statement: &Statement) -> bool {
        statement.schema != self.schema
    }

    fn sweep(&mut self) {
        if self.known.len() < self.sweep_at.max(1024) {
            return;
        }
        self.forget_unused();
    }

    /// Forgets statements that no client uses any more. Until then a few bytes of each remain and
    /// fragment the memory, which keeps the allocator from returning it to the system.
    pub fn forget_unused(&mut self) {
        self.known.retain(|_, twins| {
            twins.retain(|weak| weak.strong_count() > 0);
            !twins.is_empty()
        });
        self.sweep_at = self.known.len() * 2;
        self.known.shrink_to(self.sweep_at);
    }

    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns how many statements are in use, and how many bytes they take with their texts.
    pub fn memory(&self) -> (usize, usize) {
        let used = self.known.values().flatten().filter_map(Weak::upgrade);
        used.fold((0, 0), |(count, sum), statement| (count + 1, sum + statement.bytes()))
    }

    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

fn server_name(id: u64) -> Box<[u8]> {
    let mut name = SERVER_NAME_PREFIX.to_vec();
    name.extend_from_slice(id.to_string().as_bytes());
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::prepared::ClientStatements;

    #[test]
    fn equal_text_and_types_are_one_statement() {
        let mut interner = Interner::default();
        let first = interner.intern(b"select 1", b"\0\0", ParseContext::COMMON);
        assert!(Arc::ptr_eq(&first, &interner.intern(b"select 1", b"\0\0", ParseContext::COMMON)));
        assert_ne!(
            first.id,
            interner.intern(b"select 1", b"\0\x01\0\0\0\x17", ParseContext::COMMON).id
        );
        assert_eq!(&*first.server_name, b"weir_1");
    }

    /// The text is examined before the lock is taken; the result is an argument.
    #[test]
    fn whether_a_text_is_of_its_moment_is_known_beforehand() {
        let mut interner = Interner::default();
        for (sql, is_of_its_moment) in [(b"SELECT 'now'", false), (b"SELECT 'old'", true)] {
            let mut add = || interner.add(sql, b"", ParseContext::COMMON, is_of_its_moment);
            let [one, other] = [add(), add()];
            assert_eq!(Arc::ptr_eq(&one, &other), !is_of_its_moment);
        }
    }

    #[test]
    fn equal_texts_of_two_contexts_are_two_statements() {
        let mut interner = Interner::default();
        let own = ParseContext::private(1, 2);
        let statement = interner.intern(b"select 1", b"", own);
        assert_ne!(statement.id, interner.intern(b"select 1", b"", ParseContext::COMMON).id);
        assert!(Arc::ptr_eq(&statement, &interner.intern(b"select 1", b"", own)));
        let mut new = Interner::default();
        let restored = new.restore(&StatementRecord::of(&statement));
        assert!(Arc::ptr_eq(&restored, &new.intern(b"select 1", b"", own)));
    }

    #[test]
    fn equal_texts_before_and_after_a_change_of_the_schema_are_two_statements() {
        let mut interner = Interner::default();
        let before = interner.intern(b"select 1", b"\0\0", ParseContext::COMMON);
        interner.schema_changed();
        let after = interner.intern(b"select 1", b"\0\0", ParseContext::COMMON);
        assert_ne!(before.server_name, after.server_name);
        assert!(Arc::ptr_eq(&after, &interner.intern(b"select 1", b"\0\0", ParseContext::COMMON)));
    }

    #[test]
    fn a_restored_statement_keeps_its_name_and_is_not_taken_for_one_of_a_later_schema() {
        let mut old = Interner::default();
        old.intern(b"select 1", b"", ParseContext::COMMON);
        let kept = old.intern(b"select 2", b"", ParseContext::COMMON);
        old.schema_changed();
        let mut new = Interner::default();
        new.resume(old.numbering());
        let restored = new.restore(&StatementRecord::of(&kept));
        assert_eq!(*restored, *kept);
        assert_eq!(&*new.intern(b"select 2", b"", ParseContext::COMMON).server_name, b"weir_3");
    }

    #[test]
    fn unused_statements_are_swept_out() {
        let mut interner = Interner::default();
        for n in 0..5000u32 {
            interner.intern(format!("select {n}").as_bytes(), b"\0\0", ParseContext::COMMON);
        }
        assert!(interner.len() <= 2048, "{} statements kept", interner.len());
    }

    #[test]
    fn unused_statements_are_forgotten_when_that_is_asked_for() {
        let mut interner = Interner::default();
        let intern = |interner: &mut Interner, n: u32| {
            interner.intern(format!("select {n}").as_bytes(), b"", ParseContext::COMMON)
        };
        let mut kept: Vec<_> = (0..5_000).map(|n| intern(&mut interner, n)).collect();
        kept.truncate(10);
        assert_eq!(interner.len(), 5_000);
        interner.forget_unused();
        assert_eq!(interner.len(), 10);
        assert!(Arc::ptr_eq(&kept[7], &intern(&mut interner, 7)));
    }

    #[test]
    fn a_text_that_comes_and_goes_leaves_nothing_behind() {
        let mut interner = Interner::default();
        for _ in 0..100 {
            interner.intern(b"select 1", b"", ParseContext::COMMON);
        }
        assert_eq!(interner.known.values().map(Vec::len).sum::<usize>(), 1);
    }

    #[test]
    fn memory_is_that_of_what_is_in_use() {
        let mut interner = Interner::default();
        let kept = interner.intern(b"select 1", b"\0\0", ParseContext::COMMON);
        let (count, small) = interner.memory();
        assert_eq!(count, 1);
        let long = interner.intern(&[b'x'; 10_000], b"\0\0", ParseContext::COMMON);
        assert_eq!(interner.memory(), (2, 2 * small + 10_000 - "select 1".len()));
        drop(long);
        assert_eq!(interner.memory(), (1, small));
        let mut client = ClientStatements::default();
        client.insert(b"a name"[..].into(), kept, 1);
        assert!(client.bytes() >= ClientStatements::ENTRY_BYTES + "a name".len());
    }

    /// Both processes of an online restart may prepare the same text. Servers then know it by two
    /// names.
    #[test]
    fn equal_statements_of_two_processes_keep_their_names() {
        let mut old = Interner::default();
        old.intern(b"select 1", b"", ParseContext::COMMON);
        let mut new = Interner::default();
        new.resume(old.numbering());
        old.number_from(1 << 40);
        let theirs = old.intern(b"select 2", b"", ParseContext::COMMON);
        let ours = new.intern(b"select 2", b"", ParseContext::COMMON);
        let restored = new.restore(&StatementRecord::of(&theirs));
        assert_eq!(restored.server_name, theirs.server_name);
        assert_ne!(restored.server_name, ours.server_name);
        assert_eq!(new.intern(b"select 3", b"", ParseContext::COMMON).id, ours.id + 1);
        new.join_schema(0, 0);
        assert!(!new.is_outdated(&restored));
        new.join_schema(0, 1);
        assert!(new.is_outdated(&restored) && new.is_outdated(&ours));
    }
}
