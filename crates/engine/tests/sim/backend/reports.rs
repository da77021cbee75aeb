//! The library `weir` in a simulated server: it reports the session's state in the form of
//! `extension/README.md`. Also servers that lack it, and servers that answer otherwise.

use std::collections::BTreeSet;

use wire::{backend, frontend};

use super::{Backend, Block};
use crate::settings::{CURSOR, FORGED, LOCK, OBJECT};

/// The name of the reported parameter, and of the startup parameter that asks for reports.
const NAME: &[u8] = b"weir.state";
pub(super) const ASK: &str = "weir.report";
/// The startup parameter whose first half marks texts that restore settings.
pub(super) const KEY: &str = "weir.key";
const HALF_LEN: usize = 16;

/// A server whose library is `Unsure` cannot tell the state in every such report.
const UNSURE_EVERY: usize = 5;

/// A server's library, or its substitute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Library {
    #[default]
    Absent,
    Loaded,
    /// Version 1.0, which runs requests after a text that failed to restore settings.
    Older,
    /// It is loaded, and sometimes cannot tell the state.
    Unsure,
    /// It sends items that Weir does not know.
    Newer,
    /// Another pooler is in between. It refuses the parameter that asks for reports.
    Refused,
    /// The library is absent. Something else reports a client's own setting of that name.
    Forged,
}

/// The reports of one session.
#[derive(Debug, Default)]
pub(super) struct Reporter {
    pub(super) library: Library,
    /// Has the startup packet asked for reports?
    pub(super) is_asked: bool,
    /// The state that was last reported; empty before the first report.
    last: Vec<u8>,
    /// Events since then, in the order of the report.
    events: BTreeSet<&'static str>,
    /// The number of the last report with events.
    number: usize,
    /// The number of reports, including those that were left out since nothing had changed.
    count: usize,
    pub(super) key: Vec<u8>,
    /// Is the current message a text that restores settings?
    is_restoring: bool,
    /// Has the last such text failed?
    refuses: bool,
    /// Has it reported since the client's last request, in an answer to the pooler, that the state
    /// is unknown? The pooler may use no later report.
    doubts: bool,
}

impl Reporter {
    fn is_on(&self) -> bool {
        self.is_asked
            && match self.library {
                Library::Loaded | Library::Older | Library::Unsure | Library::Newer => true,
                Library::Absent | Library::Refused | Library::Forged => false,
            }
    }

    /// Has it reported that the state is unknown?
    pub(super) fn is_unsure(&self) -> bool {
        self.doubts || self.library == Library::Unsure && self.last == b"v1;u"
    }

    /// A client's request comes.
    pub(super) fn trust(&mut self) {
        self.doubts = false;
    }
}

impl Backend {
    /// Something has happened that the state does not show.
    pub(super) fn note_event(&mut self, event: &'static str) {
        if event == "discard" {
            self.reporter.events.remove("lastval");
        }
        self.reporter.events.insert(event);
    }

    /// A message begins. Is it refused, because the last text that restores settings has failed?
    pub(super) fn refuses_message(&mut self, code: u8, body: &[u8]) -> bool {
        let reporter = &mut self.reporter;
        let half = reporter.key.get(..HALF_LEN).unwrap_or_default();
        let mark = [b"/*weir ", half, b"*/"].concat();
        let guards = reporter.is_on() && reporter.library != Library::Older && !half.is_empty();
        reporter.is_restoring = guards && code == frontend::QUERY && body.starts_with(&mark);
        if reporter.is_restoring {
            reporter.refuses = false;
        }
        reporter.refuses
    }

    /// An error goes out.
    pub(super) fn note_error(&mut self) {
        self.reporter.refuses |= self.reporter.is_restoring;
    }

    /// Writes the report that precedes ReadyForQuery, if one is due.
    pub(super) fn write_report(&mut self) {
        if self.block != Block::Idle {
            return;
        }
        if let Some(forged) = self.forged_report() {
            return backend::parameter_status(&mut self.buffered, NAME, forged.as_bytes());
        }
        if !self.reporter.is_on() {
            return;
        }
        self.reporter.count += 1;
        let cannot = self.reporter.library == Library::Unsure
            && self.reporter.count.is_multiple_of(UNSURE_EVERY);
        let state = if cannot { b"v1;u".to_vec() } else { self.state() };
        let reporter = &mut self.reporter;
        reporter.doubts |= cannot && self.asker.is_none();
        let is_first = reporter.last.is_empty();
        if !is_first && reporter.events.is_empty() && state == reporter.last {
            return;
        }
        let mut report = state.clone();
        reporter.last = state;
        if is_first {
            let version: &[u8] = match reporter.library {
                Library::Older => b";w:1.0",
                Library::Newer => b";w:2.0",
                Library::Absent
                | Library::Loaded
                | Library::Unsure
                | Library::Refused
                | Library::Forged => b";w:1.1",
            };
            report.extend_from_slice(version);
        }
        if !reporter.events.is_empty() {
            reporter.number += 1;
            let events: Vec<_> = std::mem::take(&mut reporter.events).into_iter().collect();
            let item = format!(";e:{}:{}", reporter.number, events.join(","));
            report.extend_from_slice(item.as_bytes());
        }
        backend::parameter_status(&mut self.buffered, NAME, &report);
    }

    /// The client has set the parameter itself, and the server reports that.
    fn forged_report(&mut self) -> Option<String> {
        let value = self.settings.get(FORGED).filter(|value| !value.is_empty())?.to_owned();
        let is_news =
            self.reporter.library == Library::Forged && self.reporter.last != value.as_bytes();
        self.reporter.last = value.clone().into_bytes();
        is_news.then_some(value)
    }

    fn state(&self) -> Vec<u8> {
        let mut items = self.state_items(true, true);
        if self.reporter.library == Library::Newer {
            items.push(b"z:1".to_vec());
        }
        items.insert(0, b"v1".to_vec());
        items.join(&b';')
    }

    /// Returns the content of the session, in the text form that Weir reads.
    pub(super) fn state_items(&self, settings: bool, objects: bool) -> Vec<Vec<u8>> {
        let set = self.settings.set_in_session().filter(|_| settings);
        let set = set.map(|(name, value)| item(b's', name.as_bytes(), Some(value.as_bytes())));
        let prepared = self.statements.iter().filter(|(_, one)| objects && one.from_sql);
        let prepared = prepared.map(|(name, one)| item(b'p', name, Some(&one.sql)));
        let channels = self.ears.channels().iter().filter(|_| objects);
        let channels = channels.map(|name| item(b'l', name.as_bytes(), None));
        let pins = [(OBJECT, b"t"), (LOCK, b"k"), (CURSOR, b"c")];
        let there = pins.iter().filter(|(name, _)| objects && self.settings.is_there(name));
        let there = there.map(|(_, letter)| letter.to_vec());
        set.chain(prepared).chain(channels).chain(there).collect()
    }
}

pub(super) fn item(letter: u8, name: &[u8], value: Option<&[u8]>) -> Vec<u8> {
    let mut item = vec![letter, b':'];
    escape(name, &mut item);
    if let Some(value) = value {
        item.push(b'=');
        escape(value, &mut item);
    }
    item
}

fn escape(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        match byte {
            b'\\' | b';' | b'=' | 0..b' ' | 0x7f.. => {
                out.extend_from_slice(format!("\\{byte:03o}").as_bytes());
            }
            plain => out.push(plain),
        }
    }
}
