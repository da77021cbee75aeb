//! The state report: the ParameterStatus `weir.state`, in which the library `weir` describes the
//! server's session (`pool_mode = auto`). `extension/README.md` defines its form.
//! `session/verdict.rs` decides what follows from a report.
//!
//! Weir accepts reports only from a server that it asked for reports and that sent one at its
//! login. Each report has the whole state, so only the last one is kept. Events are not part of the
//! state. They are collected until a verdict on their transactions is taken.

use serde::{Deserialize, Serialize};

use crate::session::left::{ALL, Item, Left, Told};
use crate::session::pins::Pins;
use crate::vars::Slots;

/// The name of the reported parameter.
pub const NAME: &[u8] = b"weir.state";
/// The startup parameter that asks for reports, and the version of the form.
pub const ASK: (&str, &[u8]) = ("weir.report", b"1");
/// The startup parameter that makes the library refuse statements that need a session of their own.
pub const REFUSE: (&str, &[u8]) = ("weir.unsupported", b"error");

/// A longer report is not kept and counts as unknown. The library sends at most 61,440 bytes of state
/// and 256 more.
const LEN_MAX: usize = 65_536;
/// From this version on, the library refuses requests after a text that failed to restore settings.
const REFUSING_VERSION: (u32, u32) = (1, 1);
/// Stands for a report that cannot be read.
const UNKNOWN: &[u8] = b"v1;u";

/// Reasons to keep a server that only events show.
pub const OF_EVENTS: Pins = Pins::LOAD.with(Pins::SEED).with(Pins::SEQUENCE);

/// The reports of one server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateReport {
    /// The last report.
    value: Vec<u8>,
    /// The report before the first transaction that has no verdict yet.
    before: Option<Vec<u8>>,
    /// The number of the last report with events.
    number: u64,
    /// Events of the transactions that have no verdict yet.
    events: Events,
    /// The library's version; 0.0 if it did not say.
    version: (u32, u32),
    /// Can the last report be read?
    is_known: bool,
    /// Is there a report on which no verdict was taken?
    is_news: bool,
    /// Tracked parameters that have changed since the last verdict.
    changed: Slots,
}

/// Things that happened in a session and that its state does not show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// Reasons to keep the server.
    pub pins: Pins,
    /// The numbers of sequences were discarded before the questions that `pins` counts.
    pub discards: bool,
}

impl StateReport {
    /// Reads the report at a server's login. None if the server's reports cannot be used.
    pub fn at_login(value: &[u8]) -> Option<Self> {
        let mut report = Self {
            value: Vec::new(),
            before: None,
            number: 0,
            events: Events::default(),
            version: (0, 0),
            is_known: false,
            is_news: false,
            changed: Slots::default(),
        };
        report.hear(value, false);
        report.is_known.then_some(report)
    }

    /// Takes a report. `is_clients`: a client's statement caused it, not one of Weir's. Returns false
    /// if the report has not the form that Weir knows.
    pub fn hear(&mut self, value: &[u8], is_clients: bool) -> bool {
        let (value, number, events, is_sound) = match read(value) {
            Some(Read { left, number, events, version, is_sound }) => {
                self.is_known = left.is_some();
                self.version = version.unwrap_or(self.version);
                (value, number, events, is_sound)
            }
            None => {
                self.is_known = false;
                (UNKNOWN, None, Events::default(), false)
            }
        };
        if let Some(number) = number {
            let is_next = number == self.number.wrapping_add(1);
            self.number = number;
            if is_clients {
                self.add(events);
                if !is_next {
                    // A report was lost, so any event may have happened.
                    self.add(Events { pins: OF_EVENTS, discards: false });
                }
            }
        }
        let before = std::mem::replace(&mut self.value, value.to_vec());
        if is_clients {
            self.before.get_or_insert(before);
            self.is_news = true;
        }
        is_sound
    }

    fn add(&mut self, events: Events) {
        if events.discards {
            self.events.pins = self.events.pins.without(Pins::SEQUENCE);
            self.events.discards = true;
        }
        self.events.pins |= events.pins;
    }

    /// Does the library refuse requests after a text that failed to restore settings?
    pub fn refuses_requests(&self) -> bool {
        self.version >= REFUSING_VERSION
    }

    pub fn is_known(&self) -> bool {
        self.is_known
    }

    /// The session's state; None if the server cannot report it.
    pub fn state(&self) -> Option<Left> {
        read(&self.value)?.left
    }

    /// The settings of the session before the transactions that have no verdict yet.
    pub fn state_before(&self) -> Option<Left> {
        read(self.before.as_ref().unwrap_or(&self.value))?.left
    }

    /// Is there anything without a verdict?
    pub fn is_news(&self) -> bool {
        self.is_news
    }

    pub fn events(&self) -> Events {
        self.events
    }

    /// A tracked parameter has changed.
    pub fn note_changed(&mut self, slot: usize) {
        self.changed.add(slot);
        self.is_news = true;
    }

    pub fn changed(&self) -> Slots {
        self.changed
    }

    /// A verdict was taken on everything so far.
    pub fn judged(&mut self) {
        self.before = None;
        self.events = Events::default();
        self.is_news = false;
        self.changed = Slots::default();
    }

    /// The last report could not be used. The next one may be complete.
    pub fn put_off(&mut self) {
        self.events = Events::default();
    }

    /// There is something without a verdict.
    pub fn resume(&mut self) {
        self.is_news = true;
    }
}

/// One report.
#[derive(Debug)]
struct Read {
    /// None if the server cannot report its state, or reports something unknown.
    left: Option<Left>,
    number: Option<u64>,
    events: Events,
    version: Option<(u32, u32)>,
    /// Does it contain only what Weir knows?
    is_sound: bool,
}

/// Has the report the form that Weir knows?
pub fn is_sound(value: &[u8]) -> bool {
    read(value).is_some_and(|read| read.is_sound)
}

/// None if the report is malformed or has another version.
fn read(value: &[u8]) -> Option<Read> {
    if value.len() > LEN_MAX || !value.iter().all(|byte| (b' '..=b'~').contains(byte)) {
        return None;
    }
    let mut items = value.split(|byte| *byte == b';');
    if items.next() != Some(b"v1") {
        return None;
    }
    let (mut told, mut is_known, mut is_sound) = (Told::default(), true, true);
    let (mut number, mut events, mut version) = (None, Events::default(), None);
    for item in items {
        match item {
            [b'w', b':', written @ ..] => {
                version = version_of(written);
                is_sound &= version.is_some();
            }
            [b'e', b':', numbered @ ..] => {
                let (its, of_report) = numbered_events(numbered)?;
                (number, events) = (Some(its), of_report);
            }
            b"u" => is_known = false,
            // Only the answer to the probe has these.
            b"s" | b"p" | [b'd' | b'n', ..] => is_sound = false,
            _ => match told.item(item) {
                Item::Known => {}
                Item::Unknown => is_sound = false,
                Item::Malformed => return None,
            },
        }
    }
    is_sound &= !events.pins.contains(Pins::UNVERIFIED);
    is_known &= is_sound;
    let left = is_known.then(|| told.left(ALL));
    Some(Read { left, number, events, version, is_sound })
}

fn numbered_events(numbered: &[u8]) -> Option<(u64, Events)> {
    let at = numbered.iter().position(|byte| *byte == b':')?;
    let digits = Some(&numbered[..at]).filter(|digits| is_digits(digits))?;
    let number = str::from_utf8(digits).ok()?.parse().ok()?;
    let mut events = Events::default();
    for event in numbered[at + 1..].split(|byte| *byte == b',') {
        events.pins |= match event {
            b"discard" => {
                events.discards = true;
                Pins::NONE
            }
            b"currval" | b"lastval" => Pins::SEQUENCE,
            b"setseed" => Pins::SEED,
            b"load" | b"backup" | b"origin" | b"dblink" | b"slot" => Pins::LOAD,
            // An unknown kind of state may stay until the connection ends.
            _ => Pins::LOAD | Pins::UNVERIFIED,
        };
    }
    Some((number, events))
}

fn version_of(written: &[u8]) -> Option<(u32, u32)> {
    let (major, minor) = str::from_utf8(written).ok()?.split_once('.')?;
    let number = |text: &str| text.parse().ok().filter(|_| is_digits(text.as_bytes()));
    Some((number(major)?, number(minor)?))
}

fn is_digits(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn state(value: &str) -> Option<Left> {
        read(value.as_bytes())?.left
    }

    fn at_login(value: &str) -> StateReport {
        StateReport::at_login(value.as_bytes()).expect("a sound report")
    }

    #[test]
    fn every_item_is_what_a_probe_would_have_told() {
        let left = state(
            "v1;s:work_mem=5MB;s:App.Tenant=;s:a=\\303\\244\\134\\075;p:one=PREPARE one AS SELECT 1\\073;l:news;t;k;c",
        )
        .unwrap();
        let settings = left.settings.unwrap();
        assert_eq!(settings.get(b"work_mem"), Some(&b"5MB"[..]));
        assert_eq!(settings.get(b"app.tenant"), Some(&b""[..]));
        assert_eq!(settings.get(b"a"), Some(&b"\xc3\xa4\\="[..]));
        let prepared = left.prepared.unwrap();
        assert_eq!(prepared.get(b"one"), Some(&b"PREPARE one AS SELECT 1;"[..]));
        assert!(left.channels.unwrap().get(b"news").is_some());
        assert_eq!(left.pins, Pins::TEMPORARY | Pins::LOCK | Pins::CURSOR);
        let nothing = state("v1;w:1.0").unwrap();
        assert_eq!((nothing.settings, nothing.pins), (Some(Default::default()), Pins::NONE));
    }

    #[test]
    fn state_that_cannot_be_carried_pins_the_client() {
        let pins = |value: &str| state(value).unwrap().pins;
        assert_eq!(pins("v1;l:\\303\\244"), Pins::LISTEN);
        assert_eq!(pins("v1;p:a=PREPARE a AS SELECT '\\303\\244'"), Pins::PREPARED);
        let many = |letter: char, tail: &str| {
            let all = (0..100).map(|number| format!(";{letter}:n{number}{tail}"));
            format!("v1{}", all.collect::<String>())
        };
        assert_eq!(pins(&many('l', "")), Pins::LISTEN);
        assert_eq!(pins(&many('p', "=SELECT 1")), Pins::PREPARED);
    }

    #[test]
    fn a_report_that_cannot_be_read_counts_as_unknown() {
        let long = format!("v1;s:a={}", "b".repeat(LEN_MAX));
        let all = [
            "",
            "v",
            "v2",
            "v1x",
            "v1;u",
            "v1;x",
            "v1;",
            "v1;T",
            "v1;s:a",
            "v1;s:a=b=c",
            "v1;l:\\8",
            "v1;l:\\000",
            "v1;l:\\400",
            "v1;l:\\+12",
            "v1;l:\u{e4}",
            "v1;l:\n",
            "v1;w:1",
            "v1;w:1.2.3",
            "v1;w:.1",
            "v1;e:1",
            "v1;e:+1:load",
            "v1;e::load",
            "v1;e:1:unheard_of",
            "v1;e:1:",
            &long,
        ];
        for value in all {
            assert_eq!(state(value), None, "{value:.40}");
            assert!(StateReport::at_login(value.as_bytes()).is_none(), "{value:.40}");
        }
    }

    #[test]
    fn settings_of_a_transaction_and_of_ours_are_not_carried() {
        let left = state("v1;s:transaction_isolation=serializable;s:weir.report=1;s:weir.route=a");
        let settings = left.unwrap().settings.unwrap();
        assert_eq!(settings.all().len(), 1);
        assert_eq!(settings.get(b"weir.route"), Some(&b"a"[..]));
    }

    #[test]
    fn events_are_collected_until_they_are_judged() {
        let mut report = at_login("v1;w:1.0");
        report.hear(b"v1;e:1:currval,setseed", true);
        report.hear(b"v1;e:2:lastval,load", true);
        let all = Events { pins: OF_EVENTS, discards: false };
        assert_eq!((report.events(), report.is_news()), (all, true));
        report.hear(b"v1;e:3:discard", true);
        let others = Pins::LOAD | Pins::SEED;
        assert_eq!(report.events(), Events { pins: others, discards: true });
        report.hear(b"v1;e:4:discard,currval", true);
        assert!(report.events().pins.contains(Pins::SEQUENCE));
        report.judged();
        assert_eq!((report.events(), report.is_news()), (Events::default(), false));
        // Weir's own statements do not count as the client's.
        report.hear(b"v1;e:5:load", false);
        assert_eq!((report.events(), report.is_news()), (Events::default(), false));
    }

    #[test]
    fn a_lost_report_counts_as_all_events() {
        for second in ["v1;e:3:setseed", "v1;e:1:setseed"] {
            let mut report = at_login("v1");
            report.hear(b"v1;e:1:setseed", true);
            report.judged();
            report.hear(second.as_bytes(), true);
            assert_eq!(report.events().pins, OF_EVENTS, "{second}");
        }
    }

    #[test]
    fn the_earlier_state_is_known_until_the_verdict() {
        let mut report = at_login("v1");
        let work_mem = |left: Option<Left>| left?.settings?.get(b"work_mem").map(<[u8]>::to_vec);
        report.hear(b"v1;s:work_mem=1MB", false);
        report.hear(b"v1;s:work_mem=2MB", true);
        report.hear(b"v1;s:work_mem=3MB", true);
        assert_eq!(work_mem(report.state_before()), Some(b"1MB".to_vec()));
        report.judged();
        assert_eq!(work_mem(report.state_before()), Some(b"3MB".to_vec()));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
            let _ = read(&[b"v1;", &bytes[..]].concat());
        }

        #[test]
        fn nor_do_items_of_its_own(
            items in prop::collection::vec("[spltkcuwe]:?[a-z0-9\\\\=:,.]{0,20}", 0..8)
        ) {
            let value = format!("v1;{}", items.join(";"));
            let mut report = at_login("v1");
            report.hear(value.as_bytes(), true);
            let is_unknown = report.state().is_none();
            prop_assert_eq!(is_unknown, StateReport::at_login(value.as_bytes()).is_none());
        }
    }
}
