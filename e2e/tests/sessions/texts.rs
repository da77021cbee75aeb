//! The texts of scripts. They name tables with their schema; only `place` is found by
//! `search_path`.

/// Schemas, tables and functions, which are created anew for each script.
pub(crate) const OBJECTS: &str = "\
    DROP SCHEMA public CASCADE; CREATE SCHEMA public; GRANT ALL ON SCHEMA public TO PUBLIC; \
    DROP SCHEMA IF EXISTS s1, s2, hostile, fuzz_a CASCADE; \
    CREATE SCHEMA s1; CREATE TABLE s1.place AS SELECT 's1' AS name; \
    CREATE SCHEMA s2; CREATE TABLE s2.place AS SELECT 's2' AS name, 2 AS number; \
    CREATE SCHEMA fuzz_a; CREATE TABLE fuzz_a.place AS SELECT 'of the role' AS name; \
    CREATE SCHEMA hostile; CREATE TABLE hostile.place AS SELECT 'stranger' AS name; \
    CREATE TABLE public.t (n int, s text); INSERT INTO public.t VALUES (1, 'one'), (2, 'two'); \
    CREATE TABLE public.changing AS SELECT 1 AS a; CREATE SEQUENCE public.numbers; \
    CREATE TABLE public.sink (b bytea, s text, n int); \
    CREATE FUNCTION public.own_length(bytea) RETURNS int LANGUAGE sql AS 'SELECT length($1)'; \
    CREATE FUNCTION public.own_set(text, text) RETURNS text LANGUAGE plpgsql \
        AS 'BEGIN RETURN set_config($1, $2, false); END'; \
    CREATE FUNCTION public.own_local(text) RETURNS text LANGUAGE plpgsql \
        AS 'BEGIN RETURN set_config(''work_mem'', $1, true); END'; \
    CREATE FUNCTION public.own_local_of(text, text) RETURNS text LANGUAGE plpgsql \
        AS 'BEGIN RETURN set_config($1, $2, true); END'; \
    CREATE FUNCTION public.own_value() RETURNS text LANGUAGE sql AS 'SELECT ''first'''; \
    CREATE TABLE public.secrets AS SELECT 'secret' AS word; \
    CREATE PROCEDURE public.own_commit() LANGUAGE plpgsql \
        AS 'BEGIN SET work_mem = ''8MB''; COMMIT; SET work_mem = ''9MB''; ROLLBACK; END'; \
    GRANT ALL ON SCHEMA s1, s2, fuzz_a, hostile TO PUBLIC; \
    GRANT ALL ON ALL TABLES IN SCHEMA public, s1, s2, fuzz_a, hostile TO PUBLIC; \
    REVOKE ALL ON public.secrets FROM PUBLIC; \
    GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO PUBLIC";

/// Texts that show a session's state or the tables, and errors.
pub(crate) const LOOKS: &[&str] = &[
    "SELECT name FROM place",
    "SELECT * FROM place",
    "SHOW work_mem",
    "SHOW search_path",
    "SELECT current_setting('TimeZone'), current_setting('DateStyle')",
    "SELECT current_user, session_user",
    "SELECT nullif(current_setting('app.tenant', true), '')",
    "SELECT nullif(current_setting('app.kept', true), '')",
    "SELECT to_timestamp(1700000000)",
    "SELECT make_interval(days => 1, hours => 2)",
    "SELECT convert_to('ab', 'UTF8'), 0.1::float8 + 0.2::float8",
    "SELECT count(*), sum(n) FROM public.t",
    "SELECT n, s FROM public.t ORDER BY n, s LIMIT 3",
    "SELECT generate_series(1, 5)",
    "SELECT * FROM public.changing",
    "SHOW transaction_isolation",
    "SHOW transaction_read_only",
    "SELECT current_setting('application_name'), current_setting('bytea_output')",
    "SELECT 1",
    "SELECT 2 AS two WHERE false",
    "VALUES (1, 'a'), (2, 'b')",
    "SELECT count(*) FROM mine",
    "SELECT public.own_value()",
    "SELECT word FROM public.secrets",
    "",
];

/// Texts that a standby may run.
pub(crate) const READS: &[&str] = &[
    "SELECT count(*), sum(n) FROM public.t",
    "SELECT n, s FROM public.t ORDER BY n, s",
    "SELECT name FROM place",
    "SELECT count(*) FROM public.sink",
    "SELECT a FROM public.changing",
    "SELECT nullif(current_setting('app.tenant', true), '')",
    "SELECT current_user, session_user",
    "TABLE s1.place",
    "VALUES (1, 'a'), (2, 'b')",
    "COPY (SELECT n FROM public.t ORDER BY n) TO STDOUT",
];

pub(crate) const ERRORS: &[&str] = &[
    "SELECT 1/0",
    "SELECT nosuch",
    "SELEC 1",
    "SELECT 1/(n - n) FROM public.t",
    "INSERT INTO public.nosuch VALUES (1)",
    "SET work_mem = 'much'",
    "SET nosuch = 1",
    "SELECT 1; SELECT 1/0; SELECT 2",
    "RELEASE nosuch",
    "EXECUTE nosuch",
    "DEALLOCATE nosuch",
    "FETCH nosuch",
    "VACUUM public.nosuch",
];

pub(crate) const WRITES: &[&str] = &[
    "INSERT INTO public.t VALUES (7, 'seven')",
    "UPDATE public.t SET n = n + 1 WHERE n < 3",
    "DELETE FROM public.t WHERE n > 4",
    "INSERT INTO public.t SELECT nextval('public.numbers'), 'next' RETURNING n",
    "SELECT nextval('public.numbers')",
    "INSERT INTO place SELECT 'new'",
    "TRUNCATE public.sink",
];

pub(crate) const DDL: &[&str] = &[
    "ALTER TABLE public.changing ADD COLUMN b int",
    "ALTER TABLE public.changing DROP COLUMN IF EXISTS b",
    "ALTER TABLE public.changing ALTER COLUMN a TYPE text",
    "ALTER TABLE public.changing ALTER COLUMN a TYPE int USING a::int",
    "DROP TABLE IF EXISTS public.later",
    "CREATE TABLE public.later AS SELECT 1 AS a",
    "SELECT * FROM public.later",
    "CREATE INDEX ON public.t (n)",
    "ALTER TABLE s2.place RENAME COLUMN number TO figure",
    "DROP TABLE public.changing; CREATE TABLE public.changing AS SELECT 'anew' AS a",
    "CREATE OR REPLACE FUNCTION public.own_value() RETURNS text LANGUAGE sql AS $$SELECT 'second'$$",
    "CREATE OR REPLACE FUNCTION public.own_value() RETURNS text LANGUAGE plpgsql \
     AS $$BEGIN RETURN 'third'; END$$",
    "CREATE TABLE s2.kept AS SELECT 'anew' AS name; DROP TABLE s2.place; \
     ALTER TABLE s2.kept RENAME TO place; GRANT ALL ON s2.place TO PUBLIC",
];

/// Texts with a literal that PostgreSQL reads with the settings of the Parse.
pub(crate) const LITERALS: &[&str] = &[
    "SELECT '01/02/2024'::date",
    "SELECT extract(doy FROM '01/02/03'::date)",
    "SELECT extract(epoch FROM '2024-01-02 03:04:05'::timestamptz)",
    "SELECT extract(epoch FROM '2024-01-02 03:04:05 EST'::timestamptz)",
    "SELECT extract(epoch FROM '-1 02:03:04'::interval)",
    "SELECT ('{NULL}'::text[])[1] IS NULL",
    "SELECT count(*) FROM (VALUES (1), (NULL)) AS v(a) WHERE a = NULL",
    r"SELECT length('a\\b')",
    "SELECT 'today'::date",
    "SELECT 'yesterday'::date, 'tomorrow'::timestamp",
    "SELECT 'place'::regclass::text",
    "SELECT name FROM place",
];

/// Texts with a literal that PostgreSQL replaces by the time of the Parse.
pub(crate) const MOMENTS: &[&str] = &[
    "SELECT extract(epoch FROM 'now'::timestamptz)",
    "SELECT extract(epoch FROM timestamptz ' NOW ')",
    "SELECT extract(epoch FROM $$now$$::timestamptz)",
    "SELECT extract(epoch FROM max(t)) FROM (VALUES ('now'::timestamptz)) AS v(t)",
    r"SELECT extract(epoch FROM E'n\157w'::timestamptz)",
    r"SELECT extract(epoch FROM E'\x6eow'::timestamptz)",
    r"SELECT extract(epoch FROM U&'\006eow'::timestamptz)",
    "SELECT extract(epoch FROM 'no'\n'w'::timestamptz)",
];

/// Settings by which these are read, and some of their values.
pub(crate) const READERS: &[(&str, &[&str])] = &[
    ("DateStyle", &["'ISO, DMY'", "'SQL, MDY'", "'German, DMY'"]),
    ("TimeZone", &["'Pacific/Kiritimati'", "'Etc/GMT+12'", "'Asia/Tokyo'"]),
    ("IntervalStyle", &["'sql_standard'", "'postgres'"]),
    ("array_nulls", &["'off'", "'on'"]),
    ("transform_null_equals", &["'on'", "'off'"]),
    ("standard_conforming_strings", &["'off'", "'on'"]),
    ("timezone_abbreviations", &["'Australia'", "'Default'"]),
    ("search_path", &["'s1'", "'s2'", "'hostile'"]),
    ("role", &["'fuzz_a'", "'none'"]),
];

/// Statements with parameters, and the number of these.
pub(crate) const WITH_PARAMETERS: &[(&str, usize)] = &[
    ("SELECT 1 WHERE 1 = $1", 1),
    ("SELECT public.own_length($1::bytea)", 1),
    ("SELECT $1::bytea", 1),
    ("SELECT length($1::text), $2::int + 1", 2),
    ("SELECT set_config('app.tenant', $1, false)", 1),
    ("SELECT public.own_set($1, $2)", 2),
    ("SELECT set_config($1, '3MB', true)", 1),
    ("INSERT INTO public.sink VALUES ($1, $2, $3) RETURNING n", 3),
    ("SELECT $1::text::timestamptz", 1),
    ("SELECT $1::text[]", 1),
    ("SELECT name FROM place WHERE name <> $1", 1),
];

pub(crate) const ENCODING: &str = "client_encoding";

/// Settings and some of their values.
pub(crate) const SETTINGS: &[(&str, &[&str])] = &[
    ("work_mem", &["'5MB'", "'6MB'", "DEFAULT"]),
    ("search_path", &["s1", "s2", "s2, s1", "\"$user\", s1", "DEFAULT"]),
    ("TimeZone", &["'UTC'", "'Asia/Tokyo'", "'Europe/Berlin'", "DEFAULT"]),
    ("DateStyle", &["'ISO, DMY'", "'German'", "'SQL, MDY'", "DEFAULT"]),
    ("IntervalStyle", &["'iso_8601'", "'postgres_verbose'", "DEFAULT"]),
    ("application_name", &["'one'", "'two'", "DEFAULT"]),
    ("app.tenant", &["'1'", "'2'", "''"]),
    ("bytea_output", &["'escape'", "'hex'"]),
    ("extra_float_digits", &["0", "3", "DEFAULT"]),
    ("standard_conforming_strings", &["on", "off"]),
    (ENCODING, &["'UTF8'", "'LATIN1'"]),
    ("ROLE", &["fuzz_a", "fuzz_b", "NONE"]),
    ("default_transaction_isolation", &["'repeatable read'", "'read committed'"]),
    ("default_transaction_read_only", &["on", "off", "off"]),
    ("statement_timeout", &["'99s'", "0"]),
    ("array_nulls", &["off", "on"]),
    ("transform_null_equals", &["on", "off"]),
    ("timezone_abbreviations", &["'India'", "'Default'", "DEFAULT"]),
    ("backslash_quote", &["'on'", "DEFAULT"]),
    ("xmloption", &["document", "DEFAULT"]),
    ("lc_monetary", &["'C.utf8'", "DEFAULT"]),
];

/// Startup parameters, for sessions that have some.
pub(crate) const STARTUPS: &[&[(&str, &str)]] = &[
    &[("application_name", "of the startup packet")],
    &[("options", "-c work_mem=7MB -c search_path=s2")],
    &[("TimeZone", "America/New_York"), ("DateStyle", "ISO, DMY")],
    &[(ENCODING, "LATIN1")],
    &[("options", "-c app.tenant=9"), ("application_name", "a tenant")],
];

/// Values that these give, and the server's defaults instead of them.
pub(crate) const LOGIN_VALUES: [(&str, &str); 2] = [("9", ""), ("7MB", "4MB")];

/// Pieces that look like the texts that a pooler searches for, for parameters of random bytes.
pub(crate) const BAIT: &[&[u8]] = &[
    b"\xef\x65\xe8\x2e\x61",
    b"app.tenant",
    b"app.kept",
    b"work_mem",
    b"a.b",
    b"SET app.other = 1",
    b"';--",
    b"\"",
    b"\\",
    b"$$",
    b"pg_advisory_lock(1)",
    b"LISTEN news",
    b"\xc3\xa4.\xc3\xb6",
    b"\0",
    b"\xff.\xff",
    b"DISCARD ALL",
    b"2024-01-02 03:04:05",
    b"12",
    b"{a,b}",
    b"search_path",
];
