use super::*;
use crate::cluster::Settings;
use crate::commits::{Doubt, Replication};
use crate::fact::{Fact, Receiver, Sample};
use crate::verdict::Reason;

const SECOND: Micros = 1_000_000;
const A: NodeId = NodeId(0);
const B: NodeId = NodeId(1);
const C: NodeId = NodeId(2);
const LIMITS: Limits =
    Limits { drain: SECOND, overtime: Overtime::Refuse, by: By::Weir, max_loss: None };

/// A cluster, its promotion, and the time.
struct Rig {
    cluster: Cluster,
    now: Micros,
    /// The primary's words about replication.
    told: Replication,
}

fn sample(timeline: u32, role: Role, wal: u64) -> Fact {
    let received = if role == Role::Primary { Lsn(0) } else { Lsn(wal) };
    Fact::Seen(Sample { system: 7, started: 1, timeline, role, wal: Lsn(wal), received })
}

fn primary(timeline: u32) -> Fact {
    sample(timeline, Role::Primary, 90_000)
}

fn standby() -> Fact {
    sample(1, Role::Standby(Some(Receiver { timeline: 1 })), 90_000)
}

fn lonely() -> Fact {
    sample(1, Role::Standby(None), 90_000)
}

impl Rig {
    /// A primary whose commits wait for `quorum` standbys.
    fn new(quorum: u32) -> Self {
        let settings = Settings { sample_interval: SECOND, health_timeout: 2 * SECOND };
        let names = ["a", "b", "c"].map(str::to_owned);
        let told = Replication {
            names: if quorum == 0 { String::new() } else { format!("ANY {quorum} (a, b, c)") },
            level: "on".to_owned(),
            senders: ["b", "c"].map(str::to_owned).to_vec(),
            ..Replication::default()
        };
        let mut rig = Self { cluster: Cluster::new(settings, names, 0), now: SECOND, told };
        rig.hear([primary(1), standby(), standby()]);
        assert_eq!(rig.cluster.primary(), Ok(A));
        rig
    }

    fn hear(&mut self, facts: [Fact; 3]) {
        self.now += SECOND / 100;
        for (at, fact) in facts.into_iter().enumerate() {
            let node = NodeId(at as u16);
            if matches!(fact, Fact::Seen(Sample { role: Role::Primary, .. })) {
                self.cluster.learn_replication(node, self.told.clone(), self.now);
            }
            self.cluster.learn(node, fact, self.now);
        }
        self.cluster.judge(self.now);
    }

    /// The primary is down, the standbys answer.
    fn lose(&mut self) {
        for _ in 0..2 {
            self.hear([Fact::Refused, lonely(), lonely()]);
        }
    }

    fn unplanned(&self, past: &Past) -> Promotion {
        let begun = Promotion::unplanned(&self.cluster, LIMITS, past, self.now);
        begun.expect("the primary is lost")
    }

    fn next(&self, promotion: &mut Promotion) -> Result<Order, Result<NodeId, Failure>> {
        promotion.next(&self.cluster, 0, self.now)
    }

    /// All standbys answer, and the fence has succeeded.
    fn fence(&mut self, promotion: &mut Promotion) {
        self.hear([Fact::Refused, lonely(), lonely()]);
        assert_eq!(self.next(promotion), Ok(Order::Fence(A)));
        promotion.done(Outcome::Done, self.now);
    }

    /// A primary with one synchronous standby is lost and fenced.
    fn fenced() -> (Self, Promotion) {
        let mut rig = Self::new(1);
        rig.lose();
        let mut promotion = rig.unplanned(&Past::default());
        rig.fence(&mut promotion);
        (rig, promotion)
    }

    /// A switchover to `b` whose `stop_command` has succeeded.
    fn stopped(&self) -> Promotion {
        let begun = Promotion::planned(&self.cluster, B, LIMITS, self.now);
        let mut promotion = begun.expect("it follows");
        assert_eq!(self.next(&mut promotion), Ok(Order::Mark(A)));
        promotion.done(Outcome::At(Lsn(95_000)), self.now);
        assert_eq!(self.next(&mut promotion), Ok(Order::Stop(A)));
        promotion.done(Outcome::Done, self.now);
        promotion
    }
}

#[test]
fn an_old_answer_is_no_vote() {
    for silence in [Fact::Silent, Fact::Unasked(crate::Obstacle::Full)] {
        let (mut rig, mut promotion) = Rig::fenced();
        rig.hear([Fact::Refused, silence.clone(), lonely()]);
        assert_eq!(rig.next(&mut promotion), Ok(Order::Wait), "{silence:?}");
        rig.now += ELECTION - SECOND / 10;
        rig.hear([Fact::Refused, silence.clone(), lonely()]);
        assert_eq!(rig.next(&mut promotion), Ok(Order::Wait), "{silence:?}");
        rig.now += SECOND / 10;
        rig.hear([Fact::Refused, silence.clone(), lonely()]);
        let why = Risk::Missing { missing: 1, quorum: 1 };
        let why = Failure::Loss { why, bytes: 0 };
        assert_eq!(rig.next(&mut promotion), Err(Err(why)), "{silence:?}");
    }
}

#[test]
fn a_detached_node_is_never_promoted() {
    let mut rig = Rig::new(2);
    rig.cluster.set_detached(B, true);
    rig.hear([primary(1), standby(), standby()]);
    let refused = Promotion::planned(&rig.cluster, B, LIMITS, rig.now);
    let refused = refused.expect_err("it is detached").to_string();
    assert_eq!(refused, "node b cannot become the primary: it is unfit: detached by an operator");
    rig.lose();
    let mut promotion = rig.unplanned(&Past::default());
    rig.fence(&mut promotion);
    rig.hear([Fact::Refused, lonely(), lonely()]);
    // A commit has waited for c as well.
    assert_eq!(rig.next(&mut promotion), Ok(Order::Promote(C)));
}

#[test]
fn commits_that_only_a_detached_node_may_have_are_not_given_up() {
    let mut rig = Rig::new(1);
    rig.cluster.set_detached(B, true);
    rig.hear([primary(1), standby(), standby()]);
    rig.lose();
    let mut promotion = rig.unplanned(&Past::default());
    rig.hear([Fact::Refused, lonely(), lonely()]);
    let why = Risk::Missing { missing: 1, quorum: 1 };
    assert_eq!(rig.next(&mut promotion), Err(Err(Failure::Loss { why, bytes: 0 })));
}

#[test]
fn nobody_is_promoted_beside_another_primary() {
    let (mut rig, mut promotion) = Rig::fenced();
    let mut other = promotion.clone();
    rig.hear([Fact::Refused, primary(2), lonely()]);
    assert_eq!(rig.next(&mut promotion), Err(Err(Failure::Another("b".to_owned()))));
    // Its primary is lost again before it was looked at.
    for _ in 0..2 {
        rig.hear([Fact::Refused, Fact::Refused, lonely()]);
    }
    assert_eq!(rig.next(&mut other), Err(Err(Failure::NewTimeline { timeline: 2 })));
}

#[test]
fn the_primary_that_is_back_stays() {
    let (mut rig, mut promotion) = Rig::fenced();
    rig.hear([primary(1), lonely(), lonely()]);
    assert_eq!(rig.next(&mut promotion), Err(Err(Failure::Returned)));
}

#[test]
fn a_node_that_was_ordered_is_the_only_candidate() {
    for outcome in [Outcome::Done, Outcome::Failed("test".to_owned())] {
        let (mut rig, mut promotion) = Rig::fenced();
        rig.hear([Fact::Refused, lonely(), lonely()]);
        assert_eq!(rig.next(&mut promotion), Ok(Order::Promote(B)));
        promotion.done(outcome, rig.now);
        rig.now += PATIENCE;
        rig.hear([Fact::Refused, Fact::Silent, lonely()]);
        let end = rig.next(&mut promotion);
        assert!(matches!(end, Err(Err(Failure::NotPromoted { .. }))), "{end:?}");
        let past = promotion.past();
        let mut again = rig.unplanned(past);
        rig.hear([Fact::Refused, Fact::Silent, lonely()]);
        assert_eq!(rig.next(&mut again), Ok(Order::Wait));
        rig.now += ELECTION - SECOND / 10;
        assert_eq!(rig.next(&mut again), Ok(Order::Wait));
        rig.now += SECOND / 10;
        rig.hear([Fact::Refused, Fact::Silent, lonely()]);
        assert_eq!(rig.next(&mut again), Err(Err(Failure::Ordered("b".to_owned()))));
        let mut again = rig.unplanned(again.past());
        rig.hear([Fact::Refused, lonely(), lonely()]);
        assert_eq!(rig.next(&mut again), Ok(Order::Promote(B)));
    }
}

#[test]
fn an_order_that_was_not_sent_binds_nobody() {
    let (mut rig, mut promotion) = Rig::fenced();
    rig.hear([Fact::Refused, lonely(), lonely()]);
    assert_eq!(rig.next(&mut promotion), Ok(Order::Promote(B)));
    promotion.done(Outcome::Unsent("test".to_owned()), rig.now);
    assert_eq!(promotion.past().ordered(), None);
}

#[test]
fn a_primary_that_is_back_needs_another_fence() {
    let mut past = Past { is_fenced: true, ordered: Some(B), ..Past::of(A, 1) };
    past.opened(1);
    assert_eq!(past, Past { ordered: Some(B), ..Past::of(A, 1) });
    past.opened(2);
    assert_eq!(past, Past::default());
}

#[test]
fn nobody_is_fenced_before_a_standby_may_be_promoted() {
    let mut rig = Rig::new(0);
    rig.lose();
    let mut promotion = rig.unplanned(&Past::default());
    assert_eq!(rig.next(&mut promotion), Ok(Order::Wait));
    rig.hear([Fact::Refused, lonely(), lonely()]);
    let why = Failure::Loss { why: Risk::Doubt(Doubt::Asynchronous), bytes: 0 };
    assert_eq!(rig.next(&mut promotion), Err(Err(why)));
}

#[test]
fn nobody_is_promoted_beside_an_old_primary_that_starts_again() {
    for fact in [Fact::Unready, Fact::Unasked(crate::Obstacle::Full), primary(1)] {
        let (mut rig, mut promotion) = Rig::fenced();
        rig.hear([fact, lonely(), lonely()]);
        assert_eq!(rig.next(&mut promotion), Err(Err(Failure::Returned)));
    }
    // It is asked after the fence, before a standby is chosen.
    let (mut rig, mut promotion) = Rig::fenced();
    let hear_standbys = |rig: &mut Rig| {
        rig.now += SECOND / 100;
        [B, C].into_iter().for_each(|node| rig.cluster.learn(node, lonely(), rig.now));
        rig.cluster.judge(rig.now);
    };
    hear_standbys(&mut rig);
    assert_eq!(rig.next(&mut promotion), Ok(Order::Wait));
    rig.hear([Fact::Unready, lonely(), lonely()]);
    assert_eq!(rig.next(&mut promotion), Err(Err(Failure::Returned)));
    // An answer may be lost.
    let (mut rig, mut promotion) = Rig::fenced();
    rig.hear([Fact::Silent, lonely(), lonely()]);
    assert_eq!(rig.next(&mut promotion), Ok(Order::Wait));
    rig.hear([primary(1), lonely(), lonely()]);
    assert_eq!(rig.next(&mut promotion), Err(Err(Failure::Returned)));
    // If it does not answer, it delays the promotion for a moment only.
    let (mut rig, mut promotion) = Rig::fenced();
    rig.now += ELECTION - SECOND / 50;
    hear_standbys(&mut rig);
    assert_eq!(rig.next(&mut promotion), Ok(Order::Wait));
    rig.now += SECOND / 50;
    assert_eq!(rig.next(&mut promotion), Ok(Order::Promote(B)));
}

/// It has been stopped by SIGSTOP, for example.
#[test]
fn a_weir_that_was_stopped_asks_all_nodes_again() {
    let (mut rig, mut promotion) = Rig::fenced();
    rig.now += 20 * SECOND;
    assert_eq!(rig.next(&mut promotion), Ok(Order::Wait), "its facts are outdated");
    rig.hear([Fact::Refused, lonely(), lonely()]);
    assert_eq!(rig.next(&mut promotion), Ok(Order::Promote(B)));
    assert!(promotion.may_promote(&rig.cluster, rig.now));
    let mut late = rig.cluster.clone();
    assert!(!promotion.may_promote(&late, rig.now + FRESH));
    late.learn(A, Fact::Unready, rig.now + 1);
    late.judge(rig.now + 1);
    assert!(!promotion.may_promote(&late, rig.now + 1));
    promotion.done(Outcome::Unsent("late".to_owned()), rig.now);
    assert_eq!(rig.next(&mut promotion), Err(Err(Failure::Unsent("late".to_owned()))));
}

#[test]
fn a_commit_that_a_stranger_may_have_confirmed_can_be_lost() {
    let end = |change: fn(&mut Rig)| {
        let (mut rig, mut promotion) = {
            let mut rig = Rig::new(1);
            change(&mut rig);
            rig.lose();
            let promotion = rig.unplanned(&Past::default());
            (rig, promotion)
        };
        rig.hear([Fact::Refused, lonely(), lonely()]);
        rig.next(&mut promotion)
    };
    let doubt = |change| match end(change) {
        Err(Err(Failure::Loss { why: Risk::Doubt(doubt), .. })) => doubt,
        end => panic!("{end:?}"),
    };
    assert_eq!(end(|_| {}), Ok(Order::Fence(A)));
    assert_eq!(
        doubt(|rig| {
            rig.told.names = "ANY 1 (*)".to_owned();
            rig.hear([primary(1), standby(), standby()]);
        }),
        Doubt::Anyone
    );
    let twice = |rig: &mut Rig| {
        rig.told.senders.push("B".to_owned());
        rig.hear([primary(1), standby(), standby()]);
    };
    assert_eq!(doubt(twice), Doubt::Twice { name: "b".to_owned(), count: 2 });
    // The stranger has left, and the standbys lack what it has confirmed.
    let mut rig = Rig::new(1);
    twice(&mut rig);
    rig.told.senders.pop();
    rig.now += SECOND;
    rig.cluster.learn_replication(A, rig.told.clone(), rig.now);
    rig.cluster.learn(A, sample(1, Role::Primary, 99_000), rig.now);
    rig.cluster.judge(rig.now);
    assert_eq!(rig.cluster.guarantee().unwrap().since, Lsn(99_000));
    rig.lose();
    let mut promotion = rig.unplanned(&Past::default());
    rig.hear([Fact::Refused, lonely(), lonely()]);
    let why = Failure::Loss { why: Risk::Behind { since: Lsn(99_000) }, bytes: 9_000 };
    assert_eq!(rig.next(&mut promotion), Err(Err(why)));
}

#[test]
fn only_the_nodes_for_which_commits_wait_are_counted() {
    for (names, fence) in [("b", true), ("c", false), ("FIRST 1 (B, c)", false)] {
        let mut rig = Rig::new(1);
        rig.told.names = names.to_owned();
        for _ in 0..2 {
            rig.hear([primary(1), standby(), standby()]);
        }
        for _ in 0..2 {
            rig.hear([Fact::Refused, lonely(), Fact::Refused]);
        }
        let mut promotion = rig.unplanned(&Past::default());
        rig.hear([Fact::Refused, lonely(), Fact::Refused]);
        assert_eq!(rig.next(&mut promotion) == Ok(Order::Fence(A)), fence, "{names}");
    }
}

#[test]
fn a_fence_is_not_repeated() {
    let (mut rig, mut promotion) = Rig::fenced();
    rig.now += ELECTION - SECOND / 10;
    assert_eq!(rig.next(&mut promotion), Ok(Order::Wait));
    rig.now += SECOND / 10;
    rig.hear([Fact::Refused, Fact::Silent, lonely()]);
    let end = rig.next(&mut promotion);
    assert!(matches!(end, Err(Err(Failure::Loss { .. }))), "{end:?}");
    let mut again = rig.unplanned(promotion.past());
    rig.hear([Fact::Refused, lonely(), lonely()]);
    assert_eq!(rig.next(&mut again), Ok(Order::Promote(B)));
}

#[test]
fn a_silent_primary_is_not_taken_for_stopped() {
    let mut rig = Rig::new(1);
    let mut promotion = rig.stopped();
    assert_eq!(rig.next(&mut promotion), Ok(Order::Wait));
    rig.hear([Fact::Silent, lonely(), lonely()]);
    rig.now += 5 * SECOND;
    rig.hear([Fact::Silent, lonely(), lonely()]);
    assert_eq!(*rig.cluster.verdict(A), Verdict::Down(Reason::Silent));
    assert_eq!(rig.next(&mut promotion), Ok(Order::Wait));
    let mut in_time = promotion.clone();
    rig.hear([Fact::Refused, lonely(), lonely()]);
    assert_eq!(rig.next(&mut in_time), Ok(Order::Wait));
    assert!(matches!(in_time.step, Step::CatchUp(_)));
    let mut rig = Rig::new(1);
    let mut promotion = rig.stopped();
    rig.hear([Fact::Silent, lonely(), lonely()]);
    rig.now += PATIENCE;
    rig.hear([Fact::Silent, lonely(), lonely()]);
    assert_eq!(rig.next(&mut promotion), Ok(Order::Start(A)));
}

#[test]
fn a_primary_that_starts_again_ends_the_switchover() {
    for fact in [primary(1), Fact::Unready] {
        let mut rig = Rig::new(1);
        let mut promotion = rig.stopped();
        for _ in 0..2 {
            rig.hear([Fact::Refused, lonely(), lonely()]);
        }
        assert_eq!(rig.next(&mut promotion), Ok(Order::Wait));
        assert!(matches!(promotion.step, Step::CatchUp(_)));
        rig.hear([fact, lonely(), sample(1, Role::Standby(None), 95_000)]);
        assert_eq!(rig.next(&mut promotion), Ok(Order::Start(A)));
        promotion.done(Outcome::Done, rig.now);
        rig.hear([primary(1), standby(), standby()]);
        let end = rig.next(&mut promotion);
        assert_eq!(end, Err(Err(Failure::StillRuns("a".to_owned()))));
    }
}

#[test]
fn a_start_that_fails_is_repeated_and_told() {
    let mut rig = Rig::new(1);
    let begun = Promotion::planned(&rig.cluster, B, LIMITS, rig.now);
    let mut promotion = begun.expect("it follows");
    promotion.step = Step::back(Failure::NotStopped("x".to_owned()), rig.now);
    let mut starts = 0;
    let end = loop {
        rig.hear([Fact::Refused, lonely(), lonely()]);
        match rig.next(&mut promotion) {
            Ok(Order::Start(A)) => {
                starts += 1;
                promotion.done(Outcome::Failed(format!("try {starts}")), rig.now);
            }
            Ok(order) => assert_eq!(order, Order::Wait),
            Err(end) => break end,
        }
    };
    assert!((9..=11).contains(&starts), "{starts}");
    let text = end.expect_err("it has failed").to_string();
    let expected = format!("stop_command failed: x; then start_command failed: try {starts}");
    assert_eq!(text, expected);
}

#[test]
fn a_start_that_hangs_may_have_started_the_server() {
    let back = || {
        let rig = Rig::new(1);
        let begun = Promotion::planned(&rig.cluster, B, LIMITS, rig.now);
        let mut promotion = begun.expect("it follows");
        promotion.step = Step::back(Failure::NotStopped("x".to_owned()), rig.now);
        assert_eq!(rig.next(&mut promotion), Ok(Order::Start(A)));
        (rig, promotion)
    };
    let (mut rig, mut promotion) = back();
    rig.now += 30 * SECOND;
    promotion.done(Outcome::Failed("it hangs".to_owned()), rig.now);
    assert_eq!(rig.next(&mut promotion), Ok(Order::Wait), "it is asked first");
    rig.hear([primary(1), standby(), standby()]);
    assert_eq!(rig.next(&mut promotion), Err(Err(Failure::NotStopped("x".to_owned()))));

    let (mut rig, mut promotion) = back();
    rig.now += 30 * SECOND;
    promotion.done(Outcome::Failed("it hangs".to_owned()), rig.now);
    rig.now += START_PAUSE;
    rig.hear([Fact::Refused, lonely(), lonely()]);
    let end = rig.next(&mut promotion).expect_err("it is over").expect_err("it has failed");
    let expected = "stop_command failed: x; then start_command failed: it hangs";
    assert_eq!(end.to_string(), expected);

    let (mut rig, mut promotion) = back();
    promotion.done(Outcome::Done, rig.now);
    rig.now += PATIENCE;
    rig.hear([Fact::Refused, lonely(), lonely()]);
    let end = rig.next(&mut promotion).expect_err("it is over").expect_err("it has failed");
    let expected = "stop_command failed: x; then start_command succeeded, but node a is not the \
                    primary again";
    assert_eq!(end.to_string(), expected);
}

#[test]
fn a_cluster_manager_gets_one_request_and_is_watched() {
    let rig = Rig::new(0);
    let limits = Limits { by: By::Manager, ..LIMITS };
    let asked = || {
        let mut promotion = Promotion::planned(&rig.cluster, B, limits, rig.now).unwrap();
        assert_eq!(rig.next(&mut promotion), Ok(Order::Request(B)));
        promotion
    };
    let moved = |rig: &mut Rig| {
        for _ in 0..2 {
            rig.hear([Fact::Refused, lonely(), lonely()]);
        }
        rig.hear([Fact::Refused, primary(2), lonely()]);
    };
    // It is refused, and nothing has changed.
    let mut promotion = asked();
    promotion.done(Outcome::Unsent("no candidate".to_owned()), rig.now);
    let refused = Failure::Refused("no candidate".to_owned());
    assert_eq!(rig.next(&mut promotion), Err(Err(refused)));
    // It succeeds.
    let mut promotion = asked();
    let mut rig = Rig::new(0);
    promotion.done(Outcome::Done, rig.now);
    assert_eq!(rig.next(&mut promotion), Ok(Order::Wait), "the old primary still answers");
    moved(&mut rig);
    assert_eq!(rig.next(&mut promotion), Err(Ok(B)));
    // It is said to have failed, and has its effect nevertheless.
    let mut rig = Rig::new(0);
    let mut promotion = Promotion::planned(&rig.cluster, B, limits, rig.now).unwrap();
    assert_eq!(rig.next(&mut promotion), Ok(Order::Request(B)));
    promotion.done(Outcome::Failed("timed out".to_owned()), rig.now);
    moved(&mut rig);
    assert_eq!(rig.next(&mut promotion), Err(Ok(B)));
    // It has failed: clients do not wait for long.
    let mut rig = Rig::new(0);
    let mut promotion = Promotion::planned(&rig.cluster, B, limits, rig.now).unwrap();
    assert_eq!(rig.next(&mut promotion), Ok(Order::Request(B)));
    promotion.done(Outcome::Failed("503".to_owned()), rig.now);
    rig.now += SETTLING;
    rig.hear([primary(1), standby(), standby()]);
    let why = Failure::NotMoved { node: "a".to_owned(), why: ": 503".to_owned() };
    assert_eq!(rig.next(&mut promotion), Err(Err(why)));
}
