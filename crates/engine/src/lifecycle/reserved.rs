//! Settings whose prefix a library has reserved, such as `plpgsql.bound`, which is no setting of PL/pgSQL's.
//!
//! When PostgreSQL loads the library into a session, it removes them with a warning. It refuses them from
//! then on. In auto mode a client may get a server on which another client has loaded the library. The
//! client loses the setting there, with the same warning: otherwise it would need a new server for each
//! transaction. Other clients do not learn the name.

use wire::backend;
use wire::error_fields::ErrorFields;
use wire::sqlstate::INVALID_NAME;

use crate::client::Client;
use crate::ids::ClientId;
use crate::server::Server;
use crate::session::carried::Carried;
use crate::shell::{Exchange, Io};
use crate::values::Values;

/// The end of the warning in PostgreSQL's protocol: the function that sends it, and two terminators.
const REMOVES: &[u8] = b"RMarkGUCPrefixReserved\0\0";

/// Returns which of these settings the message names.
fn named<'a>(
    error: &ErrorFields,
    mut settings: impl Iterator<Item = &'a [u8]>,
) -> Option<&'a [u8]> {
    let text = error.get(b'M').filter(|_| error.sqlstate() == INVALID_NAME.as_bytes())?;
    settings.find(|name| name.contains(&b'.') && names(text, name))
}

/// Is the name in the text, and not only as a part of another name? The language of the text decides
/// the quotes around the name. PostgreSQL writes it as the session that has set it first did.
fn names(text: &[u8], name: &[u8]) -> bool {
    let is_part = |byte: Option<&u8>| {
        byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'.'))
    };
    text.windows(name.len()).enumerate().any(|(at, found)| {
        let before = at.checked_sub(1).and_then(|before| text.get(before));
        let behind = text.get(at + name.len());
        found.eq_ignore_ascii_case(name) && !is_part(before) && !is_part(behind)
    })
}

fn names_of(carried: &Carried) -> impl Iterator<Item = &[u8]> {
    carried.all().iter().map(|one| &*one.name)
}

/// Is this PostgreSQL's warning that a setting was removed?
pub(crate) fn is_removal(notice: &[u8]) -> bool {
    notice.ends_with(REMOVES)
}

/// May the setting that the warning names be the client's? If not, another client has left it to the
/// server.
pub(crate) fn concerns(notice: &[u8], client: &Client, server: &Server) -> bool {
    let Ok(warning) = ErrorFields::decode(notice) else { return true };
    let set_now = server.session.setting_names.iter().flat_map(|names| names.iter());
    let names = names_of(&client.vars.carried).chain(set_now.map(|(name, _)| name));
    named(&warning, names).is_some()
}

/// If the server has refused a setting whose prefix is reserved, the client loses the setting. If
/// another client has left it there, the server has lost it. Returns false if the server has
/// refused another one.
#[cold]
pub(crate) fn drop_reserved<X: Exchange>(
    id: ClientId,
    client: &mut Client,
    server: &mut Server,
    io: &mut impl Io<X>,
) -> bool {
    let Some(error) = server.own_error.take() else { return false };
    let Some(name) = lose(&error, &mut client.vars) else {
        let is_lost = lose(&error, &mut server.vars).is_some();
        if !is_lost {
            server.own_error.keep(error);
        }
        return is_lost;
    };
    let text = format!("invalid configuration parameter name \"{name}\", removing it");
    let mut warning = ErrorFields::new("WARNING", INVALID_NAME, &text);
    let prefix = name.split('.').next().unwrap_or_default();
    warning.replace(b'D', format!("\"{prefix}\" is now a reserved prefix."));
    if client.is_welcomed() {
        let mut out = Vec::new();
        backend::notice(&mut out, &warning);
        io.send_client(id, &out);
    }
    true
}

/// Removes the setting that the message names, and returns its name.
fn lose(error: &ErrorFields, values: &mut Values) -> Option<String> {
    let setting = named(error, names_of(&values.carried))?;
    let name = String::from_utf8_lossy(setting).into_owned();
    let (_, others) = values.carried.split(setting);
    values.change(|vars| vars.carried = others);
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn a_part_of_a_name_is_another_name() {
        for text in ["\"app.a\"", "»app.a«, entfernt", "removing app.a", "App.A"] {
            assert!(names(text.as_bytes(), b"app.a"), "{text}");
        }
        for text in ["\"myapp.a\"", "\"app.a.b\"", "app.ab", "x_app.a", "app"] {
            assert!(!names(text.as_bytes(), b"app.a"), "{text}");
        }
    }
}
