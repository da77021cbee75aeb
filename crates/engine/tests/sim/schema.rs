//! The simulated database: tables, as far as they matter to prepared statements, and roles. Each
//! client has one of each and changes it. All servers have the same database; a reference has its
//! own.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::sql::Tag;

/// The present state of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    /// The columns of its rows. A statement that returns other columns is refused.
    pub(crate) shape: u32,
    /// The types of its columns. Parameters keep the types from when they were parsed.
    pub(crate) types: u32,
}

#[derive(Debug, Default)]
struct State {
    tables: HashMap<usize, Table>,
    /// Executions that were refused although their clients had been told the columns.
    refused: HashSet<Tag>,
    begun: HashMap<Tag, u32>,
    /// Numbers drawn, by client.
    drawn: HashMap<usize, u32>,
    /// Clients that have lost the right to their role.
    revoked: HashSet<usize>,
    /// The number of times that the configuration was reloaded.
    reloads: usize,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Schema(Rc<RefCell<State>>);

impl Schema {
    pub(crate) fn table(&self, of: usize) -> Table {
        self.0.borrow().tables.get(&of).copied().unwrap_or_default()
    }

    /// `openly`: the command tag shows the change, and the column types change as well.
    pub(crate) fn change(&self, of: usize, openly: bool) {
        let mut state = self.0.borrow_mut();
        let table = state.tables.entry(of).or_default();
        table.shape += 1;
        table.types += u32::from(openly);
    }

    pub(crate) fn grant(&self, to: usize, granted: bool) {
        let revoked = &mut self.0.borrow_mut().revoked;
        match granted {
            true => revoked.remove(&to),
            false => revoked.insert(to),
        };
    }

    pub(crate) fn is_revoked(&self, from: usize) -> bool {
        self.0.borrow().revoked.contains(&from)
    }

    pub(crate) fn refuse(&self, tag: Tag) {
        self.0.borrow_mut().refused.insert(tag);
    }

    pub(crate) fn was_refused(&self, tag: Tag) -> bool {
        self.0.borrow().refused.contains(&tag)
    }

    /// The next number of the client's sequence.
    pub(crate) fn draw(&self, client: usize) -> u32 {
        let mut state = self.0.borrow_mut();
        let last = state.drawn.entry(client).or_default();
        *last += 1;
        *last
    }

    /// Reloads the configuration. Each server notices it with its next message.
    pub(crate) fn reload(&self) {
        self.0.borrow_mut().reloads += 1;
    }

    pub(crate) fn reloads(&self) -> usize {
        self.0.borrow().reloads
    }

    /// A new process does not know which requests were already sent twice.
    pub(crate) fn forget_begun(&self) {
        self.0.borrow_mut().begun.clear();
    }

    /// Counts how often that transaction has begun.
    pub(crate) fn begin(&self, tag: Tag) -> u32 {
        let mut state = self.0.borrow_mut();
        let count = state.begun.entry(tag).or_default();
        *count += 1;
        *count
    }
}
