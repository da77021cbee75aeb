//! The names of functions that the crate `sql` takes for PostgreSQL's own are just those of the
//! versions that tests have. `UPDATE_NAMES=1` writes its lists anew.

use std::collections::BTreeSet;
use std::path::Path;

use testkit::Postgres;

/// Those that only PostgreSQL calls, of triggers, types and languages, are in it: nobody is harmed.
const FUNCTIONS: &str = "\
SELECT DISTINCT proname FROM pg_proc \
WHERE pronamespace = 'pg_catalog'::regnamespace AND proname ~ '^[a-z0-9_]+$' AND oid < 16384";

/// Reserved, or allowed as a column's name and not as a function's.
const RESERVED: &str = "SELECT word FROM pg_get_keywords() WHERE catcode IN ('C', 'R')";

#[test]
fn the_names_of_functions_are_those_of_postgresql() {
    compare("builtin.txt", FUNCTIONS);
}

#[test]
fn the_words_that_are_no_functions_are_those_of_postgresql() {
    compare("reserved.txt", RESERVED);
}

fn compare(file: &str, query: &str) {
    let servers = [Postgres::shared(), Postgres::shared_v18()];
    let rows = servers.iter().flat_map(|postgres| postgres.sql("template1", query));
    let names: BTreeSet<String> = rows.filter_map(|mut row| row.pop().flatten()).collect();
    let text: String = names.iter().flat_map(|name| [name.as_str(), "\n"]).collect();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let path = crates.join("sql/src/functions").join(file);
    if std::env::var_os("UPDATE_NAMES").is_some() {
        std::fs::write(&path, &text).expect("the list can be written");
    }
    let kept = std::fs::read_to_string(&path).expect("the list can be read");
    assert!(kept == text, "{file} is not what the servers say; UPDATE_NAMES=1 writes it anew");
}
