//! PostgreSQL determines the types of parameters when a text is prepared, and keeps them when the
//! table changes. A Parse after the change must get the new types.

use super::*;

/// Creates a table with this column. Returns the value that it stores for a parameter without a
/// type.
fn stored(client: &mut RawClient, other: &mut RawClient, name: &str, column: &str) -> String {
    other.rows(&format!("CREATE TABLE zone (at {column})"));
    prepare(client, name, "INSERT INTO zone VALUES ($1)");
    let done = try_run(client, name, &[Some("2001-02-13 20:00:00 +13")]);
    assert_eq!(tags(&done), "2CZ", "{done:?}");
    let stored = other.value("SELECT at::text FROM zone");
    other.rows("DROP TABLE zone");
    stored
}

#[test]
fn a_value_is_read_as_the_new_column_wants_it() {
    let (pooler, database) = pooler(1);
    let mut other = pooler.client(&database);
    other.rows("SET TimeZone = 'UTC'");
    // Uses the same name in a new connection each time, as drivers that number their statements do.
    for (column, expected) in [
        ("date", "2001-02-13"),
        ("timestamptz", "2001-02-13 07:00:00+00"),
        ("text", "2001-02-13 20:00:00 +13"),
        ("timestamp", "2001-02-13 20:00:00"),
    ] {
        let mut client = pooler.client(&database);
        assert_eq!(stored(&mut client, &mut other, "S_1", column), expected, "{column}");
    }
}

#[test]
fn a_value_is_read_as_the_old_column_wants_it_after_a_rollback() {
    let (pooler, database) = pooler(1);
    let mut other = pooler.client(&database);
    other.rows("CREATE TABLE zone (at text)");
    other.rows("BEGIN");
    other.rows("ALTER TABLE zone ALTER at TYPE date USING NULL");
    prepare(&mut other, "within", "INSERT INTO zone VALUES ($1)");
    other.rows("ROLLBACK");
    let mut client = pooler.client(&database);
    prepare(&mut client, "behind", "INSERT INTO zone VALUES ($1)");
    try_run(&mut client, "behind", &[Some("2001-02-13, in the evening")]);
    assert_eq!(client.value("SELECT at FROM zone"), "2001-02-13, in the evening");
}
