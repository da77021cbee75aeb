//! The console's protocol: welcome, errors, what ends a connection.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use admin::{Console, Login};
use proptest::prelude::*;
use wire::frontend;

use crate::fixture::Recorder;
use crate::peer::{Peer, Reply, login};

fn console() -> Arc<Console> {
    Arc::new(Console::new(Arc::new(Recorder::default())))
}

fn error(message: &str) -> Vec<Reply> {
    vec![Reply::Said(format!("ERROR 08P01: {message}"))]
}

fn fatal(message: &str) -> Vec<Reply> {
    vec![Reply::Said(format!("FATAL 08P01: {message}"))]
}

fn version() -> Vec<Reply> {
    table("version", "PgBouncer 1.25.2")
}

/// Returns a table with one column of text and one row.
fn table(column: &str, value: &str) -> Vec<Reply> {
    vec![
        Reply::Columns(vec![format!("{column}:text")]),
        Reply::Row(vec![Some(value.to_owned())]),
        Reply::Done("SHOW".to_owned()),
    ]
}

#[tokio::test]
async fn the_welcome_is_pgbouncers() {
    let mut peer = Peer::start(&console(), login(1, true));
    let parameter = |text: &str| Reply::Other('S', text.to_owned());
    let expected = [
        Reply::Other('R', String::new()),
        parameter("server_version 1.25.2/bouncer"),
        parameter("client_encoding UTF8"),
        parameter("server_encoding UTF8"),
        parameter("DateStyle ISO"),
        parameter("TimeZone GMT"),
        parameter("standard_conforming_strings on"),
        parameter("is_superuser on"),
        parameter("application_name app"),
        parameter("pgbouncer.version 1.25.2"),
        parameter("pgbouncer.pool_mode statement"),
        parameter("pgbouncer.max_prepared_statements 0"),
        Reply::Other('K', "   Mabcd".to_owned()),
    ];
    assert_eq!(peer.until_ready().await, expected);
    assert_eq!(peer.leave().await, "client unexpected eof");
}

#[tokio::test]
async fn messages_after_the_login_are_answered_first() {
    let mut unread = Vec::new();
    frontend::query(&mut unread, b"show version");
    frontend::query(&mut unread, b"select version");
    let mut peer = Peer::start(&console(), Login { unread, ..login(1, false) });
    peer.until_ready().await;
    assert_eq!(peer.until_ready().await, version());
    assert_eq!(peer.until_ready().await, version());
}

#[tokio::test]
async fn a_query_may_come_byte_by_byte() {
    let mut peer = Peer::admin(&console()).await;
    let mut bytes = Vec::new();
    frontend::query(&mut bytes, b"show version");
    for byte in bytes {
        peer.send(&[byte]).await;
    }
    assert_eq!(peer.until_ready().await, version());
}

#[tokio::test]
async fn invalid_commands_are_repeated_in_the_error() {
    let mut peer = Peer::admin(&console()).await;
    for text in ["/* open", "-", "show", "show xyz", "foo bar", "BEGIN", "show pools; show pools"] {
        let expected = error(&format!("invalid command '{text}', use SHOW HELP;"));
        assert_eq!(peer.query(text).await, expected);
    }
    assert_eq!(peer.query("aaaaaaaaaaaaaaaa").await, error("bad arguments"));
    let expected = error("invalid command 'sh\u{fffd}w', use SHOW HELP;");
    assert_eq!(peer.query(b"sh\xffw").await, expected);
}

#[tokio::test]
async fn an_empty_query_is_answered_as_by_postgres_and_not_logged() {
    let recorder = Arc::new(Recorder::default());
    let mut peer = Peer::start(&Arc::new(Console::new(recorder.clone())), login(1, false));
    peer.until_ready().await;
    for text in ["", ";", " ;; ", "-- ping", "/* ping */ ;", "-- $1"] {
        let code = |code| Reply::Other(code, String::new());
        assert_eq!(peer.query(text).await, [code('I')], "{text:?}");
        let mut batch = Vec::new();
        frontend::parse(&mut batch, b"", text.as_bytes(), frontend::NO_TYPES);
        frontend::describe_statement(&mut batch, b"");
        frontend::bind(&mut batch, b"", b"", &[0; 6]);
        frontend::execute(&mut batch, b"", 0);
        frontend::sync(&mut batch);
        peer.send(&batch).await;
        let expected = [code('1'), code('t'), code('n'), code('2'), code('I')];
        assert_eq!(peer.until_ready().await, expected, "{text:?}");
    }
    assert_eq!(*recorder.errors.lock().unwrap(), [""; 0]);
    assert_eq!(*recorder.notes.lock().unwrap(), [""; 0]);
}

#[tokio::test]
async fn parameters_of_drivers_have_fixed_answers() {
    let mut peer = Peer::admin(&console()).await;
    assert_eq!(peer.query("SHOW TimeZone").await, table("timezone", "GMT"));
    assert_eq!(peer.query("select client_encoding").await, table("client_encoding", "UTF-8"));
    let ignored =
        [Reply::Said("NOTICE 00000: SET ignored".to_owned()), Reply::Done("SET".to_owned())];
    assert_eq!(peer.query("SET DateStyle TO 'ISO';").await, ignored);
}

#[tokio::test]
async fn orders_are_passed_on_and_answered_by_their_verb() {
    let recorder = Arc::new(Recorder::default());
    let mut peer = Peer::admin(&Arc::new(Console::new(recorder.clone()))).await;
    for (text, tag) in [
        ("pause", "PAUSE"),
        ("RESUME \"My db\"", "RESUME"),
        ("disable app;", "DISABLE"),
        ("enable app", "ENABLE"),
        ("reconnect", "RECONNECT"),
        ("wait_close app", "WAIT_CLOSE"),
        ("kill app", "KILL"),
        ("kill_client 7", "KILL_CLIENT"),
        ("suspend", "SUSPEND"),
        ("set pool_mode TO 'session'", "SET pool_mode=session"),
    ] {
        assert_eq!(peer.query(text).await, [Reply::Done(tag.to_owned())], "{text}");
    }
    let done = recorder.done.lock().unwrap().join("; ");
    assert!(done.starts_with("Pause(None); Resume(Some(\"My db\")); Disable(\"app\")"), "{done}");
    assert!(done.ends_with("KillClient(7); Suspend; set pool_mode to session"), "{done}");
    let notes = recorder.notes.lock().unwrap().clone();
    assert_eq!(notes[..2], ["PAUSE command issued", "RESUME 'My db' command issued"]);
}

#[tokio::test]
async fn a_failed_order_is_an_error() {
    let mut peer = Peer::admin(&console()).await;
    assert_eq!(peer.query("kill_client 404").await, error("client not found"));
    let expected = error("invalid client pointer supplied");
    assert_eq!(peer.query("kill_client").await, expected);
    assert_eq!(peer.query("disable").await, error("a database is required"));
    assert_eq!(peer.query("set wrong = 1").await, error("SET failed (no such key)"));
}

#[tokio::test]
async fn cancel_ends_a_waiting_console_command() {
    let recorder = Arc::new(Recorder { is_busy: true, ..Recorder::default() });
    let console = Arc::new(Console::new(recorder.clone()));
    let mut peer = Peer::admin(&console).await;
    let mut bytes = Vec::new();
    frontend::query(&mut bytes, b"pause");
    frontend::query(&mut bytes, b"show version");
    peer.send(&bytes).await;
    while recorder.done.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    console.cancel(77, b"none");
    console.cancel(77, b"abcd");
    let canceled = "ERROR 57014: canceling statement due to user request".to_owned();
    assert_eq!(peer.until_ready().await, [Reply::Said(canceled)]);
    assert_eq!(peer.until_ready().await, version());
    assert_eq!(*recorder.done.lock().unwrap(), ["Pause(None)", "give up"]);
}

#[tokio::test]
async fn closing_a_waiting_console_undoes_nothing() {
    let recorder = Arc::new(Recorder { is_busy: true, ..Recorder::default() });
    let console = Arc::new(Console::new(recorder.clone()));
    let mut peer = Peer::admin(&console).await;
    let mut bytes = Vec::new();
    frontend::query(&mut bytes, b"pause");
    peer.send(&bytes).await;
    while recorder.done.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(peer.leave().await, "client unexpected eof");
    assert_eq!(*recorder.done.lock().unwrap(), ["Pause(None)", "abandoned"]);
}

#[tokio::test]
async fn one_operator_can_end_the_connection_of_another() {
    let console = console();
    let mut peer = Peer::admin(&console).await;
    let mut other = Peer::start(&console, login(5, false));
    other.until_ready().await;
    assert_eq!(peer.query("kill_client 5").await, [Reply::Done("KILL_CLIENT".to_owned())]);
    let forced = "admin forced disconnect";
    assert_eq!(other.rest().await, (fatal(forced), forced.to_owned()));
}

#[tokio::test]
async fn a_console_that_waits_or_does_not_read_can_be_closed() {
    let recorder = Arc::new(Recorder { is_busy: true, ..Recorder::default() });
    let console = Arc::new(Console::new(recorder.clone()));
    let mut peer = Peer::admin(&console).await;
    let forced = "admin forced disconnect";

    let mut waiting = Peer::start(&console, login(5, true));
    waiting.until_ready().await;
    let mut bytes = Vec::new();
    frontend::query(&mut bytes, b"pause");
    waiting.send(&bytes).await;
    while recorder.done.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(peer.query("kill_client 5").await, [Reply::Done("KILL_CLIENT".to_owned())]);
    assert_eq!(within(waiting.rest()).await, (fatal(forced), forced.to_owned()));

    let mut deaf = Peer::start(&console, login(6, true));
    deaf.until_ready().await;
    let mut bytes = Vec::new();
    for _ in 0..100 {
        frontend::query(&mut bytes, b"show config");
    }
    deaf.send(&bytes).await;
    assert_eq!(peer.query("kill_client 6").await, [Reply::Done("KILL_CLIENT".to_owned())]);
    let ended = within(&mut deaf.served).await.unwrap();
    assert_eq!(ended.as_deref(), Some(forced));
}

/// Fails a test that would hang.
async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), future).await.expect("in time")
}

#[tokio::test]
async fn stats_users_cannot_change_anything() {
    let recorder = Arc::new(Recorder::default());
    let console = Arc::new(Console::new(recorder.clone()));
    let mut peer = Peer::start(&console, login(1, false));
    peer.until_ready().await;
    for text in ["RELOAD", "SHUTDOWN", "SHUTDOWN WAIT_FOR_CLIENTS", "PAUSE", "SHOW FDS"] {
        assert_eq!(peer.query(text).await, error("admin access needed"), "{text}");
    }
    let expected = error("invalid command 'RELOAD x', use SHOW HELP;");
    assert_eq!(peer.query("RELOAD x").await, expected);
    assert_eq!(peer.query("show version").await, version());
    assert_eq!(*recorder.done.lock().unwrap(), [""; 0]);
}

#[tokio::test]
async fn refused_orders_are_logged() {
    let recorder = Arc::new(Recorder { is_busy: true, ..Recorder::default() });
    let mut peer = Peer::start(&Arc::new(Console::new(recorder.clone())), login(1, true));
    peer.until_ready().await;
    assert_eq!(peer.query("SUSPEND").await, error("already suspended/paused"));
    assert_eq!(peer.query("dance").await, error("invalid command 'dance', use SHOW HELP;"));
    let errors = recorder.errors.lock().unwrap();
    let expected = [
        "already suspended/paused",
        "C-0x1: pgbouncer/operator@here pooler error: already suspended/paused",
        "invalid command 'dance', use SHOW HELP;",
        "C-0x1: pgbouncer/operator@here pooler error: invalid command 'dance', use SHOW HELP;",
    ];
    assert_eq!(*errors, expected);
    assert_eq!(*recorder.notes.lock().unwrap(), [""; 0], "it was not even tried");
}

#[tokio::test]
async fn commands_are_carried_out() {
    let recorder = Arc::new(Recorder::default());
    let mut peer = Peer::admin(&Arc::new(Console::new(recorder.clone()))).await;
    assert_eq!(peer.query("RELOAD").await, [Reply::Done("RELOAD".to_owned())]);
    let shutdown = [Reply::Done("SHUTDOWN".to_owned())];
    assert_eq!(peer.query("shutdown wait_for_servers").await, shutdown);
    assert_eq!(peer.query("shutdown wait_for_clients;").await, shutdown);
    assert_eq!(peer.query("SHUTDOWN").await, [], "the connection just ends");
    assert_eq!(peer.leave().await, "", "the end of all is not the end of one");
    let done = [
        "reload",
        "shutdown WaitForServers",
        "shutdown WaitForClients",
        "shutdown Now",
        "abandoned",
    ];
    assert_eq!(*recorder.done.lock().unwrap(), done);
}

#[tokio::test]
async fn a_failed_reload_is_told_with_a_code_of_its_own() {
    let recorder = Recorder { not_reloaded: Some(Vec::new()), ..Recorder::default() };
    let mut peer = Peer::admin(&Arc::new(Console::new(Arc::new(recorder)))).await;
    let expected = "ERROR F0000: RELOAD failed, see logs for additional details";
    assert_eq!(peer.query("RELOAD").await, [Reply::Said(expected.to_owned())]);
    assert_eq!(peer.query("show version").await, version());
}

#[tokio::test]
async fn files_that_a_reload_could_not_read_are_an_error() {
    let not_reloaded = Some(vec!["keeping the rules".to_owned()]);
    let recorder = Recorder { not_reloaded, ..Recorder::default() };
    let mut peer = Peer::admin(&Arc::new(Console::new(Arc::new(recorder)))).await;
    let told = Reply::Said("NOTICE 00000: keeping the rules".to_owned());
    let failed = "ERROR F0000: RELOAD failed, see logs for additional details";
    assert_eq!(peer.query("RELOAD").await, [told, Reply::Said(failed.to_owned())]);
}

#[tokio::test]
async fn a_value_that_does_not_act_yet_is_told_beside_its_success() {
    let mut peer = Peer::admin(&Arc::new(Console::new(Arc::new(Recorder::default())))).await;
    let told = Reply::Said("NOTICE 00000: the other half is missing".to_owned());
    assert_eq!(peer.query("SET half = 1").await, [told, Reply::Done("SET half=1".to_owned())]);
}

#[tokio::test]
async fn unknown_messages_end_the_connection() {
    let mut peer = Peer::admin(&console()).await;
    peer.send(b"F\0\0\0\x04").await;
    assert_eq!(peer.until_ready().await, error("unsupported packet type for admin console: 70"));
    assert_eq!(peer.rest().await, (fatal("bad packet"), "bad packet".to_owned()));

    let mut peer = Peer::admin(&console()).await;
    peer.send(b"P\0\0\0\x04").await;
    assert_eq!(peer.rest().await, (fatal("bad packet"), "bad packet".to_owned()));
}

#[tokio::test]
async fn invalid_messages_end_the_connection() {
    for (bytes, text) in [
        (&b"z\0\0\0\x04"[..], "unknown pkt"),
        (b"Q\0\0\0\0", "bad packet header: '5100000000'"),
        (b"Q\x7f\xff\xff\xff", "incomplete pkt"),
        (b"Q\0\0\0\x08show", "incomplete query"),
    ] {
        let mut peer = Peer::admin(&console()).await;
        peer.send(bytes).await;
        assert_eq!(peer.rest().await, (fatal(text), text.to_owned()));
    }
}

#[tokio::test]
async fn terminate_ends_the_connection_without_a_word() {
    let mut peer = Peer::admin(&console()).await;
    peer.send(b"X\0\0\0\x04").await;
    assert_eq!(peer.rest().await, (vec![], "client close request".to_owned()));
}

/// Returns the number of rows of a query.
async fn rows(peer: &mut Peer, text: &str) -> usize {
    let replies = peer.query(text).await;
    replies.iter().filter(|reply| matches!(reply, Reply::Row(_))).count()
}

#[tokio::test]
async fn a_connection_is_listed_until_it_ends() {
    let console = console();
    let mut one = Peer::start(&console, login(1, true));
    one.until_ready().await;
    let alone = rows(&mut one, "show clients").await;
    let mut two = Peer::start(&console, login(2, true));
    two.until_ready().await;
    assert_eq!(rows(&mut one, "show clients").await, alone + 1);
    two.leave().await;
    assert_eq!(rows(&mut one, "show clients").await, alone);
    let mut three = Peer::start(&console, login(3, true));
    three.until_ready().await;
    three.served.abort();
    assert!(three.served.await.unwrap_err().is_cancelled(), "given up midway");
    assert_eq!(rows(&mut one, "show clients").await, alone);
}

/// Bytes that resemble messages more often than random ones do.
fn traffic() -> impl Strategy<Value = Vec<u8>> {
    let message = (prop::sample::select(&b"QPBEDCSHFdcfXzQQQQ"[..]), "[a-z \"';=]{0,20}").prop_map(
        |(code, text)| {
            let mut bytes = vec![code];
            bytes.extend_from_slice(&(text.len() as u32 + 5).to_be_bytes());
            bytes.extend_from_slice(text.as_bytes());
            bytes.push(0);
            bytes
        },
    );
    let noise = prop::collection::vec(any::<u8>(), 0..30);
    prop::collection::vec(prop_oneof![4 => message, 1 => noise], 0..8)
        .prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn any_traffic_is_answered_and_ends(bytes in traffic(), split in any::<prop::sample::Index>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let split = split.index(bytes.len() + 1);
            let unread = bytes[..split].to_vec();
            let (mut stream, theirs) = tokio::io::duplex(1 << 20);
            tokio::io::AsyncWriteExt::write_all(&mut stream, &bytes[split..]).await.unwrap();
            tokio::io::AsyncWriteExt::shutdown(&mut stream).await.unwrap();
            let login = Login { unread, ..login(1, false) };
            let reason = console().serve(theirs, login).await;
            assert!(reason.is_some());
        });
    }
}
