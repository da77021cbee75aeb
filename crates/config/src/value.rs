//! Conversion of a value's text to a Rust value and back, by PgBouncer's rules.
//!
//! Integers follow C's `strtol` with base 0, so `0777` is octal and `0x1f` hexadecimal. Switches
//! are integers. Times are seconds, with or without a fraction, kept in microseconds. A number that
//! is too large is an error; PgBouncer silently takes its low bits.

use std::time::Duration;

/// The kind of value of a key, for the parser of `weir.toml` and the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text; the empty text counts as a value.
    Text,
    /// Names separated by commas.
    List,
    /// A whole number, decimal, octal (leading 0) or hexadecimal (leading 0x).
    Integer,
    /// Such a number, or several separated by commas.
    Numbers,
    /// 0 or 1.
    Switch,
    /// Seconds, a fraction allowed, never negative.
    Seconds,
    /// One of these words, in any case.
    Choice(&'static [&'static str]),
}

impl Kind {
    /// A phrase for error messages and the documentation.
    pub fn describe(self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::List => "list, separated by commas".to_owned(),
            Self::Integer => "whole number".to_owned(),
            Self::Numbers => "whole number, or a list separated by commas".to_owned(),
            Self::Switch => "0 or 1".to_owned(),
            Self::Seconds => "seconds".to_owned(),
            Self::Choice(words) => words.join(", "),
        }
    }
}

/// A text has the wrong form. The error names the right one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error("{}", .0.describe())]
    Kind(Kind),
    #[error("one of {}", .0.join(", "))]
    OneOf(&'static [&'static str]),
    #[error("whole number from {min} to {max}")]
    Number { min: u64, max: u64 },
    #[error("seconds, 0 or more")]
    Seconds,
    #[error("a number with one of the units {0}")]
    Unit(&'static str),
    #[error("at least one host")]
    Hosts,
    #[error("nodes such as a=10.0.0.1, b=10.0.0.2:5433, each name and each address once")]
    Nodes,
    #[error("addresses such as 10.0.0.1:8008 or https://10.0.0.1:8008, each once")]
    Apis,
    #[error("addresses such as 10.0.0.1:2379 or https://10.0.0.1:2379, each once")]
    EtcdApis,
    #[error("host names such as db.example.org or db.example.org:5433, each once")]
    HostNames,
    #[error(
        "addresses such as 10.0.0.100/24 dev eth0, each once: an address for clients, the length of \
         its network's prefix, and the device"
    )]
    VirtualAddresses,
    #[error("ports from 1 to 65535")]
    Ports,
    #[error("addresses such as 10.0.0.0/8, ::1")]
    Networks,
    #[error("the path of a program and its arguments, such as /usr/local/bin/token --user app")]
    Program,
    /// `text` is not a pattern, for this reason.
    #[error("regular expressions; {text:?} is not one: {why}")]
    Patterns { text: String, why: String },
}

/// A type that a key can have.
pub(crate) trait Value: Sized + Default {
    const KIND: Kind;

    fn parse(text: &str) -> Result<Self, ValueError>;

    /// Parses like `parse`, for a key that can inherit from a wider scope; a negative number means
    /// inheriting.
    fn parse_optional(text: &str) -> Result<Option<Self>, ValueError> {
        Self::parse(text).map(Some)
    }

    /// Returns the text of `SHOW CONFIG`; `None` is SQL's NULL.
    fn show(&self) -> Option<String>;

    /// Returns a text like `show` that gives exactly the same value when parsed.
    fn exact(&self) -> Option<String> {
        self.show()
    }
}

impl Value for String {
    const KIND: Kind = Kind::Text;

    fn parse(text: &str) -> Result<Self, ValueError> {
        Ok(text.to_owned())
    }

    fn show(&self) -> Option<String> {
        Some(self.clone())
    }
}

impl Value for Vec<String> {
    const KIND: Kind = Kind::List;

    fn parse(text: &str) -> Result<Self, ValueError> {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        Ok(names.map(str::to_owned).collect())
    }

    fn show(&self) -> Option<String> {
        Some(self.join(", "))
    }
}

impl Value for bool {
    const KIND: Kind = Kind::Switch;

    /// Every number except 0 switches on, as in C.
    fn parse(text: &str) -> Result<Self, ValueError> {
        integer(text).map(|number| number != 0).ok_or(ValueError::Kind(Kind::Switch))
    }

    fn show(&self) -> Option<String> {
        Some(if *self { "1" } else { "0" }.to_owned())
    }
}

impl Value for u32 {
    const KIND: Kind = Kind::Integer;

    fn parse(text: &str) -> Result<Self, ValueError> {
        bounded(text, Self::MAX)
    }

    fn parse_optional(text: &str) -> Result<Option<Self>, ValueError> {
        if is_negative(text) { Ok(None) } else { Self::parse(text).map(Some) }
    }

    fn show(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Value for u64 {
    const KIND: Kind = Kind::Integer;

    fn parse(text: &str) -> Result<Self, ValueError> {
        bounded(text, i64::MAX.unsigned_abs())
    }

    fn parse_optional(text: &str) -> Result<Option<Self>, ValueError> {
        if is_negative(text) { Ok(None) } else { Self::parse(text).map(Some) }
    }

    fn show(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Value for u16 {
    const KIND: Kind = Kind::Integer;

    fn parse(text: &str) -> Result<Self, ValueError> {
        bounded(text, Self::MAX)
    }

    fn show(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Value for Duration {
    const KIND: Kind = Kind::Seconds;

    fn parse(text: &str) -> Result<Self, ValueError> {
        let seconds: f64 = text.trim_start().parse().map_err(|_| ValueError::Seconds)?;
        let exact = Self::try_from_secs_f64(seconds).map_err(|_| ValueError::Seconds)?;
        // PgBouncer's precision is microseconds, and Weir must not use a finer one.
        let micros = u64::try_from(exact.as_micros()).map_err(|_| ValueError::Seconds)?;
        Ok(Self::from_micros(micros))
    }

    fn parse_optional(text: &str) -> Result<Option<Self>, ValueError> {
        if is_negative(text) { Ok(None) } else { Self::parse(text).map(Some) }
    }

    fn show(&self) -> Option<String> {
        Some(general(self.as_secs_f64()))
    }

    fn exact(&self) -> Option<String> {
        let text = format!("{}.{:06}", self.as_secs(), self.subsec_micros());
        Some(text.trim_end_matches('0').trim_end_matches('.').to_owned())
    }
}

impl<T: Value> Value for Option<T> {
    const KIND: Kind = T::KIND;

    fn parse(text: &str) -> Result<Self, ValueError> {
        T::parse_optional(text)
    }

    fn show(&self) -> Option<String> {
        self.as_ref().and_then(T::show)
    }

    fn exact(&self) -> Option<String> {
        self.as_ref().and_then(T::exact)
    }
}

/// Parses like C's `strtol` with base 0, but the whole text; `None` if that would stop early or
/// overflow.
fn integer(text: &str) -> Option<i64> {
    let text = text.trim_start();
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    // `from_str_radix` would accept a second sign.
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let magnitude = i64::from_str_radix(digits, radix).ok()?;
    Some(if negative { -magnitude } else { magnitude })
}

fn bounded<T: TryFrom<i64> + Into<u64>>(text: &str, max: T) -> Result<T, ValueError> {
    let number = integer(text).and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| ValueError::Number { min: 0, max: max.into() })
}

fn is_negative(text: &str) -> bool {
    integer(text).is_some_and(|number| number < 0)
}

/// Formats like C's `%g`: six significant digits, no trailing zeros, an exponent only if that is
/// shorter.
fn general(number: f64) -> String {
    let scientific = format!("{number:.5e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        let decimals = usize::try_from(5 - exponent).unwrap_or(0);
        return trim_zeros(&format!("{number:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trim_zeros(mantissa), exponent.abs())
}

fn trim_zeros(number: &str) -> &str {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_strtol_reads_them() {
        let cases = [
            ("0", Some(0)),
            ("6432", Some(6432)),
            ("0777", Some(511)),
            ("0x1F", Some(31)),
            ("+5", Some(5)),
            ("-1", Some(-1)),
            (" 7", Some(7)),
            ("-0x10", Some(-16)),
            ("", None),
            ("08", None),
            ("0x", None),
            ("--1", None),
            ("+-1", None),
            ("12 ; twelve", None),
            ("1.5", None),
            ("99999999999999999999", None),
        ];
        for (text, expected) in cases {
            assert_eq!(integer(text), expected, "{text:?}");
        }
    }

    #[test]
    fn times_are_seconds_to_the_microsecond() {
        assert_eq!(Duration::parse("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(Duration::parse("3600"), Ok(Duration::from_secs(3600)));
        assert_eq!(Duration::parse("0.0000019"), Ok(Duration::from_micros(1)));
        for text in ["-1", "nan", "inf", "5s", "", "1e300"] {
            assert!(Duration::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn times_are_shown_as_percent_g() {
        let cases = [
            (0.0, "0"),
            (60.0, "60"),
            (3600.0, "3600"),
            (1.5, "1.5"),
            (0.25, "0.25"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1_234_567.0, "1.23457e+06"),
            (999_999.5, "1e+06"),
        ];
        for (number, expected) in cases {
            assert_eq!(general(number), expected);
        }
    }

    #[test]
    fn switches_are_numbers_and_nothing_else() {
        assert_eq!(bool::parse("0"), Ok(false));
        assert_eq!(bool::parse("1"), Ok(true));
        assert_eq!(bool::parse("2"), Ok(true));
        for text in ["yes", "on", "true", ""] {
            assert!(bool::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_negative_number_inherits_where_a_key_may_inherit() {
        assert_eq!(Option::<u32>::parse("-1"), Ok(None));
        assert_eq!(Option::<u32>::parse("0"), Ok(Some(0)));
        assert!(u32::parse("-1").is_err());
    }

    #[test]
    fn numbers_out_of_range_are_errors() {
        assert!(u16::parse("65536").is_err());
        assert_eq!(u32::parse("2147483647"), Ok(2_147_483_647));
    }
}
