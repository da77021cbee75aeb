//! The expressions of `\set`, `\if` and `\elif`, and their evaluation. `parse.rs` has the grammar,
//! `function.rs` the functions.

mod function;
mod parse;
#[cfg(test)]
mod tests;

use self::function::Function;
pub(crate) use self::parse::parse;
use crate::{
    names::Slot,
    random::Random,
    value::{Value, ValueError},
};

#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Constant(Value),
    Variable(Slot),
    Not(Box<Self>),
    And(Box<[Self; 2]>),
    Or(Box<[Self; 2]>),
    Binary(Binary, Box<[Self; 2]>),
    /// Is the expression equal to the value, including null?
    Is(Box<Self>, Value),
    /// Conditions with their results, in order, and the default.
    Case(Vec<(Self, Self)>, Box<Self>),
    Call(Function, Vec<Self>),
}

/// Operators with two operands, both of which are always evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Eq,
    Ne,
    Lt,
    Le,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
}

/// The variables and the random numbers that an expression uses.
pub(crate) struct Scope<'a> {
    pub(crate) variables: &'a [Option<Value>],
    pub(crate) random: &'a mut Random,
}

impl Expr {
    /// # Errors
    /// pgbench's errors: a variable is not defined, a type does not fit, a result is beyond 64
    /// bits, a division by zero.
    pub(crate) fn value(&self, scope: &mut Scope<'_>) -> Result<Value, ValueError> {
        Ok(match self {
            Self::Constant(value) => value.clone(),
            Self::Variable(slot) => match scope.variables.get(*slot) {
                Some(Some(value)) => value.typed()?,
                _ => return Err(ValueError::new("undefined variable")),
            },
            Self::Not(operand) => match operand.value(scope)? {
                Value::Null => Value::Null,
                value => Value::Bool(!value.bool()?),
            },
            Self::And(operands) => either(operands, scope, false)?,
            Self::Or(operands) => either(operands, scope, true)?,
            Self::Binary(operator, operands) => {
                let [left, right] = &**operands;
                match (left.value(scope)?, right.value(scope)?) {
                    (Value::Null, _) | (_, Value::Null) => Value::Null,
                    (left, right) => operator.apply(&left, &right)?,
                }
            }
            Self::Is(operand, wanted) => Value::Bool(operand.value(scope)? == *wanted),
            Self::Case(branches, otherwise) => {
                for (condition, result) in branches {
                    if condition.value(scope)?.is_true() {
                        return result.value(scope);
                    }
                }
                otherwise.value(scope)?
            }
            Self::Call(function, arguments) => function.call(arguments, scope)?,
        })
    }
}

/// Evaluates AND or OR. One value of the left operand decides the result, without the right one.
fn either(
    operands: &[Expr; 2],
    scope: &mut Scope<'_>,
    deciding: bool,
) -> Result<Value, ValueError> {
    let [left, right] = operands;
    let left = match left.value(scope)? {
        Value::Null => None,
        value if value.bool()? == deciding => return Ok(Value::Bool(deciding)),
        _ => Some(()),
    };
    Ok(match (left, right.value(scope)?) {
        (_, Value::Null) => Value::Null,
        (left, value) => match (left, value.bool()?) {
            (_, value) if value == deciding => Value::Bool(deciding),
            (None, _) => Value::Null,
            (Some(()), value) => Value::Bool(value),
        },
    })
}

impl Binary {
    fn apply(self, left: &Value, right: &Value) -> Result<Value, ValueError> {
        let is_double = matches!(left, Value::Double(_)) || matches!(right, Value::Double(_));
        match self {
            Self::Add
            | Self::Sub
            | Self::Mul
            | Self::Div
            | Self::Eq
            | Self::Ne
            | Self::Lt
            | Self::Le
                if is_double =>
            {
                Ok(self.on_doubles(left.double()?, right.double()?))
            }
            _ => self.on_ints(left.int()?, right.int()?),
        }
    }

    fn on_doubles(self, left: f64, right: f64) -> Value {
        match self {
            Self::Add => Value::Double(left + right),
            Self::Sub => Value::Double(left - right),
            Self::Mul => Value::Double(left * right),
            Self::Div => Value::Double(left / right),
            Self::Eq => Value::Bool(left == right),
            Self::Ne => Value::Bool(left != right),
            Self::Lt => Value::Bool(left < right),
            Self::Le => Value::Bool(left <= right),
            Self::Mod
            | Self::BitAnd
            | Self::BitOr
            | Self::BitXor
            | Self::ShiftLeft
            | Self::ShiftRight => unreachable!("only of integers"),
        }
    }

    fn on_ints(self, left: i64, right: i64) -> Result<Value, ValueError> {
        let whole = |result: Option<i64>, name: &str| {
            let error = || ValueError(format!("bigint {name} out of range"));
            result.map(Value::Int).ok_or_else(error)
        };
        if matches!(self, Self::Div | Self::Mod) && right == 0 {
            return Err(ValueError::new("division by zero"));
        }
        match self {
            Self::Add => whole(left.checked_add(right), "add"),
            Self::Sub => whole(left.checked_sub(right), "sub"),
            Self::Mul => whole(left.checked_mul(right), "mul"),
            Self::Div => whole(left.checked_div(right), "div"),
            Self::Mod => Ok(Value::Int(left.wrapping_rem(right))),
            Self::Eq => Ok(Value::Bool(left == right)),
            Self::Ne => Ok(Value::Bool(left != right)),
            Self::Lt => Ok(Value::Bool(left < right)),
            Self::Le => Ok(Value::Bool(left <= right)),
            Self::BitAnd => Ok(Value::Int(left & right)),
            Self::BitOr => Ok(Value::Int(left | right)),
            Self::BitXor => Ok(Value::Int(left ^ right)),
            Self::ShiftLeft => Ok(Value::Int(left.wrapping_shl(right as u32))),
            Self::ShiftRight => Ok(Value::Int(left.wrapping_shr(right as u32))),
        }
    }
}
