//! Any content of an `auth_file`: whatever was read of it is read the same after it is written
//! again.

use std::fmt::Write;
use std::sync::Arc;

use config::AuthFile;
use wire::secret::Secret;

pub fn userlist(data: &[u8]) {
    let file = Arc::from("users.txt");
    let (read, warnings) = AuthFile::parse(data, &file);
    for warning in &warnings {
        let lines = data.iter().filter(|byte| **byte == b'\n').count();
        assert!((1..=lines + 1).contains(&warning.line), "{warning} is nowhere");
    }
    let mut text = String::new();
    for (user, secret) in &read.users {
        let quoted = |text: &str| text.replace('"', "\"\"");
        writeln!(text, "\"{}\" \"{}\"", quoted(user), quoted(secret)).expect("a string grows");
        let _ = Secret::parse(secret);
        let shown = format!("{read:?}");
        let may_show = secret.len() < 8 || read.users.keys().any(|user| user.contains(secret));
        assert!(may_show || !shown.contains(secret.as_str()), "a secret is shown: {shown}");
    }
    let (again, warnings) = AuthFile::parse(text.as_bytes(), &file);
    assert!(warnings.is_empty(), "{warnings:?}");
    assert!(again == read, "{again:?} is not {read:?}");
}
