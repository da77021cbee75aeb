//! Triggers change the session, and no text shows it. Only the library's reports do. Also clients
//! that set the parameter of the reports themselves.

use super::Author;

impl Author<'_> {
    /// One change or several, each of which a later statement makes visible.
    pub(super) fn firing(&mut self) {
        self.act(true);
        if self.in_transaction {
            return;
        }
        match self.rng.below(8) {
            0..=2 => self.fire_settings(),
            3 | 4 => self.fire_locks(),
            5 | 6 => self.fire_numbers(),
            _ => self.fire_series(),
        }
        self.act(true);
    }

    /// Each transaction leaves another value. Some of them are sent at once.
    fn fire_settings(&mut self) {
        for _ in 0..self.rng.range(1, 4) {
            let sql = format!("FIRE f{}{}MB", self.rng.below(5), self.client);
            match self.rng.below(4) {
                0 => {
                    self.query("BEGIN");
                    self.query(&sql);
                    let end = self.rng.pick(&["COMMIT", "ROLLBACK"]);
                    self.query(end);
                }
                1 => self.query(&format!("{sql}; SELECT 1 3")),
                _ => self.query(&sql),
            }
            if self.rng.once_in(2) {
                self.pause();
            }
        }
        self.query("SELECT 1 5");
    }

    fn fire_locks(&mut self) {
        self.query("FIRE lock");
        self.pause();
        self.query("SELECT 1 5");
        self.pause();
        if !self.rng.once_in(4) {
            self.query("FIRE unlock");
        }
    }

    /// A trigger asks for a number that the client has drawn, so the number must stay.
    fn fire_numbers(&mut self) {
        self.query("BEGIN");
        self.act(true);
        self.query("SELECT nextval('mine')");
        self.act(true);
        self.query("FIRE ask");
        self.query("COMMIT");
        self.pause();
        if self.rng.once_in(2) {
            // All three are judged together, and the order of their events matters.
            self.query("BEGIN");
            self.query("DISCARD SEQUENCES");
            self.query("SELECT nextval('mine')");
            self.query("FIRE ask");
            self.query("COMMIT");
        }
        for _ in 0..self.rng.range(0, 2) {
            self.pause();
            self.query("SELECT 1 1");
        }
        self.pause();
        self.query("FIRE ask");
        if self.rng.once_in(2) {
            self.query("DISCARD SEQUENCES");
        }
    }

    /// The series belongs to the session until that ends.
    fn fire_series(&mut self) {
        self.query("FIRE seed");
        for _ in 0..self.rng.range(1, 4) {
            self.pause();
            let sql = self.rng.pick(&["RANDOM", "SELECT 1 1", "RANDOM"]);
            self.query(sql);
        }
        self.query("RANDOM");
    }

    /// The client's own setting has the name of the reports.
    pub(super) fn forging(&mut self) {
        let sql = self.rng.pick(&["SET weir.state = 'v1'", "RESET weir.state"]);
        self.query(sql);
        self.pause();
        let sql = self.session_sql();
        self.query(&sql);
        self.pause();
        self.query("SELECT 1 5");
        self.act(true);
    }
}
