//! Names of PostgreSQL's own that tell of the node, or hide what is read.
//!
//! Every name that begins with `pg_` is suspected, but those in `node/same.txt`: catalogs that are
//! ordinary tables, views of such catalogs alone, and functions of these. The standby has the same
//! rows in them. The end-to-end test `sql::catalog` compares the list with the servers.

use crate::names::Names;
use crate::reads::verdict::Refusal;
use crate::walk::Part;

/// Not among them: `now()` and other clocks, `random()`, the current user, the database's name.
const TELLS: &str = "\
information_schema
inet_client_addr
inet_client_port
inet_server_addr
inet_server_port
mxid_age
txid_current
txid_current_if_assigned
txid_current_snapshot
txid_snapshot_xip
txid_snapshot_xmax
txid_snapshot_xmin
txid_status
txid_visible_in_snapshot
version
";

/// They read what a string or a cursor names.
const HIDES: &str = "\
cursor_to_xml
cursor_to_xmlschema
database_to_xml
database_to_xml_and_xmlschema
database_to_xmlschema
query_to_xml
query_to_xml_and_xmlschema
query_to_xmlschema
schema_to_xml
schema_to_xml_and_xmlschema
schema_to_xmlschema
table_to_xml
table_to_xml_and_xmlschema
table_to_xmlschema
ts_rewrite
ts_stat
";

static TELLING: Names<32> = Names::of(TELLS);
static HIDING: Names<32> = Names::of(HIDES);
static SAME: Names<512> = Names::of(include_str!("node/same.txt"));

/// Returns why a text with this name is no read.
pub(crate) fn refusal_of_name(name: &[u8]) -> Option<Refusal> {
    if let [b'p', b'g', b'_', rest @ ..] = name {
        let locks = rest.starts_with(b"advisory") || rest.starts_with(b"try_advisory");
        return match locks {
            true => Some(Refusal::Locks),
            false => SAME.find(name).is_none().then_some(Refusal::Node),
        };
    }
    if TELLING.find(name).is_some() {
        return Some(Refusal::Node);
    }
    HIDING.find(name).is_some().then_some(Refusal::Opaque)
}

/// Follows calls of `current_setting`. A server's own settings depend on the node. A custom setting
/// of an application (`app.tenant`) is one of the session, which Weir sets on each server. Its name
/// must be a literal and nothing else: `'app.tenant'` or `'app.tenant'::text`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SettingCall {
    #[default]
    None,
    /// The function's name has come.
    Named,
    /// Its parenthesis is open.
    Opened,
    /// The setting's name has come.
    Literal,
    /// Within `::`.
    Cast,
    /// After `::text`.
    Typed,
}

impl SettingCall {
    /// Takes the next token, which is written as `raw`.
    pub(crate) fn next(self, part: Part<'_>, raw: &[u8]) -> Result<Self, Refusal> {
        match (self, part) {
            (Self::None, _) | (Self::Literal | Self::Typed, Part::Symbol(b',' | b')')) => {
                Ok(Self::None)
            }
            (Self::Named, Part::Symbol(b'(')) => Ok(Self::Opened),
            (Self::Opened, Part::String) if is_custom(raw) => Ok(Self::Literal),
            (Self::Literal | Self::Cast, Part::Symbol(b':')) => Ok(Self::Cast),
            (Self::Cast, Part::Word(name)) if name.as_bytes() == b"text" => Ok(Self::Typed),
            (
                Self::Named | Self::Opened | Self::Literal | Self::Cast | Self::Typed,
                Part::Word(_)
                | Part::Quoted(_)
                | Part::String
                | Part::Number
                | Part::Operator(_)
                | Part::Symbol(_)
                | Part::Unclear,
            ) => Err(Refusal::Node),
        }
    }
}

/// Is this literal the name of a custom setting, and not of one that PostgreSQL's own modules have?
fn is_custom(literal: &[u8]) -> bool {
    const MODULES: [&[u8]; 3] = [b"pg_", b"plpgsql.", b"auto_explain."];
    let names =
        |module: &[u8]| literal.windows(module.len()).any(|part| part.eq_ignore_ascii_case(module));
    literal.contains(&b'.') && !literal.contains(&b'\\') && !MODULES.into_iter().any(names)
}
