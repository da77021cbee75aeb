//! The commands of the console: parsing a line of text. This file carries nothing out.

mod words;

use self::words::{Line, NodeVerb, Refusal};
use crate::control::{Order, Shutdown};
use config::{ConsoleColumns, Key, Scope};

use crate::show::{self, Head, Kind, Selected};

/// A command of the console.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    Show(Selected),
    Help,
    /// A parameter of PostgreSQL that drivers query when they connect, and its value.
    Parameter(&'static str, &'static str),
    /// SET of such a parameter.
    SetParameter,
    Set {
        key: String,
        value: String,
    },
    Reload,
    /// EXPLAIN ROUTE, with the text that follows.
    ExplainRoute(Vec<u8>),
    Order(Order),
    Shutdown(Shutdown),
    /// PGPOOL SHOW of a global key.
    ShowKey(&'static str),
    /// A verb without its argument, and the error for it.
    Incomplete(&'static str),
}

/// Why a line is not a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
    /// The command is unknown.
    Unknown,
    /// A word in it is too long.
    Arguments,
}

/// A command that is not a SHOW, for the documentation.
pub(crate) struct Verb {
    pub(crate) form: &'static str,
    pub(crate) about: &'static str,
}

/// Queries and SETs that drivers send by themselves, with PgBouncer's answers.
const PARAMETERS: [(&str, &str); 6] = [
    ("client_encoding", "UTF-8"),
    ("default_transaction_isolation", "read committed"),
    ("standard_conforming_strings", "on"),
    ("datestyle", "ISO"),
    ("timezone", "GMT"),
    ("extra_float_digits", "2"),
];

/// The error of PGPOOL SET and RESET.
const NO_PGPOOL_SET: &str = "PGPOOL SET and RESET change a session of Pgpool-II, and Weir has no such \
    settings; SET key = arg changes a key of Weir, and RELOAD undoes that";

/// The commands other than SHOW.
pub(crate) const VERBS: [Verb; 22] = [
    Verb {
        form: "SET key = arg",
        about: "Changes a global key until the next RELOAD. Keys that need a restart \
                (`changeable` is `no` in SHOW CONFIG) are accepted but keep their value.",
    },
    Verb {
        form: "RELOAD",
        about: "Reads the configuration again, as SIGHUP does. If the file is wrong, the old \
                configuration stays active and the log says why. If only the users, the HBA rules \
                or the TLS files cannot be used, the old ones and the old `auth_type` stay active \
                and everything else is new. The answer is then an error, and a notice names the \
                part. Servers whose host, port, database or user has changed are replaced. \
                Clients of removed databases are disconnected.",
    },
    Verb {
        form: "PAUSE [<db>]",
        about: "Stops giving servers to clients, and closes each server when its client returns \
                it. The answer comes when no server is left. Clients stay connected and wait, at \
                most `query_wait_timeout`. SIGUSR1 does the same without an answer.",
    },
    Verb {
        form: "RESUME [<db>]",
        about: "Ends PAUSE, KILL or SUSPEND, as SIGUSR2 does. Without a name, databases paused by \
                name stay paused.",
    },
    Verb {
        form: "DISABLE <db>",
        about: "Refuses new clients: `database \"X\" is disabled`. Connected clients stay.",
    },
    Verb { form: "ENABLE <db>", about: "Ends DISABLE." },
    Verb {
        form: "RECONNECT [<db>]",
        about: "Replaces all servers. Each server is closed as soon as it is free, and no new \
                client gets it. The answer comes at once; WAIT_CLOSE waits for the end.",
    },
    Verb {
        form: "KILL [<db>]",
        about: "Disconnects all clients and servers at once, and leaves the database paused until \
                RESUME with its name.",
    },
    Verb {
        form: "KILL_CLIENT <client_id>",
        about: "Disconnects one client, by the `id` of SHOW CLIENTS.",
    },
    Verb {
        form: "SUSPEND",
        about: "Accepts no client and reads nothing more. The answer comes when no message is \
                half read or half sent. After `suspend_timeout`, Weir closes connections that \
                still have such a message. When the last console is closed, Weir resumes.",
    },
    Verb {
        form: "EXPLAIN ROUTE <text>",
        about: "Says where a text would run ([Reads on standbys](routing.md)). Each judge has a row, \
                and each node if they agree. The databases are those with `reads = standby` that \
                have a pool. Weir's own.",
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
    Verb {
        form: "WAIT_CLOSE [<db>]",
        about: "Waits until all servers that are to be replaced (`close_needed` in SHOW SERVERS) \
                are closed.",
    },
    Verb {
        form: "SWITCHOVER <db> TO <node>",
        about: "Makes a standby the primary of the cluster that the database is at \
                ([Clusters](cluster.md#switchover)). All clients of the cluster wait meanwhile. \
                The answer comes when the other nodes follow the new primary. Weir's own.",
    },
    Verb {
        form: "FAILOVER PAUSE [<cluster>]",
        about: "Has Weir replace no lost primary by itself (`failover = own`) until FAILOVER RESUME. \
                Without a name, this is for all clusters. With `etcd`, it is for all members. \
                SWITCHOVER still works. Weir's own.",
    },
    Verb { form: "FAILOVER RESUME [<cluster>]", about: "Ends FAILOVER PAUSE. Weir's own." },
    Verb {
        form: "FAILOVER FORGET <member>",
        about: "Removes a silent member of SHOW MEMBERS that will not come back, so that it counts no \
                more for a majority. Weir's own.",
    },
    Verb {
        form: "DETACH <cluster> NODE <node>",
        about: "Sends no more reads to a standby, and does not promote it, until ATTACH. Running \
                reads end undisturbed. It holds over restarts, if Weir has a `pidfile` \
                ([Clusters](cluster.md#take-a-standby-out-of-use)). Weir's own.",
    },
    Verb { form: "ATTACH <cluster> NODE <node>", about: "Ends DETACH. Weir's own." },
    Verb {
        form: "PGPOOL SHOW <key>",
        about: "Shows a global key of Weir, and with ALL instead of a key what SHOW POOL_STATUS \
                shows ([Pgpool-II](pgpool.md)). Weir's own.",
    },
];

impl Command {
    /// Returns the command of a text. `columns` are those of a SHOW without EXTENDED.
    pub(crate) fn parse(text: &[u8], columns: ConsoleColumns) -> Result<Self, Invalid> {
        if let Some(explained) = explained(text) {
            return Ok(Self::ExplainRoute(explained.to_vec()));
        }
        let line = words::parse(text).map_err(|refusal| match refusal {
            Refusal::Grammar => Invalid::Unknown,
            Refusal::TooLong => Invalid::Arguments,
        })?;
        match line {
            Line::OfNode { verb, of, node } => {
                let (of, node) = (string(&of), string(&node));
                Ok(Self::Order(match verb {
                    NodeVerb::Switchover => Order::Switchover { database: of, node },
                    NodeVerb::Detach => Order::Detach { cluster: of, node },
                    NodeVerb::Attach => Order::Attach { cluster: of, node },
                }))
            }
            Line::Pgpool { verb, argument } => Self::from_pgpool(&verb, &argument),
            Line::Failover { what, argument } => {
                Self::from_failover(&what.to_ascii_uppercase(), &argument).ok_or(Invalid::Unknown)
            }
            Line::Set { key, value } => Ok(match parameter(&key) {
                Some(_) => Self::SetParameter,
                None => Self::Set { key: string(&key), value: string(&value) },
            }),
            Line::ShowExtended { what } => {
                Self::from_show(&what.to_ascii_uppercase(), true).ok_or(Invalid::Unknown)
            }
            Line::Command { verb, argument } => {
                let has_own = columns == ConsoleColumns::Weir;
                let (verb, what) = (verb.to_ascii_uppercase(), argument.to_ascii_uppercase());
                let command = match &*verb {
                    b"SHOW" | b"SELECT" => Self::from_show(&what, has_own),
                    _ => Self::from_words(&verb, &argument),
                };
                command.ok_or(Invalid::Unknown)
            }
        }
    }

    /// The verb is in upper case.
    fn from_words(verb: &[u8], argument: &[u8]) -> Option<Self> {
        let database = || (!argument.is_empty()).then(|| string(argument));
        let order = match verb {
            b"HELP" if argument.is_empty() => return Some(Self::Help),
            b"RELOAD" if argument.is_empty() => return Some(Self::Reload),
            b"SHUTDOWN" => return Self::from_shutdown(&argument.to_ascii_uppercase()),
            b"SUSPEND" if argument.is_empty() => Order::Suspend,
            b"PAUSE" => Order::Pause(database()),
            b"RESUME" => Order::Resume(database()),
            b"KILL" => Order::Kill(database()),
            b"RECONNECT" => Order::Reconnect(database()),
            b"WAIT_CLOSE" => Order::WaitClose(database()),
            b"DISABLE" | b"ENABLE" => match (database(), verb) {
                (None, _) => return Some(Self::Incomplete("a database is required")),
                (Some(database), b"ENABLE") => Order::Enable(database),
                (Some(database), _) => Order::Disable(database),
            },
            b"KILL_CLIENT" => match leading_number(argument) {
                Some(id) => Order::KillClient(id),
                None => return Some(Self::Incomplete("invalid client pointer supplied")),
            },
            _ => return None,
        };
        Some(Self::Order(order))
    }

    fn from_failover(what: &[u8], argument: &[u8]) -> Option<Self> {
        let argument = (!argument.is_empty()).then(|| string(argument));
        let order = match (what, argument) {
            (b"PAUSE", cluster) => Order::FailoverPause(cluster),
            (b"RESUME", cluster) => Order::FailoverResume(cluster),
            (b"FORGET", Some(member)) => Order::FailoverForget(member),
            (b"FORGET", None) => return Some(Self::Incomplete("a member is required")),
            _ => return None,
        };
        Some(Self::Order(order))
    }

    /// PGPOOL SHOW, SET and RESET, as in Pgpool-II.
    fn from_pgpool(verb: &[u8], argument: &[u8]) -> Result<Self, Invalid> {
        if !verb.eq_ignore_ascii_case(b"SHOW") {
            return Ok(Self::Incomplete(NO_PGPOOL_SET));
        }
        if argument.eq_ignore_ascii_case(b"ALL") {
            return Self::from_show(b"POOL_STATUS", true).ok_or(Invalid::Unknown);
        }
        let name = string(argument).to_ascii_lowercase();
        let mut keys = Key::all().filter(|key| key.scope == Scope::Global);
        Ok(match keys.find(|key| key.name == name) {
            Some(key) => Self::ShowKey(key.name),
            None => Self::Incomplete("there is no such key; PGPOOL SHOW ALL has the keys of Weir"),
        })
    }

    fn from_shutdown(how: &[u8]) -> Option<Self> {
        let how = match how {
            b"" => Shutdown::Now,
            b"WAIT_FOR_SERVERS" => Shutdown::WaitForServers,
            b"WAIT_FOR_CLIENTS" => Shutdown::WaitForClients,
            _ => return None,
        };
        Some(Self::Shutdown(how))
    }

    fn from_show(what: &[u8], has_own: bool) -> Option<Self> {
        if what == b"HELP" {
            return Some(Self::Help);
        }
        if let Some((name, value)) = parameter(what) {
            return Some(Self::Parameter(name, value));
        }
        let show = str::from_utf8(what).ok().and_then(show::find)?;
        Some(Self::Show(Selected { show, has_own }))
    }

    /// Returns the columns of its result, if it has one.
    pub(crate) fn heads(&self) -> Option<Vec<Head>> {
        match self {
            Self::Show(show) => Some(show.heads()),
            Self::ExplainRoute(_) => Some(JUDGEMENT.to_vec()),
            Self::Parameter(name, _) | Self::ShowKey(name) => Some(vec![undocumented(name)]),
            Self::Help
            | Self::SetParameter
            | Self::Set { .. }
            | Self::Reload
            | Self::Order(_)
            | Self::Shutdown(_)
            | Self::Incomplete(_) => None,
        }
    }

    /// Is it refused to users that may only SHOW (`stats_users`)?
    pub(crate) fn needs_admin(&self) -> bool {
        match self {
            Self::Show(selected) => selected.show.needs_admin(),
            Self::Help
            | Self::Parameter(..)
            | Self::SetParameter
            | Self::ExplainRoute(_)
            | Self::ShowKey(_) => false,
            Self::Set { .. }
            | Self::Reload
            | Self::Order(_)
            | Self::Shutdown(_)
            | Self::Incomplete(_) => true,
        }
    }
}

impl Order {
    /// Returns the verb, which is also the command tag of the reply.
    pub(crate) fn tag(&self) -> &'static str {
        match self {
            Self::Pause(_) => "PAUSE",
            Self::Resume(_) => "RESUME",
            Self::Suspend => "SUSPEND",
            Self::Kill(_) => "KILL",
            Self::KillClient(_) => "KILL_CLIENT",
            Self::Reconnect(_) => "RECONNECT",
            Self::WaitClose(_) => "WAIT_CLOSE",
            Self::Disable(_) => "DISABLE",
            Self::Enable(_) => "ENABLE",
            Self::Switchover { .. } | Self::Promote { .. } => "SWITCHOVER",
            Self::Detach { .. } => "DETACH",
            Self::Attach { .. } => "ATTACH",
            Self::FailoverPause(_) | Self::FailoverResume(_) | Self::FailoverForget(_) => {
                "FAILOVER"
            }
        }
    }

    /// Returns the log line of the command; as in PgBouncer, there is none for a single client.
    pub(crate) fn note(&self) -> Option<String> {
        let tag = self.tag();
        Some(match self {
            Self::Pause(Some(name))
            | Self::Resume(Some(name))
            | Self::Kill(Some(name))
            | Self::Reconnect(Some(name))
            | Self::WaitClose(Some(name))
            | Self::Disable(name)
            | Self::Enable(name) => format!("{tag} '{name}' command issued"),
            Self::Switchover { database, node } => {
                format!("{tag} '{database}' TO '{node}' command issued")
            }
            Self::FailoverForget(member) => format!("{tag} FORGET '{member}' command issued"),
            Self::FailoverPause(_) => format!("{tag} PAUSE command issued"),
            Self::FailoverResume(_) => format!("{tag} RESUME command issued"),
            Self::Promote { cluster, node } => {
                format!("{tag} of cluster '{cluster}' TO '{node}' command issued")
            }
            Self::Detach { cluster, node } | Self::Attach { cluster, node } => {
                format!("{tag} '{cluster}' NODE '{node}' command issued")
            }
            Self::KillClient(_) => return None,
            _ => format!("{tag} command issued"),
        })
    }
}

/// Has the text neither a command nor another word, but only blanks, semicolons and comments?
/// PostgreSQL has an answer of its own for such a query, and drivers send one to test a connection.
pub(crate) fn is_empty(text: &[u8]) -> bool {
    // A comment without an end would hide the word behind it.
    let marked = [text, b"\nword"].concat();
    let mut statements = sql::statements(&marked, true);
    let first = statements.find(|statement| statement.verb != sql::Verb::Empty);
    first.is_some_and(|statement| statement.range.start > text.len())
}

/// Returns the text behind EXPLAIN ROUTE.
fn explained(text: &[u8]) -> Option<&[u8]> {
    let mut rest = text.trim_ascii_start();
    for word in [&b"EXPLAIN"[..], b"ROUTE"] {
        let (head, behind) = rest.split_at_checked(word.len())?;
        if !head.eq_ignore_ascii_case(word) || !behind.first()?.is_ascii_whitespace() {
            return None;
        }
        rest = behind.trim_ascii_start();
    }
    (!rest.is_empty()).then_some(rest)
}

/// The columns of EXPLAIN ROUTE.
const JUDGEMENT: [Head; 5] = [
    undocumented("database"),
    undocumented("judge"),
    undocumented("place"),
    undocumented("reason"),
    undocumented("description"),
];

const fn undocumented(name: &'static str) -> Head {
    Head { name, kind: Kind::Text, about: "", is_own: false }
}

fn string(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

/// Reads a number like `sscanf`: text after the digits is ignored.
fn leading_number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&text[..digits]).ok()?.parse().ok()
}

fn parameter(name: &[u8]) -> Option<(&'static str, &'static str)> {
    PARAMETERS.into_iter().find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name))
}

/// Returns the command nearest to a text that is none, as one would type it.
pub(crate) fn nearest(text: &[u8]) -> Option<String> {
    /// Longer texts are SQL.
    const LEN_MAX: usize = 80;
    let text = str::from_utf8(text).ok().filter(|text| text.len() <= LEN_MAX)?;
    let mut words = text.trim_end_matches([';', ' ']).split_ascii_whitespace();
    let (verb, argument) = (words.next()?.to_ascii_lowercase(), words.next());
    let shows: Vec<_> = show::ALL.iter().map(|show| show.name().to_ascii_lowercase()).collect();
    let verbs = || VERBS.iter().filter_map(|verb| verb.form.split(' ').next());
    let verbs: Vec<_> = verbs().chain(["SHOW", "HELP"]).map(str::to_ascii_lowercase).collect();
    let near = |word: &str, known: &[String]| {
        let word = word.to_ascii_lowercase();
        config::nearest(&word, known.iter().map(String::as_str)).map(str::to_ascii_uppercase)
    };
    let show = |word: &str| near(word, &shows).map(|name| format!("SHOW {name}"));
    match (near(&verb, &verbs)?.as_str(), argument) {
        ("SHOW", Some(word)) => show(word),
        ("SHOW", None) => Some("SHOW HELP".to_owned()),
        (known, None) => Some(known.to_owned()),
        (known, Some(word)) => Some(format!("{known} {word}")),
    }
}

/// The text of SHOW HELP.
pub(crate) fn help() -> String {
    let mut text = "\n\tSHOW HELP".to_owned();
    for show in show::ALL {
        text.push('|');
        text.push_str(show.name());
    }
    text.push_str(" [EXTENDED]");
    for verb in &VERBS {
        text.push_str("\n\t");
        text.push_str(verb.form);
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Command, Invalid> {
        Command::parse(text.as_bytes(), ConsoleColumns::Pgbouncer)
    }

    #[test]
    fn the_nearest_command_is_proposed() {
        for (text, known) in [
            ("SHOW POLS", Some("SHOW POOLS")),
            ("shwo clients;", Some("SHOW CLIENTS")),
            ("RELAOD", Some("RELOAD")),
            ("PAUES app", Some("PAUSE app")),
            ("show", Some("SHOW HELP")),
            ("select 1+1", None),
            ("", None),
        ] {
            assert_eq!(nearest(text.as_bytes()).as_deref(), known, "{text:?}");
        }
        assert!(matches!(parse("help;"), Ok(Command::Help)));
    }

    #[test]
    fn every_show_is_found_in_any_case_and_by_select() {
        for show in show::ALL {
            let name = show.name().to_ascii_lowercase();
            for text in [format!("SHOW {name}"), format!("select \"{name}\" ;")] {
                match parse(&text) {
                    Ok(Command::Show(found)) => assert_eq!(found.show.name(), show.name()),
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
    fn verbs_take_a_database_or_all() {
        let order = |text| match parse(text) {
            Ok(Command::Order(order)) => order,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(order("pause"), Order::Pause(None));
        assert_eq!(order("PAUSE \"My db\";"), Order::Pause(Some("My db".to_owned())));
        assert_eq!(order("Resume db"), Order::Resume(Some("db".to_owned())));
        assert_eq!(order("disable Db"), Order::Disable("Db".to_owned()));
        assert_eq!(order("kill_client 5x"), Order::KillClient(5));
        assert_eq!(order("suspend"), Order::Suspend);
        let switchover = |database: &str, node: &str| Order::Switchover {
            database: database.to_owned(),
            node: node.to_owned(),
        };
        assert_eq!(order("SWITCHOVER app TO b;"), switchover("app", "b"));
        assert_eq!(order("switchover \"my db\" to \"pg-2\""), switchover("my db", "pg-2"));
        for text in ["switchover", "switchover app", "switchover app to", "switchover app b"] {
            assert_eq!(parse(text).err(), Some(Invalid::Unknown), "{text}");
        }
        assert_eq!(parse("suspend db").err(), Some(Invalid::Unknown));
        for text in ["enable", "disable", "kill_client", "kill_client x"] {
            assert!(matches!(parse(text), Ok(Command::Incomplete(_))), "{text}");
        }
    }

    #[test]
    fn any_other_key_is_set() {
        match parse("SET Pool_mode TO 'session'") {
            Ok(Command::Set { key, value }) => {
                assert_eq!((key.as_str(), value.as_str()), ("Pool_mode", "session"));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_log_names_what_was_ordered() {
        let note = |text| match parse(text) {
            Ok(Command::Order(order)) => order.note(),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(note("pause").as_deref(), Some("PAUSE command issued"));
        assert_eq!(note("enable db").as_deref(), Some("ENABLE 'db' command issued"));
        assert_eq!(note("kill_client 1"), None);
    }

    #[test]
    fn blanks_semicolons_and_comments_are_an_empty_query() {
        for text in [
            "",
            " ; ",
            ";;",
            "-- ping",
            "--",
            "/* ping */",
            "/* a /* b */ */;",
            "-- a\n\x0b-- b\r;",
        ] {
            assert!(is_empty(text.as_bytes()), "{text:?}");
        }
        for text in
            ["-", "- -", "-- ping\nRELOAD", "/* open", "/* a /* b */", "/*/", "RELOAD --", "*/"]
        {
            assert!(!is_empty(text.as_bytes()), "{text:?}");
        }
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
        for text in ["SHOW POOLS", "SHOW HELP", "SET datestyle=iso"] {
            assert!(!needs_admin(text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_command_or_not(text: Vec<u8>) {
            let _ = Command::parse(&text, ConsoleColumns::Weir);
        }
    }
}
