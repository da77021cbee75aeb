//! PostgreSQL's reply to `auth_query`, as plain data. `login/auth_query.rs` sends the query.
//!
//! As in PgBouncer, the query returns two columns, a user's name and its secret. Of several rows
//! the last one counts.

use wire::backend;
use wire::error_fields::ErrorFields;

/// The part of the reply that has arrived. `Debug` shows no secret.
#[derive(Default)]
pub struct AuthAnswer {
    found: Option<Found>,
    /// Set when the query's own reply has begun; earlier rows have no description.
    is_described: bool,
    wrong: Option<String>,
}

/// The user that the query returned.
#[derive(Clone, PartialEq, Eq)]
pub struct Found {
    pub user: String,
    /// None if the query returned NULL: no password is right.
    pub secret: Option<String>,
}

impl AuthAnswer {
    /// Reads one message of the reply.
    pub fn message(&mut self, code: u8, body: &[u8]) {
        let taken = match code {
            backend::ROW_DESCRIPTION => {
                self.is_described = true;
                two_columns(body).map(|_| None)
            }
            backend::DATA_ROW if self.is_described => row(body).map(Some),
            _ => return,
        };
        match taken {
            Ok(Some(found)) => self.found = Some(found),
            Ok(None) => {}
            Err(why) => self.wrong = Some(why),
        }
    }

    /// Returns the user that was found, or an error. `error` is PostgreSQL's own, if it sent one.
    pub fn finish(self, error: Option<&ErrorFields>) -> Result<Option<Found>, String> {
        match (error, self.wrong) {
            (Some(error), _) => Err(format!("error response from auth_query: {}", error.message())),
            (None, Some(why)) => Err(why),
            (None, None) => Ok(self.found),
        }
    }
}

impl std::fmt::Debug for AuthAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthAnswer").field("wrong", &self.wrong).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Found").field("user", &self.user).finish_non_exhaustive()
    }
}

fn two_columns(body: &[u8]) -> Result<&[u8], String> {
    let (count, rest) = body.split_first_chunk().ok_or("bad packet")?;
    match u16::from_be_bytes(*count) {
        2 => Ok(rest),
        other => Err(format!("expected 2 columns from auth_query, not {other}")),
    }
}

fn row(body: &[u8]) -> Result<Found, String> {
    let rest = two_columns(body)?;
    let (user, rest) = value(rest)?;
    let (secret, _) = value(rest)?;
    let user = user.ok_or("auth_query response contained null user name")?;
    Ok(Found { user, secret })
}

/// Returns the first value of a DataRow, and the rest.
fn value(body: &[u8]) -> Result<(Option<String>, &[u8]), String> {
    let (len, rest) = body.split_first_chunk().ok_or("bad packet")?;
    let Ok(len) = usize::try_from(i32::from_be_bytes(*len)) else { return Ok((None, rest)) };
    let (text, rest) = rest.split_at_checked(len).ok_or("bad packet")?;
    let text = str::from_utf8(text).map_err(|_| "auth_query returned text that is not UTF-8")?;
    Ok((Some(text.to_owned()), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(columns: u16, values: &[Option<&str>]) -> Result<Option<Found>, String> {
        let mut auth_answer = AuthAnswer::default();
        auth_answer.message(backend::ROW_DESCRIPTION, &columns.to_be_bytes());
        let mut body = (values.len() as u16).to_be_bytes().to_vec();
        for value in values {
            body.extend_from_slice(&value.map_or(-1, |text| text.len() as i32).to_be_bytes());
            body.extend_from_slice(value.unwrap_or_default().as_bytes());
        }
        if !values.is_empty() {
            auth_answer.message(backend::DATA_ROW, &body);
        }
        auth_answer.finish(None)
    }

    #[test]
    fn a_row_is_a_name_and_a_secret() {
        let found = |secret: Option<&str>| Found {
            user: "alice".into(),
            secret: secret.map(str::to_owned),
        };
        let with = answer(2, &[Some("alice"), Some("s")]);
        assert_eq!(with, Ok(Some(found(Some("s")))));
        assert_eq!(answer(2, &[Some("alice"), None]), Ok(Some(found(None))));
        assert_eq!(answer(2, &[]), Ok(None));
    }

    #[test]
    fn anything_else_is_wrong() {
        let columns = Err("expected 2 columns from auth_query, not 3".to_owned());
        assert_eq!(answer(3, &[]), columns);
        assert_eq!(answer(2, &[Some("a"), None, None]), columns);
        let null = Err("auth_query response contained null user name".to_owned());
        assert_eq!(answer(2, &[None, Some("s")]), null);
        let mut auth_answer = AuthAnswer::default();
        auth_answer.message(backend::DATA_ROW, b"\0\x01\0\0\0\x01x");
        auth_answer.message(backend::ROW_DESCRIPTION, b"\0\x02");
        auth_answer.message(backend::DATA_ROW, b"\0\x02\0\0\0\x09al");
        assert_eq!(auth_answer.finish(None), Err("bad packet".to_owned()));
        let denied = AuthAnswer::default().finish(Some(&ErrorFields::new(
            "ERROR",
            "42501",
            "permission denied",
        )));
        assert_eq!(denied, Err("error response from auth_query: permission denied".to_owned()));
    }

    #[test]
    fn debug_shows_no_secret() {
        let found = Found { user: "u".into(), secret: Some("hunter2".into()) };
        assert!(!format!("{found:?}").contains("hunter2"));
    }
}
