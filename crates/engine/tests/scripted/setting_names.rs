//! Application settings, which PostgreSQL does not list. The probe must name each one that the
//! transaction may have set, and no name that could make it fail.

use crate::carried::{auto, tells};
use crate::messages::*;
use crate::rig::{Client, Rig, Server};

/// Takes the probe's query. With letters other than ASCII, the probe could fail.
#[track_caller]
fn question(server: &Server) -> String {
    let message = server.take();
    assert!(message.len() > 5 && message[5..].is_ascii(), "no question in ASCII");
    let question = String::from_utf8_lossy(&message[5..]).into_owned();
    assert!(question.contains("found (kind"), "no question");
    question
}

/// The names that the probe asks for.
#[track_caller]
fn asked(server: &Server) -> Vec<String> {
    let question = question(server);
    let list = question.split_once("unnest(ARRAY[").map_or("", |(_, list)| list);
    let (list, _) = list.split_once(']').unwrap_or_default();
    list.split(',').map(|name| name.trim_matches('\'').to_owned()).collect()
}

fn nothing() -> Message {
    done("SELECT")
}

fn with_value(value: &[u8]) -> Message {
    let mut message = Vec::new();
    wire::frontend::bind_text(&mut message, b"", &[Some(value)]);
    message
}

#[test]
fn bytes_of_a_parameter_that_are_no_name_are_not_asked_about() {
    let rig = auto(|_| {});
    let client = rig.client();
    let server = rig.server(0);
    let value = with_value(b"\xef\x65\xe8\x2e\x61 t.c $1.x");
    let all = [parse("", "SELECT mine($1)"), value, execute(), sync()];
    client.send(all.clone());
    server.expect(all);
    server.send([parsed(), bound(), complete("SELECT 1"), ready('I')]);
    assert_eq!(asked(&server), ["t.c"]);
    server.send([nothing()]);
    assert!(server.is_parked());
}

#[test]
fn names_guessed_before_a_failed_probe_are_not_asked_later() {
    let rig = auto(|config| config.global.default_pool_size = 2);
    let [first, second] = [rig.client(), rig.client()];
    let one = rig.server(0);
    first.send([query("SELECT mine(t.c)")]);
    one.answers("SELECT mine(t.c)");
    assert_eq!(asked(&one), ["t.c"]);
    one.send([error("22021", "invalid byte sequence"), ready('I')]);
    second.send([query("SELECT other(u.d)")]);
    let other = rig.server(1);
    other.answers("SELECT other(u.d)");
    assert_eq!(asked(&other), ["u.d"]);
    other.send([nothing()]);
    assert!(other.is_parked());
    // Weir still asks for settings of the first transaction.
    first.send([query("SELECT 1")]);
    one.answers("SELECT 1");
    assert_eq!(asked(&one), ["t.c", "u.d"]);
    one.send([nothing()]);
    assert!(one.is_parked());
}

/// Returns a text with `app.tenant` and `count` other names.
fn sets_among(count: usize) -> String {
    let others: Vec<_> = (0..count).map(|n| format!("t.c{n}")).collect();
    format!("SET app.tenant = '7'; SELECT {}", others.join(","))
}

#[test]
fn all_names_in_a_text_are_asked_about() {
    for count in [256, 3_000, 6_000] {
        let text = sets_among(count);
        for pieces in [false, true] {
            let rig = auto(|_| {});
            if pieces {
                rig.set_chunk(10_000);
            }
            let client = rig.client();
            let server = rig.server(0);
            client.send([query(&text)]);
            server.take();
            server.send([complete("SET"), done("SELECT")]);
            let names = asked(&server);
            assert!(names.len() == 1 + count && names.contains(&"app.tenant".into()));
            server.send([nothing()]);
            assert!(server.is_parked());
        }
    }
}

#[test]
fn a_name_at_the_end_of_a_long_text_is_asked_about() {
    let rig = auto(|_| {});
    let client = rig.client();
    let server = rig.server(0);
    let text = format!("SELECT '{}'; SET app.tenant = '7'", "x".repeat(100_000));
    client.send([query(&text)]);
    server.take();
    server.send([complete("SELECT 1"), done("SET")]);
    tells(&server, &[("app.tenant", "7")]);
    client.send([query("SELECT 1")]);
    server.answers("SELECT 1");
    assert!(server.is_parked());
}

#[test]
fn a_client_with_more_names_than_can_be_asked_about_keeps_its_server() {
    let many = sets_among(20_000);
    let letters = "SET app.\u{e4} = 1".to_owned();
    let long = format!("SET app.{} = 1", "x".repeat(5_000));
    for text in [many, letters, long] {
        let rig = auto(|_| {});
        let client = rig.client();
        let server = rig.server(0);
        client.send([query(&text)]);
        server.take();
        server.send([done("SET")]);
        asked(&server);
        server.send([nothing()]);
        for text in ["SELECT 1", "SET work_mem = '5MB'"] {
            assert!(!server.is_parked());
            client.send([query(text)]);
            server.answers(text);
        }
        tells(&server, &[("work_mem", "5MB")]);
        assert!(!server.is_parked());
        client.send([query("DISCARD ALL")]);
        server.expect([query("DISCARD ALL")]);
        server.send([done("DISCARD ALL")]);
        asked(&server);
        server.send([nothing()]);
        assert!(server.is_parked());
    }
}

#[test]
fn a_parameter_that_is_not_searched_to_its_end_keeps_the_client_on_its_server() {
    const SETS: &str = "SELECT set_config($2, $1, false)";
    let rig = auto(|_| {});
    let client = rig.client();
    let server = rig.server(0);
    let mut values = Vec::new();
    let long = vec![b'x'; 70_000];
    wire::frontend::bind_text(&mut values, b"", &[Some(&long), Some(b"app.x")]);
    client.send([parse("", SETS), values, execute(), sync()]);
    server.take();
    server.send([parsed(), bound(), complete("SELECT 1"), ready('I')]);
    asked(&server);
    server.send([nothing()]);
    assert!(!server.is_parked());
}

#[test]
fn a_server_is_closed_after_a_function_with_more_parameters_than_are_searched() {
    for (len, stays) in [(60_000, true), (70_000, false)] {
        let rig = auto(|_| {});
        let client = rig.client();
        let server = rig.server(0);
        let mut values = Vec::new();
        let long = vec![b'x'; len];
        wire::frontend::bind_text(&mut values, b"", &[Some(&long), Some(b"app.x")]);
        client.send([parse("", "SELECT mine($2, $1)"), values, execute(), sync()]);
        server.take();
        server.send([parsed(), bound(), complete("SELECT 1"), ready('I')]);
        assert_eq!(asked(&server).contains(&"app.x".to_owned()), stays);
        server.send([nothing()]);
        assert_eq!((server.is_parked(), server.is_open()), (stays, stays), "{len}");
    }
}

#[test]
pub(crate) fn unsearched_parameters_prove_nothing() {
    let rig = auto(|_| {});
    let client = rig.client();
    let long = with_value(&vec![b'x'; 70_000]);
    for number in 0..10 {
        let server = rig.server(number);
        client.send([parse("", "SELECT mine($1)"), long.clone(), execute(), sync()]);
        server.take();
        server.send([parsed(), bound(), complete("SELECT 1"), ready('I')]);
        question(&server);
        server.send([nothing()]);
        assert!(!server.is_open());
        client.send([query("SELECT 1")]);
        rig.server(number + 1).answers("SELECT 1");
    }
}

/// Lets the client set this number of settings and take them back.
fn set_many(client: &Client, server: &Server, count: usize) {
    let sets: Vec<_> = (0..count).map(|n| format!("SET app.n{n} = '1'")).collect();
    client.send([query(&sets.join(";"))]);
    server.answers(&sets.join(";"));
    assert_eq!(asked(server).len(), count);
    let row = |n| item_of('s', &format!("app.n{n}"), "1");
    server.send((0..count).map(row).chain([nothing()]));
    client.send([query("DISCARD ALL")]);
    server.expect([query("DISCARD ALL")]);
    server.send([done("DISCARD ALL")]);
    question(server);
    server.send([nothing()]);
    assert!(server.is_parked());
}

#[test]
pub(crate) fn unknown_settings_are_discarded() {
    for (count, is_known) in [(256, true), (257, false)] {
        let rig = auto(|_| {});
        let client = rig.client();
        let server = rig.server(0);
        set_many(&client, &server, count);
        for text in ["SELECT mine(1)", "SET work_mem = '1MB'; SELECT mine(1)"] {
            for times in 0..12 {
                client.send([query(text)]);
                server.expect([query(text)]);
                server.send([done("SELECT 1")]);
                let is_trusted = is_known && times >= 8 && !text.starts_with("SET");
                if !is_trusted {
                    question(&server);
                    server.send([nothing()]);
                    if !is_known {
                        server.answers("DISCARD ALL");
                    }
                }
                assert!(server.is_parked(), "{count}, {text}");
            }
        }
    }
}

#[test]
pub(crate) fn unknown_settings_end_with_a_pin() {
    for (count, stays) in [(256, true), (257, false)] {
        let rig = auto(|_| {});
        let client = rig.client();
        let server = rig.server(0);
        set_many(&client, &server, count);
        client.send([query("SELECT mine(1)")]);
        server.answers("SELECT mine(1)");
        question(&server);
        server.send([row("t"), nothing()]);
        client.leave();
        if stays {
            server.answers("DISCARD ALL");
        }
        assert_eq!(server.is_open(), stays, "{count}");
    }
}

fn call(function: u32, arguments: &[&[u8]]) -> Message {
    let mut rest = [&function.to_be_bytes()[..], &[0, 0]].concat();
    rest.extend((arguments.len() as u16).to_be_bytes());
    for argument in arguments {
        rest.extend((argument.len() as u32).to_be_bytes());
        rest.extend(*argument);
    }
    rest.extend([0, 0]);
    [&b"F"[..], &(rest.len() as u32 + 4).to_be_bytes(), &rest].concat()
}

#[test]
fn the_names_in_a_function_call_are_asked_about() {
    const SET_CONFIG: u32 = 2078;
    for chunk in [usize::MAX, 7] {
        let rig = auto(|_| {});
        rig.set_chunk(chunk);
        let client = rig.client();
        let server = rig.server(0);
        let message = call(SET_CONFIG, &[b"app.x", b"1", b"f"]);
        client.send([message.clone()]);
        server.expect([message]);
        server.send([b"V\0\0\0\x08\0\0\0\0".to_vec(), ready('I')]);
        assert_eq!(asked(&server), ["app.x"]);
    }
}

#[test]
fn calls_for_large_objects_leave_nothing() {
    const LOWRITE: u32 = 955;
    let rig = auto(|_| {});
    let client = rig.client();
    let server = rig.server(0);
    let message = call(LOWRITE, &[&[0; 4], &[b'x'; 100_000]]);
    client.send([message.clone()]);
    server.expect([message]);
    server.send([b"V\0\0\0\x08\0\0\0\0".to_vec(), ready('I')]);
    server.expect([]);
    assert!(server.is_parked());
}

#[test]
fn a_bind_may_set_any_setting_that_a_text_of_sqls_prepare_names() {
    let rig = auto(|_| {});
    let client = rig.client();
    let server = rig.server(0);
    let prepare = "PREPARE p AS SELECT set_config('app.x', $1, false), mine($2)";
    client.send([query(prepare)]);
    server.answers(prepare);
    asked(&server);
    let prepared = item_of('p', "p", prepare);
    server.send([prepared, nothing()]);
    // This number of other names pushes it out of the pool's list.
    let others = sets_among(1_000);
    client.send([query(&others)]);
    server.answers(&others);
    asked(&server);
    let prepared = item_of('p', "p", prepare);
    server.send([prepared, nothing()]);
    let mut bind = Vec::new();
    let rest = [&[0, 0, 0, 2, 0, 0, 0, 1][..], b"1", &[0, 0, 0, 5], b"app.y", &[0, 0]].concat();
    wire::frontend::bind(&mut bind, b"", b"p", &rest);
    client.send([bind, execute(), sync()]);
    server.take();
    server.send([bound(), complete("SELECT 1"), ready('I')]);
    let asked = asked(&server);
    for name in ["app.x", "app.y"] {
        assert!(asked.contains(&name.to_owned()), "{name}");
    }
}

#[test]
fn execute_sets_what_the_prepared_text_names() {
    let rig = auto(|_| {});
    let client = rig.client();
    let server = rig.server(0);
    let prepare = "PREPARE p AS SELECT set_config('app.x', '1', false)";
    client.send([query(prepare)]);
    server.answers(prepare);
    asked(&server);
    server.send([item_of('p', "p", prepare), nothing()]);
    assert!(server.is_parked());
    // So many other names push it out of the pool's list.
    let others = sets_among(1_000);
    client.send([query(&others)]);
    server.answers(&others);
    asked(&server);
    server.send([item_of('p', "p", prepare), nothing()]);
    client.send([query("EXECUTE p")]);
    server.answers("EXECUTE p");
    assert!(asked(&server).contains(&"app.x".to_owned()));
}

#[test]
fn letters_of_the_database_are_asked_about_in_any_encoding() {
    let rig = auto(|_| {}).manual();
    let client = rig.connect();
    client.say_hello(&[]);
    let server = rig.server(0);
    server.connect();
    let encodings = [("server_encoding", "UTF8"), ("client_encoding", "UTF8")];
    server.send([crate::rig::server_welcome_with(0, &encodings)]);
    server.take();
    client.take();
    client.send([query("SET app.\u{e4} = 1")]);
    server.answers("SET app.\u{e4} = 1");
    let hex = "pg_catalog.convert_from(pg_catalog.decode('6170702ec3a4','hex')";
    assert!(question(&server).contains(hex));
    server.send([row(r"s:app.\303\244=1"), nothing()]);
    assert!(server.is_parked());
}

/// Answers the probe: the setting has the server's default.
fn tells_default(server: &Server, name: &str, value: &str) {
    assert!(asked(server).contains(&name.to_owned()));
    server.send([item_of('d', name, value), done("SELECT")]);
}

/// Another server has another default. Returns what it is told before the client's next text.
fn at_another_server(rig: &Rig, client: &Client) -> String {
    let busy = rig.client();
    busy.send([query("SELECT 2")]);
    client.send([query("SELECT 3")]);
    let first = rig.server(1).take();
    String::from_utf8_lossy(&first[5..first.len() - 1]).into_owned()
}

#[test]
pub(crate) fn a_default_is_not_carried() {
    for (text, tag, is_set) in [
        ("SET app.place = 'a'", "SET", true),
        ("SELECT look('app.place')", "SELECT 1", false),
        ("SET LOCAL app.place = 'b'; SELECT look('app.place')", "SELECT 1", false),
        ("BEGIN; SET app.place = 'b'; ROLLBACK", "ROLLBACK", false),
        ("RESET app.place", "RESET", false),
    ] {
        let rig = auto(|config| config.global.default_pool_size = 2);
        let client = rig.client();
        let server = rig.server(0);
        client.send([query(text)]);
        server.expect([query(text)]);
        server.send([complete(tag), ready('I')]);
        tells_default(&server, "app.place", "a");
        assert!(server.is_parked());
        let told = at_another_server(&rig, &client);
        assert_eq!(told.contains("'app.place','a'"), is_set, "{text}: {told}");
    }
}

#[test]
pub(crate) fn a_set_default_is_carried() {
    let rig = auto(|config| config.global.default_pool_size = 2);
    let client = rig.client();
    let server = rig.server(0);
    client.send([query("SET app.place = 'b'")]);
    server.answers("SET app.place = 'b'");
    tells(&server, &[("app.place", "b")]);
    client.send([query("SELECT look('app.place')")]);
    server.answers("SELECT look('app.place')");
    // A reload has changed the default.
    tells_default(&server, "app.place", "b");
    let told = at_another_server(&rig, &client);
    assert!(told.contains("'app.place','b'"), "{told}");
}
