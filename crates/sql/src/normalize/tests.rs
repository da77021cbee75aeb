use proptest::prelude::*;

use super::normalize;

fn normal_of(text: &[u8], is_whole: bool) -> String {
    let mut out = [0; 4096];
    let len = normalize(text, is_whole, &mut out);
    String::from_utf8_lossy(&out[..len]).into_owned()
}

fn normal(text: &str) -> String {
    normal_of(text.as_bytes(), true)
}

#[test]
fn literals_and_spelling_make_no_difference() {
    for (texts, expected) in [
        (
            &[
                "SELECT * FROM t WHERE a = 1",
                "select *\nfrom t -- 7\n where a=$1;",
                "Select * From t Where a='x'",
            ][..],
            "select * from t where a = ?",
        ),
        (&["SELECT 1.5e-3", "SELECT 2 - 3"], "select ? - ?"),
        (&["SELECT 0x1f, 1e5", "SELECT 'a' , E'b\\'c', $2"], "select ?, ..."),
        (
            &["SELECT a FROM t WHERE b IN (1, 2, 3)", "select a from t where b in($1,$2)"],
            "select a from t where b in(?, ...)",
        ),
        (&["SELECT 'it''s'", "SELECT 'a'\n'b'", "SELECT $x$ 'a' $x$", "SELECT U&'a'"], "select ?"),
        (
            &[
                "SELECT a::int, b[1] /* 'x' */ FROM \"T b\"",
                "select a :: int,b[2] from \"T b\" ; ; ",
            ],
            "select a::int, b[?] from \"T b\"",
        ),
        (&["BEGIN; SELECT 1", "begin;select 2;"], "begin; select ?"),
        (&["INSERT INTO s.t (a, b) VALUES (1, now())"], "insert into s.t(a, b) values(?, now())"),
        (&["SELECT a->>'k' FROM t WHERE b >= 1"], "select a ->> ? from t where b >= ?"),
        (&["", " ; -- x"], ""),
    ] {
        for text in texts {
            assert_eq!(normal(text), expected, "{text}");
        }
    }
}

#[test]
fn a_setting_and_a_password_are_hidden_in_any_form() {
    for (text, expected) in [
        ("SET app.tenant = secret, 'secret'; SELECT a", "set app.tenant = ?; select a"),
        ("SET LOCAL search_path TO secret", "set local search_path to ?"),
        ("SET ROLE r", "set role r"),
        ("UPDATE t SET a = b", "update t set a = b"),
        ("ALTER ROLE r PASSWORD 'secret' LOGIN", "alter role r password ? login"),
        ("alter user r encrypted password secret", "alter user r encrypted password ?"),
        ("CREATE ROLE r PASSWORD \"secret\"", "create role r password ?"),
        ("CREATE USER r PASSWORD $$secret$$", "create user r password ?"),
        ("ALTER ROLE r PASSWORD E'sec\\'secret'", "alter role r password ?"),
        ("ALTER ROLE r PASSWORD U&'secret' UESCAPE '!'", "alter role r password ? uescape ?"),
        ("CREATE TABLE u (password text)", "create table u(password text)"),
        ("SELECT password FROM u", "select password from u"),
    ] {
        assert_eq!(normal(text), expected, "{text}");
    }
}

#[test]
fn a_text_that_can_be_read_in_two_ways_ends_where_they_differ() {
    // The first string is over at `\'` in one of them.
    assert_eq!(normal("SELECT 'a\\' secret, 'b' FROM t --'"), "select ?");
    assert_eq!(
        normal("SELECT a FROM t WHERE b ~ '\\d' AND c"),
        "select a from t where b ~ ? and c"
    );
}

#[test]
fn a_refused_text_ends_at_its_first_literal() {
    assert_eq!(normal("ALTER ROLE r PASSWORD 'a'secret'"), "alter role r password ?");
    assert_eq!(normal("SELECT 'don't secret'"), "select ?");
    assert_eq!(normal("SELECT a /* secret"), "select a ?");
    assert_eq!(
        normal("SELECT $abcdefghijklmnopqrstuvwxyz_abcdefghijklmnopqrstuvwxyz_abcdefghij$ secret"),
        "select ?"
    );
    // One that goes on may be valid.
    assert_eq!(normal_of(b"SELECT 'a', b, 'sec", false), "select ?, b, ?");
}

#[test]
fn a_doubtful_byte_ends_it() {
    // In SJIS, the last two bytes of `x\x83\x5c` are one character, and the string goes on.
    assert_eq!(normal_of(b"SELECT E'\x83\\' secret '", true), "select ?");
    assert_eq!(normal_of(b"SELECT \xff\xfe FROM t", true), "select \u{fffd}\u{fffd} from t");
}

#[test]
fn it_ends_where_there_is_no_room() {
    let mut out = [0; 9];
    let len = normalize(b"SELECT abcdef FROM t", true, &mut out);
    assert_eq!(&out[..len], b"select ab");
    assert_eq!(normalize(b"SELECT 1", true, &mut []), 0);
}

proptest! {
    /// A secret in a literal of any kind, among any tokens that leave the text valid.
    #[test]
    fn no_literal_is_shown(
        before in proptest::collection::vec("(SELECT|a|,|\\(|'x'|\\$1|1\\.5|/\\* ' \\*/|\"q'\"|=|E'\\\\'' |-- '\n)", 0..8),
        kind in 0..6usize,
    ) {
        let secret = ["'a secret'", "E'a\\'secret'", "$t$ secret $t$", "U&'secret'", "'it''s secret'", "e'\\\\secret'"][kind];
        let text = format!("{} {secret} FROM t", before.join(" "));
        prop_assert!(!normal(&text).contains("secret"), "{text}");
    }

    #[test]
    fn any_bytes_have_a_normal_form(text in proptest::collection::vec(any::<u8>(), 0..300), size in 0..300usize) {
        let mut out = vec![0; size];
        prop_assert!(normalize(&text, true, &mut out) <= size);
        prop_assert!(normalize(&text, false, &mut out) <= size);
    }
}
