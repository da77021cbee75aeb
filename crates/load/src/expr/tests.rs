use proptest::prelude::*;

use super::*;
use crate::names::Names;

fn evaluate(text: &str) -> Result<Value, String> {
    let mut names = Names::default();
    names.slot("five");
    names.slot("text");
    let expr =
        parse(text, &mut names).map_err(|error| format!("{}: {}", error.at, error.reason))?;
    let mut variables = vec![None; names.len()];
    variables[0] = Some(Value::Int(5));
    variables[1] = Some(Value::Text("2.5".into()));
    let mut random = Random::new(1);
    expr.value(&mut Scope { variables: &variables, random: &mut random })
        .map_err(|error| error.to_string())
}

fn shown(text: &str) -> String {
    evaluate(text).map_or_else(|error| format!("error: {error}"), |value| value.to_string())
}

/// Checked against pgbench 15 by `\set x debug(…)`.
#[test]
fn expressions_come_to_what_pgbench_makes_of_them() {
    for (text, value) in [
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("7 / 2", "3"),
        ("7 / 2.0", "3.5"),
        ("-7 % 3", "-1"),
        ("2 - 3 - 4", "-5"),
        ("- - 5", "5"),
        ("~ 5", "-6"),
        ("~1 + 2", "-4"),
        ("2 * ~1 + 3", "-10"),
        ("- ~ ~1 + 2", "-3"),
        ("~1 | 4", "-2"),
        ("~1 < 2", "true"),
        ("1 | 4 # 1 & 7", "4"),
        ("1 << 4 >> 2", "4"),
        ("1 + 1 = 2", "true"),
        ("1 < 2 and 2 <= 2 or false", "true"),
        ("not 1 > 2", "true"),
        ("not null", "NULL"),
        ("null and false", "false"),
        ("null or true", "true"),
        ("true and null", "NULL"),
        ("1 <> 2", "true"),
        ("1 != 1", "false"),
        ("null is null", "true"),
        ("1 is not null", "true"),
        ("1 isnull", "false"),
        ("true is not true", "false"),
        ("case when 1 > 2 then 3 when null then 4 else 5 end", "5"),
        ("CASE WHEN 1 < 2 THEN 3 END", "3"),
        ("case when false then 1 end", "NULL"),
        (":five + 1", "6"),
        (":text * 2", "5"),
        ("abs(-3)", "3"),
        ("greatest(1, 2.5, 2)", "2.5"),
        ("least(3, 1, 2)", "1"),
        ("int(2.7)", "3"),
        ("double(3)", "3"),
        ("sqrt(2)", "1.4142135623731"),
        ("pow(2, 10)", "1024"),
        ("mod(7, 4)", "3"),
        ("pi()", "3.14159265358979"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("hash_murmur2(5, 7)", "7395858956932106968"),
        ("hash_fnv1a(5, 7)", "-1820151046732198393"),
        ("hash(5, 7) = hash_murmur2(5, 7)", "true"),
    ] {
        assert_eq!(shown(text), value, "{text}");
    }
}

#[test]
fn impossible_expressions_are_errors() {
    for (text, reason) in [
        ("1 / 0", "division by zero"),
        ("9223372036854775807 + 1", "bigint add out of range"),
        ("9223372036854775808", "0: bigint constant overflow"),
        (":nobody", "undefined variable"),
        ("nothing(1)", "0: unexpected function name: nothing"),
        ("random(1)", "0: unexpected number of arguments: random"),
        ("1 +", "3: unexpected end of the expression"),
        ("1 2", "2: syntax error"),
        ("(1", "2: syntax error: expected \")\""),
        ("1 and true", "cannot coerce int to boolean"),
        ("random(5, 1)", "empty range given to random"),
        ("1 ? 2", "2: unexpected character"),
    ] {
        assert_eq!(evaluate(text), Err(reason.to_owned()), "{text}");
    }
    assert!(evaluate(&"(".repeat(100_000)).is_err());
    assert!(evaluate(&"1+".repeat(100_000)).is_err_and(|error| error.contains("too long")));
    assert_eq!(evaluate(&format!("{}1", "1+".repeat(400))), Ok(Value::Int(401)));
}

#[test]
fn permute_puts_every_number_somewhere_else() {
    for size in [1, 2, 7, 64, 100] {
        let mut seen = vec![false; size];
        for value in 0..size {
            let Ok(Value::Int(at)) = evaluate(&format!("permute({value}, {size}, 42)")) else {
                panic!("permute({value}, {size}) failed")
            };
            assert!(!std::mem::replace(&mut seen[usize::try_from(at).unwrap()], true));
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_an_expression_or_an_error(text in "[0-9a-z:(),.+*/<>=~ -]{0,40}") {
        let _ = evaluate(&text);
    }

    #[test]
    fn any_text_at_all_is_an_expression_or_an_error(text: String) {
        let _ = evaluate(&text);
    }
}
