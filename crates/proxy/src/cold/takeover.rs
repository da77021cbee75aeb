//! Online restart (`-R`): a new process takes over from the running one, over the unix socket that
//! clients come to. It logs in to the console there, as the system user of both, and says
//! `REQUEST` behind its startup packet; from then on the two speak as follows. A *frame* is a
//! letter, a length of four bytes and so many bytes.
//!
//! ```text
//!  new process                            old process
//!  startup packet, REQUEST  ──►
//!                           ◄──  'X' text: refused; that is all
//!                           ◄──  'W': it will be done        (short queries end, exports)
//!                           ◄──  'S' state, then descriptors (keeps still)
//!  'A' process id           ──►                              (forgets what it gave)
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
//! Up to the first 'A' everything belongs to the old process, which goes on as if nothing had
//! happened when the new one is lost or takes too long. Connections that are handed over later belong
//! to the old process up to the 'A' that follows them.
//!
//! * `give.rs`: the old process's half
//! * `receive.rs`: the new process's half, up to the first 'S'
//! * `adopt.rs`: the sockets and the state find their places
//! * `late.rs`: the same in a process that serves clients already
//! * `line.rs`: the connection, after the first 'G'
//! * `frame.rs`, `state.rs`: the form of all that is said

pub(crate) mod adopt;
mod frame;
pub(crate) mod give;
pub(crate) mod late;
mod line;
pub(crate) mod receive;
pub(crate) mod state;
