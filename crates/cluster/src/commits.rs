//! Decides whether a commit that the primary has acknowledged can be lost with the primary.
//!
//! PostgreSQL counts each WAL sender whose `application_name` is in `synchronous_standby_names`:
//! standbys, `pg_receivewal`, subscriptions. So a commit is safe only if all of these names belong
//! to nodes of the cluster. Weir asks the primary at intervals, and a program may connect, confirm
//! and leave in between. A doubt therefore lasts until the primary has answered again after the end
//! of its cause, and only later commits are safe without more conditions ([`Guarantee::since`]).

use crate::Micros;
use crate::cluster::NodeId;
use crate::fact::Lsn;

/// The name of a WAL receiver without `application_name` and `cluster_name`.
const DEFAULT_NAME: &str = "walreceiver";

/// The state of a node's replication, as the node tells it with a sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replication {
    /// `synchronous_standby_names`.
    pub names: String,
    /// `synchronous_commit`, by default.
    pub level: String,
    /// Another text whenever the node has read its settings again or was restarted.
    pub loaded: String,
    /// `application_name` of each WAL sender.
    pub senders: Vec<String>,
    /// `application_name` of its WAL receiver, if that streams.
    pub receiver: Option<String>,
}

/// The standbys of `synchronous_standby_names`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StandbyNames {
    /// Number of standbys that a commit waits for; 0 = commits are asynchronous.
    pub number: u32,
    pub names: Vec<String>,
}

impl StandbyNames {
    /// Parses `ANY 1 (b, c)`, `FIRST 2 (b, c)`, `2 (b, c)`, or names alone, of which one is waited
    /// for. None: it is none of these.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let words = words(text)?;
        let Some(open) = words.iter().position(|word| *word == Word::Mark('(')) else {
            let names = list(&words)?;
            return Some(Self { number: u32::from(!names.is_empty()), names });
        };
        let number = match &words[..open] {
            [Word::Plain(number)] => number.parse().ok()?,
            [Word::Plain(kind), Word::Plain(number)]
                if kind.eq_ignore_ascii_case("any") || kind.eq_ignore_ascii_case("first") =>
            {
                number.parse().ok()?
            }
            _ => return None,
        };
        let [inner @ .., Word::Mark(')')] = &words[open + 1..] else { return None };
        Some(Self { number, names: list(inner)? })
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Word {
    Plain(String),
    Quoted(String),
    /// A parenthesis or a comma.
    Mark(char),
}

fn words(text: &str) -> Option<Vec<Word>> {
    let mut words = Vec::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '(' | ')' | ',' => words.push(Word::Mark(letter)),
            '"' => {
                let mut name = String::new();
                loop {
                    match letters.next()? {
                        '"' if letters.next_if_eq(&'"').is_none() => break,
                        letter => name.push(letter),
                    }
                }
                words.push(Word::Quoted(name));
            }
            letter if letter.is_ascii_whitespace() => {}
            letter => {
                let mut name = letter.to_string();
                let goes_on =
                    |next: &char| !matches!(next, '(' | ')' | ',' | '"') && !next.is_whitespace();
                while let Some(next) = letters.next_if(goes_on) {
                    name.push(next);
                }
                words.push(Word::Plain(name));
            }
        }
    }
    Some(words)
}

/// Returns the names of a list with commas.
fn list(words: &[Word]) -> Option<Vec<String>> {
    if words.is_empty() {
        return Some(Vec::new());
    }
    let name = |part: &[Word]| match part {
        [Word::Plain(name) | Word::Quoted(name)] => Some(name.clone()),
        _ => None,
    };
    words.split(|word| *word == Word::Mark(',')).map(name).collect()
}

/// Acknowledged commits wait for nodes of the cluster only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guarantee {
    /// Number of nodes that a commit waits for.
    pub quorum: u32,
    /// The nodes among which these are.
    pub nodes: Vec<NodeId>,
    /// A standby that has received less may lack a commit from before the guarantee.
    pub since: Lsn,
}

/// Why an acknowledged commit may be on no node but the primary.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    #[error("the primary has not told for which standbys its commits wait")]
    Unasked,
    #[error("the primary has just read its settings again")]
    Reloaded,
    #[error("synchronous_standby_names is empty")]
    Asynchronous,
    #[error("synchronous_commit is {0}")]
    Level(String),
    #[error("synchronous_standby_names cannot be read: {0}")]
    Unreadable(String),
    #[error(
        "synchronous_standby_names has *, so any program that receives WAL can confirm a commit"
    )]
    Anyone,
    #[error("synchronous_standby_names has {0}, which is the application_name of no node")]
    NoNode(String),
    #[error(
        "synchronous_standby_names has {DEFAULT_NAME}, which is the name of any standby without one"
    )]
    Default,
    #[error("synchronous_standby_names has {name}, which is the application_name of nodes {nodes}")]
    Shared { name: String, nodes: String },
    #[error("{count} WAL senders have the application_name {name}")]
    Twice { name: String, count: usize },
    #[error(
        "a WAL sender has the application_name {sender}, and that of node {node} is spelled otherwise"
    )]
    Spelling { sender: String, node: String },
    #[error("a WAL sender of node {node} has the application_name {name}")]
    Cascaded { name: String, node: String },
    #[error("a WAL sender has the application_name of node {node}, which does not stream")]
    Imposter { node: String },
}

/// A node, for the judgement.
pub(crate) struct Member<'a> {
    pub(crate) id: NodeId,
    /// Its name in the configuration.
    pub(crate) name: &'a str,
    /// The last known `application_name` of its WAL receiver, or else its name in the configuration.
    pub(crate) standby_name: &'a str,
    /// As told with its last sample, if that still counts.
    pub(crate) replication: Option<&'a Replication>,
    /// It certainly receives no WAL.
    pub(crate) is_apart: bool,
}

/// Returns the number of nodes that commits at the primary wait for, and the nodes among which these
/// are.
pub(crate) fn confirmers(
    primary: NodeId,
    members: &[Member<'_>],
) -> Result<(u32, Vec<NodeId>), Doubt> {
    let own = members.iter().find(|member| member.id == primary);
    let own = own.and_then(|member| member.replication).ok_or(Doubt::Unasked)?;
    let listed = StandbyNames::parse(&own.names);
    let listed = listed.ok_or_else(|| Doubt::Unreadable(own.names.clone()))?;
    if listed.number == 0 || listed.names.is_empty() {
        return Err(Doubt::Asynchronous);
    }
    // After `remote_write`, a standby that was restarted may lack what it has confirmed.
    if !matches!(own.level.as_str(), "on" | "remote_apply") {
        return Err(Doubt::Level(own.level.clone()));
    }
    let mut nodes = Vec::new();
    for name in &listed.names {
        nodes.push(confirmer(name, primary, own, members)?);
    }
    nodes.sort_unstable();
    nodes.dedup();
    Ok((listed.number, nodes))
}

/// Returns the only node that can confirm commits under this name.
fn confirmer(
    name: &str,
    primary: NodeId,
    own: &Replication,
    members: &[Member<'_>],
) -> Result<NodeId, Doubt> {
    // PostgreSQL compares so, too.
    let is_it = |other: &str| other.eq_ignore_ascii_case(name);
    let named = |other: &String| is_it(other);
    if name == "*" {
        return Err(Doubt::Anyone);
    }
    if is_it(DEFAULT_NAME) {
        return Err(Doubt::Default);
    }
    let found: Vec<_> = members.iter().filter(|member| is_it(member.standby_name)).collect();
    let node = match found[..] {
        [] => return Err(Doubt::NoNode(name.to_owned())),
        [only] => only,
        _ => {
            let nodes: Vec<_> = found.iter().map(|member| member.name).collect();
            return Err(Doubt::Shared { name: name.to_owned(), nodes: nodes.join(" and ") });
        }
    };
    let count = own.senders.iter().filter(|sender| named(sender)).count();
    if count > 1 {
        return Err(Doubt::Twice { name: name.to_owned(), count });
    }
    // The node itself would have its own spelling.
    let is_another = |sender: &&String| named(sender) && *sender != node.standby_name;
    if let Some(sender) = own.senders.iter().find(is_another) {
        return Err(Doubt::Spelling { sender: sender.clone(), node: node.name.to_owned() });
    }
    if count > 0 && (node.is_apart || node.id == primary) {
        return Err(Doubt::Imposter { node: node.name.to_owned() });
    }
    let sends = |member: &&Member<'_>| {
        member.id != primary && member.replication.is_some_and(|own| own.senders.iter().any(named))
    };
    if let Some(sender) = members.iter().find(sends) {
        let node = sender.name.to_owned();
        return Err(Doubt::Cascaded { name: name.to_owned(), node });
    }
    Ok(node.id)
}

/// Returns a value of `synchronous_standby_names` with which no commit can be lost.
pub(crate) fn safe_names(number: u32, members: &[Member<'_>]) -> String {
    let names: Vec<_> = members.iter().map(|member| quoted(safe_name(member, members))).collect();
    format!("ANY {} ({})", number.max(1), names.join(", "))
}

/// Returns the nodes whose WAL receivers need another `application_name`: the one in the
/// configuration.
pub(crate) fn misnamed<'a>(members: &'a [Member<'a>]) -> impl Iterator<Item = &'a str> {
    let is_wrong = |member: &&Member<'_>| safe_name(member, members) != member.standby_name;
    members.iter().filter(is_wrong).map(|member| member.name)
}

fn safe_name<'a>(member: &Member<'a>, members: &[Member<'_>]) -> &'a str {
    let own = member.standby_name;
    let is_shared =
        |other: &Member<'_>| other.id != member.id && other.standby_name.eq_ignore_ascii_case(own);
    let is_unfit = own.eq_ignore_ascii_case(DEFAULT_NAME) || members.iter().any(is_shared);
    if is_unfit { member.name } else { own }
}

fn quoted(name: &str) -> String {
    let is_first = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    let is_later = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let is_keyword = name.eq_ignore_ascii_case("any") || name.eq_ignore_ascii_case("first");
    match name.starts_with(is_first) && name.chars().all(is_later) && !is_keyword {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// The guarantee for the commits of one primary, as it follows from one sample after the other.
#[derive(Clone, Debug)]
pub(crate) struct Commits {
    state: Result<Guarantee, Doubt>,
    /// At the last sample of the primary.
    of: Option<Settings>,
    /// When a doubt was seen last.
    doubted_at: Micros,
    /// When the question for the last sample was sent.
    sampled_at: Micros,
}

/// The settings of a primary.
#[derive(Clone, Debug)]
struct Settings {
    primary: NodeId,
    timeline: u32,
    /// As of [`Replication`].
    loaded: String,
}

impl Settings {
    fn of(told: &Told<'_>) -> Self {
        Self { primary: told.primary, timeline: told.timeline, loaded: told.loaded.to_owned() }
    }
}

impl Default for Commits {
    fn default() -> Self {
        Self { state: Err(Doubt::Unasked), of: None, doubted_at: 0, sampled_at: 0 }
    }
}

/// The last sample of a primary.
pub(crate) struct Told<'a> {
    pub(crate) primary: NodeId,
    pub(crate) timeline: u32,
    pub(crate) wal: Lsn,
    pub(crate) asked_at: Micros,
    /// As of [`Replication`].
    pub(crate) loaded: &'a str,
}

impl Commits {
    pub(crate) fn state(&self) -> Result<&Guarantee, &Doubt> {
        self.state.as_ref()
    }

    /// Learns what follows from the last samples of the primary and the other nodes.
    pub(crate) fn learn(
        &mut self,
        told: &Told<'_>,
        confirmers: Result<(u32, Vec<NodeId>), Doubt>,
        now: Micros,
    ) {
        let is_known =
            |one: &&Settings| one.primary == told.primary && one.timeline == told.timeline;
        let before = self.of.as_ref().filter(is_known);
        let is_reloaded = before.is_some_and(|one| one.loaded != told.loaded);
        let is_new = before.is_none() || told.asked_at > self.sampled_at;
        if before.is_none() {
            self.state = Err(Doubt::Unasked);
        }
        self.of = Some(Settings::of(told));
        self.sampled_at = told.asked_at;
        let (quorum, nodes) = match confirmers {
            // The other processes of the primary may follow the new settings a moment later.
            Ok(_) if is_reloaded => return self.doubt(Doubt::Reloaded, now),
            Ok(own) => own,
            Err(doubt) => return self.doubt(doubt, now),
        };
        let is_same = |own: &Guarantee| own.quorum == quorum && own.nodes == nodes;
        // Earlier commits may have been confirmed by others.
        if is_new && told.asked_at > self.doubted_at && !self.state.as_ref().is_ok_and(is_same) {
            self.state = Ok(Guarantee { quorum, nodes, since: told.wal });
        }
    }

    fn doubt(&mut self, doubt: Doubt, now: Micros) {
        self.doubted_at = now;
        self.state = Err(doubt);
    }

    /// Follows the nodes to their new numbers.
    pub(crate) fn renumber(&mut self, number: impl Fn(NodeId) -> Option<NodeId>) {
        let moved = |own: &Guarantee| {
            let nodes = own.nodes.iter().map(|node| number(*node)).collect::<Option<_>>()?;
            Some(Guarantee { nodes, ..own.clone() })
        };
        if let Ok(own) = &self.state {
            self.state = moved(own).ok_or(Doubt::Unasked);
        }
        let settings = self.of.take();
        self.of = settings.and_then(|one| Some(Settings { primary: number(one.primary)?, ..one }));
    }
}

#[cfg(test)]
mod tests;
