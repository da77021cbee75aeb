//! Plain data of a call of `pg_cancel_backend` or `pg_terminate_backend` (`pool_mode = auto`),
//! whose process id Weir has given to a client. `relay/requests/signals.rs` finds it among a client's
//! messages, `cancel/signal.rs` takes its steps, and `engine/cancels.rs` carries them out.

use std::sync::Arc;

use crate::ids::{ClientId, WorkerId};
use crate::settings::PoolSettings;

/// The call of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub process_id: u32,
    /// The function is `pg_terminate_backend`.
    pub terminates: bool,
}

/// A client's call that is under way or decided, if there is one. The client is held back until it is
/// decided.
#[derive(Debug, Default)]
pub struct Signaling(Option<Box<Signal>>);

#[derive(Debug)]
struct Signal {
    call: Call,
    step: Step,
}

impl Signaling {
    /// Begins to search for the client that has the process id, in so many workers.
    pub(super) fn begin(&mut self, call: Call, workers: u16) {
        let step = Step::Find { missing: workers, found: Found::Nobodys };
        self.0 = Some(Box::new(Signal { call, step }));
    }

    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn is_decided(&self) -> bool {
        self.0.as_ref().is_some_and(|signal| signal.is_decided())
    }

    /// Is this call under way?
    pub(super) fn awaits(&self, call: Call) -> bool {
        self.0.as_ref().is_some_and(|signal| signal.call == call && !signal.is_decided())
    }

    pub(super) fn step_mut(&mut self) -> Option<&mut Step> {
        self.0.as_mut().map(|signal| &mut signal.step)
    }

    /// The other client is signalled now. Returns whether that terminates it.
    pub(super) fn act(&mut self) -> Option<bool> {
        let signal = self.0.as_mut()?;
        signal.step = Step::Act;
        Some(signal.call.terminates)
    }

    /// Forgets a decision. Returns it with its call.
    pub(crate) fn take_decided(&mut self) -> Option<(Call, Verdict)> {
        match *self.0.take_if(|signal| signal.is_decided())? {
            Signal { call, step: Step::Decided(verdict) } => Some((call, verdict)),
            Signal { step: Step::Find { .. } | Step::Ask(_) | Step::Act, .. } => None,
        }
    }

    pub(crate) fn end(&mut self) {
        self.0 = None;
    }
}

impl Signal {
    fn is_decided(&self) -> bool {
        matches!(self.step, Step::Decided(_))
    }
}

/// The step that the client waits for.
#[derive(Debug)]
pub enum Step {
    /// Answers of this many workers about the process id.
    Find { missing: u16, found: Found },
    /// PostgreSQL's answer whether the client may signal this one.
    Ask(Owner),
    /// The outcome from the other client's worker.
    Act,
    /// The call can be answered, and nothing more is awaited.
    Decided(Verdict),
}

/// The clients that have a process id.
#[derive(Debug)]
pub enum Found {
    Nobodys,
    Of(Owner),
    /// Several clients of different workers or peers have it, so the call cannot be resolved.
    Ambiguous,
}

/// The client that has the process id.
#[derive(Clone, Debug)]
pub struct Owner {
    pub worker: WorkerId,
    pub client: ClientId,
    /// Distinguishes the client from later ones in its slot.
    pub serial: u64,
    /// The settings of its pool.
    pub settings: Arc<PoolSettings>,
}

/// The answer to the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The call returns true.
    Done,
    /// PostgreSQL does not know the process id either: a warning, and false.
    Unknown,
    /// The call fails with an error.
    Refused(Refusal),
}

/// Why a client may not signal another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The other client's user is a superuser.
    Superuser,
    /// The client has none of the required roles.
    Role,
}

impl Found {
    /// Combines the answers of two workers.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nobodys, found) | (found, Self::Nobodys) => found,
            (Self::Of(_) | Self::Ambiguous, Self::Of(_) | Self::Ambiguous) => Self::Ambiguous,
        }
    }
}

/// Returns the SQL that replaces a client's call on itself: PostgreSQL does the rest.
pub fn on_itself(call: Call, column: &[u8]) -> Vec<u8> {
    let name = if call.terminates { "pg_terminate_backend" } else { "pg_cancel_backend" };
    let value = format!("pg_catalog.{name}(pg_catalog.pg_backend_pid())");
    select(&value, column)
}

/// Returns the SQL that replaces the call, whose column is named `column`. Returns None if
/// PostgreSQL is to run the call itself. `version`: the server's.
pub fn answer(call: Call, verdict: Verdict, column: &[u8], version: &[u8]) -> Option<Vec<u8>> {
    match verdict {
        Verdict::Done => Some(select("true", column)),
        Verdict::Unknown => None,
        Verdict::Refused(why) => Some(refusal(call, why, major(version)).into_bytes()),
    }
}

fn select(value: &str, column: &[u8]) -> Vec<u8> {
    let mut text = format!("SELECT {value} AS \"").into_bytes();
    for byte in column {
        text.extend(std::iter::repeat_n(*byte, 1 + usize::from(*byte == b'"')));
    }
    text.push(b'"');
    text
}

/// Returns SQL that raises PostgreSQL's error (`signalfuncs.c`), whose text has changed in version
/// 16.
fn refusal(call: Call, why: Refusal, major: u32) -> String {
    let (message, detail) = match (major >= 16, call.terminates, why) {
        (true, false, Refusal::Superuser) => (
            "permission denied to cancel query",
            "Only roles with the SUPERUSER attribute may cancel queries of roles with the \
             SUPERUSER attribute.",
        ),
        (true, false, Refusal::Role) => (
            "permission denied to cancel query",
            "Only roles with privileges of the role whose query is being canceled or with \
             privileges of the \"pg_signal_backend\" role may cancel this query.",
        ),
        (true, true, Refusal::Superuser) => (
            "permission denied to terminate process",
            "Only roles with the SUPERUSER attribute may terminate processes of roles with the \
             SUPERUSER attribute.",
        ),
        (true, true, Refusal::Role) => (
            "permission denied to terminate process",
            "Only roles with privileges of the role whose process is being terminated or with \
             privileges of the \"pg_signal_backend\" role may terminate this process.",
        ),
        (false, false, Refusal::Superuser) => ("must be a superuser to cancel superuser query", ""),
        (false, false, Refusal::Role) => (
            "must be a member of the role whose query is being canceled or member of \
             pg_signal_backend",
            "",
        ),
        (false, true, Refusal::Superuser) => {
            ("must be a superuser to terminate superuser process", "")
        }
        (false, true, Refusal::Role) => (
            "must be a member of the role whose process is being terminated or member of \
             pg_signal_backend",
            "",
        ),
    };
    let detail = if detail.is_empty() { String::new() } else { format!(", DETAIL = '{detail}'") };
    format!(
        "DO $weir$BEGIN RAISE EXCEPTION USING ERRCODE = '42501', \
         MESSAGE = '{message}'{detail}; END$weir$"
    )
}

/// Returns `16` for `16.4 (Debian 16.4-1)`. An unknown version counts as a new one.
fn major(version: &[u8]) -> u32 {
    let digits = version.iter().take_while(|byte| byte.is_ascii_digit());
    let number = digits
        .fold(0_u32, |all, digit| all.saturating_mul(10).saturating_add(u32::from(digit - b'0')));
    if number == 0 { u32::MAX } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CANCEL: Call = Call { process_id: 1 << 30, terminates: false };
    const TERMINATE: Call = Call { process_id: 1 << 30, terminates: true };

    fn text(call: Call, verdict: Verdict, version: &str) -> String {
        let text = answer(call, verdict, b"a\"b", version.as_bytes());
        String::from_utf8(text.unwrap_or_default()).unwrap()
    }

    #[test]
    fn a_call_is_answered_in_its_own_column() {
        assert_eq!(text(CANCEL, Verdict::Done, "18.1"), "SELECT true AS \"a\"\"b\"");
        assert_eq!(text(CANCEL, Verdict::Unknown, "18.1"), "");
        let own = String::from_utf8(on_itself(TERMINATE, b"x")).unwrap();
        let expected =
            "SELECT pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid()) AS \"x\"";
        assert_eq!(own, expected);
    }

    #[test]
    fn a_refusal_has_the_words_of_the_version() {
        for (version, is_new) in [("15.20 (Debian)", false), ("16beta1", true), ("", true)] {
            for call in [CANCEL, TERMINATE] {
                for why in [Refusal::Superuser, Refusal::Role] {
                    let text = text(call, Verdict::Refused(why), version);
                    assert!(text.contains("'42501'"), "{text}");
                    assert_eq!(text.contains("permission denied"), is_new, "{text}");
                    assert_eq!(text.contains("DETAIL"), is_new, "{text}");
                }
            }
        }
    }
}
