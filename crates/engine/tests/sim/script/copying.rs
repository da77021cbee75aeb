//! Copies into the server, some of which fail.

use wire::frontend;

use super::{Author, Step};

impl Author<'_> {
    pub(super) fn copy_in(&mut self) {
        let extended = self.rng.once_in(2);
        let mut is_known = true;
        if extended {
            let text = format!("/*{}*/ COPYIN", self.tag());
            if self.rng.once_in(6) {
                frontend::parse(&mut self.out, b"", b"NONSENSE", frontend::NO_TYPES);
                is_known = false;
            }
            frontend::parse(&mut self.out, b"", text.as_bytes(), frontend::NO_TYPES);
            frontend::bind(&mut self.out, b"", b"", &[0, 0, 0, 0, 0, 0]);
            frontend::execute(&mut self.out, b"", 0);
            // Like libpq: the server reads this Sync during the copy.
            if self.rng.once_in(2) {
                frontend::sync(&mut self.out);
            }
        } else if self.rng.once_in(5) {
            self.query("FAIL; COPYIN");
        } else {
            self.query("COPYIN");
        }
        if self.rng.once_in(2) {
            self.send();
            self.steps.push(Step::Think(500));
        }
        // The server skips what follows the error, unless it reads a Sync there.
        let (mut failed, mut skips) = (false, false);
        for _ in 0..self.rng.below(4) {
            let bad = self.rng.once_in(8);
            skips |= bad && !failed;
            failed |= bad;
            frontend::copy_data(&mut self.out, if bad { b"BAD\n" } else { b"good\n" });
            if self.rng.once_in(4) {
                self.send();
            }
            if self.rng.once_in(8) {
                frontend::sync(&mut self.out);
                skips = false;
            }
        }
        if self.rng.once_in(4) {
            frontend::copy_fail(&mut self.out, b"no more");
            skips |= !failed;
        } else {
            frontend::copy_done(&mut self.out);
        }
        if extended {
            if skips || !is_known || self.rng.once_in(2) {
                frontend::sync(&mut self.out);
            }
            // A later Bind must not find the statement and begin a copy by surprise.
            self.query("");
        }
    }
}
