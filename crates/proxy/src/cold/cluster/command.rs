//! The operator's commands for a change of the primary: `stop_command`, `fence_command` and others.
//!
//! A command is run by `/bin/sh`. It finds the node that it concerns in its environment, but no password
//! of Weir's. If it fails, the error has the last line of its output.

use std::{process::Command, time::Duration};

use config::{Config, Node};

use crate::cold::program::{self, Output};

/// A variable with a password, whatever the configuration says.
const PASSWORD: &str = "PGPASSWORD";

/// Runs a command about `node`, for a change to `new` if that is chosen.
///
/// # Errors
/// When it cannot be started, fails, or takes longer than `limit`: it is killed then.
pub(super) async fn run(
    command: &str,
    (config, cluster): (&Config, &str),
    node: &Node,
    new: Option<&Node>,
    limit: Duration,
) -> Result<(), String> {
    let shell = shell(command, (config, cluster), node, new);
    program::run(shell, limit, Output::Explains).await.map(drop)
}

/// Runs a command about this Weir, one of several of the cluster.
///
/// # Errors
/// As for [`run`].
pub(super) async fn run_for_member(
    command: &str,
    (config, cluster): (&Config, &str),
    member: &str,
    limit: Duration,
) -> Result<(), String> {
    let mut shell = bare_shell(command, (config, cluster));
    shell.env("WEIR_MEMBER", member);
    program::run(shell, limit, Output::Explains).await.map(drop)
}

fn shell(
    command: &str,
    (config, cluster): (&Config, &str),
    node: &Node,
    new: Option<&Node>,
) -> Command {
    let mut shell = bare_shell(command, (config, cluster));
    let of = |names: [&'static str; 3], node: &Node| {
        let Node { name, host, port, weight: _ } = node;
        names.into_iter().zip([name.clone(), host.to_string(), port.to_string()])
    };
    shell.envs(of(["WEIR_NODE", "WEIR_HOST", "WEIR_PORT"], node));
    if let Some(new) = new {
        shell.envs(of(["WEIR_NEW_NODE", "WEIR_NEW_HOST", "WEIR_NEW_PORT"], new));
    }
    shell
}

/// Returns the command without what it concerns.
fn bare_shell(command: &str, (config, cluster): (&Config, &str)) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command);
    for name in config.secret_variables.iter().map(String::as_str).chain([PASSWORD]) {
        shell.env_remove(name);
    }
    shell.env("WEIR_CLUSTER", cluster);
    shell
}

#[cfg(test)]
mod tests {
    use config::Host;

    use super::*;

    #[test]
    fn a_command_finds_the_node_and_no_password_in_its_environment() {
        // Cargo sets these for each test.
        let set = "CARGO_PKG_NAME";
        let config = Config {
            secret_variables: [set.to_owned()].into_iter().collect(),
            ..Config::default()
        };
        let node =
            Node { name: "a".to_owned(), host: Host::new("10.0.0.1"), port: 5432, weight: 1 };
        let command = "test \"$WEIR_CLUSTER/$WEIR_NODE\" = main/a && test -n \"$CARGO_PKG_VERSION\" \
                       && test -z \"${CARGO_PKG_NAME+set}\"";
        let mut ours = shell(command, (&config, "main"), &node, None);
        assert!(ours.status().unwrap().success());
        let mut others = shell(command, (&Config::default(), "main"), &node, None);
        assert!(!others.status().unwrap().success(), "the variable is set");
        assert!(ours.get_envs().any(|variable| variable == ("PGPASSWORD".as_ref(), None)));
    }
}
