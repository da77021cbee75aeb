//! Borrowed views of the messages a pooler reads.
//!
//! A view is made from a message's *body*, the bytes after the five of the header, without copying
//! or allocating. Only messages that Weir reads have a view; others pass through unread.

mod backend;
pub(crate) mod error;
mod frontend;

pub use self::backend::{
    AuthenticationRequest, BackendKeyData, CommandComplete, DataRow, Mechanisms,
    NegotiateProtocolVersion, NotificationResponse, ParameterStatus, ReadyForQuery, RowDescription,
    Values,
};
pub use self::error::MessageError;
pub use self::frontend::{
    Bind, Execute, FirstParameter, Parse, Password, Query, SaslInitialResponse, StatementOrPortal,
    bind_names, bind_values, call_function, call_values, first_parameter, parameter_count,
};
#[cfg(test)]
mod tests;
