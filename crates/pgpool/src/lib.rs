//! Converts the configuration of Pgpool-II to a `weir.toml` (`weir convert pgpool.conf`).
//!
//! [`Settings`] are what the files set. [`convert`] makes the text of a `weir.toml` from them, the
//! files with passwords, and a [`Report`]: what is kept, what has another meaning, and what Weir does
//! not have. The table in `table/` says what becomes of each parameter.
//!
//! This crate opens no files: it gets and returns their texts. A password is never in the `weir.toml`
//! or in the report.

#![forbid(unsafe_code)]

mod cluster;
mod command;
mod conf;
mod convert;
mod docs;
mod lists;
mod logins;
mod passwords;
mod reads;
mod report;
mod table;
mod toml;
mod values;

pub use crate::conf::{Broken, Include, Place, Setting, Settings, is_pgpool};
pub use crate::convert::{Converted, Sources, TextFile, convert};
pub use crate::docs::markdown;
pub use crate::passwords::Decrypt;
pub use crate::report::{Entry, Report};
pub use crate::table::{Part, Row, rows};
