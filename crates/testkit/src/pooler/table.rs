//! The reply to a console command.

use crate::Outcome;

/// Rows with named columns.
#[derive(Debug, Clone)]
pub struct Table {
    /// Column names in order.
    pub columns: Vec<String>,
    /// Values; NULL is the empty text.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(outcome: Outcome) -> Self {
        let text = |row: Vec<Option<String>>| row.into_iter().map(Option::unwrap_or_default);
        let rows = outcome.rows.into_iter().map(|row| text(row).collect()).collect();
        Self { columns: outcome.columns, rows }
    }

    /// Returns the values of one column.
    #[track_caller]
    pub fn column(&self, name: &str) -> Vec<&str> {
        let index = self.index(name);
        self.rows.iter().map(|row| row[index].as_str()).collect()
    }

    /// Returns the rows in which a column has this value.
    #[track_caller]
    pub fn with(&self, name: &str, value: &str) -> Self {
        let index = self.index(name);
        let rows = self.rows.iter().filter(|row| row[index] == value).cloned().collect();
        Self { columns: self.columns.clone(), rows }
    }

    /// Returns the value of a column in the only row.
    #[track_caller]
    pub fn only(&self, name: &str) -> &str {
        match self.column(name)[..] {
            [value] => value,
            _ => panic!("not one row: {self:?}"),
        }
    }

    /// Returns the sum of a column of integers.
    #[track_caller]
    pub fn sum(&self, name: &str) -> u64 {
        let number = |text: &str| text.parse::<u64>().unwrap_or_else(|e| panic!("{text}: {e}"));
        self.column(name).into_iter().map(number).sum()
    }

    #[track_caller]
    fn index(&self, name: &str) -> usize {
        let found = self.columns.iter().position(|column| column == name);
        found.unwrap_or_else(|| panic!("no column {name} among {:?}", self.columns))
    }
}
