//! The built-in scripts, with the same statements as pgbench's, so that figures can be compared.

/// A built-in script.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Builtin {
    /// Its name for `-b`, which can be abbreviated.
    pub(crate) name: &'static str,
    /// Its name in a report.
    pub(crate) title: &'static str,
    pub(crate) text: &'static str,
}

const BUILTINS: [Builtin; 3] = [
    Builtin {
        name: "tpcb-like",
        title: "<builtin: TPC-B (sort of)>",
        text: r"\set aid random(1, 100000 * :scale)
\set bid random(1, 1 * :scale)
\set tid random(1, 10 * :scale)
\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
END;
",
    },
    Builtin {
        name: "simple-update",
        title: "<builtin: simple update>",
        text: r"\set aid random(1, 100000 * :scale)
\set bid random(1, 1 * :scale)
\set tid random(1, 10 * :scale)
\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
END;
",
    },
    Builtin {
        name: "select-only",
        title: "<builtin: select only>",
        text: r"\set aid random(1, 100000 * :scale)
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
",
    },
];

impl Builtin {
    /// Returns the script whose name begins with `name`.
    ///
    /// # Errors
    /// When there is none, or more than one.
    pub(crate) fn find(name: &str) -> Result<&'static Self, String> {
        let mut found = BUILTINS.iter().filter(|known| known.name.starts_with(name));
        match (found.next(), found.next()) {
            (Some(builtin), None) => Ok(builtin),
            (None, _) => Err(format!("no builtin script found for name \"{name}\"")),
            (Some(_), Some(_)) => Err(format!("ambiguous builtin name: \"{name}\"")),
        }
    }
}
