//! Finds the place for a request by its texts and hints: the primary, or a standby.

use sql::{Hint, Refusal, Verdict, hint};
use wire::messages::Parse;
use wire::{HEADER_LEN, Header, frontend};

use crate::client::Extended;
use crate::routing::why::Why;

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
pub(crate) fn wish_of_setting(value: &[u8]) -> Result<Option<Wish<'_>>, Why> {
    match value {
        b"" | b"auto" => Ok(None),
        b"standby" => Ok(Some(Wish::Hinted)),
        value => match value.strip_prefix(b"node=") {
            Some(name) => Ok(Some(Wish::Node(name))),
            None => Err(Why::Setting),
        },
    }
}

/// Returns the wish of a whole request, or why the primary must run it. `setting` is the session's
/// own wish. All texts of a batch count, also those of statements that were prepared earlier.
pub(crate) fn wish<'a>(
    request: &'a [u8],
    known: Option<&'a Extended>,
    setting: Option<Wish<'a>>,
    mut judge: impl FnMut(&[u8]) -> Verdict,
) -> Result<Wish<'a>, Why> {
    let mut found = None;
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
        let own = wish_of_text(text, setting, found.is_none(), &mut judge)?;
        found = Some(match found {
            None | Some(Wish::Standby) => own,
            Some(earlier) => earlier,
        });
    }
    // A batch without a text runs nothing.
    found.ok_or(Why::Text(Refusal::Empty))
}

fn earlier<'a>(name: &[u8], known: Option<&'a Extended>) -> Option<&'a [u8]> {
    let known = known?;
    if name.is_empty() && known.unnamed == 0 {
        return None;
    }
    known.text_of(name).filter(|text| !text.is_empty())
}

fn wish_of_text<'a>(
    text: &'a [u8],
    setting: Option<Wish<'a>>,
    is_first: bool,
    judge: &mut impl FnMut(&[u8]) -> Verdict,
) -> Result<Wish<'a>, Why> {
    match hint(text) {
        Some(Hint::Primary | Hint::Unknown(_)) => return Err(Why::Hint),
        Some(Hint::Standby) => return Ok(Wish::Hinted),
        Some(Hint::Node(name)) => return Ok(Wish::Node(name)),
        None => {}
    }
    if let Some(setting) = setting {
        return Ok(setting);
    }
    match judge(text) {
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

    fn judge(text: &[u8]) -> Verdict {
        sql::read_verdict(text, sql::scan_either(text), None).verdict
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
            assert_eq!(wish(&query(text), None, None, judge), expected, "{text}");
        }
    }

    #[test]
    fn the_setting_stands_behind_a_hint() {
        let standby = wish_of_setting(b"standby").expect("a wish");
        assert_eq!(wish(&query("SELECT f()"), None, standby, judge), Ok(Wish::Hinted));
        let primary = query("/* weir: primary */ SELECT 1");
        assert_eq!(wish(&primary, None, standby, judge), Err(Why::Hint));
        assert_eq!(wish_of_setting(b"node=c"), Ok(Some(Wish::Node(b"c"))));
        assert_eq!(wish_of_setting(b"auto"), Ok(None));
        assert_eq!(wish_of_setting(b"primary"), Err(Why::Setting));
        assert_eq!(wish_of_setting(b"nowhere"), Err(Why::Setting));
    }

    #[test]
    fn every_text_of_a_batch_counts() {
        let read: (u8, &[u8]) = (b'P', b"a\0SELECT 1\0\0\0");
        let write: (u8, &[u8]) = (b'P', b"b\0DELETE FROM t\0\0\0");
        let bind: (u8, &[u8]) = (b'B', b"\0a\0\0\0\0\0\0\0");
        let execute: (u8, &[u8]) = (b'E', b"\0\0\0\0\0");
        let sync: (u8, &[u8]) = (b'S', b"");
        let reads = batch(&[read, bind, execute, sync]);
        assert_eq!(wish(&reads, None, None, judge), Ok(Wish::Standby));
        let both = batch(&[read, bind, execute, write, sync]);
        assert_eq!(wish(&both, None, None, judge), Err(Why::Text(Refusal::Writes)));
        let stranger = batch(&[bind, execute, sync]);
        assert_eq!(wish(&stranger, None, None, judge), Err(Why::Unknown));
        let known = Extended::default();
        assert_eq!(wish(&stranger, Some(&known), None, judge), Err(Why::Unknown));
        assert_eq!(wish(&batch(&[sync]), None, None, judge), Err(Why::Text(Refusal::Empty)));
    }
}
