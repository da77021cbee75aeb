//! Gives a replication client a server of its own. The server is opened with the parameters of the
//! client's startup packet, and closed when the client leaves. It takes a place in its pool and a
//! seat like any other server. If the pool is full, it replaces an idle server or the next free
//! one (`engine/opening.rs`, `engine/linking.rs`).

use crate::admission::one_pool::OnePool;
use crate::client::Client;
use crate::ids::Micros;
use crate::server::Server;
use crate::shell::Exchange;
use crate::vars::{TrackedNames, Welcome};

/// Returns the parameters that the startup packet has beyond those of the pool. Physical
/// replication knows no SET, so settings cannot be made later.
pub(crate) fn replication_parameters<'a>(
    client: &'a Client,
    names: &'a TrackedNames,
) -> Vec<(&'a str, &'a [u8])> {
    let Some(asked) = &client.replication else { return Vec::new() };
    let own = (0..names.len()).filter_map(|slot| Some((names.name(slot), client.vars.get(slot)?)));
    let mut all = vec![("replication", asked.kind.parameter().as_bytes())];
    all.extend(own);
    all.extend(asked.options.as_deref().map(|options| ("options", options)));
    all
}

/// Gives the client its server, which has logged in. The client gets this server's own parameters:
/// without a database a server has other settings.
pub(crate) fn begin_replication<X: Exchange>(
    client: &mut Client,
    server: &mut Server,
    pool: &mut OnePool<'_, X>,
    welcome: &Welcome,
    now: Micros,
) {
    pool.lock(|pool| pool.opened(server.epoch));
    let since = client.phase.prepared_since().unwrap_or(now);
    server.replication = client.replication.as_ref().map(|asked| asked.kind);
    server.vars = welcome.vars.clone();
    server.phase.link();
    *client.vars = welcome.vars.clone();
    client.phase.link();
    pool.view.assigned(now.saturating_sub(since));
}
