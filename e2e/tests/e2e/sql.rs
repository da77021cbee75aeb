//! The results of the crate `sql` for texts, compared with PostgreSQL's behaviour. No pooler is
//! involved.

mod catalog;
mod lexing;
mod names;
mod regress;
mod session;
mod statements;
