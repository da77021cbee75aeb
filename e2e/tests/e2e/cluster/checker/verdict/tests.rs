use super::*;
use crate::cluster::checker::clients::LEVELS;
use crate::cluster::checker::history::Done;

const LIST: Key = Key::List(1);
const REGISTER: Key = Key::Register(1);

/// A request of this client that took a second.
fn act(client: usize, begin: u64, what: What) -> Act {
    let (begin, end) = (Duration::from_secs(begin), Duration::from_secs(begin + 1));
    Act { client, session: 0, level: LEVELS[client], begin, end, what }
}

fn done(number: u64, timeline: u32) -> Done {
    Done { term: term(timeline), number }
}

/// Each timeline has a node of its own.
fn term(timeline: u32) -> Term {
    Term { timeline, node: format!("node {timeline}") }
}

fn write(key: Key, value: &str, outcome: Outcome) -> What {
    What::Write { key, value: value.to_owned(), outcome }
}

fn wrote(key: Key, value: &str, number: u64, timeline: u32) -> What {
    write(key, value, Outcome::Acknowledged(done(number, timeline)))
}

fn unknown(key: Key, value: &str) -> What {
    write(key, value, Outcome::Unknown(None))
}

fn rolled_back(key: Key, value: &str) -> What {
    write(key, value, Outcome::RolledBack)
}

fn read_on(place: Place, text: &str) -> What {
    What::Read { key: LIST, seen: Seen::All(items(text)), place }
}

fn standby() -> Place {
    Place::Standby { node: "standby".to_owned() }
}

fn read(text: &str) -> What {
    read_on(standby(), text)
}

fn read_at(timeline: u32, text: &str) -> What {
    read_on(Place::Primary(term(timeline)), text)
}

fn register_on(place: Place, number: u64, value: &str) -> What {
    What::Read { key: REGISTER, seen: Seen::Last(number, value.to_owned()), place }
}

fn register(number: u64, value: &str) -> What {
    register_on(standby(), number, value)
}

/// The end on timeline 2: the values of the list and of the register.
fn last(list: &str, register: &str) -> Final {
    let values = |text: &str| (1..).zip(items(text)).collect();
    let values = [(LIST, values(list)), (REGISTER, values(register))].into();
    Final { timeline: 2, values }
}

#[track_caller]
fn passes(acts: &[Act], last: &Final) {
    let found = faults(acts, last);
    assert!(found.is_empty(), "{found:?}");
}

/// Checks that there is one fault, and which one.
#[track_caller]
fn fails(acts: &[Act], last: &Final, expected: &str) {
    let found = faults(acts, last);
    assert!(found.len() == 1 && found[0].contains(expected), "{expected}: {found:?}");
}

#[test]
fn a_sound_history_has_no_fault() {
    let acts = [
        act(0, 0, wrote(LIST, "x", 1, 1)),
        act(0, 2, read("x")),
        act(1, 2, unknown(LIST, "u")),
        act(1, 4, rolled_back(LIST, "r")),
        act(0, 6, wrote(REGISTER, "v", 1, 1)),
        act(0, 8, register(1, "v")),
        act(2, 8, rolled_back(REGISTER, "s")),
        act(0, 9, wrote(LIST, "y", 3, 2)),
    ];
    passes(&acts, &last("x u y", "v"));
    let acts = [act(0, 0, wrote(LIST, "y", 1, 2)), act(1, 2, unknown(LIST, "u"))];
    passes(&acts, &last("y", ""));
}

#[test]
fn each_fault_of_a_write_is_found() {
    for key in [LIST, REGISTER] {
        let last = |text: &str| match key {
            Key::List(_) => last(text, ""),
            Key::Register(_) => last("", text),
        };
        let one = [act(0, 0, wrote(key, "x", 1, 1))];
        fails(&one, &last(""), "lost");
        fails(&one, &last("x x"), "is there 2 times");
        fails(&one, &last("x z"), "nobody has written z");
        fails(&[act(0, 0, wrote(key, "x", 2, 1))], &last("x"), "is at another place");
        let other = [act(0, 0, rolled_back(key, "x"))];
        fails(&other, &last("x"), "was rolled back, and is there");
        let unknown = [act(0, 0, unknown(key, "x"))];
        passes(&unknown, &last(""));
        passes(&unknown, &last("x"));
        fails(&unknown, &last("x x"), "is there 2 times");
    }
}

#[test]
fn a_number_of_a_register_that_nobody_has_written_is_found() {
    let acts = [act(0, 0, wrote(REGISTER, "v", 1, 1)), act(0, 2, wrote(REGISTER, "w", 3, 1))];
    let mut end = last("", "v w");
    end.values.insert(REGISTER, vec![(1, "v".to_owned()), (3, "w".to_owned())]);
    fails(&acts, &end, "a gap");
}

#[test]
fn a_value_in_the_wrong_list_is_found() {
    let acts = [act(0, 0, unknown(Key::List(2), "x"))];
    fails(&acts, &last("x", ""), "nobody has written x");
}

#[test]
fn writes_keep_the_order_in_which_they_were_acknowledged() {
    let acts =
        |second: u64| [act(0, 0, wrote(LIST, "x", 2, 1)), act(1, second, unknown(LIST, "y"))];
    // They overlap.
    passes(&acts(1), &last("y x", ""));
    fails(&acts(2), &last("y x", ""), "is before an earlier write");
    // Without an answer, the first one may be later.
    let acts = [act(0, 0, unknown(LIST, "x")), act(1, 2, wrote(LIST, "y", 1, 1))];
    passes(&acts, &last("y x", ""));
}

#[test]
fn two_primaries_are_found() {
    let writes = |first: u64, second: u64| {
        [act(0, first, wrote(LIST, "x", 1, 1)), act(1, second, wrote(REGISTER, "y", 1, 2))]
    };
    passes(&writes(0, 5), &last("x", "y"));
    passes(&writes(5, 4), &last("x", "y"));
    fails(&writes(6, 4), &last("x", "y"), "two nodes were used");
    // A read of an old primary is one fault, and a write that got no answer another.
    let new = || act(1, 4, wrote(LIST, "y", 1, 2));
    passes(&[new(), act(0, 5, read_at(1, ""))], &last("y", ""));
    fails(&[new(), act(0, 6, read_at(1, ""))], &last("y", ""), "two nodes were used");
    let late = act(0, 6, write(LIST, "x", Outcome::Unknown(Some(done(1, 1)))));
    fails(&[new(), late], &last("y", ""), "two nodes were used");
}

#[test]
fn two_nodes_of_one_timeline_are_found() {
    let other = Done { term: Term { timeline: 1, node: "other".to_owned() }, number: 1 };
    let other = write(REGISTER, "y", Outcome::Acknowledged(other));
    let same = [act(0, 0, wrote(LIST, "x", 1, 1)), act(1, 4, other)];
    fails(&same, &last("x", "y"), "two nodes have its timeline");
}

#[test]
fn a_timeline_that_is_gone_is_found() {
    fails(&[act(0, 0, wrote(LIST, "x", 1, 3))], &last("x", ""), "a timeline that is gone");
}

#[test]
fn each_level_has_its_own_stale_reads() {
    // Clients 0 to 3 have `session`, 4 and 5 `user`, 6 and 7 `strict`.
    for (writer, reader, is_stale) in [
        (0, 0, true),
        (2, 2, true),
        (1, 0, false),
        (4, 0, false),
        (4, 5, true),
        (0, 5, false),
        (5, 5, true),
        (0, 6, true),
    ] {
        let check = |acts: &[Act], end: &Final| match is_stale {
            true => fails(acts, end, "stale"),
            false => passes(acts, end),
        };
        let acts = |begin| [act(writer, begin, wrote(LIST, "x", 1, 1)), act(reader, 2, read(""))];
        check(&acts(0), &last("x", ""));
        // It began before the answer.
        passes(&acts(1), &last("x", ""));
        let acts = [
            act(7, 0, wrote(REGISTER, "u", 1, 1)),
            act(writer, 2, wrote(REGISTER, "v", 2, 1)),
            act(reader, 4, register(1, "u")),
        ];
        check(&acts, &last("", "u v"));
    }
}

#[test]
fn a_session_sees_its_write_that_got_no_answer() {
    let acts = [act(0, 0, unknown(LIST, "x")), act(0, 2, read(""))];
    passes(&acts, &last("", ""));
    fails(&acts, &last("x", ""), "stale");
    // Another connection is another session.
    let mut later = acts.clone();
    later[1].session = 1;
    passes(&later, &last("x", ""));
    // For others it is not there before somebody was told so.
    passes(&[act(4, 0, unknown(LIST, "x")), act(5, 2, read(""))], &last("x", ""));
    passes(&[act(4, 0, unknown(LIST, "x")), act(6, 2, read(""))], &last("x", ""));
}

/// Writes of other sessions, all in the first second.
fn writes(texts: &[&str]) -> Vec<Act> {
    texts.iter().map(|value| act(1, 0, unknown(LIST, value))).collect()
}

#[test]
fn a_read_shows_the_beginning_of_a_list() {
    let with = |what: What| {
        let mut acts = writes(&["x", "y", "z"]);
        acts.push(act(0, 2, what));
        acts
    };
    passes(&with(read("x y")), &last("x y z", ""));
    assert!(!faults(&with(read("y x")), &last("x y z", "")).is_empty());
    fails(&with(read("x z")), &last("x y z", ""), "another order");
    fails(&with(read("x x")), &last("x y z", ""), "another order");
    fails(&with(read_at(1, "x q")), &last("x y z", ""), "nobody has written");
    let early = [act(1, 3, unknown(LIST, "x")), act(0, 0, read("x"))];
    fails(&early, &last("x", ""), "shows a later write");
}

#[test]
fn a_register_keeps_its_numbers() {
    let acts = |what: What| {
        [act(1, 0, unknown(REGISTER, "v")), act(1, 0, unknown(REGISTER, "w")), act(0, 2, what)]
    };
    passes(&acts(register(1, "v")), &last("", "v w"));
    fails(&acts(register(2, "v")), &last("", "v w"), "is at another place");
    fails(
        &acts(register_on(Place::Primary(term(1)), 1, "q")),
        &last("", "v w"),
        "nobody has written",
    );
}

#[test]
fn a_value_that_was_rolled_back_is_never_seen() {
    let acts = [act(1, 0, rolled_back(LIST, "r")), act(0, 2, read_at(1, "r"))];
    fails(&acts, &last("", ""), "was rolled back");
    let seen = register_on(Place::Primary(term(1)), 1, "r");
    let acts = [act(1, 0, rolled_back(REGISTER, "r")), act(0, 2, seen)];
    fails(&acts, &last("", ""), "was rolled back");
}

/// PostgreSQL shows a commit whose wait for a standby was interrupted.
#[test]
fn a_commit_that_a_failover_takes_back_was_seen_on_its_primary_alone() {
    let with = |what: What| {
        let mut acts = writes(&["x", "lost"]);
        acts.push(act(0, 2, what));
        acts
    };
    passes(&with(read_at(1, "x lost")), &last("x", ""));
    fails(&with(read("x lost")), &last("x", ""), "a standby shows lost");
    fails(&with(read_at(2, "x lost")), &last("x", ""), "without a failover");
    // Nothing of its timeline was committed behind it and kept.
    let mut acts = with(read_at(1, "x lost"));
    acts.push(act(2, 3, wrote(LIST, "y", 2, 2)));
    passes(&acts, &last("x y", ""));
    let mut acts = with(read_at(1, "x lost"));
    acts.push(act(2, 3, wrote(LIST, "y", 2, 1)));
    fails(&acts, &last("x y", ""), "lost on its own timeline");
    acts[2] = act(0, 2, read_at(1, "x lost y"));
    assert!(faults(&acts, &last("x y", "")).iter().any(|one| one.contains("another order")));
    // On the next timeline it was gone.
    let mut acts = with(read_at(1, "x lost"));
    acts.push(act(2, 4, read_at(2, "x lost")));
    let mut end = last("x", "");
    end.timeline = 3;
    fails(&acts, &end, "was seen later");
    // A transaction was told before its COMMIT where it was.
    let told = write(LIST, "lost", Outcome::Unknown(Some(done(1, 1))));
    let acts = [act(1, 0, told), act(0, 2, read_at(2, "lost"))];
    fails(&acts, &end_of(3), "was seen later");
    let seen = |timeline| register_on(Place::Primary(term(timeline)), 1, "lost");
    let acts = |what: What| [act(1, 0, unknown(REGISTER, "lost")), act(0, 2, what)];
    passes(&acts(seen(1)), &last("", ""));
    fails(&acts(seen(2)), &last("", ""), "without a failover");
    fails(&acts(register(1, "lost")), &last("", ""), "a standby shows lost");
}

fn end_of(timeline: u32) -> Final {
    Final { timeline, ..last("", "") }
}

#[test]
fn reads_are_counted_by_their_place() {
    let acts = [act(0, 0, read("")), act(0, 0, read_at(1, "")), act(6, 0, read(""))];
    let counts = counts(&acts);
    assert!(counts.contains("Session 1 of 2, SessionWaits 0 of 0"), "{counts}");
    assert!(counts.ends_with("Strict 1 of 1"), "{counts}");
}

/// Clients 6 and 7 are strict. Nobody was told that `u` and `v` were written, but somebody has read them.
#[test]
fn a_strict_read_does_not_go_back_in_time() {
    let unknown = [act(0, 0, unknown(LIST, "u")), act(1, 0, unknown(REGISTER, "v"))];
    let last = last("u", "v");
    let with = |acts: &[Act]| [unknown.to_vec(), acts.to_vec()].concat();
    let shown = [act(2, 2, read("u")), act(3, 2, register(1, "v"))];
    passes(&with(&[shown[0].clone(), act(6, 4, read("u"))]), &last);
    // The requests overlap, or the later read is not strict.
    passes(&with(&[shown[0].clone(), act(6, 2, read(""))]), &last);
    passes(&with(&[shown[0].clone(), act(1, 4, read(""))]), &last);
    fails(&with(&[shown[0].clone(), act(6, 4, read(""))]), &last, "back in time");
    let nothing = What::Read { key: REGISTER, seen: Seen::All(Vec::new()), place: standby() };
    fails(&with(&[shown[1].clone(), act(7, 4, nothing)]), &last, "back in time");
}
