//! Conversions of whole configurations: all parameters of the samples of Pgpool-II 4.3 to 4.7, and
//! configurations as operators have them. Each gives a `weir.toml` that Weir can read.

use std::fs;
use std::path::{Path, PathBuf};

use config::Config;
use proptest::prelude::*;
use weir_pgpool::{Broken, Converted, Part, Settings, Sources, TextFile, convert, markdown, rows};

const PCP: &str = "# users\nadmin:5ebe2294ecd0e0f08eab7690d2a6ee69\nnobody\n";
const HBA: &str = "# rules\nlocal all all trust\nhost all all 0.0.0.0/0 scram-sha-256\n\
                   host all all samenet md5\nhost all all ::/0 pam\n";
const USERS: &str = "alice:TEXTwatch-me-5\nbob:md5aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n\
                     pgpool:watch-me-6\ncarol:AESAAAAAAAAAAAAAAAAAAAAAA==\n";

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

fn files(name: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(folder(name)).expect("the folder is there");
    let mut files: Vec<_> = files.map(|file| file.expect("it can be read").path()).collect();
    files.sort();
    files
}

fn no_include(_: &str, _: &str) -> Result<(String, String), String> {
    Err("there are no files".to_owned())
}

/// Converts a text, with all files beside it.
fn converted(text: &str) -> Result<Converted, Broken> {
    converted_with(text, HBA, USERS)
}

fn converted_with(text: &str, hba: &str, users: &str) -> Result<Converted, Broken> {
    let settings = Settings::parse(text, "/etc/pgpool2/pgpool.conf", &no_include)?;
    let file = |name, text| Some(TextFile { name, text });
    convert(&Sources {
        name: "/etc/pgpool2/pgpool.conf",
        settings: &settings,
        pool_hba: file("/etc/pgpool2/pool_hba.conf", hba),
        pool_passwd: match settings.get("pool_passwd") {
            Some(item) if item.value.is_empty() => None,
            _ => file("/etc/pgpool2/pool_passwd", users),
        },
        pcp_conf: file("/etc/pgpool2/pcp.conf", PCP),
        key: Some("key"),
        decrypt: &|key, _| Some(format!("{key} watch-me-7")),
        auth_file: "/etc/weir/weir-users.txt",
        password_file: "/etc/weir/weir-monitor.txt",
    })
}

fn parsed(converted: &Converted) -> Config {
    match Config::parse_toml(&converted.toml, "weir.toml") {
        Ok(config) => config,
        Err(error) => panic!("{error}\n{}", converted.toml),
    }
}

/// Converts a text that is valid, and checks what holds for each conversion.
fn checked(text: &str) -> (Config, Converted) {
    let done = converted(text).unwrap_or_else(|broken| panic!("{broken}"));
    let config = parsed(&done);
    let shown = format!("{}{}{done:?}", done.toml, done.report);
    assert!(!shown.contains("watch-me"), "a password is shown: {shown}");
    (config, done)
}

/// Returns a parameter's part and the reason.
fn fate(done: &Converted, name: &str) -> (Part, String) {
    let entry = done.report.entries.iter().find(|entry| entry.name == name);
    let entry = entry.unwrap_or_else(|| panic!("{name} is not in the report"));
    (entry.part, entry.why.clone())
}

#[test]
fn each_parameter_of_the_samples_is_in_the_table() {
    for file in files("samples") {
        let text = fs::read_to_string(&file).expect("it can be read");
        let (config, done) = checked(&text);
        let unknown: Vec<_> =
            done.report.entries.iter().filter(|it| it.why.contains("has this name")).collect();
        assert_eq!(unknown, Vec::<&weir_pgpool::Entry>::new(), "{}", file.display());
        assert!(done.report.entries.len() > 180, "{}", file.display());
        assert_eq!(config.clusters["main"].nodes.len(), 2);
    }
}

#[test]
fn configurations_of_operators_are_converted() {
    for file in files("operators") {
        let text = fs::read_to_string(&file).expect("it can be read");
        let (config, done) = checked(&text);
        let set = text.lines().filter(|line| line.contains('=') && !line.starts_with('#'));
        assert_eq!(done.report.entries.len(), set.count(), "{}", file.display());
        assert!(config.fallback.is_some(), "{}", file.display());
    }
}

fn operator(name: &str) -> (Config, Converted) {
    let text = fs::read_to_string(folder("operators").join(name)).expect("it can be read");
    checked(&text)
}

#[test]
fn a_cluster_keeps_its_nodes_and_its_login() {
    let (config, done) = operator("watchdog.conf");
    let global = &config.global;
    assert_eq!((global.listen_port, global.max_client_conn), (9999, 190));
    assert_eq!((global.default_pool_size, global.max_server_connections), (200, 2400));
    assert_eq!(
        (global.unix_socket_dir.as_str(), global.unix_socket_mode),
        ("/run/postgresql", 0o770)
    );
    assert_eq!((global.pcp_port, global.pcp_compat.to_string().as_str()), (9898, "4.4"));
    let cluster = &config.clusters["main"];
    let nodes: Vec<_> = cluster.nodes.iter().map(ToString::to_string).collect();
    assert_eq!(nodes, ["node0=alpha:5432", "node1=beta:5432", "node2=gamma:5432"]);
    assert_eq!((cluster.user.as_str(), cluster.password_file.as_deref()), ("pgpool", None));
    let rejoin = cluster.rejoin_command.as_deref().expect("it is set");
    assert_eq!(
        rejoin,
        "/etc/pgpool-II/follow_primary.sh ${WEIR_NODE#node} $WEIR_HOST $WEIR_PORT \
         /var/lib/pgsql/16/data ${WEIR_NEW_NODE#node} $WEIR_NEW_HOST ${WEIR_NODE#node} \
         ${WEIR_NODE#node} $WEIR_NEW_PORT /var/lib/pgsql/16/data"
    );
    assert_eq!(fate(&done, "delegate_ip").0, Part::Without);
    assert_eq!(fate(&done, "auto_failback").0, Part::Changed);
    let report = done.report.to_string();
    for text in ["pool_hba.conf:4", "pcp.conf:3", "failover_command is not used", "PAM"] {
        assert!(report.contains(text), "{text}: {report}");
    }
    assert_eq!(
        done.auth_file.expect("there are users"),
        "\"alice\" \"watch-me-5\"\n\"bob\" \"md5aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"\n\
         \"pgpool\" \"watch-me-6\"\n\"carol\" \"key watch-me-7\"\n"
    );
}

#[test]
fn reads_keep_their_limits_and_lists() {
    let (config, done) = operator("lagging.conf");
    let database = config.fallback.as_ref().expect("the entry *");
    assert_eq!((database.max_lag_bytes, database.max_staleness.as_millis()), (10_000_000, 1_500));
    assert_eq!(database.balance.to_string(), "statement");
    let weights: Vec<_> = config.clusters["main"].nodes.iter().map(|node| node.weight).collect();
    assert_eq!(weights, [0, 100, 43]);
    assert_eq!(done.password_file.as_deref(), Some("watch-me-3\n"));
    assert_eq!(fate(&done, "prefer_lower_delay_standby").0, Part::Without);

    let (config, done) = operator("redirect.conf");
    let database = config.fallback.as_ref().expect("the entry *");
    assert_eq!(database.standby_functions, ["get_*", "order_total"]);
    let is_primary = |text: &str| database.primary_texts.iter().any(|it| it.matches(text));
    assert!(is_primary("select NEXT_JOB(1)\n, 2") && is_primary("select 1 for reporting"));
    assert!(!is_primary("select next_job"));
    let is_primary = |name: &str| database.primary_applications.iter().any(|it| it.matches(name));
    assert!(is_primary("psql") && is_primary("pg_dump") && !is_primary("psql2"));
    assert_eq!(config.databases["postgres"].reads.to_string(), "primary");
    assert_eq!(config.databases["reports"].reads.to_string(), "standby");
    assert_eq!(config.users["reader"].reads.map(|it| it.to_string()).as_deref(), Some("standby"));
    let report = done.report.to_string();
    for text in ["mydb[01]:1", "stats:standby(0.5)", "myapp[0-4]:1", "batch[0-9]:0", "a{1,3}"] {
        assert!(report.contains(&format!("{text:?}")), "{text}: {report}");
    }
}

#[test]
fn what_weir_is_not_for_gives_the_first_node() {
    let (config, done) = operator("replicating.conf");
    let host = config.fallback.as_ref().expect("the entry *").hosts.clone();
    assert_eq!(host.iter().map(ToString::to_string).collect::<Vec<_>>(), ["left"]);
    assert_eq!(fate(&done, "backend_clustering_mode").0, Part::Without);
    assert_eq!(fate(&done, "backend_hostname1").0, Part::Without);
    let (config, done) = operator("cache.conf");
    assert!(config.clusters.is_empty());
    assert_eq!(config.global.server_idle_timeout.as_secs(), 60);
    assert_eq!(fate(&done, "memory_cache_enabled").0, Part::Without);
    let (config, _) = operator("spare.conf");
    let cluster = &config.clusters["main"];
    assert_eq!((cluster.user.as_str(), cluster.dbname.as_str()), ("checker", "app"));
    let (_, done) = checked("my_own = 1\n");
    assert!(done.toml.contains("host = \"localhost\""), "{}", done.toml);
    assert_eq!(fate(&done, "my_own").0, Part::Without);
}

#[test]
fn logins_follow_the_files() {
    let (config, _) = operator("endpoints.conf");
    assert_eq!(config.global.auth_type.to_string(), "md5");
    let (config, done) = operator("repmgr.conf");
    assert_eq!(config.global.auth_type.to_string(), "server");
    assert_eq!(fate(&done, "load_balance_mode").0, Part::Without);
    let (config, _) = operator("tls.conf");
    assert_eq!(config.global.client_tls_sslmode.to_string(), "prefer");
    assert_eq!(config.global.client_tls_key_file, "/etc/pgpool2/server.key");
    assert_eq!(config.global.auth_hba_file, "/etc/pgpool2/pool_hba.conf");
    assert!(config.global.syslog && config.global.syslog_facility == "local3");
}

/// The colons of a verifier may lack their backslashes. A part of one would be a plain password.
#[test]
fn a_scram_verifier_is_whole_or_refused() {
    const VERIFIER: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
        WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
    let with = |line: &str| converted_with("", HBA, &format!("a:TEXTx\n{line}\n"));
    let escaped = VERIFIER.replace(':', "\\:");
    for line in [format!("dora:{VERIFIER}"), format!("dora:{escaped}")] {
        let done = with(&line).expect("it is whole");
        let users = done.auth_file.expect("it has users");
        assert!(users.contains(&format!("\"dora\" \"{VERIFIER}\"\n")), "{line}: {users}");
    }
    for line in [
        "dora:SCRAM-SHA-256$4096",
        "dora:SCRAM-SHA-256$4096:c2FsdA==$c3RvcmVk",
        "dora:SCRAM-SHA-256$x:y",
    ] {
        let broken = with(line).expect_err(line);
        assert_eq!(broken.place.line, 2, "{line}: {broken}");
        assert!(broken.why.contains("is not complete"), "{line}: {broken}");
    }
}

/// Without its line, those clients would be let in by the next one.
#[test]
fn a_line_that_refuses_clients_does_not_vanish() {
    let hba = |line: &str| {
        converted_with("enable_pool_hba = on", &format!("{line}\nhost all all all md5\n"), USERS)
    };
    let broken = hba("host all all samenet reject").expect_err("Weir has no such rule");
    assert_eq!(broken.place.line, 1, "{broken}");
    assert!(broken.why.contains("this line refuses clients"), "{broken}");
    assert!(hba("host all all 192.0.2.0/24 reject").is_ok());
    assert!(hba("host all all samenet md5").is_ok());
}

#[test]
fn mistakes_are_told_with_their_lines() {
    let cases = [
        ("port 1\n= 3\n", 2, "expected NAME = VALUE"),
        ("port = 1\npid = 'x\n", 2, "the quote of pid is not closed"),
        ("\nport = many\n", 2, "expected a port"),
        ("port = 0\n", 1, "expected a port"),
        ("ssl = perhaps", 1, "expected on or off"),
        ("client_idle_limit = 5 # a\nclient_idle_limit = soon\n", 2, "expected a time"),
        ("backend_hostname0 = 'a,b'\n", 1, "is no host name"),
        ("backend_hostname0 = a\nbackend_hostname1 = a\n", 2, "the address of node 0"),
        ("include 'other.conf'\n", 1, "there are no files"),
        ("sr_check_user = u\nbackend_hostname0 = a\nsr_check_password = 'AES?'\n", 3, "in base64"),
    ];
    for (text, line, why) in cases {
        let broken = converted(text).expect_err(text);
        assert_eq!(broken.place.line, line, "{text}: {broken}");
        assert!(broken.why.contains(why), "{text}: {broken}");
    }
}

#[test]
fn files_include_files() {
    let include = |name: &str, from: &str| match name {
        "a.conf" | "b.conf" => Ok((format!("{from}/{name}"), "port = 2\ninclude c\n".to_owned())),
        "c" => Ok(("c".to_owned(), "PORT 3".to_owned())),
        _ => Ok(("loop".to_owned(), "include loop\ninclude loop".to_owned())),
    };
    let settings = Settings::parse("port = 1\ninclude = 'a.conf'", "f", &include).expect("valid");
    let port = settings.get("port").expect("it is set");
    assert_eq!((port.value.as_str(), &*port.place.file, port.place.line), ("3", "c", 1));
    assert_eq!(settings.effective().count(), 1);
    let broken = Settings::parse("include loop", "f", &include).expect_err("it has no end");
    assert!(broken.why.contains("too many files"), "{broken}");
}

#[test]
fn values_are_read_as_pgpool_reads_them() {
    let text = "a=1 b = 'x y' # c\n  C\t'it\\'s' d=10.0.0.1#e\r\nf =\ng 'a\\'\nh = 'b'\nh = ''\n";
    let settings = Settings::parse(text, "f", &no_include).expect("valid");
    let all: Vec<_> = settings
        .effective()
        .map(|it| (it.name.as_str(), it.value.as_str(), it.place.line))
        .collect();
    let expected = [
        ("a", "1", 1),
        ("b", "x y", 1),
        ("c", "it\\'s", 2),
        ("d", "10.0.0.1", 2),
        ("f", "", 3),
        ("g", "a\\", 4),
        ("h", "", 6),
    ];
    assert_eq!(all, expected);
}

#[test]
fn the_table_has_each_name_once_and_fits_the_documentation() {
    let names: Vec<_> = rows().map(|row| row.base()).collect();
    for (at, name) in names.iter().enumerate() {
        assert!(!names[..at].contains(name), "{name} is there twice");
        assert_eq!(*name, name.to_ascii_lowercase());
    }
    for row in rows() {
        assert_eq!(row.part == Part::Without, row.keys.is_empty() && row.part != Part::Changed);
        assert!(row.part == Part::Kept || !row.why.is_empty(), "{} has no reason", row.name);
        for key in row.keys.split(", ").filter(|key| !["", "clusters"].contains(key)) {
            assert!(config::help(key).is_ok(), "{}: {key} is no key of Weir", row.name);
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pgpool.md");
    let text = fs::read_to_string(&file).expect("it can be read");
    let (begin, end) = ("<!-- parameters -->\n", "<!-- end of parameters -->");
    let (before, rest) = text.split_once(begin).expect("the mark is there");
    let (_, after) = rest.split_once(end).expect("the mark is there");
    let fresh = format!("{before}{begin}{}{end}{after}", markdown());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&file, fresh).expect("it can be written");
    } else {
        assert!(text == fresh, "docs/pgpool.md is old: UPDATE_DOCS=1 cargo test -p weir-pgpool");
    }
}

/// Checks a text that may be anything.
fn try_any(text: &str) {
    if let Ok(done) = converted(text) {
        parsed(&done);
        let _ = done.report.to_string();
    }
}

/// Names of parameters with values that are mostly wrong.
fn lines() -> impl Strategy<Value = String> {
    let names: Vec<_> = rows().map(|row| row.base()).collect();
    let value = prop_oneof![
        "[0-9]{1,20}(ms|s|min|MB)?",
        "'[a-z/:,*=.(){}$%\\\\ 0-9\\[\\]]{0,20}'",
        Just("on".to_owned()),
        Just("'streaming_replication'".to_owned()),
        "\\PC{0,10}",
    ];
    let line = (prop::sample::select(names), "[0-3]?", value)
        .prop_map(|(name, number, value)| format!("{name}{number} = {value}\n"));
    let nodes = "backend_hostname0 = a\nbackend_hostname1 = b\n";
    prop::collection::vec(line, 0..12).prop_map(move |lines| format!("{nodes}{}", lines.concat()))
}

proptest! {
    #[test]
    fn any_text_is_converted_or_refused(text in any::<String>()) {
        try_any(&text);
    }

    #[test]
    fn any_values_are_converted_or_refused(text in lines()) {
        try_any(&text);
    }
}
