//! Host names to addresses, off the workers: a lookup may take seconds.

use std::sync::Arc;

use engine::ids::WorkerId;

use crate::{
    shared::{Shared, ShellMail},
    warning,
};

/// A worker's question.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) worker: WorkerId,
    pub(crate) ticket: u64,
}

/// Looks the name up and sends the answer, which is no address at all if there is none.
pub(crate) async fn answer(question: Question, shared: Arc<Shared>) {
    let Question { host, port, worker, ticket } = question;
    let addresses = match tokio::net::lookup_host((host.as_str(), port)).await {
        Ok(found) => found.collect(),
        Err(error) => {
            warning!("DNS lookup failed: {host}: {error}");
            Vec::new()
        }
    };
    shared.hub.mailbox(worker).post(ShellMail::Resolved { ticket, addresses });
}
