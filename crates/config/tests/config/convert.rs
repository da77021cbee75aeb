//! `weir convert`: what a `pgbouncer.ini` says, its `weir.toml` says too.

use std::path::Path;
use std::{fs, io};

use config::{Config, Effect, Key, Kind, Scope};
use proptest::prelude::*;

use crate::{ini, toml};

/// The configuration and what is made of it, both without what only a file has.
fn there_and_back(config: Config) -> (Config, Config, String) {
    let text = config::to_toml(&config);
    let back = Config::parse_toml(&text, "weir.toml");
    let back = back.unwrap_or_else(|error| panic!("{error}\n{text}"));
    (Config { path: None, warnings: Vec::new(), ..config }, back, text)
}

fn survives(text: &str) -> String {
    let (before, after, converted) = there_and_back(ini(text));
    assert_eq!(before, after, "{text}\n{converted}");
    converted
}

#[test]
fn files_of_many_kinds_mean_the_same_as_toml() {
    for text in [
        "[pgbouncer]\n",
        "[pgbouncer]\nlisten_addr = *\nlisten_port = 0x1920\nunix_socket_mode = 0770\n",
        "[pgbouncer]\nlisten_addr =\nunix_socket_dir =\n[databases]\na = host=h\n",
        "[pgbouncer]\nunix_socket_dir = @weir\n[databases]\na =\nb = host=@weir\nc = host=/tmp\n",
        "[pgbouncer]\nquery_timeout = 0.000001\nserver_lifetime = 1234567.5\ndns_max_ttl = 99999999\n",
        "[pgbouncer]\nserver_check_query =\nserver_reset_query = SELECT \"a\\b\" -- 'c'\t#d\n",
        "[pgbouncer]\nauth_file =\nverbose = 2\nlog_stats = 0\ntcp_keepalive = 3\n",
        "[pgbouncer]\nauth_type = scram-sha-256\nadmin_users = a, b ,c\nstats_users = ä\n",
        "[pgbouncer]\npool_mode = STATEMENT\nconnect_query = x\n"
            .replace("connect_query = x\n", "")
            .as_str(),
        "[databases]\n'my db' = host=h dbname=x\na.b = pool_size=0 pool_mode=session\n[pgbouncer]\n",
        "[databases]\n* = host=a,b,/c port=1 user=u password='p''\\\" q'\n[pgbouncer]\n",
        "[databases]\nd = connect_query='SELECT ''x''' server_lifetime=5 reserve_pool=7 max_db_connections=0\n[pgbouncer]\n",
        "[users]\nu = pool_mode=transaction query_timeout=1.25 max_user_connections=-1\n'x y' =\n[pgbouncer]\n",
        "[peers]\n1 = host=/run/one\n16383 = host=h port=9 pool_size=2\n[pgbouncer]\npeer_id = 1\n",
    ] {
        survives(text);
    }
}

#[test]
fn a_toml_is_written_as_people_write_it() {
    let text = survives(
        "[pgbouncer]\nlisten_addr = 127.0.0.1, ::1\nlisten_port = 6000\nlog_stats = 0\n\
         unix_socket_mode = 0700\nquery_timeout = 1.5\npool_mode = transaction\n\
         [databases]\nmy.db = host=h pool_size=7\n[peers]\n2 = host=other\n",
    );
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let expected = [
        "",
        "listen_addr = [\"127.0.0.1\", \"::1\"]",
        "listen_port = 6000",
        "log_stats = false",
        "pool_mode = \"transaction\"",
        "query_timeout = 1.5",
        "unix_socket_mode = 0o700",
        "",
        "[databases.\"my.db\"]",
        "host = [\"h\"]",
        "pool_size = 7",
        "",
        "[peers.2]",
        "host = [\"other\"]",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn what_the_new_file_cannot_say_is_told_by_comments() {
    let is_text = |key: &&Key| key.scope == Scope::Global && matches!(key.kind, Kind::Text);
    let key = |acts| {
        Key::all()
            .filter(is_text)
            .find(|key| (key.effect == Effect::Acts) == acts)
            .map(|key| key.name)
    };
    let (acting, idle) = (key(true).expect("a key that acts"), key(false));
    let key = idle.unwrap_or(acting);
    let text = format!(
        "[pgbouncer]\nconffile = old.ini\n{key} = other\n[databases]\na = host=x\na = host=y\n"
    );
    let mut config = ini(&text);
    config.path = Some("old.ini".into());
    let text = config::to_toml(&config);
    for told in [
        "# Made from old.ini by `weir convert`",
        "# test.ini:6: a: database defined again",
        "# conffile named the file this was made from",
    ] {
        assert!(text.contains(told), "{told}\n{text}");
    }
    assert!(!text.contains("\nconffile"), "{text}");
    let remark = text.contains(&format!("# Weir does not act on the next key\n{key} = \"other\""));
    assert_eq!(remark, idle.is_some(), "{text}");
}

#[test]
fn included_files_are_part_of_it() {
    let include = |path: &Path| match path.to_str() {
        Some("more.ini") => Ok("listen_port = 7000\n[databases]\na = host=y\n".to_owned()),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    let text = "[pgbouncer]\n%include more.ini\nb = host=x\n";
    let config = Config::parse_ini(text, "main.ini", &include).unwrap();
    let (before, after, _) = there_and_back(config);
    assert_eq!(before, after);
    assert_eq!(after.databases.len(), 2);
}

#[test]
fn a_file_that_was_read_can_be_converted() {
    let folder = std::env::temp_dir().join(format!("weir-convert-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("pgbouncer.ini");
    fs::write(&file, "[pgbouncer]\nauth_file = not-read\n[databases]\na = host=x\n").unwrap();
    let config = Config::read(&file).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    assert!(config.warnings.is_empty() && config.global.conffile.is_none());
    let (before, after, _) = there_and_back(config);
    assert_eq!(before, after);
}

/// A value of `key` that a file might have.
fn value(key: &'static Key) -> BoxedStrategy<String> {
    match (key.name, key.kind) {
        ("port" | "listen_port", _) => (1..=65_535_u32).prop_map(|port| port.to_string()).boxed(),
        ("peer_id", _) => (0..=16_383_u32).prop_map(|id| id.to_string()).boxed(),
        (_, Kind::Integer) => prop_oneof![
            any::<u32>().prop_map(|number| number.to_string()),
            any::<u32>().prop_map(|number| format!("0{number:o}")),
            any::<u32>().prop_map(|number| format!("0x{number:x}")),
        ]
        .boxed(),
        (_, Kind::Switch) => (0..3_u8).prop_map(|number| number.to_string()).boxed(),
        (_, Kind::Seconds) => prop_oneof![
            (0..1_u64 << 40).prop_map(|seconds| seconds.to_string()),
            (0..1_000_000_u32, 0..1_000_000_u32).prop_map(|(s, us)| format!("{s}.{us:06}")),
        ]
        .boxed(),
        // Some words of `auth_type` are refused still.
        ("auth_type", _) => prop::sample::select(vec!["any", "md5", "plain", "trust"])
            .prop_map(str::to_owned)
            .boxed(),
        ("client_tls_sslmode" | "server_tls_sslmode", _) => {
            prop::sample::select(vec!["disable", "allow", "prefer"]).prop_map(str::to_owned).boxed()
        }
        (_, Kind::Choice(words)) => {
            prop::sample::select(words.to_vec()).prop_map(str::to_owned).boxed()
        }
        ("host", _) => "[a-z/@][a-z0-9./]{0,9}(,[a-z/@][a-z0-9.]{0,9}){0,2}".boxed(),
        (_, Kind::List) => "[a-zä*]{1,9}( ?, ?[a-zä]{1,9}){0,3}".boxed(),
        (_, Kind::Text) => "[!-~ä]([^\0\r\n]{0,20}[!-~ä])?".boxed(),
    }
}

/// Some keys of `scope`, each with a value.
fn settings(scope: Scope) -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let keys: Vec<_> = Key::all().filter(|key| key.scope == scope).collect();
    let count = keys.len();
    prop::sample::subsequence(keys, 0..=count).prop_flat_map(|keys| {
        let settings =
            keys.into_iter().map(|key| value(key).prop_map(move |text| (key.name, text)));
        settings.collect::<Vec<_>>()
    })
}

fn entry(scope: Scope) -> impl Strategy<Value = String> {
    settings(scope).prop_map(|settings| {
        let pair = |(key, text): &(&str, String)| format!("{key}='{}'", text.replace('\'', "''"));
        settings.iter().map(pair).collect::<Vec<_>>().join(" ")
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_configuration_means_the_same_as_toml(
        global in settings(Scope::Global),
        databases in prop::collection::btree_map("[a-z ä.\"\\\\*]{1,9}", entry(Scope::Database), 0..3),
        users in prop::collection::btree_map("[a-z ä.\"\\\\]{1,9}", entry(Scope::User), 0..3),
        peer in entry(Scope::Peer),
    ) {
        let mut text = "[pgbouncer]\n".to_owned();
        for (key, value) in &global {
            text += &format!("{key} = {value}\n");
        }
        for (section, entries) in [("databases", &databases), ("users", &users)] {
            text += &format!("[{section}]\n");
            for (name, entry) in entries {
                text += &format!("'{name}' = {entry}\n");
            }
        }
        text += &format!("[peers]\n7 = host=h {peer}\n");
        let config = Config::parse_ini(&text, "f", &crate::no_file);
        let config = config.map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        let (before, after, converted) = there_and_back(config);
        prop_assert_eq!(before, after, "{}\n{}", text, converted);
    }

    #[test]
    fn odd_times_survive(micros in 0..1_u64 << 42) {
        let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
        let before = ini(&format!("[pgbouncer]\nquery_timeout = {text}\n"));
        let after = toml(&config::to_toml(&before));
        prop_assert_eq!(before.global, after.global);
    }
}
