//! Many clients connect at once, as after a restart of an application. All are let in, and the
//! clients at work get their answers.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};

use testkit::{Postgres, RawClient, Role};

use crate::support;

const NEWCOMERS: usize = 500;
const AT_WORK: usize = 10;

/// Sends a query with a unique value and checks its answer.
fn gets_its_own(client: &mut RawClient, who: usize, turn: usize) {
    let own = format!("{who} in turn {turn}");
    assert_eq!(client.value(&format!("SELECT '{own}'")), own);
}

#[test]
fn a_connection_storm_on_a_cold_pool_logs_in_all_and_delays_no_work() {
    let (setup, database) = support::setup("transaction");
    let cold = Postgres::shared().database();
    let setup = setup.database(&cold, "").set("default_pool_size", 5);
    let pooler = setup.set("auth_type", "scram-sha-256").start();
    let mut at_work: Vec<_> = (0..AT_WORK).map(|_| pooler.client(&database)).collect();
    let (is_over, begins) = (AtomicBool::new(false), Barrier::new(NEWCOMERS + AT_WORK));
    let comes = || {
        begins.wait();
        pooler.login(Role::APP, &cold, Role::APP_PASSWORD)
    };
    let works = |who: usize, client: &mut RawClient| {
        begins.wait();
        for turn in 0.. {
            gets_its_own(client, who, turn);
            if is_over.load(Ordering::Relaxed) {
                break;
            }
        }
    };
    let came: Vec<_> = thread::scope(|scope| {
        for (who, client) in at_work.iter_mut().enumerate() {
            let works = &works;
            scope.spawn(move || works(who, client));
        }
        let coming: Vec<_> = (0..NEWCOMERS).map(|_| scope.spawn(comes)).collect();
        let came = coming.into_iter().map(ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        came
    });
    for (who, client) in came.into_iter().enumerate() {
        let client = client.expect("it finds somebody who listens");
        gets_its_own(&mut client.expect("it is let in"), who, 0);
    }
}
