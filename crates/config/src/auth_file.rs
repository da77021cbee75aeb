//! The users and secrets of `auth_file`, read as PgBouncer reads them.
//!
//! Each line is `"user" "secret"`; a quote inside is doubled, what follows the second text is
//! ignored, and a line that begins with `;` is a comment. A secret is a plain password, `md5` and
//! 32 hexadecimal digits, or a SCRAM verifier; telling these apart is the engine's part. As in
//! PgBouncer, a broken line ends the reading but not the start: the users before it can log in.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use crate::error::Mistake;
use crate::reason::{AuthFileError, Reason};

/// A user name must be shorter than this, in bytes.
const USER_LEN_MAX: usize = 128;
/// A secret must be shorter than this, in bytes.
const SECRET_LEN_MAX: usize = 65_531;

/// Users and their secrets, as stored in the file.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AuthFile {
    pub users: BTreeMap<String, String>,
}

impl AuthFile {
    /// Returns the secret of the alphabetically next user. An unknown user is treated like that
    /// user, and so always in the same way.
    pub fn decoy_secret(&self, user: &str) -> Option<&str> {
        let behind = self.users.range::<str, _>((Bound::Excluded(user), Bound::Unbounded)).next();
        behind.or_else(|| self.users.first_key_value()).map(|(_, secret)| secret.as_str())
    }

    /// Reads the content of a file; the warnings name what could not be read.
    pub fn parse(content: &[u8], file: &Arc<str>) -> (Self, Vec<Mistake>) {
        let mut reader = Reader { content, position: 0, start: 0 };
        let mut auth_file = Self::default();
        let mut warnings = Vec::new();
        loop {
            match reader.entry() {
                Ok(None) => break,
                Ok(Some((user, secret))) => {
                    match (String::from_utf8(user), String::from_utf8(secret)) {
                        (Ok(user), Ok(secret)) => drop(auth_file.users.insert(user, secret)),
                        _ => warnings.push(Mistake::in_file(
                            file,
                            reader.line(),
                            Reason::UserNotUtf8,
                        )),
                    }
                }
                Err(error) => {
                    let reason = Reason::AuthFile(error);
                    warnings.push(Mistake::in_file(file, reader.line(), reason));
                    break;
                }
            }
        }
        (auth_file, warnings)
    }
}

/// Names only; secrets stay out of logs.
impl fmt::Debug for AuthFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.users.keys()).finish()
    }
}

/// A user and its secret, not yet known to be UTF-8.
type Entry = (Vec<u8>, Vec<u8>);

struct Reader<'a> {
    content: &'a [u8],
    position: usize,
    /// The position at which the present entry begins.
    start: usize,
}

impl Reader<'_> {
    fn entry(&mut self) -> Result<Option<Entry>, AuthFileError> {
        loop {
            self.skip_while(|byte| byte.is_ascii_whitespace() || byte == 0x0b);
            self.start = self.position;
            match self.peek() {
                None => return Ok(None),
                Some(b';') => self.skip_line(),
                Some(b'"') => break,
                Some(_) => return Err(AuthFileError::Broken),
            }
        }
        let user = self.quoted()?;
        if user.len() >= USER_LEN_MAX {
            return Err(AuthFileError::LongUser);
        }
        self.skip_while(|byte| byte != b'"');
        let secret = self.quoted()?;
        if secret.len() >= SECRET_LEN_MAX {
            return Err(AuthFileError::LongPassword);
        }
        self.skip_line();
        Ok(Some((user, secret)))
    }

    /// A text in double quotes, in which a quote is doubled.
    fn quoted(&mut self) -> Result<Vec<u8>, AuthFileError> {
        if self.next() != Some(b'"') {
            return Err(AuthFileError::Broken);
        }
        let mut text = Vec::new();
        loop {
            match self.next() {
                None => return Err(AuthFileError::Broken),
                Some(b'"') if self.peek() == Some(b'"') => {
                    self.position += 1;
                    text.push(b'"');
                }
                Some(b'"') => return Ok(text),
                Some(byte) => text.push(byte),
            }
        }
    }

    fn peek(&self) -> Option<u8> {
        self.content.get(self.position).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.position += 1;
        Some(byte)
    }

    fn skip_while(&mut self, skip: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&skip) {
            self.position += 1;
        }
    }

    fn skip_line(&mut self) {
        self.skip_while(|byte| byte != b'\n');
    }

    /// Returns the line on which the entry begins, counted from 1.
    fn line(&self) -> usize {
        1 + self.content[..self.start].iter().filter(|byte| **byte == b'\n').count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(content: &str) -> (AuthFile, Vec<String>) {
        let (auth_file, warnings) = AuthFile::parse(content.as_bytes(), &Arc::from("userlist.txt"));
        (auth_file, warnings.iter().map(Mistake::to_string).collect())
    }

    fn users(content: &str) -> Vec<(String, String)> {
        let (auth_file, warnings) = parse(content);
        assert_eq!(warnings, Vec::<String>::new());
        let mut users: Vec<_> = auth_file.users.into_iter().collect();
        users.sort();
        users
    }

    fn pair(user: &str, secret: &str) -> (String, String) {
        (user.to_owned(), secret.to_owned())
    }

    #[test]
    fn plain_md5_and_scram_secrets_are_kept_as_stored() {
        let scram = "SCRAM-SHA-256$4096:c2FsdA==$a2V5:a2V5";
        let content = format!("\"a\" \"pass\"\n\"b\" \"md5{:032}\"\n\"c\" \"{scram}\"\n", 0);
        let expected = [pair("a", "pass"), pair("b", &format!("md5{:032}", 0)), pair("c", scram)];
        assert_eq!(users(&content), expected);
    }

    #[test]
    fn oddities_are_read_as_pgbouncer_reads_them() {
        let cases = [
            ("", vec![]),
            ("; \"a\" \"b\"\n", vec![]),
            ("\"a\" \"b\" \"further\" words", vec![pair("a", "b")]),
            ("  \"a\"\"b\"\n", vec![]), // one name, a"b, and no secret: see the next test
            ("\"a\"junk\"b\"\n", vec![pair("a", "b")]),
            ("\"a\"\n\"b\"\n", vec![pair("a", "b")]),
            ("\"say \"\"hi\"\"\" \"p\"\"w\"", vec![pair("say \"hi\"", "p\"w")]),
            ("\"\" \"\"\n", vec![pair("", "")]),
            ("\"a\" \"old\"\n\"a\" \"new\"\r\n", vec![pair("a", "new")]),
            ("\"ü\" \"grün #;\"", vec![pair("ü", "grün #;")]),
        ];
        for (content, expected) in cases {
            let (auth_file, _) = parse(content);
            let mut found: Vec<_> = auth_file.users.into_iter().collect();
            found.sort();
            assert_eq!(found, expected, "{content:?}");
        }
    }

    #[test]
    fn a_broken_line_ends_the_reading_and_keeps_what_was_before() {
        let broken = "broken auth file, the rest of the file is not read";
        let cases = [
            ("\"a\" \"b\"\n# no\n\"c\" \"d\"\n", 2, broken.to_owned()),
            ("\"a\" \"b\"\n\"c\n", 2, broken.to_owned()),
            ("\"a\" \"b\"\n\"c\" d\n", 2, broken.to_owned()),
            (
                &format!("\"a\" \"b\"\n\"{}\" \"d\"\n", "u".repeat(128)),
                2,
                broken.replace("broken auth file", "username too long in auth file"),
            ),
            (
                &format!("\"a\" \"b\"\n\"c\" \"{}\"\n", "p".repeat(65_531)),
                2,
                broken.replace("broken auth file", "password too long in auth file"),
            ),
        ];
        for (content, line, reason) in cases {
            let (auth_file, warnings) = parse(content);
            assert_eq!(auth_file.users.len(), 1);
            assert_eq!(warnings, [format!("userlist.txt:{line}: {reason}")]);
        }
    }

    #[test]
    fn a_user_that_is_not_utf8_is_left_out() {
        let (auth_file, warnings) =
            AuthFile::parse(b"\"\xff\" \"x\"\n\"a\" \"b\"\n", &Arc::from("f"));
        assert_eq!(auth_file.users.len(), 1);
        assert_eq!(warnings[0].to_string(), "f:1: user is not in UTF-8");
    }

    #[test]
    fn debug_shows_names_only() {
        let (auth_file, _) = parse("\"alice\" \"wonderland\"");
        assert_eq!(format!("{auth_file:?}"), "{\"alice\"}");
    }
}
