//! Views made of rows, and the texts that they keep on the primary.

use super::*;
use crate::reads::{Refusal, Verdict, read_verdict};
use crate::scanner::scan_either;

fn view(rows: &[(Part, &[&str])]) -> CatalogView {
    view_with(&Lists::default(), rows)
}

fn view_with(lists: &Lists, rows: &[(Part, &[&str])]) -> CatalogView {
    let mut catalog = Catalog::new(lists);
    for (part, row) in rows {
        // An empty column is NULL.
        let row: Vec<_> = row.iter().map(|one| (!one.is_empty()).then_some(*one)).collect();
        catalog.add(*part, &row).expect("a row of the query");
    }
    catalog.view()
}

#[track_caller]
fn check(view: &CatalogView, texts: &[(&str, bool)]) {
    for (text, may_go) in texts {
        let reading = read_verdict(text.as_bytes(), scan_either(text.as_bytes()), Some(view));
        let expected = match may_go {
            true => Verdict::Read,
            false => Verdict::Refused(Refusal::Name),
        };
        assert_eq!(reading.verdict, expected, "{text}");
    }
}

/// A function of PL/pgSQL that is declared STABLE.
fn stable<'a>(oid: &'a str, name: &'a str, body: &'a str) -> [&'a str; 5] {
    [oid, name, "f", "plpgsql", body]
}

#[test]
fn names_are_compared_without_schema_and_quotes() {
    let view = view(&[
        (Part::Functions, &["20000", "draw", "t", "sql", "SELECT 1"]),
        (Part::Relations, &["20001", "t_id_seq", "t"]),
        (Part::Relations, &["20002", "Weird name", "t"]),
        (Part::Relations, &["20003", "ordinary", "f"]),
        (Part::Functions, &["1574", "nextval", "t", "internal", "nextval_oid"]),
        (Part::Functions, &["1598", "random", "t", "internal", "drandom"]),
        (Part::Functions, &["20004", "one_that_has_more_than_16_bytes", "t", "c", "x"]),
    ]);
    assert_eq!(view.len(), 5);
    check(
        &view,
        &[
            ("SELECT draw()", false),
            ("SELECT s.DRAW()", false),
            ("SELECT a.draw FROM a", false),
            ("SELECT last_value FROM public.t_id_seq", false),
            ("TABLE \"t_id_seq\"", false),
            ("TABLE \"Weird name\"", false),
            ("TABLE \"weird name\"", true),
            ("TABLE ordinary", true),
            ("SELECT random()", true),
            ("SELECT one_that_has_more_than_16_bytes()", false),
            ("SELECT one_that_has_more_than_16_byte()", true),
            ("SELECT 'draw()'", true),
            ("COPY (SELECT draw()) TO STDOUT", false),
            ("EXPLAIN SELECT draw()", false),
        ],
    );
}

#[test]
fn functions_that_lie_are_found_by_their_source() {
    let rows = [
        stable("20000", "locks", "BEGIN PERFORM pg_advisory_lock(1); RETURN 1; END"),
        stable("20001", "builds", "BEGIN EXECUTE 'SELECT ' || a INTO b; RETURN b; END"),
        stable("20002", "tells", "BEGIN RETURN pg_is_in_recovery(); END"),
        stable("20003", "writes", "BEGIN INSERT INTO t VALUES (1); RETURN 1; END"),
        stable("20004", "calls", "BEGIN RETURN other.locks() + 1; END"),
        stable("20005", "calls_that", "BEGIN RETURN calls(); END"),
        stable("20006", "sets", "BEGIN PERFORM set_config('a.b', 'c', false); RETURN 1; END"),
        stable("20007", "honest", "DECLARE r record; BEGIN SELECT a INTO r FROM t; RETURN r; END"),
        stable("20008", "tenant", "BEGIN RETURN current_setting('app.tenant'); END"),
        stable("20009", "memory", "BEGIN RETURN current_setting('work_mem'); END"),
        ["20010", "python", "f", "plpython3u", "return 1"],
        ["20011", "native", "f", "c", "native"],
        ["20012", "row_lock", "f", "sql", "SELECT a FROM t FOR SHARE"],
        ["20013", "unread", "f", "sql", "SELECT '"],
    ];
    let rows: Vec<(Part, &[&str])> = rows.iter().map(|row| (Part::Functions, &row[..])).collect();
    check(
        &view(&rows),
        &[
            ("SELECT locks()", false),
            ("SELECT builds()", false),
            ("SELECT tells()", false),
            ("SELECT writes()", false),
            ("SELECT calls()", false),
            ("SELECT calls_that()", false),
            ("SELECT sets()", false),
            ("SELECT honest()", true),
            ("SELECT tenant()", true),
            ("SELECT memory()", false),
            ("SELECT python()", false),
            ("SELECT native()", true),
            ("SELECT row_lock()", false),
            ("SELECT unread()", false),
        ],
    );
}

#[test]
fn users_of_what_is_dangerous_are_dangerous() {
    let uses = |kind, oid, list, text| [kind, oid, list, text];
    let view = view(&[
        (Part::Functions, &["1574", "nextval", "t", "internal", "nextval_oid"]),
        (Part::Functions, &["20000", "draw", "t", "sql", "SELECT 1"]),
        (Part::Operators, &["20001", "<->", "20000"]),
        (Part::Operators, &["20002", "<+>", "20999"]),
        (Part::Relations, &["20003", "numbers", "f"]),
        (Part::Uses, &uses("relation", "20003", "funcid 1574", "SELECT nextval('a')")),
        (Part::Relations, &["20004", "outer_view", "f"]),
        (Part::Uses, &uses("relation", "20004", "relid 20003,opno 96", "SELECT 1")),
        (Part::Relations, &["20005", "by_operator", "f"]),
        (Part::Uses, &uses("relation", "20005", "opfuncid 0,opno 20001", "SELECT 1")),
        (Part::Relations, &["20006", "with_policy", "f"]),
        (Part::Uses, &uses("relation", "20006", "funcid 20000", "SELECT draw()")),
        (Part::Relations, &["20007", "tenants", "f"]),
        (
            Part::Uses,
            &uses("relation", "20007", "funcid 2077", "SELECT a = current_setting('app.x'::text)"),
        ),
        (Part::Relations, &["20008", "settings", "f"]),
        (
            Part::Uses,
            &uses("relation", "20008", "funcid 2077", "SELECT current_setting('work_mem'::text)"),
        ),
        (Part::Functions, &["20009", "total", "f", "internal", "aggregate_dummy"]),
        (Part::Uses, &uses("function", "20009", "funcid 20000,funcid 0", "")),
        (Part::Relations, &["20010", "totals", "f"]),
        (Part::Uses, &uses("relation", "20010", "aggfnoid 20009", "SELECT total(a) FROM t")),
        (Part::Types, &["20011", "checked"]),
        (Part::Uses, &uses("type", "20011", "funcid 20000", "SELECT draw() > 0")),
        (Part::Relations, &["20012", "activity", "f"]),
        (Part::Uses, &uses("relation", "20012", "", "SELECT * FROM pg_stat_activity")),
        (Part::Functions, &["20013", "reads_view", "f", "sql", "SELECT a FROM outer_view"]),
        (Part::Functions, &["20014", "uses_operator", "f", "sql", "SELECT $1 <-> $2"]),
        (Part::Relations, &["20015", "parent", "f"]),
        (Part::Uses, &uses("relation", "20015", "relid 20016", "")),
        (Part::Relations, &["20016", "remote", "t"]),
        (Part::Relations, &["20017", "columns", "f"]),
        (Part::Uses, &uses("relation", "20017", "", " SELECT t.update, t.lock, t.set\n   FROM t;")),
    ]);
    check(
        &view,
        &[
            ("TABLE numbers", false),
            ("TABLE outer_view", false),
            ("TABLE by_operator", false),
            ("TABLE with_policy", false),
            ("TABLE tenants", true),
            ("TABLE settings", false),
            ("SELECT total(a) FROM t", false),
            ("TABLE totals", false),
            ("SELECT '1'::checked", false),
            ("TABLE activity", false),
            ("SELECT reads_view()", false),
            ("SELECT uses_operator(1, 2)", false),
            ("TABLE parent", false),
            ("TABLE columns", true),
            ("SELECT a <-> b FROM t", false),
            ("SELECT a<->-b FROM t", false),
            ("SELECT a <+> b FROM t", true),
            ("SELECT a OPERATOR(public.<->) b FROM t", false),
            ("SELECT a < b, a - b, a > b FROM t", true),
        ],
    );
}

#[test]
fn keywords_stand_for_operators() {
    for (operator, texts) in [
        (
            "=",
            &["SELECT a IN (1)", "SELECT a FROM t GROUP BY a", "SELECT a FROM t NATURAL JOIN s"][..],
        ),
        ("<>", &["SELECT a != 1"]),
        (">=", &["SELECT a BETWEEN 1 AND 2"]),
        ("~~", &["SELECT a LIKE b"]),
        ("!~~*", &["SELECT a NOT ILIKE b"]),
        ("<", &["SELECT a FROM t ORDER BY a"]),
    ] {
        let view = view(&[
            (Part::Operators, &["20000", operator, "20001"]),
            (Part::Functions, &["20001", "f", "t", "sql", ""]),
        ]);
        for text in texts {
            check(&view, &[(text, false), ("SELECT a + 1 FROM t", true)]);
        }
    }
}

#[test]
fn names_beyond_ascii_are_dangerous_together() {
    let of = |name| view(&[(Part::Functions, &["20000", name, "t", "sql", ""])]);
    check(&of("zähle"), &[("SELECT zähle()", false), ("SELECT größe FROM t", false)]);
    check(&of("count_up"), &[("SELECT größe FROM t", true), ("SELECT count_up()", false)]);
}

#[test]
fn other_rows_are_refused() {
    for (part, row) in [
        (Part::Functions, &[Some("1"), Some("f")][..]),
        (Part::Functions, &[Some("x"), Some("f"), Some("t"), Some("sql"), None]),
        (Part::Functions, &[Some("1"), None, Some("t"), Some("sql"), None]),
        (Part::Relations, &[None, Some("f"), Some("t")]),
        (Part::Uses, &[Some("index"), Some("1"), None, None]),
        (Part::Uses, &[Some("type"), Some("1"), Some("funcid"), None]),
        (Part::Uses, &[Some("type"), Some("1"), Some("other 1"), None]),
    ] {
        assert_eq!(Catalog::default().add(part, row), Err(BadRow), "{row:?}");
    }
}

#[test]
fn lists_count_more_than_the_catalogs() {
    let names = |text: &str| text.split(',').map(str::to_owned).collect();
    let lists = Lists {
        standby_functions: names("reads,atomic,both"),
        primary_names: names("orders,both,gone"),
    };
    let row = |oid, name| [oid, name, "t", "sql", "SELECT nextval('a')"];
    let [reads, other, both] = [row("20000", "reads"), row("20001", "other"), row("20002", "both")];
    let calls = stable("20003", "calls", "BEGIN RETURN reads(); END");
    // The table has no row: no view uses it.
    let gone = stable("20005", "reads_gone", "BEGIN RETURN (SELECT count(*) FROM gone); END");
    let view = view_with(
        &lists,
        &[
            (Part::Functions, &reads),
            (Part::Functions, &other),
            (Part::Functions, &both),
            (Part::Functions, &calls),
            (Part::Functions, &gone),
            (Part::Functions, &["20004", "atomic", "f", "sql", ""]),
            (Part::Uses, &["function", "20004", "funcid 20001", ""]),
            (Part::Relations, &["20010", "orders", "f"]),
            (Part::Relations, &["20011", "items", "f"]),
            (Part::Relations, &["20012", "open_orders", "f"]),
            (Part::Uses, &["relation", "20012", "relid 20010", ""]),
        ],
    );
    check(
        &view,
        &[
            ("SELECT reads()", true),
            ("SELECT calls()", true),
            ("SELECT atomic()", true),
            ("SELECT other()", false),
            ("SELECT both()", false),
            ("TABLE items", true),
            ("TABLE orders", false),
            ("TABLE open_orders", false),
            ("SELECT gone()", false),
            ("SELECT reads_gone()", false),
        ],
    );
}

#[test]
fn a_star_in_a_list_stands_for_any_part() {
    for (pattern, name, expected) in [
        ("audit_*", "audit_log", true),
        ("audit_*", "audit_", true),
        ("audit_*", "my_audit_log", false),
        ("*_log", "audit_log", true),
        ("*_log", "audit_logs", false),
        ("a*b*c", "abc", true),
        ("a*b*c", "a-b-b-c", true),
        ("a*b*c", "acb", false),
        ("a*b*c", "ab", false),
        ("ab*ba", "aba", false),
        ("*", "anything", true),
        ("**", "", true),
        ("exact", "exact", true),
    ] {
        assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
    }
    let names = |text: &str| text.split(',').map(str::to_owned).collect();
    let lists = Lists { standby_functions: names("rep*,*"), primary_names: names("audit_*") };
    let row = |oid, name| [oid, name, "t", "sql", "SELECT nextval('a')"];
    let [report, audit] = [row("20000", "report"), row("20001", "audit_report")];
    let view = view_with(
        &lists,
        &[
            (Part::Functions, &report),
            (Part::Functions, &audit),
            // PostgreSQL's own stays as it is.
            (Part::Functions, &["2880", "lock_something", "t", "internal", "x"]),
            (Part::Relations, &["20010", "audit_log", "f"]),
            (Part::Relations, &["20011", "log", "f"]),
        ],
    );
    check(
        &view,
        &[
            ("SELECT report()", true),
            ("SELECT audit_report()", false),
            ("SELECT lock_something()", false),
            ("TABLE audit_log", false),
            ("TABLE log", true),
        ],
    );
}
