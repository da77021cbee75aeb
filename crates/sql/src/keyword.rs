//! The words that mean something to this crate. PostgreSQL has four hundred more.

use crate::names::Names;

macro_rules! keywords {
    ($($keyword:ident $text:literal)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Keyword {
            $($keyword,)+
            /// Any other word.
            Other,
        }

        const KEYWORDS: &[Keyword] = &[$(Keyword::$keyword),+];
        const TEXTS: &[&str] = &[$($text),+];
        static NAMES: Names<256> = Names::of(concat!($($text, "\n"),+));
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
    PgPreparedStatements "pg_prepared_statements"
    PgSettings "pg_settings"
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
    /// `name` is folded.
    pub(crate) fn of(name: &[u8]) -> Self {
        let Some(first) = name.first() else { return Self::Other };
        // Most words are names of columns, and this is all that is looked at of most.
        let lengths = LENGTHS.get(usize::from(first.wrapping_sub(b'a'))).copied().unwrap_or(0);
        if name.len() >= 32 || lengths >> name.len() & 1 == 0 {
            return Self::Other;
        }
        let place = NAMES.find(name);
        place.and_then(|place| KEYWORDS.get(place)).copied().unwrap_or(Self::Other)
    }
}

/// By first letter: a bit for each length that a keyword with it has.
static LENGTHS: [u32; 26] = lengths();

#[expect(clippy::indexing_slicing, reason = "at compile time, where it is an error")]
const fn lengths() -> [u32; 26] {
    let mut lengths = [0; 26];
    let mut at = 0;
    while at < TEXTS.len() {
        let text = TEXTS[at].as_bytes();
        lengths[(text[0] - b'a') as usize] |= 1 << text.len();
        at += 1;
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_keyword_is_found_and_nothing_else() {
        for (keyword, text) in KEYWORDS.iter().zip(TEXTS) {
            assert_eq!(Keyword::of(text.as_bytes()), *keyword);
            assert_eq!(Keyword::of(format!("{text}x").as_bytes()), Keyword::Other);
        }
        for other in ["", "abalance", "SELECT", "selecc", "\u{e9}", "_", "{"] {
            assert_eq!(Keyword::of(other.as_bytes()), Keyword::Other);
        }
    }
}
