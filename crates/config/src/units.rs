//! Numbers with a unit, which a `weir.toml` may have: "3s", "500ms", "64kB".

use crate::value::{Kind, ValueError};

/// PostgreSQL's units of time, in microseconds.
const TIMES: [(&str, f64); 6] =
    [("us", 1.0), ("ms", 1e3), ("s", 1e6), ("min", 60e6), ("h", 3_600e6), ("d", 86_400e6)];
/// PostgreSQL's units of memory, in bytes.
const SIZES: [(&str, f64); 4] =
    [("B", 1.0), ("kB", 1_024.0), ("MB", 1_048_576.0), ("GB", 1_073_741_824.0)];

/// Returns the number in the unit of a key, as text; None if `text` has no unit, or the key takes
/// none.
///
/// # Errors
/// When the unit is unknown, or a key of whole numbers would get a fraction.
pub(crate) fn number(text: &str, kind: Kind, unit: &str) -> Option<Result<String, ValueError>> {
    let (units, names, base) = match (kind, unit) {
        (Kind::Seconds, _) | (Kind::Integer, "seconds") => {
            (&TIMES[..], "us, ms, s, min, h, d", 1e6)
        }
        (Kind::Integer, "milliseconds") => (&TIMES[..], "us, ms, s, min, h, d", 1e3),
        (Kind::Integer, "bytes") => (&SIZES[..], "B, kB, MB, GB", 1.0),
        _ => return None,
    };
    let at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, own) = (text[..at].trim(), text[at..].trim());
    let number: f64 = number.parse().ok()?;
    let Some((_, factor)) = units.iter().find(|(name, _)| *name == own) else {
        return Some(Err(ValueError::Unit(names)));
    };
    let number = number * factor / base;
    if kind == Kind::Integer && number.fract() != 0.0 {
        return Some(Err(ValueError::Kind(Kind::Integer)));
    }
    Some(Ok(number.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_postgresqls() {
        for (text, kind, unit, expected) in [
            ("3s", Kind::Seconds, "", "3"),
            ("500ms", Kind::Seconds, "", "0.5"),
            ("2 min", Kind::Seconds, "", "120"),
            ("1.5h", Kind::Integer, "seconds", "5400"),
            ("3s", Kind::Integer, "milliseconds", "3000"),
            ("64kB", Kind::Integer, "bytes", "65536"),
        ] {
            assert_eq!(number(text, kind, unit), Some(Ok(expected.to_owned())), "{text}");
        }
    }

    #[test]
    fn a_text_without_a_unit_is_left_as_it_is() {
        assert_eq!(number("3", Kind::Seconds, ""), None);
        assert_eq!(number("0x1f", Kind::Integer, ""), None);
        assert_eq!(number("3s", Kind::Text, ""), None);
    }

    #[test]
    fn an_unknown_unit_and_a_fraction_are_errors() {
        let unknown = Some(Err(ValueError::Unit("us, ms, s, min, h, d")));
        assert_eq!(number("3sec", Kind::Seconds, ""), unknown);
        let fraction = Some(Err(ValueError::Kind(Kind::Integer)));
        assert_eq!(number("1500ms", Kind::Integer, "seconds"), fraction);
    }
}
