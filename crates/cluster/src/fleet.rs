//! Several Weirs in front of one cluster: its *members*. They agree by records in etcd.
//!
//! * `records.rs`: the records, and their form in etcd
//! * `view.rs`: all records of a cluster, as one member has seen them
//! * `lease.rs`: how long a member may send to a writer without an answer from etcd
//! * `membership.rs`: what one member asks of etcd, step by step
//! * `succession.rs`: the terms around a change of the primary
//! * `majority.rs`: when the leader may begin a change of the primary
//! * `address.rs`: the member that holds the virtual address
//!
//! Invariants:
//! * The term changes only by the leader, and only from the term that it has seen.
//! * In a term with [`Phase::Closed`], a node is promoted only after each other member has confirmed
//!   the term, or has lost its lease.
//! * A member sends to a writer only while it holds its lease, and only if the last term that it has
//!   seen names that writer. Its records vanish from etcd after its lease has ended by its own clock.
//! * A member has the virtual address only while the record `address` names it, and the kernel removes
//!   the address before the member's lease ends.

pub mod address;
pub mod lease;
pub mod majority;
pub mod membership;
pub mod records;
pub mod succession;
pub mod view;

pub use self::address::{Holding, OwnAddress};
pub use self::lease::{Lease, TTL, VIEW};
pub use self::majority::Hesitation;
pub use self::membership::{Answer, Gate, MARGIN, Me, Membership, News, Own, Request, Transaction};
pub use self::records::{FORMAT, Holder, Leader, Member, Pause, Phase, Record, Seen, Term, Writer};
pub use self::succession::{Succession, Turn};
pub use self::view::View;
