//! The differences between two configurations, in an operator's words: the answer to RELOAD.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::Config;
use crate::key::Keyed;

impl Config {
    /// Returns a line for each difference from the configuration `before`. No line repeats a secret.
    #[must_use]
    pub fn changes(&self, before: &Self) -> Vec<String> {
        let mut lines = keys("", &before.global, &self.global);
        let databases = |config: &Self| {
            let all = config.databases.values().chain(&config.fallback);
            all.map(|database| (database.name.clone(), (**database).clone())).collect()
        };
        lines.extend(entries("database", &databases(before), &databases(self)));
        lines.extend(entries("user", &before.users, &self.users));
        lines.extend(entries("peer", &before.peers, &self.peers));
        lines.extend(entries("cluster", &before.clusters, &self.clusters));
        let users = |config: &Self| config.auth_file.users.clone();
        let (old, new) = (users(before), users(self));
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        let changed = names.into_iter().filter(|name| old.get(*name) != new.get(*name)).count();
        if changed > 0 {
            lines.push(format!("auth_file: {changed} users added, changed or removed"));
        }
        if before.hba != self.hba {
            lines.push("the rules of auth_hba_file or auth_ident_file".to_owned());
        }
        lines
    }
}

/// `KEY: OLD -> NEW` for each key that differs.
fn keys<T: Keyed>(prefix: &str, before: &T, after: &T) -> Vec<String> {
    let rows = T::ROWS.iter().filter(|row| (row.exact)(before) != (row.exact)(after));
    let line = |row: &crate::key::Row<T>| {
        let shown = |target| (row.show)(target).unwrap_or_else(|| "not set".to_owned());
        match row.key.secret {
            true => format!("{prefix}{}: changed", row.key.name),
            false => format!("{prefix}{}: {} -> {}", row.key.name, shown(before), shown(after)),
        }
    };
    rows.map(line).collect()
}

fn entries<K: Ord + ToString, T: Keyed>(
    kind: &str,
    before: &BTreeMap<K, T>,
    after: &BTreeMap<K, T>,
) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, new) in after {
        let name_text = name.to_string();
        match before.get(name) {
            None => lines.push(format!("{kind} {name_text}: added")),
            Some(old) => lines.extend(keys(&format!("{kind} {name_text}: "), old, new)),
        }
    }
    let gone = before.keys().filter(|name| !after.contains_key(name));
    lines.extend(gone.map(|name| format!("{kind} {}: removed", name.to_string())));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        let none = |_: &std::path::Path| Err(std::io::ErrorKind::NotFound.into());
        Config::parse_ini(text, "test.ini", &none).unwrap()
    }

    #[test]
    fn each_difference_is_a_line_without_secrets() {
        let before = config(
            "[databases]\na = host=h password=hush\nb = host=h\n[users]\nu = pool_size=1\n\
             [pgbouncer]\ndefault_pool_size = 5\n",
        );
        let mut after = config(
            "[databases]\na = host=h password=other\nc = host=h\n[users]\nu = pool_size=2\n\
             [pgbouncer]\nlog_stats = 0\n",
        );
        assert_eq!(before.changes(&before), Vec::<String>::new());
        after.auth_file.users.insert("alice".into(), "secret".into());
        assert_eq!(
            after.changes(&before),
            [
                "default_pool_size: 5 -> 20",
                "log_stats: 1 -> 0",
                "database a: password: changed",
                "database c: added",
                "database b: removed",
                "user u: pool_size: 1 -> 2",
                "auth_file: 1 users added, changed or removed",
            ]
        );
    }
}
