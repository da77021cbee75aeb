//! The bounds of single keys, for values of the right form.

use crate::key::{Key, Scope};
use crate::reason::Reason;

/// The database that is the console; no entry may take its name.
pub(crate) const CONSOLE: &str = "pgbouncer";
/// Largest peer id; a cancel key has 14 bits for it.
pub(crate) const PEER_ID_MAX: u32 = 16_383;
/// Linux's limits for the times and the number of keepalives. It refuses larger ones (EINVAL), and
/// then no TCP connection could be made.
const KEEPALIVE_SECONDS_MAX: u32 = 32_767;
const KEEPALIVE_COUNT_MAX: u32 = 127;

/// Largest number of connections whose checkpoints are kept: some 100 MB.
const TIMINGS_MAX: u32 = 100_000;

/// The reason a well-formed value is still not allowed.
pub(crate) fn out_of_bounds(key: &Key, value: Option<&str>) -> Option<Reason> {
    match (key.scope, key.name, value?) {
        (Scope::Database | Scope::Peer, "port", "0") => Some(Reason::Port("0".to_owned())),
        (Scope::Global | Scope::Database, "auth_dbname", CONSOLE) => {
            Some(Reason::ReservedAuthDatabase(CONSOLE))
        }
        (Scope::Global, "peer_id", id) => too_large(key, id, PEER_ID_MAX),
        // PgBouncer counts them in an int.
        (Scope::Global, "max_prepared_statements", value) => {
            too_large(key, value, i32::MAX.unsigned_abs())
        }
        (Scope::Global, "connection_timings", value) => too_large(key, value, TIMINGS_MAX),
        (Scope::Global, "tcp_keepidle" | "tcp_keepintvl", value) => {
            too_large(key, value, KEEPALIVE_SECONDS_MAX)
        }
        (Scope::Global, "tcp_keepcnt", value) => too_large(key, value, KEEPALIVE_COUNT_MAX),
        _ => None,
    }
}

fn too_large(key: &Key, value: &str, max: u32) -> Option<Reason> {
    let is_larger = value.parse().is_ok_and(|number: u32| number > max);
    is_larger.then(|| Reason::TooLarge { key: key.name, text: value.to_owned(), max })
}
