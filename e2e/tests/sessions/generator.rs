//! Scripts from seeds.
//!
//! A session keeps its server in a transaction, and while it has state that cannot be carried. The
//! generator lets fewer sessions do so than the pool has servers, so no step waits forever. No text
//! waits long for a lock of another session, since the database has a `lock_timeout`.

use crate::hostile;
use crate::script::{
    Action, Check, Event, Hold, Intrusion, Login, Parameter, Request, Script, Setting, Start, Step,
};
use crate::texts::{
    BAIT, DDL, ENCODING, ERRORS, LITERALS, LOOKS, MOMENTS, READS, SETTINGS, STARTUPS,
    WITH_PARAMETERS, WRITES,
};
use testkit::Dice;

mod objects;
mod readings;

const STEPS_MIN: usize = 12;
const STEPS_MORE: usize = 28;
const STATEMENTS: [&str; 4] = ["", "a", "b", "c"];
const PORTALS: [&str; 3] = ["", "", "p"];

/// The theme of a step. A seed prefers some of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Theme {
    Looks,
    Errors,
    Writes,
    Settings,
    Local,
    Transaction,
    Statements,
    Pipeline,
    Parameters,
    Prepared,
    Cursors,
    Temporary,
    Locks,
    Numbers,
    Listen,
    Copy,
    Ddl,
    Discard,
    Leaving,
    Functions,
    Readings,
    Moments,
    Reads,
}

const THEMES: &[Theme] = &[
    Theme::Looks,
    Theme::Errors,
    Theme::Writes,
    Theme::Settings,
    Theme::Local,
    Theme::Transaction,
    Theme::Statements,
    Theme::Pipeline,
    Theme::Parameters,
    Theme::Prepared,
    Theme::Cursors,
    Theme::Temporary,
    Theme::Locks,
    Theme::Numbers,
    Theme::Listen,
    Theme::Copy,
    Theme::Ddl,
    Theme::Discard,
    Theme::Leaving,
    Theme::Functions,
    Theme::Readings,
    Theme::Readings,
    Theme::Moments,
    Theme::Reads,
    Theme::Reads,
];

/// The generator's knowledge of a session.
#[derive(Debug, Clone, Copy, Default)]
struct Session {
    may_be_inside: bool,
    may_be_pinned: bool,
    /// True if the session may have used another encoding than the database. To listen, it needs a
    /// server of its own.
    speaks_other: bool,
    /// True if it uses that encoding from its login on.
    logs_in_with_other: bool,
    listens: bool,
}

impl Session {
    fn may_hold(self) -> bool {
        self.may_be_inside || self.may_be_pinned
    }

    /// Returns the state after the login.
    fn new(logs_in_with_other: bool) -> Self {
        Self { speaks_other: logs_in_with_other, logs_in_with_other, ..Self::default() }
    }
}

#[derive(Debug)]
struct Generator {
    dice: Dice,
    setting: Setting,
    sessions: Vec<Session>,
    favourites: Vec<Theme>,
    /// The texts with literals of this script. Several sessions use the same ones.
    literals: Vec<&'static str>,
    moments: Vec<&'static str>,
    /// True if SQL's PREPARE uses the names of the protocol's statements, too.
    shares_names: bool,
    /// The role of each session, if the operator acts in this script.
    logins: Option<Vec<Login>>,
    steps: Vec<Step>,
}

/// Returns the script of a seed.
pub(crate) fn script(seed: u64) -> Script {
    let mut dice = Dice::new(seed);
    let setting = Setting::of_seed(seed);
    let mut sessions = vec![Session::default(); 3 + dice.below(4)];
    let mut startup = |_| match dice.once_in(4) {
        true => dice.of(STARTUPS).to_vec(),
        false => Vec::new(),
    };
    let startups: Vec<_> = (0..sessions.len()).map(&mut startup).collect();
    for (session, startup) in sessions.iter_mut().zip(&startups) {
        *session = Session::new(startup.iter().any(|(name, _)| *name == ENCODING));
    }
    let favourites = match dice.once_in(3) {
        true => vec![Theme::Readings, Theme::Readings, Theme::Moments],
        false => (0..4).map(|_| *dice.of(THEMES)).collect(),
    };
    let literals = (0..2).map(|_| *dice.of::<&str>(LITERALS)).collect();
    let moments = (0..2).map(|_| *dice.of::<&str>(MOMENTS)).collect();
    let shares_names = dice.once_in(8);
    let mut login = |_| *dice.of(&[Login::Owner, Login::Chief, Login::Clerk]);
    let logins: Vec<_> = (0..sessions.len()).map(&mut login).collect();
    let logins = dice.once_in(4).then_some(logins);
    let steps = Vec::new();
    let mut generator = Generator {
        dice,
        setting,
        sessions,
        favourites,
        literals,
        moments,
        shares_names,
        logins,
        steps,
    };
    let count = STEPS_MIN + generator.dice.below(STEPS_MORE);
    while generator.steps.len() < count {
        generator.add_step();
    }
    let Generator { steps, logins, .. } = generator;
    let logins = logins.unwrap_or_else(|| vec![Login::Owner; startups.len()]);
    let start = |(login, parameters)| Start { login, parameters };
    let sessions = logins.into_iter().zip(startups).map(start).collect();
    let script = Script { setting, sessions, shares_names, steps };
    assert!(script.is_servable(), "seed {seed} may wait for a server for ever");
    script
}

impl Generator {
    /// Returns whether most steps of the script are about statements with literals.
    fn reads_literals(&self) -> bool {
        self.favourites.contains(&Theme::Moments)
    }

    fn holding(&self) -> usize {
        self.sessions.iter().filter(|session| session.may_hold()).count()
    }

    /// Returns whether this session may keep a server for longer than a step.
    fn may_take(&self, session: usize) -> bool {
        self.sessions[session].may_hold() || self.holding() + 1 < self.setting.pool_size
    }

    fn add_step(&mut self) {
        let session = self.dice.below(self.sessions.len());
        let is_favourite = match self.reads_literals() {
            true => !self.dice.once_in(4),
            false => self.dice.once_in(2),
        };
        let theme = match is_favourite {
            true => *self.dice.of(&self.favourites),
            false => *self.dice.of(THEMES),
        };
        if self.logins.is_some() && self.dice.once_in(8) {
            return self.happen();
        }
        // A session that holds its server releases it sooner or later.
        if self.sessions[session].may_hold() && self.dice.once_in(5) {
            return self.finish(session);
        }
        match theme {
            Theme::Looks => self.say_one(session, LOOKS),
            Theme::Errors => self.say_one(session, ERRORS),
            Theme::Writes => self.say_one(session, WRITES),
            Theme::Ddl => self.say_one(session, DDL),
            Theme::Settings => {
                let sql = self.setting_text(session, false);
                self.say(session, sql);
            }
            Theme::Local => {
                let sql = self.setting_text(session, true);
                self.say(session, sql);
            }
            Theme::Transaction => self.transaction(session),
            Theme::Statements => self.statement(session),
            Theme::Pipeline => self.pipeline(session),
            Theme::Parameters => self.parameters(session),
            Theme::Prepared => self.prepared(session),
            Theme::Cursors => self.cursor(session),
            Theme::Temporary => self.temporary(session),
            Theme::Locks => self.lock(session),
            Theme::Numbers => self.number(session),
            Theme::Listen => self.listen(session),
            Theme::Copy => self.copy(session),
            Theme::Discard => self.discard(session),
            Theme::Leaving => self.leave(session),
            Theme::Functions => self.function(session),
            Theme::Readings => self.reading(session),
            Theme::Moments => self.moment(session),
            Theme::Reads => self.read(session),
        }
    }

    /// Lets the operator act, and looks at what the sessions may see then.
    fn happen(&mut self) {
        const EVENTS: [Event; 7] = [
            Event::SwapRoles,
            Event::SwapRoles,
            Event::RenewRole,
            Event::RenewRole,
            Event::SetRole("11MB"),
            Event::SetRole("12MB"),
            Event::RenewDatabase,
        ];
        let action = Action::Happens(*self.dice.of(&EVENTS));
        for session in &mut self.sessions {
            *session = Session::new(session.logs_in_with_other);
        }
        let (check, intrusion) = (Check::Equal, Intrusion::default());
        self.steps.push(Step { session: 0, action, hold: Hold::Frees, check, intrusion });
        for session in 0..self.sessions.len() {
            if self.dice.once_in(2) {
                let looks = [
                    "SELECT current_user, session_user",
                    "SELECT word FROM public.secrets",
                    "SHOW work_mem",
                ];
                self.say_one(session, &looks);
            }
        }
    }

    fn push(&mut self, session: usize, action: Action, hold: Hold) {
        let mut holding: Vec<bool> = self.sessions.iter().map(|one| one.may_hold()).collect();
        if hold == Hold::Frees {
            self.sessions[session] = Session::new(self.sessions[session].logs_in_with_other);
        }
        // A step that takes a server is already counted in `sessions`. This counts it in any case.
        holding[session] = true;
        let needed = holding.iter().filter(|holds| **holds).count();
        let mut intrusion = Intrusion::default();
        if self.dice.once_in(3) {
            let acts = 1 + self.dice.below(3);
            let reads = self.reads_literals();
            for _ in 0..acts {
                let kinds = match reads && self.dice.once_in(2) {
                    true => hostile::READINGS,
                    false => hostile::ACTS.len(),
                };
                intrusion.acts.push(self.dice.below(kinds));
            }
        }
        intrusion.stays = needed < self.setting.pool_size && self.dice.once_in(2);
        self.steps.push(Step { session, action, hold, check: Check::Equal, intrusion });
    }

    fn write(&mut self, session: usize, requests: Vec<Request>) {
        self.push(session, Action::Write(requests), Hold::AsBefore);
    }

    /// Adds a step with one text, by either protocol.
    fn say(&mut self, session: usize, sql: impl Into<String>) {
        let requests = self.either(sql.into());
        self.write(session, requests);
    }

    fn say_one(&mut self, session: usize, texts: &[&str]) {
        let sql = *self.dice.of(texts);
        self.say(session, sql);
    }

    /// Adds a step with one text, after which the session may keep its server.
    fn take(&mut self, session: usize, is_transaction: bool, sql: impl Into<String>) {
        if !self.may_take(session) {
            return self.say_one(session, LOOKS);
        }
        self.mark(session, is_transaction);
        let mut requests = self.either(sql.into());
        if matches!(requests[0], Request::Parse { .. }) {
            requests.extend(forgotten());
        }
        self.push(session, Action::Write(requests), Hold::Takes);
    }

    fn mark(&mut self, session: usize, is_transaction: bool) {
        let one = &mut self.sessions[session];
        match is_transaction {
            true => one.may_be_inside = true,
            false => one.may_be_pinned = true,
        }
    }

    fn either(&mut self, sql: String) -> Vec<Request> {
        // Only the simple protocol supports several statements in one text.
        if self.dice.once_in(2) || sql.contains("; ") {
            return vec![Request::Query(sql)];
        }
        let mut requests = vec![Request::Parse { name: "", sql }, unbound("", "")];
        if self.dice.once_in(2) {
            requests.push(Request::DescribePortal(""));
        }
        requests.extend([Request::Execute { portal: "", rows: 0 }, Request::Sync]);
        requests
    }

    /// Ends everything that the session holds.
    fn finish(&mut self, session: usize) {
        let is_pinned = self.sessions[session].may_be_pinned;
        let end = *self.dice.of(&["ROLLBACK", "COMMIT", "END; ROLLBACK"]);
        self.sessions[session].may_be_inside = false;
        let hold = if is_pinned { Hold::AsBefore } else { Hold::Frees };
        self.push(session, Action::Write(vec![Request::query(end)]), hold);
        if is_pinned && self.dice.once_in(2) {
            self.push(session, Action::Write(vec![Request::query("DISCARD ALL")]), Hold::Frees);
        } else if is_pinned {
            self.sessions[session].may_be_pinned = true;
        }
    }

    fn setting_text(&mut self, session: usize, is_local: bool) -> String {
        let (name, values) = *self.dice.of(SETTINGS);
        let one = &mut self.sessions[session];
        if name == ENCODING && one.listens {
            return "SET work_mem = '7MB'".to_owned();
        }
        one.speaks_other |= name == ENCODING;
        let value = *self.dice.of(values);
        if is_local && name != "ROLE" && self.dice.once_in(2) {
            return format!("SET LOCAL {name} = {value}");
        }
        match self.dice.below(6) {
            _ if name == "ROLE" => format!("SET ROLE {value}"),
            0 => format!("RESET {name}"),
            1 => "RESET ALL".to_owned(),
            2 if value.starts_with('\'') => {
                format!("SELECT set_config('{name}', {value}, {is_local})")
            }
            3 => format!("DO $$BEGIN SET {name} TO {value}; END$$"),
            4 => format!("SET {name} TO {value}; SHOW work_mem; SELECT name FROM place"),
            _ => format!("SET {name} TO {value}"),
        }
    }

    fn transaction(&mut self, session: usize) {
        if !self.sessions[session].may_be_inside {
            let begin = *self.dice.of(&[
                "BEGIN",
                "START TRANSACTION READ ONLY",
                "BEGIN ISOLATION LEVEL REPEATABLE READ",
                "BEGIN; SAVEPOINT s",
                "BEGIN; SET LOCAL work_mem = '3MB'; SET TimeZone = 'Asia/Tokyo'",
            ]);
            return self.take(session, true, begin);
        }
        let sql = *self.dice.of(&[
            "SAVEPOINT s",
            "ROLLBACK TO s",
            "RELEASE s",
            "COMMIT AND CHAIN",
            "ROLLBACK AND CHAIN",
            "SET TRANSACTION READ ONLY",
        ]);
        self.say(session, sql);
    }

    /// Adds steps that read: single statements just after a write, or a READ ONLY transaction.
    fn read(&mut self, session: usize) {
        if self.sessions[session].may_be_inside || !self.dice.once_in(4) {
            let writer = self.dice.below(self.sessions.len());
            self.say_now(writer, WRITES);
            for _ in 0..=self.dice.below(3) {
                let reader = match self.dice.once_in(2) {
                    true => session,
                    false => self.dice.below(self.sessions.len()),
                };
                self.say_now(reader, READS);
            }
            return;
        }
        let begin =
            *self.dice.of(&["BEGIN READ ONLY", "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"]);
        let first = *self.dice.of(READS);
        let second = *self.dice.of(READS);
        let texts = [begin, first, second, "COMMIT"];
        let requests = texts.map(Request::query).to_vec();
        self.write(session, requests);
    }

    /// Adds a step before which no other client acts.
    fn say_now(&mut self, session: usize, texts: &[&str]) {
        self.say_one(session, texts);
        self.steps.last_mut().expect("the step was added just now").intrusion =
            Intrusion::default();
    }

    fn statement_text(&mut self, session: usize) -> String {
        let kind = self.dice.below(10);
        match kind {
            0 => (*self.dice.of(ERRORS)).to_owned(),
            1 => self.setting_text(session, false),
            2 | 3 => (*self.dice.of(WRITES)).to_owned(),
            4 | 5 => self.dice.of(WITH_PARAMETERS).0.to_owned(),
            6 => "SELECT * FROM public.changing".to_owned(),
            _ => (*self.dice.of(LOOKS)).to_owned(),
        }
    }

    fn parse(&mut self, session: usize, name: &'static str) -> Request {
        Request::Parse { name, sql: self.statement_text(session) }
    }

    fn bind(&mut self, portal: &'static str, statement: &'static str) -> Request {
        // The number of the statement's parameters is unknown here. A wrong number is an error like
        // any other.
        let count = *self.dice.of(&[0, 0, 0, 1, 1, 2]);
        let parameters = (0..count).map(|_| self.plain_parameter()).collect();
        Request::Bind { portal, statement, parameters, binary: self.dice.once_in(8) }
    }

    fn plain_parameter(&mut self) -> Parameter {
        let value = *self.dice.of(&["1", "2", "work_mem", "app.kept", "2024-01-02 03:04:05"]);
        Parameter { is_binary: false, value: Some(value.as_bytes().to_vec()) }
    }

    /// Prepares, uses, describes or closes a statement of the protocol, each with its Sync.
    fn statement(&mut self, session: usize) {
        let name = *self.dice.of(&STATEMENTS);
        let mut requests = match self.dice.below(8) {
            0 | 1 => vec![self.parse(session, name)],
            2 => vec![Request::CloseStatement(name), self.parse(session, name)],
            3 => vec![Request::DescribeStatement(name)],
            4 if name.is_empty() => vec![Request::CloseStatement(name)],
            _ => {
                let mut use_it = vec![self.bind("", name)];
                if self.dice.once_in(2) {
                    use_it.push(Request::DescribePortal(""));
                }
                use_it.push(Request::Execute { portal: "", rows: 0 });
                use_it
            }
        };
        requests.push(Request::Sync);
        self.write(session, requests);
    }

    /// Sends messages of the extended protocol in any order, in one write, with several Syncs.
    fn pipeline(&mut self, session: usize) {
        let count = 3 + self.dice.below(12);
        let mut requests: Vec<Request> = Vec::new();
        for _ in 0..count {
            let (name, portal) = (*self.dice.of(&STATEMENTS), *self.dice.of(&PORTALS));
            match self.dice.below(16) {
                0..=2 => requests.push(self.parse(session, name)),
                3..=5 => {
                    let bind = self.bind(portal, name);
                    requests.extend([bind, Request::Execute { portal, rows: 0 }]);
                }
                6 => requests.push(Request::DescribeStatement(name)),
                7 => requests.push(Request::DescribePortal(portal)),
                8 => requests.push(Request::Execute { portal, rows: 1 }),
                9 | 10 => requests.push(Request::CloseStatement(name)),
                11 => requests.push(Request::ClosePortal(portal)),
                12 | 13 => requests.push(Request::Sync),
                _ => {
                    // After an error, a query before the Sync would be skipped.
                    if !matches!(requests.last(), None | Some(Request::Sync | Request::Query(_))) {
                        requests.push(Request::Sync);
                    }
                    let sql = *self.dice.of(&[
                        "SELECT 1",
                        "DISCARD ALL",
                        "DEALLOCATE ALL",
                        "DEALLOCATE a",
                        "PREPARE q AS SELECT 'of SQL'",
                        "EXECUTE q",
                        "EXECUTE a",
                        "SET search_path = s1",
                        "SELECT 1/0",
                        "ROLLBACK",
                    ]);
                    requests.push(Request::query(sql));
                }
            }
        }
        requests.push(Request::Sync);
        self.write(session, requests);
    }

    fn random_bytes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..self.dice.below(4) {
            match self.dice.once_in(3) {
                true => {
                    let count = self.dice.below(24);
                    bytes.extend((0..count).map(|_| self.dice.below(256) as u8));
                }
                false => bytes.extend_from_slice(self.dice.of::<&[u8]>(BAIT)),
            }
        }
        bytes
    }

    /// Executes a statement with parameters of random bytes.
    fn parameters(&mut self, session: usize) {
        let (sql, count) = *self.dice.of(WITH_PARAMETERS);
        let name = *self.dice.of(&["", "", "d"]);
        let mut requests = Vec::new();
        if !name.is_empty() {
            requests.push(Request::CloseStatement(name));
        }
        requests.push(Request::Parse { name, sql: sql.to_owned() });
        for _ in 0..=self.dice.below(2) {
            let parameters = (0..count).map(|_| self.parameter(session)).collect();
            let binary = self.dice.once_in(3);
            requests.push(Request::Bind { portal: "", statement: name, parameters, binary });
            requests.extend([Request::Execute { portal: "", rows: 0 }, Request::Sync]);
        }
        self.write(session, requests);
    }

    fn parameter(&mut self, session: usize) -> Parameter {
        // A setting with non-ASCII characters would pin the session.
        let is_ascii = self.sessions[session].speaks_other;
        let is_binary = self.dice.once_in(2);
        let value = match self.dice.below(8) {
            0 => None,
            1 => return self.plain_parameter(),
            2 if is_binary => Some((self.dice.below(9) as u32).to_be_bytes().to_vec()),
            _ => Some(self.random_bytes()),
        };
        let value = match value {
            Some(mut bytes) if is_ascii => {
                bytes.retain(u8::is_ascii);
                Some(bytes)
            }
            value => value,
        };
        Parameter { is_binary, value }
    }

    fn leave(&mut self, session: usize) {
        let says_goodbye = self.dice.once_in(2);
        self.push(session, Action::Leave { says_goodbye }, Hold::Frees);
    }
}

/// Replaces the unnamed statement. A later step must not execute the previous one: it may be a COPY
/// without data, or a BEGIN in a session that may not keep a server.
fn forgotten() -> [Request; 2] {
    [Request::Parse { name: "", sql: "SELECT 0".to_owned() }, Request::Sync]
}

fn unbound(portal: &'static str, statement: &'static str) -> Request {
    Request::Bind { portal, statement, parameters: Vec::new(), binary: false }
}
