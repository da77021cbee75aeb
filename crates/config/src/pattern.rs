//! Regular expressions to search texts with.

use regex_lite::Regex;

use crate::value::{Kind, Value, ValueError};

/// Matches anywhere in a text, ignoring case. The syntax is that of the crate `regex-lite`: Perl's
/// without backreferences. The time of a search is proportional to the text.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl Pattern {
    fn parse(text: &str) -> Result<Self, ValueError> {
        let regex = regex_lite::RegexBuilder::new(text).case_insensitive(true).build();
        regex.map(Self).map_err(|error| {
            let (text, why) = (text.to_owned(), error.to_string());
            ValueError::Patterns { text, why }
        })
    }

    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

/// Is the text a valid regular expression?
#[must_use]
pub fn is_pattern(text: &str) -> bool {
    Pattern::parse(text).is_ok()
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for Pattern {}

/// Separated by commas, so none can be in one.
impl Value for Vec<Pattern> {
    const KIND: Kind = Kind::List;

    fn parse(text: &str) -> Result<Self, ValueError> {
        let texts = text.split(',').map(str::trim).filter(|text| !text.is_empty());
        texts.map(Pattern::parse).collect()
    }

    fn show(&self) -> Option<String> {
        let texts: Vec<_> = self.iter().map(|pattern| pattern.0.as_str()).collect();
        Some(texts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_a_list_is_searched_for() {
        let all = <Vec<Pattern>>::parse(r"\bjob_\w+\s*\(, ^copy\b").unwrap();
        let found = |text: &str| all.iter().any(|pattern| pattern.matches(text));
        assert!(found("SELECT App.JOB_begin (1)") && found("copy x") && !found("SELECT job()"));
        assert_eq!(Value::show(&all).unwrap(), r"\bjob_\w+\s*\(, ^copy\b");
        assert_eq!(<Vec<Pattern>>::parse(" ").unwrap(), []);
    }

    #[test]
    fn a_mistake_is_told() {
        let why = <Vec<Pattern>>::parse("a(").unwrap_err().to_string();
        assert!(why.starts_with("regular expressions; \"a(\" is not one: "), "{why}");
    }
}
