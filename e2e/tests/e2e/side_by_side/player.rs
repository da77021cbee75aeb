//! Plays the steps of a case with one of the two poolers and records the output.
//!
//! Messages of `A>`: `query SQL`, `parse NAME SQL`, `bind PORTAL NAME VALUE…`, `describe S|P NAME`,
//! `execute PORTAL`, `close S|P NAME`, `sync`, `flush`, `data TEXT`, `done`, `fail TEXT`,
//! `call OID VALUE…`, `password TEXT`, `terminate`, and `message TAG HEX`. `-` is the empty name.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use super::process::Process;
use super::script::Case;
use super::transcript::{Reply, line, log_lines, replies};
use testkit::{Message, Postgres, RawClient, frontend, poll_until};

/// The maximum time for an answer that must come, and for a state that must be reached.
const PATIENCE: Duration = Duration::from_secs(12);
/// The time to wait for an answer that must not come.
const MOMENT: Duration = Duration::from_millis(250);
const CONSOLE: &str = "pgbouncer";

type Rows = Vec<Vec<Option<String>>>;

/// One pooler, its clients, and their output in this case.
#[derive(Debug)]
pub(super) struct Player {
    // Clients are dropped before the process.
    clients: BTreeMap<char, RawClient>,
    consoles: BTreeMap<&'static str, RawClient>,
    process: Process,
    heard: Vec<Reply>,
    log_start: usize,
}

impl Player {
    pub(super) fn new(process: Process) -> Self {
        let (clients, consoles) = (BTreeMap::new(), BTreeMap::new());
        Self { clients, consoles, process, heard: Vec::new(), log_start: 0 }
    }

    /// Starts the pooler of a group.
    pub(super) fn start(&mut self) {
        let up = self.process.start();
        assert!(up, "{:?} does not start:\n{}", self.process.flavour, self.process.log());
    }

    /// Plays a case. Its connections are closed at its end.
    pub(super) fn play(&mut self, case: &Case) -> Vec<Reply> {
        self.log_start = self.process.log().len();
        for step in &case.steps {
            let step = self.process.fill(step);
            self.step(&step);
        }
        self.clients.clear();
        if self.process.is_running() {
            self.until_alone();
        } else {
            self.consoles.clear();
        }
        std::mem::take(&mut self.heard)
    }

    /// Returns the log lines of this case.
    pub(super) fn log_lines(&self) -> Vec<Reply> {
        let log = self.process.log();
        log_lines(&self.process.blank(&log[self.log_start.min(log.len())..]))
    }

    fn step(&mut self, step: &str) {
        let (word, rest) = step.split_once(' ').unwrap_or((step, ""));
        match word {
            "start" => {
                let up = self.process.start();
                self.say(if up { "it listens" } else { "it does not start" });
                if !up {
                    self.exit();
                }
            }
            "exit:" => self.exit(),
            "signal:" => self.process.signal(rest),
            "admin:" => self.console("admin", rest),
            "stats:" => self.console("stats", rest),
            "until:" => self.until(rest),
            "log:" => self.wait_for_log(rest),
            "run:" => {
                let mut command = self.process.command();
                command.args(rest.split_whitespace());
                self.run(command);
            }
            "psql:" => self.psql(rest),
            "edit:" => {
                let (from, to) = rest.split_once("=>").expect("edit: FROM => TO");
                let text = fs::read_to_string(self.process.ini()).expect("our own file");
                assert!(text.contains(from.trim()), "no {from} to edit");
                let text = text.replacen(from.trim(), &to.trim().replace("\\n", "\n"), 1);
                fs::write(self.process.ini(), text).expect("our own file");
            }
            _ => {
                let mut letters = word.chars();
                let name = letters.next().expect("a word");
                self.client_step(name, letters.as_str(), rest);
            }
        }
    }

    fn client_step(&mut self, name: char, verb: &str, rest: &str) {
        match verb {
            "" => self.login(name, rest.trim_start_matches('=').trim()),
            ":" => {
                self.send(name, &frontend::query(rest));
                self.hear(name);
            }
            ">" => {
                let bytes = rest.split(" | ").map(message).collect::<Vec<_>>().concat();
                self.send(name, &bytes);
            }
            "<" => self.hear(name),
            "." => {
                let bytes = hex(rest);
                self.send(name, &bytes);
            }
            "?" => {
                let byte = self.client(name).read_byte();
                self.say(&format!("byte {}", char::from(byte).escape_default()));
            }
            "#" => {
                let client = self.client(name);
                client.set_timeout(MOMENT);
                let line = match client.try_read() {
                    Ok(Some(message)) => line(&message),
                    Ok(None) => "the end".to_owned(),
                    Err(_) => "nothing".to_owned(),
                };
                client.set_timeout(PATIENCE);
                self.say(&line);
            }
            "~" => drop(self.clients.remove(&name)),
            "!" => {
                let port = self.process.port;
                let client = self.client(name);
                let mut other = RawClient::connect(port);
                let _ = other.try_send(frontend::cancel_request(client.pid, &client.secret));
                let heard = other.read_to_end();
                self.note(&heard, false);
            }
            _ => panic!("no such step: {name}{verb} {rest}"),
        }
    }

    /// Logs in and keeps the connection if the pooler does not close it.
    fn login(&mut self, name: char, words: &str) {
        let mut startup: Vec<(String, String)> = Vec::new();
        let (mut password, mut minor, mut unix) = ("app-secret".to_owned(), 0, false);
        for word in split_quoted(words) {
            match word.split_once('=') {
                Some(("password", text)) => text.clone_into(&mut password),
                Some(("minor", number)) => minor = number.parse().expect("a number"),
                Some((key, text)) => startup.push((key.to_owned(), text.to_owned())),
                None if word == "unix" => unix = true,
                None => panic!("{word} is not key=value"),
            }
        }
        for (key, value) in [("database", &*self.process.database), ("user", "app")] {
            if !startup.iter().any(|(other, _)| other == key) {
                startup.insert(0, (key.to_owned(), value.to_owned()));
            }
        }
        // An empty value means that the key is left out.
        startup.retain(|(_, value)| !value.is_empty());
        let client = if unix {
            RawClient::connect_unix(&self.process.folder, self.process.port)
        } else {
            RawClient::try_connect(self.process.port)
        };
        let Ok(mut client) = client else { return self.say("nobody listens") };
        client.minor = minor;
        client.set_timeout(PATIENCE);
        let pairs: Vec<_> = startup.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let played = AssertUnwindSafe(|| client.try_authenticate(&pairs, &password));
        // It panics if no answer comes. Here that is a valid result.
        let Ok(messages) = catch_unwind(played) else { return self.say("no answer to the login") };
        let stays = messages.last().is_some_and(|message| message.tag == b'Z');
        let console = pairs.contains(&("database", CONSOLE));
        self.note(&messages, console);
        if stays {
            self.clients.insert(name, client);
        } else {
            self.say("the end");
        }
    }

    fn client(&mut self, name: char) -> &mut RawClient {
        let port = self.process.port;
        self.clients.entry(name).or_insert_with(|| {
            let client = RawClient::connect(port);
            client.set_timeout(PATIENCE);
            client
        })
    }

    fn send(&mut self, name: char, bytes: &[u8]) {
        // If the pooler has closed the connection, sending may fail. The output shows that.
        let _ = self.client(name).try_send(bytes);
    }

    fn hear(&mut self, name: char) {
        let client = self.client(name);
        let (messages, end) = listen(client);
        self.note(&messages, false);
        if let Some(end) = end {
            self.clients.remove(&name);
            self.say(end);
        }
    }

    fn note(&mut self, messages: &[Message], console: bool) {
        let heard = replies(messages, console);
        let blank = |reply| match reply {
            Reply::Line(line) => Reply::Line(self.process.blank(&line)),
            Reply::Table { columns, rows } => {
                let value = |value: Option<String>| value.map(|text| self.process.blank(&text));
                let row = |row: Vec<_>| row.into_iter().map(value).collect();
                Reply::Table { columns, rows: rows.into_iter().map(row).collect() }
            }
        };
        let heard: Vec<_> = heard.into_iter().map(blank).collect();
        self.heard.extend(heard);
    }

    fn say(&mut self, line: &str) {
        let line = self.process.blank(line);
        self.heard.push(Reply::Line(line));
    }

    fn exit(&mut self) {
        let line = match self.process.wait_for_exit() {
            Some(status) => format!("it ends: {status}"),
            None => "it goes on".to_owned(),
        };
        self.say(&line);
    }

    fn open_console(&mut self, user: &'static str) -> Option<&mut RawClient> {
        if !self.consoles.contains_key(user) {
            let mut client = RawClient::try_connect(self.process.port).ok()?;
            client.set_timeout(PATIENCE);
            let startup = [("user", user), ("database", CONSOLE)];
            client.authenticate(&startup, &format!("{user}-secret")).ok()?;
            self.consoles.insert(user, client);
        }
        self.consoles.get_mut(user)
    }

    fn console(&mut self, user: &'static str, command: &str) {
        let Some(client) = self.open_console(user) else { return self.say("no console") };
        let _ = client.try_send(frontend::query(command));
        let (messages, end) = listen(client);
        self.note(&messages, true);
        if let Some(end) = end {
            self.consoles.remove(user);
            self.say(end);
        }
    }

    /// Returns columns and rows of a table of the console, or `None` without a console.
    fn ask(&mut self, command: &str) -> Option<(Vec<String>, Rows)> {
        let client = self.open_console("admin")?;
        let sent = client.try_send(frontend::query(command));
        let (messages, end) = listen(client);
        if sent.is_err() || end.is_some() {
            self.consoles.remove("admin");
            return None;
        }
        let columns = messages.iter().find(|message| message.tag == b'T')?.columns();
        let rows = messages.iter().filter(|message| message.tag == b'D').map(Message::row);
        Some((columns, rows.collect()))
    }

    /// Waits until a table of the console has such a row.
    fn until(&mut self, rest: &str) {
        let (table, conditions) = rest.split_once(' ').expect("until: TABLE column=value");
        let wanted: Vec<_> = conditions.split(' ').filter_map(|c| c.split_once('=')).collect();
        let reached = poll_until(PATIENCE, || {
            let (columns, rows) = self.ask(&format!("SHOW {table}"))?;
            let holds = |row: &Vec<Option<String>>, (column, value): &(&str, &str)| {
                let index = columns.iter().position(|name| name == column);
                index.is_some_and(|index| row[index].as_deref().unwrap_or("") == *value)
            };
            let found = rows.iter().any(|row| wanted.iter().all(|one| holds(row, one)));
            found.then_some(())
        });
        if reached.is_none() {
            self.say(&format!("never: {rest}"));
        }
    }

    /// Waits until no clients of this case are left.
    fn until_alone(&mut self) {
        let database = self.process.database.clone();
        let quiet = poll_until(PATIENCE, || {
            let Some((columns, rows)) = self.ask("SHOW CLIENTS") else { return Some(()) };
            let column = columns.iter().position(|name| name == "database")?;
            let row_of_ours = |row: &Vec<Option<String>>| row[column].as_deref() == Some(CONSOLE);
            rows.iter().all(row_of_ours).then_some(())
        });
        assert!(quiet.is_some(), "clients of {database} are left over");
        // Otherwise it would depend on timing whether the next case finds a server.
        poll_until(Duration::from_secs(2), || {
            let Some((columns, rows)) = self.ask("SHOW SERVERS") else { return Some(()) };
            let column = columns.iter().position(|name| name == "state")?;
            let is_free = |state: &str| matches!(state, "idle" | "used");
            rows.iter().all(|row| row[column].as_deref().is_some_and(is_free)).then_some(())
        });
    }

    fn wait_for_log(&mut self, text: &str) {
        let found = poll_until(PATIENCE, || {
            let log = self.process.log();
            log[self.log_start.min(log.len())..].contains(text).then_some(())
        });
        if found.is_none() {
            self.say(&format!("the log never says {text}"));
        }
    }

    fn psql(&mut self, arguments: &str) {
        let mut command = Postgres::client_program("psql", self.process.port, CONSOLE);
        command.env("PGUSER", "admin").env("PGPASSWORD", "admin-secret").arg("-X");
        command.args(split_quoted(arguments));
        self.run(command);
    }

    /// Runs a program to its end, and records if it does not end.
    fn run(&mut self, mut command: Command) {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the program is there");
        let ended = poll_until(PATIENCE, || child.try_wait().expect("our own child"));
        if ended.is_none() {
            let _ = child.kill();
        }
        let Output { status, stdout, stderr } = child.wait_with_output().expect("our own child");
        let program = self.process.program().display().to_string();
        for text in [stdout, stderr] {
            let text = String::from_utf8_lossy(&text).replace(&program, "{program}");
            let text = self.process.blank(&text);
            if text.starts_with("20") {
                self.heard.extend(log_lines(&text));
            } else {
                text.lines().for_each(|line| self.say(line));
            }
        }
        self.say(&format!("it ends: {status}"));
    }
}

/// Returns the messages up to ReadyForQuery or a request, and how the connection ended if it did.
fn listen(client: &mut RawClient) -> (Vec<Message>, Option<&'static str>) {
    let mut messages = Vec::new();
    loop {
        match client.try_read() {
            Ok(Some(message)) => {
                let copying = matches!(message.tag, b'G' | b'W');
                let last = message.tag == b'Z' || copying;
                messages.push(message);
                if last {
                    return (messages, None);
                }
            }
            Ok(None) => return (messages, Some("the end")),
            Err(_) => return (messages, Some("silence")),
        }
    }
}

fn message(text: &str) -> Vec<u8> {
    let (word, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    let (first, second) = rest.split_once(' ').unwrap_or((rest, ""));
    let name = |name: &str| if name == "-" { String::new() } else { name.to_owned() };
    match word {
        "query" => frontend::query(rest),
        "parse" => frontend::parse(&name(first), second),
        "bind" => {
            let (statement, values) = second.split_once(' ').unwrap_or((second, ""));
            let values: Vec<_> = values.split_whitespace().map(Some).collect();
            frontend::bind(&name(first), &name(statement), &values)
        }
        "describe" if first == "S" => frontend::describe_statement(&name(second)),
        "describe" => frontend::describe_portal(&name(second)),
        "execute" => frontend::execute(&name(first), 0),
        "close" if first == "S" => frontend::close_statement(&name(second)),
        "close" => frontend::close_portal(&name(second)),
        "sync" => frontend::sync(),
        "flush" => frontend::flush(),
        "data" => frontend::copy_data(rest.replace("\\n", "\n").as_bytes()),
        "done" => frontend::copy_done(),
        "fail" => frontend::copy_fail(rest),
        "call" => {
            let oid = first.parse().expect("an OID");
            frontend::function_call(oid, &second.split_whitespace().collect::<Vec<_>>())
        }
        "password" => frontend::password(rest),
        "terminate" => frontend::terminate(),
        "message" => frontend::message(first.as_bytes()[0], &hex(second)),
        _ => panic!("no such message: {text}"),
    }
}

/// Parses bytes from hexadecimal digits, or from `'text'`, which gets a terminating zero.
fn hex(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in text.split_whitespace() {
        if let Some(word) = word.strip_prefix('\'') {
            bytes.extend_from_slice(word.as_bytes());
            bytes.push(0);
            continue;
        }
        for pair in word.as_bytes().chunks(2) {
            let pair = std::str::from_utf8(pair).expect("ASCII");
            bytes.push(u8::from_str_radix(pair, 16).expect("hexadecimal digits"));
        }
    }
    bytes
}

/// Splits a text into words. Words with blanks are in double quotes or contain them.
fn split_quoted(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted, mut any) = (Vec::new(), String::new(), false, false);
    for letter in text.chars() {
        match letter {
            '"' => (quoted, any) = (!quoted, true),
            ' ' if !quoted => {
                if any {
                    words.push(std::mem::take(&mut word));
                }
                any = false;
            }
            _ => {
                word.push(letter);
                any = true;
            }
        }
    }
    if any {
        words.push(word);
    }
    words
}
