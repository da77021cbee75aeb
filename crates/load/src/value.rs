//! The value of a script's variable, and its conversion from and to text. The rules are pgbench's
//! ("Variables" and "Data types" of its manual page).

use std::fmt;

/// The digits of a double in SQL that are certainly exact.
const DOUBLE_DIGITS: usize = 15;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    /// Converted to a number when an expression needs it; most never are.
    Text(Box<str>),
}

/// Why a value cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ValueError(pub(crate) String);

impl ValueError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl Value {
    /// Returns a typed value; a text is converted by its form.
    ///
    /// # Errors
    /// When the text has no valid form.
    pub(crate) fn typed(&self) -> Result<Self, ValueError> {
        let Self::Text(text) = self else { return Ok(self.clone()) };
        let word = text.to_ascii_lowercase();
        let begins = |whole: &str, least: usize| word.len() >= least && whole.starts_with(&word);
        if begins("null", 4) {
            return Ok(Self::Null);
        }
        if begins("true", 1) || begins("yes", 1) || word == "on" {
            return Ok(Self::Bool(true));
        }
        if begins("false", 1) || begins("no", 1) || begins("off", 2) {
            return Ok(Self::Bool(false));
        }
        let number = word.trim();
        number
            .parse()
            .map(Self::Int)
            .or_else(|_| number.parse().map(Self::Double))
            .map_err(|_| ValueError(format!("malformed variable value: \"{text}\"")))
    }

    /// # Errors
    /// When it is not a number, or beyond 64 bits.
    pub(crate) fn int(&self) -> Result<i64, ValueError> {
        match self {
            Self::Int(value) => Ok(*value),
            Self::Double(value) => {
                let rounded = value.round_ties_even();
                // -2^63 is a double, 2^63 - 1 is not.
                if !(-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&rounded) {
                    return Err(ValueError(format!("double to int overflow for {value}")));
                }
                Ok(rounded as i64)
            }
            other => Err(other.cannot_be("int")),
        }
    }

    /// # Errors
    /// When it is not a number.
    pub(crate) fn double(&self) -> Result<f64, ValueError> {
        match self {
            Self::Int(value) => Ok(*value as f64),
            Self::Double(value) => Ok(*value),
            other => Err(other.cannot_be("double")),
        }
    }

    /// # Errors
    /// When it is not a boolean.
    pub(crate) fn bool(&self) -> Result<bool, ValueError> {
        match self {
            Self::Bool(value) => Ok(*value),
            other => Err(other.cannot_be("boolean")),
        }
    }

    /// Is it true as a condition? Null and zero are not.
    pub(crate) fn is_true(&self) -> bool {
        match self {
            Self::Null | Self::Text(_) => false,
            Self::Bool(value) => *value,
            Self::Int(value) => *value != 0,
            Self::Double(value) => *value != 0.0,
        }
    }

    fn cannot_be(&self, wanted: &str) -> ValueError {
        let own = match self {
            Self::Null => "null",
            Self::Bool(_) => "boolean",
            Self::Int(_) => "int",
            Self::Double(_) => "double",
            Self::Text(_) => "text",
        };
        ValueError(format!("cannot coerce {own} to {wanted}"))
    }
}

/// The form in a statement.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Double(value) => f.write_str(&general(*value)),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// Formats like C's `%.15g`, as pgbench does.
fn general(value: f64) -> String {
    if !value.is_finite() {
        let sign = if value.is_sign_negative() && !value.is_nan() { "-" } else { "" };
        return format!("{sign}{}", if value.is_nan() { "nan" } else { "inf" });
    }
    let scientific = format!("{value:.*e}", DOUBLE_DIGITS - 1);
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..DOUBLE_DIGITS as i32).contains(&exponent) {
        let places = (DOUBLE_DIGITS as i32 - 1 - exponent).max(0) as usize;
        return trim(&format!("{value:.places$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trim(digits), exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &str) -> Result<Value, ValueError> {
        Value::Text(text.into()).typed()
    }

    #[test]
    fn a_text_becomes_what_it_looks_like() {
        assert_eq!(typed("42"), Ok(Value::Int(42)));
        assert_eq!(typed("-1"), Ok(Value::Int(-1)));
        assert_eq!(typed("1.5e3"), Ok(Value::Double(1500.0)));
        assert_eq!(typed("NULL"), Ok(Value::Null));
        assert_eq!(typed("t"), Ok(Value::Bool(true)));
        assert_eq!(typed("off"), Ok(Value::Bool(false)));
        assert_eq!(typed("9223372036854775808"), Ok(Value::Double(9_223_372_036_854_775_808.0)));
        let error = typed("alice").unwrap_err();
        assert_eq!(error.to_string(), "malformed variable value: \"alice\"");
    }

    #[test]
    fn doubles_are_written_as_c_does() {
        for (value, text) in [
            (0.1, "0.1"),
            (100.0, "100"),
            (-2.5, "-2.5"),
            (1e15, "1e+15"),
            (1e-5, "1e-05"),
            (1.0 / 3.0, "0.333333333333333"),
            (123_456_789.123_456_78, "123456789.123457"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(Value::Double(value).to_string(), text);
        }
    }

    #[test]
    fn a_double_becomes_the_nearest_integer_or_an_error() {
        assert_eq!(Value::Double(2.5).int(), Ok(2));
        assert_eq!(Value::Double(-3.5).int(), Ok(-4));
        assert!(Value::Double(1e19).int().is_err());
        assert!(Value::Double(f64::NAN).int().is_err());
        assert_eq!(
            Value::Bool(true).int().unwrap_err().to_string(),
            "cannot coerce boolean to int"
        );
    }
}
