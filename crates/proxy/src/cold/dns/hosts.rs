//! The hosts file, read as the C library reads it: anew for each name. If it has a name, with
//! whatever kind of address, no name server is asked.

use std::{net::IpAddr, path::Path};

/// Returns the addresses of a name in the file; none if it is not there.
pub(super) fn addresses(file: &Path, name: &str) -> Vec<IpAddr> {
    let text = config::read_file(file).unwrap_or_default();
    in_text(&String::from_utf8_lossy(&text), name)
}

fn in_text(text: &str, name: &str) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        let Some(ip) = words.next().and_then(|word| word.parse().ok()) else { continue };
        if words.any(|word| word.eq_ignore_ascii_case(name)) && !found.contains(&ip) {
            found.push(ip);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_addresses_of_all_its_lines() {
        let text = "# of this machine\n127.0.0.1\tlocalhost\n::1 localhost ip6-localhost\n\
                    10.0.0.1 db.example db # 10.0.0.9 other\nnonsense db\n10.0.0.2 DB\n\
                    fe80::1%eth0 link\n10.0.0.1 db\n";
        let all = |words: &[&str]| -> Vec<IpAddr> {
            words.iter().map(|word| word.parse().unwrap()).collect()
        };
        assert_eq!(in_text(text, "localhost"), all(&["127.0.0.1", "::1"]));
        assert_eq!(in_text(text, "db"), all(&["10.0.0.1", "10.0.0.2"]));
        assert_eq!(in_text(text, "Db.Example"), all(&["10.0.0.1"]));
        for unknown in ["other", "link", "10.0.0.1", "d", "nonsense"] {
            assert!(in_text(text, unknown).is_empty(), "{unknown}");
        }
    }
}
