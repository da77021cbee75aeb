//! A client that listens leaves the direct path and keeps no backend.

use std::sync::atomic::{AtomicBool, Ordering};

use testkit::{Message, RawClient, eventually, frontend};

use super::{Direct, PATIENCE, ask, execute};
use crate::auto::listen::{hear, said, told_by};
use crate::support;

impl Direct {
    /// Waits until no client keeps a server.
    #[track_caller]
    pub(super) fn until_nobody_is_pinned(&self) {
        eventually("nobody is pinned", PATIENCE, || {
            self.pooler.admin("SHOW PINS").rows.is_empty().then_some(())
        });
    }

    fn pins(&self) -> Vec<String> {
        let pins = self.pooler.admin("SHOW PINS");
        pins.column("reason").into_iter().map(str::to_owned).collect()
    }
}

#[test]
fn idle_clients_that_listen_keep_no_backend() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(2);
    let mut clients = direct.clients(10);
    for (number, client) in clients.iter_mut().enumerate() {
        client.rows(&format!("LISTEN everybody; LISTEN \"Number {number}\""));
    }
    let mut other = direct.client();
    assert_eq!(other.value("SELECT 1"), "1");
    direct.until_nobody_is_pinned();
    assert_eq!(direct.column("data_path"), "direct");
    direct.postgres.sql(&direct.database, "NOTIFY everybody, 'from outside'");
    for number in 0..clients.len() {
        other.rows(&format!("NOTIFY \"Number {number}\", 'for {number}'; NOTIFY nobody, 'x'"));
    }
    other.rows("BEGIN; NOTIFY everybody, '1'; NOTIFY everybody, '2'; COMMIT");
    other.rows("BEGIN; NOTIFY everybody, 'never'; ROLLBACK");
    for (number, client) in clients.iter_mut().enumerate() {
        let expected = ["from outside", &format!("for {number}"), "1", "2"];
        assert_eq!(hear(client, expected.len()), expected);
    }
    // Each hears itself once and by its own number, and all others hear it.
    for number in 0..clients.len() {
        let pid = clients[number].pid.cast_unsigned();
        let text = format!("own {number}");
        clients[number].send(frontend::query(&format!("NOTIFY everybody, '{text}'")));
        for (at, client) in clients.iter_mut().enumerate() {
            let heard: Vec<_> = match at == number {
                true => client.read_to_ready().iter().filter_map(said).collect(),
                false => client.read_until(|one| one.tag == b'A').iter().filter_map(said).collect(),
            };
            let [(from, channel, payload)] = &heard[..] else { panic!("{heard:?}") };
            assert_eq!((channel.as_str(), payload), ("everybody", &text));
            assert_eq!(*from == pid, at == number, "{from} is not {pid}");
        }
    }
    assert_eq!(direct.column("data_path"), "direct");
    drop(clients);
    eventually("they have left", PATIENCE, || {
        (direct.pooler.admin("SHOW CLIENTS").rows.len() == 2).then_some(())
    });
}

/// They hold from its first request on, also while it keeps its server.
#[test]
fn settings_hold_at_once_when_a_client_has_left_the_lobby() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(3);
    direct.client().rows("CREATE SCHEMA own; CREATE TABLE own.here (a int)");
    let many: Vec<_> = (0..100).map(|number| format!("LISTEN channel_{number}")).collect();
    for listens in ["LISTEN news", "LISTEN news", &many.join("; ")] {
        let mut client = RawClient::connect(direct.pooler.port());
        let database = direct.database.as_str();
        let values = [("user", "app"), ("database", database), ("work_mem", "5MB")];
        client.send(frontend::startup(&[&values[..], &[("search_path", "own")]].concat()));
        client.read_to_ready();
        client.rows("SET lock_timeout = '3s'");
        let sql = "SELECT current_setting('work_mem'), current_setting('lock_timeout'), \
                   (SELECT count(*) FROM here)";
        client.send([frontend::query(listens), frontend::query(sql)].concat());
        client.read_to_ready();
        let answers: Vec<_> = [client.read_to_ready(), {
            client.send(frontend::query(sql));
            client.read_to_ready()
        }]
        .map(|messages| messages.iter().find(|one| one.tag == b'D').map(Message::row))
        .into();
        let right = Some(["5MB", "3s", "0"].map(|value| Some(value.to_owned())).to_vec());
        assert_eq!(answers, [right.clone(), right], "{listens:.20}");
    }
}

#[test]
fn settings_and_statements_go_with_a_client_that_listens() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(2);
    let mut client = RawClient::connect(direct.pooler.port());
    let database = direct.database.as_str();
    client.send(frontend::startup(&[
        ("user", "app"),
        ("database", database),
        ("application_name", "its name"),
        ("work_mem", "5MB"),
        ("app.tenant", "a;b=\\ä"),
    ]));
    client.read_to_ready();
    client.rows(
        "SET maintenance_work_mem = '9MB'; SET \"app.x\" = 'y;z'; SET TimeZone = 'Asia/Tokyo'",
    );
    let parse = frontend::parse("s", "SELECT current_setting('work_mem') || ' of ' || 'ö;=\\'");
    assert_eq!(ask(&mut client, &[parse, frontend::sync()]), "");
    client.rows("LISTEN news");
    direct.until_nobody_is_pinned();
    client.rows("CREATE TEMP TABLE own (a int)");
    // It may say "temporary object, listen": the pool's listener may not have taken over yet.
    eventually("it is pinned", PATIENCE, || {
        let pins = direct.pins();
        pins.iter().any(|reason| reason.starts_with("temporary object")).then_some(())
    });
    client.rows("DROP TABLE own");
    direct.until_nobody_is_pinned();
    for _ in 0..2 {
        let mut other = direct.client();
        assert_eq!(other.value("SHOW TimeZone"), direct.client().value("SHOW TimeZone"));
        assert_ne!(other.value("SHOW TimeZone"), "Asia/Tokyo");
        assert_eq!(other.value("SHOW work_mem"), "4MB");
        other.rows("NOTIFY news, 'x'");
        assert_eq!(hear(&mut client, 1), ["x"]);
        assert_eq!(ask(&mut client, &[execute("s"), frontend::sync()]), "5MB of ö;=\\");
        for (name, value) in [
            ("application_name", "its name"),
            ("app.tenant", "a;b=\\ä"),
            ("maintenance_work_mem", "9MB"),
            ("app.x", "y;z"),
            ("TimeZone", "Asia/Tokyo"),
        ] {
            assert_eq!(client.value(&format!("SHOW {name}")), value);
        }
    }
    client.rows("RESET ALL");
    assert_eq!(client.value("SHOW work_mem"), "5MB");
    assert_eq!(client.value("SHOW maintenance_work_mem"), "64MB");
    assert_eq!(client.value("SHOW application_name"), "its name");
    client.rows("UNLISTEN *");
    assert_eq!(client.value("SELECT count(*) FROM pg_listening_channels()"), "0");
}

impl Direct {
    #[track_caller]
    pub(super) fn until_pinned_as(&self, reasons: &[&str]) {
        eventually("only these are pinned", PATIENCE, || (self.pins() == reasons).then_some(()));
    }
}

/// Other state keeps the backend, until only LISTEN is left.
#[test]
fn a_client_with_other_state_keeps_its_backend_and_hears_there() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(2);
    let (mut client, mut other) = (direct.client(), direct.client());
    client.rows("BEGIN; CREATE TEMP TABLE own (a int); LISTEN news; COMMIT");
    direct.until_pinned_as(&["direct pool"]);
    other.rows("NOTIFY news, '1'");
    assert_eq!(hear(&mut client, 1), ["1"]);
    client.rows("DROP TABLE own");
    direct.until_nobody_is_pinned();
    other.rows("NOTIFY news, '2'");
    assert_eq!(hear(&mut client, 1), ["2"]);
    assert_eq!(told_by(&mut client, "NOTIFY news, '3'"), ["3"]);
    // With an encoding of its own it cannot use the pool's listener.
    let mut latin = direct.client();
    latin.rows("SET client_encoding = 'LATIN1'; LISTEN letters");
    direct.until_pinned_as(&["direct pool"]);
    direct.postgres.sql(&direct.database, "SELECT pg_notify('letters', U&'\\00e4')");
    assert_eq!(hear(&mut latin, 1), ["\u{fffd}"]);
}

#[test]
fn in_transaction_mode_a_client_that_listens_keeps_its_backend() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start_with(2, |setup| setup.set("pool_mode", "transaction"));
    let (mut client, mut other) = (direct.client(), direct.client());
    client.rows("LISTEN news");
    direct.until_pinned_as(&["direct pool"]);
    other.rows("NOTIFY news, '1'");
    assert_eq!(hear(&mut client, 1), ["1"]);
}

const LISTENERS: usize = 6;
const STEPS: u64 = 150;

/// Listens to `steady` all the time, and does all kinds of things meanwhile.
fn be_hostile(direct: &Direct, number: usize, last: &str) -> Vec<String> {
    let mut client = direct.client();
    let mut heard = told_by(&mut client, "LISTEN steady");
    for step in 0.. {
        let sql = match (step + number) % 9 {
            0 => "LISTEN other".to_owned(),
            1 => "UNLISTEN other".to_owned(),
            2 => "BEGIN; LISTEN other; SELECT pg_sleep(0.002); ROLLBACK".to_owned(),
            3 => format!("SET application_name = 'client {number}'"),
            4 => "CREATE TEMP TABLE own (a int)".to_owned(),
            5 => "DROP TABLE own".to_owned(),
            6 => "BEGIN; UNLISTEN steady; ROLLBACK; SELECT 1".to_owned(),
            7 => "NOTIFY other, 'own'".to_owned(),
            _ => "SELECT 1/0".to_owned(),
        };
        client.send(frontend::query(&sql));
        let answer = client.read_to_ready();
        let news = answer.iter().filter_map(said).filter(|(_, channel, _)| channel == "steady");
        heard.extend(news.map(|(_, _, payload)| payload));
        if heard.last().is_some_and(|payload| payload == last) {
            return heard;
        }
    }
    heard
}

#[test]
fn nothing_is_lost_or_heard_twice_whatever_the_clients_do_strict() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(LISTENERS as u32 + 1);
    let last = STEPS.to_string();
    // Nobody knows which is the first notification that a client gets.
    let expected = |heard: &[String]| {
        let first: u64 = heard[0].parse().expect("a number");
        (first..=STEPS).map(|number| number.to_string()).collect::<Vec<_>>()
    };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (direct, last) = (&direct, &last);
        let begin = |number| scope.spawn(move || be_hostile(direct, number, last));
        let all: Vec<_> = (0..LISTENERS).map(begin).collect();
        // Others come, listen, and go at once.
        let flood = scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                let mut client = direct.client();
                client.rows("LISTEN other");
                assert_eq!(client.value("SELECT 5"), "5");
            }
        });
        let mut sender = direct.client();
        for number in 1..=STEPS {
            sender.rows(&format!("SELECT pg_notify('steady', '{number}'), pg_sleep(0.01)"));
        }
        for (number, one) in all.into_iter().enumerate() {
            let heard = one.join().expect("it does not fail");
            assert_eq!(heard, expected(&heard), "client {number}");
        }
        over.store(true, Ordering::SeqCst);
        flood.join().expect("it does not fail");
    });
    assert_eq!(direct.column("data_path"), "direct", "{}", direct.pooler.log());
    eventually("they have left", PATIENCE, || {
        (direct.pooler.admin("SHOW CLIENTS").rows.len() == 1).then_some(())
    });
}

/// The channel and the payload of the next notification, whatever comes before it.
#[track_caller]
fn hears(direct: &Direct, client: &mut RawClient, payload: &str) {
    direct.postgres.sql(&direct.database, &format!("NOTIFY steady, '{payload}'"));
    client.read_until(|message| said(message).is_some_and(|(_, _, told)| told == payload));
}

/// Clients that listen while the process changes are clients of the lobby, of a worker, or on their
/// way.
#[test]
fn clients_listen_on_while_processes_take_over() {
    if !support::only_weir() {
        return;
    }
    let mut direct = Direct::start_with(3, |setup| setup.workers(2));
    let (port, database) = (direct.pooler.port(), direct.database.clone());
    let over = AtomicBool::new(false);
    let begin = || {
        let mut client = RawClient::connect(port);
        client.send(frontend::startup(&[("user", "app"), ("database", &database)]));
        client.read_to_ready();
        client
    };
    let mut listeners = Vec::new();
    std::thread::scope(|scope| {
        let floods: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut clients = Vec::new();
                    while !over.load(Ordering::SeqCst) {
                        let mut client = begin();
                        client.rows("SET work_mem = '7MB'");
                        client.rows("LISTEN steady");
                        clients.push(client);
                    }
                    clients
                })
            })
            .collect();
        for _ in 0..4 {
            let before = direct.pooler.admin("SHOW CLIENTS").rows.len();
            eventually("more clients listen", PATIENCE, || {
                (direct.pooler.admin("SHOW CLIENTS").rows.len() > before + 5).then_some(())
            });
            assert_eq!(direct.pooler.take_over().code(), Some(0), "{}", direct.pooler.log());
        }
        over.store(true, Ordering::SeqCst);
        floods.into_iter().for_each(|flood| listeners.extend(flood.join().expect("clients")));
    });
    assert!(listeners.len() > 20);
    direct.until_nobody_is_pinned();
    // The listener may be on its way.
    for client in &mut listeners {
        assert_eq!(client.value("SHOW work_mem"), "7MB");
        assert_eq!(client.value("SELECT count(*) FROM pg_listening_channels()"), "1");
    }
    direct.postgres.sql(&direct.database, "NOTIFY steady, 'last'");
    for client in &mut listeners {
        client.read_until(|message| said(message).is_some_and(|(_, _, told)| told == "last"));
    }
    assert_eq!(direct.column("data_path"), "direct", "{}", direct.pooler.log());
    assert!(direct.backends().len() <= 4, "three, and the one that listens");
}

#[test]
fn a_client_that_listens_is_disconnected_as_others_are() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(2);
    let mut clients = direct.clients(4);
    // Backends that have served them have descriptors of their sockets.
    for _ in 0..3 {
        clients.iter_mut().for_each(|client| drop(client.rows("SELECT pg_sleep(0.01)")));
    }
    clients.iter_mut().for_each(|client| drop(client.rows("LISTEN steady")));
    direct.until_nobody_is_pinned();
    hears(&direct, &mut clients[0], "1");
    direct.pooler.admin(&format!("KILL {}", direct.database));
    for client in &mut clients {
        client.set_timeout(PATIENCE);
        assert!(client.read_to_end().iter().any(|message| message.error().is_some()));
    }
    direct.pooler.admin(&format!("RESUME {}", direct.database));
    let mut next = direct.client();
    next.rows("LISTEN steady");
    hears(&direct, &mut next, "2");
}

/// The first transaction after the departure may take back what the last one in the lobby did.
#[test]
fn a_client_can_stop_to_listen_at_once() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(2);
    // The listener is there when the others come.
    let mut first = direct.client();
    first.rows("LISTEN news");
    direct.until_nobody_is_pinned();
    for end in ["UNLISTEN news", "UNLISTEN *", "DISCARD ALL"].repeat(5) {
        let mut client = direct.client();
        client.rows("LISTEN news");
        client.rows(end);
        direct.until_nobody_is_pinned();
        assert_eq!(client.value("SELECT count(*) FROM pg_listening_channels()"), "0", "{end}");
    }
}
