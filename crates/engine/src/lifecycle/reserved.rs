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
use crate::engine::Engine;
use crate::ids::{ClientId, ServerId};
use crate::server::Server;
use crate::session::carried::Carried;
use crate::shell::{Exchange, Io};

/// The end of the warning in PostgreSQL's protocol: the function that sends it, and two terminators.
const REMOVES: &[u8] = b"RMarkGUCPrefixReserved\0\0";

/// Returns which of these settings the message names. Its language decides the quotes around the name.
fn named<'a>(error: &ErrorFields, settings: impl Iterator<Item = &'a [u8]>) -> Option<&'a [u8]> {
    let text = error.get(b'M').filter(|_| error.sqlstate() == INVALID_NAME.as_bytes())?;
    let is_named =
        |name: &&[u8]| name.contains(&b'.') && text.windows(name.len()).any(|part| part == *name);
    // One name may be a part of another one.
    settings.filter(is_named).max_by_key(|name| name.len())
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

impl<X: Exchange> Engine<X> {
    /// If the server has refused a setting whose prefix is reserved, the client loses the setting.
    /// Returns false if the server has refused another one.
    #[cold]
    pub(crate) fn drop_reserved(
        &mut self,
        id: ClientId,
        on: ServerId,
        io: &mut impl Io<X>,
    ) -> bool {
        let client = &mut self.clients[id.0 as usize];
        let server = &mut self.servers[on.0 as usize];
        let error = server.own_error.as_ref();
        let setting = error.and_then(|error| named(error, names_of(&client.vars.carried)));
        let Some(setting) = setting else { return false };
        let name = String::from_utf8_lossy(setting).into_owned();
        let (_, others) = client.vars.carried.split(setting);
        server.own_error = None;
        client.vars.change(|vars| vars.carried = others);
        let text = format!("invalid configuration parameter name \"{name}\", removing it");
        let mut warning = ErrorFields::new("WARNING", INVALID_NAME, &text);
        let prefix = name.split('.').next().unwrap_or_default();
        warning.replace(b'D', format!("\"{prefix}\" is now a reserved prefix."));
        if self.client(id).is_welcomed() {
            let mut out = Vec::new();
            backend::notice(&mut out, &warning);
            io.send_client(id, &out);
        }
        true
    }
}
