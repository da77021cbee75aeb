//! The meaning of a text depends on settings, and the known row description on the time of the
//! Describe. Between Parse, Describe and Bind come other transactions, other servers and other
//! settings.

use wire::frontend;

use super::{Author, Step};

impl Author<'_> {
    /// A statement that keeps its meaning from when it was parsed. Many clients have the same text,
    /// with other settings.
    pub(super) fn meaning(&mut self) {
        self.act(true);
        if self.in_transaction || !self.prepares() {
            return;
        }
        for _ in 0..self.rng.range(1, 2) {
            let sql = self.reading_sql();
            self.query(&sql);
            self.act(true);
            let name = format!("meaning {}", self.number);
            frontend::parse(&mut self.out, name.as_bytes(), b"MEANING $1", frontend::NO_TYPES);
            self.use_apart(name.as_bytes());
            // PostgreSQL reads part of it again if the settings have changed.
            frontend::close_statement(&mut self.out, name.as_bytes());
            frontend::sync(&mut self.out);
            self.act(true);
        }
    }

    /// Parse, Describe and Bind go to different servers, and settings change in between.
    pub(super) fn apart(&mut self) {
        self.act(true);
        if self.in_transaction || !self.prepares() {
            return;
        }
        let name = format!("apart {}", self.number);
        let sql = format!("SELECT $1 {} 5", self.rng.range(1, 2));
        frontend::parse(&mut self.out, name.as_bytes(), sql.as_bytes(), frontend::NO_TYPES);
        for _ in 0..self.rng.range(1, 3) {
            self.use_apart(name.as_bytes());
            let sql = self.reading_sql();
            self.query(&sql);
            self.pause();
        }
    }

    fn use_apart(&mut self, name: &[u8]) {
        for _ in 0..self.rng.range(1, 3) {
            if self.rng.once_in(2) {
                frontend::describe_statement(&mut self.out, name);
            } else {
                self.bind_tag(name);
                frontend::describe_portal(&mut self.out, b"");
                frontend::execute(&mut self.out, b"", 0);
            }
            frontend::sync(&mut self.out);
            self.pause();
        }
    }

    /// Lets other clients have the server.
    pub(super) fn pause(&mut self) {
        self.act(true);
        self.steps.push(Step::Think(self.rng.below(3_000) as u64));
    }

    fn reading_sql(&mut self) -> String {
        let value = self.rng.below(3);
        match self.rng.below(3) {
            0 => format!("SET TimeZone = 'zone{value}'"),
            _ => format!("SET search_path = 's{value}'"),
        }
    }
}
