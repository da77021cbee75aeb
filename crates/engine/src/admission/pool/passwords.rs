//! The passwords of `password_command` that a pool's servers log in with, by their numbers: a later
//! password has a higher one.

/// The facts about a pool's passwords. `None` is before all of them.
#[derive(Debug, Default)]
pub struct Passwords {
    /// The last one that PostgreSQL has refused, unless a login has succeeded since then. Logins need
    /// a later one.
    pub refused: Option<u64>,
    /// The last one that PostgreSQL has accepted.
    accepted: Option<u64>,
    /// The last one whose lifetime has ended.
    ended: Option<u64>,
    /// The one that had ended when the last login began.
    tried_after: Option<u64>,
    /// The one after whose end a server was closed, to make room for a login.
    gave_way_after: Option<u64>,
}

impl Passwords {
    /// PostgreSQL refuses this password.
    pub fn refuse(&mut self, number: u64) {
        self.refused = self.refused.max(Some(number));
    }

    /// PostgreSQL accepts this password.
    pub fn accept(&mut self, number: u64) {
        self.accepted = self.accepted.max(Some(number));
    }

    /// The lifetime of this password, and of all before it, has ended.
    pub fn end(&mut self, number: u64) {
        self.ended = self.ended.max(Some(number));
    }

    /// A login begins.
    pub fn begin_login(&mut self) {
        self.tried_after = self.ended;
    }

    /// Should a login be begun that no client needs? Servers of ended passwords are in use until a later
    /// one is known to be right. One attempt for each end is enough: clients' logins try later ones.
    pub fn wants_login(&self) -> bool {
        self.tried_after < self.ended && self.accepted <= self.ended
    }

    /// Is a server with this password to give way to such a login, where there is no room for one more?
    /// One does, for each end.
    pub fn gives_way(&mut self, number: Option<u64>) -> bool {
        let gives = self.wants_login()
            && self.gave_way_after < self.ended
            && number.is_some()
            && number <= self.ended;
        if gives {
            self.gave_way_after = self.ended;
        }
        gives
    }

    /// Is a server that has logged in with this password to be replaced, since it has ended? PostgreSQL
    /// keeps the session, so the server is used until a later password is known to be right.
    pub fn replaces(&self, number: Option<u64>) -> bool {
        number.is_some() && number <= self.ended && number < self.accepted
    }
}
