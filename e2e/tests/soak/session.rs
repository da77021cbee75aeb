//! A client that knows what its session must hold.

use std::collections::BTreeMap;
use std::time::Duration;

use testkit::{Dice, Message, RawClient, frontend};

use crate::plan::Plan;
use crate::stage::Access;
use crate::think;
use crate::verdict::Verdict;

struct Session<'a> {
    client: RawClient,
    dice: &'a mut Dice,
    number: u32,
    settings: BTreeMap<usize, String>,
    /// The text that each named statement returns.
    statements: BTreeMap<String, String>,
}

/// Plays sessions, one after the other, until the soak is over.
pub(crate) fn play(access: &Access, verdict: &Verdict, plan: &Plan, number: u32) {
    let mut dice = Dice::new(number.into());
    while !verdict.is_over() {
        verdict.judge(&format!("session {number}"), || {
            let mut session = Session {
                client: access.client(&access.steady),
                number,
                settings: BTreeMap::new(),
                statements: BTreeMap::new(),
                dice: &mut dice,
            };
            for _ in 0..session.dice.below(300) {
                if verdict.is_over() {
                    break;
                }
                session.take_a_step();
                verdict.count_step();
                think(plan.a_pause(session.dice));
            }
            if session.dice.below(2) == 0 {
                session.client.send(frontend::terminate());
            }
        });
    }
}

impl Session<'_> {
    const STEPS: [fn(&mut Self); 14] = [
        Self::set,
        Self::show,
        Self::prepare,
        Self::prepare,
        Self::unprepare,
        Self::execute_all,
        Self::execute_all,
        Self::miss,
        Self::pay,
        Self::pay,
        Self::read_much,
        Self::copy,
        Self::fail,
        Self::pipeline,
    ];

    fn take_a_step(&mut self) {
        let step = *self.dice.of(&Self::STEPS);
        step(self);
    }

    fn tag(&mut self) -> String {
        format!("session {} draw {}", self.number, self.dice.below(1_000_000))
    }

    fn ask(&mut self, bytes: impl AsRef<[u8]>) -> Vec<Message> {
        self.client.send(bytes);
        self.client.read_to_ready()
    }

    fn set(&mut self) {
        let (name, value) = (self.dice.below(4), self.tag());
        self.client.rows(&format!("SET app.v{name} = '{value}'"));
        self.settings.insert(name, value);
    }

    fn show(&mut self) {
        let name = self.dice.below(4);
        let text = format!("SELECT coalesce(current_setting('app.v{name}', true), '')");
        let expected = self.settings.get(&name).map_or("", String::as_str);
        assert_eq!(self.client.value(&text), expected, "app.v{name}");
    }

    /// Prepares by itself, within a transaction, or in two pieces. Some texts are other clients',
    /// too.
    fn prepare(&mut self) {
        let name = format!("s{}", self.dice.below(6));
        let value = match self.dice.below(2) {
            0 => self.tag(),
            _ => format!("shared {}", self.dice.below(5)),
        };
        let close = frontend::close_statement(&name);
        let parse = frontend::parse(&name, &format!("SELECT '{value}' || $1::text"));
        let bytes = [close, parse, frontend::sync()].concat();
        match self.dice.below(3) {
            0 => no_error(&self.ask(bytes)),
            1 => {
                self.client.rows("BEGIN");
                no_error(&self.ask(bytes));
                let end = *self.dice.of(&["COMMIT", "ROLLBACK"]);
                self.client.rows(end);
            }
            _ => {
                let cut = 1 + self.dice.below(20);
                self.client.send(&bytes[..cut]);
                think(Duration::from_micros(self.dice.below(2000) as u64));
                no_error(&self.ask(&bytes[cut..]));
            }
        }
        self.statements.insert(name, value);
    }

    fn unprepare(&mut self) {
        let Some(name) = self.statements.keys().next().cloned() else { return };
        match self.dice.below(2) {
            0 => no_error(&self.ask([frontend::close_statement(&name), frontend::sync()].concat())),
            _ => drop(self.client.rows(&format!("DEALLOCATE {name}"))),
        }
        self.statements.remove(&name);
    }

    /// Binds every statement, mostly within a transaction.
    fn execute_all(&mut self) {
        let in_transaction = self.dice.below(3) > 0;
        if in_transaction {
            self.client.rows("BEGIN");
        }
        let tag = self.tag();
        let names: Vec<_> = self.statements.keys().cloned().collect();
        for name in names {
            let bind = frontend::bind("", &name, &[Some(&tag)]);
            let answer = self.ask([bind, frontend::execute("", 0), frontend::sync()].concat());
            let expected = format!("{}{tag}", self.statements[&name]);
            assert_eq!(values(&answer), [expected], "{name}: {answer:?}");
        }
        if in_transaction {
            self.client.rows("COMMIT");
        }
    }

    /// Uses a name that it has not prepared.
    fn miss(&mut self) {
        let name = format!("s{}", self.dice.below(6));
        if self.statements.contains_key(&name) {
            return;
        }
        let bind = frontend::bind("", &name, &[Some("")]);
        let answer = self.ask([bind, frontend::execute("", 0), frontend::sync()].concat());
        let error = answer.iter().find_map(Message::error).expect("there is no such statement");
        assert_eq!(error.code(), "26000");
    }

    /// Changes its account within a transaction.
    fn pay(&mut self) {
        let (account, delta) = (self.number, self.dice.below(100));
        let read = format!("SELECT balance FROM accounts WHERE id = {account}");
        let before: i64 = self.client.value(&read).parse().expect("a number");
        self.client.rows("BEGIN");
        self.client.rows(&format!("SET LOCAL app.v0 = '{delta}'"));
        self.client
            .rows(&format!("UPDATE accounts SET balance = balance + {delta} WHERE id = {account}"));
        self.client.rows(&format!("INSERT INTO history VALUES ({account}, {delta})"));
        let commits = self.dice.below(4) > 0;
        self.client.rows(if commits { "COMMIT" } else { "ROLLBACK" });
        let after: i64 = self.client.value(&read).parse().expect("a number");
        assert_eq!(after, before + if commits { delta as i64 } else { 0 });
    }

    fn read_much(&mut self) {
        let (tag, count) = (self.tag(), self.dice.below(500));
        let text = format!("SELECT '{tag} row ' || n FROM generate_series(1, {count}) n");
        let found = self.client.rows(&text);
        assert_eq!(found.len(), count);
        for (index, row) in found.iter().enumerate() {
            assert_eq!(row[0].as_deref(), Some(&*format!("{tag} row {}", index + 1)));
        }
    }

    /// Copies lines in and out again, within a transaction that it rolls back.
    fn copy(&mut self) {
        let (tag, count, number) = (self.tag(), self.dice.below(200), self.number);
        self.client.rows("BEGIN");
        self.client.send(frontend::query("COPY copied FROM STDIN"));
        self.client.read_until(|message| message.tag == b'G');
        for line in 0..count {
            let line = format!("{number}\t{line}\t{tag} line {line}\n");
            self.client.send(frontend::copy_data(line.as_bytes()));
        }
        no_error(&self.ask(frontend::copy_done()));
        let lines = format!("SELECT line FROM copied WHERE client = {number} ORDER BY n");
        let text = format!("COPY ({lines}) TO STDOUT");
        let answer = self.ask(frontend::query(&text));
        let found = answer.iter().filter(|message| message.tag == b'd');
        let expected = (0..count).map(|line| format!("{tag} line {line}\n").into_bytes());
        assert!(found.map(|line| line.body.to_vec()).eq(expected), "{answer:?}");
        self.client.rows("ROLLBACK");
    }

    fn fail(&mut self) {
        let tag = self.tag();
        let error = self.client.query(&format!("SELECT '{tag}'::int")).error.expect("no number");
        assert!(error.message().contains(&format!("\"{tag}\"")), "{error:?}");
    }

    /// Three batches at once. The second one fails.
    fn pipeline(&mut self) {
        let tag = self.tag();
        let one = |part: u32| {
            let bind = frontend::bind("", "", &[Some(&format!("{tag} part {part}"))]);
            let parse = frontend::parse("", "SELECT $1::text");
            [parse, bind, frontend::execute("", 0)].concat()
        };
        let wrong = frontend::parse("", "SELECT 1/0 AS none FROM nowhere");
        let batches = [one(0), one(1), frontend::sync(), wrong, one(9), frontend::sync()];
        self.client.send([batches.concat(), one(2), frontend::sync()].concat());
        let answers: Vec<_> = (0..3).map(|_| self.client.read_to_ready()).collect();
        let found: Vec<_> = answers.iter().flat_map(|answer| values(answer)).collect();
        let expected: Vec<_> = (0..3).map(|part| format!("{tag} part {part}")).collect();
        assert_eq!(found, expected);
        let error = answers[1].iter().find_map(Message::error).expect("there is no such table");
        assert_eq!(error.code(), "42P01");
    }
}

fn values(answer: &[Message]) -> Vec<String> {
    let rows = answer.iter().filter(|message| message.tag == b'D').map(Message::row);
    rows.map(|row| row.into_iter().next().flatten().unwrap_or_default()).collect()
}

#[track_caller]
fn no_error(answer: &[Message]) {
    assert!(answer.iter().all(|message| message.error().is_none()), "{answer:?}");
}
