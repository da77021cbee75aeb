//! Finds the place for a request by its texts and hints: the primary, or a standby.

use sql::{Hint, Refusal, Verdict, hint};
use wire::messages::Parse;
use wire::{HEADER_LEN, Header, frontend};

use crate::client::{Client, Extended};
use crate::routing::freshness::{Position, position};
use crate::routing::rules::ReadRules;
use crate::routing::sessions::Harmless;
use crate::routing::why::Why;
use crate::vars::APPLICATION_NAME;

/// The setting by which a session chooses its place.
const ROUTE: &[u8] = b"weir.route";
/// The setting that names a position in the log which the session's reads must see.
const TOKEN: &[u8] = b"weir.token";

/// The place that a request asks for, if it may run on a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish<'a> {
    /// Any standby: the judges allow it.
    Standby,
    /// Any standby: a hint asks for it, and no judge was asked.
    Hinted,
    /// A hint asks for the node of this name.
    Node(&'a [u8]),
}

/// Reads the setting `weir.route`.
fn wish_of_setting(value: &[u8]) -> Result<Option<Wish<'_>>, Why> {
    if value.is_empty() || value.eq_ignore_ascii_case(b"auto") {
        return Ok(None);
    }
    if value.eq_ignore_ascii_case(b"standby") {
        return Ok(Some(Wish::Hinted));
    }
    let name = value.strip_prefix(b"node=").ok_or(Why::Setting)?;
    Ok(Some(Wish::Node(name)))
}

/// The wish of a request, and what the judges say of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked<'a> {
    /// The place, or why the primary must run it.
    pub(crate) place: Result<Wish<'a>, Why>,
    /// If the judges say of each text that it changes no data. A hint is no judgement.
    pub(crate) harmless: Option<Harmless>,
}

impl Asked<'_> {
    pub(crate) fn primary(why: Why) -> Self {
        Self { place: Err(why), harmless: None }
    }
}

/// The verdict of the judges on a text, or why they are not asked.
type Judgement = Result<Verdict, Why>;

/// Returns the wish of a client's request.
pub(crate) fn wish_of<'a>(
    client: &'a Client,
    request: &'a [u8],
    rules: &ReadRules,
    judge: impl FnMut(&[u8]) -> Judgement,
) -> Asked<'a> {
    let vars = &client.vars;
    if rules.lists_application(vars.get(APPLICATION_NAME).unwrap_or_default()) {
        return Asked::primary(Why::List);
    }
    if !vars.channels.is_empty() {
        return Asked::primary(Why::Listens);
    }
    let mut setting = None;
    if !vars.carried.is_empty() {
        setting = match wish_of_setting(vars.carried.get(ROUTE).unwrap_or_default()) {
            Ok(setting) => setting,
            Err(why) => return Asked::primary(why),
        };
        let isolation = vars.carried.get(b"default_transaction_isolation");
        if isolation.is_some_and(|level| level.eq_ignore_ascii_case(b"serializable")) {
            return Asked::primary(Why::Text(Refusal::Serializable));
        }
    }
    wish(request, client.extended.as_deref(), setting, judge)
}

/// Returns the position that the session's reads must see; 0 = none.
pub(crate) fn token_of(client: &Client) -> Result<Position, Why> {
    match client.vars.carried.get(TOKEN).unwrap_or_default() {
        b"" => Ok(0),
        text => position(text).ok_or(Why::Setting),
    }
}

/// Returns the wish of a whole request. `setting` is the session's own wish. All texts of a batch
/// count, also those of statements that were prepared earlier.
fn wish<'a>(
    request: &'a [u8],
    known: Option<&'a Extended>,
    setting: Option<Wish<'a>>,
    mut judge: impl FnMut(&[u8]) -> Judgement,
) -> Asked<'a> {
    let (mut found, mut harmless) = (None, Some(Harmless::Set));
    let walked = each_text(request, known, |text| {
        let verdict = judge(text);
        let is_judged_read = matches!(verdict, Ok(Verdict::Read | Verdict::ReadOnlyTransaction));
        harmless = match is_lone_set(text) {
            true => harmless,
            false => harmless.filter(|_| is_judged_read).map(|_| Harmless::Read),
        };
        let own = wish_of_text(text, setting, found.is_none(), verdict);
        found = Some(match (found, own) {
            (None | Some(Ok(Wish::Standby)), own) => own,
            (Some(Ok(_)), Err(why)) | (Some(Err(why)), _) => Err(why),
            (Some(Ok(earlier)), Ok(_)) => Ok(earlier),
        });
    });
    match walked {
        // A batch without a text runs nothing.
        Ok(()) => Asked { place: found.unwrap_or(Err(Why::Text(Refusal::Empty))), harmless },
        Err(why) => Asked::primary(why),
    }
}

/// Visits the texts that a request runs.
pub(super) fn each_text<'a>(
    request: &'a [u8],
    known: Option<&'a Extended>,
    mut visit: impl FnMut(&'a [u8]),
) -> Result<(), Why> {
    let mut prepared: Vec<&[u8]> = Vec::new();
    let mut at = 0;
    while let Some(rest) = request.get(at..).filter(|rest| !rest.is_empty()) {
        let Ok(Some(header)) = Header::parse(rest) else { return Err(Why::Long) };
        let body = rest.get(HEADER_LEN..header.total).ok_or(Why::Long)?;
        at += header.total;
        let text = match header.code {
            frontend::QUERY => body.strip_suffix(b"\0").unwrap_or(body),
            frontend::PARSE => {
                let parse = Parse::decode(body).map_err(|_| Why::Unknown)?;
                prepared.push(parse.name);
                parse.sql
            }
            frontend::BIND => {
                let name = body.split(|byte| *byte == 0).nth(1).ok_or(Why::Unknown)?;
                if prepared.contains(&name) {
                    continue;
                }
                earlier(name, known).ok_or(Why::Unknown)?
            }
            frontend::FUNCTION_CALL => return Err(Why::Text(Refusal::Opaque)),
            // They concern portals and statements of this batch, or run nothing.
            _ => continue,
        };
        visit(text);
    }
    Ok(())
}

/// Does the text only change a setting of its session? Then the log of the primary has nothing new.
fn is_lone_set(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    let text = text.strip_suffix(b";").unwrap_or(text);
    let word = text.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    (word.eq_ignore_ascii_case(b"set") || word.eq_ignore_ascii_case(b"reset"))
        && !text.contains(&b';')
}

fn earlier<'a>(name: &[u8], known: Option<&'a Extended>) -> Option<&'a [u8]> {
    let known = known?;
    if name.is_empty() && !known.unnamed.exists() {
        return None;
    }
    known.text_of(name).filter(|text| !text.is_empty())
}

fn wish_of_text<'a>(
    text: &'a [u8],
    setting: Option<Wish<'a>>,
    is_first: bool,
    verdict: Judgement,
) -> Result<Wish<'a>, Why> {
    match hint(text) {
        Some(Hint::Primary | Hint::Unknown(_)) => return Err(Why::Hint),
        Some(Hint::Standby) => return Ok(Wish::Hinted),
        Some(Hint::Node(name)) => return Ok(Wish::Node(name)),
        None => {}
    }
    let verdict = verdict?;
    if let Some(setting) = setting {
        return Ok(setting);
    }
    match verdict {
        Verdict::Read => Ok(Wish::Standby),
        Verdict::ReadOnlyTransaction if is_first => Ok(Wish::Standby),
        Verdict::ReadOnlyTransaction => Err(Why::Text(Refusal::Transaction)),
        Verdict::Refused(refusal) => Err(Why::Text(refusal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        frontend::query(&mut out, text.as_bytes());
        out
    }

    fn batch(parts: &[(u8, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        for (code, body) in parts {
            out.push(*code);
            out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
            out.extend_from_slice(body);
        }
        out
    }

    fn judge(text: &[u8]) -> Judgement {
        Ok(sql::read_verdict(text, sql::scan_either(text), None).verdict)
    }

    #[test]
    fn the_text_and_its_hint_decide() {
        for (text, expected) in [
            ("SELECT 1", Ok(Wish::Standby)),
            ("BEGIN READ ONLY", Ok(Wish::Standby)),
            ("BEGIN", Err(Why::Text(Refusal::Transaction))),
            ("UPDATE t SET a = 1", Err(Why::Text(Refusal::Writes))),
            ("/* weir: standby */ SELECT f()", Ok(Wish::Hinted)),
            ("/* weir: node=b */ SELECT 1", Ok(Wish::Node(b"b"))),
            ("/* weir: primary */ SELECT 1", Err(Why::Hint)),
            ("/* weir: elsewhere */ SELECT 1", Err(Why::Hint)),
            ("", Err(Why::Text(Refusal::Empty))),
        ] {
            assert_eq!(wish(&query(text), None, None, judge).place, expected, "{text}");
        }
    }

    #[test]
    fn a_hint_is_no_judgement() {
        let (read, set) = (Some(Harmless::Read), Some(Harmless::Set));
        for (text, harmless) in [
            ("SELECT 1", read),
            ("/* weir: standby */ SELECT 1", read),
            ("/* weir: node=b */ SELECT 1", read),
            ("/* weir: primary */ SELECT 1", read),
            ("/* weir: standby */ INSERT INTO t VALUES (1)", None),
            ("UPDATE t SET a = 1", None),
            ("SET weir.token = '0/1'", set),
            (" reset weir.token;", set),
            ("SET weir.token = '0/1'; DELETE FROM t", None),
            ("SELECT nextval('s')", None),
        ] {
            assert_eq!(wish(&query(text), None, None, judge).harmless, harmless, "{text}");
        }
        let read: (u8, &[u8]) = (b'P', b"a\0SELECT 1\0\0\0");
        let write: (u8, &[u8]) = (b'P', b"b\0/*weir:standby*/DELETE FROM t\0\0\0");
        let both = batch(&[read, write, (b'S', b"")]);
        let hinted = Asked { place: Ok(Wish::Hinted), harmless: None };
        assert_eq!(wish(&both, None, None, judge), hinted);
    }

    #[test]
    fn the_setting_stands_behind_a_hint() {
        let standby = wish_of_setting(b"standby").expect("a wish");
        assert_eq!(wish(&query("SELECT f()"), None, standby, judge).place, Ok(Wish::Hinted));
        let primary = query("/* weir: primary */ SELECT 1");
        assert_eq!(wish(&primary, None, standby, judge).place, Err(Why::Hint));
        assert_eq!(wish_of_setting(b"node=c"), Ok(Some(Wish::Node(b"c"))));
        assert_eq!(wish_of_setting(b"auto"), Ok(None));
        assert_eq!(wish_of_setting(b"Standby"), Ok(standby));
        assert_eq!(wish_of_setting(b"AUTO"), Ok(None));
        assert_eq!(wish_of_setting(b"primary"), Err(Why::Setting));
        assert_eq!(wish_of_setting(b"nowhere"), Err(Why::Setting));
    }

    #[test]
    fn a_list_stands_behind_a_hint_and_before_the_setting() {
        let listed = |_: &[u8]| Err(Why::List);
        let standby = wish_of_setting(b"standby").expect("a wish");
        let place = |text| wish(&query(text), None, standby, listed).place.map(drop);
        assert_eq!(place("SELECT 1"), Err(Why::List));
        assert_eq!(place("/* weir: standby */ SELECT 1"), Ok(()));
        let harmless = wish(&query("SELECT 1"), None, None, listed).harmless;
        assert_eq!(harmless, None, "nobody has judged it");
    }

    #[test]
    fn every_text_of_a_batch_counts() {
        let read: (u8, &[u8]) = (b'P', b"a\0SELECT 1\0\0\0");
        let write: (u8, &[u8]) = (b'P', b"b\0DELETE FROM t\0\0\0");
        let bind: (u8, &[u8]) = (b'B', b"\0a\0\0\0\0\0\0\0");
        let execute: (u8, &[u8]) = (b'E', b"\0\0\0\0\0");
        let sync: (u8, &[u8]) = (b'S', b"");
        let reads = batch(&[read, bind, execute, sync]);
        assert_eq!(wish(&reads, None, None, judge).place, Ok(Wish::Standby));
        let both = batch(&[read, bind, execute, write, sync]);
        assert_eq!(wish(&both, None, None, judge).place, Err(Why::Text(Refusal::Writes)));
        let stranger = batch(&[bind, execute, sync]);
        assert_eq!(wish(&stranger, None, None, judge).place, Err(Why::Unknown));
        let known = Extended::default();
        assert_eq!(wish(&stranger, Some(&known), None, judge).place, Err(Why::Unknown));
        assert_eq!(wish(&batch(&[sync]), None, None, judge).place, Err(Why::Text(Refusal::Empty)));
    }
}
