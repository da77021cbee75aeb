//! The nodes, how Weir watches them, and where its databases are.

use std::collections::BTreeMap;
use std::fmt;

use crate::command;
use crate::conf::{Broken, Settings};
use crate::convert::Work;
use crate::passwords::Secret;
use crate::table::{Part, find};
use crate::values::seconds;

/// The name of the cluster.
const NAME: &str = "main";
/// The folder of PostgreSQL's socket if a node has no host name, as in Pgpool-II.
const SOCKETS: &str = "/tmp";
const WEIGHT_MAX: f64 = 1_000.0;

/// The use that Pgpool-II makes of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A primary and its standbys.
    Streaming,
    /// One node after the other.
    Raw,
    /// The nodes are no copies of one another that Weir could use.
    Other,
}

impl Mode {
    pub(crate) fn of(settings: &Settings) -> Result<Self, Broken> {
        if let Some(mode) = settings.text("backend_clustering_mode") {
            return Ok(match mode.to_ascii_lowercase().as_str() {
                "streaming_replication" => Self::Streaming,
                "raw" => Self::Raw,
                _ => Self::Other,
            });
        }
        // Before 4.2, two switches had its place.
        let on = |name| Ok(settings.switch(name)?.unwrap_or(false));
        let is_old = ["master_slave_mode", "replication_mode", "native_replication_mode"]
            .iter()
            .any(|name| settings.get(name).is_some());
        Ok(match (on("replication_mode")? || on("native_replication_mode")?, is_old) {
            (true, _) => Self::Other,
            (false, false) => Self::Streaming,
            (false, true) if !on("master_slave_mode")? => Self::Raw,
            (false, true) => match settings.text("master_slave_sub_mode") {
                None | Some("stream") => Self::Streaming,
                Some(_) => Self::Other,
            },
        })
    }
}

/// A node of Pgpool-II.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) id: usize,
    host: String,
    port: u16,
    weight: f64,
    /// Its data directory, for commands.
    pub(crate) folder: String,
}

impl Node {
    /// A node with this data directory, for tests.
    #[cfg(test)]
    pub(crate) fn of(id: usize, folder: &str) -> Self {
        Self { id, host: "h".to_owned(), port: 1, weight: 1.0, folder: folder.to_owned() }
    }

    pub(crate) fn name(&self) -> String {
        format!("node{}", self.id)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, host, port) = (self.name(), &self.host, self.port);
        match host.contains(':') {
            true => write!(f, "{name}=[{host}]:{port}"),
            false => write!(f, "{name}={host}:{port}"),
        }
    }
}

impl Work<'_> {
    /// Returns the nodes in the order of their numbers.
    pub(crate) fn nodes(&self) -> Result<Vec<Node>, Broken> {
        let mut places = BTreeMap::new();
        for item in self.settings.effective() {
            if let Some((row, Some(id))) = find(&item.name)
                && row.base() == "backend_hostname"
            {
                places.insert(id, item.place.clone());
            }
        }
        let mut nodes: Vec<Node> = Vec::new();
        for (id, place) in places {
            let text = |name: &str| self.settings.text(&format!("{name}{id}")).unwrap_or_default();
            let host = match text("backend_hostname") {
                "" => SOCKETS,
                host => host,
            };
            if host.contains([',', '*', '=', '[', ']']) || host.contains(char::is_whitespace) {
                let why = format!("{host:?} is no host name, address or folder; correct it");
                return Err(Broken::new(&place, why));
            }
            let weight = |text: &str| text.parse().ok().filter(|weight: &f64| *weight >= 0.0);
            let name = format!("backend_weight{id}");
            let weight = self.settings.parsed(&name, "a number from 0 on", weight)?.unwrap_or(1.0);
            let port = self.port(&format!("backend_port{id}"), 5432)?;
            if let Some(other) = nodes.iter().find(|it| it.host == host && it.port == port) {
                let why = format!("node {id} has the address of node {}; correct it", other.id);
                return Err(Broken::new(&place, why));
            }
            let folder = text("backend_data_directory").to_owned();
            nodes.push(Node { id, host: host.to_owned(), port, weight, folder });
        }
        Ok(nodes)
    }

    /// Writes the cluster and the databases.
    pub(crate) fn servers(&mut self) -> Result<(), Broken> {
        let nodes = self.nodes()?;
        let is_watched = ["sr_check_user", "health_check_user"]
            .iter()
            .any(|name| self.settings.text(name).is_some());
        let is_cluster = match self.mode {
            Mode::Streaming => nodes.len() > 1 || is_watched && !nodes.is_empty(),
            Mode::Raw => nodes.len() > 1,
            Mode::Other => false,
        };
        if is_cluster {
            self.cluster(&nodes)?;
            return self.databases(NAME, nodes.len() > 1);
        }
        for name in ["failover_command", "follow_primary_command", "follow_master_command"] {
            self.say(name, Part::Without, "there is one node, so nothing can be promoted");
        }
        self.toml.table("databases", "*");
        match nodes.first() {
            Some(node) => {
                self.toml.text("host", &node.host);
                self.toml.bare("port", node.port);
            }
            None => {
                self.toml.text("host", "localhost");
                self.note("There is no backend_hostname0, so the server is localhost: set `host`.");
            }
        }
        if self.mode == Mode::Other {
            let why = "Weir replaces streaming replication only, so the first node is used alone";
            self.say("backend_clustering_mode", Part::Without, why);
            for node in nodes.iter().skip(1) {
                let why = "only the first node is used";
                self.say(&format!("backend_hostname{}", node.id), Part::Without, why);
                self.say(&format!("backend_port{}", node.id), Part::Without, why);
            }
        } else {
            self.say("backend_clustering_mode", Part::Kept, "");
        }
        self.say("load_balance_mode", Part::Without, "there are no standbys");
        Ok(())
    }

    fn cluster(&mut self, nodes: &[Node]) -> Result<(), Broken> {
        self.toml.table("clusters", NAME);
        let weights = weights(nodes);
        let list = nodes.iter().zip(&weights).map(|(node, weight)| match weight {
            1 => node.to_string(),
            weight => format!("{node}*{weight}"),
        });
        let list: Vec<_> = list.collect();
        self.toml.list("nodes", &list);
        self.say("backend_clustering_mode", Part::Kept, "");
        self.watching()?;
        if let Some(time) = self.settings.time("health_check_timeout", 1_000)?.filter(|it| *it > 0)
        {
            self.toml.bare("health_timeout", seconds((time / 2).max(100)));
        }
        if let Some(time) = self.settings.time("search_primary_node_timeout", 1_000)? {
            self.toml.bare("failover_wait", seconds(time));
        }
        let settings = self.settings;
        for item in settings.effective() {
            let Some((row, Some(_))) = find(&item.name) else { continue };
            if row.name.starts_with("health_check_") {
                self.say(&item.name, Part::Without, "Weir watches all nodes alike");
            }
        }
        self.commands(nodes);
        let is_fixed = |node: &&Node| {
            let flag = self.settings.text(&format!("backend_flag{}", node.id));
            flag.is_some_and(|flag| flag.contains("ALWAYS_"))
        };
        if let Some(node) = nodes.iter().find(is_fixed) {
            self.note(format!(
                "Node {} is always the primary to Pgpool-II. Weir asks each node for its role. An \
                 endpoint of a cloud that leads to several machines is no node: name each machine.",
                node.id
            ));
        }
        Ok(())
    }

    /// Writes the login with which Weir watches the nodes.
    fn watching(&mut self) -> Result<(), Broken> {
        let user = |name| self.settings.text(name).map(str::to_owned);
        let (user, prefix) = match (user("sr_check_user"), user("health_check_user")) {
            (Some(user), other) => {
                if other.is_some_and(|other| other == user) {
                    self.say("health_check_user", Part::Kept, "");
                }
                (user, "sr_check")
            }
            (None, Some(user)) => (user, "health_check"),
            (None, None) => {
                self.note(
                    "Weir watches the nodes as the user weir: create this role with pg_monitor \
                     (docs/cluster.md), or set `user` of the cluster.",
                );
                return Ok(());
            }
        };
        self.toml.text("user", &user);
        if let Some(database) = self.settings.text(&format!("{prefix}_database")) {
            self.toml.text("dbname", database);
        }
        self.note(format!(
            "Weir watches the nodes as the user {user:?}, which needs the role pg_monitor and a line \
             in pg_hba.conf on each node."
        ));
        let name = format!("{prefix}_password");
        let set = self.settings.get(&name).filter(|item| !item.value.is_empty());
        let secret = match set {
            Some(item) => Some(self.opener.open(&item.value, &item.place)?),
            None => None,
        };
        let known = self.users.iter().find(|it| it.name == user).map(|it| it.secret.clone());
        match (secret, known) {
            (Some(Secret::Plain(password)), _) if !password.contains(['\n', '\0']) => {
                self.toml.text("password_file", self.from.password_file);
                self.password = Some(password);
            }
            (Some(_), _) => {
                let why = "Weir needs the password in clear text: set `password_file`";
                self.say(&name, Part::Without, why);
            }
            // It is found in auth_file.
            (None, Some(Secret::Plain(_))) => {}
            (None, Some(_)) => self.note(format!(
                "pool_passwd has no clear password of {user:?}: set `password_file` of the cluster."
            )),
            (None, None) => {}
        }
        Ok(())
    }

    fn commands(&mut self, nodes: &[Node]) {
        for name in ["follow_primary_command", "follow_master_command"] {
            let Some(text) = self.settings.text(name) else { continue };
            let converted = command::converted(text, nodes);
            self.toml
                .comment("It runs for the old primary, which becomes a standby of the new one.");
            self.toml.text("rejoin_command", &converted);
            if text.contains('\'') {
                self.note(format!(
                    "{name}: the shell replaces no variables within single quotes. Check \
                     rejoin_command."
                ));
            }
            break;
        }
        if self.settings.text("failover_command").is_some() {
            self.toml
                .comment("Instead of failover_command, Weir promotes a standby itself, with these");
            self.toml
                .comment("keys (docs/cluster.md, \"Failover by Weir\"). Stop Pgpool-II before.");
            self.toml.comment("failover = \"own\"");
            self.toml
                .comment("fence_command = \"...\"  # must stop PostgreSQL on $WEIR_HOST for good");
            self.note(
                "failover_command is not used: Weir follows a promotion, and makes none. To have Weir \
                 promote, write a fence_command and set failover = \"own\" (docs/cluster.md).",
            );
        }
    }
}

/// Returns the weights as whole numbers, as small as possible.
fn weights(nodes: &[Node]) -> Vec<u64> {
    let all: Vec<f64> = nodes.iter().map(|node| node.weight).collect();
    let most = all.iter().copied().fold(0.0, f64::max);
    let is_whole = all.iter().all(|weight| weight.fract() == 0.0) && most <= WEIGHT_MAX;
    let scale = if is_whole || most <= 0.0 { 1.0 } else { 100.0 / most };
    let whole = |weight: &f64| {
        let scaled = (weight * scale).round();
        // A small share is not none. The value is between 0 and 1,000.
        if *weight > 0.0 { scaled.max(1.0) as u64 } else { 0 }
    };
    let scaled: Vec<u64> = all.iter().map(whole).collect();
    match scaled.iter().copied().fold(0, gcd) {
        0 => scaled,
        divisor => scaled.iter().map(|weight| weight / divisor).collect(),
    }
}

fn gcd(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { gcd(other, one % other) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_become_small_whole_numbers() {
        let cases: [(&[f64], &[u64]); 8] = [
            (&[1.0, 1.0], &[1, 1]),
            (&[0.0, 1.0], &[0, 1]),
            (&[0.0, 0.0], &[0, 0]),
            (&[2.0, 4.0, 6.0], &[1, 2, 3]),
            (&[0.5, 0.5], &[1, 1]),
            (&[0.3, 0.7], &[43, 100]),
            (&[0.00001, 1.0], &[1, 100]),
            (&[5_000.0, 2_500.0], &[2, 1]),
        ];
        for (weights_of, expected) in cases {
            let node = |weight: &f64| Node { weight: *weight, ..Node::of(0, "") };
            let nodes: Vec<_> = weights_of.iter().map(node).collect();
            assert_eq!(weights(&nodes), expected, "{weights_of:?}");
        }
    }
}
