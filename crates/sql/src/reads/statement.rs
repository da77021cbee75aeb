//! The form of a statement: is it one that only reads?
//!
//! ```text
//!  Start ─┬─ SELECT, VALUES, TABLE, WITH ───────────────────────────► Query
//!    ▲ │  ├─ EXPLAIN ─► Explain ─┬─ ( ─► ExplainParenthesis ─ word ─► Options ─ ) ─► Explained
//!    └(┘  │                      └─ SELECT … ──────────────────────► Query ◄── SELECT … ──┘
//!         ├─ COPY ─► Copy ─ TO ─► CopyTo ─ STDOUT ─► CopyOut
//!         └─ BEGIN, START ─► Begin
//!  each ─ ; ─► Over: nothing may follow
//! ```
//!
//! Within a statement a few words decide wherever they stand. They may also be names of columns
//! (`SELECT share FROM t`, `SELECT x.update`), which then costs the primary a read.

use crate::reads::node::{SettingCall, refusal_of_name};
use crate::reads::transaction::Begin;
use crate::reads::verdict::{Refusal, Verdict};
use crate::walk::Part;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Statement {
    stage: Stage,
    /// Open parentheses.
    depth: u32,
    locks: LockWords,
    setting: SettingCall,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No word has come, but perhaps opening parentheses.
    Start,
    Explain,
    /// After EXPLAIN (
    ExplainParenthesis,
    /// In the options of EXPLAIN.
    Options,
    /// After the options of EXPLAIN.
    Explained,
    Query,
    /// COPY, before its TO.
    Copy,
    CopyTo,
    CopyOut,
    Begin(Begin),
    Over(Verdict),
}

impl Statement {
    pub(crate) const fn new() -> Self {
        Self { stage: Stage::Start, depth: 0, locks: LockWords::None, setting: SettingCall::None }
    }

    /// Has the statement's first word come, so that names may follow?
    pub(crate) fn is_query(&self) -> bool {
        matches!(self.stage, Stage::Query | Stage::Copy | Stage::CopyTo | Stage::CopyOut)
    }

    /// Takes the next token, which is written as `raw`.
    pub(crate) fn take(&mut self, part: Part<'_>, raw: &[u8]) -> Result<(), Refusal> {
        match part {
            Part::Unclear => return Err(Refusal::Unclear),
            Part::Symbol(b';') => return self.end(),
            Part::Symbol(b'(') => self.depth = self.depth.saturating_add(1),
            Part::Symbol(b')') => self.depth = self.depth.saturating_sub(1),
            Part::Word(_)
            | Part::Quoted(_)
            | Part::String
            | Part::Number
            | Part::Operator(_)
            | Part::Symbol(_) => {}
        }
        match self.stage {
            Stage::Start => self.first(part),
            Stage::Explain | Stage::ExplainParenthesis | Stage::Options | Stage::Explained => {
                self.explain(part)
            }
            Stage::Query => self.inner(part, raw),
            Stage::Copy | Stage::CopyTo | Stage::CopyOut => {
                self.copy(part)?;
                self.inner(part, raw)
            }
            Stage::Begin(mut begin) => {
                match part {
                    Part::Word(word) => begin.word(word.as_bytes())?,
                    Part::Symbol(b',') => {}
                    _ => return Err(Refusal::Transaction),
                }
                self.stage = Stage::Begin(begin);
                Ok(())
            }
            Stage::Over(_) => Err(Refusal::Several),
        }
    }

    pub(crate) fn finish(mut self) -> Result<Verdict, Refusal> {
        self.end()?;
        match self.stage {
            Stage::Over(verdict) => Ok(verdict),
            _ => Err(Refusal::Empty),
        }
    }

    /// Takes a semicolon, or the end of the text.
    fn end(&mut self) -> Result<(), Refusal> {
        if self.setting != SettingCall::None {
            return Err(Refusal::Node);
        }
        let verdict = match self.stage {
            Stage::Start => return Ok(()),
            Stage::Explain | Stage::ExplainParenthesis | Stage::Options | Stage::Explained => {
                return Err(Refusal::Command);
            }
            Stage::Query | Stage::CopyOut => Verdict::Read,
            Stage::Copy | Stage::CopyTo => return Err(Refusal::Copy),
            Stage::Begin(begin) => {
                begin.finish()?;
                Verdict::ReadOnlyTransaction
            }
            Stage::Over(verdict) => verdict,
        };
        self.stage = Stage::Over(verdict);
        Ok(())
    }

    fn first(&mut self, part: Part<'_>) -> Result<(), Refusal> {
        let word = match part {
            Part::Symbol(b'(') => return Ok(()),
            Part::Word(word) => word.as_bytes(),
            _ => return Err(Refusal::Command),
        };
        self.stage = match word {
            _ if begins_query(word) => Stage::Query,
            _ if self.depth > 0 => return Err(Refusal::Command),
            b"explain" => Stage::Explain,
            b"copy" => Stage::Copy,
            b"begin" | b"start" => Stage::Begin(Begin::default()),
            b"show" => return Err(Refusal::Node),
            _ => return Err(refusal_of_verb(word)),
        };
        Ok(())
    }

    fn explain(&mut self, part: Part<'_>) -> Result<(), Refusal> {
        let word = match part {
            Part::Word(word) => word.as_bytes(),
            // An option in quotes.
            Part::Quoted(_) => return Err(Refusal::Command),
            _ => b"",
        };
        if matches!(word, b"analyze" | b"analyse") {
            return Err(Refusal::Analyze);
        }
        self.stage = match (self.stage, part) {
            (Stage::Options, Part::Symbol(b')')) if self.depth == 0 => Stage::Explained,
            (Stage::Options, _) => Stage::Options,
            _ if begins_query(word) => Stage::Query,
            (Stage::Explain, Part::Symbol(b'(')) => Stage::ExplainParenthesis,
            (Stage::Explain, Part::Word(_)) if word == b"verbose" => Stage::Explain,
            // EXPLAIN ((SELECT …
            (Stage::ExplainParenthesis | Stage::Explained, Part::Symbol(b'(')) => Stage::Start,
            (Stage::ExplainParenthesis, Part::Word(_)) => Stage::Options,
            _ => return Err(Refusal::Command),
        };
        Ok(())
    }

    /// Takes a token that follows COPY.
    fn copy(&mut self, part: Part<'_>) -> Result<(), Refusal> {
        let word = match part {
            Part::Word(word) if self.depth == 0 => word.as_bytes(),
            _ => b"",
        };
        self.stage = match (self.stage, word) {
            (Stage::Copy, b"from") => return Err(Refusal::Copy),
            (Stage::Copy, b"to") => Stage::CopyTo,
            (Stage::CopyTo, b"stdout") => Stage::CopyOut,
            (Stage::CopyTo, _) => return Err(Refusal::Copy),
            (stage, _) => stage,
        };
        Ok(())
    }

    /// Takes a token within a query.
    fn inner(&mut self, part: Part<'_>, raw: &[u8]) -> Result<(), Refusal> {
        self.setting = self.setting.next(part, raw)?;
        let name = match part {
            Part::Word(name) => {
                let word = name.as_bytes();
                self.locks = self.locks.next(word)?;
                if matches!(word, b"insert" | b"update" | b"delete" | b"merge" | b"into") {
                    return Err(Refusal::Writes);
                }
                word
            }
            Part::Quoted(name) => {
                self.locks = LockWords::None;
                name.as_bytes()
            }
            _ => {
                self.locks = LockWords::None;
                return Ok(());
            }
        };
        if name == b"current_setting" {
            self.setting = SettingCall::Named;
        }
        refusal_of_name(name).map_or(Ok(()), Err)
    }
}

/// Follows FOR UPDATE, FOR NO KEY UPDATE, FOR SHARE and FOR KEY SHARE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockWords {
    None,
    For,
}

impl LockWords {
    pub(crate) fn next(self, word: &[u8]) -> Result<Self, Refusal> {
        match (self, word) {
            (Self::For, b"update" | b"no" | b"share" | b"key") => Err(Refusal::Locks),
            (_, b"for") => Ok(Self::For),
            _ => Ok(Self::None),
        }
    }
}

fn begins_query(word: &[u8]) -> bool {
    matches!(word, b"select" | b"values" | b"table" | b"with")
}

/// Returns the refusal of a command that is no read.
fn refusal_of_verb(verb: &[u8]) -> Refusal {
    match verb {
        b"insert" | b"update" | b"delete" | b"merge" | b"truncate" | b"create" | b"alter"
        | b"drop" => Refusal::Writes,
        b"lock" => Refusal::Locks,
        b"commit" | b"end" | b"rollback" | b"abort" | b"savepoint" | b"release" => {
            Refusal::Transaction
        }
        b"set" | b"reset" | b"discard" | b"prepare" | b"execute" | b"deallocate" | b"declare"
        | b"fetch" | b"move" | b"close" | b"listen" | b"unlisten" | b"load" => Refusal::Session,
        b"do" | b"call" => Refusal::Opaque,
        _ => Refusal::Command,
    }
}
