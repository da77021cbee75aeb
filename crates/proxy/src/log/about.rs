//! The connection that a line is about.

use std::fmt;

/// PgBouncer's names for a database and a user that are not known yet.
const UNKNOWN: [&str; 2] = ["(nodb)", "(nouser)"];

/// The connection that a line is about. A line begins with it: `C-0x1a: database/user@address`.
#[derive(Clone, Copy)]
pub struct About<'a> {
    /// `C` for a client, `S` for a server.
    pub side: char,
    /// Tells connections apart while they live.
    pub number: Option<u64>,
    pub database: &'a str,
    pub user: &'a str,
    pub address: &'a dyn fmt::Display,
}

impl About<'_> {
    /// Returns the fields by name, without those that are unknown.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&'static str, &dyn fmt::Display)> {
        let known = |name| !UNKNOWN.contains(&name);
        let database = known(self.database).then_some(&self.database as &dyn fmt::Display);
        let user = known(self.user).then_some(&self.user as &dyn fmt::Display);
        [("database", database), ("user", user), ("address", Some(&self.address as _))]
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
    }

    /// Returns the name of the connection, such as `C-0x1a`.
    pub(super) fn connection(&self) -> String {
        let number = self.number.map(|number| format!("{number:#x}"));
        format!("{}-{}", self.side, number.unwrap_or_default())
    }
}

impl fmt::Display for About<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { database, user, address, .. } = self;
        write!(f, "{}: {database}/{user}@{address}", self.connection())
    }
}

impl fmt::Debug for About<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
