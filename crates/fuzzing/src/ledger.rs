//! Compares the ledger with a minimal model of PostgreSQL: a queue of messages and their replies.
//!
//! Each byte is a step: the client sends a message, which is entered into the ledger, or the server
//! reads the next message and answers. The entry of the same message must take each reply. The
//! ledger may call the server settled only when it is: no message is unread or skipped, and no copy
//! and no batch is open.

mod server;

use engine::ledger::{CopyStep, Entry, Expect, Ledger, Owner, Reply, Verb};

use self::server::{Answer, Outcome, Sent, Server};

const LEN_MAX: usize = 2_048;

pub fn ledger(data: &[u8]) {
    let mut play = Play::default();
    for byte in &data[..data.len().min(LEN_MAX)] {
        if play.step(*byte).is_none() {
            return;
        }
        play.check();
    }
    // Lets the server handle the remaining messages.
    while play.read() == Some(true) || play.asks_count() {
        play.check();
    }
    play.check_rest();
}

#[derive(Default)]
struct Play {
    ledger: Ledger,
    server: Server,
    serial: u64,
    /// Serial numbers of messages that are not sent, since the pooler answers them.
    made_up: Vec<u64>,
    /// ReadyForQuery that answered Syncs sent in a copy, less those that the client got.
    withheld: i32,
    /// True if the pooler has asked how many Syncs of a copy were answered.
    has_asked: bool,
    /// True if the server has ended the connection.
    over: bool,
}

impl Play {
    /// Plays one step. Returns `None` at the end of the connection.
    fn step(&mut self, byte: u8) -> Option<()> {
        let outcome = Outcome::ALL[usize::from(byte >> 4) % Outcome::ALL.len()];
        let expect = match byte & 15 {
            0 => Expect::Query,
            1 => Expect::FunctionCall,
            2 | 3 => Expect::Sync,
            4 => Expect::Parse,
            5 => Expect::Bind,
            6 => Expect::Describe,
            7 => Expect::Execute,
            8 => Expect::Close,
            9 => Expect::CopyEnd,
            10 => {
                self.make_up();
                return Some(());
            }
            _ => return self.read().map(|_| ()),
        };
        self.send(expect, outcome);
        Some(())
    }

    fn verb(outcome: Outcome) -> Verb {
        if outcome.is_swallowed() { Verb::Swallow } else { Verb::Forward }
    }

    fn send(&mut self, expect: Expect, outcome: Outcome) {
        // Like the engine, does not send messages that the server will discard, nor a CopyDone
        // outside of a copy.
        if self.ledger.is_skipping() && expect != Expect::Sync {
            return;
        }
        if expect == Expect::CopyEnd && (self.ledger.owes_nothing() || self.ledger.may_enter_copy())
        {
            return;
        }
        let is_copys = matches!(expect, Expect::Sync | Expect::CopyEnd);
        match self.ledger.copy_step() {
            Some(CopyStep::EndFirst) if is_copys => {}
            Some(CopyStep::EndFirst) => return self.enter(Expect::CopyEnd, Outcome::Fails),
            Some(_) => {
                self.asks_count();
                return;
            }
            None => {}
        }
        self.enter(expect, outcome);
    }

    fn enter(&mut self, expect: Expect, outcome: Outcome) {
        // A copy fails before its first message, or because of data: not between two Syncs.
        let is_second = expect == Expect::Sync && self.ledger.may_enter_copy();
        let outcome = if is_second { Outcome::Done } else { outcome };
        self.serial += 1;
        let mut entry = Entry::new(expect, Self::verb(outcome));
        entry.serial = self.serial;
        self.ledger.owe(entry);
        self.server.queue.push_back(Sent { expect, outcome, serial: self.serial });
    }

    /// Asks how many Syncs of a failed copy are answered. False if there is nothing to ask.
    fn asks_count(&mut self) -> bool {
        let asks = !self.over && self.ledger.copy_step() == Some(CopyStep::Count);
        if asks {
            self.has_asked = true;
            self.ledger.ask_count(self.serial + 1, &mut Vec::new());
            self.serial += 2;
            for (expect, serial) in [
                (Expect::Sync, self.serial - 1),
                (Expect::Close, self.serial - 1),
                (Expect::Sync, self.serial),
            ] {
                self.server.queue.push_back(Sent { expect, outcome: Outcome::Weirs, serial });
            }
        }
        asks
    }

    /// Enters a Parse of a statement that the server already has.
    fn make_up(&mut self) {
        if self.ledger.is_skipping() {
            return;
        }
        self.serial += 1;
        let mut entry = Entry::new(Expect::Parse, Verb::Synthesize(Reply::ParseComplete));
        entry.serial = self.serial;
        self.ledger.owe(entry);
        self.made_up.push(self.serial);
        let sent = Sent { expect: Expect::Parse, outcome: Outcome::MadeUp, serial: self.serial };
        self.server.queue.push_back(sent);
    }

    /// Lets the server read and answer a message. Returns false if there was none, and `None` if
    /// the server ends the connection.
    fn read(&mut self) -> Option<bool> {
        if self.over {
            return None;
        }
        self.synthesize();
        let Some(sent) = self.server.queue.pop_front() else { return Some(false) };
        for answer in self.server.answers(sent) {
            let Answer::Reply { code, to } = answer else {
                self.over = true;
                return None;
            };
            self.reply(code, to);
        }
        self.synthesize();
        Some(true)
    }

    fn reply(&mut self, code: u8, sent: Sent) {
        self.synthesize();
        let mut void = Vec::new();
        let is_in_doubt = self.ledger.copies_in_doubt();
        let settled = self.ledger.reply(code, &mut |entry| void.push(entry.serial));
        let settled = match settled {
            Ok(settled) => settled,
            Err(error) => panic!("{error}, in answer to {sent:?}"),
        };
        if is_in_doubt && code == b'Z' && sent.expect == Expect::Sync {
            // The pooler cannot tell its own from the client's, but their number must be right.
            self.withheld += i32::from(sent.outcome != Outcome::Weirs);
            self.withheld -= i32::from(settled.owner == Owner::Client);
        } else {
            assert_eq!(settled.serial, sent.serial, "{:?} to {sent:?}", char::from(code));
            let is_hidden = sent.outcome.is_swallowed() && code != b'E';
            let owner = if is_hidden { Owner::Nobody } else { Owner::Client };
            assert_eq!(settled.owner, owner, "{:?} to {sent:?}", char::from(code));
        }
        if !self.ledger.copies_in_doubt() {
            assert_eq!(self.withheld, 0, "answers to Syncs that the client did not get");
        }
        assert!(void.iter().rev().is_sorted(), "voided out of order: {void:?}");
        self.made_up.retain(|made_up| !void.contains(made_up));
    }

    /// Takes the synthesized replies that are due.
    fn synthesize(&mut self) {
        while self.ledger.next_synthesized().is_some() {
            assert!(!self.made_up.is_empty(), "a reply is made up for nothing");
            let serial = self.made_up.remove(0);
            let mut unread = self.server.queue.iter().filter(|sent| sent.may_be_answered());
            let is_due = unread.next().is_none_or(|next| serial < next.serial);
            assert!(is_due, "a made-up reply comes before those of earlier messages");
        }
    }

    /// Checks that a server called settled is at rest, as its next client requires.
    fn check(&self) {
        if self.ledger.is_at_rest() {
            assert!(self.server.is_at_rest(), "called settled: {:?}", self.server);
            assert!(self.made_up.is_empty(), "settled with replies still to be made up");
        }
    }

    /// Checks that the ledger calls the server settled when everything has been read.
    fn check_rest(&self) {
        // The pooler's Sync has ended the batch, and the client's is still to come.
        let awaits_sync = self.has_asked && self.ledger.is_skipping();
        if !self.over && !awaits_sync && self.server.is_at_rest() {
            assert!(self.ledger.is_at_rest(), "never settles: {:?}", self.ledger);
        }
    }
}
