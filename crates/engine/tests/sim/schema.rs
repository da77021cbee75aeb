//! What the simulated database knows: tables, as far as prepared statements notice them, and roles.
//! Each client has one of both, and changes it. All servers have the same; a reference has its own.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::sql::Tag;

/// What a table is like at present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    /// Which columns its rows have: a statement that returns others is refused.
    pub(crate) shape: u32,
    /// Which types its columns have: parameters keep to those they had when they were parsed.
    pub(crate) types: u32,
}

#[derive(Debug, Default)]
struct State {
    tables: HashMap<usize, Table>,
    /// Executions that were refused although their askers had been told what to expect.
    refused: HashSet<Tag>,
    begun: HashMap<Tag, u32>,
    /// Numbers drawn, by client.
    drawn: HashMap<usize, u32>,
    /// Clients that may not become their roles any more.
    revoked: HashSet<usize>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Schema(Rc<RefCell<State>>);

impl Schema {
    pub(crate) fn table(&self, of: usize) -> Table {
        self.0.borrow().tables.get(&of).copied().unwrap_or_default()
    }

    /// `openly`: the command names what it does, and columns change their types as well.
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

    /// A process that has just taken over does not know which requests were sent twice already.
    pub(crate) fn forget_begun(&self) {
        self.0.borrow_mut().begun.clear();
    }

    /// How often has that transaction begun?
    pub(crate) fn begin(&self, tag: Tag) -> u32 {
        let mut state = self.0.borrow_mut();
        let count = state.begun.entry(tag).or_default();
        *count += 1;
        *count
    }
}
