//! The names that the crate `sql` reads from a real server's catalogs, and the texts that they keep on
//! the primary.

use std::collections::BTreeMap;
use std::path::Path;

use sql::{
    CHANGES, Catalog, CatalogPart, CatalogView, Refusal, Verdict, read_verdict, scan_either,
};
use testkit::Postgres;

/// Objects that look harmless in a text, and some that are.
const OBJECTS: &str = include_str!("objects.sql");

#[test]
fn only_names_that_hide_no_danger_may_go_to_a_standby() {
    for postgres in [Postgres::shared(), Postgres::shared_v18()] {
        let database = postgres.database();
        postgres.sql(&database, OBJECTS);
        let view = load(postgres, &database);
        check(
            &view,
            true,
            &[
                "SELECT id, v FROM plain",
                "SELECT honest(id), careful(id), random(), now() FROM public.plain",
                "TABLE fine",
                "TABLE tenants",
                "TABLE shared_rows",
                "TABLE stored",
                "TABLE whole",
                "SELECT 1 <+> 2, '1'::simple",
                "SELECT count(*), sum(id), string_agg(v, ',') FROM plain WHERE v LIKE 'a%'",
                "SELECT relname FROM pg_class WHERE relkind = 'r'",
                "SELECT to_tsvector('a') @@ to_tsquery('b'), jsonb_build_object('a', 1) -> 'a'",
                "SELECT generate_series(1, 2), coalesce(v, 'x') FROM plain ORDER BY v",
                "SELECT date_trunc('day', clock_timestamp()), gen_random_uuid()",
                "SELECT by_default()",
                "SELECT c, d FROM paints ORDER BY c",
            ],
        );
        check(
            &view,
            false,
            &[
                "SELECT last_value FROM numbers_seq",
                "SELECT is_called FROM plain_id_seq",
                "TABLE fast",
                "SELECT vol()",
                "SELECT liar()",
                "SELECT locker()",
                "SELECT builder('SELECT 1')",
                "SELECT atomic()",
                "SELECT overloaded(1)",
                "TABLE drawn",
                "SELECT * FROM public.\"outer_drawn\"",
                "TABLE locking",
                "TABLE activity",
                "TABLE sizes",
                "TABLE memory",
                "TABLE waiting",
                "SELECT 1 <!> 2",
                "TABLE by_operator",
                "SELECT gather(id) FROM plain",
                "TABLE by_aggregate",
                "TABLE guarded",
                "SELECT '1'::checked",
                "TABLE parts",
                "SELECT lo_get(1)",
                "SELECT tells()",
                "SELECT draws(1)",
                "SELECT secret()",
                "TABLE by_tells",
                "SELECT 1 FROM cast_rows WHERE p LIKE 'a'",
                "SELECT 1 FROM cast_lists",
                "SELECT upper(a_pair())",
                "SELECT 'a'::mood",
                "SELECT m FROM feelings ORDER BY m",
                "SELECT s FROM periods",
            ],
        );
    }
}

fn load(postgres: &Postgres, database: &str) -> CatalogView {
    let mut catalog = Catalog::default();
    for part in CatalogPart::ALL {
        for row in postgres.sql(database, part.query()) {
            let row: Vec<_> = row.iter().map(Option::as_deref).collect();
            assert_eq!(catalog.add(part, &row), Ok(()), "{part:?}: {row:?}");
        }
    }
    catalog.view()
}

#[track_caller]
fn check(view: &CatalogView, may_go: bool, texts: &[&str]) {
    for text in texts {
        let verdict =
            read_verdict(text.as_bytes(), scan_either(text.as_bytes()), Some(view)).verdict;
        let expected = if may_go { Verdict::Read } else { Verdict::Refused(Refusal::Name) };
        assert_eq!(verdict, expected, "{text}");
    }
}

#[test]
fn a_change_of_the_catalogs_shows_in_their_digest() {
    for postgres in [Postgres::shared(), Postgres::shared_v18()] {
        let database = postgres.database();
        let digest = || postgres.sql(&database, CHANGES).remove(0).remove(0).expect("a number");
        let mut before = digest();
        for change in [
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql STABLE AS 'SELECT 1'",
            "ALTER FUNCTION f() VOLATILE",
            "CREATE TABLE t (a int)",
            "CREATE VIEW v AS SELECT 1 AS a",
            "CREATE OR REPLACE VIEW v AS SELECT f() AS a",
            "CREATE POLICY p ON t USING (a = 1)",
            "ALTER POLICY p ON t USING (a = f())",
            "ALTER TABLE t SET UNLOGGED",
            "CREATE DOMAIN d AS int",
            "ALTER DOMAIN d ADD CHECK (VALUE > 0)",
            "ALTER FUNCTION pg_catalog.abs(int) VOLATILE",
            "DROP VIEW v",
        ] {
            postgres.sql(&database, change);
            let after = digest();
            assert_ne!(before, after, "{change}");
            before = after;
        }
        postgres.sql(&database, "ANALYZE; INSERT INTO t VALUES (1)");
        assert_eq!(before, digest(), "rows and statistics do not matter");
    }
}

#[test]
fn names_that_are_the_same_on_each_node_are_so_in_every_version() {
    let path = "../crates/sql/src/reads/node/same.txt";
    let list = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path));
    let list = list.expect("the list can be read");
    for postgres in [Postgres::shared(), Postgres::shared_v18()] {
        let pairs = |query: &str| -> BTreeMap<String, String> {
            let rows = postgres.sql("template1", query).into_iter();
            rows.map(|row| row.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>())
                .map(|row| (row[0].clone(), row[1].clone()))
                .collect()
        };
        let relations = pairs(
            "SELECT relname, CASE relkind WHEN 'r' THEN 'table' ELSE pg_get_viewdef(oid) END \
             FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v')",
        );
        let functions = pairs(
            "SELECT proname, bool_or(provolatile = 'v') FROM pg_proc \
             WHERE pronamespace = 'pg_catalog'::regnamespace GROUP BY 1",
        );
        for name in list.lines() {
            match (relations.get(name).map(String::as_str), functions.get(name)) {
                (Some("table"), None) => {}
                (Some(text), None) => {
                    let text = text.as_bytes();
                    let verdict = read_verdict(text, scan_either(text), None).verdict;
                    assert_eq!(verdict, Verdict::Read, "{name}");
                }
                (None, Some(is_volatile)) => assert_eq!(is_volatile, "f", "{name}"),
                _ => assert!(["pg_catalog", "pg_lsn", "pg_node_tree"].contains(&name), "{name}"),
            }
        }
    }
}
