//! What a worker has learnt of a pool's texts (`pool_mode = auto`): the names of settings that
//! PostgreSQL does not list, and functions that were seen to leave nothing behind.

use std::collections::{BTreeSet, HashSet, VecDeque};

use foldhash::fast::RandomState;

/// So many names of settings at most; what is set under further ones stays on its server unseen.
const CUSTOMS_MAX: usize = 256;
/// So many names that may be settings: most are columns of tables. The oldest make room.
const CANDIDATES_MAX: usize = 256;
/// So many functions at most; when there are more they are learnt anew.
const HARMLESS_MAX: usize = 4_096;
const NAME_LEN_MAX: usize = 128;

#[derive(Debug, Default)]
pub struct Lore {
    /// Names that a server has shown to be settings.
    customs: BTreeSet<Box<[u8]>>,
    /// And those that no server has (yet), in the order in which they were seen.
    candidates: VecDeque<Box<[u8]>>,
    harmless: HashSet<u64, RandomState>,
    /// Has anybody asked what was drawn from a sequence?
    pub asks_numbers: bool,
}

impl Lore {
    /// Notes every `word.word` in a text that sets something: it may be a setting of the
    /// application's own, such as `app.tenant`.
    pub fn note_customs(&mut self, text: &[u8]) {
        let is_part =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..);
        let is_name = |byte: &u8| is_part(byte) || *byte == b'.';
        // A name may stand in quotes, a part of it at a time.
        let bare: Vec<u8> = text.iter().copied().filter(|byte| *byte != b'"').collect();
        for name in bare.split(|byte| !is_name(byte)) {
            let has_parts = name.contains(&b'.') && name.split(|byte| *byte == b'.').all(is_word);
            if has_parts && name.len() <= NAME_LEN_MAX {
                self.note_custom(name.to_ascii_lowercase().into());
            }
        }
    }

    fn note_custom(&mut self, name: Box<[u8]>) {
        if self.customs.contains(&name) || self.candidates.contains(&name) {
            return;
        }
        if self.candidates.len() == CANDIDATES_MAX {
            self.candidates.pop_front();
        }
        self.candidates.push_back(name);
    }

    /// A server has a setting of that name.
    pub fn learn_custom(&mut self, name: &[u8]) {
        let at = self.candidates.iter().position(|one| **one == *name);
        if let Some(at) = at.filter(|_| self.customs.len() < CUSTOMS_MAX) {
            self.customs.extend(self.candidates.remove(at));
        }
    }

    pub fn customs(&self) -> impl Iterator<Item = &[u8]> {
        self.customs.iter().chain(&self.candidates).map(|name| &**name)
    }

    pub fn is_harmless(&self, functions: u64) -> bool {
        functions != 0 && self.harmless.contains(&functions)
    }

    /// Nothing was left by a transaction that called them.
    pub fn learn_harmless(&mut self, functions: u64) {
        if self.harmless.len() >= HARMLESS_MAX {
            self.harmless.clear();
        }
        self.harmless.insert(functions);
    }

    /// The schema has changed: functions may not be what they were.
    pub fn doubt_functions(&mut self) {
        self.harmless.clear();
    }
}

fn is_word(part: &[u8]) -> bool {
    part.first().is_some_and(|first| !first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn customs(text: &str) -> Vec<String> {
        let mut lore = Lore::default();
        lore.note_customs(text.as_bytes());
        lore.customs().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
    }

    #[test]
    fn names_of_an_applications_own_settings_are_found() {
        assert_eq!(customs("SET app.Tenant = '7'"), ["app.tenant"]);
        assert_eq!(customs("select set_config('a.b.c', x.y, false)"), ["a.b.c", "x.y"]);
        assert_eq!(customs("SET \"app\".\"x\" = 1"), ["app.x"]);
        assert_eq!(customs("SET work_mem = 1.5; SET a. = .b"), [""; 0]);
    }

    #[test]
    fn names_that_are_no_settings_make_room() {
        let mut lore = Lore::default();
        lore.note_customs(b"SET app.tenant = '7'");
        lore.learn_custom(b"app.tenant");
        lore.note_customs(b"SET app.other = '7'");
        for number in 0..CANDIDATES_MAX {
            lore.note_customs(format!("t.c{number}").as_bytes());
        }
        let names: Vec<_> = lore.customs().collect();
        assert_eq!(names.len(), 1 + CANDIDATES_MAX);
        assert!(names.contains(&&b"app.tenant"[..]) && !names.contains(&&b"app.other"[..]));
    }

    #[test]
    fn what_is_learnt_is_forgotten_with_the_schema() {
        let mut lore = Lore::default();
        lore.learn_harmless(7);
        assert!(lore.is_harmless(7) && !lore.is_harmless(0));
        lore.doubt_functions();
        assert!(!lore.is_harmless(7));
    }
}
