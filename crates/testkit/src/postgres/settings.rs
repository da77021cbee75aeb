//! Settings of a running server.

use std::time::Duration;

use super::Postgres;
use crate::wait::eventually;

impl Postgres {
    /// Sets a parameter that a reload changes, and waits until new sessions have the value.
    #[track_caller]
    pub fn set(&self, parameter: &str, value: &str) {
        self.sql("postgres", &format!("ALTER SYSTEM SET {parameter} = '{value}'"));
        self.sql("postgres", "SELECT pg_reload_conf()");
        eventually("new sessions have the value", Duration::from_secs(20), || {
            let found = self.superuser("postgres").value(&format!("SHOW {parameter}"));
            (found == value).then_some(())
        });
    }
}
