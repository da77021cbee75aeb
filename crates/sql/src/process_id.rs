//! Texts that may keep the process id of the server. In auto mode the next transaction may have another one.

const NAME: &[u8] = b"pg_backend_pid";
const CATALOG: &[u8] = b"pg_catalog.";

/// Does the text ask for `pg_backend_pid()`, and not only compare it in the same statement
/// (`pid <> pg_backend_pid()`)? SET, `=>` and `:=` are no comparisons.
///
/// The text is read once, however many calls it has.
pub fn keeps_process_id(text: &[u8]) -> bool {
    // Between SET and WHERE.
    let mut assigns = false;
    (0..text.len()).any(|at| {
        let Some((before, rest)) = text.split_at_checked(at) else { return false };
        if is_word(rest, b"set") {
            assigns = true;
        } else if is_word(rest, b"where") {
            assigns = false;
        }
        starts_with(rest, NAME) && !compares(before, assigns)
    })
}

/// Does the text begin with white space, this word, and white space?
fn is_word(text: &[u8], word: &[u8]) -> bool {
    let is_space = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_whitespace);
    is_space(text.first())
        && is_space(text.get(word.len() + 1))
        && text.get(1..).is_some_and(|rest| starts_with(rest, word))
}

fn starts_with(text: &[u8], word: &[u8]) -> bool {
    text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
}

/// Is the operator of a comparison at the end of the text before the call?
fn compares(before: &[u8], assigns: bool) -> bool {
    let schema = before.len().checked_sub(CATALOG.len());
    let schema = schema.and_then(|at| before.split_at_checked(at));
    let before = match schema {
        Some((before, schema)) if schema.eq_ignore_ascii_case(CATALOG) => before,
        _ => before,
    };
    match before.trim_ascii_end() {
        [.., b'=', b'>'] | [.., b':', b'='] => false,
        [.., b'<' | b'>'] | [.., b'<' | b'>' | b'!', b'='] => true,
        [.., b'='] => !assigns,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_keeps_nothing() {
        for text in [
            "SELECT pg_backend_pid()",
            "insert into lockers values (1, PG_BACKEND_PID())",
            "select pg_catalog.pg_backend_pid() as pid",
            "select 1 from a where pid = pg_backend_pid() and other(pg_backend_pid())",
            "UPDATE jobs SET locked_by = pg_backend_pid() WHERE id = 1",
            "UPDATE jobs\nSET\tlocked_by = pg_backend_pid()",
            "select f(pid => pg_backend_pid())",
            "select f(pid := pg_backend_pid())",
        ] {
            assert!(keeps_process_id(text.as_bytes()), "{text}");
        }
        for text in [
            "select 1",
            "select * from pg_locks where pid = pg_backend_pid()",
            "select * from pg_locks where pid <>pg_catalog.pg_backend_pid()",
            "select * from pg_stat_activity where pid=\n  Pg_Catalog.pg_backend_pid()",
            "update jobs set done = true where pid = pg_backend_pid()",
            "update jobs set done = true\nwhere pid = pg_backend_pid()",
            "select * from pg_locks where pid != pg_backend_pid()",
        ] {
            assert!(!keeps_process_id(text.as_bytes()), "{text}");
        }
    }
}
