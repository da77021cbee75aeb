//! The common namespace of SQL's and the protocol's statements, and numbers of sequences.

use wire::frontend;

use super::Author;

impl Author<'_> {
    /// SQL names a protocol statement, and the protocol names a statement of SQL's PREPARE.
    pub(super) fn shared_names(&mut self) {
        self.act(true);
        if self.in_transaction || !self.prepares() {
            return;
        }
        let name = format!("n{}", self.number);
        let text = format!("/*{}*/ SELECT 1 7", self.tag());
        frontend::parse(&mut self.out, name.as_bytes(), text.as_bytes(), frontend::NO_TYPES);
        frontend::sync(&mut self.out);
        self.pause();
        let opens = self.rng.once_in(3);
        if opens {
            self.query("BEGIN");
            if self.rng.once_in(3) {
                return self.use_in_failed_transaction(&name);
            }
        }
        for _ in 0..self.rng.range(1, 5) {
            match self.rng.below(8) {
                0..=2 => self.query(&format!("EXECUTE {name}")),
                3 => self.query(&format!("DEALLOCATE {name}")),
                4 => self.query(&format!("PREPARE {name} AS SELECT 1 9")),
                5 => self.use_by_protocol(&name, true),
                _ => self.use_by_protocol(&name, false),
            }
            self.pause();
        }
        if opens {
            let end = self.rng.pick(&["COMMIT", "COMMIT", "ROLLBACK"]);
            self.query(end);
        }
        self.act(true);
    }

    /// The server may lack the statement, and a failed transaction accepts no Parse. One more batch
    /// follows before the answer.
    fn use_in_failed_transaction(&mut self, name: &str) {
        self.query("FAIL");
        self.pause();
        self.use_by_protocol(name, false);
        self.query("SELECT 1 1");
        self.pause();
        self.query("ROLLBACK");
        self.act(true);
    }

    fn use_by_protocol(&mut self, name: &str, ends: bool) {
        match ends {
            true => frontend::close_statement(&mut self.out, name.as_bytes()),
            false => {
                frontend::bind(&mut self.out, b"", name.as_bytes(), &[0, 0, 0, 0, 0, 0]);
                frontend::describe_portal(&mut self.out, b"");
                frontend::execute(&mut self.out, b"", 0);
            }
        }
        frontend::sync(&mut self.out);
    }

    /// A client that draws numbers asks for them at once. Other clients must not see them.
    pub(super) fn numbers(&mut self) {
        self.act(true);
        if self.in_transaction {
            return;
        }
        if !self.draws {
            self.query("SELECT lastval()");
            return self.act(true);
        }
        self.query("BEGIN");
        // In one pipeline with the draw, the question may be refused (docs/auto-mode.md).
        self.act(true);
        for _ in 0..self.rng.range(1, 2) {
            self.query("SELECT nextval('mine')");
            self.act(false);
        }
        if self.rng.once_in(3) {
            self.query("SELECT 1 1");
        }
        self.query("SELECT lastval()");
        self.act(false);
        let end = self.rng.pick(&["COMMIT", "ROLLBACK"]);
        self.query(end);
        self.act(true);
    }
}
