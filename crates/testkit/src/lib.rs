//! The base of black-box tests: a throw-away PostgreSQL, the pooler under test, and a wire
//! client that shows every message.
//!
//! It knows nothing of the pooler's internals. `WEIR_BIN` selects the tested binary (see
//! [`pooler_binary`]). It may be Debian's `pgbouncer`, which shows that a test describes
//! PgBouncer's behaviour, too.
//!
//! It is for tests, so it panics with a readable text when the environment fails (no PostgreSQL, no
//! port, a read that takes too long). It returns everything that a test may examine.

mod binaries;
mod delivery;
mod dice;
mod etcd;
mod guest;
mod library;
mod memory;
mod network;
mod patroni;
mod pki;
mod pooler;
mod postgres;
mod raw;
mod relay;
mod run;
mod scratch;
mod signal;
mod wait;

pub use binaries::{Flavour, Version, flavour, pooler_binary, postgres_program, use_pooler};
pub use delivery::wait_until_read;
pub use dice::Dice;
pub use etcd::Etcd;
pub use guest::{give_away, is_root, mortal_command};
pub use library::{
    altered as altered_library, file as library_file, is_direct as pools_are_direct,
    is_everywhere as library_is_everywhere,
};
pub use memory::{memory_file_bytes, memory_files};
pub use network::{Host, Network, lan};
pub use patroni::{Member, Patroni};
pub use pki::{Authority, Identity, ManualAuthority, Signature, Wanted};
pub use pooler::{Ini, Pooler, Setup, Table};
pub use postgres::{Builtin, Container, Postgres, Process, Receiver, Role, ServerAuth, Verifier};
pub use raw::{Message, Outcome, RawClient, ServerError, frontend, md5_verifier};
pub use relay::{Relay, Way};
pub use scratch::{folder, free_port, open_folder};
pub use signal::send_signal;
pub use wait::{eventually, poll_until};
