//! Variables of the environment in values: `${NAME}`, and `$CREDENTIALS_DIRECTORY`, the folder of a
//! unit's secrets (systemd.exec(5)).

/// Returns the value of a variable.
pub(crate) type Lookup = fn(&str) -> Option<String>;

/// The variable that needs no braces.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// A part of a value.
#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    Text(&'a str),
    Variable(&'a str),
}

/// Returns the text with its variables replaced; `None` if it has none. `$${NAME}` stands for
/// `${NAME}`.
///
/// # Errors
/// The name of a variable that is not set.
pub(crate) fn replace(text: &str, lookup: Lookup) -> Result<Option<String>, String> {
    let parts = parts(text);
    if let [Part::Text(whole)] = parts[..]
        && whole == text
    {
        return Ok(None);
    }
    let mut replaced = String::new();
    for part in parts {
        match part {
            Part::Text(text) => replaced += text,
            Part::Variable(name) => replaced += &lookup(name).ok_or(name)?,
        }
    }
    Ok(Some(replaced))
}

/// Returns a text that a configuration reads as `text`, without replacing variables in it.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, behind) = rest.split_at(at);
        escaped += before;
        let is_variable = name(&behind[1..]).is_some();
        escaped += if is_variable { "$$" } else { "$" };
        rest = &behind[1..];
    }
    escaped + rest
}

/// Is the text one variable, and nothing else?
pub(crate) fn is_one(text: &str) -> bool {
    matches!(parts(text)[..], [Part::Variable(_)])
}

/// Returns the names of the variables in a text.
pub(crate) fn names(text: &str) -> impl Iterator<Item = &str> {
    parts(text).into_iter().filter_map(|part| match part {
        Part::Variable(name) => Some(name),
        Part::Text(_) => None,
    })
}

fn parts(text: &str) -> Vec<Part<'_>> {
    let (mut parts, mut begin, mut at) = (Vec::new(), 0, 0);
    while let Some(found) = text[at..].find('$') {
        let dollar = at + found;
        let rest = &text[dollar + 1..];
        at = dollar + 1;
        if rest.strip_prefix('$').is_some_and(|rest| name(rest).is_some()) {
            // The second dollar sign, and what follows, stay.
            parts.push(Part::Text(&text[begin..dollar]));
            (begin, at) = (at, at + 1);
        } else if let Some(name) = name(rest) {
            let has_braces = rest.starts_with('{');
            parts.push(Part::Text(&text[begin..dollar]));
            parts.push(Part::Variable(name));
            at += name.len() + 2 * usize::from(has_braces);
            begin = at;
        }
    }
    parts.push(Part::Text(&text[begin..]));
    parts.retain(|part| *part != Part::Text(""));
    if parts.is_empty() {
        parts.push(Part::Text(""));
    }
    parts
}

/// Returns the name of the variable at the beginning of `rest`.
fn name(rest: &str) -> Option<&str> {
    braced(rest).or_else(|| credentials(rest))
}

fn braced(rest: &str) -> Option<&str> {
    let (name, _) = rest.strip_prefix('{')?.split_once('}')?;
    let is_name = name.bytes().all(is_part) && name.starts_with(|c: char| !c.is_ascii_digit());
    is_name.then_some(name)
}

fn credentials(rest: &str) -> Option<&str> {
    let behind = rest.strip_prefix(CREDENTIALS)?;
    let ends = !behind.bytes().next().is_some_and(is_part);
    ends.then_some(CREDENTIALS)
}

fn is_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<String> {
        let value = match name {
            "A" => "1",
            "DOLLAR" => "${A}",
            "EMPTY" => "",
            "CREDENTIALS_DIRECTORY" => "/run/c",
            _ => return None,
        };
        Some(value.to_owned())
    }

    #[test]
    fn variables_are_replaced_once() {
        for (text, expected) in [
            ("${A}", "1"),
            ("x${A}y${A}", "x1y1"),
            ("${DOLLAR}", "${A}"),
            ("[${EMPTY}]", "[]"),
            ("${EMPTY}", ""),
            ("$CREDENTIALS_DIRECTORY/db", "/run/c/db"),
            ("${CREDENTIALS_DIRECTORY}/db", "/run/c/db"),
            ("$${A}", "${A}"),
            ("$$${A}", "$${A}"),
            ("a$${A}b${A}", "a${A}b1"),
            ("$$CREDENTIALS_DIRECTORY", "$CREDENTIALS_DIRECTORY"),
        ] {
            assert_eq!(replace(text, lookup), Ok(Some(expected.to_owned())), "{text}");
        }
        for text in [
            "",
            "$A",
            "$$",
            "${}",
            "${a-b}",
            "${A",
            "SELECT $1",
            "$CREDENTIALS_DIRECTORY_X",
            "${1}",
        ] {
            assert_eq!(replace(text, lookup), Ok(None), "{text}");
        }
        assert_eq!(replace("${A}${NONE}", lookup), Err("NONE".to_owned()));
        // Dollar quotes of SQL around an array.
        assert_eq!(replace("$${1}$$::int[]", lookup), Ok(None));
        for text in
            ["", "$", "$$", "$${1}$$", "a$b", "${A}", "x$CREDENTIALS_DIRECTORY/${A}${", "${a-b}"]
        {
            let back = replace(&escaped(text), lookup).unwrap();
            assert_eq!(back.as_deref().unwrap_or(text), text);
        }
        assert_eq!(names("${A} $B ${C}").collect::<Vec<_>>(), ["A", "C"]);
        assert!(is_one("${A}") && !is_one("x${A}") && !is_one("${A}${A}") && !is_one("$${A}"));
    }
}
