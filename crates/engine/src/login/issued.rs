//! Passwords that a program prints (`password_command`). The shell runs the program; a login to a
//! server asks for the password before it connects.
//!
//! ```text
//!  asked ─► the password came ─► connecting ─► logged in
//!    ▲                                            │ refused, unless one was refused before
//!    └──── a later one than the refused one ◄─────┘
//! ```

use std::sync::Arc;
use std::time::Duration;

use config::PasswordCommand;

use crate::ids::{Micros, micros};
use crate::login::auth::Password;

/// The longest run of a program, unless `password_lifetime` is shorter.
const RUN_MAX: Duration = Duration::from_secs(30);

/// The shortest time from one run of a program to the next.
pub const RUN_PAUSE: Duration = Duration::from_secs(1);

/// A password that the program has printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// A later password has a higher number.
    pub number: u64,
    pub password: Password,
}

/// A login's question for its password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub command: Arc<PasswordCommand>,
    /// PostgreSQL has refused the password with this number. It may have ended, so the program is run
    /// unless a later one is known.
    pub refused: Option<u64>,
}

impl Wanted {
    /// Returns how long a login waits for the answer: for a pause between two runs, and for a run.
    pub(crate) fn patience(&self) -> Micros {
        micros(RUN_PAUSE + run_max(&self.command))
    }
}

/// Returns the longest time that the program may take.
pub fn run_max(command: &PasswordCommand) -> Duration {
    RUN_MAX.min(command.lifetime)
}

/// A login that uses such a password.
#[derive(Debug)]
pub(crate) struct IssuedLogin {
    pub(crate) wanted: Wanted,
    /// The number of the password, once it is known.
    pub(crate) number: Option<u64>,
}

impl IssuedLogin {
    pub(crate) fn new(command: Arc<PasswordCommand>, refused: Option<u64>) -> Self {
        Self { wanted: Wanted { command, refused }, number: None }
    }

    /// Returns the number of the password that PostgreSQL refuses, if the login may be repeated with a
    /// later one. It may not if PostgreSQL has refused the pool's password before, and accepted none
    /// since then: a program may print another password each time, and all of them may be wrong.
    pub(crate) fn repeats_without(&self) -> Option<u64> {
        self.number.filter(|_| self.wanted.refused.is_none())
    }
}
