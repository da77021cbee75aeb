use proptest::prelude::*;

use super::*;
use crate::names::Names;

fn read(text: &str) -> Result<Script, String> {
    parse("a.sql", 1, text, &mut Names::default(), &mut 0).map_err(|error| error.to_string())
}

fn texts(text: &str) -> Vec<String> {
    read(text).unwrap().commands.into_iter().map(|command| command.text).collect()
}

fn only_statement(text: &str) -> Statement {
    let script = read(text).unwrap();
    assert_eq!(script.commands.len(), 1, "{text}");
    match &script.commands[0].action {
        Action::Sql(statement) => statement.clone(),
        other => panic!("{other:?}"),
    }
}

fn extended(text: &str) -> String {
    String::from_utf8(only_statement(text).text).unwrap()
}

#[test]
fn commands_end_where_psql_ends_them() {
    assert_eq!(
        texts("-- a comment\nselect 1; select ';', \";\", $$;$$, $a$;$a$, E'\\';';\n\\set x 1\n"),
        ["select 1;", "select ';', \";\", $$;$$, $a$;$a$, E'\\';';", "\\set x 1"]
    );
    assert_eq!(
        texts("select /* ; /* ; */ ; */ 1; select (1;2)"),
        ["select /* ; /* ; */ ; */ 1;", "select (1;2)"]
    );
    assert_eq!(
        texts("select 1 -- ; not here\n, 2; select 'ä;ö' \\gset"),
        ["select 1 -- ; not here", "select 'ä;ö'"]
    );
    assert_eq!(texts("select 1 \\; select 2;"), ["select 1 \\; select 2;"]);
    assert_eq!(extended("select 1 \\; select 2;"), "select 1 ; select 2;");
    assert_eq!(texts("\\set x 1 + \\\n  2\nselect 1;"), ["\\set x 1 + \\", "select 1;"]);
}

#[test]
fn variables_become_parameters() {
    assert_eq!(extended("select :a, :b_1, :a;"), "select $1, $2, $3;");
    assert_eq!(only_statement("select :a, :b, :a;").parameters, [0, 1, 0]);
    assert_eq!(extended("select '12:30', x::int, y:::z;"), "select '12:30', x::int, y:::z;");
    assert_eq!(only_statement("select ':a';").pieces.len(), 3);
}

#[test]
fn results_are_stored_by_the_statement_before() {
    let store = only_statement("select 1 as a \\gset p_").store;
    assert_eq!(store, Some(Store { prefix: "p_".into(), of_all: false }));
    let store = only_statement("select 1 \\; select 2 \\aset").store;
    assert_eq!(store, Some(Store { prefix: String::new(), of_all: true }));
}

/// Returns the texts of the commands that are run with these constants as conditions.
fn path(text: &str) -> Vec<String> {
    let script = read(text).unwrap();
    let mut scope_random = crate::random::Random::new(1);
    let (mut at, mut ran) = (0, Vec::new());
    while let Some(command) = script.commands.get(at) {
        at += 1;
        match &command.action {
            Action::Branch { condition, otherwise } => {
                let mut scope = crate::expr::Scope { variables: &[], random: &mut scope_random };
                if !condition.value(&mut scope).unwrap().is_true() {
                    at = *otherwise;
                }
            }
            Action::Jump(to) => at = *to,
            _ => ran.push(command.text.clone()),
        }
    }
    ran
}

#[test]
fn conditions_choose_one_branch() {
    let script = |first: u8, second: u8| {
        format!(
            "\\if {first}\na;\n\\if 0\nx;\n\\endif\n\\elif {second}\nb;\n\\else\nc;\n\\endif\nd;"
        )
    };
    assert_eq!(path(&script(1, 1)), ["a;", "d;"]);
    assert_eq!(path(&script(0, 1)), ["b;", "d;"]);
    assert_eq!(path(&script(0, 0)), ["c;", "d;"]);
    assert_eq!(path("\\if 0\na;\n\\elif 0\nb;\n\\endif\nd;"), ["d;"]);
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
        (
            "\\setshell x date\n",
            "a.sql:1: running programs is not supported in command \"setshell\"",
        ),
        (
            "\\sleep 1 h\n",
            "a.sql:1: unrecognized time unit, must be us, ms or s in command \"sleep\"",
        ),
        ("\\gset\n", "a.sql:1: \\gset must follow an SQL command in command \"gset\""),
        ("\\else\n", "a.sql:1: unmatched \\else in command \"else\""),
        ("\\if 1\n\\else\n\\else\n\\endif", "a.sql:3: \\else after \\else in command \"else\""),
        ("select 1;\n\\if 1\nselect 2;\n", "a.sql:3: \\if without matching \\endif"),
        ("-- nothing\n", "a.sql:1: script has no commands"),
    ] {
        assert_eq!(read(text).unwrap_err(), error, "{text}");
    }
}

#[test]
fn sleep_knows_three_units() {
    for (text, amount, unit) in
        [("\\sleep 2", 2, 1_000_000), ("\\sleep 20 ms", 20, 1_000), ("\\sleep 5us", 5, 1)]
    {
        let script = read(text).unwrap();
        assert!(
            matches!(&script.commands[0].action,
                Action::Sleep(Amount::Fixed(a), u) if (*a, *u) == (amount, unit)),
            "{text}"
        );
    }
    assert!(matches!(
        read("\\sleep :x ms").unwrap().commands[0].action,
        Action::Sleep(Amount::Variable(0), 1_000)
    ));
}

#[test]
fn builtin_scripts_are_found_by_a_beginning_of_their_name() {
    assert_eq!(Builtin::find("tpcb").unwrap().name, "tpcb-like");
    assert_eq!(Builtin::find("se").unwrap().name, "select-only");
    assert!(Builtin::find("s").unwrap_err().starts_with("ambiguous"));
    assert!(Builtin::find("x").unwrap_err().starts_with("no builtin"));
    for builtin in BUILTINS {
        assert!(read(builtin.text).is_ok(), "{}", builtin.name);
    }
}

proptest! {
    #[test]
    fn any_text_is_a_script_or_an_error(text in "[a-z0-9;:'\"$()\\\\*/\n äö-]{0,60}") {
        let _ = read(&text);
    }
}
