//! Entries of `[clusters]`, and the databases that are there.

use std::time::Duration;

use config::{Cluster, Host, Node};

use crate::{ini, ini_mistakes, toml, toml_mistakes};

const INI: &str = "
[pgbouncer]
[clusters]
main = nodes='a=10.0.0.1, b=10.0.0.2:5433' failover=follow password='it''s' sample_interval=0.5
[databases]
app = cluster=main pool_size=7
";

const TOML: &str = r#"
[clusters.main]
nodes = ["a=10.0.0.1", "b=10.0.0.2:5433"]
failover = "follow"
password = "it's"
sample_interval = "500ms"
[databases.app]
cluster = "main"
pool_size = 7
"#;

#[test]
fn both_formats_mean_the_same() {
    let (ini, toml) = (ini(INI), toml(TOML));
    assert!(ini.clusters == toml.clusters);
    let node = |name: &str, ip: &str, port| Node {
        weight: 1,
        name: name.to_owned(),
        host: Host::Tcp(ip.to_owned()),
        port,
    };
    let expected = Cluster {
        nodes: vec![node("a", "10.0.0.1", 5432), node("b", "10.0.0.2", 5433)],
        password: Some("it's".to_owned()),
        sample_interval: Duration::from_millis(500),
        ..Cluster::default()
    };
    assert!(ini.clusters["main"] == expected);
    assert_eq!((&*expected.user, &*expected.dbname), ("weir", "postgres"));
    assert_eq!(expected.failover_wait, Duration::from_secs(30));
    let database = &ini.databases["app"];
    let addresses: Vec<_> =
        ini.addresses(database).iter().map(|(host, port)| format!("{host}:{port}")).collect();
    assert_eq!(addresses, ["10.0.0.1:5432", "10.0.0.2:5433"]);
    let text = config::describe(&ini);
    assert!(
        text.contains(
            "app at the primary of cluster main (10.0.0.1 port 5432, 10.0.0.2 port 5433)"
        ),
        "{text}"
    );
}

#[test]
fn clusters_keep_the_order_of_the_file() {
    let ini = ini("[pgbouncer]\n[clusters]\nz = nodes='a=10.0.0.1'\nb = nodes='a=10.0.0.2'\n");
    assert_eq!(ini.cluster_order, ["z", "b"]);
    let toml = toml("[clusters.z]\nnodes = 'a=10.0.0.1'\n[clusters.b]\nnodes = 'a=10.0.0.2'\n");
    assert_eq!(toml.cluster_order, ["z", "b"]);
}

#[test]
fn a_conversion_keeps_clusters() {
    let ini = ini(INI);
    let comments =
        config::Comments::of_ini(INI, "test.ini", &|_| Err(std::io::ErrorKind::NotFound.into()));
    let again = toml(&config::to_toml(&ini, &comments));
    assert!(again.clusters == ini.clusters && again.databases == ini.databases);
}

/// Each case: `[clusters]`, `[databases]`, the end of the message.
fn check_mistakes(cases: &[(&str, &str, &str)]) {
    for (clusters, databases, mistake) in cases {
        let text = format!("[pgbouncer]\n[clusters]\n{clusters}\n[databases]\n{databases}\n");
        let found = ini_mistakes(&text);
        assert!(found.len() == 1 && found[0].ends_with(mistake), "{clusters}: {found:?}");
    }
}

fn check_addresses() {
    check_mistakes(&[
        (
            "main = nodes='a=h' etcd=e virtual_address='10.0.0.100/24 dev eth0'\n\
             other = nodes='a=h' etcd=e virtual_address='10.0.0.100/32 dev eth1'",
            "",
            "other.virtual_address: 10.0.0.100 is also that of the cluster main: each cluster gives its \
             address to a Weir by itself",
        ),
        (
            "main = nodes='a=h' etcd=e virtual_address='10.0.0.100/24'",
            "",
            "main.virtual_address: invalid value \"10.0.0.100/24\" for parameter virtual_address: \
             expected addresses such as 10.0.0.100/24 dev eth0, each once: an address for clients, \
             the length of its network's prefix, and the device",
        ),
        (
            "main = nodes='a=h' virtual_address='10.0.0.100/24 dev eth0'",
            "",
            "main.virtual_address: it needs etcd: without it, several Weirs could have one address",
        ),
        (
            "main = nodes='a=h' etcd=e virtual_address_up_command=up",
            "",
            "main.virtual_address_up_command: virtual_address_down_command must be set, too: one \
             command brings the address, the other one removes it",
        ),
        (
            "main = nodes='a=h' etcd=e virtual_address='::2/64 dev eth0' \
             virtual_address_down_command=down",
            "",
            "main.virtual_address_down_command: virtual_address and virtual_address_down_command: \
             Weir has an address itself, or commands do it",
        ),
    ]);
}

#[test]
fn mistakes_name_the_entry_and_what_is_expected() {
    check_mistakes(&[
        (
            "main = nodes='a=h'",
            "app = cluster=mian",
            "app.cluster: unknown cluster \"mian\": expected the name of an entry of [clusters] \
             (did you mean \"main\"?)",
        ),
        (
            "main = nodes='a=h'",
            "app = cluster=main host=h",
            "app.host: a database with cluster=main cannot have a host: the cluster has the \
             addresses",
        ),
        (
            "main = nodes='10.0.0.1'",
            "",
            "main.nodes: invalid value \"10.0.0.1\" for parameter nodes: expected nodes such as \
             a=10.0.0.1, b=10.0.0.2:5433, each name and each address once",
        ),
        (
            "main = nodes='a=h' failover=own",
            "",
            "main.failover: cluster main has failover=own and no fence_command: without it, two \
             primaries may run",
        ),
        (
            "main = nodes='a=h' sample_interval=0",
            "",
            "main.sample_interval: invalid value \"0\" for parameter sample_interval: expected \
             seconds above 0",
        ),
        (
            "main = nodes='a=h' node=b",
            "",
            "main.node: unrecognized cluster parameter: node (did you mean \"nodes\"?)",
        ),
    ]);
    check_addresses();
    let found = toml_mistakes("[clusters.main]\nnodes = 5\n");
    let is_it = |line: &String| line.contains("nodes: invalid value \"5\"");
    assert!(found.iter().any(is_it), "{found:?}");
}

#[test]
fn mistakes_in_what_names_the_nodes_are_told() {
    check_mistakes(&[
        (
            "main = failover=follow",
            "",
            "main: cluster main has no nodes: expected nodes = 'a=10.0.0.1, b=10.0.0.2', patroni or \
             dns",
        ),
        (
            "main = nodes='a=h' patroni=h",
            "",
            "main.patroni: cluster main has nodes and patroni: only one of these can say which nodes \
             it has",
        ),
        (
            "main = patroni='h h'",
            "",
            "main.patroni: invalid value \"h h\" for parameter patroni: expected addresses such as \
             10.0.0.1:8008 or https://10.0.0.1:8008, each once",
        ),
        (
            "main = dns=/run",
            "",
            "main.dns: invalid value \"/run\" for parameter dns: expected host names such as \
             db.example.org or db.example.org:5433, each once",
        ),
        (
            "main = dns=h failover=own fence_command=true",
            "",
            "main.failover: cluster main has failover=own and no nodes: Weir must know all standbys \
             to promote one",
        ),
        (
            "main = patroni=h patroni_cert_file=f",
            "",
            "main.patroni_cert_file: patroni_cert_file and patroni_key_file must both be set, or none \
             of them",
        ),
    ]);
}

#[test]
fn reads_that_cannot_leave_the_primary_are_told() {
    let warnings = |databases: &str, mode: &str| -> Vec<String> {
        let text = format!(
            "[pgbouncer]\npool_mode = {mode}\n[clusters]\nmain = nodes='a=h'\n[databases]\n{databases}\n"
        );
        ini(&text).warnings.iter().map(|own| format!("{}: {}", own.key, own.reason)).collect()
    };
    assert_eq!(warnings("app = cluster=main reads=standby max_staleness=2", "auto"), [""; 0]);
    assert_eq!(
        warnings("app = cluster=main reads=standby", "transaction"),
        ["app.reads: no effect: it needs pool_mode = auto"]
    );
    assert_eq!(
        warnings("app = host=h reads=standby", "auto"),
        ["app.reads: no effect: the database has no cluster"]
    );
    assert_eq!(
        warnings("app = cluster=main balance=statement max_staleness=2", "auto"),
        [
            "app.max_staleness: no effect: it needs reads = standby",
            "app.balance: no effect: it needs reads = standby"
        ]
    );
}

#[test]
fn a_listed_name_that_no_catalog_has_is_named() {
    let warnings = |list: &str| -> Vec<String> {
        let text = format!(
            "[pgbouncer]\npool_mode = auto\n[clusters]\nmain = nodes='a=h'\n[databases]\n\
             app = cluster=main reads=standby {list}\n"
        );
        ini(&text).warnings.iter().map(ToString::to_string).collect()
    };
    assert_eq!(warnings("primary_names='orders, Jobs, naïve'"), [""; 0]);
    for (key, name) in [
        ("primary_names", "public.orders"),
        ("primary_names", "\"Orders\""),
        ("standby_functions", "total(int)"),
    ] {
        let found = warnings(&format!("{key}='good, {name}'"));
        assert_eq!(found.len(), 1, "{found:?}");
        let expected = format!("{key}: {name}: a name is written as in the catalogs");
        assert!(found[0].contains(&expected), "{found:?}");
    }
}

#[test]
fn keys_of_an_address_are_named_when_a_cluster_makes_them_void() {
    let text = "[pgbouncer]\n[clusters]\nmain = nodes='a=h'\n[databases]\n\
                app = cluster=main port=5433 load_balance_hosts=disable\n";
    let warnings: Vec<_> = ini(text).warnings.iter().map(ToString::to_string).collect();
    let named = |key: &str| {
        let words = format!("{key} has no effect beside cluster=main");
        warnings.iter().any(|line| line.contains(&words))
    };
    assert!(named("port") && named("load_balance_hosts"), "{warnings:?}");
    let plain = text.replace(" port=5433 load_balance_hosts=disable", "");
    assert_eq!(ini(&plain).warnings.len(), 0);
}

#[test]
fn the_nodes_may_be_found_by_patroni_or_dns() {
    let patroni = toml(
        r#"
        [clusters.main]
        patroni = ["https://10.0.0.1:8008", "https://10.0.0.2"]
        patroni_user = "weir"
        patroni_password = "hidden"
        stop_command = "true"
        [databases.app]
        cluster = "main"
        "#,
    );
    let main = &patroni.clusters["main"];
    assert!(main.is_discovered() && main.source() == "patroni" && main.nodes.is_empty());
    assert!(patroni.is_remote(&patroni.databases["app"]));
    let text = config::describe(&patroni);
    let nodes = "cluster main (nodes by Patroni at https://10.0.0.1:8008,https://10.0.0.2:8008)";
    assert!(text.contains(nodes) && !text.contains("hidden"), "{text}");
    let warnings: Vec<_> = patroni.warnings.iter().map(ToString::to_string).collect();
    assert!(warnings.len() == 1 && warnings[0].contains("stop_command"), "{warnings:?}");
    let dns = ini("[pgbouncer]\n[clusters]\nmain = dns='pg, pg2:5433' patroni_user=u\n");
    assert_eq!(dns.clusters["main"].source(), "dns");
    assert_eq!(dns.warnings.len(), 1);
}

#[test]
fn a_reload_keeps_nodes_that_were_found() {
    let text = "[clusters.main]\ndns = \"pg\"\n";
    let mut running = toml(text);
    let nodes = toml("[clusters.main]\nnodes = \"a=h\"\n").clusters["main"].nodes.clone();
    running.clusters.get_mut("main").unwrap().nodes.clone_from(&nodes);
    let mut new = toml(text);
    new.keep_discovered(&running);
    assert!(new.clusters["main"].nodes == nodes && new.changes(&running).is_empty());
    let mut listed = toml("[clusters.main]\nnodes = \"b=h\"\n");
    listed.keep_discovered(&running);
    assert_eq!(listed.clusters["main"].nodes[0].name, "b");
}
