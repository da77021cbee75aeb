//! What a session can hold besides plain settings: how it comes, what shows it, how it goes.

use super::stage::VICTIMS;

/// Roles that scenes speak of.
pub(super) const ROLES: [&str; 4] = ["torture_a", "torture_b", "torture_stranger", "\"torture c\""];

/// How long may a client keep its server for it?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Keeps {
    #[default]
    Never,
    /// At most as long as it is there.
    Meanwhile,
    ForGood,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Scene {
    pub(super) name: String,
    pub(super) startup: Vec<(String, String)>,
    pub(super) before: Vec<String>,
    pub(super) act: String,
    pub(super) looks: Vec<String>,
    pub(super) undo: String,
    pub(super) keeps: Keeps,
    /// A name and a literal, where `set_config` does the same.
    pub(super) setting: Option<(String, String)>,
    /// It is a setting that PostgreSQL does not know.
    pub(super) is_custom: bool,
}

/// Name, what was done before, the act, what shows it, what ends it; `$V` is the victim's own,
/// `$N` another number each time.
type Row = (
    &'static str,
    Keeps,
    &'static [&'static str],
    &'static str,
    &'static [&'static str],
    &'static str,
);

use Keeps::{ForGood, Meanwhile, Never};

const MINE: &[&str] = &["SELECT * FROM mine", "SELECT to_regclass('pg_temp.mine')"];
const LOCKS: &[&str] = &["SELECT classid, objid, objsubid, mode FROM pg_locks \
    WHERE locktype = 'advisory' AND pid = pg_backend_pid() ORDER BY 1, 2, 3, 4"];
const WHO: &[&str] = &["SELECT current_user, session_user", "SHOW role", "SHOW is_superuser"];
const PREPARED: &[&str] = &["EXECUTE mine"];
const CHANNELS: &[&str] =
    &["SELECT * FROM pg_listening_channels() ORDER BY 1", "NOTIFY channel_$V, 'told'"];
/// All that `DISCARD` and its like take away, in part.
const ALL_OF_IT: &[&str] = &[
    "SET work_mem = '5$VMB'",
    "SET search_path = s1",
    "SET app.tenant = '$V'",
    "CREATE TEMP TABLE mine AS SELECT $V AS a",
    "PREPARE mine AS SELECT $V",
    "LISTEN channel_$V",
    "SELECT pg_advisory_lock(7$V)",
    "DECLARE mine CURSOR WITH HOLD FOR SELECT $V",
];
const LOOK_AT_ALL: &[&str] = &[
    "SHOW work_mem",
    "SHOW search_path",
    "SELECT nullif(current_setting('app.tenant', true), '')",
    "SELECT * FROM mine",
    "EXECUTE mine",
    "SELECT * FROM pg_listening_channels() ORDER BY 1",
    "SELECT objid FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() ORDER BY 1",
    "SELECT name FROM pg_cursors ORDER BY 1",
];

const TABLE: &[Row] = &[
    (
        "temp table",
        Meanwhile,
        &[],
        "CREATE TEMP TABLE mine AS SELECT $V AS a",
        MINE,
        "DROP TABLE mine",
    ),
    (
        "temporary table",
        Meanwhile,
        &[],
        "CREATE LOCAL TEMPORARY TABLE mine (a int, b serial)",
        MINE,
        "DROP TABLE IF EXISTS mine CASCADE",
    ),
    (
        "table in pg_temp",
        Meanwhile,
        &[],
        "CREATE TABLE pg_temp.mine (a int DEFAULT $V)",
        MINE,
        "DISCARD TEMP",
    ),
    (
        "table in pg_temp by path",
        Meanwhile,
        &["SET search_path = pg_temp"],
        "CREATE TABLE mine (a int DEFAULT $V)",
        MINE,
        "DROP TABLE mine",
    ),
    (
        "temp table, delete rows",
        Meanwhile,
        &[],
        "CREATE TEMP TABLE mine (a int) ON COMMIT DELETE ROWS",
        &["INSERT INTO mine VALUES ($V) RETURNING a", "SELECT * FROM mine"],
        "DROP TABLE mine",
    ),
    (
        "temp table, drop",
        Never,
        &[],
        "CREATE TEMP TABLE mine (a int) ON COMMIT DROP",
        MINE,
        "DROP TABLE IF EXISTS mine",
    ),
    ("select into temp", Meanwhile, &[], "SELECT $V AS a INTO TEMP mine", MINE, "DROP TABLE mine"),
    (
        "select into pg_temp",
        Meanwhile,
        &[],
        "SELECT $V AS a INTO pg_temp.mine",
        MINE,
        "DROP TABLE mine",
    ),
    (
        "create temp as execute",
        Meanwhile,
        &["PREPARE making AS SELECT $V AS a"],
        "CREATE TEMP TABLE mine AS EXECUTE making",
        MINE,
        "DISCARD ALL",
    ),
    (
        "explain create temp",
        Meanwhile,
        &[],
        "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) CREATE TEMP TABLE mine AS SELECT $V AS a",
        MINE,
        "DROP TABLE mine",
    ),
    (
        "temp view",
        Meanwhile,
        &[],
        "CREATE TEMP VIEW mine AS SELECT $V AS a",
        MINE,
        "DROP VIEW mine",
    ),
    (
        "view of a temp table",
        Meanwhile,
        &["CREATE TEMP TABLE base AS SELECT $V AS a"],
        "CREATE VIEW mine AS SELECT * FROM base",
        MINE,
        "DROP TABLE base CASCADE",
    ),
    (
        "temp recursive view",
        Meanwhile,
        &[],
        "CREATE OR REPLACE TEMP RECURSIVE VIEW mine (a) AS SELECT $V",
        MINE,
        "DROP VIEW mine",
    ),
    (
        "temp sequence",
        Meanwhile,
        &[],
        "CREATE TEMP SEQUENCE mine START $V0",
        &["SELECT nextval('mine')", "SELECT nextval('mine')"],
        "DROP SEQUENCE mine",
    ),
    (
        "temp function",
        Meanwhile,
        &[],
        "CREATE FUNCTION pg_temp.mine() RETURNS int LANGUAGE sql AS 'SELECT $V'",
        &["SELECT pg_temp.mine()"],
        "DROP FUNCTION pg_temp.mine()",
    ),
    (
        "temp type",
        Meanwhile,
        &[],
        "CREATE TYPE pg_temp.mine AS ENUM ('a', 'b$V')",
        &["SELECT enum_range(NULL::pg_temp.mine)::text"],
        "DROP TYPE pg_temp.mine",
    ),
    (
        "temp domain",
        Meanwhile,
        &[],
        "CREATE DOMAIN pg_temp.mine AS int CHECK (VALUE = $V)",
        &["SELECT 1::pg_temp.mine::int"],
        "DROP DOMAIN pg_temp.mine",
    ),
    (
        "temp table and its column",
        Meanwhile,
        &["CREATE TEMP TABLE mine AS SELECT $V AS a"],
        "ALTER TABLE mine RENAME TO thine",
        MINE,
        "DROP TABLE IF EXISTS mine, thine",
    ),
    (
        "ordinary table",
        Never,
        &[],
        "CREATE TABLE public.kept_$N (a int)",
        &["SELECT * FROM public.kept_$N"],
        "DROP TABLE public.kept_$N",
    ),
    (
        "ordinary view",
        Never,
        &[],
        "CREATE VIEW public.seen_$N AS SELECT $V AS a",
        &["SELECT * FROM public.seen_$N"],
        "DROP VIEW public.seen_$N",
    ),
    (
        "advisory lock",
        Meanwhile,
        &[],
        "SELECT pg_advisory_lock($V)",
        LOCKS,
        "SELECT pg_advisory_unlock($V)",
    ),
    (
        "advisory locks twice",
        Meanwhile,
        &["SELECT pg_try_advisory_lock($V)"],
        "SELECT pg_advisory_lock_shared($V), pg_try_advisory_lock_shared($V, 5)",
        LOCKS,
        "SELECT pg_advisory_unlock_all()",
    ),
    (
        "advisory lock of a transaction",
        Never,
        &[],
        "SELECT pg_advisory_xact_lock($V)",
        LOCKS,
        "SELECT pg_advisory_unlock($V)",
    ),
    (
        "cursor",
        Meanwhile,
        &[],
        "DECLARE mine CURSOR WITH HOLD FOR SELECT generate_series($V0, $V9)",
        &["FETCH 2 FROM mine", "FETCH FROM mine", "SELECT name FROM pg_cursors ORDER BY 1"],
        "CLOSE mine",
    ),
    (
        "scroll cursor",
        Meanwhile,
        &[],
        "DECLARE mine BINARY SCROLL CURSOR WITH HOLD FOR SELECT generate_series($V0, $V9)",
        &["FETCH 2 FROM mine", "FETCH PRIOR FROM mine"],
        "CLOSE ALL",
    ),
    (
        "cursor without hold",
        Never,
        &[],
        "DECLARE mine CURSOR FOR SELECT $V",
        &["FETCH mine"],
        "CLOSE ALL",
    ),
    ("prepare", Meanwhile, &[], "PREPARE mine AS SELECT $V AS a", PREPARED, "DEALLOCATE mine"),
    (
        "prepare with parameters",
        Meanwhile,
        &[],
        "PREPARE mine (int, text) AS SELECT $1 + $V AS a, $2",
        &["EXECUTE mine (1, 'x')", "EXECUTE mine (1)", "EXPLAIN (COSTS OFF) EXECUTE mine (2, 'y')"],
        "DEALLOCATE PREPARE ALL",
    ),
    (
        "prepare to set",
        Meanwhile,
        &["PREPARE mine (text) AS SELECT set_config('work_mem', $1, false)"],
        "EXECUTE mine ('5$VMB')",
        &["SHOW work_mem"],
        "DISCARD ALL",
    ),
    (
        "deallocate",
        Meanwhile,
        &["PREPARE mine AS SELECT $V", "PREPARE thine AS SELECT -$V"],
        "DEALLOCATE mine",
        &["EXECUTE mine", "EXECUTE thine"],
        "DEALLOCATE ALL",
    ),
    ("listen", Never, &[], "LISTEN channel_$V", CHANNELS, "UNLISTEN channel_$V"),
    (
        "listen to two",
        Never,
        &["LISTEN \"Other $V\""],
        "LISTEN channel_$V",
        &[
            "SELECT * FROM pg_listening_channels() ORDER BY 1",
            "SELECT pg_notify('Other $V', 'x'), pg_notify('channel_$V', '')",
        ],
        "UNLISTEN *",
    ),
    ("unlisten", Never, &["LISTEN channel_$V"], "UNLISTEN channel_$V", CHANNELS, "UNLISTEN *"),
    ("unlisten all", Never, &["LISTEN channel_$V"], "UNLISTEN *", CHANNELS, "UNLISTEN *"),
    ("notify", Never, &[], "NOTIFY channel_$V", &["SELECT 1"], "UNLISTEN *"),
    ("discard all", Meanwhile, ALL_OF_IT, "DISCARD ALL", LOOK_AT_ALL, "DISCARD ALL"),
    ("discard temp", Meanwhile, ALL_OF_IT, "DISCARD TEMP", LOOK_AT_ALL, "DISCARD ALL"),
    ("discard plans", Meanwhile, ALL_OF_IT, "DISCARD PLANS", LOOK_AT_ALL, "DISCARD ALL"),
    ("discard sequences", Meanwhile, ALL_OF_IT, "DISCARD SEQUENCES", LOOK_AT_ALL, "DISCARD ALL"),
    ("reset all", Meanwhile, ALL_OF_IT, "RESET ALL", LOOK_AT_ALL, "DISCARD ALL"),
    ("deallocate all", Meanwhile, ALL_OF_IT, "DEALLOCATE ALL", LOOK_AT_ALL, "DISCARD ALL"),
    (
        "unlock all",
        Meanwhile,
        ALL_OF_IT,
        "SELECT pg_advisory_unlock_all()",
        LOOK_AT_ALL,
        "DISCARD ALL",
    ),
    ("close all", Meanwhile, ALL_OF_IT, "CLOSE ALL", LOOK_AT_ALL, "DISCARD ALL"),
    (
        "setseed",
        ForGood,
        &[],
        "SELECT setseed(0.$V)",
        &["SELECT random()", "SELECT random()"],
        "SELECT 1",
    ),
    ("load", ForGood, &[], "LOAD 'plpgsql'", &["SHOW plpgsql.variable_conflict"], "SELECT 1"),
    ("set role", Never, &[], "SET ROLE torture_$R", WHO, "RESET ROLE"),
    ("set role none", Never, &["SET ROLE \"torture c\""], "SET ROLE NONE", WHO, "RESET ROLE"),
    (
        "set role within a role",
        Never,
        &["SET work_mem = '5$VMB'", "SET ROLE torture_a"],
        "SET SESSION ROLE torture_b",
        WHO,
        "RESET ROLE",
    ),
    ("set role to nobody", Never, &[], "SET ROLE nobody_at_all", WHO, "RESET ROLE"),
    (
        "set session authorization",
        Never,
        &["SET ROLE torture_a"],
        "SET SESSION AUTHORIZATION DEFAULT",
        WHO,
        "RESET ROLE",
    ),
    (
        "session authorization of another",
        Never,
        &[],
        "SET SESSION AUTHORIZATION torture_a",
        WHO,
        "RESET ROLE",
    ),
    (
        "time zone interval",
        Never,
        &[],
        "SET TIME ZONE INTERVAL '+0$V:30' HOUR TO MINUTE",
        &["SHOW TimeZone", "SELECT timestamptz '2020-07-01 00:00+00'"],
        "SET TIME ZONE LOCAL",
    ),
    (
        "time zone number",
        Never,
        &[],
        "SET TIME ZONE -$V.5",
        &["SHOW TimeZone", "SELECT timestamptz '2020-07-01 00:00+00'"],
        "SET TIME ZONE DEFAULT",
    ),
    (
        "names",
        Never,
        &[],
        "SET NAMES 'LATIN$V'",
        &["SHOW client_encoding", "SELECT U&'\\00e4'"],
        "SET NAMES DEFAULT",
    ),
    (
        "schema",
        Never,
        &[],
        "SET SCHEMA 's$V'",
        &["SHOW search_path", "SELECT name FROM place"],
        "SET search_path TO DEFAULT",
    ),
    (
        "xml option",
        Never,
        &[],
        "SET XML OPTION DOCUMENT",
        &["SHOW xmloption"],
        "SET xmloption TO DEFAULT",
    ),
    (
        "characteristics",
        Never,
        &[],
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY",
        &[
            "SHOW transaction_isolation",
            "SHOW transaction_read_only",
            "CREATE TABLE public.not_now ()",
        ],
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
    ),
    (
        "set transaction",
        Never,
        &[],
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        &["SHOW transaction_isolation"],
        "SET TRANSACTION READ WRITE",
    ),
    (
        "set local",
        Never,
        &["SET work_mem = '5$VMB'"],
        "SET LOCAL work_mem = '77MB'",
        &["SHOW work_mem"],
        "SET LOCAL work_mem = '78MB'",
    ),
    (
        "set config locally",
        Never,
        &["SET app.tenant = '5$V'"],
        "SELECT set_config('app.tenant', 'local', true)",
        &["SELECT nullif(current_setting('app.tenant', true), '')"],
        "RESET app.tenant",
    ),
    (
        "set default",
        Never,
        &["SET work_mem = '5$VMB'"],
        "SET work_mem TO DEFAULT",
        &["SHOW work_mem"],
        "SET SESSION work_mem TO DEFAULT",
    ),
    (
        "reset",
        Never,
        &["SET lock_timeout = '5$Vs'", "SET IntervalStyle = 'iso_8601'"],
        "RESET lock_timeout",
        &["SHOW lock_timeout", "SHOW IntervalStyle"],
        "RESET IntervalStyle",
    ),
    (
        "reset all of the settings",
        Never,
        &["SET lock_timeout = '5$Vs'", "SET TimeZone = 'UTC'", "SET ROLE torture_$R"],
        "RESET ALL",
        &["SHOW lock_timeout", "SHOW TimeZone", "SELECT current_user"],
        "RESET ROLE",
    ),
    (
        "set twice",
        Never,
        &[],
        "SELECT set_config('work_mem', '5$VMB', false), set_config('work_mem', '77MB', true)",
        &["SHOW work_mem"],
        "RESET work_mem",
    ),
    (
        "set what is there",
        Never,
        &[],
        "SET lock_timeout = '77s'",
        &["SHOW lock_timeout"],
        "RESET lock_timeout",
    ),
    (
        "set in vain",
        Never,
        &["SET work_mem = '5$VMB'"],
        "SET work_mem = 'much'",
        &["SHOW work_mem"],
        "RESET work_mem",
    ),
    ("seed", ForGood, &[], "SET seed = 0.$V", &["SELECT random()", "SELECT random()"], "SELECT 1"),
];

const OF_SUPERUSER: &[Row] = &[
    (
        "load",
        ForGood,
        &[],
        "LOAD 'auto_explain'",
        &["SHOW auto_explain.log_min_duration"],
        "SELECT 1",
    ),
    (
        "setting of a language",
        Never,
        &[],
        "SET plpgsql.variable_conflict = use_column",
        &["SHOW plpgsql.variable_conflict"],
        "RESET plpgsql.variable_conflict",
    ),
    (
        "session authorization",
        Never,
        &[],
        "SET SESSION AUTHORIZATION torture_$R",
        WHO,
        "RESET SESSION AUTHORIZATION",
    ),
    (
        "session authorization default",
        Never,
        &["SET SESSION AUTHORIZATION torture_$R"],
        "SET SESSION AUTHORIZATION DEFAULT",
        WHO,
        "RESET SESSION AUTHORIZATION",
    ),
    (
        "session authorization and role",
        Never,
        &["SET SESSION AUTHORIZATION torture_$R", "SET ROLE torture_stranger"],
        "SET work_mem = '5$VMB'",
        WHO,
        "RESET SESSION AUTHORIZATION",
    ),
    ("role of a superuser", Never, &[], "SET ROLE torture_$R", WHO, "SET ROLE NONE"),
    (
        "replication role",
        Never,
        &[],
        "SET session_replication_role = replica",
        &["SHOW session_replication_role"],
        "RESET session_replication_role",
    ),
    (
        "setting of superusers",
        Never,
        &[],
        "SET log_min_messages = 'error'",
        &["SHOW log_min_messages"],
        "SET log_min_messages TO DEFAULT",
    ),
    (
        "system tables",
        Never,
        &[],
        "SET allow_system_table_mods = on",
        &["SHOW allow_system_table_mods"],
        "RESET allow_system_table_mods",
    ),
    (
        "preload",
        Never,
        &[],
        "SET local_preload_libraries = 'x'",
        &["SHOW local_preload_libraries"],
        "RESET ALL",
    ),
];

/// `number`: for names in the database.
pub(super) fn scenes(victim: usize, number: usize) -> Vec<Scene> {
    read(TABLE, victim, number)
}

pub(super) fn of_superuser(victim: usize, number: usize) -> Vec<Scene> {
    read(OF_SUPERUSER, victim, number)
}

fn read(table: &[Row], victim: usize, number: usize) -> Vec<Scene> {
    assert!(victim < VICTIMS, "the table has letters for so many");
    let own = |text: &str| {
        let number = (number * VICTIMS + victim).to_string();
        let text = text.replace("$V", &(victim + 1).to_string()).replace("$N", &number);
        text.replace("$R", ["a", "b"][victim])
    };
    let all = |texts: &[&str]| texts.iter().map(|text| own(text)).collect::<Vec<_>>();
    let scene = |&(name, keeps, before, act, looks, undo): &Row| Scene {
        name: name.to_owned(),
        before: all(before),
        act: own(act),
        looks: all(looks),
        undo: own(undo),
        keeps,
        ..Scene::default()
    };
    table.iter().map(scene).collect()
}
