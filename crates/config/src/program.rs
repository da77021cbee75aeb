//! A program that a key names, and the password that it prints.

use std::time::Duration;

use crate::value::{Kind, Value, ValueError};

/// The path of a program, and its arguments. It is run without a shell.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Program {
    /// As in the file.
    text: String,
    words: Vec<String>,
}

/// A program that prints the password for logins to servers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PasswordCommand {
    pub program: Program,
    /// The time from the start of the program to the end of the password.
    pub lifetime: Duration,
}

impl Program {
    /// Returns the text of the file.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    #[must_use]
    pub fn path(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    #[must_use]
    pub fn arguments(&self) -> &[String] {
        self.words.get(1..).unwrap_or_default()
    }
}

/// Blanks separate the words. A word, or a part of it, may be in single or double quotes. No other
/// character has a meaning.
impl Value for Program {
    const KIND: Kind = Kind::Text;

    fn parse(text: &str) -> Result<Self, ValueError> {
        let words = words(text).filter(|words| {
            let is_path = words.first().is_some_and(|path| path.starts_with('/'));
            is_path && words.iter().all(|word| !word.contains('\0'))
        });
        words.map(|words| Self { text: text.to_owned(), words }).ok_or(ValueError::Program)
    }

    fn show(&self) -> Option<String> {
        Some(self.text.clone())
    }
}

/// Returns None if a quote is missing.
fn words(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in text.chars() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, _) if letter.is_ascii_whitespace() => words.extend(word.take()),
            (Some(_) | None, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_separated_by_blanks_and_may_be_quoted() {
        let all = |text| Program::parse(text).map(|program| program.words);
        assert_eq!(all(" /bin/token "), Ok(vec!["/bin/token".to_owned()]));
        let words = all(r#"/bin/a --user="a b"c 'x"y' '' $HOME;`id` \n"#).unwrap();
        assert_eq!(words, ["/bin/a", "--user=a bc", "x\"y", "", "$HOME;`id`", r"\n"]);
        for bad in ["", " ", "token --x", "./token", "/bin/a 'b", "'/bin/a\"", "/bin/a \0"] {
            assert_eq!(all(bad), Err(ValueError::Program), "{bad:?}");
        }
    }
}
