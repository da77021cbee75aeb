//! The operator moves the database and has all servers replaced. He pauses the pools, waits until
//! no server is left, and resumes them, while the workers run.

use shuttle::thread;

use super::{
    Fault, Letter, PAUSED, Stage, hub,
    mailbox::Mailbox,
    note,
    sync::{Arc, Ordering},
};

/// After this many looks at the pools, a pause counts as endless.
const LOOKS_MAX: usize = 20_000;

pub(super) struct Operator {
    pub(super) stage: Arc<Stage>,
    pub(super) orders: u32,
    pub(super) fault: Fault,
}

impl Operator {
    pub(super) fn run(self) {
        for _ in 0..self.orders {
            self.reconnect();
            self.pause(true);
            self.wait_for_rest();
            self.stage.at_rest.store(1, Ordering::SeqCst);
            thread::yield_now();
            self.stage.at_rest.store(0, Ordering::SeqCst);
            self.pause(false);
        }
        self.tell_all(|| Letter::End);
    }

    fn reconnect(&self) {
        self.stage.place.fetch_add(1, Ordering::SeqCst);
        for pool in self.stage.hub.pools() {
            hub::lock(&pool).replace_servers();
        }
        self.tell_all(|| Letter::Review);
    }

    fn pause(&self, paused: bool) {
        if self.fault == Fault::ToldTooEarly {
            self.tell_all(|| Letter::Review);
        }
        let done: Result<(), ()> = self.stage.hub.switch(|switches| {
            switches.paused = paused;
            Ok(())
        });
        done.unwrap();
        if self.fault != Fault::ToldTooEarly {
            self.tell_all(|| Letter::Review);
        }
    }

    fn wait_for_rest(&self) {
        let is_empty = || {
            let pools = self.stage.hub.pools();
            pools.iter().all(|pool| hub::lock(pool).counts().0 == 0)
        };
        for _ in 0..LOOKS_MAX {
            if is_empty() {
                return;
            }
            note(&PAUSED);
            thread::yield_now();
        }
        panic!("a pause never ends");
    }

    fn tell_all(&self, letter: impl Fn() -> Letter) {
        let boxes = self.stage.hub.mailboxes();
        boxes.iter().for_each(|mailbox: &Mailbox<Letter, _>| mailbox.post(letter()));
    }
}
