//! The errors that clients of a lobby get.

use std::os::fd::RawFd;

use config::ErrorCodes;
use engine::{
    own_error::{Cause, OwnError},
    shell::Guest,
};
use net::sys::socket;
use room::Kept;
use wire::error_fields::ErrorFields;

use super::leave;
use crate::exchange::shared::Shared;

/// Refuses a client that has no place in the lobby.
pub(in crate::lobby) fn refuse(guest: &Guest, fd: RawFd, error: &ErrorFields, shared: &Shared) {
    send_error(fd, error);
    leave(guest, shared);
}

/// Returns the error for a client if all these places are taken.
pub(in crate::lobby) fn no_place(places: u32, codes: ErrorCodes) -> ErrorFields {
    let text = "no more connections allowed (max_client_conn)";
    let detail = format!(
        "Direct pools keep the number of clients that they had room for at Weir's start: {places}."
    );
    OwnError::new(Cause::TooManyClients, text).fields(codes, Some(&detail))
}

pub(in crate::lobby) fn tell(fd: RawFd, cause: Cause, why: &str, codes: ErrorCodes) {
    send_error(fd, &OwnError::new(cause, why).fields(codes, None));
}

pub(super) fn send_error(fd: RawFd, error: &ErrorFields) {
    let mut out = Vec::new();
    wire::backend::error(&mut out, error);
    // A client that does not read does not get it.
    let _ = socket::send(fd, &out);
}

/// Tells what the backends do for which a client has waited.
pub(super) fn wait_detail(
    database: &str,
    user: &str,
    Kept { all, keeping, large }: Kept,
) -> String {
    let servers = if all == 1 { "server" } else { "servers" };
    let mut text = format!("{all} {servers} of {database}/{user} busy");
    if keeping > 0 {
        text += &format!(": {keeping} kept by clients between transactions");
    }
    if large > 0 {
        text += &format!(", {large} of them since their state is too large");
    }
    text
}
