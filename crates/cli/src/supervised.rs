//! A start by the library in PostgreSQL (`extension/child.c`). A pair of sockets connects Weir to
//! the supervisor there. Weir says on it that it serves, and ends when the supervisor has ended.
//! Nothing else is said.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    thread,
};

use anyhow::Context as _;
use proxy::{Controller, Shutdown, log};

use crate::sys;

/// The form of what is said on the pair. The library refuses another one.
const FORM: &str = "weir 1";

/// The connection to the supervisor.
#[derive(Debug)]
pub(crate) struct Supervisor(UnixStream);

impl Supervisor {
    /// Takes the descriptor that the supervisor has passed. Call it once.
    ///
    /// # Errors
    /// When it is not a socket.
    pub(crate) fn adopt(fd: i32) -> anyhow::Result<Self> {
        sys::adopt_socket(fd).map(Self).with_context(|| format!("--supervised {fd}"))
    }

    /// Tells the supervisor that clients are served. Ends the pooler when the supervisor has ended.
    ///
    /// # Errors
    /// When the supervisor has ended already, or the system refuses a thread.
    pub(crate) fn follow(mut self, controller: Controller) -> anyhow::Result<()> {
        let hello = format!("{FORM} {}\n", config::version());
        self.0.write_all(hello.as_bytes()).context("the supervisor has ended")?;
        let wait = move || {
            // It says nothing, so what ends this is its end.
            let mut bytes = [0; 64];
            while self.0.read(&mut bytes).is_ok_and(|len| len > 0) {}
            log!("the supervisor has ended, fast exit");
            controller.shutdown(Shutdown::Immediate);
        };
        thread::Builder::new().name("weir-lifeline".to_owned()).spawn(wait)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_socket_is_refused() {
        let error = Supervisor::adopt(i32::MAX).unwrap_err();
        assert!(format!("{error:#}").starts_with("--supervised 2147483647: "), "{error:#}");
    }
}
