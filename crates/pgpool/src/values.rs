//! The values of Pgpool-II's parameters.

/// The longest time: Pgpool-II counts seconds in an int.
const TIME_MAX: u64 = i32::MAX.unsigned_abs() as u64 * 1_000;

/// Returns a truth value; unique beginnings of the words count, as in PostgreSQL.
pub(crate) fn switch(text: &str) -> Option<bool> {
    let text = text.to_ascii_lowercase();
    let begins = |word: &str, least: usize| text.len() >= least && word.starts_with(&text);
    match () {
        () if text == "1" || begins("true", 1) || begins("yes", 1) || text == "on" => Some(true),
        () if text == "0" || begins("false", 1) || begins("no", 1) || begins("off", 2) => {
            Some(false)
        }
        () => None,
    }
}

/// Returns a whole number, decimal, octal or hexadecimal.
pub(crate) fn number(text: &str) -> Option<u64> {
    let text = text.strip_prefix('+').unwrap_or(text);
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Returns a time in milliseconds; `unit` is that of a number alone.
pub(crate) fn time(text: &str, unit: u64) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at_checked(digits)?;
    let unit = match rest.trim() {
        "" => unit,
        "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    let time = match number.parse::<u64>() {
        Ok(number) => number.checked_mul(unit),
        // Some values have a fraction, such as 1.5min.
        Err(_) => {
            let (whole, fraction) = number.split_once('.')?;
            let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
            let fraction: u64 = fraction.get(..fraction.len().min(3))?.parse().ok()?;
            let scale = 10_u64.pow(number.rsplit('.').next()?.len().min(3).try_into().ok()?);
            whole.checked_mul(unit)?.checked_add(fraction.checked_mul(unit)? / scale)
        }
    };
    time.filter(|time| *time <= TIME_MAX)
}

/// Returns milliseconds as seconds.
pub(crate) fn seconds(milliseconds: u64) -> String {
    match (milliseconds / 1_000, milliseconds % 1_000) {
        (whole, 0) => whole.to_string(),
        (whole, rest) => format!("{whole}.{rest:03}").trim_end_matches('0').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truth_values_are_postgresqls() {
        for text in ["on", "ON", "true", "t", "yes", "y", "1"] {
            assert_eq!(switch(text), Some(true), "{text}");
        }
        for text in ["off", "of", "false", "F", "no", "n", "0"] {
            assert_eq!(switch(text), Some(false), "{text}");
        }
        for text in ["", "o", "2", "maybe", "onn"] {
            assert_eq!(switch(text), None, "{text}");
        }
    }

    #[test]
    fn times_have_units() {
        let cases = [
            ("10", 1_000, Some(10_000)),
            ("10000", 1, Some(10_000)),
            ("5min", 1_000, Some(300_000)),
            ("1d", 1, Some(86_400_000)),
            ("250ms", 1_000, Some(250)),
            ("1.5s", 1, Some(1_500)),
            (".5", 1_000, Some(500)),
            ("5 min", 1_000, Some(300_000)),
            ("0s", 1_000, Some(0)),
            ("", 1_000, None),
            ("-1", 1_000, None),
            ("10 years", 1_000, None),
            ("1..5", 1_000, None),
            ("99999999999999999999", 1_000, None),
            ("18446744073709551615d", 1, None),
            ("2147483647", 1_000, Some(2_147_483_647_000)),
            ("2147483648", 1_000, None),
        ];
        for (text, unit, expected) in cases {
            assert_eq!(time(text, unit), expected, "{text}");
        }
        let texts = [0, 1_000, 1_500, 250, 90_010].map(seconds);
        assert_eq!(texts, ["0", "1", "1.5", "0.25", "90.01"]);
    }

    #[test]
    fn numbers_may_be_hexadecimal() {
        let cases =
            [("32", Some(32)), ("+5", Some(5)), ("0x1F", Some(31)), ("-1", None), ("x", None)];
        for (text, expected) in cases {
            assert_eq!(number(text), expected, "{text}");
        }
    }
}
