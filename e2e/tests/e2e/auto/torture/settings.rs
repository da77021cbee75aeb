//! Settings that a session may have: two values for victims, and two for strangers.

use super::scenes::{Keeps, Scene};
use super::stage::VICTIMS;

/// A name, how SET takes four values, and what shows that it acts, besides SHOW.
type Row = (&'static str, [&'static str; 4], &'static [&'static str]);

const TABLE: &[Row] = &[
    ("work_mem", ["'5MB'", "'6MB'", "'98MB'", "'99MB'"], &[]),
    ("maintenance_work_mem", ["10240", "20480", "90001", "90002"], &[]),
    ("lock_timeout", ["'1min'", "'90s'", "0", "'5h'"], &[]),
    ("statement_timeout", ["'10min'", "650000", "'2h'", "'3h'"], &[]),
    ("vacuum_cost_delay", ["1.5", "'2500us'", "7", "8"], &[]),
    ("random_page_cost", ["1.1", "2.25", "99", "98.5"], &[]),
    (
        "enable_seqscan",
        ["off", "on", "off", "off"],
        &["EXPLAIN (COSTS OFF) SELECT * FROM s1.place"],
    ),
    ("enable_hashjoin", ["false", "true", "no", "0"], &[]),
    ("bytea_output", ["escape", "hex", "'escape'", "escape"], &[r"SELECT '\x6162ff'::bytea"]),
    ("constraint_exclusion", ["on", "off", "on", "off"], &[]),
    ("search_path", ["s1, public", "\"s 3\", \"$user\"", "hostile", "hostile, s1"], PLACE),
    ("search_path", ["''", "pg_catalog, s1", "hostile", "hostile, s1"], PLACE),
    ("search_path", ["'s1, public'", "s2, nowhere, s1", "hostile", "hostile, s1"], PLACE),
    ("application_name", ["'it''s'", "E'a\\\\b \"c\"'", "'stranger'", "stranger"], &[]),
    (
        "DateStyle",
        ["German", "'SQL, DMY'", "'Postgres, MDY'", "'ISO, YMD'"],
        &["SELECT date '2020-02-01'"],
    ),
    (
        "IntervalStyle",
        ["iso_8601", "sql_standard", "postgres", "postgres"],
        &["SELECT interval '1 day 2:00'"],
    ),
    ("TimeZone", ["'Europe/Berlin'", "'<-03>+03'", "'America/New_York'", "'UTC'"], TIME),
    ("TimeZone", ["-7", "5.5", "'America/New_York'", "'UTC'"], TIME),
    ("client_encoding", ["LATIN1", "UTF8", "WIN1252", "LATIN9"], &["SELECT U&'\\00e4'"]),
    ("standard_conforming_strings", ["off", "on", "off", "off"], &[r"SELECT '\x', length('\\')"]),
    ("backslash_quote", ["on", "off", "safe_encoding", "on"], &[]),
    ("extra_float_digits", ["0", "-3", "2", "-15"], &["SELECT 0.1::float8 + 0.2"]),
    (
        "default_transaction_isolation",
        ["serializable", "'repeatable read'", "serializable", "serializable"],
        &["SHOW transaction_isolation"],
    ),
    ("default_transaction_read_only", ["on", "off", "off", "off"], &["SHOW transaction_read_only"]),
    ("default_transaction_deferrable", ["on", "off", "on", "off"], &[]),
    ("temp_tablespaces", ["''", "pg_default", "''", "pg_default"], &[]),
    (
        "default_text_search_config",
        ["'pg_catalog.german'", "simple", "'pg_catalog.french'", "simple"],
        &["SELECT to_tsvector('the trees')"],
    ),
    ("lc_monetary", ["'C'", "\"C.UTF-8\"", "'POSIX'", "'POSIX'"], &[]),
    ("xmloption", ["document", "content", "document", "document"], &[]),
    (
        "plpgsql.extra_warnings",
        ["'shadowed_variables'", "'too_many_rows, strict_multi_assignment'", "'all'", "'none'"],
        &[],
    ),
    (
        "client_min_messages",
        ["warning", "notice", "error", "error"],
        &["DROP TABLE IF EXISTS nowhere_to_be_found"],
    ),
    ("row_security", ["off", "on", "off", "off"], &[]),
    (
        "plan_cache_mode",
        ["force_custom_plan", "auto", "force_generic_plan", "force_generic_plan"],
        &[],
    ),
    ("force_parallel_mode", ["on", "regress", "off", "off"], &[]),
    ("gin_pending_list_limit", ["'3MB'", "4096", "'5MB'", "'6MB'"], &[]),
    ("app.letters", ["'ä€'", "'ö'", "'stranger'", "'strange'"], &[]),
    ("search_path", ["s1, \"ä\"", "\"ö\", s2", "hostile", "hostile, s1"], PLACE),
    ("app.tenant", ["'7'", "'it''s \"x\"'", "'stranger'", "'strange'"], &[]),
    ("app.a.b", ["'$1'", "E'x\\\\y'", "'stranger'", "'strange'"], &[]),
    ("\"App\".\"Tenant\"", ["'1'", "'2'", "'stranger'", "'strange'"], &[]),
];

const PLACE: &[&str] = &[
    "SELECT name FROM place",
    "SELECT regexp_replace(current_schemas(false)::text, 'pg_temp_[0-9]+', 'pg_temp', 'g')",
];
const TIME: &[&str] = &["SELECT timestamptz '2020-07-01 00:00+00'"];

pub(super) fn scenes(victim: usize, _number: usize) -> Vec<Scene> {
    let mut all: Vec<Scene> = TABLE.iter().map(|row| scene(row, victim)).collect();
    let rows = ["work_mem", "TimeZone", "search_path", "IntervalStyle", "app.tenant"];
    for (name, values, looks) in TABLE.iter().filter(|(name, ..)| rows.contains(name)) {
        // What its startup packet says is what it goes back to.
        for option in [false, true] {
            let mut scene = scene(&(name, *values, looks), victim);
            let own = values[VICTIMS - 1 - victim].trim_matches('\'').to_owned();
            scene.startup = vec![match option {
                false => ((*name).to_owned(), own),
                true => ("options".to_owned(), format!("-c {name}={}", own.replace(' ', "\\ "))),
            }];
            scene.name = format!("{}, startup{}", scene.name, if option { " options" } else { "" });
            all.push(scene);
        }
    }
    all
}

fn scene((name, values, more): &Row, victim: usize) -> Scene {
    let value = values[victim];
    let is_custom = name.contains('.') && !name.starts_with("plpgsql");
    let show = match is_custom {
        // Where a stranger has set it it is empty, and no longer NULL.
        true => format!("SELECT nullif(current_setting('{}', true), '')", name.replace('"', "")),
        false => format!("SHOW {name}"),
    };
    let text = match value.starts_with(['\'', 'E']) {
        true => value.to_owned(),
        false => format!("'{value}'"),
    };
    let is_list = *name == "search_path" && value.starts_with('\'');
    let setting = (!is_list && !value.starts_with('E')).then(|| (name.replace('"', ""), text));
    Scene {
        name: format!("{name} {}", values[0]),
        act: format!("SET {name} = {value}"),
        looks: [show].into_iter().chain(more.iter().map(|look| (*look).to_owned())).collect(),
        undo: format!("RESET {name}"),
        keeps: Keeps::Never,
        setting,
        is_custom,
        ..Scene::default()
    }
}

/// What a stranger sets when it comes.
pub(super) fn of_stranger(number: usize) -> String {
    let set = |(name, values, _): &Row| format!("SET {name} = {};", values[2 + number % 2]);
    let all: String = TABLE.iter().map(set).collect();
    format!("{all} SET ROLE torture_stranger")
}
