//! The checkpoints of connections that PostgreSQL's backends serve.

use testkit::eventually;

use super::{Direct, PATIENCE};
use crate::support;

#[test]
fn a_client_of_a_backend_has_a_row_with_what_weir_sees_core() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start_with(1, |setup| setup.set("connection_timings", 100));
    let mut client = direct.client();
    client.rows("SELECT pg_sleep(0.05)");
    drop(client);
    let shown = eventually("the client of a backend has a row", PATIENCE, || {
        let shown = direct.pooler.admin("SHOW TIMINGS").with("server", "direct");
        // The first client has waited for the trial.
        (shown.rows.len() == 2).then_some(shown)
    });
    let last = shown.rows.last().expect("two rows");
    let value = |name: &str| {
        let at = shown.columns.iter().position(|column| column == name).expect("a column");
        (!last[at].is_empty()).then(|| last[at].parse::<u64>().expect("a number"))
    };
    for unseen in ["queued_us", "linked_us", "applied_us", "sent_us", "first_byte_us"] {
        assert_eq!(value(unseen), None, "{unseen}: {shown:?}");
    }
    let (welcomed, done) = (value("welcomed_us").expect("a welcome"), value("done_us"));
    assert!(done.expect("an end") - welcomed >= 50_000, "{shown:?}");
}
