//! Finds what a SQL text may leave in the session that runs it, told from its bytes.
//!
//! [`scan`] answers with [`Signs`]: may it change a setting, make a temporary table, take an
//! advisory lock? It never says that a text *does*. Weir lets PostgreSQL run the text and asks
//! it afterwards what was left; a text without signs need not be asked about. So a sign too many
//! costs a query, and a sign too few gives one client's state to another. Where this crate is not
//! sure it gives a sign.
//!
//! [`statements`] splits a text and says what each statement is and which name it has: Weir needs
//! the names of prepared statements (PREPARE, EXECUTE, DEALLOCATE). The text itself is neither
//! changed nor answered.
//!
//! [`signal_call`] reads a text that only cancels or terminates a backend.
//!
//! [`literals`] gives a text's strings, some of which are read as the time at which they are
//! parsed.
//!
//! It is not a parser. The lexer is exact about what a token is (PostgreSQL's manual, "Lexical
//! Structure"; `scan.l` where the manual is silent), since a quote taken for something else would
//! hide all that follows. A few rules decide what the tokens mean, listed in `judge`.
//!
//! # What cannot be seen in a text
//!
//! A function of the user's may do anything. One that is *called* is seen ([`Signs::OPAQUE`]),
//! if its name is not one of PostgreSQL's own. These call functions, too, and do not show it:
//!
//! * operators, casts and the input functions of types that users have made;
//! * triggers, rules, views, column defaults, generated columns, check constraints, row security
//!   policies, expressions of indexes, event triggers;
//! * `table.function`, which is the call `function(table)` if there is no such column;
//! * a function of the user's with a name of PostgreSQL's own and other arguments, or in a schema
//!   that stands before `pg_catalog` in the `search_path`.
//!
//! State that is set in such a way is not found. The same holds for what shows in no view of
//! PostgreSQL, such as a library that a function in C has loaded.
//!
//! Invariant: no byte can panic it, and nothing is allocated but by [`Cache::new`].

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod cache;
mod functions;
mod identifier;
mod judge;
mod keyword;
mod lexer;
mod literals;
mod mark;
mod name;
mod names;
mod scanner;
mod signals;
mod signs;
mod statements;
#[cfg(test)]
mod tests;

pub use cache::Cache;
pub use identifier::identifier;
pub use literals::literals;
pub use scanner::{Scanner, scan, scan_either};
pub use signals::{Process, SignalCall, signal_call};
pub use signs::{Seen, Signs};
pub use statements::{Discarded, Statement, Statements, Verb, statements};
