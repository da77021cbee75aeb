//! Parses the text of an expression. Operators that bind tighter come later:
//!
//! ```text
//!   OR · AND · NOT · IS, ISNULL, NOTNULL · < <= = <> >= > · | # & << >> ~ · + - · * / % · unary - +
//! ```

use super::{Binary, Expr, function::Function};
use crate::{
    names::{Names, is_name_byte},
    value::Value,
};

/// Deeper brackets are refused, since each level costs stack.
const DEPTH_MAX: usize = 40;

/// Each operator of a long chain also costs stack when it is evaluated.
const TOKENS_MAX: usize = 1_000;

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
    let mut parser = Parser { text, at: 0, next: Token::End, start: 0, names, depth: 0, tokens: 0 };
    parser.advance()?;
    let expr = parser.or()?;
    match parser.next {
        Token::End => Ok(expr),
        _ => Err(parser.wrong("syntax error")),
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    End,
    Int(i64),
    Double(f64),
    Variable(String),
    Word(String),
    Sign(&'static str),
}

/// The longer ones first.
const SIGNS: [&str; 20] = [
    "<<", ">>", "<=", ">=", "<>", "!=", "<", ">", "=", "|", "#", "&", "~", "+", "-", "*", "/", "%",
    "(", ")",
];

struct Parser<'a> {
    text: &'a str,
    at: usize,
    next: Token,
    /// The position of the next token.
    start: usize,
    names: &'a mut Names,
    depth: usize,
    tokens: usize,
}

impl Parser<'_> {
    fn wrong(&self, reason: impl Into<String>) -> ExprError {
        ExprError { at: self.start, reason: reason.into() }
    }

    fn or(&mut self) -> Result<Expr, ExprError> {
        let mut left = self.and()?;
        while self.take_word("or")? {
            left = Expr::Or(Box::new([left, self.and()?]));
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Expr, ExprError> {
        let mut left = self.not()?;
        while self.take_word("and")? {
            left = Expr::And(Box::new([left, self.not()?]));
        }
        Ok(left)
    }

    fn not(&mut self) -> Result<Expr, ExprError> {
        if self.take_word("not")? {
            return self.deeper(Self::not).map(|operand| Expr::Not(Box::new(operand)));
        }
        let operand = self.compared()?;
        if self.take_word("isnull")? {
            return Ok(Expr::Is(Box::new(operand), Value::Null));
        }
        if self.take_word("notnull")? {
            return Ok(Expr::Not(Box::new(Expr::Is(Box::new(operand), Value::Null))));
        }
        if !self.take_word("is")? {
            return Ok(operand);
        }
        let negated = self.take_word("not")?;
        let Some(wanted) = self.constant_word() else { return Err(self.wrong("syntax error")) };
        self.advance()?;
        let is = Expr::Is(Box::new(operand), wanted);
        Ok(if negated { Expr::Not(Box::new(is)) } else { is })
    }

    fn compared(&mut self) -> Result<Expr, ExprError> {
        let left = self.bits()?;
        let Token::Sign(sign) = self.next else { return Ok(left) };
        let (operator, swapped) = match sign {
            "<" => (Binary::Lt, false),
            "<=" => (Binary::Le, false),
            ">" => (Binary::Lt, true),
            ">=" => (Binary::Le, true),
            "=" => (Binary::Eq, false),
            "<>" | "!=" => (Binary::Ne, false),
            _ => return Ok(left),
        };
        self.advance()?;
        let right = self.bits()?;
        let operands = if swapped { [right, left] } else { [left, right] };
        Ok(Expr::Binary(operator, Box::new(operands)))
    }

    fn bits(&mut self) -> Result<Expr, ExprError> {
        let operators = [
            ("|", Binary::BitOr),
            ("#", Binary::BitXor),
            ("&", Binary::BitAnd),
            ("<<", Binary::ShiftLeft),
            (">>", Binary::ShiftRight),
        ];
        self.chain(&operators, Self::sum)
    }

    fn sum(&mut self) -> Result<Expr, ExprError> {
        self.chain(&[("+", Binary::Add), ("-", Binary::Sub)], Self::product)
    }

    fn product(&mut self) -> Result<Expr, ExprError> {
        let operators = [("*", Binary::Mul), ("/", Binary::Div), ("%", Binary::Mod)];
        self.chain(&operators, Self::signed)
    }

    /// Parses operators of the same precedence, from left to right.
    fn chain(
        &mut self,
        operators: &[(&str, Binary)],
        operand: fn(&mut Self) -> Result<Expr, ExprError>,
    ) -> Result<Expr, ExprError> {
        let mut left = operand(self)?;
        while let Token::Sign(sign) = self.next
            && let Some((_, operator)) = operators.iter().find(|(known, _)| *known == sign)
        {
            self.advance()?;
            left = Expr::Binary(*operator, Box::new([left, operand(self)?]));
        }
        Ok(left)
    }

    fn signed(&mut self) -> Result<Expr, ExprError> {
        let int = |value| Box::new(Expr::Constant(Value::Int(value)));
        if self.take_sign("-")? {
            // The smallest number has no positive counterpart.
            if self.next == Token::Int(i64::MIN) {
                self.advance()?;
                return Ok(Expr::Constant(Value::Int(i64::MIN)));
            }
            let operand = self.deeper(Self::signed)?;
            return Ok(Expr::Binary(Binary::Sub, Box::new([*int(0), operand])));
        }
        if self.take_sign("+")? {
            return self.deeper(Self::signed);
        }
        // It is in the place of the other signs, but applies to everything that binds tighter than
        // `|`: `2 * ~1 + 3` is `2 * ~(1 + 3)`.
        if self.take_sign("~")? {
            let operand = self.deeper(Self::sum)?;
            return Ok(Expr::Binary(Binary::BitXor, Box::new([*int(-1), operand])));
        }
        self.single()
    }

    fn single(&mut self) -> Result<Expr, ExprError> {
        if let Some(value) = self.constant_word() {
            self.advance()?;
            return Ok(Expr::Constant(value));
        }
        if self.take_sign("(")? {
            let inner = self.deeper(Self::or)?;
            self.expect_sign(")")?;
            return Ok(inner);
        }
        if self.take_word("case")? {
            return self.deeper(Self::case);
        }
        let token = self.next.clone();
        match token {
            Token::Int(i64::MIN) => Err(self.wrong("bigint constant overflow")),
            Token::Int(value) => self.constant(Value::Int(value)),
            Token::Double(value) => self.constant(Value::Double(value)),
            Token::Variable(name) => {
                self.advance()?;
                Ok(Expr::Variable(self.names.slot(&name)))
            }
            Token::Word(name) => self.call(&name),
            Token::End => Err(self.wrong("unexpected end of the expression")),
            Token::Sign(_) => Err(self.wrong("syntax error")),
        }
    }

    fn constant(&mut self, value: Value) -> Result<Expr, ExprError> {
        self.advance()?;
        Ok(Expr::Constant(value))
    }

    fn case(&mut self) -> Result<Expr, ExprError> {
        let mut branches = Vec::new();
        while self.take_word("when")? {
            let condition = self.or()?;
            if !self.take_word("then")? {
                return Err(self.wrong("syntax error: expected THEN"));
            }
            branches.push((condition, self.or()?));
        }
        if branches.is_empty() {
            return Err(self.wrong("syntax error: expected WHEN"));
        }
        let otherwise =
            if self.take_word("else")? { self.or()? } else { Expr::Constant(Value::Null) };
        if !self.take_word("end")? {
            return Err(self.wrong("syntax error: expected END"));
        }
        Ok(Expr::Case(branches, Box::new(otherwise)))
    }

    fn call(&mut self, name: &str) -> Result<Expr, ExprError> {
        let start = self.start;
        self.advance()?;
        self.expect_sign("(")?;
        let mut arguments = Vec::new();
        if self.next != Token::Sign(")") {
            arguments.push(self.deeper(Self::or)?);
            while self.take_sign(",")? {
                arguments.push(self.deeper(Self::or)?);
            }
        }
        self.expect_sign(")")?;
        let function = Function::find(name, arguments.len())
            .map_err(|reason| ExprError { at: start, reason })?;
        if function.has_seed(arguments.len()) {
            arguments.push(Expr::Variable(self.names.slot("default_seed")));
        }
        Ok(Expr::Call(function, arguments))
    }

    fn deeper(
        &mut self,
        inner: fn(&mut Self) -> Result<Expr, ExprError>,
    ) -> Result<Expr, ExprError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.wrong("expression is nested too deeply"));
        }
        let expr = inner(self)?;
        self.depth -= 1;
        Ok(expr)
    }

    fn constant_word(&self) -> Option<Value> {
        let Token::Word(word) = &self.next else { return None };
        match word.to_ascii_lowercase().as_str() {
            "null" => Some(Value::Null),
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            _ => None,
        }
    }

    fn take_word(&mut self, word: &str) -> Result<bool, ExprError> {
        let taken = matches!(&self.next, Token::Word(next) if next.eq_ignore_ascii_case(word));
        if taken {
            self.advance()?;
        }
        Ok(taken)
    }

    fn take_sign(&mut self, sign: &str) -> Result<bool, ExprError> {
        let taken = matches!(self.next, Token::Sign(next) if next == sign);
        if taken {
            self.advance()?;
        }
        Ok(taken)
    }

    fn expect_sign(&mut self, sign: &str) -> Result<(), ExprError> {
        match self.take_sign(sign)? {
            true => Ok(()),
            false => Err(self.wrong(format!("syntax error: expected \"{sign}\""))),
        }
    }

    fn advance(&mut self) -> Result<(), ExprError> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.start = self.at;
        self.tokens += 1;
        if self.tokens > TOKENS_MAX {
            return Err(self.wrong("expression is too long"));
        }
        let rest = &self.text[self.at..];
        let Some(first) = rest.bytes().next() else {
            self.next = Token::End;
            return Ok(());
        };
        if first.is_ascii_digit()
            || (first == b'.' && rest[1..].starts_with(|c: char| c.is_ascii_digit()))
        {
            return self.number(rest);
        }
        if first == b':' {
            let name = name_of(&rest[1..]);
            self.at += 1 + name.len();
            self.next = Token::Variable(name.to_owned());
            return if name.is_empty() { Err(self.wrong("syntax error")) } else { Ok(()) };
        }
        if first.is_ascii_alphabetic() || first == b'_' {
            let word = name_of(rest);
            self.at += word.len();
            self.next = Token::Word(word.to_owned());
            return Ok(());
        }
        let sign = SIGNS.iter().chain(&[","]).find(|sign| rest.starts_with(**sign));
        let sign = sign.ok_or_else(|| self.wrong("unexpected character"))?;
        self.at += sign.len();
        self.next = Token::Sign(sign);
        Ok(())
    }

    fn number(&mut self, rest: &str) -> Result<(), ExprError> {
        let digits =
            |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let whole = digits(rest);
        let mut len = whole;
        if rest[len..].starts_with('.') {
            len += 1 + digits(&rest[len + 1..]);
        }
        if let Some(exponent) = rest[len..].strip_prefix(['e', 'E']) {
            let sign = usize::from(exponent.starts_with(['+', '-']));
            let count = digits(&exponent[sign..]);
            if count > 0 {
                len += 1 + sign + count;
            }
        }
        self.at += len;
        let text = &rest[..len];
        self.next = if len > whole {
            let value = text.parse().map_err(|_| self.wrong("double constant overflow"))?;
            Token::Double(value)
        } else if text == "9223372036854775808" {
            Token::Int(i64::MIN)
        } else {
            Token::Int(text.parse().map_err(|_| self.wrong("bigint constant overflow"))?)
        };
        Ok(())
    }
}

fn name_of(text: &str) -> &str {
    let end = text.bytes().position(|byte| !is_name_byte(byte)).unwrap_or(text.len());
    &text[..end]
}
