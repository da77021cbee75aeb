//! The crate `sql` treats no name as PostgreSQL's own that a version of PostgreSQL leaves to users.
//!
//! A name too many hides a user's function. A name too few costs one query to the server, so a
//! release of PostgreSQL may add functions without breaking these tests. `UPDATE_NAMES=1` writes
//! the lists anew.

use std::collections::BTreeSet;
use std::path::Path;

use testkit::Postgres;

/// Includes functions that only PostgreSQL calls, for triggers, types and languages. That is
/// harmless.
const FUNCTIONS: &str = "\
SELECT DISTINCT proname FROM pg_proc \
WHERE pronamespace = 'pg_catalog'::regnamespace AND proname ~ '^[a-z0-9_]+$' AND oid < 16384";

/// Words that are reserved, or allowed as the name of a column but not of a function.
const RESERVED: &str = "SELECT word FROM pg_get_keywords() WHERE catcode IN ('C', 'R')";

#[test]
fn every_name_of_a_function_is_known_to_every_version_of_postgresql() {
    no_name_too_many("builtin.txt", FUNCTIONS);
}

#[test]
fn every_word_that_is_no_function_is_reserved_in_every_version_of_postgresql() {
    no_name_too_many("reserved.txt", RESERVED);
}

fn no_name_too_many(file: &str, query: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/sql/src/functions").join(file);
    let servers = [Postgres::shared(), Postgres::shared_v18()].map(|server| names(server, query));
    let [installed, newest] = &servers;
    if std::env::var_os("UPDATE_NAMES").is_some() {
        let lines: String =
            installed.intersection(newest).flat_map(|name| [name.as_str(), "\n"]).collect();
        std::fs::write(&path, lines).expect("the list can be written");
    }
    let list = std::fs::read_to_string(&path).expect("the list can be read");
    assert!(list.lines().count() > 100, "{file} is all but empty");
    let is_everywhere = |name: &str| servers.iter().all(|names| names.contains(name));
    let too_many: Vec<&str> = list.lines().filter(|name| !is_everywhere(name)).collect();
    assert!(
        too_many.is_empty(),
        "{file} has names that not every server has: {too_many:?}; UPDATE_NAMES=1 writes it anew"
    );
}

fn names(server: &Postgres, query: &str) -> BTreeSet<String> {
    let rows = server.sql("template1", query);
    rows.into_iter().filter_map(|mut row| row.pop().flatten()).collect()
}
