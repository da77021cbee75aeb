use proptest::prelude::*;

use super::*;
use crate::names::Names;

fn read(text: &str) -> Result<Script, String> {
    parse("a.sql", text, &mut Names::default()).map_err(|error| error.to_string())
}

fn only_statement(text: &str) -> Statement {
    let script = read(text).unwrap();
    assert_eq!(script.actions.len(), 1, "{text}");
    match &script.actions[0] {
        Action::Sql(statement) => statement.clone(),
        other => panic!("{other:?}"),
    }
}

fn extended(text: &str) -> String {
    String::from_utf8(only_statement(text).text).unwrap()
}

fn texts(text: &str) -> Vec<String> {
    let shown = |action| match action {
        Action::Sql(statement) => String::from_utf8(statement.text).unwrap(),
        Action::Set(..) => "set".to_owned(),
        Action::Sleep(us) => format!("sleep {us}"),
    };
    read(text).unwrap().actions.into_iter().map(shown).collect()
}

#[test]
fn commands_end_where_psql_ends_them() {
    assert_eq!(
        texts("-- a comment\nselect 1; select ';', \";\", $$;$$, $a$;$a$, E'\\';';\n\\set x 1\n"),
        ["select 1;", "select ';', \";\", $$;$$, $a$;$a$, E'\\';';", "set"]
    );
    assert_eq!(
        texts("select /* ; /* ; */ ; */ 1; select (1;2)"),
        ["select /* ; /* ; */ ; */ 1;", "select (1;2)"]
    );
    assert_eq!(
        texts("select 1 -- ; not here\n, 2; select 'ä;ö' \\sleep 1"),
        ["select 1 -- ; not here\n, 2;", "select 'ä;ö'", "sleep 1000000"]
    );
    assert_eq!(texts("\\set x 1 + \\\n  2\nselect 1;"), ["set", "select 1;"]);
}

#[test]
fn variables_become_parameters() {
    assert_eq!(extended("select :a, :b_1, :a;"), "select $1, $2, $3;");
    assert_eq!(only_statement("select :a, :b, :a;").parameters, [0, 1, 0]);
    assert_eq!(extended("select '12:30', x::int, y:::z;"), "select '12:30', x::int, y:::z;");
    assert_eq!(only_statement("select ':a';").pieces.len(), 3);
}

#[test]
fn mistakes_are_reported_with_their_position() {
    for (text, error) in [
        ("\\foo\n", "a.sql:1: invalid command in command \"foo\""),
        (
            "select 1;\n\\set x 1 +\n",
            "a.sql:2: unexpected end of the expression in command \"set\"\n\
             \\set x 1 +\n          ^ error found here",
        ),
        ("\\set\n", "a.sql:1: missing argument in command \"set\""),
        ("\\set x\n", "a.sql:1: missing argument in command \"set\""),
        ("\\set x-y 1\n", "a.sql:1: invalid variable name: \"x-y\" in command \"set\""),
        ("\\sleep\n", "a.sql:1: missing argument in command \"sleep\""),
        ("\\sleep x\n", "a.sql:1: invalid sleep time, must be an integer in command \"sleep\""),
        (
            "\\sleep 1 h\n",
            "a.sql:1: unrecognized time unit, must be us, ms or s in command \"sleep\"",
        ),
        ("-- nothing\n", "a.sql:1: script has no commands"),
    ] {
        assert_eq!(read(text).unwrap_err(), error, "{text}");
    }
}

#[test]
fn sleep_knows_three_units() {
    assert_eq!(
        texts("\\sleep 2\n\\sleep 20 ms\n\\sleep 5us"),
        ["sleep 2000000", "sleep 20000", "sleep 5"]
    );
}

#[test]
fn builtin_scripts_are_found_by_a_beginning_of_their_name() {
    for (name, whole) in [("tpcb", "tpcb-like"), ("si", "simple-update"), ("se", "select-only")] {
        let builtin = Builtin::find(name).unwrap();
        assert_eq!(builtin.name, whole);
        assert!(read(builtin.text).is_ok(), "{whole}");
    }
    assert!(Builtin::find("s").unwrap_err().starts_with("ambiguous"));
    assert!(Builtin::find("x").unwrap_err().starts_with("no builtin"));
}

proptest! {
    #[test]
    fn any_text_is_a_script_or_an_error(text in "[a-z0-9;:'\"$()\\\\*/\n äö-]{0,60}") {
        let _ = read(&text);
    }
}
