//! A client's login: the questions that it is asked, and the errors that end it.

use config::AuthType;
use engine::auth::Peer;
use wire::md5;

use crate::messages::*;
use crate::rig::{Client, Rig, app};

fn asking(method: AuthType) -> Rig {
    Rig::new(|config| config.global.auth_type = method)
}

fn hello(rig: &Rig, user: &str, database: &str) -> Client {
    let client = rig.connect();
    client.send([startup(&[("user", user), ("database", database)])]);
    client
}

/// The MD5 challenge's salt.
fn salt(client: &Client) -> [u8; 4] {
    let got = client.take();
    assert_eq!(got[..9], *b"R\0\0\0\x0c\0\0\0\x05", "{}", got.escape_ascii());
    got[9..].try_into().expect("four bytes")
}

fn md5_answer(user: &str, secret: &str, salt: [u8; 4]) -> Message {
    password(&md5::response(&md5::hash(user.as_bytes(), secret.as_bytes()), salt))
}

const CLEARTEXT: &[u8] = b"R\0\0\0\x08\0\0\0\x03";

#[test]
fn trust_lets_known_users_in() {
    let rig = asking(AuthType::Trust);
    rig.client();
    hello(&rig, "bob", "app").expect_fatal("\"trust\" authentication failed");
}

#[test]
fn any_lets_every_client_in_as_the_databases_user() {
    let rig = asking(AuthType::Any);
    hello(&rig, "bob", "app").expect_fatal("bouncer config error");
    assert!(rig.logged("(nodb)"), "it is nobody yet");
    assert_eq!(rig.clients_counted(), 0);
    let rig = Rig::new(|config| {
        config.global.auth_type = AuthType::Any;
        app(config).user = Some("alice".into());
    });
    hello(&rig, "bob", "app").expect_welcome(&[]);
}

#[test]
fn plain() {
    let rig = asking(AuthType::Plain);
    for (user, secret, welcome) in
        [("alice", "secret", true), ("alice", "wrong", false), ("bob", "secret", false)]
    {
        let client = hello(&rig, user, "app");
        client.expect([CLEARTEXT.to_vec()]);
        client.send([password(secret)]);
        match welcome {
            true => drop(client.expect_welcome(&[])),
            false => client.expect_fatal("password authentication failed"),
        }
    }
    let client = hello(&rig, "alice", "app");
    client.send([password("")]);
    client.expect([CLEARTEXT.to_vec(), fatal("08P01", "empty password returned by client")]);
}

#[test]
fn md5_from_a_plain_password_or_its_hash() {
    for stored in ["secret".to_owned(), md5::hash(b"alice", b"secret")] {
        let rig = Rig::new(|config| {
            config.global.auth_type = AuthType::Md5;
            config.auth_file.users.insert("alice".into(), stored);
        });
        for (user, secret, welcome) in
            [("alice", "secret", true), ("alice", "wrong", false), ("bob", "secret", false)]
        {
            let client = hello(&rig, user, "app");
            client.send([md5_answer(user, secret, salt(&client))]);
            match welcome {
                true => drop(client.expect_welcome(&[])),
                false => client.expect_fatal("password authentication failed"),
            }
        }
    }
}

#[test]
fn a_password_ends_with_its_message_and_not_before() {
    for body in [&b"secret"[..], b"", b"secret\0\0", b"secret\0more\0", b"\0secret"] {
        let message = [b"p", &(body.len() as u32 + 4).to_be_bytes()[..], body].concat();
        for method in [AuthType::Plain, AuthType::Md5, AuthType::Pam] {
            let client = hello(&asking(method), "alice", "app");
            client.take();
            client.send([message.clone()]);
            client.expect_fatal("invalid password packet size");
        }
    }
}

#[test]
fn an_unknown_database_is_reported_to_known_users_only() {
    let rig = asking(AuthType::Plain);
    let client = hello(&rig, "alice", "nowhere");
    client.expect([CLEARTEXT.to_vec()]);
    client.send([password("secret")]);
    client.expect_fatal("no such database: nowhere");
    let client = hello(&rig, "alice", "nowhere");
    client.expect([CLEARTEXT.to_vec()]);
    client.send([password("wrong")]);
    client.expect_fatal("password authentication failed");
    assert_eq!((rig.clients_in_tables(), rig.clients_counted()), (0, 0));
}

#[test]
fn encryption_is_declined_as_often_as_it_is_asked_for() {
    let rig = Rig::transaction();
    let client = rig.connect();
    for request in [wire::frontend::ssl_request, wire::frontend::gssenc_request] {
        let mut packet = Vec::new();
        request(&mut packet);
        client.send([packet]);
        client.expect([b"N".to_vec()]);
    }
    client.say_hello(&[]);
    client.expect_welcome(&[]);
}

#[test]
fn bytes_after_a_request_for_encryption_are_an_attack() {
    let rig = Rig::transaction();
    for (request, text) in [
        (
            wire::frontend::ssl_request as fn(&mut Vec<u8>),
            "received unencrypted data after SSL request",
        ),
        (
            wire::frontend::gssenc_request,
            "received unencrypted data after GSSAPI encryption request",
        ),
    ] {
        let client = rig.connect();
        let mut packet = Vec::new();
        request(&mut packet);
        client.send([packet, startup(&[("user", "alice")])]);
        client.expect_fatal(text);
    }
}

#[test]
fn garbage_is_refused() {
    let version = |code: u32| [&[0, 0, 0, 9][..], &code.to_be_bytes(), b"\0"].concat();
    let table: [(&[u8], &str); 6] = [
        (b"GET / HTTP/1.1\r\n", "received an HTTP request instead of a startup packet"),
        (b"\x16\x03\x01\x02\x00\x01", "received a TLS handshake instead of a startup packet"),
        (b"\0\0\0\x07\0\x03\0\0", "bad packet header: '0000000700030000'"),
        (
            b"\0\0\0\x09\0\x03\0\0u",
            "invalid startup packet layout: expected terminator as last byte",
        ),
        (&version(2 << 16), "old V2 protocol not supported"),
        (&version(4 << 16), "bad packet header: '0000000900040000'"),
    ];
    let rig = Rig::transaction();
    for (bytes, text) in table {
        let client = rig.connect();
        client.send([bytes.to_vec()]);
        client.expect_fatal(text);
    }
    for bytes in [&b"\x7f\xff\xff\xff\0\x03\0\0"[..], b"X\0\0\0\x04"] {
        let client = rig.connect();
        client.send([bytes.to_vec()]);
        assert!(!client.is_open(), "what is not a startup packet at all is not answered");
    }
    assert_eq!(rig.clients_in_tables(), 0);
}

#[test]
fn names_that_cannot_be() {
    let rig = Rig::transaction();
    hello(&rig, "", "app").expect_fatal("no username supplied");
    hello(&rig, &"x".repeat(128), "app").expect_fatal("username too long");
}

#[test]
fn the_database_is_the_users_name_unless_given() {
    let rig = Rig::new(|config| {
        let entry = config.databases["app"].clone();
        config.databases.insert("alice".into(), entry);
    });
    let client = rig.connect();
    client.send([startup(&[("user", "alice")])]);
    client.expect_welcome(&[]);
}

/// PostgreSQL does not read longer ones either.
#[test]
fn a_password_is_up_to_65_535_bytes_long() {
    let long = "x".repeat(65_535);
    let rig = Rig::new(|config| {
        config.global.auth_type = AuthType::Plain;
        config.auth_file.users.insert("alice".into(), long.clone());
    });
    let client = hello(&rig, "alice", "app");
    client.take();
    client.send([password(&format!("{long}x"))]);
    client.expect_fatal("password authentication failed");
    let client = hello(&rig, "alice", "app");
    client.take();
    client.send([password(&long)]);
    client.expect_welcome(&[]);
}

#[test]
fn a_login_byte_by_byte() {
    let rig = asking(AuthType::Md5);
    rig.set_chunk(1);
    let client = hello(&rig, "alice", "app");
    client.send([md5_answer("alice", "secret", salt(&client))]);
    client.expect_welcome(&[]);
}

#[test]
fn another_message_in_place_of_the_password() {
    let rig = asking(AuthType::Md5);
    let client = hello(&rig, "alice", "app");
    salt(&client);
    client.send([query("select 1")]);
    // Weir closes the connection without a message, as PgBouncer does.
    assert!(!client.is_open());
    let client = hello(&rig, "alice", "app");
    salt(&client);
    client.send([b"p\x7f\xff\xff\xff".to_vec()]);
    client.expect_fatal("password authentication failed");
    let client = hello(&rig, "alice", "app");
    salt(&client);
    client.send([b"p\0\0\0\0".to_vec()]);
    client.expect_fatal("bad packet header: '7000000000'");
    let client = hello(&rig, "alice", "app");
    salt(&client);
    client.send([b"\0\0\0\x08\0\x03\0\0".to_vec()]);
    client.expect_fatal("client re-sent startup pkt");
}

#[test]
fn no_more_clients_than_allowed() {
    let rig = Rig::new(|config| config.global.max_client_conn = 2);
    let (first, _second) = (rig.client(), rig.client());
    let third = hello(&rig, "alice", "app");
    third.expect_fatal("no more connections allowed (max_client_conn)");
    assert!(rig.logged("(nodb)"), "it is nobody yet");
    first.leave();
    rig.client();
    assert_eq!(rig.clients_counted(), 2);
}

#[test]
fn parameters_that_cannot_be_kept_are_refused_unless_ignored() {
    let rig = Rig::new(|config| {
        config.global.ignore_startup_parameters = vec!["extra_float_digits".into()];
    });
    let table = [
        (("geqo", "off"), Some("unsupported startup parameter: geqo")),
        (("extra_float_digits", "3"), None),
        (("options", "-c geqo=off"), Some("unsupported startup parameter in options: geqo")),
        (("options", "-c extra_float_digits=3"), None),
        (
            ("options", "-x"),
            Some(
                "unsupported options startup parameter: only '-c config=val' and '--config=val' \
                 are allowed",
            ),
        ),
    ];
    for (parameter, refusal) in table {
        let client = rig.connect();
        client.say_hello(&[parameter]);
        match refusal {
            Some(text) => client.expect_fatal(text),
            None => drop(client.expect_welcome(&[])),
        }
    }
}

#[test]
fn settings_in_options_are_the_clients_own_values() {
    let rig = Rig::transaction();
    let client = rig.connect();
    client.say_hello(&[("options", "-c DateStyle=German --timezone=Europe/Rome")]);
    client.expect_welcome(&[("DateStyle", "German"), ("TimeZone", "Europe/Rome")]);
}

/// Some drivers send a parameter of their own and the same setting in `options`.
#[test]
fn of_settings_given_twice_the_packets_count_and_then_the_last() {
    let rig = crate::carried::auto(|_| {});
    rig.client();
    let client = rig.connect();
    client.say_hello(&[
        ("search_path", "public"),
        ("TimeZone", "Europe/Rome"),
        ("Search_Path", "tenant_9"),
        ("options", "-c search_path=a -c timezone=Asia/Tokyo -c work_mem=1MB --work_mem=2MB"),
    ]);
    client.send([query("select 1")]);
    rig.server(0).answers(
        "SET TimeZone = 'Europe/Rome';\
         SELECT pg_catalog.set_config('search_path','tenant_9',false) IS NULL,\
         pg_catalog.set_config('work_mem','2MB',false) IS NULL;",
    );
}

/// PostgreSQL would accept it later, and load nothing.
#[test]
fn libraries_for_the_login_are_refused_in_auto_mode() {
    let rig = crate::carried::auto(|_| {});
    for (parameter, place) in [
        (("local_preload_libraries", "my_library"), ""),
        (("Local_Preload_Libraries", "my_library"), ""),
        (("session_preload_libraries", "my_library"), ""),
        (("options", "-c local_preload_libraries=my_library"), " in options"),
    ] {
        let client = rig.connect();
        client.say_hello(&[parameter]);
        let name = if place.is_empty() { parameter.0 } else { "local_preload_libraries" };
        client.expect_fatal(&format!("unsupported startup parameter{place}: {name}"));
    }
    let rig = crate::carried::auto(|config| {
        config.global.ignore_startup_parameters = vec!["local_preload_libraries".into()];
    });
    rig.client();
    for value in ["my_library", ""] {
        let client = rig.connect();
        client.say_hello(&[("local_preload_libraries", value)]);
        client.expect_welcome(&[]);
    }
}

#[test]
fn options_may_be_ignored_as_a_whole() {
    let rig = Rig::new(|config| config.global.ignore_startup_parameters = vec!["options".into()]);
    let client = rig.connect();
    client.say_hello(&[("options", "-c geqo=off -c DateStyle=German")]);
    client.expect_welcome(&[("DateStyle", "German")]);
    let client = rig.connect();
    client.say_hello(&[("options", "-x")]);
    client.expect_welcome(&[]);
}

#[test]
fn newer_protocols_and_extensions_are_talked_down() {
    let rig = Rig::transaction();
    rig.client();
    let client = rig.connect();
    let mut packet = startup(&[("user", "alice"), ("database", "app"), ("_pq_.compression", "on")]);
    packet[7] = 2;
    client.send([packet]);
    let mut declined = Vec::new();
    wire::backend::negotiate_protocol_version(&mut declined, 2, &[b"_pq_.compression"]);
    let got = client.take();
    assert_eq!(show(&got[..declined.len()]), show(&declined));
    assert!(client.is_open() && got.ends_with(&ready('I')));
}

#[test]
fn the_console_is_for_listed_users() {
    let rig = Rig::new(|config| {
        config.global.admin_users = vec!["alice".into()];
        config.global.stats_users = vec!["bob".into()];
        for user in ["bob", "carol"] {
            config.auth_file.users.insert(user.into(), "secret".into());
        }
    });
    let client = rig.connect();
    client.send([startup(&[("user", "alice"), ("database", "pgbouncer")]), query("SHOW POOLS")]);
    hello(&rig, "bob", "weir");
    let logins = rig.consoles();
    assert_eq!(logins.len(), 2);
    assert!(logins[0].admin && !logins[1].admin);
    assert_eq!(logins[0].unread, query("SHOW POOLS"));
    hello(&rig, "carol", "pgbouncer").expect_fatal("not allowed");
    assert_eq!((rig.clients_in_tables(), rig.clients_counted()), (0, 2));
}

#[test]
fn a_client_that_leaves_during_login_leaves_no_trace() {
    let rig = asking(AuthType::Md5);
    let silent = rig.connect_from(0, Peer::default());
    silent.leave();
    let asked = hello(&rig, "alice", "app");
    asked.leave();
    assert_eq!((rig.clients_in_tables(), rig.clients_counted(), rig.servers()), (0, 0, 0));
}

#[test]
fn a_forced_user_gives_all_clients_one_pool() {
    let rig = Rig::new(|config| {
        app(config).user = Some("owner".into());
        config.auth_file.users.insert("bob".into(), "x".into());
    });
    rig.client();
    hello(&rig, "bob", "app").expect_welcome(&[]);
    assert_eq!(rig.servers(), 1);
    assert_eq!(rig.server(0).startup(), server_startup(&[("user", "owner"), ("database", "app")]));
}
