//! The `options` startup parameter: settings given as command-line arguments of the server.
//!
//! The words are split as in PostgreSQL. Only the switches that set a parameter are accepted; the
//! others have no meaning for a running server.

use thiserror::Error;

/// The options contain something else than settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "unsupported options startup parameter: only '-c config=val' and '--config=val' are allowed"
)]
pub struct OptionsError;

/// Reads `-c name=value`, `-cname=value` and `--name=value`, separated by white space. Returns
/// names and values in their order.
///
/// A backslash escapes the next character, so a value can contain a space. A dash in a name stands
/// for an underscore.
///
/// # Errors
/// For any other switch, a setting without `=` or without a name, or text that is not UTF-8.
pub fn parse_options(options: &[u8]) -> Result<Vec<(String, String)>, OptionsError> {
    let mut words = split(options).into_iter();
    let mut settings = Vec::new();
    while let Some(word) = words.next() {
        let setting = match word.as_slice() {
            b"-c" => words.next().ok_or(OptionsError)?,
            [b'-', b'-' | b'c', setting @ ..] => setting.to_vec(),
            _ => return Err(OptionsError),
        };
        let setting = String::from_utf8(setting).map_err(|_| OptionsError)?;
        match setting.split_once('=') {
            Some((name, value)) if !name.is_empty() => {
                settings.push((name.replace('-', "_"), value.to_owned()));
            }
            _ => return Err(OptionsError),
        }
    }
    Ok(settings)
}

/// Splits at white space that is not escaped.
fn split(options: &[u8]) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut bytes = options.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' | b'\x0b' | b'\x0c' => words.extend(word.take()),
            b'\\' => word.get_or_insert_default().extend(bytes.next()),
            _ => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(options: &str, expected: &[(&str, &str)]) {
        let expected =
            expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        assert_eq!(parse_options(options.as_bytes()), Ok(expected.collect()), "{options:?}");
    }

    #[test]
    fn settings_are_read_in_all_three_forms() {
        check("", &[]);
        check(" \t\n", &[]);
        check("-c search_path=a,b", &[("search_path", "a,b")]);
        check("-csearch_path=a", &[("search_path", "a")]);
        check("--search_path=a", &[("search_path", "a")]);
        check("--search-path=a-b", &[("search_path", "a-b")]);
        check("  -c a=1   --b=2 -cc=3 ", &[("a", "1"), ("b", "2"), ("c", "3")]);
        check("-c a=", &[("a", "")]);
        check("-c a=b=c", &[("a", "b=c")]);
    }

    #[test]
    fn a_backslash_protects_the_next_character() {
        check(r"-c application_name=my\ app", &[("application_name", "my app")]);
        check(r"-c a=x\\y\-z", &[("a", r"x\y-z")]);
        check(r"-c\ a=1", &[(" a", "1")]);
        check("-c a=1\\", &[("a", "1")]);
        check(r"--a=\=", &[("a", "=")]);
    }

    #[test]
    fn anything_else_is_refused() {
        for options in ["-c", "-c a", "--a", "--", "-c =1", "--=1", "-d 5", "a=1", "-c a=1 x", "\\"]
        {
            assert_eq!(parse_options(options.as_bytes()), Err(OptionsError), "{options:?}");
        }
        assert_eq!(parse_options(b"-c a=\xff"), Err(OptionsError));
    }

    proptest! {
        #[test]
        fn any_value_survives_escaping(name in "[a-z_.]{1,20}", value in "\\PC{0,40}") {
            let escaped: String =
                value.chars().flat_map(|c| ['\\', c]).collect();
            check(&format!("-c {name}={escaped} --{name}={escaped}"),
                &[(&name, &value), (&name, &value)]);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = parse_options(&bytes);
        }
    }
}
