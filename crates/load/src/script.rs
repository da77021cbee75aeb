//! A script: what a client does in one transaction, parsed once for many runs. The language is
//! pgbench's: SQL statements that end with `;`, and commands that begin with a backslash.

mod builtin;
mod parse;
mod split;
mod statement;
#[cfg(test)]
mod tests;

pub(crate) use self::{
    builtin::{BUILTINS, Builtin},
    parse::parse,
    statement::{Piece, Statement, Store},
};
use crate::{expr::Expr, names::Slot};

#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// The name of a file or of a built-in script.
    pub(crate) name: String,
    /// The relative frequency with which it is chosen.
    pub(crate) weight: u32,
    pub(crate) commands: Vec<Command>,
}

#[derive(Clone, Debug)]
pub(crate) struct Command {
    /// Its first line, for reports.
    pub(crate) text: String,
    pub(crate) action: Action,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Sql(Statement),
    /// `\set`.
    Set(Slot, Expr),
    /// `\sleep`: the amount, and the unit in microseconds.
    Sleep(Amount, u64),
    /// `\if` and `\elif`: the position to continue at if the condition is false.
    Branch {
        condition: Expr,
        otherwise: usize,
    },
    /// The end of a branch: the position to continue at.
    Jump(usize),
    StartPipeline,
    SyncPipeline,
    EndPipeline,
}

#[derive(Clone, Debug)]
pub(crate) enum Amount {
    Fixed(i64),
    Variable(Slot),
}
