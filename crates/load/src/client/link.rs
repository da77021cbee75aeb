//! A client's connection: the socket, an incomplete message, and its login.

use std::sync::Arc;

use net::Caller;

use crate::{
    inbox::Inbox,
    login::{Keyring, Login},
};

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) caller: Caller,
    pub(crate) inbox: Inbox,
    /// Is it watched for room to send?
    pub(crate) watched_blocked: bool,
    login: Option<Box<Login>>,
    end_point: Arc<[u8]>,
}

impl Link {
    pub(crate) fn new(caller: Caller) -> Self {
        let watched_blocked = caller.is_blocked();
        let inbox = Inbox::default();
        Self { caller, inbox, watched_blocked, login: None, end_point: Arc::default() }
    }

    pub(super) fn begin_login(&mut self) {
        self.end_point = self.caller.end_point();
        self.login = Some(Box::default());
    }

    /// Returns true when the login is complete.
    pub(super) fn handle_login(
        &mut self,
        code: u8,
        body: &[u8],
        keyring: &mut Keyring,
        out: &mut Vec<u8>,
    ) -> Result<bool, String> {
        let Some(login) = &mut self.login else { return Ok(true) };
        let done = login.handle((code, body), keyring, &self.end_point, out)?;
        if done {
            self.login = None;
        }
        Ok(done)
    }
}
