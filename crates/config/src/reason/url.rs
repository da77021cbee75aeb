//! Why a URL cannot be used. No text repeats its password.

use thiserror::Error;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UrlError {
    #[error("a URL begins with postgresql:// or postgres://")]
    Scheme,
    #[error("\"/\" and \"?\" in a password are written %2F and %3F")]
    PasswordCut,
    #[error("\"%\" without two hexadecimal digits")]
    Percent,
    #[error("\"%00\" is not allowed")]
    Zero,
    #[error("percent-encoded bytes are not UTF-8")]
    NotUtf8,
    #[error("\"[\" without \"]\"")]
    Bracket,
    #[error("no \":\" before the port")]
    NoColon,
    #[error("all hosts must have the same port")]
    Ports,
    #[error("a parameter has no \"=\"")]
    NoValue,
    #[error("{0}: remove it: the URL itself decides who may log in")]
    DecidesLogin(String),
    #[error("unknown parameter: {key}{}", crate::suggest::hint(*suggestion))]
    UnknownParameter { key: String, suggestion: Option<&'static str> },
    #[error(
        "a user without a password: set PGPASSWORD or PGPASSFILE, write user:password@, or leave the \
         user out to let each client prove its own password"
    )]
    NoPassword,
    #[error("a password without a user")]
    NoUser,
    #[error("could not read {file}, the value of {variable}: {why}")]
    PasswordFile { variable: String, file: String, why: String },
    #[error("{0} has no effect: the variables of the server decide who may log in")]
    NoEffectOnLogin(String),
    #[error("{variable} is not known{}", crate::suggest::hint(suggestion.as_deref()))]
    UnknownVariable { variable: String, suggestion: Option<String> },
}
