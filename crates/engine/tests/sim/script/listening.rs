//! Clients that listen and notify others.

use super::{Author, Step};
use config::PoolMode;

const CHANNELS: [&str; 2] = ["news", "more"];

impl Author<'_> {
    /// Begins to listen, and waits long enough for the listener to take over.
    pub(super) fn begin_to_listen(&mut self) {
        for channel in CHANNELS {
            self.query(&format!("LISTEN {channel}"));
        }
        self.act(true);
        self.steps.push(Step::Think(self.rng.below(40_000) as u64));
    }

    pub(super) fn listening(&mut self) {
        let transaction =
            self.mode == PoolMode::Auto && !self.in_transaction && self.rng.once_in(3);
        if transaction {
            self.query("BEGIN");
            self.in_transaction = true;
        }
        for _ in 0..self.rng.range(1, 3) {
            let has_savepoint = self.in_transaction && self.rng.once_in(3);
            if has_savepoint {
                self.query("SAVEPOINT s");
            }
            self.listen_or_notify();
            self.act(false);
            if has_savepoint && self.rng.once_in(2) {
                self.query("ROLLBACK TO s");
            }
        }
        if transaction {
            let end = self.rng.pick(&["COMMIT", "COMMIT", "ROLLBACK"]);
            self.query(end);
            self.in_transaction = false;
        }
        self.act(false);
        self.steps.push(Step::Think(self.rng.below(20_000) as u64));
        if self.rng.once_in(2) {
            self.act(true);
            self.steps.push(Step::Hear);
        }
    }

    fn listen_or_notify(&mut self) {
        let channel = self.rng.pick(&CHANNELS);
        match self.rng.below(8) {
            0 | 1 => self.query(&format!("LISTEN {channel}")),
            2 if self.rng.once_in(3) => self.query("UNLISTEN *"),
            2 => self.query(&format!("UNLISTEN {channel}")),
            _ => {
                // A number distinguishes each notification from all others.
                let number = self.number + 1;
                self.query(&format!("NOTIFY {channel}, 'c{}.{number}'", self.client));
            }
        }
    }
}
