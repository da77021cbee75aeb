//! The output of `weir check-config`: the configuration as Weir reads it, without secrets.

use std::fmt::Write;

use crate::config::{AccessPolicy, Config};
use crate::data_path::Proxied;
use crate::host::Host;
use crate::key::Keyed;
use crate::table::Database;
use crate::value::Value;

/// Describes the configuration in plain words. The caller reports its mistakes.
pub fn describe(config: &Config) -> String {
    let mut text = String::new();
    listeners(&mut text, config);
    pooling(&mut text, config);
    access(&mut text, config);
    databases(&mut text, config);
    users(&mut text, config);
    peers(&mut text, config);
    text
}

// Writing to a String cannot fail, so the results of `write!` are dropped throughout.

fn listeners(text: &mut String, config: &Config) {
    let global = &config.global;
    let port = global.listen_port;
    text.push_str("Listens on\n");
    for address in &global.listen_addr {
        let colon = address.contains(':');
        let _ = match colon {
            true => writeln!(text, "  [{address}]:{port}"),
            false => writeln!(text, "  {address}:{port}"),
        };
    }
    if !global.unix_socket_dir.is_empty() {
        let (dir, mode) = (&global.unix_socket_dir, global.unix_socket_mode);
        let _ = writeln!(text, "  {dir}/.s.PGSQL.{port} (mode {mode:04o})");
    }
    if global.listen_addr.is_empty() && global.unix_socket_dir.is_empty() {
        text.push_str("  nothing: listen_addr and unix_socket_dir are both empty\n");
    }
}

fn pooling(text: &mut String, config: &Config) {
    let global = &config.global;
    let _ = writeln!(text, "\nPool mode\n  {}", global.pool_mode);
    let _ = writeln!(
        text,
        "\nLimits\n  {} clients\n  {} servers a pool\n  {} prepared statements a server",
        global.max_client_conn,
        or_no_limit(global.default_pool_size),
        global.max_prepared_statements,
    );
    let workers = match global.workers {
        0 => "one worker for every two processors".to_owned(),
        count => format!("{count} workers"),
    };
    let _ = writeln!(text, "  {workers}");
}

fn access(text: &mut String, config: &Config) {
    let global = &config.global;
    text.push_str("\nWho gets in\n");
    let _ = match &config.access {
        AccessPolicy::Configured => {
            let file = match &global.auth_file {
                Some(files) => {
                    format!("{} users in {}", config.auth_file.users.len(), files.join(", "))
                }
                None => "no auth_file".to_owned(),
            };
            writeln!(text, "  by auth_type {}, {file}", global.auth_type)
        }
        AccessPolicy::UrlUser { user, .. } => {
            writeln!(text, "  {user}, with the password of the URL")
        }
        AccessPolicy::ProvenByServer => {
            let ways = "by loopback address, unix socket or TLS";
            writeln!(text, "  every user that can log in to the server with its password, {ways}")
        }
    };
    for (title, users) in [("admins", &global.admin_users), ("stats", &global.stats_users)] {
        if !users.is_empty() {
            let _ = writeln!(text, "  {title} of the console: {}", users.join(", "));
        }
    }
}

fn databases(text: &mut String, config: &Config) {
    text.push_str("\nDatabases\n");
    let entries = || config.databases.values().chain(&config.fallback);
    if entries().next().is_none() {
        text.push_str("  none\n");
    }
    for database in entries() {
        let _ = writeln!(text, "  {} -> {}", database.name, target(config, database));
    }
}

/// Describes the nodes of a cluster, or from where Weir gets them.
fn nodes(config: &Config, cluster: &str, addresses: &[(Host, u16)]) -> String {
    let found_by = config.clusters.get(cluster).and_then(|cluster| {
        let patroni = cluster.patroni.show().map(|apis| format!("nodes by Patroni at {apis}"));
        patroni.or_else(|| cluster.dns.show().map(|names| format!("addresses of {names}")))
    });
    found_by.unwrap_or_else(|| {
        let all = addresses.iter().map(|(host, port)| format!("{host} port {port}"));
        all.collect::<Vec<_>>().join(", ")
    })
}

/// Describes the servers and the own settings of a database entry.
fn target(config: &Config, database: &Database) -> String {
    let name = match (&database.dbname, database.name.as_str()) {
        (Some(dbname), _) => dbname,
        (None, "*") => "the name asked for",
        (None, name) => name,
    };
    let addresses = config.addresses(database);
    let mut target = match &database.cluster {
        Some(cluster) => {
            let nodes = nodes(config, cluster, &addresses);
            format!("{name} at the primary of cluster {cluster} ({nodes})")
        }
        None => {
            let hosts: Vec<_> = addresses.iter().map(|(host, _)| host.to_string()).collect();
            format!("{name} at {}, port {}", hosts.join(","), database.port)
        }
    };
    if let Some(user) = &database.user {
        let _ = write!(target, ", as user {user}");
    }
    let mode = database.pool_mode.unwrap_or(config.global.pool_mode);
    let size = database.pool_size.unwrap_or(config.global.default_pool_size);
    let _ = write!(target, "; {mode} mode, {} servers a pool", or_no_limit(size));
    let user = database.user.as_deref().unwrap_or_default();
    match config.proxied(database, user) {
        Some(Proxied::SwitchedOff) => {}
        Some(why) => {
            let _ = write!(target, "; proxied: {why}");
        }
        None => target.push_str("; direct, if PostgreSQL has the library"),
    }
    target
}

fn users(text: &mut String, config: &Config) {
    let lines = config.users.iter().map(|(name, settings)| {
        let set = settings.changed(config.source).filter_map(|row| {
            let value = (row.show)(settings)?;
            Some(format!("{} = {value}", row.key.name))
        });
        format!("{name}: {}", set.collect::<Vec<_>>().join(", "))
    });
    list(text, "Users with settings of their own", &lines.collect::<Vec<_>>());
}

fn peers(text: &mut String, config: &Config) {
    let lines = config.peers.iter().map(|(id, peer)| {
        if *id == config.global.peer_id {
            return format!("{id}: this process");
        }
        let host = peer.hosts.first().map(Host::to_string).unwrap_or_default();
        format!("{id}: {host}, port {}", peer.port)
    });
    list(text, "Peers", &lines.collect::<Vec<_>>());
}

fn list(text: &mut String, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{title}");
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
}

fn or_no_limit(number: u32) -> String {
    match number {
        0 => "any number of".to_owned(),
        number => number.to_string(),
    }
}
