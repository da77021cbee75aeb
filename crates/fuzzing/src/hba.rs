//! Any content of an `auth_hba_file`, with any maps. The parsed rules, written and read again, must
//! be the same. A rule must not apply to a client that it does not name.

use core::net::IpAddr;
use std::fmt::Write;
use std::sync::Arc;

use config::hba::{
    Address, CertName, Connection, Hba, IdentMaps, Method, Names, PAM_SERVICE, Rule, Visitor,
};

/// Reads rules and maps, which the first zero byte separates.
pub fn hba(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (rules, maps) = text.split_once('\0').unwrap_or((&text, "os root alice\nos a all"));
    let file: Arc<str> = "hba".into();
    let (maps, _) = IdentMaps::parse(maps, &file);
    // The file includes itself, so it would never end.
    let read = |name: &str| Some(format!("x, \"y z\"\n@{name}")).filter(|_| !name.is_empty());
    let (hba, warnings) = Hba::parse(rules, &file, &maps, &read);
    let lines = rules.lines().count();
    assert!(hba.rules.len() + warnings.len() <= lines, "more than there are lines");
    assert!(hba.rules.windows(2).all(|two| two[0].line < two[1].line), "out of order");
    for warning in &warnings {
        assert!((1..=lines).contains(&warning.line), "{warning} is nowhere");
    }
    for rule in &hba.rules {
        let Some(line) = written(rule) else { continue };
        let (again, warnings) = Hba::parse(&line, &file, &maps, &|_| None);
        assert!(warnings.is_empty(), "{line}: {warnings:?}");
        let same = Rule { line: 1, map: None, ..rule.clone() };
        assert_eq!(again.rules, [same], "{line}");
    }
    visit(&hba);
}

/// Returns the rule as a line, without its map. Returns `None` if a line cannot contain one of its
/// names.
fn written(rule: &Rule) -> Option<String> {
    let mut line = String::new();
    line.push_str(match rule.connection {
        Connection::Local => "local",
        Connection::Host => "host",
        Connection::HostSsl => "hostssl",
        Connection::HostNoSsl => "hostnossl",
    });
    write!(line, " {} {}", list(&rule.databases)?, list(&rule.users)?).expect("a string grows");
    match (rule.connection, rule.address) {
        (Connection::Local, _) => {}
        (_, Address::All) => line.push_str(" all"),
        (_, Address::Net(net, mask)) => {
            write!(line, " {net} {mask}").expect("a string grows");
        }
    }
    line.push_str(match &rule.method {
        Method::Trust => " trust",
        Method::Reject => " reject",
        Method::Md5 => " md5",
        Method::Password => " password",
        Method::ScramSha256 => " scram-sha-256",
        Method::Peer => " peer",
        Method::Cert(CertName::Any) => " cert",
        Method::Cert(CertName::Common) => " cert clientname=CN",
        // A line with another service is read by the tests of `config`.
        Method::Pam(service) if &**service == PAM_SERVICE => " pam",
        Method::Pam(_) => return None,
        // Its options are not kept as they were written.
        Method::Ldap(_) => return None,
        // Neither is the text.
        Method::Refuse(_) => return None,
    });
    Some(line)
}

fn list(names: &Names) -> Option<String> {
    let keywords =
        [(names.all, "all"), (names.same_user, "sameuser"), (names.replication, "replication")];
    let keywords = keywords.iter().filter(|(set, _)| *set).map(|(_, word)| (*word).to_owned());
    let quoted = names.names.iter().map(|name| format!("\"{}\"", name.replace('"', "\"\"")));
    let all: Vec<_> = keywords.chain(quoted).collect();
    let in_line = !all.iter().any(|name| name.contains(['\n', '\r']));
    in_line.then(|| all.join(","))
}

fn visit(hba: &Hba) {
    for address in [None, Some("127.0.0.1"), Some("10.1.2.3"), Some("::1"), Some("fe80::1")] {
        let address: Option<IpAddr> = address.map(|text| text.parse().expect("an address"));
        for (tls, replication) in [(false, false), (true, false), (false, true)] {
            for (database, user) in [("app", "alice"), ("alice", "alice"), ("x", "y z")] {
                let visitor = Visitor { address, tls, replication, database, alias: None, user };
                let Some(rule) = hba.rule(&visitor) else { continue };
                assert_eq!(rule.connection == Connection::Local, address.is_none());
                assert!(rule.connection != Connection::HostSsl || tls);
                assert!(rule.connection != Connection::HostNoSsl || !tls);
                assert!(!replication || rule.databases.replication);
                let Names { all, same_user, names, .. } = &rule.databases;
                let named = *all || names.contains(database) || *same_user && database == user;
                assert!(replication || named);
                assert!(rule.users.all || rule.users.names.contains(user));
                assert!(!rule.users.same_user && !rule.users.replication);
            }
        }
    }
}
