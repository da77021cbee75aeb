//! Clients that know what their sessions must hold, for hours, beside clients that leave badly and
//! an operator who changes things. Memory is measured meanwhile.
//!
//! * `plan.rs`: the length, and the version of PostgreSQL. `stage.rs`: PostgreSQL, Weir and their databases.
//! * `session.rs`: one client of the database `steady`. `visitor.rs`: clients of the database
//!   `rough`, whose servers come and go. `sleepers.rs`: clients at rest.
//! * `operator.rs`: commands of the console, ended backends, online restarts.
//! * `memory.rs`: what the backends of `steady` and Weir use. `verdict.rs`: failures, and the end.
//!
//! `make soak ARGS='--hours 24'` plays it for a day. Without arguments it takes 20 seconds.

mod memory;
mod operator;
mod plan;
mod session;
mod sleepers;
mod stage;
mod verdict;
mod visitor;

use std::thread;
use std::time::{Duration, Instant};

use memory::Sample;
use operator::Operator;
use plan::Plan;
use sleepers::Sleepers;
use stage::Stage;
use testkit::{Flavour, flavour, poll_until};
use verdict::Verdict;

#[test]
fn sessions_stay_right_and_memory_stays_small() {
    if flavour() != Flavour::Weir {
        return;
    }
    let plan = Plan::from_environment();
    let mut stage = Stage::start(&plan);
    let verdict = Verdict::new(plan.seconds);
    let database = stage.access();
    let mut sleepers = Sleepers::log_in(&database);
    thread::scope(|scope| {
        let (database, verdict, plan) = (&database, &verdict, &plan);
        for number in 0..plan.sessions {
            scope.spawn(move || session::play(database, verdict, plan, number));
        }
        for number in 0..plan.visitors {
            scope.spawn(move || visitor::play(database, verdict, plan, number));
        }
        observe(&mut stage, verdict, plan, &mut sleepers);
    });
    sleepers.check(&verdict, &stage);
    stage.check_balances(&verdict);
    verdict.announce();
}

/// Plays the operator and takes samples of the memory, until the time is over.
fn observe(stage: &mut Stage, verdict: &Verdict, plan: &Plan, sleepers: &mut Sleepers) {
    let mut operator = Operator::default();
    let (mut next_order, mut next_sample) = (plan.order_every, plan.warm_up);
    let mut first = None;
    while !verdict.is_over() {
        let now = verdict.elapsed();
        if now >= next_order {
            next_order = now + plan.order_every;
            verdict.judge("operator", || operator.give_next_order(stage, verdict));
        }
        if now >= next_sample {
            next_sample = now + plan.sample_every;
            verdict.judge("sample", || {
                let sample = Sample::take(stage);
                verdict.compare(first.get_or_insert_with(|| sample.clone()), &sample);
                println!("soak: {:>6} s  {}; {sample}", now.as_secs(), verdict.counts());
                sleepers.check_one(verdict);
            });
        }
        let wake = next_order.min(next_sample);
        poll_until(wake.saturating_sub(verdict.elapsed()).min(Duration::from_secs(1)), || {
            verdict.is_over().then_some(())
        });
    }
}

/// Waits for a while, as a person does between two requests.
fn think(time: Duration) {
    let end = Instant::now() + time;
    let _ = poll_until(time, || (Instant::now() >= end).then_some(()));
}
