//! Clients at rest with settings and a statement, which must be there at the end.

use testkit::{RawClient, frontend};

use crate::stage::{Access, Stage};
use crate::verdict::Verdict;

const COUNT: usize = 200;

#[derive(Debug)]
pub(crate) struct Sleepers {
    clients: Vec<RawClient>,
    next: usize,
}

impl Sleepers {
    pub(crate) fn log_in(access: &Access) -> Self {
        let clients = (0..COUNT).map(|number| {
            let mut client = access.client(&access.steady);
            client.rows(&format!("SET app.sleeper = '{number}'; SET work_mem = '5MB'"));
            let text = format!("SELECT {number} + $1::int");
            client.send([frontend::parse("own", &text), frontend::sync()].concat());
            client.read_to_ready();
            client
        });
        Self { clients: clients.collect(), next: 0 }
    }

    /// Wakes the next one.
    pub(crate) fn check_one(&mut self, verdict: &Verdict) {
        let number = self.next;
        self.next = (number + 1) % COUNT;
        verdict.judge("sleeper", || self.wake(number));
    }

    /// Wakes them all.
    pub(crate) fn check(&mut self, verdict: &Verdict, stage: &Stage) {
        (0..COUNT).for_each(|number| verdict.judge("sleeper", || self.wake(number)));
        let shown = stage.pooler.admin("SHOW CLIENTS").with("database", &stage.steady);
        let count = shown.column("id").len();
        verdict.judge("sleepers", || assert_eq!(count, COUNT, "clients that are still there"));
    }

    fn wake(&mut self, number: usize) {
        let client = &mut self.clients[number];
        assert_eq!(client.value("SHOW app.sleeper"), number.to_string());
        assert_eq!(client.value("SHOW work_mem"), "5MB");
        let bind = frontend::bind("", "own", &[Some("1")]);
        client.send([bind, frontend::execute("", 0), frontend::sync()].concat());
        let answer = client.read_to_ready();
        let row = answer.iter().find(|message| message.tag == b'D').map(|message| message.row());
        assert_eq!(row, Some(vec![Some((number + 1).to_string())]), "{answer:?}");
    }
}
