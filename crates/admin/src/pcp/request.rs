//! The requests of Pgpool-II's tools.

use super::Refusal;
use super::frame::Frame;
use crate::control::Shutdown;

/// A request. Nodes have ids from 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request<'a> {
    Salt,
    LogIn {
        user: &'a str,
        digest: &'a str,
    },
    End,
    NodeCount,
    Nodes(Which),
    Health(i64),
    ProcessCount,
    Processes(Which),
    Settings,
    /// Its members have ids from 0 on, the local one first.
    Watchdog(Which),
    /// Sets `client_min_messages`, which has no effect: there are no messages but errors.
    SetLevel,
    Detach(i64),
    Attach(i64),
    Promote {
        id: i64,
        is_switchover: bool,
    },
    Reload,
    Shutdown(Shutdown),
    /// Weir has nothing like it, for this reason.
    Unsupported(&'static str),
}

/// One item, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    All,
    One(i64),
}

impl<'a> Request<'a> {
    pub(super) fn parse(frame: &'a Frame) -> Result<Self, Refusal> {
        let mut fields = frame.body.split(|byte| *byte == 0);
        let mut field = || {
            let field = fields.next().and_then(|field| str::from_utf8(field).ok());
            field.ok_or(Refusal::Fatal("a field is missing or not in UTF-8"))
        };
        let number = |text: &str| {
            let number = text.trim().parse::<i64>();
            number.map_err(|_| Refusal::Error(format!("invalid number: {}", text.escape_default())))
        };
        let all_at = |all: i64, id: i64| if id == all { Which::All } else { Which::One(id) };
        Ok(match frame.code {
            b'M' => Self::Salt,
            b'R' => Self::LogIn { user: field()?, digest: field()? },
            b'X' => Self::End,
            b'L' => Self::NodeCount,
            b'I' => Self::Nodes(all_at(-1, number(field()?)?)),
            b'H' => Self::Health(number(field()?)?),
            b'N' => Self::ProcessCount,
            b'P' => Self::Processes(all_at(0, number(field()?)?)),
            b'B' => Self::Settings,
            b'W' => Self::Watchdog(all_at(-1, number(field()?)?)),
            b'A' if field()? == "client_min_messages" => Self::SetLevel,
            b'A' => return Err("only client_min_messages can be set".into()),
            b'D' | b'd' => Self::Detach(number(field()?)?),
            b'C' => Self::Attach(number(field()?)?),
            b'J' | b'j' => Self::Promote {
                id: number(field()?)?,
                is_switchover: match field()? {
                    "s" => true,
                    "n" => false,
                    _ => return Err("invalid option of a promotion".into()),
                },
            },
            b'Z' => Self::Reload,
            b'T' | b't' => Self::Shutdown(match field()? {
                "s" => Shutdown::WaitForClients,
                "f" | "i" => Shutdown::Now,
                _ => return Err("invalid shutdown mode".into()),
            }),
            b'O' => Self::Unsupported(
                "recovery is not supported: Weir does not rebuild nodes; rejoin_command makes the old \
                 primary of a switchover a standby",
            ),
            b'V' => Self::Unsupported(
                "log rotation is not supported: move the log file, and then reload the configuration",
            ),
            b'G' => Self::Unsupported("there is no query cache"),
            _ => return Err(Refusal::Fatal("unknown request")),
        })
    }

    /// Is it refused to users that are read-only?
    pub(super) fn needs_admin(self) -> bool {
        match self {
            Self::Detach(_)
            | Self::Attach(_)
            | Self::Promote { .. }
            | Self::Reload
            | Self::Shutdown(_) => true,
            Self::Salt
            | Self::LogIn { .. }
            | Self::End
            | Self::NodeCount
            | Self::Nodes(_)
            | Self::Health(_)
            | Self::ProcessCount
            | Self::Processes(_)
            | Self::Settings
            | Self::Watchdog(_)
            | Self::SetLevel
            | Self::Unsupported(_) => false,
        }
    }
}

/// Returns the code of the answer to a request that has succeeded.
pub(super) fn reply(code: u8) -> u8 {
    match code {
        b'J' | b'j' => b'd',
        code => code.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(code: u8, body: &[u8]) -> Option<String> {
        let frame = Frame { code, body: body.to_vec() };
        Request::parse(&frame).ok().map(|request| format!("{request:?}"))
    }

    #[test]
    fn requests_are_those_of_the_tools() {
        for (code, body, request) in [
            (b'R', &b"u\0d\0"[..], "LogIn { user: \"u\", digest: \"d\" }"),
            (b'I', b"-1\0", "Nodes(All)"),
            (b'I', b"0\0", "Nodes(One(0))"),
            (b'P', b"0\0", "Processes(All)"),
            (b'P', b"17\0", "Processes(One(17))"),
            // From a capture of pcp_promote_node -s.
            (b'J', b"1 \0s", "Promote { id: 1, is_switchover: true }"),
            (b'j', b"2 \0n", "Promote { id: 2, is_switchover: false }"),
            (b'T', b"s", "Shutdown(WaitForClients)"),
            (b't', b"f", "Shutdown(Now)"),
            (b'Z', b"l", "Reload"),
            (b'A', b"client_min_messages\0debug\0", "SetLevel"),
        ] {
            assert_eq!(parse(code, body).as_deref(), Some(request), "{}", char::from(code));
        }
        for (code, body) in [
            (b'I', &b""[..]),
            (b'I', b"x\0"),
            (b'I', b"99999999999999999999\0"),
            (b'R', b"u"),
            (b'R', b"\xff\0d\0"),
            (b'J', b"1 \0x"),
            (b'J', b"1"),
            (b'T', b"x"),
            (b'A', b"log_min_messages\0debug\0"),
            (b'?', b""),
        ] {
            assert_eq!(parse(code, body), None, "{} {body:?}", char::from(code));
        }
    }

    #[test]
    fn answers_have_the_code_that_the_tools_expect() {
        let all = b"LIHNPBWDdCJjTtZA".iter().map(|code| reply(*code)).collect::<Vec<_>>();
        assert_eq!(all, b"lihnpbwddcddttza");
    }
}
