//! Why a configuration was refused, and the configuration without the mistakes.

use std::fmt;

use crate::config::Config;
use crate::error::Mistake;

/// Why a configuration was refused: every mistake in it, by file and line; never empty.
#[derive(Clone, Debug)]
pub struct ConfigError {
    pub mistakes: Vec<Mistake>,
    /// The configuration without the mistaken settings, so that a start that fails can log to the log
    /// file, and `weir check-config` can check the rest. None if the file could not be read.
    pub rest: Option<Box<Config>>,
}

impl ConfigError {
    /// Returns the configuration for a caller that needs only these global keys. Variables that are not
    /// set, and passwords that cannot be read, are no mistakes then: the environment and the files of
    /// the service belong to the service.
    ///
    /// # Errors
    /// When there is another mistake, or one of these keys has a variable that is not set.
    pub fn without_secrets(self, needed: &[&str]) -> Result<Config, Self> {
        let is_of_service = |mistake: &Mistake| {
            let is_global = matches!(mistake.section.as_str(), "" | "pgbouncer");
            mistake.reason.is_of_service() && !(is_global && needed.contains(&&*mistake.key))
        };
        match self.rest {
            Some(rest) if self.mistakes.iter().all(is_of_service) => Ok(*rest),
            rest => Err(Self { rest, ..self }),
        }
    }
}

/// One mistake per line.
impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.mistakes.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            mistake.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
