//! A scripted server: expects Weir's messages and answers them.

use super::net::{Place, ServerEnd};
use super::*;

impl Server {
    fn end<R>(&self, f: impl FnOnce(&mut ServerEnd) -> R) -> R {
        f(&mut self.world.borrow_mut().net.servers[self.at])
    }

    /// Accepts the connection (scripts only).
    pub(crate) fn connect(&self) {
        let world = &mut *self.world.borrow_mut();
        let end = &mut world.net.servers[self.at];
        end.connected = true;
        let Place::Table(id) = end.place else { panic!("it waits for nothing") };
        let worker = end.worker;
        world.engines[worker].server_connected(id, &mut world.net.io(worker));
        world.pump();
    }

    /// Refuses the connection.
    pub(crate) fn refuse(&self) {
        let world = &mut *self.world.borrow_mut();
        let end = &mut world.net.servers[self.at];
        let Place::Table(id) = end.place else { panic!("it waits for nothing") };
        let worker = end.worker;
        let io = &mut world.net.io(worker);
        world.engines[worker].server_closed(id, CloseReason::ConnectFailed, io);
        world.pump();
    }

    pub(crate) fn send(&self, messages: impl IntoIterator<Item = Message>) {
        let bytes: Vec<u8> = messages.into_iter().flatten().collect();
        self.end(|end| end.unread.extend(bytes));
        self.world.borrow_mut().pump();
    }

    #[track_caller]
    pub(crate) fn expect(&self, messages: impl IntoIterator<Item = Message>) {
        let expected: Vec<u8> = messages.into_iter().flatten().collect();
        let got = self.take();
        assert_eq!(show(&got), show(&expected), "what server {} got", self.at);
    }

    /// Expects this query and answers it.
    #[track_caller]
    pub(crate) fn answers(&self, sql: &str) {
        self.expect([messages::query(sql)]);
        self.send([messages::done("OK")]);
    }

    /// Expects this query, which leaves it in a failed transaction.
    #[track_caller]
    pub(crate) fn answers_with_failure(&self, sql: &str) {
        self.expect([messages::query(sql)]);
        self.send([messages::error("3B001", "no such savepoint"), ready('E')]);
    }

    pub(crate) fn take(&self) -> Vec<u8> {
        self.end(|end| std::mem::take(&mut end.got))
    }

    /// Its process is killed.
    pub(crate) fn die(&self) {
        self.end(|end| end.left = true);
        self.world.borrow_mut().pump();
    }

    /// Reports an event on its socket, although there is nothing to read.
    pub(crate) fn poke(&self) {
        self.end(|end| end.poked = true);
        self.world.borrow_mut().pump();
    }

    /// From now on, what is sent to it waits.
    pub(crate) fn get_stuck(&self) {
        self.end(|end| end.stuck = true);
    }

    /// Its socket breaks. Weir finds out when it next sends.
    pub(crate) fn break_silently(&self) {
        self.end(|end| end.broken = true);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.end(|end| end.place != Place::Closed)
    }

    /// Does it have no client?
    pub(crate) fn is_parked(&self) -> bool {
        self.end(|end| matches!(end.place, Place::Detached(..)))
    }

    pub(crate) fn worker(&self) -> usize {
        self.end(|end| end.worker)
    }

    pub(crate) fn pid(&self) -> u32 {
        pid_of(self.at)
    }

    pub(crate) fn startup(&self) -> Vec<u8> {
        self.end(|end| end.startup.clone())
    }

    pub(crate) fn target(&self) -> String {
        self.end(|end| end.target.clone())
    }
}
