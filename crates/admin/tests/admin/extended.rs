//! The extended query protocol on the console.

use std::sync::Arc;

use admin::Console;
use wire::frontend;

use crate::fixture::Recorder;
use crate::peer::{Peer, Reply, login};

/// Messages that are sent together.
#[derive(Default)]
struct Batch(Vec<u8>);

impl Batch {
    fn parse(mut self, name: &str, text: &str) -> Self {
        frontend::parse(&mut self.0, name.as_bytes(), text.as_bytes(), frontend::NO_TYPES);
        self
    }

    /// `rest` is the part after the names.
    fn bind(mut self, portal: &str, statement: &str, rest: &[u8]) -> Self {
        frontend::bind(&mut self.0, portal.as_bytes(), statement.as_bytes(), rest);
        self
    }

    fn statement(mut self, name: &str) -> Self {
        frontend::describe_statement(&mut self.0, name.as_bytes());
        self
    }

    fn portal(mut self, name: &str) -> Self {
        frontend::describe_portal(&mut self.0, name.as_bytes());
        self
    }

    fn execute(mut self, portal: &str, rows_max: u32) -> Self {
        frontend::execute(&mut self.0, portal.as_bytes(), rows_max);
        self
    }

    fn close(mut self, statement: &str, portal: &str) -> Self {
        frontend::close_statement(&mut self.0, statement.as_bytes());
        frontend::close_portal(&mut self.0, portal.as_bytes());
        self
    }

    /// Returns the replies up to ReadyForQuery.
    async fn sync(mut self, peer: &mut Peer) -> Vec<Reply> {
        frontend::sync(&mut self.0);
        peer.send(&self.0).await;
        peer.until_ready().await
    }
}

/// No formats, no values, results as text.
const TEXT: &[u8] = &[0, 0, 0, 0, 0, 0];
const BINARY: &[u8] = &[0, 0, 0, 0, 0, 1, 0, 1];

async fn peer() -> Peer {
    Peer::admin(&Arc::new(Console::new(Arc::new(Recorder::default())))).await
}

fn code(code: char) -> Reply {
    Reply::Other(code, String::new())
}

fn said(text: &str) -> Reply {
    Reply::Said(text.to_owned())
}

fn done(tag: &str) -> Reply {
    Reply::Done(tag.to_owned())
}

fn columns(names: &[&str]) -> Reply {
    Reply::Columns(names.iter().map(|name| (*name).to_owned()).collect())
}

#[tokio::test]
async fn a_command_is_prepared_described_and_run_again_and_again() {
    let mut peer = peer().await;
    let state = columns(&["key:text", "value:text"]);
    let prepared = Batch::default().parse("s", "SHOW STATE").statement("s").sync(&mut peer).await;
    assert_eq!(prepared, [code('1'), code('t'), state.clone()]);
    let rows = peer.query("SHOW STATE").await;
    for _ in 0..2 {
        let run = Batch::default().bind("", "s", TEXT).portal("").execute("", 0);
        let replies = run.sync(&mut peer).await;
        assert_eq!(replies[0], code('2'));
        assert_eq!(replies[1..], rows);
    }
    let gone = Batch::default().close("s", "").bind("", "s", TEXT).sync(&mut peer).await;
    let missing = said("ERROR 26000: prepared statement \"s\" does not exist");
    assert_eq!(gone, [code('3'), code('3'), missing]);
}

#[tokio::test]
async fn verbs_and_notices_have_no_rows() {
    let mut peer = peer().await;
    let batch = |text| Batch::default().parse("", text).bind("", "", TEXT).portal("");
    let replies = batch("RELOAD").execute("", 0).execute("", 0).sync(&mut peer).await;
    let again = said("ERROR 55000: portal \"\" cannot be run");
    assert_eq!(replies, [code('1'), code('2'), code('n'), done("RELOAD"), again]);
    let replies = batch("SET datestyle = 'ISO'").execute("", 0).sync(&mut peer).await;
    assert_eq!(replies[3..], [said("NOTICE 00000: SET ignored"), done("SET")]);
    let replies = batch(" ; ").execute("", 0).sync(&mut peer).await;
    assert_eq!(replies, [code('1'), code('2'), code('n'), code('I')]);
}

#[tokio::test]
async fn rows_come_in_portions() {
    let mut peer = peer().await;
    let all = peer.query("SHOW LISTS").await;
    let rows = &all[1..all.len() - 1];
    let batch = Batch::default().parse("", "SHOW LISTS").bind("p", "", TEXT);
    let batch = batch.execute("p", 4).execute("p", 1).execute("p", 0);
    let replies = batch.sync(&mut peer).await;
    assert_eq!(replies[2..6], rows[..4]);
    assert_eq!(replies[6..9], [code('s'), rows[4].clone(), code('s')]);
    assert_eq!(replies[9..], [&rows[5..], &[done("SHOW")]].concat());
    let ended = Batch::default().execute("p", 0).sync(&mut peer).await;
    assert_eq!(ended, [said("ERROR 34000: portal \"p\" does not exist")]);

    let exactly = Batch::default().parse("", "SHOW VERSION").bind("p", "", TEXT);
    let replies = exactly.execute("p", 1).execute("p", 1).sync(&mut peer).await;
    assert_eq!(replies[3..], [code('s'), done("SHOW")]);
}

#[tokio::test]
async fn results_are_binary_if_requested() {
    let mut peer = peer().await;
    let batch = Batch::default().parse("", "SHOW PEERS").bind("", "", BINARY);
    let replies = batch.execute("", 0).sync(&mut peer).await;
    let Reply::Row(values) = &replies[2] else { panic!("{replies:?}") };
    let text = |value: &str| Some(value.to_owned());
    assert_eq!(values[..2], [text("\0\0\0\u{2}"), text("10.0.0.20")]);
}

#[tokio::test]
async fn after_an_error_nothing_is_heard_up_to_sync() {
    let recorder = Arc::new(Recorder::default());
    let mut peer = Peer::admin(&Arc::new(Console::new(recorder.clone()))).await;
    let mut batch = Batch::default().parse("", "nonsense").bind("", "", TEXT).execute("", 0);
    frontend::query(&mut batch.0, b"RELOAD");
    let replies = batch.sync(&mut peer).await;
    let invalid = said("ERROR 08P01: invalid command 'nonsense', use SHOW HELP;");
    assert_eq!(replies, [invalid]);
    assert_eq!(*recorder.done.lock().unwrap(), [""; 0]);
    assert_eq!(peer.query("RELOAD").await, [done("RELOAD")]);
}

#[tokio::test]
async fn there_are_no_parameters() {
    let mut peer = peer().await;
    let none = said("ERROR 08P01: commands of the admin console have no parameters");
    let replies = Batch::default().parse("", "KILL_CLIENT $1").sync(&mut peer).await;
    assert_eq!(replies, std::slice::from_ref(&none));
    let mut typed = Batch::default();
    frontend::parse(&mut typed.0, b"", b"SHOW STATE", &[0, 1, 0, 0, 0, 23]);
    assert_eq!(typed.sync(&mut peer).await, [none]);
    let valued =
        Batch::default().parse("", "SHOW STATE").bind("", "", &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    let text =
        "ERROR 08P01: bind message supplies 1 parameters, but prepared statement \"\" requires 0";
    assert_eq!(valued.sync(&mut peer).await, [code('1'), said(text)]);
}

#[tokio::test]
async fn errors_are_those_of_postgres() {
    let mut peer = peer().await;
    let state = || Batch::default().parse("", "SHOW STATE");
    for (batch, text) in [
        (Batch::default().portal("x"), "34000: portal \"x\" does not exist"),
        (Batch::default().bind("", "", TEXT), "26000: unnamed prepared statement does not exist"),
        (state().bind("", "", &[0, 0, 0, 0, 0, 1, 0, 2]), "22023: unsupported format code: 2"),
        (
            state().bind("", "", &[0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0]),
            "08P01: bind message has 3 result formats but query has 2 columns",
        ),
        (state().bind("p", "", TEXT).bind("p", "", TEXT), "42P03: cursor \"p\" already exists"),
        (
            Batch::default().parse("s", "SHOW STATE").parse("s", "SHOW STATE"),
            "42P05: prepared statement \"s\" already exists",
        ),
    ] {
        let replies = batch.sync(&mut peer).await;
        assert_eq!(replies.last(), Some(&said(&format!("ERROR {text}"))));
        peer.query("SHOW STATE").await;
    }
}

#[tokio::test]
async fn names_are_limited() {
    let mut peer = peer().await;
    let mut batch = Batch::default();
    for at in 0..1001 {
        batch = batch.parse(&at.to_string(), "SHOW STATE");
    }
    let replies = batch.sync(&mut peer).await;
    assert_eq!(replies.len(), 1001);
    let full = said("ERROR 08P01: too many prepared statements on the admin console");
    assert_eq!(replies.last(), Some(&full));
}

#[tokio::test]
async fn rights_are_the_same_as_for_simple_queries() {
    let recorder = Arc::new(Recorder::default());
    let mut peer = Peer::start(&Arc::new(Console::new(recorder.clone())), login(1, false));
    peer.until_ready().await;
    let batch = Batch::default().parse("", "RELOAD").bind("", "", TEXT).execute("", 0);
    assert_eq!(batch.sync(&mut peer).await, [said("ERROR 08P01: admin access needed")]);
    assert_eq!(*recorder.done.lock().unwrap(), [""; 0]);
}

#[tokio::test]
async fn a_waiting_verb_can_be_cancelled() {
    let recorder = Arc::new(Recorder { is_busy: true, ..Recorder::default() });
    let console = Arc::new(Console::new(recorder.clone()));
    let mut peer = Peer::admin(&console).await;
    let mut batch = Batch::default().parse("", "PAUSE").bind("", "", TEXT).execute("", 0);
    frontend::sync(&mut batch.0);
    peer.send(&batch.0).await;
    while recorder.done.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    console.cancel(77, b"abcd");
    let canceled = said("ERROR 57014: canceling statement due to user request");
    assert_eq!(peer.until_ready().await, [code('1'), code('2'), canceled]);
    assert_eq!(*recorder.done.lock().unwrap(), ["Pause(None)", "give up"]);
}
