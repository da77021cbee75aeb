//! Tells which `auth_query` can run with a `search_path` that only a superuser can fill. The owner
//! of a database can set another path for all its sessions. With a relation of his own in place of
//! an unqualified one, he could make up secrets.

/// Relations of PostgreSQL's catalog that such queries read without naming the schema.
const CATALOG: [&str; 4] = ["pg_authid", "pg_shadow", "pg_roles", "pg_user"];

/// Are all relations of the query qualified with their schema, or part of the catalog? In doubt,
/// they are not: such a query needs its user's own `search_path`.
pub fn needs_no_search_path(query: &str) -> bool {
    let words = query.split(|letter: char| letter.is_ascii_whitespace() || "(),;".contains(letter));
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    let is_one = |word: &str, all: &[&str]| all.iter().any(|one| word.eq_ignore_ascii_case(one));
    let mut relations =
        words.windows(2).filter(|pair| is_one(pair[0], &["from", "join"])).peekable();
    // A function may be called elsewhere, and a list of relations continues after a comma.
    let is_plain = relations.peek().is_some() && !has_list(query);
    is_plain && relations.all(|pair| pair[1].contains('.') || is_one(pair[1], &CATALOG))
}

/// Is there a comma after the first FROM?
fn has_list(query: &str) -> bool {
    let lower = query.to_ascii_lowercase();
    lower.split_once("from").is_some_and(|(_, rest)| rest.contains(','))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Global;

    #[test]
    fn a_query_that_names_its_schemas_needs_no_search_path() {
        assert!(needs_no_search_path(&Global::default().auth_query));
        for query in [
            "SELECT usename, passwd FROM pg_shadow WHERE usename=$1",
            "SELECT usename, passwd FROM pg_catalog.pg_shadow WHERE usename=$1",
            "select a, b from own.lookup($1)",
            "SELECT a, b FROM \"own\".t JOIN own.u ON t.x = u.x",
        ] {
            assert!(needs_no_search_path(query), "{query}");
        }
        for query in [
            "SELECT name, secret FROM lookup($1)",
            "SELECT a, b FROM own.t, u",
            "SELECT a, b FROM own.t JOIN u ON true",
            "SELECT (lookup($1)).*",
            "",
        ] {
            assert!(!needs_no_search_path(query), "{query}");
        }
    }
}
