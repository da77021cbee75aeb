//! Settings that a client sets and resets.

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

    /// A setting that stays in the session and is not reported.
    pub(super) fn session_sql(&mut self) -> String {
        let (value, client) = (self.rng.below(3), self.client);
        match self.rng.below(10) {
            0 if !self.goes_back => "RESET work_mem".to_owned(),
            1 if !self.goes_back => "RESET ALL".to_owned(),
            2 => "RESET TimeZone".to_owned(),
            3 | 4 if self.restyles => self.style_sql(),
            3 => "CREATE TEMP TABLE mine".to_owned(),
            4 => "DROP TABLE mine".to_owned(),
            5 | 6 => format!("SET search_path = 's{value}'"),
            _ => format!("SET work_mem = '{value}{client}MB'"),
        }
    }

    /// Sets the default as the client's own value, or resets to whatever the default is.
    fn style_sql(&mut self) -> String {
        match self.rng.below(3) {
            0 => "RESET DateStyle".to_owned(),
            _ => "SET datestyle = 'ISO, MDY'".to_owned(),
        }
    }

    /// A setting that another server may refuse.
    fn refusable_sql(&mut self) -> String {
        let value = self.rng.below(3);
        match self.rng.below(9) {
            0 => format!("SET role = 'r{}'", self.client),
            // These work in this order only.
            1 | 2 => format!("SET log_statement = 'l{value}'; SET role = 'r{}'", self.client),
            3 => "RESET role".to_owned(),
            4 => format!("SET log_statement = 'l{value}'"),
            // After that, temp_buffers cannot be set there.
            5 => "CREATE TEMP TABLE mine; DROP TABLE mine".to_owned(),
            _ => format!("SET temp_buffers = '{value}MB'"),
        }
    }

    /// Sets something that the next server may refuse, and looks at the result there.
    pub(super) fn refusals(&mut self) {
        for _ in 0..self.rng.range(1, 2) {
            let sql = self.refusable_sql();
            self.query(&sql);
            self.act(false);
        }
        if self.rng.once_in(3) {
            self.act(true);
            if !self.in_transaction {
                // The client may lose or regain the right to its role, even while it has the role.
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
            let sql = self.rng.pick(&[
                "RESET work_mem",
                "RESET ALL",
                "DISCARD ALL",
                "RESET TimeZone",
                "SET TimeZone TO DEFAULT",
            ]);
            if sql.contains("TimeZone") {
                self.query("SET TimeZone = 'zone9'");
                self.act(true);
            }
            self.query(sql);
            self.act(true);
        }
    }
}
