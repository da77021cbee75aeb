//! The messages that tell a client that it is logged in (protocol chapter 55.2.1).

use wire::backend;
use wire::error_fields::ErrorFields;

use crate::client::Client;
use crate::context::Context;
use crate::vars::Welcome;

/// Returns a NOTICE of Weir's own.
pub(crate) fn notice(text: &str) -> ErrorFields {
    ErrorFields::new("NOTICE", "00000", text)
}

impl Client {
    /// Writes AuthenticationOk up to ReadyForQuery. The secret of the cancel key is always Weir's own.
    /// `introduction` has messages of the pool.
    pub(crate) fn greet(
        &mut self,
        key: u64,
        welcome: &Welcome,
        introduction: &[u8],
        context: &Context,
        out: &mut Vec<u8>,
    ) {
        backend::authentication_ok(out);
        welcome.write(&self.vars, &context.names, out);
        out.extend_from_slice(introduction);
        self.key.give(key);
        let secret = self.key.whole_secret(&context.seed);
        backend::backend_key_data(out, self.key.process_id(), &secret);
        let news = &context.config.global.login_notify_message;
        if !news.is_empty() {
            backend::notice(out, &notice(news));
        }
        backend::ready_for_query(out, b'I');
    }
}
