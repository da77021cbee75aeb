//! The options for checking a password with an LDAP server: `auth_ldap_options`, and the options of
//! the method `ldap` in `auth_hba_file`. They are PostgreSQL's (chapter "LDAP Authentication"),
//! except that a server must be named: none is looked up in the DNS. The proxy asks the server.

use std::fmt;

use crate::hba::words::{is_blank, quoted};
use crate::reason::LdapError;

/// The options of an `ldap` rule. `Debug` does not show the password for the bind.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct LdapOptions {
    /// `ldaps`: TLS from the first byte.
    pub ldaps: bool,
    /// TLS by the StartTLS operation.
    pub start_tls: bool,
    /// Host names or addresses, tried in this order.
    pub servers: Vec<String>,
    /// None: the scheme's default, 389 or 636.
    pub port: Option<u16>,
    pub find: Find,
}

/// The way to find a user's distinguished name.
#[derive(Clone, PartialEq, Eq)]
pub enum Find {
    /// The user's name between these two texts.
    Between { prefix: String, suffix: String },
    /// By a search below `base`, as `bind_dn` with `bind_password` (both empty: anonymously).
    Search {
        base: String,
        scope: Scope,
        bind_dn: String,
        bind_password: String,
        /// `$username` stands for the user's name.
        filter: String,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    Base,
    One,
    #[default]
    Sub,
}

impl Default for Find {
    fn default() -> Self {
        Self::Between { prefix: String::new(), suffix: String::new() }
    }
}

impl LdapOptions {
    /// Reads `name=value` words.
    ///
    /// # Errors
    /// When they cannot be used.
    pub fn parse(text: &str) -> Result<Self, LdapError> {
        let mut parts = Parts::default();
        let mut rest = text;
        while let Some((word, after)) = word(rest)? {
            rest = after;
            // The error repeats neither of them: the name may be half of a password.
            let (name, value) = word.split_once('=').ok_or(LdapError::NoValue)?;
            parts.set(name, value)?;
        }
        parts.options()
    }

    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(if self.ldaps { 636 } else { 389 })
    }
}

/// A printed configuration shows how users are found, but no secret.
impl fmt::Debug for LdapOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.ldaps { "ldaps" } else { "ldap" };
        write!(f, "LdapOptions({scheme} {:?}:{} {:?})", self.servers, self.port(), self.find)
    }
}

impl fmt::Debug for Find {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Between { prefix, suffix } => write!(f, "{prefix}USER{suffix}"),
            Self::Search { base, scope, bind_dn, filter, .. } => {
                write!(f, "{filter} {scope:?} of {base:?} as {bind_dn:?}")
            }
        }
    }
}

#[derive(Default)]
struct Parts {
    scheme: Option<String>,
    start_tls: bool,
    servers: Vec<String>,
    port: Option<u16>,
    prefix: Option<String>,
    suffix: Option<String>,
    base: Option<String>,
    scope: Scope,
    bind_dn: Option<String>,
    bind_password: Option<String>,
    attribute: Option<String>,
    filter: Option<String>,
}

impl Parts {
    fn set(&mut self, name: &str, value: &str) -> Result<(), LdapError> {
        let text = || Some(value.to_owned());
        match name {
            "ldapurl" => self.set_url(value)?,
            "ldapserver" => self.servers = value.split_whitespace().map(str::to_owned).collect(),
            "ldapport" => self.port = Some(port(value)?),
            "ldapscheme" if matches!(value, "ldap" | "ldaps") => self.scheme = text(),
            "ldapscheme" => return Err(LdapError::Scheme(value.to_owned())),
            "ldaptls" => self.start_tls = value == "1",
            "ldapprefix" => self.prefix = text(),
            "ldapsuffix" => self.suffix = text(),
            "ldapbasedn" => self.base = text(),
            "ldapbinddn" => self.bind_dn = text(),
            "ldapbindpasswd" => self.bind_password = text(),
            "ldapsearchattribute" => self.attribute = text(),
            "ldapsearchfilter" => self.filter = text(),
            _ => return Err(LdapError::Key),
        }
        Ok(())
    }

    /// `scheme://host[:port]/base[?[attribute][?[scope][?[filter]]]]` (RFC 4516).
    fn set_url(&mut self, url: &str) -> Result<(), LdapError> {
        let wrong = || LdapError::Url(url.to_owned());
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        if !matches!(scheme, "ldap" | "ldaps") {
            return Err(LdapError::UrlScheme(scheme.to_owned()));
        }
        self.scheme = Some(scheme.to_owned());
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, at) = match host.rsplit_once(':') {
            Some((host, digits)) if !digits.contains(']') => (host, Some(port(digits)?)),
            _ => (host, None),
        };
        if !host.is_empty() {
            self.servers = vec![decoded(host).ok_or_else(wrong)?];
        }
        self.port = at;
        let mut parts = path.split('?').map(|part| decoded(part).ok_or_else(wrong));
        let mut next = || parts.next().transpose().map(|part| part.filter(|text| !text.is_empty()));
        self.base = Some(next()?.unwrap_or_default());
        self.attribute = next()?;
        self.scope = match next()?.as_deref() {
            Some("base") | None => Scope::Base,
            Some("one") => Scope::One,
            Some("sub") => Scope::Sub,
            Some(_) => return Err(wrong()),
        };
        self.filter = next()?;
        Ok(())
    }

    fn options(self) -> Result<LdapOptions, LdapError> {
        if self.servers.is_empty() {
            return Err(LdapError::NoServer);
        }
        // A URL without a base only names the server.
        let base = self.base.as_ref().filter(|base| !base.is_empty());
        let searches = [base, self.bind_dn.as_ref(), self.bind_password.as_ref()];
        let searches = searches.into_iter().chain([self.attribute.as_ref(), self.filter.as_ref()]);
        let searches = searches.flatten().next().is_some();
        let find = match (self.prefix.is_some() || self.suffix.is_some(), self.base) {
            (true, _) if searches => {
                return Err(LdapError::TwoModes);
            }
            (true, _) => Find::Between {
                prefix: self.prefix.unwrap_or_default(),
                suffix: self.suffix.unwrap_or_default(),
            },
            (false, None) => return Err(LdapError::NoBase),
            (false, Some(base)) => Find::Search {
                base,
                scope: self.scope,
                bind_dn: self.bind_dn.unwrap_or_default(),
                bind_password: self.bind_password.unwrap_or_default(),
                filter: filter(self.attribute, self.filter)?,
            },
        };
        Ok(LdapOptions {
            ldaps: self.scheme.as_deref() == Some("ldaps"),
            start_tls: self.start_tls,
            servers: self.servers,
            port: self.port,
            find,
        })
    }
}

fn filter(attribute: Option<String>, filter: Option<String>) -> Result<String, LdapError> {
    match (attribute, filter) {
        (Some(_), Some(_)) => Err(LdapError::TwoFilters),
        (None, Some(filter)) => Ok(filter),
        (attribute, None) => Ok(format!("({}=$username)", attribute.as_deref().unwrap_or("uid"))),
    }
}

fn port(text: &str) -> Result<u16, LdapError> {
    let port = text.parse().ok().filter(|port| *port > 0);
    port.ok_or_else(|| LdapError::Port(text.to_owned()))
}

/// Reads the next word, up to a blank or a comma. Quotes may enclose any part of it.
fn word(text: &str) -> Result<Option<(String, &str)>, LdapError> {
    let ends = |c: char| is_blank(c) || c == ',';
    let mut rest = text.trim_start_matches(ends);
    if rest.is_empty() || rest.starts_with('#') {
        return Ok(None);
    }
    let mut word = String::new();
    loop {
        let end = rest.find(|c| ends(c) || c == '"').unwrap_or(rest.len());
        word.push_str(&rest[..end]);
        rest = &rest[end..];
        match rest.strip_prefix('"') {
            None => return Ok(Some((word, rest))),
            Some(inside) => {
                let (part, after) = quoted(inside).ok_or(LdapError::Unclosed)?;
                word.push_str(&part);
                rest = after;
            }
        }
    }
}

/// Decodes `%xx`.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn searching(text: &str) -> (LdapOptions, String, String) {
        let options = LdapOptions::parse(text).unwrap();
        let Find::Search { base, filter, .. } = options.find.clone() else {
            panic!("{options:?}");
        };
        (options, base, filter)
    }

    #[test]
    fn a_name_between_two_texts() {
        let text = "ldapserver=a.example ldapprefix=\"cn=\" ldapsuffix=\", dc=example\" ldaptls=1";
        let options = LdapOptions::parse(text).unwrap();
        let find = Find::Between { prefix: "cn=".into(), suffix: ", dc=example".into() };
        assert_eq!(options.find, find);
        assert_eq!((options.port(), options.start_tls, options.ldaps), (389, true, false));
        assert_eq!(
            LdapOptions::parse("\"ldapsuffix=@x\" ldapserver=a").unwrap().find,
            Find::Between { prefix: String::new(), suffix: "@x".into() }
        );
    }

    #[test]
    fn a_search() {
        let (options, base, filter) = searching(
            "ldapscheme=ldaps, ldapserver=\"a b\",ldapport=1636 ldapbasedn=\"dc=x,dc=y\"",
        );
        assert_eq!(options.servers, ["a", "b"]);
        assert_eq!((options.port(), options.ldaps), (1636, true));
        assert_eq!((base.as_str(), filter.as_str()), ("dc=x,dc=y", "(uid=$username)"));
        let (_, _, filter) = searching("ldapserver=a ldapbasedn=x ldapsearchattribute=mail");
        assert_eq!(filter, "(mail=$username)");
        let own = "(|(uid=$username)(mail=$username))";
        let (_, _, filter) =
            searching(&format!("ldapserver=a ldapbasedn=x ldapsearchfilter={own}"));
        assert_eq!(filter, own);
    }

    #[test]
    fn a_url() {
        let (options, base, filter) = searching("ldapurl=\"ldap://h:38/dc=a%20b,dc=c?uid?sub\"");
        assert_eq!((options.servers[0].as_str(), options.port()), ("h", 38));
        assert_eq!((base.as_str(), filter.as_str()), ("dc=a b,dc=c", "(uid=$username)"));
        let (options, _, filter) = searching("ldapurl=\"ldaps://[::1]/dc=a??one?(x=$username)\"");
        assert_eq!((options.servers[0].as_str(), options.port()), ("[::1]", 636));
        assert_eq!(filter, "(x=$username)");
    }

    /// The usual options for Active Directory.
    #[test]
    fn a_url_that_only_names_the_server() {
        for url in ["ldaps://ad.example", "ldaps://ad.example/"] {
            let text = format!("ldapurl=\"{url}\" ldapprefix=\"EXAMPLE\\\" ldapsuffix=\"\"");
            let options = LdapOptions::parse(&text).unwrap();
            assert_eq!((&*options.servers[0], options.port()), ("ad.example", 636));
            let find = Find::Between { prefix: "EXAMPLE\\".into(), suffix: String::new() };
            assert_eq!(options.find, find);
        }
    }

    #[test]
    fn invalid_options_are_refused() {
        for text in [
            "",
            "ldapserver=a",
            "ldapprefix=x",
            "ldapserver=a ldapprefix=x ldapbasedn=y",
            "ldapurl=ldap://a/dc=x ldapprefix=y",
            "ldapurl=ldap://a/?uid ldapprefix=y",
            "ldapserver=a ldapbasedn=x ldapsearchattribute=u ldapsearchfilter=f",
            "ldapserver=a ldapprefix=x ldapport=0",
            "ldapserver=a ldapprefix=x nope=1",
            "ldapserver=a ldapprefix=\"x",
            "ldapserver",
            "ldapurl=http://a/b",
            "ldapurl=ldap://a/%x",
            "ldapurl=ldap://a/b?c?down",
            "ldapscheme=x",
            "ldapserver=a ldapbasedn=dc=x,dc=y",
        ] {
            assert!(LdapOptions::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn nothing_shows_the_password() {
        let text = "ldapserver=a ldapbasedn=x ldapbinddn=cn=b ldapbindpasswd=hunter2";
        assert!(!format!("{:?}", LdapOptions::parse(text)).contains("hunter2"));
        for text in
            ["ldapbindpasswd hunter2", "ldapbindpasswd = hunter2=1", "ldapbindpasswd= \"hunter2"]
        {
            let why = LdapOptions::parse(text).expect_err("it is nonsense").to_string();
            assert!(!why.contains("hunter2"), "{why}");
        }
    }
}
