//! The script of one simulated client, composed at random in advance. It does not know the outcome,
//! which the reference knows.

mod copying;
mod firing;
mod lasting;
mod listening;
mod meanings;
mod names;
mod session;

use config::PoolMode;
use wire::frontend;

use crate::rng::Rng;
use crate::setup::Fleet;
use crate::sql::Tag;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Send(Vec<u8>),
    /// Wait for every expected message.
    Await,
    /// Wait for every notification of other clients.
    Hear,
    Think(u64),
    /// Cancel the client's own request, on another connection. The secret may be wrong.
    Cancel {
        wrong: bool,
    },
    /// Wait until its server sleeps, and send a cancel request, at most `tries` times. Only that
    /// ends the sleep.
    CancelSleep {
        tries: usize,
    },
    /// From here on Weir may end the connection.
    Doomed,
    /// From here on the answers may differ from those of a direct connection.
    Lax,
    /// Roll back and ask for one more row, after a server was lost.
    Recover,
    /// Wait for that answer.
    AwaitRecovery,
    Leave(Manner),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Terminate,
    /// Close the sending side after the last byte.
    Finish,
    /// Reset the connection. Bytes on their way are lost.
    Reset,
    /// Wait to be disconnected.
    Stay,
}

pub(crate) struct Author<'a> {
    pub(crate) rng: &'a mut Rng,
    pub(crate) client: usize,
    pub(crate) mode: PoolMode,
    /// It sends nothing after a Sync until all earlier messages are answered.
    patient: bool,
    /// It uses no statement names, and the unnamed statement only in the batch of its Parse.
    pub(crate) plain: bool,
    pub(crate) listens: bool,
    /// The libraries of the servers.
    pub(crate) fleet: Fleet,
    /// The mode may change to session mode and back.
    pub(crate) alternates: bool,
    /// Does a reload of the servers change the default of a setting?
    pub(crate) restyles: bool,
    /// Transaction mode may change to auto mode and back. DISCARD ALL then has a known result only
    /// for clients that began in auto mode.
    pub(crate) mixes: bool,
    /// The kernel buffers are large, so that long messages do not take too long.
    pub(crate) wide: bool,
    /// It mostly sleeps, and cancel requests wake it.
    pub(crate) sleepy: bool,
    /// It uses names more than once although it does not wait. After an unanswered error, only the
    /// server knows what they mean. Other clients then use a new name for each statement, as
    /// drivers with pipelines do.
    bold: bool,
    /// It draws numbers from a sequence.
    draws: bool,
    /// RESET goes back to its startup packet, though not before its transaction is over.
    pub(crate) goes_back: bool,
    number: usize,
    steps: Vec<Step>,
    out: Vec<u8>,
    in_transaction: bool,
}

/// A sleep in milliseconds that only a cancel request ends.
const FOR_EVER: usize = 1 << 40;
/// Some cancel requests may be lost, or arrive while another one is pending.
const CANCELS_MAX: usize = 12;
/// More than a megabyte.
const LONG_LEN: usize = 1_200_000;
const NAMES: [&[u8]; 4] = [b"a", b"b", b"stmt with blanks", b"d"];
const INT4: &[u8] = &[0, 1, 0, 0, 0, 23];

impl<'a> Author<'a> {
    pub(crate) fn new(rng: &'a mut Rng, client: usize, mode: PoolMode) -> Self {
        let (steps, out) = (Vec::new(), Vec::new());
        let patient = !rng.once_in(3);
        let (bold, draws) = (rng.once_in(2), rng.once_in(2));
        let (plain, wide, sleepy, goes_back) = (false, false, false, false);
        Self {
            rng,
            client,
            mode,
            patient,
            bold,
            draws,
            plain,
            listens: false,
            fleet: Fleet::None,
            alternates: false,
            restyles: false,
            mixes: false,
            wide,
            sleepy,
            goes_back,
            number: 0,
            steps,
            out,
            in_transaction: false,
        }
    }

    pub(crate) fn write(mut self, length: usize) -> Vec<Step> {
        if self.listens && self.rng.once_in(2) {
            self.begin_to_listen();
        }
        if self.restyles && self.rng.once_in(2) {
            // A reload no longer changes the value.
            self.query("SET datestyle = 'ISO, MDY'");
        }
        for _ in 0..length {
            self.scene();
            if self.rng.once_in(3) {
                self.steps.push(Step::Think(self.rng.below(3000) as u64));
            }
        }
        if self.in_transaction && !self.rng.once_in(8) {
            self.query("ROLLBACK");
        }
        self.act(true);
        if self.listens {
            self.steps.push(Step::Hear);
        }
        if self.prepares() && !self.in_transaction && self.rng.once_in(4) {
            self.surprise();
        }
        if self.mode == PoolMode::Statement && self.rng.once_in(3) {
            self.query("BEGIN");
            self.steps.push(Step::Doomed);
            self.send();
            self.steps.push(Step::Leave(Manner::Stay));
        }
        let manner = match self.rng.below(6) {
            0 => Manner::Finish,
            1 => Manner::Reset,
            _ => Manner::Terminate,
        };
        self.steps.push(Step::Leave(manner));
        self.steps
    }

    fn tag(&mut self) -> String {
        self.number += 1;
        Tag { client: self.client, number: self.number }.to_string()
    }

    fn send(&mut self) {
        if !self.out.is_empty() {
            self.steps.push(Step::Send(std::mem::take(&mut self.out)));
        }
    }

    /// Sends the composed messages, and may wait for the answers.
    fn act(&mut self, sure: bool) {
        self.send();
        if sure || self.patient || !self.rng.once_in(3) {
            self.steps.push(Step::Await);
        }
    }

    fn query(&mut self, sql: &str) {
        let text = format!("/*{}*/ {sql}", self.tag());
        frontend::query(&mut self.out, text.as_bytes());
    }

    fn scene(&mut self) {
        if self.sleepy && self.rng.once_in(2) {
            self.sleep();
            return self.act(true);
        }
        if self.listens && self.rng.once_in(2) {
            return self.listening();
        }
        match self.fleet {
            Fleet::Reports if self.rng.once_in(3) => return self.firing(),
            Fleet::Forged if self.rng.once_in(6) => return self.forging(),
            Fleet::Reports | Fleet::Forged | Fleet::Mixed | Fleet::None => {}
        }
        if self.mode == PoolMode::Auto && self.rng.once_in(5) {
            return self.lasting();
        }
        if self.mode == PoolMode::Auto && self.rng.once_in(2) {
            return self.refusals();
        }
        match self.rng.below(20) {
            16 => self.table(),
            17..=19 if self.mode == PoolMode::Auto && !self.alternates => match self.rng.below(5) {
                0 => self.meaning(),
                1 => self.apart(),
                2 | 3 => self.shared_names(),
                _ => self.numbers(),
            },
            0..=2 => {
                let sql = self.simple_sql();
                self.query(&sql);
            }
            3 => {
                let (one, two) = (self.simple_sql(), self.simple_sql());
                self.query(&format!("{one}; {two}"));
            }
            4 | 5 => self.transaction(),
            6..=10 => self.pipeline(),
            11 => self.copy_in(),
            12 => self.sleep(),
            13 => self.function_call(),
            14 if self.goes_back => self.go_back(),
            14 => self.discard(),
            15 if self.rng.once_in(4) => self.long_message(),
            15 if self.rng.once_in(3) => self.crowd(),
            _ => {
                let sql = self.set_sql();
                self.query(&sql);
            }
        }
        self.act(false);
    }

    /// A row or a query, or both, longer than anything that Weir keeps.
    fn long_message(&mut self) {
        let len = if self.wide && self.rng.once_in(6) { LONG_LEN } else { 30_000 };
        let asked = if self.rng.once_in(2) { len } else { 1 };
        let padding = " x".repeat(if asked == 1 { len / 2 } else { 0 });
        self.query(&format!("SELECT 1 {asked}{padding}"));
        self.send();
        if self.rng.once_in(3) {
            // A request that arrives while a cancel request is pending.
            self.steps.push(Step::Cancel { wrong: false });
        }
    }

    /// More requests at once than may be under way.
    fn crowd(&mut self) {
        for _ in 0..self.rng.range(40, 200) {
            if self.rng.once_in(2) {
                self.query("SELECT 1 1");
            } else {
                self.proper_sequence();
                frontend::sync(&mut self.out);
            }
        }
    }

    fn simple_sql(&mut self) -> String {
        if self.rng.once_in(3) {
            return "INSERT".to_owned();
        }
        match self.rng.below(12) {
            0 => "FAIL".to_owned(),
            1 => "NONSENSE".to_owned(),
            2 => "NOTICE".to_owned(),
            3 => format!("COPYOUT {} {}", self.rng.below(5), self.rng.below(200)),
            4 => "SHOW TimeZone".to_owned(),
            5 => self.set_sql(),
            6 => format!("SELECT {} {}", self.rng.below(40), self.rng.below(900)),
            _ => format!("SELECT {} {}", self.rng.below(4), self.rng.below(60)),
        }
    }

    /// Statements in a transaction block, which may stay open for a while.
    fn transaction(&mut self) {
        if self.mode == PoolMode::Statement {
            return self.pipeline();
        }
        match self.rng.once_in(2) {
            // Weir may send such a request again.
            true => {
                self.tag();
                let tag = Tag { client: self.client, number: self.number };
                let text = format!("BEGIN {}", tag.in_letters());
                frontend::query(&mut self.out, text.as_bytes());
            }
            false => self.query("BEGIN"),
        }
        self.in_transaction = true;
        for _ in 0..self.rng.below(4) {
            self.act(false);
            match self.rng.below(6) {
                0..=2 => {
                    let sql = self.simple_sql();
                    self.query(&sql);
                }
                3 => self.copy_in(),
                _ => self.pipeline(),
            }
        }
        self.act(false);
        if !self.rng.once_in(6) {
            let end = self.rng.pick(&["COMMIT", "ROLLBACK"]);
            self.query(end);
            self.in_transaction = false;
        }
    }

    /// A sequence of the extended protocol, with one Sync or several.
    fn pipeline(&mut self) {
        for _ in 0..self.rng.range(1, 3) {
            let is_careful = self.plain || !(self.patient || self.bold);
            if is_careful || self.rng.once_in(3) {
                self.proper_sequence();
            } else {
                for _ in 0..self.rng.range(1, 6) {
                    self.extended_message();
                }
            }
            if self.rng.once_in(8) {
                let sql = self.simple_sql();
                self.query(&sql);
            }
            if self.rng.once_in(5) {
                frontend::flush(&mut self.out);
                self.act(false);
            }
            if self.patient && self.rng.once_in(6) {
                // A Query also ends the batch, unless the batch has failed.
                self.query("SELECT 1 1");
                self.act(true);
                self.steps.push(Step::Think(5_000));
            }
            frontend::sync(&mut self.out);
            if self.patient {
                self.act(true);
            }
        }
        if self.rng.once_in(3) {
            self.act(false);
        }
    }

    fn prepares(&self) -> bool {
        !self.plain && self.mode != PoolMode::Session
    }

    /// Statements on the client's own table, which sometimes changes. They are parsed again after
    /// each change, so the client need not know of it.
    fn table(&mut self) {
        self.act(true);
        if self.in_transaction || !self.prepares() {
            return;
        }
        // If the change is hidden, its effect on parameters is unknown.
        let openly = self.rng.once_in(2);
        for _ in 0..self.rng.range(2, 5) {
            let name = format!("table {}", self.number);
            let what = if openly && self.rng.once_in(2) { "WRITE" } else { "READ" };
            let sql = format!("{what} {} $1", self.client);
            frontend::parse(&mut self.out, name.as_bytes(), sql.as_bytes(), frontend::NO_TYPES);
            let at_once = self.rng.once_in(3);
            if at_once || self.rng.once_in(2) {
                frontend::describe_statement(&mut self.out, name.as_bytes());
            }
            if !at_once {
                frontend::sync(&mut self.out);
                self.act(true);
            }
            for _ in 0..self.rng.range(1, 4) {
                self.bind_tag(name.as_bytes());
                frontend::execute(&mut self.out, b"", 0);
                frontend::sync(&mut self.out);
                self.act(true);
            }
            let change = if openly { "ALTER" } else { "DO" };
            self.query(&format!("{change} {}", self.client));
            self.act(true);
        }
    }

    /// The table changes after the client was told its columns. The outcome depends on the server.
    /// But a statement that was once refused must not be executed.
    fn surprise(&mut self) {
        let sql = format!("TOLD {} $1", self.client);
        frontend::parse(&mut self.out, b"told", sql.as_bytes(), frontend::NO_TYPES);
        frontend::describe_statement(&mut self.out, b"told");
        frontend::sync(&mut self.out);
        self.act(true);
        self.query(&format!("DO {}", self.client));
        self.act(true);
        self.steps.push(Step::Lax);
        for _ in 0..3 {
            self.bind_tag(b"told");
            frontend::execute(&mut self.out, b"", 0);
            frontend::sync(&mut self.out);
            self.send();
            self.steps.push(Step::Think(20_000));
        }
    }

    fn name(&mut self) -> &'static [u8] {
        if !self.rng.once_in(3) { self.rng.pick(&NAMES) } else { b"" }
    }

    fn portal(&mut self) -> &'static [u8] {
        if self.rng.once_in(6) { b"p" } else { b"" }
    }

    fn proper_sequence(&mut self) {
        let fresh = format!("s{}", self.number);
        let name = match (self.plain, self.patient || self.bold) {
            (true, _) => b"",
            (false, true) => self.name(),
            (false, false) => fresh.as_bytes(),
        };
        frontend::close_statement(&mut self.out, name);
        self.parse(name);
        frontend::describe_statement(&mut self.out, name);
        self.bind(b"", name);
        frontend::describe_portal(&mut self.out, b"");
        frontend::execute(&mut self.out, b"", 0);
    }

    fn extended_message(&mut self) {
        let (name, portal) = (self.name(), self.portal());
        match self.rng.below(10) {
            0..=2 => self.parse(name),
            3 | 4 => self.bind(portal, name),
            5 | 6 => {
                self.bind(portal, name);
                let rows_max = if self.rng.once_in(4) { self.rng.range(1, 3) as u32 } else { 0 };
                frontend::execute(&mut self.out, portal, rows_max);
                if rows_max > 0 {
                    frontend::execute(&mut self.out, portal, 0);
                }
            }
            7 => frontend::describe_statement(&mut self.out, name),
            8 => match self.rng.below(3) {
                0 => frontend::describe_portal(&mut self.out, portal),
                1 => frontend::close_portal(&mut self.out, portal),
                _ => frontend::execute(&mut self.out, portal, 0),
            },
            _ => frontend::close_statement(&mut self.out, name),
        }
    }

    /// There are few texts, so that clients share them.
    fn parse(&mut self, name: &[u8]) {
        let sql = match self.rng.below(12) {
            0 => "NONSENSE".to_owned(),
            1 => "FAIL $1".to_owned(),
            2 if self.mode == PoolMode::Auto => {
                format!("/*{}*/ {}", self.tag(), self.session_sql())
            }
            2 => format!("/*{}*/ SET TimeZone = 'four'", self.tag()),
            6 | 7 => "INSERT $1".to_owned(),
            3 => format!("SELECT $1 2 {}", 10 * self.client),
            4 => String::new(),
            5 => "SHOW DateStyle".to_owned(),
            _ => format!("SELECT $1 {} 5", self.rng.below(5)),
        };
        let types =
            if sql.contains("$1") && self.rng.once_in(4) { INT4 } else { frontend::NO_TYPES };
        frontend::parse(&mut self.out, name, sql.as_bytes(), types);
    }

    /// Nearly all statements take one parameter: the client's tag.
    fn bind(&mut self, portal: &[u8], statement: &[u8]) {
        let tag = self.tag();
        let mut rest = vec![0, 0];
        if self.rng.once_in(9) {
            rest.extend([0, 0]);
        } else {
            rest.extend([0, 1]);
            rest.extend((tag.len() as u32).to_be_bytes());
            rest.extend(tag.as_bytes());
        }
        rest.extend([0, 0]);
        frontend::bind(&mut self.out, portal, statement, &rest);
    }

    fn bind_tag(&mut self, statement: &[u8]) {
        let tag = self.tag();
        frontend::bind_text(&mut self.out, statement, &[Some(tag.as_bytes())]);
    }

    fn discard(&mut self) {
        let all = if self.mixes { "DEALLOCATE ALL" } else { "DISCARD ALL" };
        let sql = self.rng.pick(&[all, "DEALLOCATE ALL", ""]);
        if self.rng.once_in(2) {
            return self.query(sql);
        }
        frontend::parse(&mut self.out, b"", sql.as_bytes(), frontend::NO_TYPES);
        frontend::bind(&mut self.out, b"", b"", &[0, 0, 0, 0, 0, 0]);
        frontend::execute(&mut self.out, b"", 0);
        // A statement that is parsed later in the same batch stays. Its name is new, because only
        // the server knows at that moment whether an old name is free.
        let name = format!("behind {}", self.number);
        if self.plain {
            frontend::sync(&mut self.out);
            return self.act(true);
        }
        if self.rng.once_in(2) {
            self.parse(name.as_bytes());
        }
        frontend::sync(&mut self.out);
        // A later Bind must not find the statement and discard by surprise.
        self.query("");
        self.act(true);
        self.bind(b"", name.as_bytes());
        frontend::describe_statement(&mut self.out, name.as_bytes());
        frontend::execute(&mut self.out, b"", 0);
        frontend::sync(&mut self.out);
    }

    fn sleep(&mut self) {
        let is_long = self.rng.once_in(4);
        let millis = if is_long { FOR_EVER } else { self.rng.range(1, 20) };
        let sql = format!("SLEEP {millis}");
        if self.rng.once_in(2) {
            self.query(&sql);
        } else {
            let text = format!("/*{}*/ {sql}", self.tag());
            frontend::parse(&mut self.out, b"", text.as_bytes(), frontend::NO_TYPES);
            frontend::bind(&mut self.out, b"", b"", &[0, 0, 0, 0, 0, 0]);
            frontend::execute(&mut self.out, b"", 0);
            frontend::sync(&mut self.out);
        }
        if is_long {
            self.send();
            self.steps.push(Step::CancelSleep { tries: CANCELS_MAX });
            self.act(true);
            // A later Bind must not find the statement and sleep by surprise.
            self.query("");
            return self.act(true);
        }
        if self.rng.once_in(2) {
            self.send();
            self.steps.push(Step::Think(self.rng.below(8000) as u64));
            let wrong = self.rng.once_in(4);
            self.steps.push(Step::Cancel { wrong });
        }
    }

    fn function_call(&mut self) {
        let tag = self.tag();
        let oid = self.rng.below(3) as u32;
        self.out.push(frontend::FUNCTION_CALL);
        self.out.extend((tag.len() as u32 + 18).to_be_bytes());
        self.out.extend(oid.to_be_bytes());
        self.out.extend([0, 0, 0, 1]);
        self.out.extend((tag.len() as u32).to_be_bytes());
        self.out.extend(tag.as_bytes());
        self.out.extend([0, 0]);
    }
}
