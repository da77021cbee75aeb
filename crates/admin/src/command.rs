//! The commands of the console: what a line of text asks for. Nothing is carried out here.

mod words;

use self::words::{Line, Refusal};
use crate::control::Shutdown;
use crate::show::{self, Show};

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Command {
    Show(&'static dyn Show),
    Help,
    /// A parameter of PostgreSQL that drivers ask for when they connect, and what they are told.
    Parameter(&'static str, &'static str),
    /// SET of one of those.
    SetParameter,
    Reload,
    Shutdown(Shutdown),
    /// A command of PgBouncer's that Weir does not carry out yet.
    Later(&'static str),
}

/// Why a line is no command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
    /// It is none of the known ones.
    Unknown,
    /// A word in it is too long.
    Arguments,
}

/// A command that is not a SHOW, for the documentation.
pub(crate) struct Verb {
    pub(crate) form: &'static str,
    pub(crate) about: &'static str,
}

/// What drivers ask and set unasked; PgBouncer's answers.
const PARAMETERS: [(&str, &str); 5] = [
    ("client_encoding", "UTF-8"),
    ("default_transaction_isolation", "read committed"),
    ("standard_conforming_strings", "on"),
    ("datestyle", "ISO"),
    ("timezone", "GMT"),
];

/// Needs more rights than other SHOWs, and has them checked even while it is not there.
const FDS: &str = "SHOW FDS";

/// SHOWs of PgBouncer's that Weir does not have yet.
const SHOWS_LATER: [&str; 6] =
    [FDS, "SHOW SOCKETS", "SHOW ACTIVE_SOCKETS", "SHOW MEM", "SHOW DNS_HOSTS", "SHOW DNS_ZONES"];

/// Commands of PgBouncer's that Weir does not have yet.
const VERBS_LATER: [&str; 9] = [
    "PAUSE",
    "RESUME",
    "SUSPEND",
    "KILL",
    "KILL_CLIENT",
    "RECONNECT",
    "WAIT_CLOSE",
    "DISABLE",
    "ENABLE",
];

/// The commands that are not SHOWs.
pub(crate) const VERBS: [Verb; 4] = [
    Verb {
        form: "RELOAD",
        about: "Reads the configuration again, as SIGHUP does. If it is wrong, the old one stays \
                in force and the error's detail says why.",
    },
    Verb { form: "SHUTDOWN", about: "Ends the process at once." },
    Verb {
        form: "SHUTDOWN WAIT_FOR_SERVERS",
        about: "Ends the process when every server is released, as SIGINT does.",
    },
    Verb {
        form: "SHUTDOWN WAIT_FOR_CLIENTS",
        about: "Ends the process when every client has left, as SIGTERM does.",
    },
];

impl Command {
    pub(crate) fn parse(text: &[u8]) -> Result<Self, Invalid> {
        let line = words::parse(text).map_err(|refusal| match refusal {
            Refusal::Grammar => Invalid::Unknown,
            Refusal::TooLong => Invalid::Arguments,
        })?;
        match line {
            Line::Set { key, .. } => Ok(match parameter(&key) {
                Some(_) => Self::SetParameter,
                None => Self::Later("SET"),
            }),
            Line::Command { verb, argument } => {
                let words = (verb.to_ascii_uppercase(), argument.to_ascii_uppercase());
                Self::from_words(&words.0, &words.1).ok_or(Invalid::Unknown)
            }
        }
    }

    /// Both words are in upper case.
    fn from_words(verb: &[u8], argument: &[u8]) -> Option<Self> {
        match (verb, argument) {
            (b"SHOW" | b"SELECT", what) => Self::from_show(what),
            (b"RELOAD", b"") => Some(Self::Reload),
            (b"SHUTDOWN", b"") => Some(Self::Shutdown(Shutdown::Now)),
            (b"SHUTDOWN", b"WAIT_FOR_SERVERS") => Some(Self::Shutdown(Shutdown::WaitForServers)),
            (b"SHUTDOWN", b"WAIT_FOR_CLIENTS") => Some(Self::Shutdown(Shutdown::WaitForClients)),
            (verb, _) => {
                let later = VERBS_LATER.into_iter().find(|later| later.as_bytes() == verb);
                later.map(Self::Later)
            }
        }
    }

    fn from_show(what: &[u8]) -> Option<Self> {
        if what == b"HELP" {
            return Some(Self::Help);
        }
        if let Some((name, value)) = parameter(what) {
            return Some(Self::Parameter(name, value));
        }
        if let Some(show) = show::ALL.into_iter().find(|show| show.name().as_bytes() == what) {
            return Some(Self::Show(show));
        }
        let is_asked = |later: &&str| later.as_bytes().strip_prefix(b"SHOW ") == Some(what);
        SHOWS_LATER.into_iter().find(is_asked).map(Self::Later)
    }

    /// Is it refused to those who may only look?
    pub(crate) fn needs_admin(self) -> bool {
        match self {
            Self::Show(_) | Self::Help | Self::Parameter(..) | Self::SetParameter => false,
            Self::Later(name) => name == FDS || !name.starts_with("SHOW "),
            Self::Reload | Self::Shutdown(_) => true,
        }
    }
}

fn parameter(name: &[u8]) -> Option<(&'static str, &'static str)> {
    PARAMETERS.into_iter().find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name))
}

/// What SHOW HELP tells.
pub(crate) fn help() -> String {
    let mut text = "\n\tSHOW HELP".to_owned();
    for show in show::ALL {
        text.push('|');
        text.push_str(show.name());
    }
    for verb in &VERBS {
        text.push_str("\n\t");
        text.push_str(verb.form);
    }
    text
}

/// The names of what PgBouncer has and Weir does not have yet.
pub(crate) fn later() -> impl Iterator<Item = &'static str> {
    SHOWS_LATER.into_iter().chain(VERBS_LATER).chain(["SET"])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Command, Invalid> {
        Command::parse(text.as_bytes())
    }

    #[test]
    fn every_show_is_found_in_any_case_and_by_select() {
        for show in show::ALL {
            let name = show.name().to_ascii_lowercase();
            for text in [format!("SHOW {name}"), format!("select \"{name}\" ;")] {
                match parse(&text) {
                    Ok(Command::Show(found)) => assert_eq!(found.name(), show.name()),
                    other => panic!("{text}: {other:?}"),
                }
            }
        }
        assert!(matches!(parse("show help"), Ok(Command::Help)));
    }

    #[test]
    fn parameters_are_shown_and_set_in_any_case() {
        assert!(matches!(parse("SHOW TimeZone"), Ok(Command::Parameter("timezone", "GMT"))));
        assert!(matches!(parse("set DateStyle to 'iso'"), Ok(Command::SetParameter)));
    }

    #[test]
    fn shutdown_knows_two_arguments_and_reload_none() {
        let how = |text| match parse(text) {
            Ok(Command::Shutdown(how)) => Some(how),
            _ => None,
        };
        assert_eq!(how("shutdown"), Some(Shutdown::Now));
        assert_eq!(how("shutdown wait_for_servers;"), Some(Shutdown::WaitForServers));
        assert_eq!(how("SHUTDOWN WAIT_FOR_CLIENTS"), Some(Shutdown::WaitForClients));
        assert_eq!(parse("shutdown foo").err(), Some(Invalid::Unknown));
        assert!(matches!(parse("RELOAD"), Ok(Command::Reload)));
        assert_eq!(parse("RELOAD x").err(), Some(Invalid::Unknown));
    }

    #[test]
    fn what_comes_later_is_known_by_name() {
        for text in ["pause", "PAUSE db", "kill_client 5", "show mem", "set pool_mode=session"] {
            assert!(matches!(parse(text), Ok(Command::Later(_))), "{text}");
        }
        assert_eq!(later().count(), 16);
    }

    #[test]
    fn the_rest_is_invalid() {
        for text in ["", "SHOW", "SHOW xyz", "foo", "foo bar", "BEGIN", "select 1", "SET pool_mode"]
        {
            assert_eq!(parse(text).err(), Some(Invalid::Unknown), "{text}");
        }
        assert_eq!(parse("aaaaaaaaaaaaaaaa").err(), Some(Invalid::Arguments));
    }

    #[test]
    fn rights_are_asked_for_where_something_changes() {
        let needs_admin = |text| parse(text).unwrap().needs_admin();
        for text in ["RELOAD", "SHUTDOWN", "PAUSE", "SHOW FDS", "SET pool_mode=session"] {
            assert!(needs_admin(text), "{text}");
        }
        for text in ["SHOW POOLS", "SHOW MEM", "SHOW HELP", "SET datestyle=iso"] {
            assert!(!needs_admin(text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_command_or_not(text: Vec<u8>) {
            let _ = Command::parse(&text);
        }
    }
}
