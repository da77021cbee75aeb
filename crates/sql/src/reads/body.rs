//! Judges the body of a function or the definition of a view, and collects the names in it.

use crate::names::digest;
use crate::reads::node::{SettingCall, refusal_of_name};
use crate::reads::statement::LockWords;
use crate::reads::verdict::Refusal;
use crate::scanner::scan_either;
use crate::signs::Signs;
use crate::walk::{Part, walk};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// The body of a function in SQL or PL/pgSQL.
    Routine,
    /// A view's query or a policy's expression. PostgreSQL writes names there without quotes that
    /// are words of commands elsewhere, so such words have no meaning.
    Definition,
}

/// The digests of a text's names and operators.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pub(crate) names: Vec<u64>,
    pub(crate) operators: Vec<u64>,
}

/// Reads a body. An error means that a text which calls it is no read.
pub(crate) fn body(text: &[u8], code: Code) -> Result<Body, Refusal> {
    let seen = scan_either(text);
    if seen.signs.intersects(Signs::LOCK) {
        return Err(Refusal::Locks);
    }
    if seen.signs.intersects(Signs::SEQUENCE.with(Signs::DRAWS)) {
        return Err(Refusal::Sequence);
    }
    // INTO assigns a variable in PL/pgSQL, and CLOSE closes a cursor of the function.
    let harmless = Signs::TEMPORARY.with(Signs::RELEASE).with(Signs::OPAQUE);
    if !seen.signs.without(harmless).is_empty() {
        return Err(Refusal::Session);
    }
    if seen.signs.contains(Signs::OPAQUE) && seen.functions == 0 {
        return Err(Refusal::Opaque);
    }
    let mut body = Body::default();
    let mut locks = LockWords::None;
    let mut setting = SettingCall::None;
    let walked = walk(text, true, |part, place| {
        let raw = text.get(place.start..place.end.min(text.len())).unwrap_or_default();
        setting = setting.next(part, raw)?;
        let name = match part {
            Part::Word(name) => {
                locks = locks.next(name.as_bytes())?;
                if code == Code::Routine {
                    command(name.as_bytes())?;
                }
                name
            }
            Part::Quoted(name) => name,
            Part::Unclear => return Err(Refusal::Unclear),
            Part::Operator(operator) => {
                body.operators.push(digest(operator));
                return Ok(());
            }
            Part::String | Part::Number | Part::Symbol(_) => return Ok(()),
        };
        if name.as_bytes() == b"current_setting" {
            setting = SettingCall::Named;
        }
        body.names.push(name.digest());
        refusal_of_name(name.as_bytes()).map_or(Ok(()), Err)
    })?;
    if setting != SettingCall::None {
        return Err(Refusal::Node);
    }
    if !walked.is_certain || walked.has_backslash {
        return Err(Refusal::Unclear);
    }
    Ok(body)
}

/// Refuses the words of commands. In a body any of them may be the name of a column or variable,
/// which then costs the primary the function's reads.
fn command(word: &[u8]) -> Result<(), Refusal> {
    match word {
        b"insert" | b"update" | b"delete" | b"merge" | b"truncate" | b"copy" | b"create"
        | b"alter" | b"drop" | b"grant" | b"revoke" | b"refresh" | b"notify" => {
            Err(Refusal::Writes)
        }
        b"lock" => Err(Refusal::Locks),
        // Of PL/pgSQL: a text that is put together.
        b"execute" | b"call" | b"do" => Err(Refusal::Opaque),
        b"set" | b"reset" | b"listen" | b"load" | b"prepare" | b"discard" | b"deallocate" => {
            Err(Refusal::Session)
        }
        _ => Ok(()),
    }
}
