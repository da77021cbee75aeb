//! Finds what a SQL text may leave in the session that runs it.
//!
//! [`scan`] returns [`Signs`]: may the text change a setting, create a temporary table, take an
//! advisory lock? It never says that a text *does*. Weir lets PostgreSQL run the text and then asks
//! it what was left. A text without signs needs no question. So a needless sign costs a query, and
//! a missing sign gives one client's state to another. In doubt this crate gives a sign.
//!
//! [`statements`] splits a text and returns the kind and name of each statement. Weir needs the
//! names of prepared statements (PREPARE, EXECUTE, DEALLOCATE). The text itself is not changed.
//!
//! [`signal_call`] reads a text that only cancels or terminates a backend.
//!
//! [`normalize`] writes a text without its literals, as an operator may see it.
//!
//! [`literals`] returns a text's strings. PostgreSQL may read some of them as the time of parsing.
//!
//! [`read_verdict`] decides whether a text may run on a standby, with the names that a
//! [`CatalogView`] holds. Here, too, a doubt leads to the primary.
//!
//! It is not a parser. The lexer finds tokens exactly (PostgreSQL's manual, "Lexical Structure";
//! `scan.l` where the manual is silent), since a misread quote would hide all that follows. A few
//! rules decide what the tokens mean; `judge` has the list.
//!
//! # What cannot be seen in a text
//!
//! A user's function may do anything. A *call* of one is found ([`Signs::OPAQUE`]), if its name is
//! not one of PostgreSQL's own. These also call functions, and do not show it:
//!
//! * operators, casts and the input functions of types that users have made;
//! * triggers, rules, views, column defaults, generated columns, check constraints, row security
//!   policies, expressions of indexes, event triggers;
//! * `table.function`, which is the call `function(table)` if there is no such column;
//! * a user's function with a name of PostgreSQL's own and other arguments, or in a schema before
//!   `pg_catalog` in the `search_path`.
//!
//! State that is set in this way is not found. The same holds for state that no view of PostgreSQL
//! shows, such as a library that a function in C has loaded.
//!
//! Invariant: no byte can make it panic, and for a text it allocates no memory. [`Cache::new`] does,
//! and [`Catalog`], which is made of a database's catalogs.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod cache;
mod catalog;
mod functions;
mod identifier;
mod judge;
mod keyword;
mod lexer;
mod literals;
mod mark;
mod name;
mod names;
mod normalize;
mod process_id;
mod reads;
mod scanner;
mod signals;
mod signs;
mod statements;
#[cfg(test)]
mod tests;
mod walk;

pub use cache::Cache;
pub use catalog::{BadRow, CHANGES, Catalog, CatalogView, Lists, Part as CatalogPart};
pub use identifier::identifier;
pub use literals::literals;
pub use normalize::normalize;
pub use process_id::keeps_process_id;
pub use reads::{Hint, Reading, Refusal, Verdict, hint, read_verdict};
pub use scanner::{Scanner, scan, scan_either};
pub use signals::{Process, SignalCall, signal_call};
pub use signs::{Seen, Signs};
pub use statements::{Discarded, Statement, Statements, Verb, statements};
