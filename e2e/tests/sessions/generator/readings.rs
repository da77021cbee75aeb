//! Steps about statements with literals that PostgreSQL reads at the Parse: by settings, or as the
//! time of the Parse.

use super::{Generator, unbound};
use crate::script::{Action, Check, Hold, Request};
use crate::texts::READERS;

/// Names of statements that only these steps use.
const OF_LITERALS: [&str; 2] = ["l", "m"];
const OF_MOMENTS: [&str; 2] = ["n", "o"];

impl Generator {
    pub(super) fn reading(&mut self, session: usize) {
        let name = *self.dice.of(&OF_LITERALS);
        match self.dice.below(8) {
            0 | 1 => self.read_by_settings(session, name),
            2..=4 => {
                let sql = self.literal();
                let requests = [prepared(name, sql), executed(name), vec![Request::Sync]].concat();
                self.check(session, requests, Check::Equal);
            }
            _ => {
                let requests = [executed(name), vec![Request::Sync]].concat();
                self.check(session, requests, Check::Reading(name));
            }
        }
    }

    pub(super) fn moment(&mut self, session: usize) {
        let name = *self.dice.of(&OF_MOMENTS);
        let sql = *self.dice.of(&self.moments);
        let parts = match self.dice.below(8) {
            0 => vec![prepared(name, sql), vec![Request::Sync]],
            1..=3 => vec![prepared(name, sql), executed(name), vec![Request::Sync]],
            4 if !self.sessions[session].may_be_inside => {
                let (begin, commit) = (Request::query("BEGIN"), Request::query("COMMIT"));
                vec![vec![begin], prepared(name, sql), vec![Request::Sync, commit]]
            }
            _ => vec![executed(name), vec![Request::Sync]],
        };
        self.check(session, parts.concat(), Check::Moment(name));
    }

    /// Prepares a statement under a setting that is over when the step is.
    fn read_by_settings(&mut self, session: usize, name: &'static str) {
        let (setting, values) = *self.dice.of(READERS);
        let value = *self.dice.of(values);
        let is_inside = self.sessions[session].may_be_inside;
        let (begin, end) = match self.dice.below(8) {
            0 if is_inside => (format!("SET LOCAL {setting} = {value}"), "SELECT 1"),
            _ if is_inside => {
                (format!("SAVEPOINT r; SET LOCAL {setting} = {value}"), "ROLLBACK TO r")
            }
            0 | 1 => (format!("BEGIN; SET LOCAL {setting} = {value}"), "COMMIT"),
            2 => (format!("BEGIN; SET {setting} = {value}"), "ROLLBACK"),
            3 => (format!("BEGIN; SELECT set_config('{setting}', {value}, true)"), "COMMIT"),
            4 => (format!("BEGIN; SAVEPOINT r; SET {setting} = {value}"), "ROLLBACK TO r; COMMIT"),
            5 => (format!("BEGIN; SELECT public.own_local_of('{setting}', {value})"), "END"),
            6 => (format!("BEGIN; DO $$BEGIN SET LOCAL {setting} = {value}; END$$"), "COMMIT"),
            _ => return self.read_in_pipeline(session, name, setting, value),
        };
        let sql = self.literal();
        let mut requests = vec![Request::query(begin)];
        requests.extend(prepared(name, sql));
        if self.dice.once_in(2) {
            requests.extend(executed(name));
        }
        requests.extend([Request::Sync, Request::query(end)]);
        self.check(session, requests, Check::Equal);
    }

    /// Does the same in one pipeline, which is a transaction until its Sync.
    fn read_in_pipeline(&mut self, session: usize, name: &'static str, setting: &str, value: &str) {
        let sql = self.literal();
        let set = format!("SELECT set_config('{setting}', {value}, true)");
        let mut requests = vec![Request::Parse { name: "", sql: set }, unbound("", "")];
        requests.push(Request::Execute { portal: "", rows: 0 });
        requests.extend(prepared(name, sql));
        requests.extend(executed(name));
        requests.push(Request::Sync);
        self.check(session, requests, Check::Equal);
    }

    fn literal(&mut self) -> &'static str {
        self.dice.of::<&str>(&self.literals)
    }

    fn check(&mut self, session: usize, requests: Vec<Request>, check: Check) {
        self.push(session, Action::Write(requests), Hold::AsBefore);
        self.steps.last_mut().expect("the step was added just now").check = check;
    }
}

fn prepared(name: &'static str, sql: &str) -> Vec<Request> {
    vec![Request::CloseStatement(name), Request::Parse { name, sql: sql.to_owned() }]
}

fn executed(name: &'static str) -> Vec<Request> {
    vec![unbound("", name), Request::Execute { portal: "", rows: 0 }]
}
