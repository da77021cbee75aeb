//! Many clients connect at once, as after a restart of an application. All are let in, and the
//! clients at work get their answers.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use testkit::{Postgres, RawClient, Role};

use crate::support;

const NEWCOMERS: usize = 500;
const AT_WORK: usize = 10;
/// The longest wait of a client at work, although the newcomers' handshakes and other tests take the
/// machine.
const WAIT_MAX: Duration = Duration::from_secs(2);

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
        let mut longest = Duration::ZERO;
        for turn in 0.. {
            let asked = Instant::now();
            gets_its_own(client, who, turn);
            longest = longest.max(asked.elapsed());
            if is_over.load(Ordering::Relaxed) {
                break;
            }
        }
        longest
    };
    let (came, longest): (Vec<_>, _) = thread::scope(|scope| {
        let working = at_work.iter_mut().enumerate().map(|(who, client)| {
            let works = &works;
            scope.spawn(move || works(who, client))
        });
        let working: Vec<_> = working.collect();
        let coming: Vec<_> = (0..NEWCOMERS).map(|_| scope.spawn(comes)).collect();
        let came = coming.into_iter().map(ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        let waits = working.into_iter().map(|one| one.join().expect("it is served"));
        (came, waits.max().expect("some work"))
    });
    assert!(longest < WAIT_MAX, "a client at work waited {longest:?}");
    for (who, client) in came.into_iter().enumerate() {
        let client = client.expect("it finds somebody who listens");
        gets_its_own(&mut client.expect("it is let in"), who, 0);
    }
}
