//! What the crate `sql` says of texts, beside what PostgreSQL does with them. No pooler takes part.

mod catalog;
mod lexing;
mod names;
mod regress;
mod session;
mod statements;
