//! The lists of Pgpool-II: regular expressions, functions, preferences of nodes.

use config::is_pattern;

/// A place of Pgpool-II's lists of preferences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Primary,
    Standby,
    Node(usize),
}

/// An item of a list of preferences: `REGEX:NODE(RATIO)`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Preference<'a> {
    /// As it is written.
    pub(crate) text: &'a str,
    pub(crate) regex: &'a str,
    pub(crate) target: Target,
    /// Is a part of the sessions sent elsewhere?
    pub(crate) has_ratio: bool,
}

/// Splits a list at its separators. A backslash takes the meaning from the character behind it.
pub(crate) fn items(list: &str, separator: char) -> Vec<&str> {
    let (mut items, mut begin, mut is_escaped) = (Vec::new(), 0, false);
    for (at, c) in list.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if c == separator => {
                items.push(&list[begin..at]);
                begin = at + c.len_utf8();
            }
            _ => {}
        }
    }
    items.push(&list[begin..]);
    items.into_iter().map(str::trim).filter(|item| !item.is_empty()).collect()
}

/// Reads the items of a list of preferences; an item that is none is returned as it is written.
pub(crate) fn preferences(list: &str) -> Vec<Result<Preference<'_>, &str>> {
    items(list, ',').into_iter().map(|text| preference(text).ok_or(text)).collect()
}

fn preference(text: &str) -> Option<Preference<'_>> {
    let (regex, place) = text.rsplit_once(':')?;
    let place = place.trim();
    let (node, ratio) = match place.split_once('(') {
        Some((node, ratio)) => (node.trim(), ratio.strip_suffix(')')?.trim().parse::<f64>().ok()?),
        None => (place, 1.0),
    };
    let target = match node {
        "primary" => Target::Primary,
        "standby" => Target::Standby,
        node => Target::Node(node.parse().ok()?),
    };
    let regex = regex.trim();
    (!regex.is_empty()).then_some(Preference { text, regex, target, has_ratio: ratio < 1.0 })
}

/// Returns a regular expression that matches the same texts in Weir. Pgpool-II's match a whole text, and
/// ignore case. `None`: Weir's have no such form.
pub(crate) fn pattern(regex: &str) -> Option<String> {
    let body = without_anchors(regex);
    let mut converted = String::from("(?s)^(?:");
    let (mut is_escaped, mut in_braces) = (false, false);
    for c in body.chars() {
        match c {
            // Commas separate Weir's regular expressions.
            ',' if in_braces => return None,
            ',' if is_escaped => converted += "x2c",
            ',' => converted += "\\x2c",
            '{' if !is_escaped => in_braces = true,
            '}' if !is_escaped => in_braces = false,
            _ => {}
        }
        if c != ',' {
            converted.push(c);
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    converted += ")$";
    // A list is trimmed and split when Weir reads it.
    let is_line = !converted.contains(['\n', '\r']);
    (is_line && is_pattern(&converted)).then_some(converted)
}

/// Returns the name of a function in Weir's form: without schema, with `*` for any part. `None`: the
/// regular expression is no such name.
pub(crate) fn function(regex: &str) -> Option<String> {
    let body = without_anchors(regex);
    let name = body.rsplit('.').next().filter(|_| !body.contains(".*")).unwrap_or(body);
    let name = name.replace(".*", "*").replace("\\_", "_");
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '*') || !c.is_ascii();
    let is_name = name.chars().all(is_part) && name.chars().any(|c| c != '*' && is_part(c));
    is_name.then(|| name.to_lowercase())
}

/// Returns a regular expression that is only a name.
pub(crate) fn name(regex: &str) -> Option<&str> {
    let body = without_anchors(regex);
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-') || !c.is_ascii();
    (!body.is_empty() && body.chars().all(is_part)).then_some(body)
}

fn without_anchors(regex: &str) -> &str {
    let regex = regex.strip_prefix('^').unwrap_or(regex);
    match regex.strip_suffix('$') {
        Some(rest) if !rest.ends_with('\\') => rest,
        _ => regex,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferences_have_a_place_and_perhaps_a_ratio() {
        let list = "postgres:primary, mydb[01]:1,mydb2:standby(0.3), :1, x, y:z";
        let read = preferences(list);
        let at = |at: usize| read[at].clone().map(|it| (it.regex, it.target, it.has_ratio));
        assert_eq!(at(0), Ok(("postgres", Target::Primary, false)));
        assert_eq!(at(1), Ok(("mydb[01]", Target::Node(1), false)));
        assert_eq!(at(2), Ok(("mydb2", Target::Standby, true)));
        assert_eq!([at(3), at(4), at(5)], [Err(":1"), Err("x"), Err("y:z")]);
    }

    #[test]
    fn regular_expressions_match_whole_texts() {
        let cases = [
            (".*FROM jobs.*", Some("(?s)^(?:.*FROM jobs.*)$")),
            ("^select 1$", Some("(?s)^(?:select 1)$")),
            ("f\\(a,b\\)", Some("(?s)^(?:f\\(a\\x2cb\\))$")),
            ("a\\,b", Some("(?s)^(?:a\\x2cb)$")),
            ("a{1,2}", None),
            ("a(", None),
            ("a\\$", Some("(?s)^(?:a\\$)$")),
        ];
        for (regex, expected) in cases {
            assert_eq!(pattern(regex).as_deref(), expected, "{regex}");
        }
    }

    #[test]
    fn functions_are_names_with_stars() {
        let cases = [
            ("currval", Some("currval")),
            ("public.f", Some("f")),
            ("Log_.*", Some("log_*")),
            ("^get_.*$", Some("get_*")),
            (".*_write.*", Some("*_write*")),
            (".*", None),
            ("get_[ab]", None),
            ("", None),
        ];
        for (regex, expected) in cases {
            assert_eq!(function(regex).as_deref(), expected, "{regex}");
        }
    }

    #[test]
    fn a_separator_behind_a_backslash_separates_nothing() {
        assert_eq!(items("a, b\\,c,,d", ','), ["a", "b\\,c", "d"]);
        assert_eq!(items(" ; x;y", ';'), ["x", "y"]);
        assert_eq!(items("a\\", ','), ["a\\"]);
    }
}
