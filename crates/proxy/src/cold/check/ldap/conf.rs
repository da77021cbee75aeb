//! The TLS options of OpenLDAP's client configuration (manual page `ldap.conf(5)`), from the places
//! that libldap, and so PgBouncer, reads. Later ones override earlier ones:
//!
//! 1. `ldap.conf` of the system
//! 2. `ldaprc` and `.ldaprc` in the home folder, and `ldaprc` in the current one
//! 3. the file that `LDAPCONF` names
//! 4. what `LDAPRC` names, in the places of `ldaprc`
//! 5. `LDAPTLS_CACERT`, `LDAPTLS_CACERTDIR` and `LDAPTLS_REQCERT`
//!
//! With `LDAPNOINIT` none of these count.

use std::path::{Path, PathBuf};

/// The system's file in Debian and other distributions.
const SYSTEM: [&str; 2] = ["/etc/ldap/ldap.conf", "/etc/openldap/ldap.conf"];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Conf {
    /// A file of authorities.
    pub(super) ca_file: Option<PathBuf>,
    /// A folder of such files.
    pub(super) ca_folder: Option<PathBuf>,
    pub(super) demand: Demand,
}

/// The checks of an LDAP server's certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Demand {
    /// It must be valid: `demand`, `hard`, and `try`, which accepts only a server without one.
    #[default]
    Good,
    /// Any is accepted: `never`, and `allow`, which ignores errors in it.
    Any,
}

impl Conf {
    /// Reads all places. `variable` reads the environment; `file` reads a file, if possible.
    pub(super) fn read(
        variable: impl Fn(&str) -> Option<String>,
        file: impl Fn(&Path) -> Option<String>,
    ) -> Self {
        let mut conf = Self::default();
        if variable("LDAPNOINIT").is_some() {
            return conf;
        }
        let home = variable("HOME").map(PathBuf::from);
        let of_user = |name: &str| {
            let at_home =
                home.iter().flat_map(|home| [home.join(name), home.join(format!(".{name}"))]);
            at_home.chain([PathBuf::from(name)]).collect::<Vec<_>>()
        };
        let mut places: Vec<PathBuf> = SYSTEM.map(PathBuf::from).into();
        places.extend(of_user("ldaprc"));
        places.extend(variable("LDAPCONF").map(PathBuf::from));
        places.extend(variable("LDAPRC").iter().flat_map(|name| of_user(name)));
        for text in places.iter().filter_map(|place| file(place)) {
            text.lines().for_each(|line| conf.take_line(line));
        }
        for key in ["TLS_CACERT", "TLS_CACERTDIR", "TLS_REQCERT"] {
            if let Some(value) = variable(&format!("LDAP{key}")) {
                conf.take(key, &value);
            }
        }
        conf
    }

    fn take_line(&mut self, line: &str) {
        let line = line.trim();
        if let Some((key, value)) = line.split_once(|c: char| c.is_ascii_whitespace())
            && !line.starts_with('#')
        {
            self.take(key, value.trim());
        }
    }

    /// Applies one option. A word that libldap does not know changes nothing.
    fn take(&mut self, key: &str, value: &str) {
        match key.to_ascii_uppercase().as_str() {
            "TLS_CACERT" => self.ca_file = Some(value.into()),
            "TLS_CACERTDIR" => self.ca_folder = Some(value.into()),
            "TLS_REQCERT" => match value.to_ascii_lowercase().as_str() {
                "never" | "allow" => self.demand = Demand::Any,
                "try" | "demand" | "hard" => self.demand = Demand::Good,
                _ => {}
            },
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs of a place or a variable and its content.
    fn read(variables: &[(&str, &str)], files: &[(&str, &str)]) -> Conf {
        let find = |list: &[(&str, &str)], wanted: &str| {
            let found = list.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, content)| (*content).to_owned())
        };
        Conf::read(|name| find(variables, name), |path| find(files, path.to_str()?))
    }

    #[test]
    fn the_file_has_the_authorities_and_the_required_checks() {
        let text = "# TLS_CACERT /none\nBASE dc=example\n tls_cacert\t /etc/own.pem \n\
                    TLS_CACERTDIR /etc/more\nTLS_REQCERT allow\n";
        let conf = read(&[], &[("/etc/ldap/ldap.conf", text)]);
        let expected = Conf {
            ca_file: Some("/etc/own.pem".into()),
            ca_folder: Some("/etc/more".into()),
            demand: Demand::Any,
        };
        assert_eq!(conf, expected);
        assert_eq!(read(&[("LDAPNOINIT", "")], &[("/etc/ldap/ldap.conf", text)]), Conf::default());
        assert_eq!(read(&[], &[]), Conf::default());
    }

    #[test]
    fn later_sources_override_earlier_ones() {
        let all = [
            ("/etc/ldap/ldap.conf", "TLS_CACERT 1"),
            ("/home/w/.ldaprc", "TLS_CACERT 2"),
            ("/own.conf", "TLS_CACERT 3"),
            ("mine", "TLS_CACERT 4"),
        ];
        let steps = [
            ("HOME", "/home/w"),
            ("LDAPCONF", "/own.conf"),
            ("LDAPRC", "mine"),
            ("LDAPTLS_CACERT", "5"),
        ];
        for count in 0..=steps.len() {
            let conf = read(&steps[..count], &all);
            assert_eq!(conf.ca_file, Some((count + 1).to_string().into()));
        }
    }

    #[test]
    fn a_certificate_must_be_valid_unless_the_configuration_says_otherwise() {
        for (word, demand) in [
            ("never", Demand::Any),
            ("ALLOW", Demand::Any),
            ("try", Demand::Good),
            ("demand", Demand::Good),
            ("hard", Demand::Good),
            ("nonsense", Demand::Good),
            ("", Demand::Good),
        ] {
            assert_eq!(read(&[("LDAPTLS_REQCERT", word)], &[]).demand, demand, "{word}");
        }
    }
}
