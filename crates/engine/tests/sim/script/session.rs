//! What a client sets, and takes back.

use super::{Author, Step};
use config::PoolMode;

impl Author<'_> {
    pub(super) fn set_sql(&mut self) -> String {
        if self.mode == PoolMode::Auto && !self.rng.once_in(3) {
            return self.session_sql();
        }
        let value = self.rng.pick(&["one", "two", "three", "bad"]);
        match self.rng.below(3) {
            0 => format!("SET TimeZone = '{value}'"),
            1 => format!("SET application_name = '{value}{}'", self.client),
            _ => format!("SET datestyle = '{value}'"),
        }
    }

    /// Something that stays in the session and is not reported.
    pub(super) fn session_sql(&mut self) -> String {
        let (value, client) = (self.rng.below(3), self.client);
        match self.rng.below(10) {
            0 if !self.goes_back => "RESET work_mem".to_owned(),
            1 if !self.goes_back => "RESET ALL".to_owned(),
            2 => "RESET TimeZone".to_owned(),
            3 => "CREATE TEMP TABLE mine".to_owned(),
            4 => "DROP TABLE mine".to_owned(),
            5 | 6 => format!("SET search_path = 's{value}'"),
            _ => format!("SET work_mem = '{value}{client}MB'"),
        }
    }

    /// Something that a server may refuse to take over.
    fn refusable_sql(&mut self) -> String {
        let value = self.rng.below(3);
        match self.rng.below(9) {
            0 => format!("SET role = 'r{}'", self.client),
            // In that order only.
            1 | 2 => format!("SET log_statement = 'l{value}'; SET role = 'r{}'", self.client),
            3 => "RESET role".to_owned(),
            4 => format!("SET log_statement = 'l{value}'"),
            // Nobody can set temp_buffers there any more.
            5 => "CREATE TEMP TABLE mine; DROP TABLE mine".to_owned(),
            _ => format!("SET temp_buffers = '{value}MB'"),
        }
    }

    /// It sets what may be refused on the next server, and sees what it has there.
    pub(super) fn refusals(&mut self) {
        for _ in 0..self.rng.range(1, 2) {
            let sql = self.refusable_sql();
            self.query(&sql);
            self.act(false);
        }
        if self.rng.once_in(3) {
            self.act(true);
            if !self.in_transaction {
                // It may not become its role any more, or may again; it may be it at present.
                let verb = self.rng.pick(&["GRANT", "REVOKE"]);
                self.query(&format!("{verb} {}", self.client));
                self.act(true);
            }
        }
        self.steps.push(Step::Think(self.rng.below(5_000) as u64));
        self.query("SELECT 1 1");
        self.act(false);
    }

    pub(super) fn go_back(&mut self) {
        self.act(true);
        if !self.in_transaction {
            let sql = self.rng.pick(&["RESET work_mem", "RESET ALL", "DISCARD ALL"]);
            self.query(sql);
            self.act(true);
        }
    }
}
