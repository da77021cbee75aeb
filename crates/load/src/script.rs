//! A script: what a client does in one transaction, made ready to be done many times. Its language is
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
    /// A file's name, or what a built-in one is called.
    pub(crate) name: String,
    /// How often it is chosen, in proportion to the others' weights.
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
    /// `\sleep`: how many of the unit, which is in microseconds.
    Sleep(Amount, u64),
    /// `\if` and `\elif`: where to go on if the condition does not hold.
    Branch {
        condition: Expr,
        otherwise: usize,
    },
    /// The end of a branch: where to go on.
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
