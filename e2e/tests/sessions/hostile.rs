//! Hostile clients, which use the servers between the steps of a script. They leave the script's
//! tables and advisory locks alone.

use testkit::{RawClient, frontend};

use crate::texts::{LITERALS, MOMENTS};

/// One action of a hostile client.
#[derive(Debug)]
pub(crate) enum Act {
    /// Sends one text.
    Query(&'static str),
    /// Prepares and executes statements with the names that sessions use.
    Statements,
    /// Sends a pipeline with an error in it.
    Error,
    /// Prepares the texts of sessions whose literals are read by settings, after this text and
    /// before the other one.
    Readings(&'static str, &'static str),
    /// Sends a text and disconnects.
    Leaves(&'static str),
}

impl Act {
    /// Returns whether the client keeps a server of a direct pool until it disconnects.
    pub(crate) fn keeps_in_direct_pool(&self) -> bool {
        const WORDS: [&str; 3] = ["SET ROLE", "PREPARE", "; LISTEN"];
        matches!(self, Self::Query(sql) if WORDS.iter().any(|word| sql.contains(word)))
    }
}

/// The number of readings, with which `ACTS` begin.
pub(crate) const READINGS: usize = 6;

pub(crate) const ACTS: &[Act] = &[
    Act::Readings("RESET ROLE; RESET ALL", ""),
    Act::Readings("RESET ROLE; RESET ALL", ""),
    Act::Readings(
        "RESET ROLE; RESET ALL; SET DateStyle = 'SQL, DMY'; SET array_nulls = off; \
         SET TimeZone = 'Pacific/Kiritimati'",
        "RESET DateStyle; RESET array_nulls; RESET TimeZone",
    ),
    Act::Readings(
        "RESET ALL; BEGIN; SET LOCAL DateStyle = 'SQL, DMY'; SET LOCAL array_nulls = off; \
         SET LOCAL TimeZone = 'Pacific/Kiritimati'; SET LOCAL IntervalStyle = 'sql_standard'",
        "COMMIT",
    ),
    Act::Readings(
        "RESET ALL; BEGIN; SET LOCAL DateStyle = 'German, DMY'; SET LOCAL TimeZone = 'Etc/GMT+12'; \
         SET LOCAL transform_null_equals = on; SET LOCAL timezone_abbreviations = 'Australia'; \
         SET LOCAL search_path = hostile",
        "COMMIT",
    ),
    Act::Readings(
        "RESET ALL; BEGIN; SET standard_conforming_strings = off; SET LOCAL ROLE fuzz_stranger",
        "ROLLBACK",
    ),
    Act::Query(
        "SET search_path = hostile; SET work_mem = '123kB'; SET TimeZone = 'Pacific/Auckland'; \
         SET app.tenant = 'stranger'; SET application_name = 'stranger'; SET app.kept = 'stranger'",
    ),
    Act::Query(
        "SET ROLE fuzz_stranger; SET DateStyle = 'Postgres, YMD'; SET bytea_output = escape",
    ),
    Act::Query("SET default_transaction_read_only = on; SET IntervalStyle = 'sql_standard'"),
    Act::Query("RESET ROLE; RESET ALL"),
    Act::Query("DISCARD ALL"),
    Act::Query("PREPARE q AS SELECT 'stranger'; PREPARE r AS SELECT 'stranger'"),
    Act::Query("SELECT 1/0"),
    Act::Query("BEGIN; CREATE TEMP TABLE mine (stranger int); SET work_mem = '77kB'; ROLLBACK"),
    Act::Query("RESET client_encoding; LISTEN news"),
    Act::Query("UNLISTEN *"),
    // A client that listens in another encoding keeps its server, so it stops listening first.
    Act::Query("UNLISTEN *; SET client_encoding = 'LATIN1'; SET standard_conforming_strings = off"),
    Act::Query("SELECT set_config('app.tenant', 'stranger', false)"),
    Act::Statements,
    Act::Statements,
    Act::Error,
    Act::Leaves(
        "CREATE TEMP TABLE mine (stranger int); CREATE TEMP VIEW place AS SELECT 'stranger' AS name; \
         DECLARE h CURSOR WITH HOLD FOR SELECT 'stranger'; LISTEN weather; \
         SELECT pg_advisory_lock(424242); SET work_mem = '99kB'",
    ),
    Act::Leaves("BEGIN; SET LOCAL work_mem = '88kB'; SET search_path = hostile; SELECT 1"),
];

/// Carries out an action. The error describes an unexpected result.
pub(crate) fn act(client: &mut RawClient, act: &Act) -> Result<(), String> {
    let parts = match act {
        Act::Query(sql) | Act::Leaves(sql) => vec![(frontend::query(sql), 1)],
        Act::Statements => {
            let all = ["a", "b", "c"].map(|name| statement(name, "SELECT 'stranger'"));
            vec![(all.concat(), 3)]
        }
        // While Weir does not know the effect of the first text, it shares nothing.
        Act::Readings(before, behind) => vec![
            (frontend::query(before), 1),
            (readings(), LITERALS.len() + MOMENTS.len()),
            (frontend::query(behind), 1),
        ],
        Act::Error => {
            let failing = ["SELECT 'stranger'", "SELECT 1/0", "SELECT 2"].map(unnamed).concat();
            vec![([failing, frontend::sync()].concat(), 1)]
        }
    };
    let mut status = b'I';
    for (bytes, readies) in parts {
        client.try_send(bytes).map_err(|error| error.to_string())?;
        status = read(client, readies)?;
    }
    if status == b'E' {
        // The client must not keep its server.
        client.try_send(frontend::query("ROLLBACK")).map_err(|error| error.to_string())?;
        read(client, 1)?;
    }
    Ok(())
}

/// Reads until `readies` ReadyForQuery have come. Returns the last one's status.
fn read(client: &mut RawClient, mut readies: usize) -> Result<u8, String> {
    loop {
        let message = client.try_read().map_err(|e| e.to_string())?.ok_or("it is closed")?;
        if message.tag == b'Z' {
            readies -= 1;
            if readies == 0 {
                return Ok(message.body[0]);
            }
        }
    }
}

fn unnamed(sql: &str) -> Vec<u8> {
    [frontend::parse("", sql), frontend::bind("", "", &[]), frontend::execute("", 0)].concat()
}

fn statement(name: &str, sql: &str) -> Vec<u8> {
    [
        frontend::close_statement(name),
        frontend::parse(name, sql),
        frontend::bind("", name, &[]),
        frontend::execute("", 0),
        frontend::sync(),
    ]
    .concat()
}

fn readings() -> Vec<u8> {
    let texts = LITERALS.iter().chain(MOMENTS).enumerate();
    texts.flat_map(|(number, sql)| statement(&format!("l{number}"), sql)).collect()
}
