//! Lines of the log about one client.

use crate::client::Client;
use crate::ids::ClientId;
use crate::shell::{Event, Exchange, Io, Weight};

/// Logs a remark about a client.
pub(crate) fn remark<X: Exchange>(
    id: ClientId,
    client: &Client,
    weight: Weight,
    message: &str,
    io: &mut impl Io<X>,
) {
    let name = client.name();
    io.event(Event::ClientRemark { client: id, name, weight, message });
}
