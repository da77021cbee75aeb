use super::*;

fn sample(pool: u32, name: &str, transactions: u64) -> Sample<'_> {
    let stats = Stats { transactions, queries: 2 * transactions, ..Stats::default() };
    Sample {
        pool: PoolId(pool),
        database: name,
        user: "alice",
        waiting: 0,
        maxwait: 0,
        idle: 1,
        opening: 0,
        pulse: Pulse { stats, ..Pulse::default() },
        errors: 0,
    }
}

/// The transactions of each second, by database.
fn transactions(recorder: &Recorder) -> Vec<(String, Vec<u32>)> {
    let counts = |track: &Track| track.seconds.iter().map(|second| second.transactions).collect();
    recorder.tracks().map(|track| (track.database.to_string(), counts(track))).collect()
}

fn at(second: u64) -> Micros {
    second * 1_000_000
}

#[test]
fn counters_become_counts_of_a_second() {
    let mut recorder = Recorder::default();
    for (second, count) in [(5, 10), (6, 10), (7, 25)] {
        recorder.record(at(second), &[sample(0, "app", count)], 0);
        recorder.record(at(second) + 999_999, &[sample(0, "app", 9_999)], 0);
    }
    assert_eq!(transactions(&recorder), [("app".to_owned(), vec![10, 0, 15])]);
}

#[test]
fn missed_seconds_are_empty() {
    let mut recorder = Recorder::default();
    recorder.record(at(5), &[sample(0, "app", 1)], 0);
    recorder.record(at(8), &[sample(0, "app", 2)], 0);
    assert_eq!(transactions(&recorder), [("app".to_owned(), vec![1, 0, 0, 1])]);
    recorder.record(at(1_000_000), &[sample(0, "app", 3)], 0);
    assert_eq!(transactions(&recorder)[0].1.len(), SECONDS_MAX);
}

#[test]
fn gauges_are_kept_as_they_are() {
    let mut recorder = Recorder::default();
    let pulse = Pulse { active: 1, in_transaction: 2, kept: 3, ..Pulse::default() };
    let busy = Sample { waiting: 7, maxwait: 1_500_000, errors: 4, pulse, ..sample(0, "app", 0) };
    recorder.record(at(5), &[Sample { opening: 70_000, ..busy }], 0);
    let tracks: Vec<_> = recorder.tracks().collect();
    let expected = Second {
        waiting: 7,
        maxwait: 1_500,
        active: 1,
        in_transaction: 2,
        kept: 3,
        idle: 1,
        opening: u16::MAX,
        errors: 4,
        transactions: 0,
        queries: 0,
    };
    assert_eq!(tracks[0].seconds, [expected]);
}

#[test]
fn a_pool_without_use_has_no_track_and_too_many_are_summed() {
    let mut recorder = Recorder::default();
    let names: Vec<_> = (0..POOLS_MAX + 2).map(|number| format!("db{number}")).collect();
    let samples = |count: u64| -> Vec<_> {
        let used = names.iter().enumerate();
        let used = used.map(|(pool, name)| sample(pool as u32, name, count));
        used.chain([sample(1_000, "unused", 0)]).collect()
    };
    for second in 1..=3 {
        recorder.record(at(second), &samples(10 * second), 0);
    }
    let tracks = transactions(&recorder);
    assert_eq!(tracks.len(), POOLS_MAX + 1);
    assert_eq!(tracks[POOLS_MAX - 1], (format!("db{}", POOLS_MAX - 1), vec![10, 10, 10]));
    // In the first second there was nothing to compare with.
    assert_eq!(tracks[POOLS_MAX], ("other".to_owned(), vec![0, 20, 20]));
}

#[test]
fn a_track_without_use_for_an_hour_is_for_another_pool() {
    let mut recorder = Recorder::default();
    let names: Vec<_> = (0..POOLS_MAX).map(|number| format!("db{number}")).collect();
    let all: Vec<_> =
        names.iter().enumerate().map(|(pool, name)| sample(pool as u32, name, 1)).collect();
    recorder.record(at(1), &all, 0);
    let with = |count| all.iter().copied().chain([sample(99, "new", count)]).collect::<Vec<_>>();
    recorder.record(at(2), &with(1), 0);
    assert!(!transactions(&recorder).iter().any(|(name, _)| name == "new"));
    (3..=SECONDS_MAX as u64 + 1).for_each(|second| recorder.record(at(second), &all, 0));
    recorder.record(at(SECONDS_MAX as u64 + 2), &with(2), 0);
    assert!(transactions(&recorder).iter().any(|(name, _)| name == "new"));
}

#[test]
fn a_number_that_is_used_again_is_another_pool() {
    let mut recorder = Recorder::default();
    recorder.record(at(1), &[sample(0, "old", 5)], 0);
    recorder.record(at(2), &[sample(0, "new", 3)], 0);
    let expected = [("old".to_owned(), vec![5, 0]), ("new".to_owned(), vec![3])];
    assert_eq!(transactions(&recorder), expected);
}

#[test]
fn the_memory_is_what_the_documentation_says() {
    assert!((POOLS_MAX + 1) * SECONDS_MAX * size_of::<Second>() <= 3_500_000);
}
