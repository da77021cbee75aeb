//! State that is not a setting: advisory locks, cursors WITH HOLD, statements of SQL's PREPARE.
//! Also SET LOCAL, and functions that set something.

use super::Author;

/// Names that the protocol does not use in this run.
const NAMES: [&str; 3] = ["q1", "q2", "q3"];

impl Author<'_> {
    /// One such statement, or a transaction with some.
    pub(super) fn lasting(&mut self) {
        let opens = !self.in_transaction && self.rng.once_in(3);
        if opens {
            self.query("BEGIN");
        }
        for _ in 0..self.rng.range(1, 3) {
            let sql = self.lasting_sql();
            self.query(&sql);
            if self.rng.once_in(3) {
                self.query("SELECT 1 5");
            }
        }
        if opens {
            let end = self.rng.pick(&["COMMIT", "COMMIT", "ROLLBACK"]);
            self.query(end);
        }
        self.act(true);
    }

    fn lasting_sql(&mut self) -> String {
        let (name, value, client) = (self.rng.pick(&NAMES), self.rng.below(3), self.client);
        match self.rng.below(14) {
            0 => "SELECT pg_advisory_lock(1)".to_owned(),
            1 | 2 => "SELECT pg_advisory_unlock(1)".to_owned(),
            3 => "DECLARE mine CURSOR WITH HOLD FOR SELECT 1 1".to_owned(),
            4 | 5 => "CLOSE mine".to_owned(),
            6 => format!("PREPARE {name} AS SELECT {value} 9"),
            7 | 8 => format!("EXECUTE {name}"),
            9 => format!("DEALLOCATE {name}"),
            10 => format!("SET LOCAL work_mem = 'l{value}{client}MB'"),
            11 => format!("SET LOCAL TimeZone = 'local{value}'"),
            12 => "SELECT calm()".to_owned(),
            _ => format!("SELECT meddle('f{value}{client}MB')"),
        }
    }
}
