//! Clients that leave badly, keep servers, and cancel.

use std::time::Duration;

use testkit::{Dice, RawClient, eventually, frontend};

use crate::plan::Plan;
use crate::stage::{Access, PATIENCE};
use crate::think;
use crate::verdict::Verdict;

struct Visit<'a> {
    client: RawClient,
    access: &'a Access,
    tag: String,
}

/// Plays visits, one after the other, until the soak is over.
pub(crate) fn play(access: &Access, verdict: &Verdict, plan: &Plan, number: u32) {
    let mut dice = Dice::new(10_000 + u64::from(number));
    while !verdict.is_over() {
        verdict.judge_mortal(&format!("visitor {number}"), || {
            let tag = format!("visitor {number} draw {}", dice.below(1_000_000));
            let mut client = access.client(&access.rough);
            client.rows(&format!("SET app.visitor = '{tag}'"));
            assert_eq!(client.value("SHOW app.visitor"), tag);
            let visit = *dice.of(&Visit::ALL);
            visit(Visit { client, access, tag });
        });
        verdict.count_visit();
        think(plan.a_pause(&mut dice));
    }
}

impl Visit<'_> {
    const ALL: [fn(Self); 10] = [
        Self::ends_properly,
        Self::leaves_in_a_transaction,
        Self::leaves_in_a_result,
        Self::leaves_within_a_message,
        Self::leaves_in_a_copy,
        Self::has_a_temporary_table,
        Self::holds_a_lock,
        Self::listens,
        Self::draws_numbers,
        Self::cancels,
    ];

    fn ends_properly(mut self) {
        self.client.send(frontend::terminate());
    }

    fn leaves_in_a_transaction(mut self) {
        self.client.rows(&format!("BEGIN; SET LOCAL application_name = '{}'", self.tag));
        assert_eq!(self.client.value("SHOW application_name"), self.tag);
    }

    fn leaves_in_a_result(mut self) {
        let text = "SELECT repeat('x', 1000) FROM generate_series(1, 10000)";
        self.client.send(frontend::query(text));
        self.client.read_until(|message| message.tag == b'D');
    }

    fn leaves_within_a_message(mut self) {
        self.client.send(&frontend::query("SELECT 'cut off'")[..9]);
    }

    fn leaves_in_a_copy(mut self) {
        self.client.send(frontend::query("COPY copied FROM STDIN"));
        self.client.read_until(|message| message.tag == b'G');
        self.client.send(frontend::copy_data(b"1\t2\tlost\n"));
    }

    fn has_a_temporary_table(mut self) {
        self.client.rows("CREATE TEMP TABLE own (a text)");
        self.client.rows(&format!("INSERT INTO own VALUES ('{}')", self.tag));
        assert_eq!(self.client.value("SELECT a FROM own"), self.tag);
    }

    fn holds_a_lock(mut self) {
        self.client.rows("SELECT pg_advisory_lock_shared(7)");
        assert_eq!(self.client.value("SELECT pg_advisory_unlock_shared(7)"), "t");
        self.client.send(frontend::terminate());
    }

    fn listens(mut self) {
        let channel = self.tag.replace(' ', "_");
        self.client.rows(&format!("LISTEN {channel}"));
        // PAUSE waits for clients that keep a server, so this must not wait for PAUSE.
        let mut other = self.access.superuser(&self.access.rough);
        other.rows(&format!("NOTIFY {channel}, 'first'"));
        other.rows(&format!("NOTIFY {channel}, 'second'"));
        for expected in ["first", "second"] {
            let heard = self.client.read_until(|message| matches!(message.tag, b'A' | b'N'));
            let last = heard.last().expect("a notification, or a notice");
            // Its listener was ended, and notifications may be lost (docs/auto-mode.md).
            if last.error().is_some_and(|notice| notice.code() == "01000") {
                return;
            }
            let text = String::from_utf8_lossy(&last.body);
            assert!(text.contains(&format!("{channel}\0{expected}\0")), "{text:?}");
        }
    }

    fn draws_numbers(mut self) {
        self.client.rows("BEGIN");
        let drawn = self.client.value("SELECT nextval('numbers')");
        assert_eq!(self.client.value("SELECT currval('numbers')"), drawn);
        self.client.rows("COMMIT");
    }

    fn cancels(mut self) {
        self.client.send(frontend::query("SELECT pg_sleep(60)"));
        // A cancel request that comes before the query has begun cancels nothing.
        self.client.set_timeout(Duration::from_millis(200));
        let error = eventually("the query is cancelled", PATIENCE, || {
            self.client.cancel(self.access.port);
            self.client.try_read().ok()?.expect("the connection is open").error()
        });
        assert_eq!(error.code(), "57014");
    }
}
