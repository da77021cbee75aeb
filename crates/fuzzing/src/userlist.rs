//! Any content of an `auth_file`. The parsed users, written and read again, must be the same, for
//! any user names.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use config::AuthFile;
use wire::secret::Secret;

/// The maximum length of a name in bytes. Longer ones are refused.
const USER_LEN_MAX: usize = 127;

pub fn userlist(data: &[u8]) {
    let (read, warnings) = AuthFile::parse(data, &Arc::from("users.txt"));
    for warning in &warnings {
        let lines = data.iter().filter(|byte| **byte == b'\n').count();
        assert!((1..=lines + 1).contains(&warning.line), "{warning} is nowhere");
    }
    for secret in read.users.values() {
        let _ = Secret::parse(secret);
        let shown = format!("{read:?}");
        // A user name may contain the same characters as a secret, and names may be shown.
        let is_name = |user: &String| format!("{user:?}").contains(secret);
        let may_show = secret.len() < 8 || read.users.keys().any(is_name);
        assert!(may_show || !shown.contains(secret.as_str()), "a secret is shown: {shown}");
    }
    check_writing(&read.users);
    check_writing(&pairs(data));
}

/// Returns the parts between zero bytes as names and secrets in turn.
fn pairs(data: &[u8]) -> BTreeMap<String, String> {
    let text = String::from_utf8_lossy(data);
    let parts: Vec<&str> = text.split('\0').collect();
    let pairs = parts.chunks_exact(2).filter(|pair| pair[0].len() <= USER_LEN_MAX);
    pairs.map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect()
}

fn check_writing(users: &BTreeMap<String, String>) {
    let mut text = String::new();
    for (user, secret) in users {
        let quoted = |text: &str| text.replace('"', "\"\"");
        writeln!(text, "\"{}\" \"{}\"", quoted(user), quoted(secret)).expect("a string grows");
    }
    let (again, warnings) = AuthFile::parse(text.as_bytes(), &Arc::from("again.txt"));
    assert!(warnings.is_empty(), "{warnings:?}");
    assert!(again.users == *users, "{again:?} is not what was written");
}
