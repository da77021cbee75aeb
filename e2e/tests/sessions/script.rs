//! A script: the requests of several sessions in turn. It can be sent, printed and reduced.

use std::collections::BTreeSet;
use std::fmt;

use testkit::frontend;

/// A message of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    Query(String),
    Parse { name: &'static str, sql: String },
    Bind { portal: &'static str, statement: &'static str, parameters: Vec<Parameter>, binary: bool },
    DescribeStatement(&'static str),
    DescribePortal(&'static str),
    Execute { portal: &'static str, rows: u32 },
    CloseStatement(&'static str),
    ClosePortal(&'static str),
    CopyData(Vec<u8>),
    CopyDone,
    CopyFail,
    Call { function: u32, argument: String },
    Sync,
}

/// A parameter of a Bind; `None` is NULL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) is_binary: bool,
    pub(crate) value: Option<Vec<u8>>,
}

impl Request {
    pub(crate) fn query(sql: impl Into<String>) -> Self {
        Self::Query(sql.into())
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Query(sql) => frontend::query(sql),
            Self::Parse { name, sql } => frontend::parse(name, sql),
            Self::Bind { portal, statement, parameters, binary } => {
                bind(portal, statement, parameters, *binary)
            }
            Self::DescribeStatement(name) => frontend::describe_statement(name),
            Self::DescribePortal(name) => frontend::describe_portal(name),
            Self::Execute { portal, rows } => frontend::execute(portal, *rows),
            Self::CloseStatement(name) => frontend::close_statement(name),
            Self::ClosePortal(name) => frontend::close_portal(name),
            Self::CopyData(data) => frontend::copy_data(data),
            Self::CopyDone => frontend::copy_done(),
            Self::CopyFail => frontend::copy_fail("given up"),
            Self::Call { function, argument } => frontend::function_call(*function, &[argument]),
            Self::Sync => frontend::sync(),
        }
    }

    /// Returns whether a ReadyForQuery answers the request.
    fn is_answered_by_ready(&self) -> bool {
        matches!(self, Self::Query(_) | Self::Call { .. } | Self::Sync)
    }

    /// Returns whether the request belongs to the COPY of the request before it.
    fn is_copy_data(&self) -> bool {
        matches!(self, Self::CopyData(_) | Self::CopyDone | Self::CopyFail)
    }
}

fn bind(portal: &str, statement: &str, parameters: &[Parameter], binary: bool) -> Vec<u8> {
    let count = |value: usize| u16::try_from(value).expect("few parameters").to_be_bytes();
    let mut payload = [portal.as_bytes(), b"\0", statement.as_bytes(), b"\0"].concat();
    payload.extend(count(parameters.len()));
    for parameter in parameters {
        payload.extend(u16::from(parameter.is_binary).to_be_bytes());
    }
    payload.extend(count(parameters.len()));
    for parameter in parameters {
        let value = parameter.value.as_deref();
        let length = value.map_or(-1, |value| i32::try_from(value.len()).expect("a short value"));
        payload.extend(length.to_be_bytes());
        payload.extend(value.unwrap_or_default());
    }
    match binary {
        true => payload.extend([0, 1, 0, 1]),
        false => payload.extend([0, 0]),
    }
    frontend::message(b'B', &payload)
}

/// The action of a session in one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// One write. A ReadyForQuery answers the last request.
    Write(Vec<Request>),
    /// Disconnects, with or without a Terminate, and logs in again.
    Leave { says_goodbye: bool },
    /// All sessions disconnect, the operator acts, and all log in again.
    Happens(Event),
}

/// An action of the operator while no client is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The roles of `Login::Chief` and `Login::Clerk` swap their names.
    SwapRoles,
    /// The role of `Login::Clerk` is dropped and created again.
    RenewRole,
    /// The role of `Login::Clerk` gets another value of a setting for its new sessions.
    SetRole(&'static str),
    /// The database is dropped and created again.
    RenewDatabase,
}

/// The role that a session logs in as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Login {
    /// The owner of the tables.
    Owner,
    /// A role that may read `public.secrets`.
    Chief,
    /// A role that may not.
    Clerk,
}

/// The condition for the answers of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// The answers are those of the direct connection.
    Equal,
    /// The rows are those of the direct connection, or of one of the session's own readings of this
    /// statement since its Parse: a server without the statement reads the literals again.
    Reading(&'static str),
    /// Each row is a time that is not before the Parse of this statement.
    Moment(&'static str),
}

/// The effect of a step on the session's server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// The session keeps its server after the step if it kept it before.
    AsBefore,
    /// The session may keep its server from this step on.
    Takes,
    /// The session keeps no server any more.
    Frees,
}

/// The actions of hostile clients before a step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Intrusion {
    /// Indexes into `hostile::ACTS`.
    pub(crate) acts: Vec<usize>,
    /// True if a hostile client keeps a server during the step.
    pub(crate) stays: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) session: usize,
    pub(crate) action: Action,
    pub(crate) hold: Hold,
    pub(crate) check: Check,
    pub(crate) intrusion: Intrusion,
}

impl Step {
    pub(crate) fn bytes(requests: &[Request]) -> Vec<u8> {
        requests.iter().flat_map(Request::bytes).collect()
    }

    pub(crate) fn readies(requests: &[Request]) -> usize {
        requests.iter().filter(|request| request.is_answered_by_ready()).count()
    }

    /// Returns whether one of the step's texts contains this word, in lower case.
    pub(crate) fn says(&self, word: &str) -> bool {
        let Action::Write(requests) = &self.action else { return false };
        requests.iter().any(|request| match request {
            Request::Query(sql) | Request::Parse { sql, .. } => sql.to_lowercase().contains(word),
            _ => false,
        })
    }
}

/// Weir's configuration for a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) pool_size: usize,
    pub(crate) workers: u32,
    pub(crate) round_robin: bool,
}

impl Setting {
    /// Returns the configuration for a seed. Consecutive seeds get different ones.
    pub(crate) fn of_seed(seed: u64) -> Self {
        Self {
            pool_size: if seed & 1 == 0 { 2 } else { 4 },
            workers: if seed & 2 == 0 { 1 } else { 2 },
            round_robin: seed & 4 != 0,
        }
    }
}

/// The login of a session.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) login: Login,
    /// The parameters of the startup packet.
    pub(crate) parameters: Vec<(&'static str, &'static str)>,
}

#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) setting: Setting,
    pub(crate) sessions: Vec<Start>,
    /// True if SQL's PREPARE uses the names of the protocol's statements, too.
    pub(crate) shares_names: bool,
    pub(crate) steps: Vec<Step>,
}

impl Script {
    /// Returns whether all sessions log in as the same role.
    pub(crate) fn has_one_role(&self) -> bool {
        self.sessions.windows(2).all(|pair| pair[0].login == pair[1].login)
    }

    /// Leaves out the actions that change roles.
    pub(crate) fn leave_roles_alone(&mut self) {
        self.steps.retain(|step| match step.action {
            Action::Happens(event) => event == Event::RenewDatabase,
            Action::Write(_) | Action::Leave { .. } => true,
        });
    }

    /// Returns whether one of this session's texts contains this word, in lower case.
    pub(crate) fn says(&self, session: usize, word: &str) -> bool {
        self.steps.iter().any(|step| step.session == session && step.says(word))
    }

    /// Returns whether every step finds a server: one server is always left for sessions that keep
    /// none.
    pub(crate) fn is_servable(&self) -> bool {
        let mut holding = BTreeSet::new();
        self.steps.iter().all(|step| {
            let mut needed = holding.clone();
            needed.insert(step.session);
            let stays = usize::from(step.intrusion.stays);
            let is_servable = needed.len() + stays <= self.setting.pool_size;
            if matches!(step.action, Action::Happens(_)) {
                holding.clear();
                return true;
            }
            match step.hold {
                Hold::Takes => holding.insert(step.session),
                Hold::Frees => holding.remove(&step.session),
                Hold::AsBefore => false,
            };
            is_servable && holding.len() < self.setting.pool_size
        })
    }

    /// Returns the script without some steps, or `None` if a step would then wait forever for a
    /// server.
    pub(crate) fn without_steps(&self, from: usize, count: usize) -> Option<Self> {
        let mut script = self.clone();
        script.steps.drain(from..(from + count).min(script.steps.len()));
        script.is_servable().then_some(script)
    }

    /// Returns every script that lacks one request or one intrusion of this one.
    pub(crate) fn trimmed(&self) -> Vec<Self> {
        let mut all = Vec::new();
        for (at, step) in self.steps.iter().enumerate() {
            if step.intrusion != Intrusion::default() {
                let mut script = self.clone();
                script.steps[at].intrusion = Intrusion::default();
                all.push(script);
            }
            let Action::Write(requests) = &step.action else { continue };
            for place in 0..requests.len() {
                let mut fewer = requests.clone();
                fewer.remove(place);
                if is_complete(&fewer) {
                    let mut script = self.clone();
                    script.steps[at].action = Action::Write(fewer);
                    all.push(script);
                }
            }
        }
        all
    }
}

/// Returns whether a ReadyForQuery answers the last request and no COPY lacks its data.
fn is_complete(requests: &[Request]) -> bool {
    let last = requests.iter().rfind(|request| !request.is_copy_data());
    let copies = requests.iter().any(|request| match request {
        Request::Query(sql) | Request::Parse { sql, .. } => sql.contains("FROM STDIN"),
        _ => false,
    });
    !copies && last.is_some_and(Request::is_answered_by_ready)
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Query(sql) => write!(f, "Query {}", brief(sql)),
            Self::Parse { name, sql } => write!(f, "Parse {name:?} {}", brief(sql)),
            Self::Bind { portal, statement, parameters, binary } => {
                write!(f, "Bind {portal:?} {statement:?}")?;
                for parameter in parameters {
                    let kind = if parameter.is_binary { "b" } else { "" };
                    match &parameter.value {
                        Some(value) => write!(f, " {kind}'{}'", value.escape_ascii())?,
                        None => write!(f, " NULL")?,
                    }
                }
                if *binary { write!(f, " (binary results)") } else { Ok(()) }
            }
            Self::DescribeStatement(name) => write!(f, "Describe S {name:?}"),
            Self::DescribePortal(name) => write!(f, "Describe P {name:?}"),
            Self::Execute { portal, rows: 0 } => write!(f, "Execute {portal:?}"),
            Self::Execute { portal, rows } => write!(f, "Execute {portal:?} {rows}"),
            Self::CloseStatement(name) => write!(f, "Close S {name:?}"),
            Self::ClosePortal(name) => write!(f, "Close P {name:?}"),
            Self::CopyData(data) => write!(f, "CopyData '{}'", data.escape_ascii()),
            Self::CopyDone => write!(f, "CopyDone"),
            Self::CopyFail => write!(f, "CopyFail"),
            Self::Call { function, argument } => write!(f, "FunctionCall {function}({argument:?})"),
            Self::Sync => write!(f, "Sync"),
        }
    }
}

fn brief(sql: &str) -> String {
    match sql.char_indices().nth(300) {
        Some((end, _)) => format!("{:?}… ({} bytes)", &sql[..end], sql.len()),
        None => format!("{sql:?}"),
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.intrusion != Intrusion::default() {
            let stays = if self.intrusion.stays { ", and one keeps a server" } else { "" };
            writeln!(f, "    hostile clients: {:?}{stays}", self.intrusion.acts)?;
        }
        match &self.action {
            Action::Happens(event) => {
                return write!(f, "    all disconnect; {event:?}; all log in");
            }
            _ => write!(f, "    session {}: ", self.session)?,
        }
        match &self.action {
            Action::Happens(_) => Ok(()),
            Action::Leave { says_goodbye: true } => write!(f, "Terminate, and logs in again"),
            Action::Leave { says_goodbye: false } => write!(f, "disconnects, and logs in again"),
            Action::Write(requests) => {
                let all: Vec<_> = requests.iter().map(ToString::to_string).collect();
                write!(f, "{}", all.join("; "))
            }
        }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { pool_size, workers, round_robin } = self.setting;
        let robin = u8::from(round_robin);
        writeln!(f, "    pool of {pool_size}, {workers} workers, server_round_robin={robin}")?;
        for (session, Start { login, parameters }) in self.sessions.iter().enumerate() {
            if *login != Login::Owner || !parameters.is_empty() {
                writeln!(f, "    session {session} logs in as {login:?} with {parameters:?}")?;
            }
        }
        for step in &self.steps {
            writeln!(f, "{step}")?;
        }
        Ok(())
    }
}
