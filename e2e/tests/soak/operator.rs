//! An operator who gives one order after another.

use crate::stage::Stage;
use crate::verdict::Verdict;

const ORDERS: [fn(&mut Stage, &Verdict); 8] =
    [show, reload, reconnect, pause, end_a_backend, restart, kill_a_client, reload_postgres];
const SHOWN: [&str; 7] = ["CLIENTS", "SERVERS", "POOLS", "PINS", "STATS", "MEM", "SOCKETS"];

#[derive(Debug, Default)]
pub(crate) struct Operator {
    given: usize,
}

impl Operator {
    pub(crate) fn give_next_order(&mut self, stage: &mut Stage, verdict: &Verdict) {
        let order = ORDERS[self.given % ORDERS.len()];
        self.given += 1;
        order(stage, verdict);
        verdict.count_order();
    }
}

fn show(stage: &mut Stage, _: &Verdict) {
    SHOWN.iter().for_each(|what| drop(stage.pooler.admin(&format!("SHOW {what}"))));
}

fn reload(stage: &mut Stage, _: &Verdict) {
    stage.pooler.reload();
}

fn reconnect(stage: &mut Stage, _: &Verdict) {
    stage.pooler.admin(&format!("RECONNECT {}", stage.rough));
}

fn pause(stage: &mut Stage, _: &Verdict) {
    stage.pooler.admin(&format!("PAUSE {}", stage.rough));
    stage.pooler.admin(&format!("RESUME {}", stage.rough));
}

fn end_a_backend(stage: &mut Stage, verdict: &Verdict) {
    verdict.ending(|| {
        for pid in stage.postgres.backends(&stage.rough).into_iter().take(1) {
            stage.postgres.sql("postgres", &format!("SELECT pg_terminate_backend({pid}, 5000)"));
        }
    });
}

fn kill_a_client(stage: &mut Stage, verdict: &Verdict) {
    verdict.ending(|| {
        let shown = stage.pooler.admin("SHOW CLIENTS").with("database", &stage.rough);
        for id in shown.column("id").into_iter().take(1) {
            // It may have left already.
            let _ = stage.pooler.try_admin(&format!("KILL_CLIENT {id}"));
        }
    });
}

fn reload_postgres(stage: &mut Stage, _: &Verdict) {
    stage.postgres.sql("postgres", "SELECT pg_reload_conf()");
}

/// Another process takes everything over (`-R`).
fn restart(stage: &mut Stage, _: &Verdict) {
    let status = stage.pooler.take_over();
    assert_eq!(status.code(), Some(0), "the old process");
}
