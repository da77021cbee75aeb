//! Finds settings that systemd's unit `weir.service` does not allow, and names the drop-in file that
//! allows each.

use std::{
    env,
    path::{Path, PathBuf},
};

use config::{Cluster, Config, DataPath};

use super::{Finding, Level};

/// The folder of the drop-ins, relative to that of the program.
const SHIPPED: &str = "../share/weir/weir.service.d";
/// The folder in which systemd reads them.
pub(super) const IN_FORCE: &str = "/etc/systemd/system/weir.service.d";
/// The configuration of `weir-pgbouncer.service`, which has the rights that PgBouncer's keys need.
const PGBOUNCERS: &str = "pgbouncer/pgbouncer.ini";
/// The drop-in with the rights to change addresses.
pub(super) const ADDRESSES: &str = "addresses.conf";
/// Folders of which the unit has its own (`PrivateTmp=`).
const PRIVATE: [&str; 2] = ["/tmp", "/var/tmp"];

/// A drop-in for a setting.
#[derive(Debug, PartialEq, Eq)]
struct DropIn {
    key: &'static str,
    name: &'static str,
    why: String,
}

/// Names the drop-ins that the configuration needs under `weir.service` and that are not in force.
/// Without them on this machine, Weir was installed without the unit.
pub(super) fn drop_ins(config: &Config) -> Vec<Finding> {
    let is_pgbouncers = config.path.as_ref().is_some_and(|path| path.ends_with(PGBOUNCERS));
    let Some(shipped) = shipped().filter(|_| !is_pgbouncers) else { return Vec::new() };
    let missing = needed(config)
        .into_iter()
        .filter(|it| shipped.join(it.name).exists() && !Path::new(IN_FORCE).join(it.name).exists());
    let finding = |it: DropIn| {
        let file = shipped.join(it.name).display().to_string();
        let what = format!(
            "{}; weir.service needs a drop-in for it: install -D -m 644 -t {IN_FORCE} {file}; \
             systemctl daemon-reload",
            it.why
        );
        Finding::new(Level::Warns, &config.positions.of_key(it.key), what)
    };
    missing.map(finding).collect()
}

fn shipped() -> Option<PathBuf> {
    let folder = env::current_exe().ok()?.parent()?.join(SHIPPED);
    folder.canonicalize().ok()
}

fn needed(config: &Config) -> Vec<DropIn> {
    let global = &config.global;
    let databases = || config.databases.values().chain(&config.fallback);
    let mut found = Vec::new();
    let is_private =
        |path: &str| PRIVATE.iter().any(|private| Path::new(path).starts_with(private));
    let hosts = databases().flat_map(|database| config.addresses(database));
    let hosts = hosts.map(|(host, _)| ("databases", host.to_string()));
    let own =
        [("unix_socket_dir", &global.unix_socket_dir), ("direct_socket", &global.direct_socket)];
    let own = own.map(|(key, path)| (key, path.clone()));
    if let Some((key, path)) = own.into_iter().chain(hosts).find(|(_, path)| is_private(path)) {
        let why = format!("a unix socket in {path} is not that of other programs");
        found.push(DropIn { key, name: "tmp.conf", why });
    }
    let is_direct = |path: DataPath| path != DataPath::Proxy;
    if !global.direct_socket.is_empty() && is_direct(global.data_path) {
        let why = "direct pools need PostgreSQL's system user".to_owned();
        found.push(DropIn { key: "direct_socket", name: "postgres-user.conf", why });
    }
    let of_clusters = || config.clusters.values().flat_map(commands);
    let of_databases = || {
        databases()
            .filter_map(|own| Some(("password_command", own.password_command.as_ref()?.text())))
    };
    let commands = || of_clusters().chain(of_databases());
    let runs = |words: &[&str]| {
        commands().find(|(_, text)| {
            text.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| words.contains(&word))
        })
    };
    if let Some((key, _)) = runs(&["sudo", "ssh", "su", "scp"]) {
        let why = "a command with sudo or ssh needs rights that the unit takes away".to_owned();
        found.push(DropIn { key, name: "commands.conf", why });
    }
    let has_address = config.clusters.values().any(|own| !own.virtual_address.is_empty());
    if has_address {
        let why = "it needs CAP_NET_ADMIN and CAP_NET_RAW".to_owned();
        found.push(DropIn { key: "virtual_address", name: ADDRESSES, why });
    } else if let Some((key, _)) = runs(&["ip", "arping"]) {
        let why =
            "a command that changes the addresses of an interface needs CAP_NET_ADMIN".to_owned();
        found.push(DropIn { key, name: ADDRESSES, why });
    }
    found
}

/// Returns the commands of a cluster, with their keys.
fn commands(cluster: &Cluster) -> impl Iterator<Item = (&'static str, &str)> {
    let all = [
        ("fence_command", &cluster.fence_command),
        ("stop_command", &cluster.stop_command),
        ("start_command", &cluster.start_command),
        ("rejoin_command", &cluster.rejoin_command),
        ("virtual_address_up_command", &cluster.virtual_address_up_command),
        ("virtual_address_down_command", &cluster.virtual_address_down_command),
    ];
    all.into_iter().filter_map(|(key, text)| Some((key, text.as_deref()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<&'static str> {
        let config = Config::parse_ini(text, "weir.ini", &|_| unreachable!()).unwrap();
        needed(&config).into_iter().map(|it| it.name).collect()
    }

    #[test]
    fn each_setting_names_its_drop_in() {
        let own = "unix_socket_dir = /run/weir\n";
        assert_eq!(names(&format!("[pgbouncer]\n{own}")), [""; 0]);
        assert_eq!(names("[pgbouncer]\nlisten_addr = *\n"), ["tmp.conf"], "PgBouncer's default");
        let entry = format!("[databases]\n* = host=/tmp\n[pgbouncer]\n{own}");
        assert_eq!(names(&entry), ["tmp.conf"]);
        let direct = "direct_socket = /run/weir/direct\ndata_path = direct\n";
        assert_eq!(names(&format!("[pgbouncer]\n{own}{direct}")), ["postgres-user.conf"]);
        let cluster = |command: &str| {
            format!(
                "[databases]\napp = cluster=c\n[pgbouncer]\n{own}[clusters]\n\
                 c = nodes='a=10.0.0.1, b=10.0.0.2' failover=own fence_command='{command}'\n"
            )
        };
        assert_eq!(names(&cluster("/usr/bin/ssh a stop")), ["commands.conf"]);
        assert_eq!(
            names(&cluster("sudo -n ip addr add 10.0.0.9/24 dev eth0")),
            ["commands.conf", "addresses.conf"]
        );
        assert_eq!(names(&cluster("/usr/local/bin/fence")), [""; 0]);
        let address = "/usr/local/bin/fence' etcd=e virtual_address='10.0.0.9/24 dev eth0";
        assert_eq!(names(&cluster(address)), ["addresses.conf"]);
        let program = "password_command='/usr/bin/ssh vault token'";
        let entry = format!("[databases]\napp = host=db user=u {program}\n[pgbouncer]\n{own}");
        assert_eq!(names(&entry), ["commands.conf"]);
    }
}
