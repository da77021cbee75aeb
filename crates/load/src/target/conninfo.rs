//! libpq's two forms of a connection string: `key=value …` and a URL.

/// Pairs of keyword and value, in order.
type Pairs = Vec<(String, String)>;

/// Reads `host=localhost password='it\'s'`. Blanks may be between pairs and around `=`. Quotes
/// enclose values with blanks, and a backslash escapes a character.
pub(super) fn pairs(text: &str) -> Result<Pairs, String> {
    let mut pairs = Pairs::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = rest.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(rest.len());
        let (keyword, after) = rest.split_at(end);
        let Some(after) = after.trim_start().strip_prefix('=') else {
            return Err(format!("missing \"=\" after \"{keyword}\" in connection info string"));
        };
        let (value, after) = value(after.trim_start())?;
        pairs.push((keyword.to_owned(), value));
        rest = after.trim_start();
    }
    Ok(pairs)
}

fn value(text: &str) -> Result<(String, &str), String> {
    let quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut chars = text.char_indices().skip(usize::from(quoted));
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' if quoted => return Ok((value, &text[at + 1..])),
            c if c.is_whitespace() && !quoted => return Ok((value, &text[at..])),
            '\\' => value.extend(chars.next().map(|(_, hidden)| hidden)),
            c => value.push(c),
        }
    }
    if quoted {
        return Err("unterminated quoted string in connection info string".to_owned());
    }
    Ok((value, ""))
}

/// Reads `postgresql://[user[:password]@][host][:port][/database][?keyword=value&…]`,
/// percent-encoded.
pub(super) fn url(text: &str) -> Result<Pairs, String> {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, place) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("missing \"]\" in URI")?;
            (host, port.strip_prefix(':').unwrap_or(port))
        }
        None => place.split_once(':').unwrap_or((place, "")),
    };
    let mut pairs = Pairs::new();
    let parts = [
        ("user", user),
        ("password", password),
        ("host", host),
        ("port", port),
        ("dbname", database),
    ];
    for (keyword, value) in parts.into_iter().filter(|(_, value)| !value.is_empty()) {
        pairs.push((keyword.to_owned(), decode(value)?));
    }
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (keyword, value) = pair.split_once('=').ok_or_else(|| {
            format!("missing key/value separator \"=\" in URI query parameter: \"{pair}\"")
        })?;
        pairs.push((decode(keyword)?, decode(value)?));
    }
    Ok(pairs)
}

fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let decoded = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(decoded.ok_or_else(|| format!("invalid percent-encoded token: \"{text}\""))?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).map_err(|_| format!("\"{text}\" is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pairs: Result<Pairs, String>) -> String {
        let one = |(keyword, value): (String, String)| format!("{keyword}={value}");
        pairs.map_or_else(
            |error| error,
            |pairs| pairs.into_iter().map(one).collect::<Vec<_>>().join("|"),
        )
    }

    #[test]
    fn connection_strings_are_read_as_libpq_reads_them() {
        assert_eq!(
            shown(pairs("host = /tmp port=1 password='it\\'s a' user=a\\ b options=''")),
            "host=/tmp|port=1|password=it's a|user=a b|options="
        );
        assert!(pairs("host").is_err());
        assert!(pairs("host='x").is_err());
    }

    #[test]
    fn urls_are_read_as_libpq_reads_them() {
        for (text, read) in [
            (
                "postgresql://al%40ice:s:t@db.example:6432/app?sslmode=require",
                "user=al@ice|password=s:t|host=db.example|port=6432|dbname=app|sslmode=require",
            ),
            ("postgres://[::1]:5432", "host=::1|port=5432"),
            ("postgresql:///app?host=%2Ftmp", "dbname=app|host=/tmp"),
            ("postgresql://", ""),
        ] {
            assert_eq!(shown(url(text)), read, "{text}");
        }
        assert!(url("postgresql://a%4").is_err());
        assert!(url("postgresql://a?x").is_err());
    }
}
