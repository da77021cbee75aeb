//! How a thing is said to the server, and how the transaction ends in which it is said.

use testkit::frontend;

use super::scenes::{Keeps, Scene};

/// What a client sends before it reads on, and how many ReadyForQuery answer it.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) label: String,
    pub(super) bytes: Vec<u8>,
    pub(super) readies: usize,
}

impl Step {
    /// Query messages, one behind the other.
    pub(super) fn queries(all: &[&str]) -> Self {
        let bytes = all.iter().flat_map(|sql| frontend::query(sql)).collect();
        Self { label: all.join(" | "), bytes, readies: all.len() }
    }

    pub(super) fn query(sql: &str) -> Self {
        Self::queries(&[sql])
    }

    /// A batch of the extended protocol.
    pub(super) fn batch(label: &str, messages: &[Vec<u8>]) -> Self {
        let bytes = [&messages.concat()[..], &frontend::sync()].concat();
        Self { label: label.to_owned(), bytes, readies: 1 }
    }

    pub(super) fn unnamed(all: &[&str]) -> Self {
        let messages: Vec<_> = all.iter().map(|sql| unnamed(sql)).collect();
        Self::batch(&format!("unnamed: {}", all.join(" | ")), &messages)
    }
}

/// Parse, Bind, Describe and Execute of the unnamed statement.
fn unnamed(sql: &str) -> Vec<u8> {
    let ask = [frontend::parse("", sql), frontend::bind("", "", &[])].concat();
    [ask, frontend::describe_portal(""), frontend::execute("", 0)].concat()
}

fn named(name: &str) -> Vec<u8> {
    [frontend::bind("", name, &[]), frontend::execute("", 0)].concat()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Simple,
    /// Between two others in one string.
    Several,
    /// Behind a comment and before one, in capitals.
    Commented,
    /// In a text that is too long to be held.
    Long,
    Unnamed,
    /// Prepared in one transaction, executed in another one.
    Named,
    DoBlock,
    Function,
    SetConfig,
    Cte,
    /// Name and value are parameters.
    Parameters,
    /// `UPDATE pg_settings`.
    View,
}

impl Way {
    pub(super) const ALL: [Self; 12] = [
        Self::Simple,
        Self::Several,
        Self::Commented,
        Self::Long,
        Self::Unnamed,
        Self::Named,
        Self::DoBlock,
        Self::Function,
        Self::SetConfig,
        Self::Cte,
        Self::Parameters,
        Self::View,
    ];

    /// What has to be there before the transaction, and what is done in it. None if a scene
    /// cannot be played in this way. `unique`: a number for names.
    pub(super) fn steps(self, scene: &Scene, unique: usize) -> Option<(Vec<Step>, Act)> {
        let act = &scene.act;
        let setting = scene.setting.as_ref();
        let name = format!("own_{unique}");
        // Difference 5.
        if scene.keeps == Keeps::ForGood && matches!(self, Self::DoBlock | Self::Function) {
            return None;
        }
        Some(match self {
            Self::Simple => (vec![], Act::Text(act.clone())),
            Self::Several => {
                (vec![], Act::Text(format!("SELECT 'before'; {act}; SELECT 'behind'")))
            }
            Self::Commented => {
                let text = format!("/* SET a /* b */ = */{act} -- ; DISCARD ALL\n");
                (vec![], Act::Text(text))
            }
            Self::Long => (vec![], Act::Text(format!("{act} /*{}*/", "x".repeat(70_000)))),
            Self::Unnamed => (vec![], Act::Unnamed(act.clone())),
            Self::Named => {
                let parse = Step::batch(&format!("parse {act}"), &[frontend::parse(&name, act)]);
                (vec![parse], Act::Messages(format!("execute {act}"), named(&name)))
            }
            Self::DoBlock => {
                (vec![], Act::Text(format!("DO $do$BEGIN EXECUTE $x${act}$x$; END$do$")))
            }
            // A name that nothing but the function's body says is not found.
            Self::Function if scene.is_custom => return None,
            Self::Function => {
                let create = format!(
                    "CREATE FUNCTION public.{name}() RETURNS void LANGUAGE plpgsql AS \
                     $f$BEGIN EXECUTE $x${act}$x$; END$f$"
                );
                (vec![Step::query(&create)], Act::Text(format!("SELECT public.{name}()")))
            }
            Self::SetConfig => {
                let (name, value) = setting?;
                (vec![], Act::Text(format!("SELECT set_config('{name}', {value}, false)")))
            }
            Self::Cte => {
                let (name, value) = setting?;
                let text = format!(
                    "WITH x AS (SELECT set_config('{name}', {value}, false) AS y) \
                     SELECT y FROM x WHERE y IS NOT NULL"
                );
                (vec![], Act::Unnamed(text))
            }
            Self::Parameters => {
                let (name, value) = setting?;
                let value = value.trim_matches('\'').replace("''", "'");
                let messages = [
                    frontend::parse("", "SELECT pg_catalog.set_config($1, $2, $3)"),
                    frontend::bind("", "", &[Some(name), Some(&value), Some("f")]),
                    frontend::execute("", 0),
                ];
                (vec![], Act::Messages(format!("set_config({name}, {value})"), messages.concat()))
            }
            // An application's own setting is in no view.
            Self::View if scene.is_custom => return None,
            Self::View => {
                let (name, value) = setting?;
                let text =
                    format!("UPDATE pg_settings SET setting = {value} WHERE name = '{name}'");
                (vec![], Act::Text(text))
            }
        })
    }
}

/// What is done in the transaction.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Text(String),
    Unnamed(String),
    /// With a label; without its Sync.
    Messages(String, Vec<u8>),
}

impl Act {
    fn step(&self) -> Step {
        match self {
            Self::Text(sql) => Step::query(sql),
            Self::Unnamed(sql) => Step::unnamed(&[sql]),
            Self::Messages(label, bytes) => Step::batch(label, std::slice::from_ref(bytes)),
        }
    }

    /// Together with others, in one string or one batch.
    fn among(&self, before: &[&str], behind: &[&str]) -> Step {
        match self {
            Self::Text(sql) => {
                let all: Vec<&str> =
                    before.iter().chain([&&**sql]).chain(behind).copied().collect();
                Step::query(&all.join("; "))
            }
            Self::Unnamed(_) | Self::Messages(..) => {
                let (label, own) = match self {
                    Self::Messages(label, bytes) => (label.clone(), bytes.clone()),
                    Self::Unnamed(sql) | Self::Text(sql) => (sql.clone(), unnamed(sql)),
                };
                let mut messages: Vec<_> = before.iter().map(|sql| unnamed(sql)).collect();
                messages.push(own);
                messages.extend(behind.iter().map(|sql| unnamed(sql)));
                Step::batch(&format!("{before:?} {label} {behind:?}"), &messages)
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Implicit,
    Commit,
    Rollback,
    RollbackTo,
    Release,
    /// An error, and COMMIT, which is ROLLBACK then.
    Failed,
    /// All in one string, or in one batch.
    CommitAtOnce,
    RollbackAtOnce,
    /// An error takes it back although there is no BEGIN.
    FailedAtOnce,
    /// The error is forgotten at a savepoint behind it.
    FailedSavepoint,
    /// COMMIT AND CHAIN, and then ROLLBACK.
    Chain,
}

impl Ending {
    pub(super) const ALL: [Self; 11] = [
        Self::Implicit,
        Self::Commit,
        Self::Rollback,
        Self::RollbackTo,
        Self::Release,
        Self::Failed,
        Self::CommitAtOnce,
        Self::RollbackAtOnce,
        Self::FailedAtOnce,
        Self::FailedSavepoint,
        Self::Chain,
    ];

    pub(super) fn steps(self, act: &Act) -> Vec<Step> {
        let (before, behind): (&[&str], &[&str]) = match self {
            Self::Implicit => (&[], &[]),
            Self::Commit => (&["BEGIN"], &["COMMIT"]),
            Self::Rollback => (&["BEGIN"], &["ROLLBACK"]),
            Self::RollbackTo => (&["BEGIN", "SAVEPOINT a"], &["ROLLBACK TO a", "COMMIT"]),
            Self::Release => (&["BEGIN", "SAVEPOINT a"], &["RELEASE a", "COMMIT"]),
            Self::Failed => (&["BEGIN"], &["SELECT 1/0", "COMMIT"]),
            Self::FailedSavepoint => (
                &["BEGIN"],
                &["SAVEPOINT a", "SELECT 1/0", "ROLLBACK TO a", "SELECT 'goes on'", "COMMIT"],
            ),
            Self::Chain => (&["BEGIN"], &["COMMIT AND CHAIN", "SELECT 'chained'", "ROLLBACK"]),
            Self::CommitAtOnce => return vec![act.among(&["BEGIN"], &["COMMIT"])],
            Self::RollbackAtOnce => return vec![act.among(&["BEGIN"], &["ROLLBACK"])],
            Self::FailedAtOnce => return vec![act.among(&[], &["SELECT 1/0"])],
        };
        let before = before.iter().map(|sql| Step::query(sql));
        before.chain([act.step()]).chain(behind.iter().map(|sql| Step::query(sql))).collect()
    }
}
