//! Names of character encodings in PostgreSQL's spelling (manual, chapter 24.3).
//!
//! PostgreSQL accepts aliases and ignores case and punctuation. It then reports `client_encoding`
//! by the encoding's own name. Weir reports that name at login, when there may be no server to ask.

/// Each encoding's name and its aliases. Only letters and digits are compared.
const NAMES: [(&str, &[&str]); 42] = [
    ("BIG5", &["win950", "windows950"]),
    ("EUC_CN", &[]),
    ("EUC_JIS_2004", &[]),
    ("EUC_JP", &[]),
    ("EUC_KR", &[]),
    ("EUC_TW", &[]),
    ("GB18030", &[]),
    ("GBK", &["win936", "windows936"]),
    ("ISO_8859_5", &[]),
    ("ISO_8859_6", &[]),
    ("ISO_8859_7", &[]),
    ("ISO_8859_8", &[]),
    ("JOHAB", &[]),
    ("KOI8R", &["koi8"]),
    ("KOI8U", &[]),
    ("LATIN1", &["iso88591"]),
    ("LATIN10", &["iso885916"]),
    ("LATIN2", &["iso88592"]),
    ("LATIN3", &["iso88593"]),
    ("LATIN4", &["iso88594"]),
    ("LATIN5", &["iso88599"]),
    ("LATIN6", &["iso885910"]),
    ("LATIN7", &["iso885913"]),
    ("LATIN8", &["iso885914"]),
    ("LATIN9", &["iso885915"]),
    ("MULE_INTERNAL", &[]),
    ("SHIFT_JIS_2004", &[]),
    ("SJIS", &["mskanji", "shiftjis", "win932", "windows932"]),
    ("SQL_ASCII", &[]),
    ("UHC", &["win949", "windows949"]),
    (UTF8, &["unicode"]),
    ("WIN1250", &["windows1250"]),
    ("WIN1251", &["win", "windows1251"]),
    ("WIN1252", &["windows1252"]),
    ("WIN1253", &["windows1253"]),
    ("WIN1254", &["windows1254"]),
    ("WIN1255", &["windows1255"]),
    ("WIN1256", &["windows1256"]),
    ("WIN1257", &["windows1257"]),
    ("WIN1258", &["abc", "tcvn", "tcvn5712", "vscii", "windows1258"]),
    ("WIN866", &["alt", "windows866"]),
    ("WIN874", &["windows874"]),
];

pub const UTF8: &str = "UTF8";

/// PostgreSQL leaves this one spelling as it is, for old JDBC drivers.
const UNICODE: &[u8] = b"UNICODE";

/// Returns a value of `client_encoding` as PostgreSQL reports it. An unknown name is returned
/// unchanged.
pub fn reported(value: &[u8]) -> &[u8] {
    // Nearly all clients send one of these.
    if value == UTF8.as_bytes() || value == UNICODE {
        value
    } else {
        name(value).map_or(value, str::as_bytes)
    }
}

/// Returns the encoding's own name.
fn name(value: &[u8]) -> Option<&'static str> {
    let is_it = |name: &&str| letters(name.as_bytes()).eq(letters(value));
    let mut all = NAMES.iter();
    all.find(|(name, others)| is_it(name) || others.iter().any(&is_it)).map(|one| one.0)
}

/// The letters that Weir's own query can contain, whatever encoding the server reads it in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Letters {
    Ascii,
    /// The letters of UTF-8.
    Utf8,
    /// Any bytes: each is a letter.
    Bytes,
}

impl Letters {
    /// Returns the letters for a database with the encoding `server` and a client with `client`.
    pub fn of(server: Option<&[u8]>, client: Option<&[u8]>) -> Self {
        const OF_ONE_BYTE: [&str; 5] = ["SQL_ASCII", "LATIN", "ISO_", "WIN", "KOI8"];
        let [server, client] = [server, client].map(|value| value.and_then(name));
        match server.filter(|_| server == client) {
            Some(UTF8) => Self::Utf8,
            Some(name) if OF_ONE_BYTE.iter().any(|kind| name.starts_with(kind)) => Self::Bytes,
            Some(_) | None => Self::Ascii,
        }
    }

    /// Are all characters of the text such letters? None if that is unknown.
    pub fn include(self, text: &[u8]) -> Option<bool> {
        match self {
            _ if text.is_ascii() => Some(true),
            Self::Ascii => None,
            Self::Utf8 => Some(str::from_utf8(text).is_ok()),
            Self::Bytes => Some(true),
        }
    }
}

fn letters(name: &[u8]) -> impl Iterator<Item = u8> {
    name.iter().filter(|byte| byte.is_ascii_alphanumeric()).map(u8::to_ascii_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_reported_as_postgresql_spells_it() {
        for (given, name) in [
            ("eucjp", "EUC_JP"),
            ("Euc-Jis_2004", "EUC_JIS_2004"),
            ("utf-8", "UTF8"),
            ("'utf8'", "UTF8"),
            ("Unicode", "UTF8"),
            ("UNICODE", "UNICODE"),
            ("iso-8859-1", "LATIN1"),
            ("ISO 8859-16", "LATIN10"),
            ("windows-932", "SJIS"),
            ("sql_ascii", "SQL_ASCII"),
            ("klingon", "klingon"),
            ("auto", "auto"),
            ("", ""),
        ] {
            assert_eq!(reported(given.as_bytes()), name.as_bytes(), "{given}");
        }
    }

    #[test]
    fn letters_are_the_same_for_client_and_server_or_ascii() {
        let of = |server: &str, client: &str| {
            Letters::of(Some(server.as_bytes()), Some(client.as_bytes()))
        };
        assert_eq!(of("UTF8", "UNICODE"), Letters::Utf8);
        assert_eq!(of("LATIN1", "LATIN1"), Letters::Bytes);
        assert_eq!(of("SQL_ASCII", "SQL_ASCII"), Letters::Bytes);
        for (server, client) in [("UTF8", "LATIN1"), ("EUC_JP", "EUC_JP"), ("UTF8", "klingon")] {
            assert_eq!(of(server, client), Letters::Ascii);
        }
        assert_eq!(Letters::of(None, None), Letters::Ascii);
        let broken = [0xef, 0x65, 0xe8];
        assert_eq!(Letters::Ascii.include(&broken), None);
        assert_eq!(Letters::Utf8.include(&broken), Some(false));
        assert_eq!(Letters::Bytes.include(&broken), Some(true));
    }

    #[test]
    fn no_spelling_is_that_of_two_encodings() {
        let all = NAMES.iter().flat_map(|(name, others)| std::iter::once(name).chain(*others));
        let mut all: Vec<Vec<u8>> = all.map(|name| letters(name.as_bytes()).collect()).collect();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
