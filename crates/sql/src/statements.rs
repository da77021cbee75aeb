//! The statements of a text: the kind and the name of each.
//!
//! Not a parser: a text that PostgreSQL would refuse is split somehow. It does not decide whether a
//! text may leave something; [`scan`](crate::scan()) does, with more care. If scan finds
//! [`PREPARED`](crate::Signs::PREPARED) and there is no PREPARE or EXECUTE here, the text does
//! something hidden, such as naming a statement by `U&"…"`.

use core::ops::Range;

use crate::keyword::Keyword;
use crate::lexer::{Lexer, Token};
use crate::mark::Mark;
use crate::name::Name;

/// The kind of a statement, as far as it matters to a pooler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// The text has no statement.
    Empty,
    /// BEGIN, START TRANSACTION.
    Begin,
    /// COMMIT, END.
    Commit,
    /// ROLLBACK, ABORT.
    Rollback,
    Savepoint,
    RollbackTo,
    /// RELEASE, of a savepoint.
    Release,
    PrepareTransaction,
    CommitPrepared,
    RollbackPrepared,
    /// `local`: its effect ends with the transaction, as for SET LOCAL, SET TRANSACTION and SET
    /// CONSTRAINTS.
    Set {
        local: bool,
    },
    /// RESET of one setting.
    Reset,
    ResetAll,
    Discard(Discarded),
    Prepare,
    /// Also after EXPLAIN and CREATE TABLE … AS.
    Execute,
    Deallocate,
    DeallocateAll,
    Listen,
    Unlisten,
    UnlistenAll,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discarded {
    All,
    Plans,
    Sequences,
    Temp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The place in the text, from its first token to its last, without the semicolon.
    pub range: Range<usize>,
    pub verb: Verb,
    /// The position of the name of the prepared statement, channel or savepoint in the text;
    /// [`identifier`](crate::identifier()) reads it. None if there is none, or if it is written as
    /// `U&"…"`.
    pub name: Option<Range<usize>>,
}

/// Returns the statements of `text`; at least one, perhaps [`Empty`](Verb::Empty).
/// `standard_strings` as for [`scan`](crate::scan()).
pub fn statements(text: &[u8], standard_strings: bool) -> Statements<'_> {
    Statements { text, at: 0, lexer: Lexer::new(standard_strings), stage: Stage::None }
}

#[derive(Clone, Debug)]
pub struct Statements<'a> {
    text: &'a [u8],
    at: usize,
    lexer: Lexer,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No statement has been found.
    None,
    Some,
    /// The text is used up.
    Over,
}

impl Iterator for Statements<'_> {
    type Item = Statement;

    fn next(&mut self) -> Option<Statement> {
        if self.stage == Stage::Over {
            return None;
        }
        let mut phrase = Phrase::new();
        while let Some(token) = self.lexer.next(self.text, &mut self.at) {
            if !phrase.take(token, self.lexer.name()) && !phrase.is_empty() {
                self.stage = Stage::Some;
                return Some(phrase.statement());
            }
        }
        // White space ends the last token.
        if let Some(token) = self.lexer.next(b"\n", &mut 0) {
            phrase.take(token, self.lexer.name());
        }
        let first = self.stage == Stage::None;
        self.stage = Stage::Over;
        if !self.lexer.is_certain() {
            phrase.reach(self.text.len());
        }
        (first || !phrase.is_empty()).then(|| phrase.statement())
    }
}

#[derive(Clone, Copy)]
struct Part {
    mark: Mark,
    start: usize,
    end: usize,
}

const NO_PART: Part = Part { mark: Mark::Start, start: 0, end: 0 };

/// This many tokens decide: ROLLBACK TRANSACTION TO SAVEPOINT name.
const HEAD_LEN: usize = 5;

/// A statement that is being read.
struct Phrase {
    range: Option<Range<usize>>,
    /// The first tokens; after EXPLAIN and its options, those of the explained statement.
    head: [Part; HEAD_LEN],
    head_len: usize,
    last: Mark,
    depth: u32,
    explains: bool,
    definition: Definition,
    /// In BEGIN ATOMIC … END of a function: the number of missing ENDs.
    ends: u32,
}

/// The token after CREATE … AS.
#[derive(Clone, Copy)]
enum Definition {
    /// AS has not come.
    None,
    Begun,
    /// It is EXECUTE.
    Execute,
    Executed(Part),
    Other,
}

impl Phrase {
    const fn new() -> Self {
        Self {
            range: None,
            head: [NO_PART; HEAD_LEN],
            head_len: 0,
            last: Mark::Start,
            depth: 0,
            explains: false,
            definition: Definition::None,
            ends: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.range.is_none()
    }

    fn reach(&mut self, end: usize) {
        if let Some(range) = &mut self.range {
            range.end = end;
        }
    }

    /// Returns false if the token is the semicolon after the statement.
    fn take(&mut self, token: Token, name: &Name) -> bool {
        let mark = Mark::of(token.kind, name);
        if mark == Mark::Symbol(b';') && self.depth == 0 && self.ends == 0 {
            return false;
        }
        self.range.get_or_insert(token.start..token.end).end = token.end;
        self.nest(mark);
        let part = Part { mark, start: token.start, end: token.end };
        if !self.is_option(mark) {
            self.begin(part);
            self.define(part);
        }
        self.last = mark;
        true
    }

    /// Tracks parentheses and the body of a function. CASE has its own END.
    fn nest(&mut self, mark: Mark) {
        use Keyword::{As, Atomic, Begin, Case, End};
        let label = matches!(self.last, Mark::Word(As) | Mark::Symbol(b'.'));
        match mark {
            Mark::Symbol(b'(') => self.depth = self.depth.saturating_add(1),
            Mark::Symbol(b')') => self.depth = self.depth.saturating_sub(1),
            Mark::Word(Atomic) if self.ends == 0 && self.depth == 0 => {
                let begins = self.last == Mark::Word(Begin) && self.creates_routine();
                self.ends = u32::from(begins);
            }
            Mark::Word(Case) if self.ends > 0 && !label => self.ends = self.ends.saturating_add(1),
            Mark::Word(End) if self.ends > 0 && !label => self.ends -= 1,
            _ => {}
        }
    }

    /// Does the statement begin with CREATE [OR REPLACE] FUNCTION or PROCEDURE?
    fn creates_routine(&self) -> bool {
        use Keyword::{Create, Function, Procedure};
        let mut marks = self.head.iter().map(|part| part.mark);
        marks.next() == Some(Mark::Word(Create))
            && marks.any(|mark| matches!(mark, Mark::Word(Function | Procedure)))
    }

    /// Is this an option of EXPLAIN, before its statement?
    fn is_option(&self, mark: Mark) -> bool {
        use Keyword::{Analyse, Analyze, Verbose};
        let word = matches!(mark, Mark::Word(Analyse | Analyze | Verbose));
        let within = self.depth > 0 || mark == Mark::Symbol(b')');
        self.explains && self.head_len == 0 && (word || within)
    }

    fn begin(&mut self, part: Part) {
        if let Some(free) = self.head.get_mut(self.head_len) {
            *free = part;
            self.head_len += 1;
        }
        if self.head_len == 1 && part.mark == Mark::Word(Keyword::Explain) && !self.explains {
            self.explains = true;
            self.head_len = 0;
        }
    }

    fn define(&mut self, part: Part) {
        if self.depth > 0 || self.mark(0) != Mark::Word(Keyword::Create) {
            return;
        }
        self.definition = match (self.definition, part.mark) {
            (Definition::None, Mark::Word(Keyword::As)) => Definition::Begun,
            (Definition::Begun, Mark::Word(Keyword::Execute)) => Definition::Execute,
            (Definition::Begun, _) => Definition::Other,
            (Definition::Execute, _) => Definition::Executed(part),
            (definition, _) => definition,
        };
    }

    fn statement(self) -> Statement {
        let (verb, name) = self.verb();
        let name = name.filter(|part| matches!(part.mark, Mark::Word(_) | Mark::Quoted));
        let range = self.range.unwrap_or_default();
        Statement { range, verb, name: name.map(|part| part.start..part.end) }
    }

    fn verb(&self) -> (Verb, Option<Part>) {
        use Keyword::{
            Abort, All, Begin, Commit, Create, Deallocate, Discard, End, Execute, Listen, Prepare,
            Prepared, Release, Reset, Rollback, Savepoint, Set, Start, Transaction, Unlisten,
        };
        let Mark::Word(first) = self.mark(0) else {
            let verb = if self.is_empty() { Verb::Empty } else { Verb::Other };
            return (verb, None);
        };
        let (second, third) = (self.mark(1), self.mark(2));
        match (first, second) {
            (Execute, _) => (Verb::Execute, self.part(1)),
            (Create, _) => match self.definition {
                Definition::Executed(name) => (Verb::Execute, Some(name)),
                _ => (Verb::Other, None),
            },
            _ if self.explains => (Verb::Other, None),
            (Begin, _) | (Start, Mark::Word(Transaction)) => (Verb::Begin, None),
            (Commit | End, Mark::Word(Prepared)) => (Verb::CommitPrepared, None),
            (Commit | End, _) => (Verb::Commit, None),
            (Rollback, Mark::Word(Prepared)) => (Verb::RollbackPrepared, None),
            (Rollback | Abort, _) => self.rollback(),
            (Savepoint, _) => (Verb::Savepoint, self.part(1)),
            (Release, _) => (Verb::Release, self.part(self.skip(1, &[Savepoint]))),
            (Prepare, Mark::Word(Transaction)) if third == Mark::Literal => {
                (Verb::PrepareTransaction, None)
            }
            (Prepare, _) => (Verb::Prepare, self.part(1)),
            (Deallocate, _) => {
                let name = self.skip(1, &[Prepare]);
                match self.mark(name) {
                    Mark::Word(All) => (Verb::DeallocateAll, None),
                    _ => (Verb::Deallocate, self.part(name)),
                }
            }
            (Listen, _) => (Verb::Listen, self.part(1)),
            (Unlisten, Mark::Symbol(b'*')) => (Verb::UnlistenAll, None),
            (Unlisten, _) => (Verb::Unlisten, self.part(1)),
            (Discard, _) => (discard(second), None),
            (Reset, Mark::Word(All)) => (Verb::ResetAll, None),
            (Reset, _) => (Verb::Reset, None),
            (Set, _) => (Verb::Set { local: self.is_local() }, None),
            _ => (Verb::Other, None),
        }
    }

    fn rollback(&self) -> (Verb, Option<Part>) {
        let to = self.skip(1, &[Keyword::Work, Keyword::Transaction]);
        match self.mark(to) {
            Mark::Word(Keyword::To) => {
                (Verb::RollbackTo, self.part(self.skip(to + 1, &[Keyword::Savepoint])))
            }
            _ => (Verb::Rollback, None),
        }
    }

    /// Is it SET LOCAL? Not `SET local.x = 1`, which is a setting's name.
    fn is_local(&self) -> bool {
        use Keyword::{Constraints, Local, To, Transaction};
        let word = matches!(self.mark(1), Mark::Word(Local | Transaction | Constraints));
        word && !matches!(self.mark(2), Mark::Symbol(b'.' | b'=') | Mark::Word(To))
    }

    fn mark(&self, place: usize) -> Mark {
        self.head.get(place).map_or(Mark::Start, |part| part.mark)
    }

    fn part(&self, place: usize) -> Option<Part> {
        self.head.get(place).copied()
    }

    /// Returns the position after one of these words, if there is one that is not itself the name.
    fn skip(&self, place: usize, words: &[Keyword]) -> usize {
        let noise = matches!(self.mark(place), Mark::Word(word) if words.contains(&word));
        place + usize::from(noise && self.mark(place + 1) != Mark::Start)
    }
}

fn discard(what: Mark) -> Verb {
    match what {
        Mark::Word(Keyword::All) => Verb::Discard(Discarded::All),
        Mark::Word(Keyword::Plans) => Verb::Discard(Discarded::Plans),
        Mark::Word(Keyword::Sequences) => Verb::Discard(Discarded::Sequences),
        Mark::Word(Keyword::Temp | Keyword::Temporary) => Verb::Discard(Discarded::Temp),
        _ => Verb::Other,
    }
}
