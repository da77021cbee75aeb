//! The expressions of `\set`: integers, variables, `random(LOW, HIGH)`, brackets, and pgbench's
//! arithmetic, from left to right and in this order: unary `-` and `+`, then `* / %`, then `+ -`.

use crate::{
    names::{Names, Slot, name_len},
    random::{Random, range},
};

/// Deeper brackets are refused, since each level costs stack.
const DEPTH_MAX: usize = 40;
/// Each operator of a long chain also costs stack when it is evaluated. Each operand is three looks.
const TOKENS_MAX: usize = 3_000;

#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Constant(i64),
    Variable(Slot),
    /// An operator of `+-*/%`.
    Binary(u8, Box<[Self; 2]>),
    Random(Box<[Self; 2]>),
}

impl Expr {
    /// # Errors
    /// pgbench's errors: a variable is not defined, a result is beyond 64 bits, a division by zero,
    /// an empty range.
    pub(crate) fn value(
        &self,
        variables: &[Option<i64>],
        random: &mut Random,
    ) -> Result<i64, String> {
        let (operator, operands) = match self {
            Self::Constant(value) => return Ok(*value),
            Self::Variable(slot) => {
                let value = variables.get(*slot).copied().flatten();
                return value.ok_or_else(|| "undefined variable".to_owned());
            }
            Self::Binary(operator, operands) => (*operator, operands),
            Self::Random(operands) => (b'?', operands),
        };
        let [left, right] = &**operands;
        let (left, right) = (left.value(variables, random)?, right.value(variables, random)?);
        if matches!(operator, b'/' | b'%') && right == 0 {
            return Err("division by zero".to_owned());
        }
        let (result, name) = match operator {
            b'+' => (left.checked_add(right), "add"),
            b'-' => (left.checked_sub(right), "sub"),
            b'*' => (left.checked_mul(right), "mul"),
            b'/' => (left.checked_div(right), "div"),
            b'%' => (Some(left.wrapping_rem(right)), "mod"),
            _ => return Ok(random.uniform(left, range(left, right)?)),
        };
        result.ok_or_else(|| format!("bigint {name} out of range"))
    }
}

/// The position of an error in an expression, in bytes, and its description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExprError {
    pub(crate) at: usize,
    pub(crate) reason: String,
}

/// Reads all of `text`; its variables get slots of `names`.
///
/// # Errors
/// When it is not an expression.
pub(crate) fn parse(text: &str, names: &mut Names) -> Result<Expr, ExprError> {
    let mut parser = Parser { text, at: 0, names, depth: 0, tokens: 0 };
    let expr = parser.sum()?;
    match parser.next()? {
        None => Ok(expr),
        Some(_) => Err(parser.wrong("syntax error")),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    names: &'a mut Names,
    depth: usize,
    tokens: usize,
}

impl Parser<'_> {
    fn wrong(&self, reason: impl Into<String>) -> ExprError {
        ExprError { at: self.at, reason: reason.into() }
    }

    /// Skips blanks, and returns the next byte without taking it.
    fn next(&mut self) -> Result<Option<u8>, ExprError> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.tokens += 1;
        if self.tokens > TOKENS_MAX {
            return Err(self.wrong("expression is too long"));
        }
        Ok(self.text.as_bytes().get(self.at).copied())
    }

    fn sum(&mut self) -> Result<Expr, ExprError> {
        self.chain(b"+-", Self::product)
    }

    fn product(&mut self) -> Result<Expr, ExprError> {
        self.chain(b"*/%", Self::signed)
    }

    /// Parses operators of the same precedence, from left to right.
    fn chain(
        &mut self,
        operators: &[u8],
        operand: fn(&mut Self) -> Result<Expr, ExprError>,
    ) -> Result<Expr, ExprError> {
        let mut left = operand(self)?;
        while let Some(operator) = self.next()?.filter(|next| operators.contains(next)) {
            self.at += 1;
            left = Expr::Binary(operator, Box::new([left, operand(self)?]));
        }
        Ok(left)
    }

    fn signed(&mut self) -> Result<Expr, ExprError> {
        match self.next()? {
            None => Err(self.wrong("unexpected end of the expression")),
            Some(b'+') => self.deeper(1, Self::signed),
            Some(b'-') => match self.text[self.at + 1..].trim_start().as_bytes().first() {
                // The smallest number has no positive counterpart.
                Some(b'0'..=b'9') => self.number("-"),
                _ => {
                    let operand = self.deeper(1, Self::signed)?;
                    Ok(Expr::Binary(b'-', Box::new([Expr::Constant(0), operand])))
                }
            },
            Some(b'0'..=b'9') => self.number(""),
            Some(b':') => {
                let name = self.name(1);
                if name.is_empty() {
                    return Err(self.wrong("syntax error"));
                }
                self.at += 1 + name.len();
                Ok(Expr::Variable(self.names.slot(&name)))
            }
            Some(b'(') => {
                let inner = self.deeper(1, Self::sum)?;
                self.expect(b')')?;
                Ok(inner)
            }
            Some(_) => self.random(),
        }
    }

    fn random(&mut self) -> Result<Expr, ExprError> {
        let name = self.name(0);
        match name.as_str() {
            "" => Err(self.wrong("syntax error")),
            _ if name.eq_ignore_ascii_case("random") => {
                self.at += name.len();
                self.expect(b'(')?;
                let low = self.deeper(0, Self::sum)?;
                self.expect(b',')?;
                let high = self.deeper(0, Self::sum)?;
                self.expect(b')')?;
                Ok(Expr::Random(Box::new([low, high])))
            }
            _ => Err(self.wrong(format!("unexpected function name: {name}"))),
        }
    }

    /// Returns the name that begins so many bytes behind the present position.
    fn name(&self, behind: usize) -> String {
        let text = &self.text[self.at + behind..];
        text[..name_len(text.as_bytes())].to_owned()
    }

    fn number(&mut self, sign: &str) -> Result<Expr, ExprError> {
        let rest = self.text[self.at + sign.len()..].trim_start();
        let skipped = self.text.len() - self.at - rest.len();
        let len = rest.bytes().take_while(u8::is_ascii_digit).count();
        let value = format!("{sign}{}", &rest[..len]).parse();
        let value = value.map_err(|_| self.wrong("bigint constant overflow"))?;
        self.at += skipped + len;
        Ok(Expr::Constant(value))
    }

    fn expect(&mut self, sign: u8) -> Result<(), ExprError> {
        if self.next()? != Some(sign) {
            return Err(self.wrong(format!("syntax error: expected \"{}\"", char::from(sign))));
        }
        self.at += 1;
        Ok(())
    }

    /// Takes so many bytes, then parses one level deeper.
    fn deeper(
        &mut self,
        take: usize,
        inner: fn(&mut Self) -> Result<Expr, ExprError>,
    ) -> Result<Expr, ExprError> {
        self.at += take;
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.wrong("expression is nested too deeply"));
        }
        let expr = inner(self)?;
        self.depth -= 1;
        Ok(expr)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn evaluate(text: &str) -> Result<i64, String> {
        let mut names = Names::default();
        names.slot("five");
        let expr =
            parse(text, &mut names).map_err(|error| format!("{}: {}", error.at, error.reason))?;
        expr.value(&[Some(5)], &mut Random::new(1))
    }

    /// Checked against pgbench 15 by `\set x debug(…)`.
    #[test]
    fn expressions_come_to_what_pgbench_makes_of_them() {
        for (text, value) in [
            ("1 + 2 * 3", 7),
            ("(1 + 2) * 3", 9),
            ("7 / 2", 3),
            ("-7 % 3", -1),
            ("2 - 3 - 4", -5),
            ("- - 5", 5),
            ("- + (5)", -5),
            (":five + 1", 6),
            ("2 - -1", 3),
            ("Random(3, 1 + 2)", 3),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(evaluate(text), Ok(value), "{text}");
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
            ("random(1)", "8: syntax error: expected \",\""),
            ("1 +", "3: unexpected end of the expression"),
            ("1 2", "2: syntax error"),
            ("(1", "2: syntax error: expected \")\""),
            ("random(5, 1)", "empty range given to random"),
            ("1 ? 2", "2: syntax error"),
        ] {
            assert_eq!(evaluate(text), Err(reason.to_owned()), "{text}");
        }
    }

    #[test]
    fn deep_nesting_and_long_chains_are_refused() {
        let deep = format!("{}1{}", "(".repeat(100_000), ")".repeat(100_000));
        assert!(evaluate(&deep).unwrap_err().contains("nested too deeply"));
        let long = "1+".repeat(100_000);
        assert!(evaluate(&long).unwrap_err().contains("too long"));
        assert_eq!(evaluate(&format!("{}1", "1+".repeat(400))), Ok(401));
    }

    proptest! {
        #[test]
        fn any_text_is_an_expression_or_an_error(text in "[-0-9a-z():+*/% ,ä]{0,40}|\\PC*") {
            let _ = evaluate(&text);
        }
    }
}
