//! A user's secret in `auth_file` or `auth_query`.

use std::fmt;

use crate::md5;
use crate::scram::ScramVerifier;

/// A password in one of PostgreSQL's three forms. `Debug` shows only which.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// `md5` and 32 digits, as [`md5::hash`] makes it.
    Md5(String),
    /// The password itself.
    Plain(String),
    Scram(ScramVerifier),
}

impl Secret {
    /// Recognises the form as PostgreSQL does: everything else than the two hashed forms is a
    /// cleartext password, including an empty one.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        if md5::is_stored(text) {
            return Self::Md5(text.to_owned());
        }
        match ScramVerifier::parse(text) {
            Some(verifier) => Self::Scram(verifier),
            None => Self::Plain(text.to_owned()),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Md5(_) => "Md5(..)",
            Self::Plain(_) => "Plain(..)",
            Self::Scram(_) => "Scram(..)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERIFIER: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

    #[test]
    fn the_form_is_told_by_its_looks() {
        let md5 = md5::hash(b"u", b"p");
        assert_eq!(Secret::parse(&md5), Secret::Md5(md5.clone()));
        assert!(matches!(Secret::parse(VERIFIER), Secret::Scram(_)));
        for plain in
            ["", "secret", "md5", "md5xyz", &md5.to_uppercase(), &md5[..34], "SCRAM-SHA-256$"]
        {
            assert_eq!(Secret::parse(plain), Secret::Plain(plain.to_owned()));
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let md5 = md5::hash(b"u", b"p");
        let shown = ["hunter2", &md5, VERIFIER].map(|text| format!("{:?}", Secret::parse(text)));
        assert_eq!(shown, ["Plain(..)", "Md5(..)", "Scram(..)"]);
    }
}
