use super::*;

const A: NodeId = NodeId(0);
const NAMES: [&str; 3] = ["a", "b", "c"];

fn told(names: &str, senders: &[&str]) -> Replication {
    let senders = senders.iter().map(|name| (*name).to_owned()).collect();
    Replication { names: names.to_owned(), level: "on".to_owned(), senders, ..Default::default() }
}

/// Three nodes with these names of their WAL receivers; `own` is what the primary `a` tells.
fn members<'a>(own: &'a Replication, receivers: [&'a str; 3]) -> Vec<Member<'a>> {
    let member = |at: usize| Member {
        id: NodeId(at as u16),
        name: NAMES[at],
        standby_name: receivers[at],
        replication: (at == 0).then_some(own),
        is_apart: false,
    };
    (0..3).map(member).collect()
}

fn judged(names: &str, senders: &[&str]) -> Result<(u32, Vec<u16>), Doubt> {
    let own = told(names, senders);
    let found = confirmers(A, &members(&own, NAMES));
    found.map(|(quorum, nodes)| (quorum, nodes.into_iter().map(|node| node.0).collect()))
}

#[test]
fn the_list_of_standbys_is_read_as_postgresql_reads_it() {
    for (text, number, names) in [
        ("", 0, &[][..]),
        ("  ", 0, &[]),
        ("*", 1, &["*"]),
        ("b, c", 1, &["b", "c"]),
        ("ANY 1 (b, c)", 1, &["b", "c"]),
        ("any 2(b,c ,d)", 2, &["b", "c", "d"]),
        ("FIRST 3 (*)", 3, &["*"]),
        ("2 (b, \"c (1), \"\"x\"\"\")", 2, &["b", "c (1), \"x\""]),
        ("ANY\t1\n(\"*\")", 1, &["*"]),
        ("1", 1, &["1"]),
    ] {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(StandbyNames::parse(text), Some(StandbyNames { number, names }), "{text:?}");
    }
    for text in ["ANY (b)", "some 1 (b)", "1 (b", "b c", "b,,c", "\"b"] {
        assert_eq!(StandbyNames::parse(text), None, "{text:?}");
    }
}

#[test]
fn commits_wait_for_nodes_only_if_all_names_are_theirs() {
    assert_eq!(judged("ANY 1 (b, c)", &["b", "c", "receivewal"]), Ok((1, vec![1, 2])));
    assert_eq!(judged("FIRST 1 (B, \"C\", a, b)", &["b"]), Ok((1, vec![0, 1, 2])));
    for (names, senders, doubt) in [
        ("", &["b", "c"][..], Doubt::Asynchronous),
        ("ANY 0 (b)", &["b"], Doubt::Asynchronous),
        ("*", &["b", "c"], Doubt::Anyone),
        ("b, *", &["b", "c"], Doubt::Anyone),
        ("ANY 1 (\"*\")", &["b", "c"], Doubt::Anyone),
        ("ANY 1 (b, d)", &["b", "c"], Doubt::NoNode("d".to_owned())),
        ("walreceiver", &["walreceiver"], Doubt::Default),
        ("b", &["B", "b", "c"], Doubt::Twice { name: "b".to_owned(), count: 2 }),
        ("b", &["B"], Doubt::Spelling { sender: "B".to_owned(), node: "b".to_owned() }),
        ("a, b", &["a", "b"], Doubt::Imposter { node: "a".to_owned() }),
        ("any b", &["b"], Doubt::Unreadable("any b".to_owned())),
    ] {
        assert_eq!(judged(names, senders), Err(doubt), "{names}");
    }
}

#[test]
fn a_name_that_is_not_certain_is_a_doubt() {
    let own = told("ANY 1 (b, c)", &["b", "c"]);
    let with = |change: &dyn Fn(&mut Vec<Member<'_>>)| {
        let mut members = members(&own, NAMES);
        change(&mut members);
        confirmers(A, &members).err()
    };
    assert_eq!(with(&|_| {}), None);
    let is_apart = |members: &mut Vec<Member<'_>>| members[1].is_apart = true;
    assert_eq!(with(&is_apart), Some(Doubt::Imposter { node: "b".to_owned() }));
    let shared = Doubt::Shared { name: "b".to_owned(), nodes: "b and c".to_owned() };
    assert_eq!(with(&|members| members[2].standby_name = "B"), Some(shared));
    let cascade = told("", &["c"]);
    let doubt = confirmers(A, &{
        let mut members = members(&own, NAMES);
        members[1].replication = Some(&cascade);
        members
    });
    let cascaded = Doubt::Cascaded { name: "c".to_owned(), node: "b".to_owned() };
    assert_eq!(doubt, Err(cascaded));
    for level in ["off", "local", "remote_write"] {
        let own = Replication { level: level.to_owned(), ..own.clone() };
        let doubt = confirmers(A, &members(&own, NAMES));
        assert_eq!(doubt, Err(Doubt::Level(level.to_owned())));
    }
}

#[test]
fn the_safe_value_has_the_names_of_all_nodes() {
    let own = told("", &[]);
    let safe = |receivers| safe_names(1, &members(&own, receivers));
    assert_eq!(safe(NAMES), "ANY 1 (a, b, c)");
    assert_eq!(safe(["any", "pg-1", "walreceiver"]), "ANY 1 (\"any\", \"pg-1\", c)");
    let members = members(&own, ["a", "x", "X"]);
    assert_eq!(misnamed(&members).collect::<Vec<_>>(), ["b", "c"]);
}

#[test]
fn a_doubt_lasts_until_the_primary_has_answered_again() {
    let mut commits = Commits::default();
    let mut learn = |asked_at: Micros, loaded: &str, doubt: Option<Doubt>| {
        let wal = Lsn(100 * asked_at);
        let told = Told { primary: A, timeline: 1, wal, asked_at, loaded };
        commits.learn(&told, doubt.map_or(Ok((1, vec![NodeId(1)])), Err), asked_at + 1);
        commits.state().map(|own| own.since.0).map_err(Clone::clone)
    };
    assert_eq!(learn(10, "x", None), Ok(1_000));
    assert_eq!(learn(20, "x", None), Ok(1_000));
    assert_eq!(learn(30, "x", Some(Doubt::Anyone)), Err(Doubt::Anyone));
    // The other nodes have answered, and the primary has not.
    assert_eq!(learn(30, "x", None), Err(Doubt::Anyone));
    assert_eq!(learn(31, "x", None), Err(Doubt::Anyone), "it was asked before the doubt ended");
    assert_eq!(learn(40, "x", None), Ok(4_000));
    assert_eq!(learn(50, "y", None), Err(Doubt::Reloaded));
    assert_eq!(learn(50, "y", None), Err(Doubt::Reloaded));
    assert_eq!(learn(60, "y", None), Ok(6_000));
}

#[test]
fn another_primary_begins_anew() {
    let mut commits = Commits::default();
    let mut learn = |primary, timeline, asked_at: Micros| {
        let told = Told { primary, timeline, wal: Lsn(asked_at), asked_at, loaded: "" };
        commits.learn(&told, Ok((1, vec![NodeId(2)])), asked_at);
        commits.state().ok().map(|own| own.since.0)
    };
    assert_eq!(learn(A, 1, 10), Some(10));
    assert_eq!(learn(NodeId(1), 2, 9), Some(9));
    assert_eq!(learn(A, 3, 20), Some(20));
    commits.renumber(|node| (node.0 > 0).then(|| NodeId(node.0 - 1)));
    assert_eq!(commits.state().unwrap().nodes, [NodeId(1)]);
    commits.renumber(|_| None);
    assert_eq!(commits.state(), Err(&Doubt::Unasked));
}
