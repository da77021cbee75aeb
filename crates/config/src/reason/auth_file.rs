//! Why reading an `auth_file` stops early, in PgBouncer's words.

use thiserror::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AuthFileError {
    #[error("broken auth file")]
    Broken,
    #[error("username too long in auth file")]
    LongUser,
    #[error("password too long in auth file")]
    LongPassword,
}
