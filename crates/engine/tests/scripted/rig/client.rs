//! A scripted client: sends messages and compares the answers.

use super::net::ClientEnd;
use super::world::PARAMETERS;
use super::*;
use wire::{ErrorFields, backend};

/// Removes DETAIL and HINT of Weir's own errors where the expected error has none. The tests of
/// `own_error.rs` are about these fields.
fn without_advice(got: &[u8], expected: &[u8]) -> Vec<u8> {
    let split = |mut bytes: &[u8]| -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        while let Ok(Some(header)) = wire::Header::parse(bytes)
            && header.total <= bytes.len()
        {
            let (message, rest) = bytes.split_at(header.total);
            messages.push(message.to_vec());
            bytes = rest;
        }
        messages.push(bytes.to_vec());
        messages
    };
    let fatal = |message: &[u8]| {
        let fields = (message.first() == Some(&b'E')).then(|| ErrorFields::decode(&message[5..]));
        fields?.ok().filter(|fields| fields.get(b'S') == Some(b"FATAL"))
    };
    let is_advice = |code: u8| matches!(code, b'D' | b'H');
    let expected = split(expected);
    let messages = split(got).into_iter().enumerate().map(|(at, message)| {
        let wanted = expected.get(at).and_then(|wanted| fatal(wanted));
        match (wanted, fatal(&message)) {
            (Some(wanted), Some(mut fields))
                if !wanted.fields.iter().any(|(code, _)| is_advice(*code)) =>
            {
                fields.fields.retain(|(code, _)| !is_advice(*code));
                messages::built(|out| backend::error(out, &fields))
            }
            _ => message,
        }
    });
    messages.flatten().collect()
}

impl Client {
    fn end<R>(&self, f: impl FnOnce(&mut ClientEnd) -> R) -> R {
        f(&mut self.world.borrow_mut().net.clients[self.at])
    }

    pub(crate) fn send(&self, messages: impl IntoIterator<Item = Message>) {
        let bytes: Vec<u8> = messages.into_iter().flatten().collect();
        self.end(|end| end.unread.extend(bytes));
        self.world.borrow_mut().pump();
    }

    /// Sends a startup packet of alice for database `app`.
    pub(crate) fn say_hello(&self, parameters: &[(&str, &str)]) {
        let mut all = vec![("user", "alice"), ("database", "app")];
        all.extend_from_slice(parameters);
        self.send([startup(&all)]);
    }

    /// Sends a startup packet of alice for database `app` with protocol 3.2.
    pub(crate) fn say_hello_3_2(&self) {
        let mut hello = startup(&[("user", "alice"), ("database", "app")]);
        hello[7] = 2;
        self.send([hello]);
    }

    /// Takes a login answer of protocol 3.2. Returns the cancel key.
    pub(crate) fn take_long_key(&self) -> (u32, Vec<u8>) {
        let got = self.take();
        let end = got.len() - ready('I').len();
        let begin = end - wire::cancel_key::LONG_SECRET_LEN - 4;
        let pid = u32::from_be_bytes(got[begin..begin + 4].try_into().expect("four bytes"));
        (pid, got[begin + 4..end].to_vec())
    }

    /// Sends a startup packet of another user.
    pub(crate) fn say_hello_as(&self, user: &str, database: &str) {
        self.send([startup(&[("user", user), ("database", database)])]);
    }

    /// Exactly these messages have arrived since the last check.
    #[track_caller]
    pub(crate) fn expect(&self, messages: impl IntoIterator<Item = Message>) {
        let expected: Vec<u8> = messages.into_iter().flatten().collect();
        let got = without_advice(&self.end(|end| std::mem::take(&mut end.got)), &expected);
        assert_eq!(show(&got), show(&expected), "what client {} got", self.at);
    }

    /// These messages came first of all that has arrived since the last check. The rest stays.
    #[track_caller]
    pub(crate) fn expect_part(&self, messages: impl IntoIterator<Item = Message>) {
        let expected: Vec<u8> = messages.into_iter().flatten().collect();
        let got = without_advice(&self.end(|end| std::mem::take(&mut end.got)), &expected);
        let (first, rest) = got.split_at(expected.len().min(got.len()));
        assert_eq!(show(first), show(&expected), "what client {} got first", self.at);
        self.end(|end| end.got = rest.to_vec());
    }

    /// The client was told that its server is lost, and was disconnected.
    #[track_caller]
    pub(crate) fn expect_lost(&self) {
        self.expect([fatal("08006", CloseReason::Lost.text())]);
        assert!(!self.is_open(), "still open");
    }

    /// The client got this error and was disconnected.
    #[track_caller]
    pub(crate) fn expect_fatal(&self, text: &str) {
        self.expect([fatal("08P01", text)]);
        assert!(!self.is_open(), "still open");
    }

    /// The client is logged in. It was told its own values, and the server's for all others.
    #[track_caller]
    pub(crate) fn expect_welcome(&self, own: &[(&str, &str)]) -> (u32, Vec<u8>) {
        let got = without_news_of_the_pooler(&self.end(|end| std::mem::take(&mut end.got)));
        let parameters: Vec<Message> = PARAMETERS
            .iter()
            .map(|(name, value)| {
                let given = own.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
                status(name, given.map_or(value, |(_, value)| value))
            })
            .collect();
        let key = got.len().checked_sub(14).expect("a welcome, not nothing");
        let (pid, secret) = (&got[key..key + 4], &got[key + 4..key + 8]);
        let pid = u32::from_be_bytes(pid.try_into().expect("four bytes"));
        let expected =
            [messages::authentication_ok(), parameters.concat(), key_data(pid, secret), ready('I')];
        assert_eq!(show(&got), show(&expected.concat()));
        assert!(pid >> 31 == 0, "the top bit of the process id is clear");
        (pid, secret.to_vec())
    }

    /// Takes the bytes that have arrived since the last check.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.end(|end| std::mem::take(&mut end.got))
    }

    /// The number of bytes that it has sent and that Weir has not read.
    pub(crate) fn unread(&self) -> usize {
        self.end(|end| end.unread.len())
    }

    /// Closes its socket.
    pub(crate) fn leave(&self) {
        self.end(|end| end.left = true);
        self.world.borrow_mut().pump();
    }

    /// Reports an event on its socket, although there is nothing to read.
    pub(crate) fn poke(&self) {
        self.end(|end| end.poked = true);
        self.world.borrow_mut().pump();
    }

    /// `slow`: it stops reading. Otherwise it reads again.
    pub(crate) fn set_slow(&self, slow: bool) {
        self.end(|end| end.slow = slow);
        self.world.borrow_mut().pump();
    }

    /// Sends Terminate, where Weir needs no server to read it.
    pub(crate) fn say_goodbye(&self) {
        self.world.borrow_mut().say_goodbye(self.at);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.end(|end| end.id.is_some())
    }

    /// May an online restart stop reading it, and may it move to the next process now?
    pub(crate) fn can_move(&self) -> (bool, bool) {
        let (worker, id) = self.end(|end| (end.worker, end.id.expect("open")));
        let engine = &self.world.borrow().engines[worker];
        (engine.look().client_can_stop(id), engine.look().may_move(id))
    }

    /// Would SUSPEND regard it as idle?
    pub(crate) fn is_at_rest(&self) -> bool {
        let (worker, id) = self.end(|end| (end.worker, end.id.expect("open")));
        self.world.borrow().engines[worker].look().client_at_rest(id)
    }
}

/// Removes the parameters by which Weir describes itself. `welcome.rs` tests those.
fn without_news_of_the_pooler(mut messages: &[u8]) -> Vec<u8> {
    let mut rest = Vec::new();
    while let Some(len) = messages.get(1..5) {
        let len = u32::from_be_bytes(len.try_into().expect("four bytes")) as usize + 1;
        let (message, behind) = messages.split_at(len);
        if !message[5..].starts_with(b"pgbouncer.") {
            rest.extend_from_slice(message);
        }
        messages = behind;
    }
    rest
}
