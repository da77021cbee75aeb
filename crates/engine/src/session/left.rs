//! The content of a session, as PostgreSQL tells it: the library by reports, without the library the
//! answer to the probe.

use crate::notify::listening::CHANNELS_MAX;
use crate::session::carried::{Carried, Setting};
use crate::session::pins::Pins;
use crate::session::written::{pair_of, setting_of, text};

/// Settings that belong to a transaction and not to the session, although PostgreSQL lists them
/// with the others.
const OF_TRANSACTION: [&[u8]; 3] =
    [b"transaction_isolation", b"transaction_read_only", b"transaction_deferrable"];

/// The prefix of the library `weir`'s settings.
pub(crate) const OURS: &[u8] = b"weir.";
/// The settings of the library that clients may set.
const OF_CLIENTS: [&[u8]; 2] = [b"weir.route", b"weir.token"];

/// The parts of a session's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topics {
    /// Settings that the session has set.
    pub settings: bool,
    /// Objects that keep a client on its server, such as temporary tables.
    pub objects: bool,
}

/// All parts.
pub(crate) const ALL: Topics = Topics { settings: true, objects: true };

/// The content of a session.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// The settings, including tracked parameters, if the probe asked for them.
    pub settings: Option<Carried>,
    /// Application settings whose values are the server's own defaults. PostgreSQL does not tell
    /// whether the session has set such a value.
    pub defaults: Carried,
    /// Statements of SQL's PREPARE that other servers can prepare: name and text. Set if the probe
    /// asked for objects.
    pub prepared: Option<Carried>,
    /// The names, of those asked for, that still have a statement.
    pub lent: Vec<Box<[u8]>>,
    /// Channels that the session listens to, if the probe asked for objects. If they are too many
    /// or not ASCII, the client keeps its server instead.
    pub channels: Option<Carried>,
    pub pins: Pins,
}

/// The parts of a session's content that have been told so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    settings: Vec<Setting>,
    defaults: Vec<Setting>,
    /// Bytes that the settings take, including those beyond the limit.
    settings_len: usize,
    /// Names of statements, and the texts that prepared them.
    prepared: Vec<Setting>,
    /// Names of lent statements that still exist.
    lent: Vec<Box<[u8]>>,
    channels: Vec<Box<[u8]>>,
    pins: Pins,
}

/// The reading of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Known,
    Unknown,
    Malformed,
}

impl Told {
    /// Takes an item of the text form.
    pub(crate) fn item(&mut self, item: &[u8]) -> Item {
        let pins = match item {
            b"t" => Some(Pins::TEMPORARY),
            b"k" => Some(Pins::LOCK),
            b"c" => Some(Pins::CURSOR),
            // Too long to be told.
            b"s" | b"d" => Some(Pins::SETTING),
            b"p" => Some(Pins::PREPARED),
            [b's', b':', pair @ ..] => self.setting(pair),
            [b'd', b':', pair @ ..] => self.server_default(pair),
            [b'p', b':', pair @ ..] => self.statement(pair),
            [b'l', b':', name @ ..] => self.channel(name),
            [b'n', b':', name @ ..] => text(name).map(|name| {
                self.lent.push(name);
                Pins::NONE
            }),
            _ => return Item::Unknown,
        };
        match pins {
            Some(pins) => {
                self.pins |= pins;
                Item::Known
            }
            None => Item::Malformed,
        }
    }

    /// Takes a setting. Returns the reasons to keep the server if the setting cannot be carried.
    fn setting(&mut self, pair: &[u8]) -> Option<Pins> {
        let setting = setting_of(pair)?;
        self.settings_len += setting.name.len() + setting.value.len();
        if self.settings_len > SETTINGS_LEN_MAX {
            return Some(Pins::SETTING);
        }
        self.settings.push(setting);
        Some(Pins::NONE)
    }

    fn server_default(&mut self, pair: &[u8]) -> Option<Pins> {
        let pins = self.setting(pair)?;
        self.defaults.extend(self.settings.pop_if(|_| pins.is_empty()));
        Some(pins)
    }

    /// Takes a statement. Returns the reasons to keep the server if the statement cannot be carried.
    fn statement(&mut self, pair: &[u8]) -> Option<Pins> {
        let statement = pair_of(pair)?;
        if self.prepared.len() >= PREPARED_MAX {
            return Some(Pins::PREPARED);
        }
        self.prepared.push(statement);
        Some(Pins::NONE)
    }

    pub(crate) fn channel(&mut self, name: &[u8]) -> Option<Pins> {
        let name = text(name)?;
        // One more than can be carried shows that they are too many.
        if self.channels.len() <= CHANNELS_MAX {
            self.channels.push(name);
        }
        Some(Pins::NONE)
    }

    /// Returns the content of the session.
    pub(crate) fn left(self, topics: Topics) -> Left {
        let Self { mut settings, defaults, prepared, lent, channels, mut pins, .. } = self;
        settings.retain(|one| !OF_TRANSACTION.contains(&&*one.name) && !is_ours(&one.name));
        let fits = !pins.contains(Pins::PREPARED);
        let prepared = portable(prepared).filter(|_| fits).unwrap_or_else(|| {
            pins |= Pins::PREPARED;
            Carried::default()
        });
        if channels.len() > CHANNELS_MAX || channels.iter().any(|name| !name.is_ascii()) {
            pins |= Pins::LISTEN;
        }
        let channels = channels.into_iter().filter(|name| name.is_ascii());
        Left {
            settings: topics.settings.then(|| Carried::new(settings)),
            defaults: Carried::new(defaults),
            channels: topics.objects.then(|| Carried::names(channels)),
            prepared: topics.objects.then_some(prepared),
            lent,
            pins,
        }
    }
}

/// Is this a setting of the library `weir`? If the library is not loaded, any user can set a name
/// with this prefix.
fn is_ours(name: &[u8]) -> bool {
    name.starts_with(OURS) && !OF_CLIENTS.contains(&name)
}

/// Limit of the names and values of carried settings, in bytes. With more, the client keeps its
/// server.
const SETTINGS_LEN_MAX: usize = 65_536;

/// Limit of carried statements, and of the length of their texts. With more, the client keeps its
/// server, since each further server would have to prepare all of them.
const PREPARED_MAX: usize = 16;
const PREPARED_LEN_MAX: usize = 16_384;

/// Returns the statements with the texts that prepare them on another server. None if a statement
/// has no such text, or if there are too many.
fn portable(prepared: Vec<Setting>) -> Option<Carried> {
    if prepared.len() > PREPARED_MAX {
        return None;
    }
    let own = |one: Setting| {
        // The meaning of other letters depends on the client's encoding. The meaning of a backslash
        // depends on standard_conforming_strings, which can even change the number of statements.
        if !one.name.is_ascii() || !one.value.is_ascii() || one.value.contains(&b'\\') {
            return None;
        }
        let value = own_text(&one.name, &one.value)?.into();
        Some(Setting { value, ..one })
    };
    let all = prepared.into_iter().map(own).collect::<Option<Vec<_>>>()?;
    let len: usize = all.iter().map(|one| one.value.len()).sum();
    (len <= PREPARED_LEN_MAX).then(|| Carried::new(all))
}

/// PostgreSQL returns the whole string in which a PREPARE stood. This returns the part of this
/// PREPARE.
fn own_text<'a>(name: &[u8], text: &'a [u8]) -> Option<&'a [u8]> {
    if sql::statements(text, true).nth(1).is_none() {
        // The statement as it was written, up to the semicolon.
        return Some(text);
    }
    let mut found = sql::statements(text, true).filter(|one| {
        let own = one.name.clone().and_then(|range| text.get(range));
        one.verb == sql::Verb::Prepare && own.is_some_and(|own| *sql::identifier(own) == *name)
    });
    let own = found.next()?;
    found.next().is_none().then(|| text.get(own.range)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(items: &[&str]) -> Told {
        let mut told = Told::default();
        for item in items {
            assert_eq!(told.item(item.as_bytes()), Item::Known, "{item}");
        }
        told
    }

    fn left(items: &[&str]) -> Left {
        told(items).left(ALL)
    }

    #[test]
    fn settings_and_reasons_are_told_apart() {
        let left =
            left(&["s:role=bob", "s:transaction_isolation=serializable", "t", "l:news", "n:mine"]);
        assert_eq!(left.lent, [b"mine"[..].into()]);
        let settings = left.settings.unwrap();
        assert_eq!(settings.get(b"role"), Some(&b"bob"[..]));
        assert_eq!(settings.all().len(), 1);
        assert_eq!(left.pins, Pins::TEMPORARY);
        assert_eq!(left.channels, Some(Carried::names(std::iter::once(b"news"[..].into()))));
    }

    #[test]
    fn what_cannot_be_carried_pins_the_client() {
        let letters = left(&[r"l:\303\244"]);
        assert_eq!((letters.channels, letters.pins), (Some(Carried::default()), Pins::LISTEN));
        let nothing = left(&[]);
        assert_eq!((nothing.settings, nothing.pins), (Some(Carried::default()), Pins::NONE));
        let long = left(&["s"]);
        assert_eq!((long.settings, long.pins), (Some(Carried::default()), Pins::SETTING));
        assert_eq!(left(&["d"]).pins, Pins::SETTING);
        assert_eq!(left(&[r"p:a=PREPARE a AS SELECT '\303\244'"]).pins, Pins::PREPARED);
        let unasked = Told::default().left(Topics { settings: false, objects: false });
        assert_eq!(unasked, Left::default());
    }

    #[test]
    fn a_default_is_no_setting() {
        let left = left(&["d:app.x=1", "s:App.Y=2"]);
        assert_eq!(left.defaults.get(b"app.x"), Some(&b"1"[..]));
        let settings = left.settings.unwrap();
        assert_eq!((settings.get(b"app.x"), settings.get(b"app.y")), (None, Some(&b"2"[..])));
    }

    #[test]
    fn a_statement_is_carried_by_its_own_text() {
        let prepared = |name: &str, text: &str| {
            let text = text.replace('\\', r"\134").replace(';', r"\073").replace('=', r"\075");
            let left = left(&[&format!("p:{name}={text}")]);
            let own = left.prepared.unwrap();
            let text = own.get(name.as_bytes()).map(|text| String::from_utf8_lossy(text).into());
            (text, left.pins)
        };
        let carried = |text: &str| (Some(text.to_owned()), Pins::NONE);
        let pinned = (None, Pins::PREPARED);
        assert_eq!(prepared("a", "PREPARE a AS SELECT 1;"), carried("PREPARE a AS SELECT 1;"));
        assert_eq!(
            prepared("B", "SELECT 1; prepare \"B\"(int) as select $1; DO ''"),
            carried("prepare \"B\"(int) as select $1")
        );
        assert_eq!(prepared("a", "PREPARE b AS SELECT 1; SELECT 2"), pinned);
        assert_eq!(
            prepared("a", "PREPARE a AS SELECT 'it\\'s'; INSERT INTO t VALUES ('x')"),
            pinned
        );
        assert_eq!(
            prepared("a", "PREPARE a AS SELECT 1; DEALLOCATE a; PREPARE a AS SELECT 2"),
            pinned
        );
        assert_eq!(prepared("a", &format!("PREPARE a AS SELECT {}", "1".repeat(20_000))), pinned);
    }

    #[test]
    fn more_settings_than_are_carried_are_not_kept_here() {
        let items: Vec<_> =
            (0..100).map(|at| format!("s:app.x{at}={}", "x".repeat(1_000))).collect();
        let items: Vec<_> = items.iter().map(String::as_str).collect();
        let left = left(&items);
        assert_eq!((left.settings.unwrap().all().len(), left.pins), (65, Pins::SETTING));
    }

    #[test]
    fn of_statements_that_are_too_long_or_too_many_none_is_carried() {
        let all: Vec<_> =
            (0..=PREPARED_MAX).map(|at| format!("p:a{at}=PREPARE a{at} AS SELECT 1")).collect();
        let many: Vec<_> = all.iter().map(String::as_str).collect();
        for items in [&["p:a=PREPARE a AS SELECT 1", "p"][..], &many] {
            let left = left(items);
            assert_eq!((left.prepared, left.pins), (Some(Carried::default()), Pins::PREPARED));
        }
        assert_eq!(left(&many[1..]).pins, Pins::NONE);
    }

    #[test]
    fn items_without_a_meaning_are_told_apart_from_broken_ones() {
        let read = |item: &str| Told::default().item(item.as_bytes());
        for unknown in ["", "x", "T", "u", "w:1.0"] {
            assert_eq!(read(unknown), Item::Unknown, "{unknown}");
        }
        for broken in ["s:a", "s:a=b=c", r"l:\8", r"n:\000", "p:a", "d:"] {
            assert_eq!(read(broken), Item::Malformed, "{broken}");
        }
    }
}
