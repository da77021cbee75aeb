//! TLS on both sides of the pooler, with certificates made for each test, psql and PostgreSQL.

mod certificates;
mod outside;
mod servers;

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::support;
use testkit::{Authority, Flavour, Identity, Pooler, Postgres, Setup, Wanted, eventually, flavour};

/// Returns a pooler with this certificate for clients.
fn setup(sslmode: &str, own: &Identity) -> (Setup, String) {
    let (setup, database) = support::setup("transaction");
    let setup = setup
        .set("client_tls_sslmode", sslmode)
        .set("client_tls_cert_file", own.certificate())
        .set("client_tls_key_file", own.key());
    (setup, database)
}

/// Returns psql that connects to `localhost`, with these additional variables.
fn psql(pooler: &Pooler, database: &str, environment: &[(&str, &str)]) -> Command {
    let mut command = pooler.client_program("psql", database);
    command.env("PGHOST", "localhost").args(["-X", "-At"]);
    command.envs(environment.iter().copied());
    command
}

fn run(command: &mut Command, sql: &str) -> Output {
    command.args(["-c", sql]).output().expect("psql runs")
}

#[track_caller]
fn value(command: &mut Command, sql: &str) -> String {
    let output = run(command, sql);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

#[track_caller]
fn refusal(command: &mut Command) -> String {
    let output = run(command, "SELECT 1");
    assert!(!output.status.success(), "let in");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_client_is_served_with_tls_and_without_core() {
    let authority = Authority::new("weir test");
    let (setup, database) = setup("allow", &authority.server());
    let pooler = setup.start();
    let verified = [("PGSSLMODE", "verify-full"), ("PGSSLROOTCERT", authority.file())];
    let conninfo = value(&mut psql(&pooler, &database, &verified), "\\conninfo");
    assert!(conninfo.contains("SSL connection") && conninfo.contains("TLSv1.3"), "{conninfo}");
    assert_eq!(value(&mut psql(&pooler, &database, &[("PGSSLMODE", "disable")]), "SELECT 2"), "2");
    pooler.log_contains("tls=TLSv1.3/TLS_AES_256_GCM_SHA384/ECDH=");
    pooler.log_contains("tls=no");
}

#[test]
fn a_key_may_be_for_root_only_where_root_starts_it() {
    if !testkit::is_root() {
        return;
    }
    let authority = Authority::new("weir test");
    let own = authority.server();
    let (setup, database) = setup("require", &own);
    let set = |command: &mut Command| assert!(command.status().expect("coreutils").success());
    set(Command::new("chown").args(["root:root", own.key()]));
    set(Command::new("chmod").args(["0600", own.key()]));
    let pooler = setup.from_root().start();
    assert_eq!(value(&mut psql(&pooler, &database, &[("PGSSLMODE", "require")]), "SELECT 2"), "2");
}

#[test]
fn a_terminate_need_not_wait_for_a_server() {
    if !support::only_weir() {
        return;
    }
    let authority = Authority::new("weir test");
    for protocols in ["tlsv1.2", "tlsv1.3"] {
        let (setup, database) = setup("allow", &authority.server());
        let setup = setup.set("default_pool_size", 1).set("client_tls_protocols", protocols);
        let pooler = setup.start();
        let mut busy = pooler.client(&database);
        busy.query("BEGIN");
        let leaving = || pooler.log().matches("closing because: client close request").count();
        for gone in 1..=3 {
            let mut command = psql(&pooler, &database, &[("PGSSLMODE", "require")]);
            assert!(run(&mut command, "\\conninfo").status.success());
            eventually("it has left", Duration::from_secs(20), || {
                (leaving() == gone).then_some(())
            });
        }
        busy.query("COMMIT");
    }
}

#[test]
fn required_tls_refuses_clients_without_it_core_strict() {
    let authority = Authority::new("weir test");
    let (setup, database) = setup("require", &authority.server());
    let pooler = setup.start();
    let refused = refusal(&mut psql(&pooler, &database, &[("PGSSLMODE", "disable")]));
    assert!(refused.contains("SSL required"), "{refused}");
    assert_eq!(value(&mut psql(&pooler, &database, &[("PGSSLMODE", "require")]), "SELECT 2"), "2");
    assert_eq!(pooler.unix_client(&database).value("SELECT 3"), "3");
}

#[test]
fn a_client_must_show_a_certificate_where_they_are_verified_core_strict() {
    let (authority, stranger) = (Authority::new("weir test"), Authority::new("somebody else"));
    let (setup, database) = setup("verify-full", &authority.server());
    let pooler = setup.set("client_tls_ca_file", authority.file()).start();
    let with = |own: &Identity| {
        let files = [("PGSSLCERT", own.certificate()), ("PGSSLKEY", own.key())];
        let mut command = psql(&pooler, &database, &[("PGSSLMODE", "require")]);
        command.envs(files);
        command
    };
    assert_eq!(value(&mut with(&authority.user("app")), "SELECT 2"), "2");
    let intermediate = authority.intermediate("between");
    assert_eq!(value(&mut with(&intermediate.user("app")), "SELECT 2"), "2");
    let expired = authority.issue(&Wanted { name: "app", hosts: &[], expired: true });
    for bad in [stranger.user("app"), expired] {
        refusal(&mut with(&bad));
    }
    refusal(&mut psql(&pooler, &database, &[("PGSSLMODE", "require")]));
    pooler.log_contains("TLS handshake failed");
}

#[test]
fn large_amounts_pass_in_both_directions() {
    let authority = Authority::new("weir test");
    let (setup, database) = setup("require", &authority.server());
    let pooler = setup.start();
    let required = [("PGSSLMODE", "require")];
    let row = "x".repeat(1000);
    let script = format!(
        "CREATE TABLE t (a text); COPY t FROM STDIN;\n{}\\.\nSELECT count(*) FROM t;",
        format!("{row}\n").repeat(20_000)
    );
    let mut command = psql(&pooler, &database, &required);
    let mut child = command
        .args(["-q", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("psql runs");
    std::io::Write::write_all(&mut child.stdin.take().expect("piped"), script.as_bytes())
        .expect("psql reads");
    let output = child.wait_with_output().expect("psql ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "20000");
    let all = value(&mut psql(&pooler, &database, &required), "SELECT a FROM t");
    assert!(all.lines().count() == 20_000 && all.lines().all(|line| line == row));
}

#[test]
fn a_query_over_tls_can_be_cancelled() {
    let authority = Authority::new("weir test");
    let (setup, database) = setup("require", &authority.server());
    let pooler = setup.start();
    let mut command = psql(&pooler, &database, &[("PGSSLMODE", "require")]);
    let child = command
        .args(["-c", "SELECT pg_sleep(100)"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("psql runs");
    support::until_running(&database, "SELECT pg_sleep(100)");
    let interrupted = Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status();
    assert!(interrupted.is_ok_and(|status| status.success()));
    let output = child.wait_with_output().expect("psql ends");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("canceling statement due to user request"), "{error}");
}

#[test]
fn the_console_speaks_tls_too() {
    let authority = Authority::new("weir test");
    let (setup, _) = setup("require", &authority.server());
    let pooler = setup.start();
    let mut command = psql(&pooler, "pgbouncer", &[("PGSSLMODE", "require"), ("PGUSER", "admin")]);
    command.env("PGPASSWORD", "admin");
    let version = value(&mut command, "SHOW VERSION");
    assert!(version.starts_with("PgBouncer 1."), "{version}");
}

#[test]
fn a_reload_shows_the_new_certificate_and_disturbs_nobody_core() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let own = old.server();
    let (setup, database) = setup("allow", &own);
    let pooler = setup.start();
    let trusting = |authority: &Authority| {
        let verified = [("PGSSLMODE", "verify-full"), ("PGSSLROOTCERT", authority.file())];
        let output = run(&mut psql(&pooler, &database, &verified), "SELECT 2");
        output.status.success()
    };
    assert!(trusting(&old) && !trusting(&new));
    let mut bystander = pooler.client(&database);
    bystander.query("BEGIN");
    new.server().replace(&own);
    pooler.admin("RELOAD");
    assert!(trusting(&new) && !trusting(&old));
    // A broken file changes nothing.
    std::fs::write(own.certificate(), "nonsense").expect("our own file");
    // PgBouncer reports success.
    let failed = pooler.try_admin("RELOAD").error.is_some();
    assert_eq!(failed, flavour() == Flavour::Weir);
    assert!(trusting(&new));
    pooler.log_contains("TLS configuration could not be reloaded, keeping old configuration");
    if flavour() == Flavour::Weir {
        // PgBouncer after 1.25 has the same line, with OpenSSL's text.
        std::fs::remove_file(own.certificate()).expect("our own file");
        assert!(pooler.try_admin("RELOAD").error.is_some());
        let missing = format!("{}: No such file or directory", own.certificate());
        pooler.log_contains(&format!("ERROR TLS setup failed: client_tls_cert_file: {missing}"));
        assert!(trusting(&new));
    }
    assert_eq!(bystander.value("SELECT 4"), "4");
}

#[test]
fn tls_settings_of_the_console_apply_at_once() {
    if !support::only_weir() {
        return;
    }
    let authority = Authority::new("weir test");
    let (setup, database) = setup("allow", &authority.server());
    let pooler = setup.set("client_tls_ca_file", authority.file()).start();
    let require = || psql(&pooler, &database, &[("PGSSLMODE", "require")]);
    assert_eq!(value(&mut require(), "SELECT 2"), "2");
    let mut console = pooler.console();
    let mut set = |what: &str| console.query(&format!("SET client_tls_{what}")).error.is_none();
    assert!(set("sslmode = 'verify-full'"));
    refusal(&mut require());
    let own = authority.user("app");
    let shown = || {
        let mut command = require();
        command.envs([("PGSSLCERT", own.certificate()), ("PGSSLKEY", own.key())]);
        command
    };
    assert_eq!(value(&mut shown(), "SELECT 2"), "2");
    // An invalid setting is refused, and everything stays as it was.
    assert!(!set("ca_file = '/nowhere'"));
    pooler.log_contains("client_tls_ca_file: /nowhere");
    refusal(&mut require());
    assert_eq!(value(&mut shown(), "SELECT 2"), "2");
}

/// The files for servers, and the authorities of clients, are judged like Weir's own certificate.
#[test]
fn a_reload_that_cannot_use_another_file_of_tls_fails_and_keeps_the_old_ones() {
    if !support::only_weir() {
        return;
    }
    let (authority, stranger) = (Authority::new("weir test"), Authority::new("somebody else"));
    let (own, user) = (authority.server(), authority.user("app"));
    let postgres = Postgres::start();
    postgres.offer_tls(&own);
    let database = postgres.database();
    let setup = Pooler::before(&postgres)
        .database(&database, "")
        .set("client_tls_sslmode", "allow")
        .set("client_tls_cert_file", own.certificate())
        .set("client_tls_key_file", own.key())
        .set("client_tls_ca_file", authority.file())
        .set("server_tls_sslmode", "verify-ca")
        .set("server_tls_ca_file", authority.file())
        .set("server_tls_cert_file", own.certificate())
        .set("server_tls_key_file", own.key());
    let mut pooler = setup.start();
    let nonsense = testkit::open_folder("nonsense").join("file");
    std::fs::write(&nonsense, "nonsense").expect("our own folder");
    let is_let_in = |pooler: &Pooler, own: &Identity| {
        let shown = [("PGSSLMODE", "require"), ("PGSSLCERT", own.certificate())];
        let mut command = psql(pooler, &database, &shown);
        run(command.env("PGSSLKEY", own.key()), "SELECT 2").status.success()
    };
    let files =
        ["client_tls_ca_file", "server_tls_ca_file", "server_tls_cert_file", "server_tls_key_file"];
    for key in files {
        let mut before = None;
        pooler.reconfigure(|ini| {
            before = Some(ini.clone());
            ini.set(key, nonsense.display());
        });
        let outcome = pooler.try_admin("RELOAD");
        assert!(outcome.error.is_some(), "{key}");
        let kept = "TLS configuration could not be reloaded, keeping old configuration";
        assert!(outcome.notices.iter().any(|notice| notice.contains(kept)), "{outcome:?}");
        pooler.log_contains(&format!("ERROR TLS setup failed: {key}: "));
        assert!(is_let_in(&pooler, &user) && !is_let_in(&pooler, &stranger.user("app")), "{key}");
        pooler.reconfigure(|ini| *ini = before.expect("it was kept"));
        pooler.reload();
    }
    pooler.log_contains("certificate verify failed: self-signed certificate");
}

/// The key and the certificate are set one after the other, in either order. The old pair is used
/// until both are set.
#[test]
fn a_key_and_its_certificate_can_be_set() {
    if !support::only_weir() {
        return;
    }
    for key_first in [true, false] {
        let (old, new) = (Authority::new("old"), Authority::new("new"));
        let (setup, database) = setup("allow", &old.server());
        let pooler = setup.start();
        let trusting = |authority: &Authority| {
            let verified = [("PGSSLMODE", "verify-full"), ("PGSSLROOTCERT", authority.file())];
            run(&mut psql(&pooler, &database, &verified), "SELECT 2").status.success()
        };
        let mut console = pooler.console();
        let own = new.server();
        let mut halves = [
            format!("SET client_tls_key_file = '{}'", own.key()),
            format!("SET client_tls_cert_file = '{}'", own.certificate()),
        ];
        if !key_first {
            halves.reverse();
        }
        let first = console.query(&halves[0]);
        assert!(first.error.is_none() && first.notices[0].contains("still using old"), "{first:?}");
        assert!(trusting(&old));
        // Other keys do not wait for a second half.
        assert!(console.query("SET client_tls_sslmode = 'require'").error.is_some());
        let second = console.query(&halves[1]);
        assert!(second.error.is_none() && second.notices.is_empty(), "{second:?}");
        assert!(trusting(&new) && !trusting(&old));
    }
}

#[test]
fn direct_tls_needs_no_request_but_the_name_of_the_protocol_core() {
    if !support::only_weir() {
        return;
    }
    let authority = Authority::new("weir test");
    let (setup, _) = setup("require", &authority.server());
    let pooler = setup.start();
    let connect = |protocol: &[&str]| {
        let mut command = Command::new("openssl");
        command
            .args(["s_client", "-connect", &format!("127.0.0.1:{}", pooler.port())])
            .args(protocol)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command.spawn().expect("openssl runs")
    };
    // The program ends at the end of its input.
    let heard = |child: std::process::Child| {
        let output = child.wait_with_output().expect("our own child");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let agreed = heard(connect(&["-alpn", "postgresql"]));
    assert!(agreed.contains("ALPN protocol: postgresql"), "{agreed}");
    let silent = connect(&[]);
    pooler.log_contains("direct TLS without the ALPN protocol");
    heard(silent);
    let other = heard(connect(&["-alpn", "http/1.1"]));
    assert!(!other.contains("CN = localhost"), "{other}");
}

#[test]
fn a_client_that_does_not_finish_its_handshake_is_let_go() {
    let authority = Authority::new("weir test");
    let (setup, _) = setup("allow", &authority.server());
    let pooler = setup.set("client_login_timeout", 1).start();
    let mut client = testkit::RawClient::connect(pooler.port());
    client.send(testkit::frontend::ssl_request());
    assert_eq!(client.read_byte(), b'S');
    eventually("it is closed", Duration::from_secs(20), || {
        client.read_raw_to_end().is_empty().then_some(())
    });
}

#[test]
fn invalid_handshakes_end_only_their_own_connection_strict() {
    let authority = Authority::new("weir test");
    let (setup, database) = setup("allow", &authority.server());
    let pooler = setup.set("client_login_timeout", 2).start();
    let mut at_work = pooler.client(&database);
    let record = |kind: u8, body: &[u8]| {
        [&[kind, 3, 1][..], &(body.len() as u16).to_be_bytes(), body].concat()
    };
    let hello = record(22, &[1, 0, 0, 2, 3, 3]);
    for bytes in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0; 4_096],
        vec![0xff; 20_000],
        record(22, &[]),
        record(22, &[1, 0, 0, 0]),
        record(22, &[1, 0xff, 0xff, 0xff]),
        record(22, &[1; 65_535]),
        record(20, &[1]),
        record(21, &[2, 40]),
        record(23, b"hello"),
        hello[..7].to_vec(),
        testkit::frontend::ssl_request(),
        testkit::frontend::startup(&[("user", "postgres")]),
    ] {
        let mut client = testkit::RawClient::connect(pooler.port());
        client.send(testkit::frontend::ssl_request());
        assert_eq!(client.read_byte(), b'S');
        // Weir may close the connection before everything is written. Unread bytes then reset the
        // connection.
        let _ = client.try_send(&bytes);
        client.stop_writing();
        client.read_raw_to_end();
        assert_eq!(at_work.value("SELECT 1"), "1", "{:?}", bytes.get(..16));
    }
    assert_eq!(value(&mut psql(&pooler, &database, &[("PGSSLMODE", "require")]), "SELECT 2"), "2");
}

#[test]
#[should_panic(expected = "client_tls_key_file and client_tls_cert_file must be set")]
fn without_its_files_tls_cannot_be_offered() {
    let (setup, _) = support::setup("transaction");
    setup.set("client_tls_sslmode", "require").start();
}
