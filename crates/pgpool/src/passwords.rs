//! The users of `pool_passwd`, and passwords of `pgpool.conf` in its forms.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use wire::scram::ScramVerifier;

use crate::conf::{Broken, Place};

/// An `md5` password has so many bytes with its prefix.
const MD5_LEN: usize = 35;

/// Decrypts a password as Pgpool-II's `pg_enc` has encrypted it, with the text of `.pgpoolkey`.
pub type Decrypt<'a> = &'a dyn Fn(&str, &[u8]) -> Option<String>;

/// A password of Pgpool-II.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Secret {
    Plain(String),
    /// `md5` and 32 digits.
    Md5(String),
    Scram(String),
}

/// Without the password, which stays out of logs.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain",
            Self::Md5(_) => "Md5",
            Self::Scram(_) => "Scram",
        })
    }
}

impl Secret {
    /// Returns the text for a line of `auth_file`.
    pub(crate) fn stored(&self) -> &str {
        match self {
            Self::Plain(text) | Self::Md5(text) | Self::Scram(text) => text,
        }
    }
}

/// The beginning of a SCRAM verifier.
const SCRAM: &str = "SCRAM-SHA-256$";

/// The means to open passwords of the form AES.
#[derive(Clone, Copy)]
pub(crate) struct Opener<'a> {
    pub(crate) key: Option<&'a str>,
    pub(crate) decrypt: Decrypt<'a>,
}

impl Opener<'_> {
    /// Reads a password in one of Pgpool-II's forms.
    pub(crate) fn open(self, text: &str, place: &Place) -> Result<Secret, Broken> {
        if text.len() == MD5_LEN && text.starts_with("md5") {
            return Ok(Secret::Md5(text.to_ascii_lowercase()));
        }
        if let Some(plain) = text.strip_prefix("TEXT") {
            return Ok(Secret::Plain(plain.to_owned()));
        }
        // Anything else that begins so would be taken for a plain password.
        if text.starts_with(SCRAM) {
            let why = "a SCRAM verifier is possible in pool_passwd only";
            return Err(Broken::new(place, why));
        }
        let Some(encrypted) = text.strip_prefix("AES") else {
            return Ok(Secret::Plain(text.to_owned()));
        };
        let refuse = |why: &str| Err(Broken::new(place, why));
        let Some(key) = self.key else {
            return refuse(
                "a password is encrypted (AES); name the file .pgpoolkey by --pgpoolkey",
            );
        };
        let Ok(bytes) = BASE64_STANDARD.decode(encrypted) else {
            return refuse("the text behind AES is not in base64; make it again with pg_enc");
        };
        match (self.decrypt)(key, &bytes) {
            Some(plain) => Ok(Secret::Plain(plain)),
            None => refuse("the key does not decrypt this password; name the key by --pgpoolkey"),
        }
    }
}

/// A line of `pool_passwd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) secret: Secret,
    /// The user of PostgreSQL that the line maps the name to.
    pub(crate) backend: Option<String>,
    pub(crate) place: Place,
}

/// Reads the text of a `pool_passwd`. Of several lines for a user, the first counts. Lines that
/// Pgpool-II ignores are ignored.
pub(crate) fn users(text: &str, file: &str, opener: Opener<'_>) -> Result<Vec<User>, Broken> {
    let file: Arc<str> = Arc::from(file);
    let (mut users, mut known) = (Vec::new(), HashSet::new());
    for (number, line) in (1..).zip(text.lines()) {
        let place = Place { file: file.clone(), line: number };
        let mut fields = fields(line.trim_end_matches('\r')).into_iter();
        let (Some(name), Some(secret)) = (fields.next(), fields.next()) else { continue };
        let is_ignored = name.is_empty() || name.starts_with('#') || secret.is_empty();
        if is_ignored || !known.insert(name.clone()) {
            continue;
        }
        let secret = match secret.strip_prefix(SCRAM) {
            Some(_) => Secret::Scram(whole_verifier(secret, &mut fields, &place)?),
            None => opener.open(&secret, &place)?,
        };
        let mapped = fields.next().zip(fields.next());
        let backend = mapped.map(|(backend, _)| backend).filter(|backend| *backend != name);
        users.push(User { name, secret, backend, place });
    }
    Ok(users)
}

/// Returns a SCRAM verifier as PostgreSQL stores it: `SCRAM-SHA-256$count:salt$key:key`. Its colons may
/// lack the backslash. `rest`: the fields behind.
fn whole_verifier(
    mut text: String,
    rest: &mut impl Iterator<Item = String>,
    place: &Place,
) -> Result<String, Broken> {
    while text.matches(':').count() < 2
        && let Some(field) = rest.next()
    {
        text = format!("{text}:{field}");
    }
    match ScramVerifier::parse(&text) {
        Some(_) => Ok(text),
        None => Err(Broken::new(
            place,
            "the SCRAM verifier is not complete; take it from pg_authid.rolpassword",
        )),
    }
}

/// Splits a line at its colons. A backslash takes the meaning from the character behind it.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            ':' => fields.push(String::new()),
            _ => {
                let c = if c == '\\' { chars.next().unwrap_or(c) } else { c };
                fields.last_mut().expect("one field at least").push(c);
            }
        }
    }
    fields
}

/// Returns the text of an `auth_file` with these users, and the users that it cannot contain.
pub(crate) fn auth_file(users: &[User]) -> (String, Vec<&User>) {
    let mut text = String::new();
    let mut refused = Vec::new();
    for user in users {
        let (name, secret) = (quoted(&user.name), quoted(user.secret.stored()));
        // Weir's limit of names.
        if user.name.len() >= 128 {
            refused.push(user);
            continue;
        }
        text += &format!("{name} {secret}\n");
    }
    (text, refused)
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}
