//! Conversations as tables: the messages of both sides in order, and what the ledger makes of them.
//! The rules are in the head of `ledger.rs`.

use super::*;
use crate::relay::interner::Interner;
use crate::relay::parse_context::ParseContext;

/// One step of a conversation.
enum Step {
    /// These messages of the client are sent on unchanged.
    Sent(&'static [Expect]),
    /// This message is entered.
    Owe(Expect, Verb),
    /// These messages arrive, given by their codes. All go to the client.
    Client(&'static str),
    /// These messages arrive, and Weir discards them.
    Nobody(&'static str),
    /// This made-up reply is due, and no other.
    Made(Reply),
    /// The server broke the protocol.
    Broken(char),
    Settled(bool),
    Skipping(bool),
    InCopy(bool),
    /// A Sync in the copy makes the next message wait.
    Awaits(Option<CopyStep>),
    /// Weir asks how many Syncs are answered.
    Ask,
}

use Expect::{Bind, Close, CopyEnd, Describe, Execute, FunctionCall, Parse, Query, Sync};
use Step::Settled as IsSettled;
use Step::{Ask, Awaits, Broken, Client, InCopy, Made, Nobody, Owe, Sent, Skipping};
use Verb::{Forward, Internal, Replace, Swallow, Synthesize};

const MADE_PARSE: Verb = Synthesize(Reply::ParseComplete);
const MADE_CLOSE: Verb = Synthesize(Reply::CloseComplete);

fn play(name: &str, steps: &[Step]) {
    let mut ledger = Ledger::default();
    for (at, step) in steps.iter().enumerate() {
        let place = format!("{name}, step {at}");
        let mut replies = |codes: &str, owner| {
            for code in codes.bytes() {
                assert_eq!(ledger.next_synthesized(), None, "{place}: a made-up reply was due");
                let settled = ledger.reply(code, &mut |_| ()).unwrap_or_else(|error| {
                    panic!("{place}: {error}");
                });
                assert_eq!(settled.owner, owner, "{place}: {:?}", char::from(code));
            }
        };
        match step {
            Sent(all) => all.iter().for_each(|expect| ledger.owe(Entry::new(*expect, Forward))),
            Owe(expect, verb) => ledger.owe(Entry::new(*expect, *verb)),
            Client(codes) => replies(codes, Owner::Client),
            Nobody(codes) => replies(codes, Owner::Nobody),
            Made(reply) => assert_eq!(ledger.next_synthesized(), Some(*reply), "{place}"),
            Broken(code) => {
                let error = ledger.reply(*code as u8, &mut |_| ()).expect_err(&place);
                assert_eq!(error.code, *code, "{place}");
            }
            IsSettled(yes) => {
                assert_eq!(ledger.next_synthesized(), None, "{place}: a made-up reply was due");
                assert_eq!(ledger.is_at_rest(), *yes, "{place}: {ledger:?}");
            }
            Skipping(yes) => assert_eq!(ledger.is_skipping(), *yes, "{place}"),
            InCopy(yes) => assert_eq!(ledger.in_copy(), *yes, "{place}"),
            Awaits(step) => assert_eq!(ledger.copy_step(), *step, "{place}"),
            Ask => ledger.ask_count(0, &mut Vec::new()),
        }
    }
}

#[test]
fn each_message_is_completed_by_its_own_reply() {
    let table: &[(Expect, &str)] = &[
        (Query, "Z"),
        (Query, "CZ"),
        (Query, "TDDCZ"),
        (Query, "TDCTDCCIZ"),
        (Query, "IZ"),
        (Query, "EZ"),
        (Query, "TDEZ"),
        (Query, "HddcCZ"),
        (Query, "WdcCZ"),
        (FunctionCall, "VZ"),
        (FunctionCall, "EZ"),
        (Sync, "Z"),
        (Sync, "EZ"),
        (Parse, "1"),
        (Bind, "2"),
        (Describe, "tn"),
        (Describe, "tT"),
        (Describe, "T"),
        (Describe, "n"),
        (Execute, "C"),
        (Execute, "DDC"),
        (Execute, "Ds"),
        (Execute, "I"),
        (Execute, "HddcC"),
        (Close, "3"),
    ];
    for (expect, codes) in table {
        let (all_but_last, last) = codes.split_at(codes.len() - 1);
        let mut ledger = Ledger::default();
        ledger.owe(Entry::new(*expect, Forward));
        for code in all_but_last.bytes() {
            ledger.reply(code, &mut |_| ()).expect(codes);
            assert!(!ledger.owes_nothing(), "{expect:?} {codes}");
        }
        ledger.reply(last.as_bytes()[0], &mut |_| ()).expect(codes);
        assert!(ledger.owes_nothing(), "{expect:?} {codes}");
    }
}

#[test]
fn an_unowed_message_is_an_error() {
    let replies = "123CDEGHITVWZcdnst";
    let allowed = |expect| match expect {
        Query => "CDEGHITWZcd",
        FunctionCall => "EVZ",
        Sync => "EZ",
        Parse => "1E",
        Bind => "2E",
        Describe => "ETnt",
        Execute => "CDEGHIWcds",
        Close => "3E",
        CopyEnd => unreachable!("is never answered"),
        Expect::Count => unreachable!("is entered by `ask_count`"),
    };
    for expect in [Query, FunctionCall, Sync, Parse, Bind, Describe, Execute, Close] {
        for code in replies.bytes() {
            let mut ledger = Ledger::default();
            ledger.owe(Entry::new(expect, Forward));
            let taken = ledger.reply(code, &mut |_| ()).is_ok();
            let code = char::from(code);
            assert_eq!(taken, allowed(expect).contains(code), "{expect:?} and {code:?}");
        }
    }
    // A server that owes nothing may send only an error that announces its end.
    for code in replies.bytes() {
        let taken = Ledger::default().reply(code, &mut |_| ());
        assert_eq!(taken.is_ok(), code == b'E', "{:?}", char::from(code));
    }
}

#[test]
fn conversations() {
    play(
        "an extended query",
        &[
            Sent(&[Parse, Bind, Describe, Execute, Sync]),
            Client("12TDDC"),
            IsSettled(false),
            Client("Z"),
            IsSettled(true),
        ],
    );
    play(
        "several executes before one sync",
        &[Sent(&[Bind, Execute, Bind, Execute, Sync]), Client("2C2DsZ"), IsSettled(true)],
    );
    play(
        "several syncs in one write",
        &[
            Sent(&[Bind, Sync, Bind, Sync, Sync]),
            Client("2Z2Z"),
            IsSettled(false),
            Client("Z"),
            IsSettled(true),
        ],
    );
    play(
        "simple queries in one write",
        &[Sent(&[Query, Query]), Client("CZ"), IsSettled(false), Client("EZ"), IsSettled(true)],
    );
}

#[test]
fn an_error_makes_everything_up_to_the_next_sync_void() {
    play(
        "within one batch",
        &[
            Sent(&[Parse, Bind, Execute, Sync]),
            Client("E"),
            Skipping(false),
            IsSettled(false),
            Client("Z"),
            IsSettled(true),
        ],
    );
    play(
        "a simple query in the middle of the pipeline is skipped too",
        &[Sent(&[Bind, Query, FunctionCall, Execute, Sync]), Client("EZ"), IsSettled(true)],
    );
    play(
        "the next batch is not touched",
        &[Sent(&[Bind, Execute, Sync, Bind, Execute, Sync]), Client("2EZ2CZ"), IsSettled(true)],
    );
    play(
        "the sync was not sent yet",
        &[
            Sent(&[Bind, Execute]),
            Client("E"),
            Skipping(true),
            IsSettled(false),
            Sent(&[Sync]),
            Skipping(false),
            Client("Z"),
            IsSettled(true),
        ],
    );
    play(
        "a simple query's error makes nothing void",
        &[Sent(&[Query, Bind, Sync]), Client("EZ2Z"), IsSettled(true)],
    );
    play(
        "nor does a sync's own (a deferred constraint)",
        &[Sent(&[Sync, Bind, Sync]), Client("EZ2Z"), IsSettled(true)],
    );
}

#[test]
fn void_messages_come_last_sent_first() {
    let mut ledger = Ledger::default();
    for (serial, expect) in (1..).zip([Parse, Bind, Query, Sync, Bind]) {
        let mut entry = Entry::new(expect, Forward);
        entry.serial = serial;
        ledger.owe(entry);
    }
    let mut void = Vec::new();
    let settled = ledger.reply(backend::ERROR, &mut |entry| void.push(entry.serial)).unwrap();
    assert_eq!(void, [3, 2, 1]);
    assert_eq!(settled.serial, 1);
    assert_eq!(ledger.owed.len(), 2, "the Sync and what follows it");
}

#[test]
fn copy_in() {
    play(
        "by a simple query",
        &[
            Sent(&[Query]),
            Client("G"),
            InCopy(true),
            Sent(&[CopyEnd]),
            InCopy(false),
            Client("CZ"),
            IsSettled(true),
        ],
    );
    play(
        "a sync sent before CopyDone was ignored by the server",
        &[
            Sent(&[Bind, Execute, Sync]),
            Client("2G"),
            Sent(&[CopyEnd, Sync]),
            Client("C"),
            IsSettled(false),
            Client("Z"),
            IsSettled(true),
        ],
    );
    play(
        "everything in one write",
        &[
            Sent(&[Bind, Execute, Sync, CopyEnd, Sync]),
            Client("2G"),
            InCopy(false),
            Client("CZ"),
            IsSettled(true),
        ],
    );
    play(
        "a sync during the copy is ignored",
        &[
            Sent(&[Execute]),
            Client("G"),
            Sent(&[Sync, CopyEnd]),
            Awaits(Some(CopyStep::AwaitResult)),
            Client("C"),
            Awaits(None),
            Sent(&[Sync]),
            Client("Z"),
            IsSettled(true),
        ],
    );
    play(
        "what follows CopyDone is answered",
        &[
            Sent(&[Query, CopyEnd, Query]),
            Client("GCZ"),
            IsSettled(false),
            Client("CZ"),
            IsSettled(true),
        ],
    );
    play(
        "two copies in one query string",
        &[
            Sent(&[Query]),
            Client("G"),
            Sent(&[CopyEnd]),
            Client("CG"),
            InCopy(true),
            Sent(&[CopyEnd]),
            Client("CZ"),
            IsSettled(true),
        ],
    );
}

#[test]
fn copy_in_that_fails() {
    play(
        "CopyFail, simple query",
        &[
            Sent(&[Query]),
            Client("G"),
            Sent(&[CopyEnd]),
            Client("EZ"),
            Awaits(None),
            IsSettled(true),
        ],
    );
    play(
        "the server gives up, and CopyDone comes late",
        &[
            Sent(&[Query]),
            Client("GE"),
            InCopy(false),
            Sent(&[CopyEnd]),
            Client("Z"),
            IsSettled(true),
            Sent(&[CopyEnd]),
            IsSettled(true),
        ],
    );
    play(
        "CopyFail, extended query: skips to the sync behind it",
        &[
            Sent(&[Execute]),
            Client("G"),
            Sent(&[CopyEnd, Sync]),
            Client("E"),
            Awaits(None),
            Client("Z"),
            IsSettled(true),
        ],
    );
}

#[test]
fn copy_in_that_fails_with_a_sync() {
    play(
        "a sync that the server has ignored: it discards everything up to the next",
        &[
            Sent(&[Execute, Sync]),
            Client("GE"),
            Awaits(Some(CopyStep::Count)),
            IsSettled(false),
            Ask,
            Awaits(Some(CopyStep::AwaitCount)),
            Nobody("Z3Z"),
            Awaits(None),
            Skipping(true),
            Sent(&[Sync]),
            Client("Z"),
            IsSettled(true),
        ],
    );
    play(
        "a replication connection: it refuses Weir's Close",
        &[
            Sent(&[Query]),
            Client("G"),
            Sent(&[Sync]),
            Client("EZ"),
            Ask,
            Nobody("ZEZ"),
            Awaits(None),
            IsSettled(true),
        ],
    );
    play(
        "a sync that it has read behind the error: before Weir asks",
        &[
            Sent(&[Execute]),
            Client("G"),
            Sent(&[Sync]),
            Client("EZ"),
            IsSettled(false),
            Ask,
            Nobody("Z3Z"),
            Skipping(false),
            IsSettled(true),
        ],
    );
    play(
        "or later, and behind CopyDone",
        &[
            Sent(&[Execute]),
            Client("G"),
            Sent(&[Sync, Sync, CopyEnd]),
            Client("E"),
            Ask,
            Nobody("Z"),
            Client("ZZ"),
            Nobody("3Z"),
            Skipping(false),
            IsSettled(true),
        ],
    );
    play(
        "a sync in the copy of a simple query",
        &[
            Sent(&[Query]),
            Client("G"),
            Sent(&[Sync]),
            Client("EZ"),
            IsSettled(false),
            Ask,
            Nobody("Z"),
            Client("Z"),
            Nobody("3Z"),
            IsSettled(true),
        ],
    );
    play(
        "before it has read anything, and with another batch behind it",
        &[Sent(&[Execute, Sync, Bind, Execute, Sync]), Client("GEZ2CZ"), IsSettled(true)],
    );
}

#[test]
fn a_late_copy_done_stands_for_nothing() {
    play("alone", &[Sent(&[CopyEnd]), IsSettled(true)]);
    play(
        "behind a query that copies nothing",
        &[Sent(&[Query, CopyEnd, Query]), Client("CZCZ"), IsSettled(true)],
    );
    play("at the end", &[Sent(&[Query, CopyEnd]), Client("CZ"), IsSettled(true)]);
}

#[test]
fn made_up_replies_keep_their_place() {
    play(
        "between real ones",
        &[
            Owe(Parse, MADE_PARSE),
            Sent(&[Bind]),
            Owe(Close, MADE_CLOSE),
            Sent(&[Execute, Sync]),
            Made(Reply::ParseComplete),
            Client("2"),
            Made(Reply::CloseComplete),
            Client("CZ"),
            IsSettled(true),
        ],
    );
    play(
        "an error makes them void as well",
        &[Sent(&[Bind]), Owe(Parse, MADE_PARSE), Sent(&[Sync]), Client("EZ"), IsSettled(true)],
    );
    play(
        "behind a late CopyDone",
        &[
            Sent(&[Query, CopyEnd]),
            Owe(Parse, MADE_PARSE),
            Client("CZ"),
            Made(Reply::ParseComplete),
            IsSettled(true),
        ],
    );
    let mut ledger = Ledger::default();
    assert!(ledger.only_synthesized());
    ledger.owe(Entry::new(Parse, MADE_PARSE));
    assert!(ledger.only_synthesized() && !ledger.is_at_rest() && !ledger.owes_nothing());
    ledger.owe(Entry::new(Bind, Forward));
    assert!(!ledger.only_synthesized());
}

#[test]
fn answers_to_messages_of_ours() {
    play(
        "a swallowed reply is nobody's",
        &[
            Owe(Parse, Swallow),
            Owe(Bind, Replace),
            Sent(&[Sync]),
            Nobody("1"),
            Client("2Z"),
            IsSettled(true),
        ],
    );
    play(
        "an error in its place is the client's",
        &[Owe(Parse, Swallow), Owe(Bind, Replace), Sent(&[Sync]), Client("EZ"), IsSettled(true)],
    );
    play(
        "an internal query is nobody's, errors included",
        &[Owe(Query, Internal), Nobody("TDEZ"), IsSettled(true)],
    );
}

#[test]
fn asynchronous_messages_belong_to_the_client_unless_the_question_was_ours() {
    let mut ledger = Ledger::default();
    assert_eq!(ledger.bystander(), Owner::Client);
    ledger.owe(Entry::new(Query, Internal));
    assert_eq!(ledger.bystander(), Owner::Nobody);
    for verb in [Forward, Swallow, Replace, MADE_PARSE] {
        let mut ledger = Ledger::default();
        ledger.owe(Entry::new(Parse, verb));
        assert_eq!(ledger.bystander(), Owner::Client, "{verb:?}");
    }
}

#[test]
fn a_batch_is_open_until_its_sync_is_answered() {
    play(
        "with all its replies there",
        &[
            Sent(&[Parse]),
            Client("1"),
            IsSettled(false),
            Sent(&[Bind, Execute]),
            Client("2C"),
            IsSettled(false),
            Sent(&[Sync]),
            Client("Z"),
            IsSettled(true),
        ],
    );
    play(
        "the sync of the batch before does not end it",
        &[
            Sent(&[Bind, Sync, Bind]),
            Client("2Z2"),
            IsSettled(false),
            Sent(&[Sync]),
            Client("Z"),
            IsSettled(true),
        ],
    );
    play("a simple query ends it as well", &[Sent(&[Bind, Query]), Client("2CZ"), IsSettled(true)]);
    play(
        "what the server never sees opens none",
        &[Owe(Parse, MADE_PARSE), Made(Reply::ParseComplete), IsSettled(true)],
    );
    let mut ledger = Ledger::default();
    ledger.owe(Entry::new(Bind, Forward));
    ledger.reply(backend::BIND_COMPLETE, &mut |_| ()).unwrap();
    assert!(ledger.owes_nothing() && !ledger.is_at_rest());
}

#[test]
fn rows_of_the_clients_own_queries_need_no_look() {
    for (expect, verb, pass) in [
        (Query, Forward, true),
        (Execute, Forward, true),
        (Query, Internal, false),
        (Sync, Forward, false),
        (Parse, Swallow, false),
    ] {
        let mut ledger = Ledger::default();
        assert!(!ledger.rows_are_forwarded());
        ledger.owe(Entry::new(expect, verb));
        assert_eq!(ledger.rows_are_forwarded(), pass, "{expect:?} {verb:?}");
    }
}

#[test]
fn out_of_the_blue() {
    play("a dying server says good-bye", &[Client("E"), IsSettled(true)]);
    play("an answer nobody asked for", &[Broken('Z'), Broken('C'), IsSettled(true)]);
    play(
        "an answer to another question",
        &[Sent(&[Sync]), Broken('2'), Client("Z"), IsSettled(true)],
    );
    play("an answer in the skipped part", &[Sent(&[Bind]), Client("E"), Broken('Z')]);
}

#[test]
fn a_reply_tells_its_entry() {
    let mut ledger = Ledger::default();
    let statement = Interner::default().intern(b"select 1", &[0, 0], ParseContext::COMMON);
    let mut entry = Entry::new(Parse, Replace).undo(Undo::Prepare { statement });
    (entry.serial, entry.statement) = (3, 7);
    ledger.owe(entry);
    let settled = ledger.reply(backend::PARSE_COMPLETE, &mut |_| ()).unwrap();
    assert_eq!((settled.serial, settled.statement), (3, 7));
}
