//! The settings `weir.route` and `weir.token` in all the ways in which a session can set them, with the
//! server's library and without it.

use testkit::{Pooler, Postgres, RawClient, Version, eventually, frontend};

use super::{PATIENCE, cluster, furnished, setup, until_routed};
use crate::support;

/// A step of a session.
#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    /// A text of the simple protocol.
    Text(&'a str),
    /// A text of the extended protocol, with its parameters.
    Batch(&'a str, &'a [&'a str]),
    /// The statement of this name, with its parameters.
    Prepared(&'a str, &'a [&'a str]),
}

use Step::{Batch, Prepared, Text};

const READ: &str = "SELECT here()";
const PRIMARY: Step<'_> = Text("SET weir.route = 'primary'");

fn run(client: &mut RawClient, step: Step<'_>) -> Option<String> {
    let bound = |statement: &str, parameters: &[&str]| {
        let parameters: Vec<_> = parameters.iter().copied().map(Some).collect();
        let bind = frontend::bind("", statement, &parameters);
        [bind, frontend::execute("", 0), frontend::sync()].concat()
    };
    client.send(match step {
        Text(text) => frontend::query(text),
        Batch(text, parameters) => [frontend::parse("", text), bound("", parameters)].concat(),
        Prepared(name, parameters) => bound(name, parameters),
    });
    let answer = client.read_to_ready();
    let row = answer.iter().rfind(|message| message.tag == b'D')?.row();
    row.into_iter().next().flatten()
}

/// Prepares what the steps use.
fn prepare(client: &mut RawClient) {
    for (name, text) in [
        ("read", READ),
        ("choose", "SELECT set_config('weir.route', $1, false)"),
        ("primary", "SET weir.route = 'primary'"),
        ("reset", "RESET weir.route"),
    ] {
        client.send([frontend::parse(name, text), frontend::sync()].concat());
        client.read_to_ready();
    }
}

/// The place of later reads. A session that asks for a standby gets it for every text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Primary,
    Standby,
    /// Also for a text that no judge sends there.
    Asked,
}

const CASES: &[(&[Step<'_>], Place)] = &[
    (&[PRIMARY], Place::Primary),
    (&[Batch("SET weir.route = 'primary'", &[])], Place::Primary),
    (&[Prepared("primary", &[])], Place::Primary),
    (&[Prepared("choose", &["primary"])], Place::Primary),
    (&[Batch("SELECT set_config('weir.route', $1, false)", &["primary"])], Place::Primary),
    (
        &[Text("DO $$BEGIN PERFORM set_config('weir.route', 'primary', false); END$$")],
        Place::Primary,
    ),
    (&[Text("SET \"Weir.Route\" TO 'primary'")], Place::Primary),
    (&[Text("SET SESSION WEIR.ROUTE = 'primary'; SELECT 1")], Place::Primary),
    (&[Text("SET weir.route = 'standby'")], Place::Asked),
    (&[Text("SET weir.route = 'Standby'")], Place::Asked),
    (&[Batch("SET weir.route = 'standby'", &[])], Place::Asked),
    (&[Prepared("choose", &["standby"])], Place::Asked),
    (&[Text("SET weir.route = 'node=b'")], Place::Asked),
    (&[Text("SET weir.route = 'node=a'")], Place::Primary),
    (&[Text("SET weir.route = 'auto'")], Place::Standby),
    (&[Text("SET weir.route = 'AUTO'")], Place::Standby),
    (&[Text("SET weir.route = ''")], Place::Standby),
    // Values that name no place.
    (&[Text("SET weir.route = 'nowhere'")], Place::Primary),
    (&[Text("SET weir.route = 'node=z'")], Place::Primary),
    (&[Text("SET weir.route = 'node='")], Place::Primary),
    (&[Text("SET weir.route = 5")], Place::Primary),
    (&[Prepared("choose", &["standby, primary"])], Place::Primary),
    // The end of a value.
    (&[PRIMARY, Text("RESET weir.route")], Place::Standby),
    (&[PRIMARY, Prepared("reset", &[])], Place::Standby),
    (&[PRIMARY, Batch("SET weir.route TO DEFAULT", &[])], Place::Standby),
    (&[PRIMARY, Text("RESET ALL")], Place::Standby),
    (&[PRIMARY, Text("SET weir.route = 'standby'")], Place::Asked),
    (&[Text("SET weir.route = 'standby'"), PRIMARY], Place::Primary),
    // Transactions.
    (&[Text("BEGIN"), PRIMARY, Text("COMMIT")], Place::Primary),
    (&[Text("BEGIN"), Prepared("primary", &[]), Text("COMMIT")], Place::Primary),
    (&[Text("BEGIN"), PRIMARY, Text("ROLLBACK")], Place::Standby),
    (&[Text("BEGIN"), PRIMARY, Text("SELECT 1/0"), Text("COMMIT")], Place::Standby),
    (&[Text("BEGIN"), Text("SET LOCAL weir.route = 'primary'"), Text("COMMIT")], Place::Standby),
    (
        &[Text("BEGIN"), Text("SAVEPOINT s"), PRIMARY, Text("ROLLBACK TO s"), Text("COMMIT")],
        Place::Standby,
    ),
    (&[PRIMARY, Text("BEGIN"), Text("RESET weir.route"), Text("ROLLBACK")], Place::Primary),
    (&[Text("BEGIN READ ONLY"), PRIMARY, Text("COMMIT")], Place::Primary),
    (&[Text("BEGIN READ ONLY"), PRIMARY, Text("ROLLBACK")], Place::Standby),
];

fn places_follow_the_setting(nodes: &[Postgres]) {
    let pooler = setup(nodes, "", "read_after_write=off max_staleness=0").start();
    until_routed(&pooler, &nodes[0]);
    let [primary, standby] = [0, 1].map(|at| nodes[at].port().to_string());
    for (steps, place) in CASES {
        let mut client = pooler.client("app");
        prepare(&mut client);
        for step in *steps {
            run(&mut client, *step);
        }
        let port = if *place == Place::Primary { &primary } else { &standby };
        for read in [Text(READ), Batch(READ, &[]), Prepared("read", &[])] {
            assert_eq!(run(&mut client, read).as_ref(), Some(port), "{read:?} behind {steps:?}");
        }
        // A text that the judges keep on the primary.
        let port = if *place == Place::Asked { &standby } else { &primary };
        let asked = run(&mut client, Text("SELECT inet_server_port()"));
        assert_eq!(asked.as_ref(), Some(port), "{steps:?}");
    }
    a_transaction_stays(&pooler, [&primary, &standby]);
    the_value_is_the_same_on_each_node(&pooler, [&primary, &standby]);
    no_value_outlives_discard_all(&pooler, &standby);
}

/// A value that is set in a transaction counts from the next one on.
fn a_transaction_stays(pooler: &Pooler, [primary, standby]: [&String; 2]) {
    let mut client = pooler.client("app");
    for (begin, set, place) in [
        ("BEGIN", "SET weir.route = 'standby'", primary),
        ("BEGIN READ ONLY", "SET weir.route = 'primary'", standby),
    ] {
        client.rows("RESET weir.route");
        if place == standby {
            // READ calls a function, which may have changed the schema in the last transaction.
            eventually("the catalogs are checked", PATIENCE, || {
                (client.value(READ) == *standby).then_some(())
            });
        }
        client.rows(begin);
        client.rows(set);
        assert_eq!(client.value(READ), *place, "{begin}; {set}");
        client.rows("COMMIT");
        let other = if place == primary { standby } else { primary };
        assert_eq!(client.value(READ), *other, "{begin}; {set}");
    }
    // Also within a text of several statements, which is one transaction.
    client.rows("RESET weir.route");
    assert_eq!(client.value("SET weir.route = 'standby'; SELECT here()"), *primary);
    assert_eq!(client.value(READ), *standby);
}

fn the_value_is_the_same_on_each_node(pooler: &Pooler, ports: [&String; 2]) {
    let mut client = pooler.client("app");
    client.rows("SET weir.route = 'node=b'");
    client.rows("SET weir.token = '0/1'");
    for (hint, port) in ["primary", "standby"].into_iter().zip(ports) {
        let text = "SELECT current_setting('weir.route'), current_setting('weir.token'), here()";
        let row = client.rows(&format!("/* weir: {hint} */ {text}")).remove(0);
        assert_eq!(row, ["node=b", "0/1", port].map(|value| Some(value.to_owned())));
    }
}

/// DISCARD ALL also drops prepared statements, so it is no case of the table.
fn no_value_outlives_discard_all(pooler: &Pooler, standby: &String) {
    let mut client = pooler.client("app");
    for discard in [Text("DISCARD ALL"), Batch("DISCARD ALL", &[])] {
        client.rows("SET weir.route = 'primary'");
        client.rows("SET weir.token = 'ffffffff/0'");
        run(&mut client, discard);
        assert_eq!(client.value(READ), *standby, "{discard:?}");
        let text = "SELECT coalesce(current_setting('weir.route', true), '')";
        assert_eq!(client.value(text), "", "{discard:?}");
    }
}

#[test]
fn a_session_chooses_its_place_in_all_ways() {
    if support::only_weir() {
        places_follow_the_setting(&cluster(1));
    }
}

#[test]
fn a_session_chooses_its_place_in_all_ways_with_the_library_too() {
    if support::only_weir() {
        let primary = Postgres::start_with_library(Version::Installed);
        places_follow_the_setting(&furnished(primary.with_standbys(1)));
    }
}

/// Without a cluster the settings are those of a session, and mean nothing else.
fn they_are_plain_settings(server: &Postgres) {
    let pooler = Pooler::before(server)
        .set("pool_mode", "auto")
        .set("default_pool_size", 2)
        .set("server_round_robin", 1)
        .database_at("app", &format!("host=127.0.0.1 port={} dbname=postgres", server.port()))
        .start();
    let mut clients: Vec<_> = (0..4).map(|_| pooler.client("app")).collect();
    clients.iter_mut().for_each(prepare);
    let value = |client: &mut RawClient, name: &str| {
        client.value(&format!("SELECT coalesce(current_setting('weir.{name}', true), '')"))
    };
    let check = |clients: &mut [RawClient], routes: [&str; 4], tokens: [&str; 4]| {
        // Each client gets either server in turn.
        for _ in 0..3 {
            for (at, client) in clients.iter_mut().enumerate() {
                assert_eq!(value(client, "route"), routes[at], "client {at}");
                assert_eq!(value(client, "token"), tokens[at], "client {at}");
                assert_eq!(run(client, Prepared("read", &[])), Some(server.port().to_string()));
            }
        }
    };
    run(&mut clients[0], PRIMARY);
    run(&mut clients[1], Batch("SET weir.route = 'standby'", &[]));
    run(&mut clients[2], Prepared("choose", &["node=z"]));
    clients[0].rows("SET weir.token = 'nonsense'");
    check(&mut clients, ["primary", "standby", "node=z", ""], ["nonsense", "", "", ""]);
    clients[3].rows("BEGIN");
    clients[3].rows("SET LOCAL weir.route = 'standby'");
    clients[3].rows("SET weir.token = '0/5'");
    assert_eq!(value(&mut clients[3], "route"), "standby");
    clients[3].rows("COMMIT");
    run(&mut clients[0], Prepared("reset", &[]));
    run(&mut clients[1], Text("RESET ALL"));
    check(&mut clients, ["", "", "node=z", ""], ["nonsense", "", "", "0/5"]);
    clients[2].rows("BEGIN");
    clients[2].rows("RESET weir.route");
    clients[2].rows("ROLLBACK");
    check(&mut clients, ["", "", "node=z", ""], ["nonsense", "", "", "0/5"]);
    for client in &mut clients {
        run(client, Text("DISCARD ALL"));
        prepare(client);
    }
    check(&mut clients, [""; 4], [""; 4]);
    assert_eq!(pooler.admin("SHOW PINS").column("database"), [""; 0], "no client keeps a server");
    assert_eq!(pooler.admin("SHOW ROUTES").column("database"), [""; 0], "nothing is routed");
}

/// A server of its own, with the function that the reads call.
fn alone(primary: Postgres) -> Postgres {
    furnished(vec![primary]).remove(0)
}

#[test]
fn without_a_cluster_they_are_plain_settings() {
    if support::only_weir() {
        they_are_plain_settings(&alone(Postgres::start()));
    }
}

#[test]
fn without_a_cluster_they_are_plain_settings_with_the_library_too() {
    if support::only_weir() {
        they_are_plain_settings(&alone(Postgres::start_with_library(Version::Installed)));
    }
}

/// Settings of an application whose value in the configuration differs from node to node.
fn configured(nodes: &[Postgres]) {
    nodes[0].sql(
        "postgres",
        "CREATE FUNCTION look(name text) RETURNS text LANGUAGE plpgsql STABLE
         AS 'BEGIN RETURN current_setting(name, true); END'",
    );
    for (node, value) in nodes.iter().zip(["first", "second"]) {
        node.configure("app.place", value);
        node.configure("work_mem", if value == "first" { "5MB" } else { "6MB" });
    }
}

/// The values of the two nodes, as a client sees them.
#[track_caller]
fn seen(client: &mut RawClient, setting: &str) -> [String; 2] {
    ["primary", "standby"].map(|place| {
        client.value(&format!("/* weir: {place} */ SELECT current_setting('{setting}')"))
    })
}

fn defaults_stay_with_their_nodes(nodes: &[Postgres]) {
    configured(nodes);
    let pooler = setup(nodes, "", "read_after_write=off max_staleness=0").start();
    until_routed(&pooler, &nodes[0]);
    let (own, memory) = (["first", "second"], ["5MB", "6MB"]);
    let mut client = pooler.client("app");
    for place in ["primary", "standby", "standby", "primary"] {
        // The text names the setting, so a function may set it.
        let text = format!("/* weir: {place} */ SELECT look('app.place'), look('work_mem')");
        client.rows(&text);
        assert_eq!(seen(&mut client, "app.place"), own, "a function was called on the {place}");
        assert_eq!(seen(&mut client, "work_mem"), memory);
    }
    for (steps, expected) in [
        (&["SET app.place = 'client'"][..], ["client"; 2]),
        (&["SET app.place = ''"], [""; 2]),
        // The value of one of the nodes.
        (&["SET app.place = 'first'"], ["first"; 2]),
        (&["SELECT set_config('app.place', 'first', false)"], ["first"; 2]),
        (
            &["SET app.place = 'second'", "/* weir: standby */ SELECT look('app.place')"],
            ["second"; 2],
        ),
        (&["SET app.place = 'first'", "SELECT look('app.place')"], ["first"; 2]),
        (&["SET app.place = 'first'", "RESET app.place"], own),
        (&["SET app.place = 'client'", "/* weir: standby */ RESET app.place"], own),
        (&["SET app.place = 'client'", "RESET ALL"], own),
        (&["SET app.place = 'client'", "DISCARD ALL"], own),
        (&["SET app.place = 'client'", "SELECT set_config('app.place', NULL, false)"], own),
        (&["BEGIN", "SET LOCAL app.place = 'client'", "COMMIT"], own),
        (&["BEGIN", "SET app.place = 'client'", "ROLLBACK"], own),
        (&["BEGIN", "SAVEPOINT s", "SET app.place = 'client'", "ROLLBACK TO s", "COMMIT"], own),
        (&["SELECT set_config('app.place', 'client', true)"], own),
    ] {
        let mut client = pooler.client("app");
        for step in steps {
            client.rows(step);
        }
        assert_eq!(seen(&mut client, "app.place"), expected, "{steps:?}");
        client.rows("/* weir: standby */ SELECT look('app.place')");
        client.rows("SELECT look('app.place')");
        assert_eq!(seen(&mut client, "app.place"), expected, "functions behind {steps:?}");
    }
}

#[test]
fn a_default_of_one_node_is_not_carried_to_another() {
    if support::only_weir() {
        defaults_stay_with_their_nodes(&cluster(1));
    }
}

#[test]
fn a_default_of_one_node_is_not_carried_to_another_with_the_library_too() {
    if support::only_weir() {
        let primary = Postgres::start_with_library(Version::Installed);
        defaults_stay_with_their_nodes(&furnished(primary.with_standbys(1)));
    }
}
