//! The toy language of the simulated PostgreSQL. A text may begin with a comment that names the
//! client and its request. A prepared statement takes that tag as a parameter instead, so that many
//! clients can share one text.

use std::fmt;

use crate::backend::Order;
use crate::settings::Settings;

/// SQLSTATE of notices that belong to no request.
pub(crate) const CHATTER: &str = "sim00";

/// A client, and the number of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tag {
    pub(crate) client: usize,
    pub(crate) number: usize,
}

impl Tag {
    /// Returns the form in letters only, like the options of a BEGIN.
    pub(crate) fn in_letters(self) -> String {
        let letter = |digit: u8| char::from(digit - b'0' + b'A');
        let word = |number: usize| number.to_string().bytes().map(letter).collect::<String>();
        format!("{}x{}", word(self.client), word(self.number))
    }

    fn from_letters(text: &str) -> Option<Self> {
        let number = |word: &str| {
            let digits = word.bytes().map(|letter| char::from(letter.wrapping_sub(b'A' - b'0')));
            digits.collect::<String>().parse().ok()
        };
        let (client, own) = text.split_once('x')?;
        Some(Self { client: number(client)?, number: number(own)? })
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (client, number) = text.strip_prefix('c')?.split_once('.')?;
        Some(Self { client: client.parse().ok()?, number: number.parse().ok()? })
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}.{}", self.client, self.number)
    }
}

/// The effect of a trigger on the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// Sets `work_mem`.
    Sets(String),
    Locks,
    Unlocks,
    /// Asks for the last number of a sequence.
    AsksNumber,
    /// Begins a series of random numbers.
    Seeds,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Statement {
    Begin,
    Commit,
    Rollback,
    /// Makes it, or goes back to it.
    Savepoint {
        made: bool,
    },
    Notify(Order),
    Set(&'static str, String),
    /// Sets a value until the transaction ends.
    SetLocal(&'static str, String),
    /// Resets one setting, or all.
    Reset(Option<&'static str>),
    SetDefault(&'static str),
    /// Weir's way to set several settings.
    SetConfig(Vec<(&'static str, String)>),
    /// Makes or drops a temporary table.
    Object {
        made: bool,
    },
    /// Declares or closes a cursor WITH HOLD.
    Cursor {
        made: bool,
    },
    /// Takes or releases an advisory lock of the session.
    Lock {
        taken: bool,
    },
    /// Calls a user's function. It sets `work_mem` for the session, or nothing.
    Call {
        sets: Option<String>,
    },
    /// Writes to a table whose trigger changes the session. The text does not show that.
    Fire(Trigger),
    /// The next number of the series that the client has begun.
    Random,
    /// SQL's PREPARE: the name, and the statement after AS.
    Prepare(String, Box<Self>),
    Execute(String),
    Deallocate(String),
    /// Grants or revokes this client's role.
    Grant {
        to: usize,
        granted: bool,
    },
    /// Weir's probe of the session.
    Probe {
        settings: bool,
        objects: bool,
        /// Asks which of these statements exist.
        lent: Vec<String>,
    },
    Show(&'static str),
    Select {
        rows: usize,
        len: usize,
    },
    /// Has an effect that must not happen twice.
    Insert,
    Fail,
    Notice,
    CopyIn,
    CopyOut {
        rows: usize,
        len: usize,
    },
    Sleep(u64),
    DiscardAll,
    DiscardSequences,
    DeallocateAll,
    /// Changes the columns of this client's table. The command tag may show it or not.
    Change {
        of: usize,
        openly: bool,
    },
    /// Reads that table. `told`: the client has been told its columns.
    Read {
        of: usize,
        told: bool,
    },
    Write {
        of: usize,
    },
    /// Draws a number from the client's own sequence, or asks for the last one.
    Number {
        drawn: bool,
    },
    /// Makes PostgreSQL raise an error for Weir: SQLSTATE and text.
    Raise(&'static str, String),
    /// Returns the settings that were active when it was parsed.
    Meaning,
}

impl Statement {
    pub(crate) fn returns_rows(&self) -> bool {
        matches!(
            self,
            Self::Select { .. }
                | Self::Show(_)
                | Self::Read { .. }
                | Self::Lock { .. }
                | Self::Call { .. }
                | Self::Meaning
                | Self::Number { .. }
                | Self::Random
                | Self::Fire(Trigger::AsksNumber)
        )
    }

    /// The client whose table it concerns.
    pub(crate) fn table(&self) -> Option<usize> {
        match self {
            Self::Read { of, .. } | Self::Write { of } => Some(*of),
            _ => None,
        }
    }

    pub(crate) fn ends_transaction(&self) -> bool {
        matches!(self, Self::Commit | Self::Rollback | Self::Savepoint { made: false })
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Sql {
    pub(crate) tag: Option<Tag>,
    pub(crate) statements: Vec<Statement>,
    pub(crate) has_parameter: bool,
}

impl Sql {
    /// Parses a text. None is a syntax error.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = str::from_utf8(text).ok()?.trim();
        let (tag, rest) = match text.strip_prefix("/*").and_then(|rest| rest.split_once("*/")) {
            Some((tag, rest)) => (Tag::parse(tag), rest),
            None => (text.strip_prefix("BEGIN ").and_then(Tag::from_letters), text),
        };
        if let Some(raised) = rest.strip_prefix("DO $weir$") {
            let statements = vec![raise(raised)?];
            return Some(Self { tag, statements, has_parameter: false });
        }
        let has_parameter = rest.contains("$1");
        let statements = rest
            .split(';')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(statement)
            .collect::<Option<Vec<_>>>()?;
        Some(Self { tag, statements, has_parameter })
    }
}

fn statement(text: &str) -> Option<Statement> {
    if let Some(call) = text.strip_prefix("SELECT ")
        && (call.contains('(') || call.starts_with("kind, "))
    {
        return selected(text);
    }
    let mut words = text.split(' ').filter(|word| !word.is_empty() && *word != "$1");
    let first = words.next()?;
    let mut number = || words.next().map_or(Some(0), |word| word.parse::<usize>().ok());
    Some(match first {
        "BEGIN" => Statement::Begin,
        "COMMIT" => Statement::Commit,
        "ROLLBACK" if text.starts_with("ROLLBACK TO") => Statement::Savepoint { made: false },
        "ROLLBACK" => Statement::Rollback,
        "SAVEPOINT" => Statement::Savepoint { made: true },
        "LISTEN" => Statement::Notify(Order::Listen(unquoted(words.next()?))),
        "UNLISTEN" => {
            let channel = Some(words.next()?).filter(|channel| *channel != "*");
            Statement::Notify(Order::Unlisten(channel.map(unquoted)))
        }
        "NOTIFY" => {
            let (channel, payload) = text.strip_prefix("NOTIFY ")?.split_once(',')?;
            let payload = payload.trim().strip_prefix('\'')?.strip_suffix('\'')?;
            Statement::Notify(Order::Notify(unquoted(channel), payload.to_owned()))
        }
        "SET" => {
            if let Some(name) = text.strip_prefix("SET ")?.strip_suffix(" TO DEFAULT") {
                return Some(Statement::SetDefault(Settings::known(name.trim())?));
            }
            let (name, value) = text.strip_prefix("SET ")?.split_once('=')?;
            let value = value.trim().strip_prefix('\'')?.strip_suffix('\'')?.to_owned();
            match name.strip_prefix("LOCAL ") {
                Some(name) => Statement::SetLocal(Settings::known(name.trim())?, value),
                None => Statement::Set(Settings::known(name.trim())?, value),
            }
        }
        "RESET" if text == "RESET ALL" => Statement::Reset(None),
        "RESET" => {
            let name = words.next()?.trim_matches('"');
            Statement::Reset(Some(Settings::known(name)?))
        }
        "CREATE" => Statement::Object { made: true },
        "DROP" => Statement::Object { made: false },
        "GRANT" => Statement::Grant { to: number()?, granted: true },
        "REVOKE" => Statement::Grant { to: number()?, granted: false },
        "SHOW" => Statement::Show(Settings::known(words.next()?)?),
        "SELECT" => Statement::Select { rows: number()?, len: number()? },
        "INSERT" => Statement::Insert,
        "FAIL" => Statement::Fail,
        "NOTICE" => Statement::Notice,
        "COPYIN" => Statement::CopyIn,
        "COPYOUT" => Statement::CopyOut { rows: number()?, len: number()? },
        "SLEEP" => Statement::Sleep(number()? as u64),
        "DISCARD" if text == "DISCARD SEQUENCES" => Statement::DiscardSequences,
        "DISCARD" => Statement::DiscardAll,
        "DEALLOCATE" if text == "DEALLOCATE ALL" => Statement::DeallocateAll,
        "DEALLOCATE" => Statement::Deallocate(unquoted(words.next()?)),
        "DECLARE" => Statement::Cursor { made: true },
        "CLOSE" => Statement::Cursor { made: false },
        "PREPARE" => {
            let (name, prepared) = text.strip_prefix("PREPARE ")?.split_once(" AS ")?;
            Statement::Prepare(name.to_owned(), Box::new(statement(prepared)?))
        }
        "FIRE" => Statement::Fire(match words.next()? {
            "lock" => Trigger::Locks,
            "unlock" => Trigger::Unlocks,
            "ask" => Trigger::AsksNumber,
            "seed" => Trigger::Seeds,
            value => Trigger::Sets(value.to_owned()),
        }),
        "RANDOM" => Statement::Random,
        "EXECUTE" => Statement::Execute(words.next()?.to_owned()),
        "ALTER" => Statement::Change { of: number()?, openly: true },
        "DO" => Statement::Change { of: number()?, openly: false },
        "READ" => Statement::Read { of: number()?, told: false },
        "TOLD" => Statement::Read { of: number()?, told: true },
        "MEANING" => Statement::Meaning,
        "WRITE" => Statement::Write { of: number()? },
        _ => return None,
    })
}

/// The queries of Weir, and calls of functions.
fn selected(text: &str) -> Option<Statement> {
    if let Some(list) = text.strip_prefix("SELECT pg_catalog.set_config(") {
        let all = list.split("pg_catalog.set_config(").map(setting).collect::<Option<_>>()?;
        return Some(Statement::SetConfig(all));
    }
    if text.starts_with("SELECT pg_catalog.concat(kind, ") {
        let (settings, objects) = (text.contains("pg_settings"), text.contains("pg_locks"));
        let lent =
            text.split_once("ANY (ARRAY[").filter(|(before, _)| before.contains("'n', name"));
        let lent = lent.and_then(|(_, list)| list.split_once("]::")).map_or("", |(list, _)| list);
        let names = lent.split(',').map(|name| name.trim_matches('\'').to_owned());
        let lent = names.filter(|name| !name.is_empty()).collect();
        return Some(Statement::Probe { settings, objects, lent });
    }
    if let Some(argument) = text.strip_prefix("SELECT meddle('") {
        return Some(Statement::Call { sets: Some(argument.strip_suffix("')")?.to_owned()) });
    }
    match text {
        "SELECT pg_advisory_lock(1)" => Some(Statement::Lock { taken: true }),
        "SELECT pg_advisory_unlock(1)" => Some(Statement::Lock { taken: false }),
        "SELECT nextval('mine')" => Some(Statement::Number { drawn: true }),
        "SELECT lastval()" => Some(Statement::Number { drawn: false }),
        "SELECT calm()" => Some(Statement::Call { sets: None }),
        _ => None,
    }
}

/// Parses `BEGIN RAISE EXCEPTION USING ERRCODE = '26000', MESSAGE = 'it is not there'; END$weir$`.
fn raise(text: &str) -> Option<Statement> {
    let (_, text) = text.split_once("ERRCODE = '")?;
    let (code, text) = text.split_once("', MESSAGE = '")?;
    let (message, _) = text.split_once("'; END")?;
    let code = ["26000", "55000", "0A000"].into_iter().find(|known| *known == code)?;
    Some(Statement::Raise(code, message.to_owned()))
}

fn unquoted(name: &str) -> String {
    name.trim_matches('"').to_owned()
}

/// Parses `'work_mem','5MB',false) IS NULL`, with or without a comma after it. For a list, the call
/// is spaced out and returns the new value.
fn setting(text: &str) -> Option<(&'static str, String)> {
    let text = text.replace("', ", "',");
    let (name, rest) = text.strip_prefix('\'')?.split_once("','")?;
    let (value, _) = rest.split_once("',false)")?;
    Some((Settings::known(name)?, value.to_owned()))
}
