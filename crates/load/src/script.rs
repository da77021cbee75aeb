//! A script: what a client does in one transaction, parsed once for many runs. The language is
//! pgbench's: SQL statements that end with `;`, and commands that begin with a backslash. Of these
//! there are `\set` and `\sleep`.

mod builtin;
mod parse;
mod split;
mod statement;
#[cfg(test)]
mod tests;

pub(crate) use self::{
    builtin::Builtin,
    parse::parse,
    statement::{Piece, Statement},
};
use crate::{expr::Expr, names::Slot};

#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// The name of a file or of a built-in script.
    pub(crate) name: String,
    pub(crate) actions: Vec<Action>,
    /// The number of SQL statements.
    pub(crate) statements: usize,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Sql(Statement),
    /// `\set`.
    Set(Slot, Expr),
    /// `\sleep`: microseconds.
    Sleep(u64),
}
