//! The users of Pgpool-II's tools, from `pcp_file`: a line `NAME:MD5` for each, as in `pcp.conf`.
//! A third field `read-only`, which Pgpool-II does not have, makes a user read-only. Lines that begin
//! with `#` are comments. A user may have several lines: each of their passwords is accepted.

use std::fmt;
use std::sync::Arc;

use crate::error::Mistake;
use crate::reason::Reason;

/// The word for a user that may look but not change anything.
const READ_ONLY: &str = "read-only";
/// Names and passwords of the tools are shorter than this, in bytes.
const NAME_LEN_MAX: usize = 128;

/// The lines of the file, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PcpUsers(pub Vec<PcpUser>);

#[derive(Clone, PartialEq, Eq)]
pub struct PcpUser {
    pub name: String,
    /// The MD5 of the password: 32 lower-case hexadecimal digits. It suffices to log in.
    pub md5: String,
    /// May the user change anything?
    pub is_admin: bool,
}

impl PcpUsers {
    /// Reads the content of a file. A line that cannot be read is a warning.
    pub fn parse(content: &str, file: &Arc<str>) -> (Self, Vec<Mistake>) {
        let (mut users, mut warnings) = (Vec::new(), Vec::new());
        for (number, line) in (1..).zip(content.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match PcpUser::parse(line) {
                Some(user) => users.push(user),
                None => warnings.push(Mistake::in_file(file, number, Reason::PcpUser)),
            }
        }
        (Self(users), warnings)
    }
}

impl PcpUser {
    fn parse(line: &str) -> Option<Self> {
        let (name, rest) = line.split_once(':')?;
        let (md5, is_admin) = match rest.split_once(':') {
            Some((md5, READ_ONLY)) => (md5, false),
            Some(_) => return None,
            None => (rest, true),
        };
        let is_md5 = md5.len() == 32 && md5.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_name = !name.is_empty() && name.len() < NAME_LEN_MAX;
        let (name, md5) = (name.to_owned(), md5.to_ascii_lowercase());
        (is_md5 && is_name).then_some(Self { name, md5, is_admin })
    }
}

/// Without the MD5, which stays out of logs.
impl fmt::Debug for PcpUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, is_admin, .. } = self;
        f.debug_struct("PcpUser").field("name", name).field("is_admin", is_admin).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MD5: &str = "5ebe2294ecd0e0f08eab7690d2a6ee69";

    #[test]
    fn lines_of_pgpools_file_are_read_and_wrong_ones_are_named() {
        let upper = MD5.to_ascii_uppercase();
        let content = format!(
            "# a comment\n\nadmin:{MD5}\n  viewer:{upper}:read-only \nadmin:{MD5}:all\n\
             {MD5}\n:{MD5}\nshort:{}\nplain:secret\n",
            &MD5[1..]
        );
        let (PcpUsers(users), warnings) = PcpUsers::parse(&content, &Arc::from("pcp.conf"));
        let user =
            |name: &str, is_admin| PcpUser { name: name.to_owned(), md5: MD5.to_owned(), is_admin };
        assert_eq!(users, [user("admin", true), user("viewer", false)]);
        let warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
        assert_eq!(warnings.len(), 5, "{warnings:?}");
        assert!(warnings[0].starts_with("pcp.conf:5: expected NAME:MD5"), "{warnings:?}");
        assert!(!format!("{users:?}").contains(MD5));
    }
}
