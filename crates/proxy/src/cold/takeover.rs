//! Online restart (`-R`): a new process takes over from the running one, over the unix socket for
//! clients. It logs in to the console as the system user of both processes, and sends `REQUEST`
//! after its startup packet. Then the two use this protocol. A *frame* is a letter, a length of
//! four bytes, and that many bytes.
//!
//! ```text
//!  new process                            old process
//!  startup packet, REQUEST  ──►
//!                           ◄──  'X' text: refused; that is all
//!                           ◄──  'W': it will be done        (short queries end, exports)
//!                           ◄──  'S' state, then descriptors (keeps still)
//!  'A' process id, and for
//!  each lobby 1 if taken    ──►                              (forgets what it gave)
//!                           ◄──  'G': go
//!
//!  then, while the old process has clients that were busy, for at most `suspend_timeout`:
//!                           ◄──  'S' state, then descriptors (what has come to rest since)
//!  'A' process id           ──►        or 'N' text: nothing is taken any more
//!                           ◄──  'G': go
//!
//!  and for as long as the old process runs:
//!                           ◄──  'U' servers in use, by pool
//!       'C', then a connection ◄─►  a cancel request whose key is not known there
//! ```
//!
//! Up to the first 'A' everything belongs to the old process. It continues as before if the new one
//! is lost or takes too long. Connections that are handed over later belong to the old process up
//! to the 'A' that follows them.
//!
//! * `give.rs`: the old process's half
//! * `receive.rs`: the new process's half, up to the first 'S'
//! * `adopt.rs`: gives the sockets and the state to the workers
//! * `late.rs`: the same in a process that serves clients already
//! * `line.rs`: the connection, after the first 'G'
//! * `lobbies.rs`: the clients of direct pools, with their lobbies
//! * `crate::frame`, `state.rs`: the format of the messages

pub(crate) mod adopt;
pub(crate) mod give;
pub(crate) mod late;
mod line;
mod lobbies;
pub(crate) mod receive;
pub(crate) mod state;
