//! A simulated application. It logs in, plays its script, and compares every answer with the
//! reference.

use std::collections::VecDeque;

use engine::settings::PoolKey;
use wire::messages::{
    AuthenticationRequest, BackendKeyData, NotificationResponse, ParameterStatus,
};
use wire::scram::{self, ScramClient, ScramSecret};
use wire::{HEADER_LEN, Header, backend, frontend, md5};

use crate::bus::{Bus, Hearing};
use crate::reference::{Reference, Verdict, is_style, show, sqlstate};
use crate::script::{Manner, Step};
use crate::settings::{PATH, STYLE, Settings, UNTRACKED, is_default_style};
use crate::sql::{CHATTER, Tag};

/// A client's identity.
#[derive(Clone, Debug)]
pub(crate) struct Who {
    pub(crate) user: String,
    pub(crate) database: String,
    pub(crate) password: String,
    pub(crate) is_wrong: bool,
    /// It asks for TLS first.
    pub(crate) asks_tls: bool,
    /// It keeps one server for the whole session.
    pub(crate) has_own_server: bool,
    /// Its session state follows it to every server: RESET goes back to the startup packet.
    pub(crate) has_session: bool,
    /// Startup parameters.
    pub(crate) wants: Vec<(&'static str, String)>,
}

impl Who {
    /// `forced`: the user of the database's servers, whoever the client is.
    pub(crate) fn is_of(&self, key: &PoolKey, forced: Option<&str>) -> bool {
        let user = forced.unwrap_or(&self.user);
        (&*self.database, user) == (&*key.database, &*key.user)
    }
}

#[derive(Debug)]
pub(crate) enum Phase {
    /// It has not connected yet.
    Absent,
    Login(Option<Box<ScramClient>>),
    Running,
    /// Its connection only carries a cancel request.
    Canceling,
    /// It no longer reads, or expects only the end.
    Leaving,
    Done,
}

/// A client's progress after a server was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// None was lost.
    None,
    /// It waits for the answer to its last request.
    Waits,
    /// It has got the row of that answer.
    Answered,
    Done,
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) who: Who,
    pub(crate) phase: Phase,
    pub(crate) script: VecDeque<Step>,
    pub(crate) to_send: VecDeque<u8>,
    /// It sends nothing before this moment.
    pub(crate) thinks_until: u64,
    /// It reads nothing before this moment.
    pub(crate) deaf_until: u64,
    pub(crate) reference: Reference,
    pub(crate) hearing: Hearing,
    /// Is it in a transaction, as far as it knows?
    in_transaction: bool,
    /// It got another client's notification in a transaction. The transaction must have ended with
    /// that.
    told_early: Option<String>,
    pub(crate) key: Option<(u32, Vec<u8>)>,
    /// Cancel requests sent, less those that have hit.
    pub(crate) cancels: usize,
    /// May the pooler end the connection?
    pub(crate) may_end: bool,
    /// Has it set a role that it may not be able to set again?
    pub(crate) may_lose_session: bool,
    /// Are its answers no longer compared?
    pub(crate) is_lax: bool,
    /// Its progress after a lost server.
    pub(crate) recovery: Recovery,
    /// After a lost server, is its session compared with the one from before?
    compares_recovery: bool,
    /// It was told that these inserts were rolled back.
    pub(crate) undone: Vec<Tag>,
    expects_tls_answer: bool,
    /// The value of [`STYLE`] that it was last told.
    style: Vec<u8>,
    input: Vec<u8>,
}

impl Client {
    pub(crate) fn new(who: Who, script: Vec<Step>, hearing: Hearing) -> Self {
        let mut settings = Settings::default();
        for (name, value) in &who.wants {
            match who.has_session {
                true => settings.begin_with(name, value),
                false => settings.begin_changed(name, value),
            }
        }
        let mut packet = Vec::new();
        if who.asks_tls {
            frontend::ssl_request(&mut packet);
        }
        let expects_tls_answer = who.asks_tls;
        let mut client = Self {
            who,
            phase: Phase::Login(None),
            script: script.into(),
            to_send: packet.into(),
            thinks_until: 0,
            deaf_until: 0,
            reference: Reference::new(settings),
            hearing,
            in_transaction: false,
            told_early: None,
            key: None,
            cancels: 0,
            may_end: false,
            may_lose_session: false,
            is_lax: false,
            recovery: Recovery::None,
            compares_recovery: false,
            undone: Vec::new(),
            expects_tls_answer,
            style: Vec::new(),
            input: Vec::new(),
        };
        if !expects_tls_answer {
            client.send_startup();
        }
        client
    }

    /// A connection that sends a cancel request with that key.
    pub(crate) fn canceler(pid: u32, secret: &[u8], who: Who) -> Self {
        let nobody = Hearing::new(Bus::default(), String::new(), usize::MAX);
        let mut client = Self::new(who, Vec::new(), nobody);
        let mut packet = Vec::new();
        frontend::cancel_request(&mut packet, pid, secret);
        client.to_send = packet.into();
        client.phase = Phase::Canceling;
        client.may_end = true;
        client
    }

    fn send_startup(&mut self) {
        let mut parameters =
            vec![("user", self.who.user.as_str()), ("database", self.who.database.as_str())];
        parameters.extend(self.who.wants.iter().map(|(name, value)| (*name, value.as_str())));
        let mut packet = Vec::new();
        frontend::startup(&mut packet, 0, &parameters);
        self.to_send.extend(packet);
    }

    /// It connects later, perhaps when another client has left and its slot is free.
    pub(crate) fn stay_away(&mut self) {
        self.phase = Phase::Absent;
    }

    pub(crate) fn is_absent(&self) -> bool {
        matches!(self.phase, Phase::Absent)
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Done)
    }

    /// Can it go on with its script?
    pub(crate) fn can_go_on(&self, now: u64) -> bool {
        let waits = match self.script.front() {
            Some(Step::CancelSleep { .. }) => false,
            Some(Step::Await) => !self.reference.is_quiet(),
            Some(Step::AwaitRecovery) => self.recovery != Recovery::Done,
            Some(Step::Hear) if !self.reference.is_quiet() => true,
            Some(Step::Hear) => self.reference.is_at_rest() && self.hearing.lacks().is_some(),
            Some(Step::Leave(Manner::Stay)) | None => true,
            Some(_) => false,
        };
        matches!(self.phase, Phase::Running)
            && !waits
            && self.to_send.is_empty()
            && now >= self.thinks_until
    }

    /// It receives bytes.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.input.extend_from_slice(bytes);
        let is_over = matches!(self.phase, Phase::Leaving);
        if self.expects_tls_answer && !is_over && !self.input.is_empty() {
            self.expects_tls_answer = false;
            if self.input.remove(0) != b'N' {
                return Err("the answer to an SSLRequest is not N".into());
            }
            self.send_startup();
        }
        loop {
            let header = Header::parse(&self.input).map_err(|error| error.to_string())?;
            let Some(header) = header.filter(|header| header.total <= self.input.len()) else {
                return Ok(());
            };
            let message: Vec<u8> = self.input.drain(..header.total).collect();
            match self.phase {
                Phase::Login(_) => self.login_message(&message)?,
                Phase::Running => self.message(&message)?,
                Phase::Canceling => return Err(format!("answer to a cancel: {}", show(&message))),
                Phase::Absent | Phase::Leaving | Phase::Done => {}
            }
        }
    }

    /// Weir has ended the connection.
    pub(crate) fn ended(&mut self) -> Result<(), String> {
        let allowed = self.may_end || matches!(self.phase, Phase::Leaving);
        self.phase = Phase::Done;
        if allowed { Ok(()) } else { Err("connection ended by the pooler".into()) }
    }

    fn fatal(&mut self, message: &[u8]) -> Result<(), String> {
        if !self.may_end {
            return Err(format!("thrown out: {}", show(message)));
        }
        self.phase = Phase::Leaving;
        Ok(())
    }

    fn login_message(&mut self, message: &[u8]) -> Result<(), String> {
        let body = &message[HEADER_LEN..];
        let broken = |_| format!("malformed {}", show(message));
        match message[0] {
            backend::AUTHENTICATION => {
                let request = AuthenticationRequest::decode(body).map_err(broken)?;
                self.authentication(request)
            }
            backend::PARAMETER_STATUS => {
                let status = ParameterStatus::decode(body).map_err(broken)?;
                if self.notes_style(message) {
                    return self.check_style();
                }
                let name = str::from_utf8(status.name).ok().and_then(Settings::known);
                let wanted = name.and_then(|name| self.reference.backend.settings.get(name));
                match wanted {
                    Some(wanted) if wanted.as_bytes() != status.value => {
                        Err(format!("welcomed with {} for {wanted}", show(message)))
                    }
                    _ => Ok(()),
                }
            }
            backend::BACKEND_KEY_DATA => {
                let key = BackendKeyData::decode(body).map_err(broken)?;
                self.key = Some((key.pid, key.secret.to_vec()));
                self.reference.backend.pid = key.pid;
                if self.who.has_own_server {
                    self.reference.backend.shown_pid = key.pid;
                }
                Ok(())
            }
            backend::READY_FOR_QUERY if self.who.is_wrong => Err("let in unproven".into()),
            backend::READY_FOR_QUERY => {
                self.phase = Phase::Running;
                Ok(())
            }
            backend::ERROR => self.fatal(message),
            _ if is_chatter(message) => Ok(()),
            _ => Err(format!("unexpected during login: {}", show(message))),
        }
    }

    fn authentication(&mut self, request: AuthenticationRequest<'_>) -> Result<(), String> {
        let mut out = Vec::new();
        let password = self.who.password.as_bytes();
        let Phase::Login(scram) = &mut self.phase else { return Ok(()) };
        match request {
            AuthenticationRequest::Ok => {}
            AuthenticationRequest::Cleartext => frontend::password(&mut out, password),
            AuthenticationRequest::Md5(salt) => {
                let hash = md5::hash(self.who.user.as_bytes(), password);
                frontend::password(&mut out, md5::response(&hash, salt).as_bytes());
            }
            AuthenticationRequest::Sasl(_) => {
                let mut client = ScramClient::new(ScramSecret::Password(password.into()), [3; 18]);
                frontend::sasl_initial(&mut out, scram::MECHANISM, &client.first());
                *scram = Some(Box::new(client));
            }
            AuthenticationRequest::SaslContinue(data) => {
                let client = scram.as_mut().ok_or("SASL out of order")?;
                let answer = client.server_first(data).map_err(|error| error.to_string())?;
                frontend::sasl_response(&mut out, &answer);
            }
            AuthenticationRequest::SaslFinal(data) => {
                let client = scram.as_mut().ok_or("SASL out of order")?;
                client.server_final(data).map_err(|error| error.to_string())?;
            }
            AuthenticationRequest::Unsupported(kind) => return Err(format!("asked for {kind}")),
        }
        self.to_send.extend(out);
        Ok(())
    }

    /// The channels that it listens to may have changed.
    pub(crate) fn follow_channels(&mut self) {
        let (begun, ended) = self.reference.backend.ears.take_changes();
        self.hearing.changed(begun, &ended);
    }

    fn message(&mut self, message: &[u8]) -> Result<(), String> {
        if is_chatter(message) {
            return Ok(());
        }
        if is_fatal(message) {
            return self.fatal(message);
        }
        if is_loss(message) && self.recovery == Recovery::None {
            return self.lose_server(message);
        }
        if self.is_lax {
            return self.recover(message);
        }
        if self.notes_style(message) {
            return Ok(());
        }
        match message[0] {
            backend::NOTIFICATION => {
                let said = NotificationResponse::decode(&message[HEADER_LEN..])
                    .map_err(|_| format!("malformed {}", show(message)))?;
                if said.pid != self.reference.backend.pid {
                    if self.in_transaction {
                        self.told_early = Some(show(message));
                    }
                    return self.hearing.told(&said);
                }
                self.hearing.echoed(&said)?;
            }
            backend::NOTICE if sqlstate(message).is_some_and(|code| code == LOSS.as_bytes()) => {
                let is_deaf = says(message, DEAF);
                return self.hearing.missed(is_deaf);
            }
            backend::PARAMETER_STATUS => {}
            backend::READY_FOR_QUERY if message.last() == Some(&b'I') => {
                (self.in_transaction, self.told_early) = (false, None);
            }
            other => {
                self.in_transaction |= other == backend::READY_FOR_QUERY;
                if let Some(what) = &self.told_early {
                    return Err(format!("told within a transaction: {what}"));
                }
            }
        }
        let verdict = self.reference.received(message);
        self.follow_channels();
        if self.reference.is_at_rest() {
            self.hearing.answered(self.reference.backend.ears.channels());
        }
        match verdict {
            Verdict::Expected => Ok(()),
            Verdict::Canceled if self.cancels == 0 => {
                Err(format!("canceled without having asked for it: {}", show(message)))
            }
            Verdict::Canceled => {
                self.cancels -= 1;
                Ok(())
            }
            Verdict::Wrong(why) => Err(why),
        }
    }
}

/// For runs in which clients keep their connections when a server is lost.
impl Client {
    /// It is told that its server is lost. It rolls back, and asks for one more row.
    fn lose_server(&mut self, message: &[u8]) -> Result<(), String> {
        let backend = &self.reference.backend;
        if backend.is_busy() || backend.copy_refused {
            // It cannot know whether it must wake a server or end a COPY there: what it has sent ahead
            // goes to another server, where no failed transaction refuses the COPY.
            self.script = [Step::Leave(Manner::Reset)].into();
        } else {
            let steps = [Step::Recover, Step::AwaitRecovery, Step::Leave(Manner::Terminate)];
            self.script = steps.into();
        }
        let is_unknown = sqlstate(message) == Some(b"08007".to_vec());
        let tags = self.reference.give_up();
        // Requests that it has sent ahead may run. An unverified session is lost with its server, and
        // the client is told so.
        let may_differ = tags.is_none() || says(message, b"unverified");
        self.compares_recovery = !self.is_lax && !may_differ;
        if !is_unknown && let Some(tags) = tags {
            self.undone = tags;
        }
        (self.is_lax, self.recovery) = (true, Recovery::Waits);
        Ok(())
    }

    fn recover(&mut self, message: &[u8]) -> Result<(), String> {
        // The server of its last request is lost, too, so it asks again.
        if is_loss(message) && matches!(self.script.front(), Some(Step::AwaitRecovery)) {
            self.recovery = Recovery::Waits;
            self.script.push_front(Step::Recover);
            return Ok(());
        }
        self.recovery = match (self.recovery, message[0]) {
            (Recovery::Waits, backend::DATA_ROW) if is_recovered(message) => {
                if self.compares_recovery {
                    let tag = Tag { client: self.hearing.client(), number: RECOVERED };
                    self.reference.recovered(message, tag, &recovery_text(tag))?;
                }
                Recovery::Answered
            }
            (Recovery::Answered, backend::READY_FOR_QUERY) if message.last() == Some(&b'I') => {
                Recovery::Done
            }
            (recovery, _) => recovery,
        };
        Ok(())
    }
}

/// The number of the last request after a lost server.
const RECOVERED: usize = 999_999;

/// The last requests of a client whose server was lost. A batch may be open.
pub(crate) fn recovery(client: usize) -> Vec<u8> {
    let mut out = Vec::new();
    frontend::sync(&mut out);
    frontend::query(&mut out, b"ROLLBACK");
    let tag = Tag { client, number: RECOVERED };
    frontend::query(&mut out, recovery_text(tag).as_bytes());
    out
}

fn recovery_text(tag: Tag) -> String {
    format!("/*{tag}*/ SELECT 1 1")
}

fn is_recovered(row: &[u8]) -> bool {
    let number = RECOVERED.to_string();
    says(row, number.as_bytes())
}

/// Is it Weir's error about a lost server?
fn is_loss(message: &[u8]) -> bool {
    let text = b"server connection lost: ";
    message[0] == backend::ERROR && says(message, text)
}

fn says(message: &[u8], text: &[u8]) -> bool {
    message.windows(text.len()).any(|part| part == text)
}

/// For runs in which servers are reloaded.
impl Client {
    /// Is this a report of [`STYLE`]? Its time depends on the reload and is not compared.
    fn notes_style(&mut self, message: &[u8]) -> bool {
        let is_it = self.reference.backend.marks_defaults && is_style(message);
        if is_it {
            let value = &message[HEADER_LEN + STYLE.len() + 1..];
            self.style = value.strip_suffix(b"\0").unwrap_or(value).to_vec();
        }
        is_it
    }

    /// At the end it must know its own value, or any default if it has none of its own. In the
    /// transaction in which its server notices the reload, it may be told the new default, and then
    /// its own value.
    pub(crate) fn check_style(&self) -> Result<(), String> {
        let backend = &self.reference.backend;
        let is_right = match backend.settings.follows_default(STYLE) {
            true => is_default_style(&self.style),
            false => backend.settings.get(STYLE).map(str::as_bytes) == Some(self.style.as_slice()),
        };
        match is_right || !backend.marks_defaults {
            true => Ok(()),
            false => Err(format!(
                "told of {STYLE} {}, a direct connection gives {:?}",
                String::from_utf8_lossy(&self.style),
                backend.settings.get(STYLE),
            )),
        }
    }
}

/// SQLSTATE of the warning about lost notifications.
const LOSS: &str = "01000";
/// The text of the warning if no listener can be opened.
const DEAF: &[u8] = b"notifications do not arrive";

fn is_fatal(message: &[u8]) -> bool {
    message[0] == backend::ERROR && says(message, b"SFATAL")
}

/// Is this message independent of any request?
fn is_chatter(message: &[u8]) -> bool {
    match message[0] {
        backend::NOTICE => sqlstate(message).is_some_and(|code| code == CHATTER.as_bytes()),
        // It depends on the server's version whether the search_path is reported.
        backend::PARAMETER_STATUS => {
            let name = message[HEADER_LEN..].split(|byte| *byte == 0).next();
            name.is_some_and(|name| name == UNTRACKED.as_bytes() || name == PATH.as_bytes())
        }
        _ => false,
    }
}
