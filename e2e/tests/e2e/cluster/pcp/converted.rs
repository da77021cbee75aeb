//! `weir convert pgpool.conf`: Weir serves the users, the nodes and the tools of a Pgpool-II.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use testkit::{
    Postgres, RawClient, Role, ServerAuth, eventually, folder, free_port, give_away,
    mortal_command, pooler_binary,
};

use super::tools::{MD5, Tools, words};
use super::{PATIENCE, routing, support};

const PG_ENC: &str = "/usr/sbin/pg_enc";
/// The configuration that Debian's package installs.
const DEBIANS: &str = "/usr/share/pgpool2/pgpool.conf";

/// Runs Weir in a folder. No key is in the environment.
fn weir(place: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(pooler_binary());
    command.args(arguments).current_dir(place).env_remove("PGPOOLKEYFILE").env("HOME", place);
    support::run_any(&mut command)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A file that only its owner may read.
fn secret_file(file: &Path, text: &str) {
    fs::write(file, text).expect("our own folder");
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).expect("our own file");
    give_away(file);
}

/// The folder of a Pgpool-II before these nodes. `pool_passwd` has the users in the three forms.
fn pgpool(nodes: &[Postgres], ports: [u16; 2], users: &[Role; 3], has_rules: bool) -> PathBuf {
    let place = folder("pgpool2");
    let [port, pcp_port] = ports;
    let mut conf = format!(
        "# A primary and its standby.\n\
         backend_clustering_mode = 'streaming_replication'\n\
         listen_addresses = '127.0.0.1'\nport = {port}\nsocket_dir = '{}'\n\
         pcp_listen_addresses = 'localhost'\npcp_port = {pcp_port}\n\
         pool_passwd = 'pool_passwd'\nnum_init_children = 8\nmax_pool = 1\n\
         load_balance_mode = on\nstatement_level_load_balance = on\n\
         sr_check_user = 'weir'\nsr_check_password = 'weir-secret'\n\
         use_watchdog = off\ninclude = 'nodes.conf'\n",
        place.display()
    );
    if has_rules {
        conf += "enable_pool_hba = on\n";
    }
    conf += "follow_primary_command = '/etc/pgpool2/follow_primary.sh %d %H'\n";
    fs::write(place.join("pgpool.conf"), conf).expect("our own folder");
    let node = |(number, node): (usize, &Postgres)| {
        let port = node.port();
        format!("backend_hostname{number} = '127.0.0.1'\nbackend_port{number} = {port}\n")
    };
    let nodes: String = nodes.iter().enumerate().map(node).collect();
    fs::write(place.join("nodes.conf"), nodes).expect("our own folder");
    secret_file(&place.join("pcp.conf"), &format!("pcpadmin:{MD5}\n"));
    secret_file(&place.join(".pgpoolkey"), "a key of ours\n");
    let [md5, plain, encrypted] = users;
    let rules = format!("host all {} all md5\nhost all all 127.0.0.1/32 scram-sha-256\n", md5.name);
    fs::write(place.join("pool_hba.conf"), rules).expect("our own folder");
    let lines = format!("{}:{}\n{}:TEXT{}\n", md5.name, md5.verifier, plain.name, plain.password);
    secret_file(&place.join("pool_passwd"), &lines);
    let mut pg_enc = Command::new(PG_ENC);
    pg_enc.arg("-m").arg("-k").arg(place.join(".pgpoolkey"));
    pg_enc.arg("-f").arg(place.join("pgpool.conf")).args(["-u", &encrypted.name]);
    support::run(pg_enc.arg(&encrypted.password));
    let lines = fs::read_to_string(place.join("pool_passwd")).expect("our own file");
    assert!(lines.contains(&format!("{}:AES", encrypted.name)), "{lines}");
    place
}

/// Converts the configuration in a folder. Returns the name of the `weir.toml`.
fn converted(place: &Path, users: &[Role; 3]) -> PathBuf {
    let output = weir(place, &["convert", "pgpool.conf"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let (toml, report) = (text(&output.stdout), text(&output.stderr));
    for secret in users.iter().map(|user| user.password.as_str()).chain(["weir-secret"]) {
        assert!(!toml.contains(secret) && !report.contains(secret), "{secret}: {output:?}");
    }
    for title in ["Kept:", "Changed in meaning:", "Without counterpart:", "nodes.conf:1"] {
        assert!(report.contains(title), "{title}: {report}");
    }
    for name in ["weir-users.txt", "weir-monitor.txt"] {
        let file = place.join(name);
        let mode = fs::metadata(&file).expect("it was written").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
        assert!(report.contains(&format!("{} (mode 0600)", file.display())), "{report}");
        give_away(&file);
    }
    // Files with passwords are not written a second time, and nothing else is either.
    let again = weir(place, &["convert", "pgpool.conf"]);
    assert_eq!((again.status.code(), again.stdout.is_empty()), (Some(2), true), "{again:?}");
    assert!(text(&again.stderr).contains("weir-users.txt: cannot be written"), "{again:?}");
    let file = place.join("weir.toml");
    fs::write(&file, toml).expect("our own folder");
    file
}

/// A running Weir, which is ended when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_converted_configuration_serves_users_nodes_and_tools_core() {
    if !support::only_weir() {
        return;
    }
    let nodes = routing::cluster(1);
    let users = [ServerAuth::Md5, ServerAuth::Scram, ServerAuth::Scram];
    let users = users.map(|method| nodes[0].role(method));
    for user in &users {
        nodes[0].sql("postgres", &format!("GRANT ALL ON acts TO {}", user.name));
    }
    nodes[1].wait_until_like(&nodes[0]);
    for has_rules in [false, true] {
        serves(&nodes, &users, has_rules);
    }
}

/// Checks that Weir serves a converted configuration, with or without `pool_hba.conf`.
#[track_caller]
fn serves(nodes: &[Postgres], users: &[Role; 3], has_rules: bool) {
    let ports = [free_port(), free_port()];
    let place = pgpool(nodes, ports, users, has_rules);
    let file = converted(&place, users);
    let toml = fs::read_to_string(&file).expect("our own file");
    assert_eq!(toml.contains("\nauth_type = \"hba\"\n"), has_rules, "{toml}");
    let checked = weir(&place, &["check-config", "--connect", &file.to_string_lossy()]);
    assert!(checked.status.success(), "{checked:?}");
    assert!(!text(&checked.stderr).contains("pool_passwd"), "{checked:?}");

    let child = mortal_command(pooler_binary()).arg("-q").arg(&file).spawn();
    let _weir = Running(child.expect("Weir can be started"));
    for (number, user) in users.iter().enumerate() {
        let login = || RawClient::login(ports[0], &user.name, "postgres", &user.password).ok();
        let listens = || std::net::TcpStream::connect(("127.0.0.1", ports[0])).ok();
        eventually("Weir listens", PATIENCE, listens);
        let mut client = eventually("the user gets in", PATIENCE, login);
        client.rows(&format!("INSERT INTO acts VALUES ({number}, '{has_rules}')"));
        eventually("a read runs on the standby", PATIENCE, || {
            let port = client.value("SELECT here()");
            (port == nodes[1].port().to_string()).then_some(())
        });
        let written = format!("id = {number} AND act = '{has_rules}'");
        let count = client.value(&format!("SELECT count(*) FROM acts WHERE {written}"));
        assert_eq!(count, "1", "{}", user.name);
        let refused = RawClient::login(ports[0], &user.name, "postgres", "wrong");
        assert!(refused.is_err(), "{}", user.name);
    }
    let tools = Tools::at(ports[1]);
    assert_eq!(tools.ask("node_count", &[]), "2\n");
    let info = tools.ask("node_info", &[]);
    let roles: Vec<_> = words(&info).iter().map(|line| line.contains(&"standby")).collect();
    assert_eq!(roles, [false, true], "{info}");
}

#[test]
fn all_kinds_of_configurations_pass_check_config() {
    if !support::only_weir() {
        return;
    }
    let place = folder("pgpool2");
    for (name, text) in [
        ("pool_hba.conf", "local all all trust\nhost all all 0.0.0.0/0 scram-sha-256\n"),
        ("pool_passwd", "alice:TEXTsecret\npgpool:TEXTsecret\n"),
        ("pcp.conf", "# nobody\n"),
    ] {
        secret_file(&place.join(name), text);
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/pgpool/tests");
    let mut files = vec![PathBuf::from(DEBIANS)];
    for folder in ["samples", "operators"] {
        let listed = fs::read_dir(sources.join(folder)).expect("it can be read");
        files.extend(listed.map(|file| file.expect("it can be read").path()));
    }
    assert!(files.len() > 15, "{files:?}");
    for (number, file) in files.iter().enumerate() {
        let own = place.join(format!("{number}.conf"));
        let mut conf = fs::read_to_string(file).expect("it can be read");
        // There are no certificates.
        conf = conf.replace("\nssl = on\n", "\nssl = off\n");
        // check-config tries the addresses. Of several values, the last counts.
        let (port, sockets) = (free_port(), place.display());
        conf += &format!("\nport = {port}\nunix_socket_directories = '{sockets}'\n");
        fs::write(&own, conf).expect("our own folder");
        let secrets = folder("secrets");
        let [own, secrets] = [own, secrets].map(|path| path.to_string_lossy().into_owned());
        let output = weir(&place, &["convert", "--from", "pgpool", &own, "--secrets", &secrets]);
        assert_eq!(output.status.code(), Some(0), "{}: {output:?}", file.display());
        let toml = place.join(format!("{number}.toml"));
        fs::write(&toml, &output.stdout).expect("our own folder");
        let checked = weir(&place, &["check-config", &toml.to_string_lossy()]);
        assert!(checked.status.success(), "{}: {checked:?}", file.display());
    }
}

#[test]
fn a_configuration_that_cannot_be_used_is_told() {
    if !support::only_weir() {
        return;
    }
    let place = folder("pgpool2");
    let cases = [
        ("port = 'x\n", "pgpool.conf:1: the quote of port is not closed"),
        ("port = 1\ninclude 'gone.conf'\n", "pgpool.conf:2: cannot read the included file"),
        ("enable_pool_hba = on\n", "pgpool.conf:1: the rules are missing; name the file by --pool"),
        ("# a key\npool_passwd = 'users'\n", "users:2: a password is encrypted (AES); name the"),
    ];
    fs::write(place.join("users"), "alice:TEXTx\nbob:AES/YocwrKJrZ+5AzqoOYy7IQ==\n").expect("ours");
    for (conf, why) in cases {
        fs::write(place.join("pgpool.conf"), conf).expect("our own folder");
        let output = weir(&place, &["convert", "pgpool.conf"]);
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(2), true), "{output:?}");
        assert!(text(&output.stderr).contains(why), "{why}: {output:?}");
        assert!(!place.join("weir-users.txt").exists());
    }
    let output = weir(&place, &["convert", "--from", "pgpool", "gone.conf"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let why = "gone.conf: cannot be read: No such file or directory; correct the name";
    assert!(text(&output.stderr).contains(why), "{output:?}");
    // An unreadable file is PgBouncer's.
    assert_eq!(weir(&place, &["convert", "gone.ini"]).status.code(), Some(1));
}
