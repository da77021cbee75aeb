//! A database with many tables, and sessions that read some of them.

use testkit::{Dice, RawClient};

use crate::site::Site;

/// Makes so many tables, in parts: a transaction locks each table that it makes. A table has the
/// columns and indexes of an application's.
pub(crate) fn make(site: &Site, database: &str, count: usize) {
    const PART: usize = 125;
    const COLUMNS: usize = 20;
    let columns: String =
        (3..=COLUMNS).map(|at| format!(", column_{at} int DEFAULT {at}")).collect();
    for first in (0..count).step_by(PART) {
        let last = count.min(first + PART) - 1;
        site.sql(
            database,
            &format!(
                "DO $$ BEGIN FOR n IN {first}..{last} LOOP
                   EXECUTE format('CREATE TABLE t%s (id int PRIMARY KEY, name text{columns});
                     CREATE INDEX ON t%s (name); CREATE INDEX ON t%s (column_3, column_4);
                     CREATE INDEX ON t%s (column_5) WHERE column_6 > 0;
                     INSERT INTO t%s VALUES (1, ''row of %s'');
                     GRANT ALL ON t%s TO PUBLIC', n, n, n, n, n, n, n);
                 END LOOP; END $$"
            ),
        );
    }
    site.sql(database, "ANALYZE");
}

/// Reads the rows of these tables, some of them with each request.
pub(crate) fn read(client: &mut RawClient, numbers: impl IntoIterator<Item = usize>) {
    const TOGETHER: usize = 5;
    let numbers: Vec<_> = numbers.into_iter().collect();
    for numbers in numbers.chunks(TOGETHER) {
        let parts: Vec<_> =
            numbers.iter().map(|n| format!("SELECT name FROM t{n} WHERE id = 1")).collect();
        let rows = client.rows(&parts.join(" UNION ALL "));
        let names: Vec<_> = rows.into_iter().flatten().flatten().collect();
        let expected: Vec<String> = numbers.iter().map(|n| format!("row of {n}")).collect();
        assert_eq!(names, expected, "the tables' own rows");
    }
}

/// Returns the numbers of so many different tables of `all`. Which ones depends on chance.
pub(crate) fn drawn(dice: &mut Dice, count: usize, all: usize) -> impl Iterator<Item = usize> {
    // It has no factor in common with a round number.
    const STEP: usize = 19;
    let first = dice.below(all);
    (0..count).map(move |at| (first + at * STEP) % all)
}
