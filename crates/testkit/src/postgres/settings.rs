//! Settings of a running server.

use std::time::Duration;

use super::{Postgres, append};
use crate::wait::eventually;

impl Postgres {
    /// Sets a parameter that a reload changes, and waits until new sessions have the value.
    #[track_caller]
    pub fn set(&self, parameter: &str, value: &str) {
        self.sql("postgres", &format!("ALTER SYSTEM SET {parameter} = '{value}'"));
        self.reload_until(parameter, value);
    }

    /// Does the same in `postgresql.conf`, which may also name settings of an application.
    #[track_caller]
    pub fn configure(&self, parameter: &str, value: &str) {
        let line = format!("{parameter} = '{value}'\n");
        append(&self.folder.join("data/postgresql.conf"), &line);
        self.reload_until(parameter, value);
    }

    fn reload_until(&self, parameter: &str, value: &str) {
        self.sql("postgres", "SELECT pg_reload_conf()");
        let text = format!("SELECT coalesce(current_setting('{parameter}', true), '')");
        eventually("new sessions have the value", Duration::from_secs(20), || {
            (self.superuser("postgres").value(&text) == value).then_some(())
        });
    }
}
