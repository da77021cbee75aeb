//! The tickets of backends that are to come to a lobby. The engine announces a backend when it has
//! read the end of its login, and the backend shows its ticket as soon as it is idle. Either may
//! happen first. Plain data.

use std::collections::{HashMap, VecDeque};

use engine::shell::Attending;

use super::super::control::Hello;

/// Most backends that are known to have gone. One of which nothing is known counts as silent after
/// five seconds.
const GONE_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Tickets {
    /// Announced, by ticket.
    expected: HashMap<String, Attending>,
    /// Shown and not announced, by the backend's number.
    early: HashMap<usize, Hello>,
    /// Shown, and gone before the engine has announced them.
    gone: VecDeque<Hello>,
}

/// Where is the backend that the engine announces?
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Announced {
    /// It will show its ticket.
    Expected,
    /// It has shown its ticket.
    Here(usize, Hello),
    /// It has ended its connection, because Weir did not answer in time.
    Gone(Attending),
}

/// Whose ticket does a backend show?
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Announced(Attending, Hello),
    /// The engine has not announced it yet.
    Early,
    /// Another backend's.
    Wrong,
}

impl Tickets {
    pub(super) fn announce(&mut self, server: Attending) -> Announced {
        if let Some(at) = self.gone.iter().position(|hello| is_expected(hello, &server)) {
            self.gone.remove(at);
            return Announced::Gone(server);
        }
        let here = self.early.extract_if(|_, hello| is_expected(hello, &server)).next();
        self.expected.insert(server.ticket.clone(), server);
        match here {
            Some((number, hello)) => Announced::Here(number, hello),
            None => Announced::Expected,
        }
    }

    /// Backend `number` shows its ticket. An announced one leaves the list.
    pub(super) fn show(&mut self, number: usize, hello: Hello) -> Shown {
        match self.expected.remove(&hello.ticket) {
            Some(server) if is_expected(&hello, &server) => Shown::Announced(server, hello),
            Some(server) => {
                self.expected.insert(hello.ticket, server);
                Shown::Wrong
            }
            None if self.early.contains_key(&number) => Shown::Wrong,
            None => {
                self.early.insert(number, hello);
                Shown::Early
            }
        }
    }

    /// The connection of backend `number` has ended.
    pub(super) fn end(&mut self, number: usize) {
        let Some(hello) = self.early.remove(&number) else { return };
        if self.gone.len() == GONE_MAX {
            self.gone.pop_front();
        }
        self.gone.push_back(hello);
    }

    /// The engine no longer has this server. Returns whether its backend was to come.
    pub(super) fn withdraw(&mut self, serial: u64) -> bool {
        self.expected.extract_if(|_, server| server.serial == serial).count() > 0
    }

    /// Has every announced backend come?
    pub(super) fn is_empty(&self) -> bool {
        self.expected.is_empty()
    }
}

/// Is this the backend of that server? Other sessions may have read the ticket, as in
/// `pg_stat_activity`.
fn is_expected(hello: &Hello, server: &Attending) -> bool {
    hello.ticket == server.ticket && hello.process == server.process
}

#[cfg(test)]
mod tests {
    use engine::ids::{PoolId, ServerId, WorkerId};

    use super::*;

    const NUMBER: usize = 5;

    fn server(process: u32) -> Attending {
        let (pool, server, worker) = (PoolId(0), ServerId(0), WorkerId(0));
        let (ticket, serial) = (format!("of {process}"), u64::from(process));
        Attending { ticket, process, pool, server, serial, worker }
    }

    fn hello(ticket: &str, process: u32) -> Hello {
        Hello { ticket: ticket.to_owned(), process, layout: room::LAYOUT }
    }

    fn shown(process: u32) -> Shown {
        Shown::Announced(server(process), hello(&format!("of {process}"), process))
    }

    #[test]
    fn a_backend_may_come_before_it_is_announced_or_after() {
        let mut tickets = Tickets::default();
        assert_eq!(tickets.announce(server(1)), Announced::Expected);
        assert!(!tickets.is_empty());
        assert_eq!(tickets.show(NUMBER, hello("of 1", 1)), shown(1));
        assert!(tickets.is_empty());
        assert_eq!(tickets.show(NUMBER, hello("of 2", 2)), Shown::Early);
        let here = Announced::Here(NUMBER, hello("of 2", 2));
        assert_eq!(tickets.announce(server(2)), here);
        assert_eq!(tickets.show(NUMBER, hello("of 2", 2)), shown(2));
    }

    #[test]
    fn one_that_has_gone_meanwhile_is_not_expected() {
        let mut tickets = Tickets::default();
        for process in 0..=GONE_MAX as u32 {
            let number = process as usize;
            assert_eq!(
                tickets.show(number, hello(&format!("of {process}"), process)),
                Shown::Early
            );
            tickets.end(number);
        }
        // Nothing is known of the first one any more.
        assert_eq!(tickets.announce(server(0)), Announced::Expected);
        assert_eq!(tickets.announce(server(1)), Announced::Gone(server(1)));
        assert_eq!(tickets.announce(server(1)), Announced::Expected);
    }

    #[test]
    fn a_ticket_is_of_use_to_its_backend_only() {
        let mut tickets = Tickets::default();
        assert_eq!(tickets.announce(server(4711)), Announced::Expected);
        assert_eq!(tickets.show(NUMBER, hello("of 4711", 4712)), Shown::Wrong);
        assert_eq!(tickets.show(NUMBER, hello("of 4711", 4711)), shown(4711));
        // An early one that shows another's is not taken for it.
        assert_eq!(tickets.show(NUMBER, hello("of 1", 2)), Shown::Early);
        assert_eq!(tickets.announce(server(1)), Announced::Expected);
    }

    #[test]
    fn a_backend_shows_one_ticket() {
        let mut tickets = Tickets::default();
        assert_eq!(tickets.show(NUMBER, hello("of 1", 1)), Shown::Early);
        assert_eq!(tickets.show(NUMBER, hello("of 2", 2)), Shown::Wrong);
    }

    #[test]
    fn a_server_that_has_ended_is_not_expected() {
        let mut tickets = Tickets::default();
        assert_eq!(tickets.announce(server(1)), Announced::Expected);
        assert_eq!(tickets.announce(server(2)), Announced::Expected);
        assert!(tickets.withdraw(1));
        assert_eq!(tickets.show(NUMBER, hello("of 1", 1)), Shown::Early);
        assert_eq!(tickets.show(NUMBER + 1, hello("of 2", 2)), shown(2));
    }
}
