//! The words with a meaning in this crate. PostgreSQL has four hundred more.

use crate::name::key;
use crate::names::mix;

macro_rules! keywords {
    ($($keyword:ident $text:literal)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Keyword {
            $($keyword,)+
            /// Any other word.
            Other,
        }

        #[cfg(test)]
        const TEXTS: &[&str] = &[$($text),+];
        const KEYWORDS: &[(u128, Keyword)] = &[$((key($text), Keyword::$keyword)),+];
    };
}

keywords! {
    Abort "abort"
    All "all"
    Alter "alter"
    Analyse "analyse"
    Analyze "analyze"
    As "as"
    Atomic "atomic"
    Begin "begin"
    By "by"
    Call "call"
    Case "case"
    Close "close"
    Commit "commit"
    Conflict "conflict"
    Constraints "constraints"
    Copy "copy"
    Create "create"
    Deallocate "deallocate"
    Declare "declare"
    Discard "discard"
    Distinct "distinct"
    Do "do"
    Drop "drop"
    End "end"
    Execute "execute"
    Explain "explain"
    Extension "extension"
    Function "function"
    Group "group"
    Hold "hold"
    Insert "insert"
    Into "into"
    Listen "listen"
    Load "load"
    Local "local"
    Merge "merge"
    On "on"
    Operator "operator"
    Order "order"
    Over "over"
    Partition "partition"
    Plans "plans"
    Prepare "prepare"
    Prepared "prepared"
    Procedure "procedure"
    Recursive "recursive"
    Release "release"
    Reset "reset"
    Returning "returning"
    Rollback "rollback"
    Savepoint "savepoint"
    Seed "seed"
    Select "select"
    Sequences "sequences"
    Set "set"
    Start "start"
    Temp "temp"
    Temporary "temporary"
    To "to"
    Transaction "transaction"
    True "true"
    Unlisten "unlisten"
    Update "update"
    Verbose "verbose"
    Where "where"
    With "with"
    Work "work"
}

impl Keyword {
    /// Looks up a word by [`Name::key`](crate::name::Name::key).
    #[inline]
    pub(crate) fn of(key: u128) -> Self {
        let slot = SLOTS.get(place(key, FACTOR)).copied().unwrap_or(u8::MAX);
        match KEYWORDS.get(usize::from(slot)) {
            Some((found, keyword)) if *found == key => *keyword,
            _ => Self::Other,
        }
    }
}

const SLOT_BITS: u32 = 9;

/// The keyword of each slot. No two keywords have the same slot.
static SLOTS: [u8; 1 << SLOT_BITS] = match slots(FACTOR) {
    Some(slots) => slots,
    None => panic!("the factor was chosen so"),
};

/// A factor that gives each keyword its own slot.
const FACTOR: u64 = factor();

const fn factor() -> u64 {
    let mut factor = mix(1);
    while slots(factor).is_none() {
        factor = mix(factor) | 1;
    }
    factor
}

#[expect(clippy::indexing_slicing, reason = "at compile time, where it is an error")]
const fn slots(factor: u64) -> Option<[u8; 1 << SLOT_BITS]> {
    let mut slots = [u8::MAX; 1 << SLOT_BITS];
    let mut at = 0;
    while at < KEYWORDS.len() {
        let place = place(KEYWORDS[at].0, factor);
        if slots[place] != u8::MAX {
            return None;
        }
        slots[place] = at as u8;
        at += 1;
    }
    Some(slots)
}

#[inline]
const fn place(key: u128, factor: u64) -> usize {
    let mixed = (key as u64 ^ (key >> 64) as u64).wrapping_mul(factor);
    (mixed >> (u64::BITS - SLOT_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Name;

    #[test]
    fn every_keyword_is_found_and_nothing_else() {
        let of = |text: &str| {
            let mut name = Name::new();
            name.push_word(text.as_bytes());
            Keyword::of(name.key())
        };
        for (text, keyword) in TEXTS.iter().zip(KEYWORDS.iter().map(|(_, keyword)| keyword)) {
            assert_eq!(of(text), *keyword);
            assert_eq!(of(&text.to_ascii_uppercase()), *keyword);
            assert_eq!(of(&format!("{text}x")), Keyword::Other);
            assert_eq!(of(&format!("{text}_23456789012345678")), Keyword::Other);
        }
        for other in ["", "abalance", "selecc", "\u{e9}", "_"] {
            assert_eq!(of(other), Keyword::Other);
        }
    }
}
