//! The methods of `pg_hba.conf` beside passwords, `pg_ident.conf`, and the right to connect.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::{
    Authority, Builtin, Identity, Postgres, RawClient, Role, ServerError, Version, Wanted,
    eventually, folder, give_away, open_folder,
};

use crate::support;

const PATIENCE: Duration = Duration::from_secs(5);
/// A change of the catalogs is seen within a second, and a login takes some time.
const SOON: Duration = Duration::from_millis(1500);

/// Waits until this is the SQLSTATE of a login; empty if it succeeds.
#[track_caller]
fn until_code(code: &str, mut login: impl FnMut() -> Result<RawClient, ServerError>) -> Duration {
    let began = Instant::now();
    eventually(&format!("the login gives {code:?}"), PATIENCE, || {
        let got = login().map_or_else(|error| error.code().to_owned(), |_| String::new());
        (got == code).then_some(())
    });
    began.elapsed()
}

#[test]
fn the_right_to_connect_is_judged_at_each_login_core_strict() {
    if !support::only_weir() {
        return;
    }
    for version in [Version::Installed, Version::Eighteen] {
        let server = Builtin::start(version, "");
        server.wait_until_serving();
        let database = server.database();
        server.sql("postgres", "CREATE ROLE kin; CREATE ROLE guest LOGIN PASSWORD 'x'");
        let login = |password: &str| server.login("guest", &database, password);
        until_code("", || login("x"));
        // The pool has a server connection from now on, so PostgreSQL is not asked.
        login("x").expect("all may connect").rows("SELECT 1");
        for (change, code) in [
            (format!("REVOKE CONNECT ON DATABASE {database} FROM PUBLIC"), "42501"),
            (format!("GRANT CONNECT ON DATABASE {database} TO kin; GRANT kin TO guest"), ""),
            ("REVOKE kin FROM guest".to_owned(), "42501"),
            ("ALTER ROLE guest SUPERUSER".to_owned(), ""),
            ("ALTER ROLE guest NOSUPERUSER".to_owned(), "42501"),
        ] {
            server.sql("postgres", &change);
            let took = until_code(code, || login("x"));
            assert!(took < SOON, "{version:?}, {change}: it took {took:?}");
        }
        let error = login("x").expect_err("it may not connect");
        let text = format!("permission denied for database \"{database}\"");
        assert_eq!((error.severity(), error.message()), ("FATAL", &*text));
        // A client that has not proved its name learns nothing about rights.
        assert_eq!(login("wrong").expect_err("it is refused").code(), "28P01");
        assert!(server.login("guest", "postgres", "x").is_ok());
    }
}

#[test]
fn names_are_cut_as_the_server_does() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("");
    let long = "n".repeat(70);
    server.sql("postgres", &format!("CREATE ROLE {long} LOGIN PASSWORD 'x'"));
    server.sql("postgres", &format!("CREATE DATABASE {long}"));
    until_code("", || server.login(&long, "postgres", "x"));
    let mut client = server.login(&long, &long, "x").expect("both names are cut");
    assert_eq!(client.value("SELECT current_user = repeat('n', 63)"), "t");
    assert_eq!(client.value("SELECT current_database() = repeat('n', 63)"), "t");
}

/// Writes pg_ident.conf with the names of the system's users of the server and of this test.
fn write_maps(server: &Builtin, text: &str) {
    let own = support::run(Command::new("id").arg("-un"));
    let servers = fs::metadata(server.data()).expect("it is there").uid();
    let servers = support::run(Command::new("id").args(["-un", &servers.to_string()]));
    let text = text.replace("OWN", own.trim()).replace("SERVER", servers.trim());
    fs::write(server.data().join("pg_ident.conf"), text).expect("cannot write the maps");
}

fn local_login(server: &Builtin, user: &str) -> Result<RawClient, ServerError> {
    let mut client = RawClient::connect_unix(server.socket_folder(), server.pooler_port())
        .expect("the pooler has a socket beside the server's");
    client.authenticate(&[("user", user), ("database", "postgres")], "").map(|_| client)
}

#[test]
fn maps_say_whom_a_system_user_may_be() {
    if !support::only_weir() {
        return;
    }
    for version in [Version::Installed, Version::Eighteen] {
        let server = Builtin::start(version, "");
        server.wait_until_serving();
        server.sql("postgres", "CREATE ROLE mapped LOGIN; CREATE ROLE other LOGIN");
        write_maps(&server, "weir SERVER mapped\nweir OWN mapped\nelse OWN other\n");
        // The other local rule makes Weir use the unix socket itself.
        let rules = "local all mapped,other peer map=weir\nlocal all all scram-sha-256\n\
                     host all all 127.0.0.1/32 scram-sha-256";
        server.set_rules(rules);
        until_code("", || local_login(&server, "mapped"));
        let mut client = local_login(&server, "mapped").expect("the map has it");
        assert_eq!(client.value("SELECT current_user"), "mapped", "{version:?}");
        let refused = local_login(&server, "other").expect_err("it is in another map");
        assert_eq!(refused.message(), "unix socket login rejected", "{version:?}");
        assert!(server.login(Role::APP, "postgres", Role::APP_PASSWORD).is_ok());
        // A regular expression cannot be judged, so the rule refuses and says so.
        write_maps(&server, "weir /^(.*)$ \\1\nweir SERVER mapped\n");
        server.reload();
        until_code("28000", || local_login(&server, "mapped"));
        eventually("the line is named", PATIENCE, || {
            let error = local_login(&server, "mapped").err()?;
            let text = "the method \"peer\" of line 2 of pg_hba.conf, or one of its options";
            error.message().contains(text).then_some(())
        });
        // A mistake leaves the maps as they were; no line leaves the map empty.
        write_maps(&server, "weir\n");
        server.reload();
        server.log_contains(&["pg_ident.conf was not reloaded"]);
        write_maps(&server, "");
        server.reload();
        eventually("nobody is in the map", PATIENCE, || {
            let error = local_login(&server, "mapped").err()?;
            (error.message() == "unix socket login rejected").then_some(())
        });
    }
}

/// With Debian's rules the administrator's first try is peer, but Weir's own login is by password.
#[test]
fn a_client_of_peer_learns_why_a_password_is_wanted() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::start(Version::Installed, "");
    server.wait_until_serving();
    server.sql("postgres", "CREATE ROLE bare LOGIN; CREATE ROLE keyed LOGIN PASSWORD 'x'");
    write_maps(&server, "weir OWN bare\nweir OWN keyed\n");
    server.set_rules(
        "local all bare,keyed peer map=weir\nlocal all all peer\n\
         host all all 127.0.0.1/32 scram-sha-256",
    );
    for (role, text, has) in [
        ("bare", "password authentication failed for user \"bare\"", "Weir has none"),
        ("keyed", "server login failed: wrong password type", "Weir has only its SCRAM verifier"),
    ] {
        let error = eventually("the server asks for a password", PATIENCE, || {
            local_login(&server, role).err().filter(|error| error.message().contains(text))
        });
        let detail = error.field('D');
        assert!(detail.starts_with("PostgreSQL asked Weir for the user's password."), "{error:?}");
        assert!(detail.contains(has) && detail.contains("by peer"), "{error:?}");
        assert!(error.field('H').contains("pg_hba.conf"), "{error:?}");
        // The next client gets the same advice with the error that Weir has kept.
        let again = local_login(&server, role).expect_err("it is the same");
        assert!(again.message().contains("cached error"), "{again:?}");
        assert_eq!((again.field('D'), again.field('H')), (detail, error.field('H')));
    }
}

#[test]
fn a_map_may_name_all_roles_and_groups_from_16_on() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::start(Version::Eighteen, "");
    server.wait_until_serving();
    server.sql("postgres", "CREATE ROLE kin; CREATE ROLE mapped LOGIN; CREATE ROLE other LOGIN");
    server.sql("postgres", "GRANT kin TO mapped");
    let rules = "local all all peer map=weir\nhost all all 127.0.0.1/32 scram-sha-256";
    for (maps, mapped, other) in [
        ("weir OWN +kin\nweir SERVER +kin\n", "", "28000"),
        ("weir OWN all\nweir SERVER all\n", "", ""),
        ("weir OWN /^oth\nweir SERVER /^oth\n", "28000", ""),
    ] {
        write_maps(&server, maps);
        server.set_rules(rules);
        until_code(mapped, || local_login(&server, "mapped"));
        until_code(other, || local_login(&server, "other"));
    }
}

/// Logs in with a certificate; returns what psql says.
fn psql_with(server: &Builtin, identity: &Identity) -> String {
    let output = support::run_any(
        Postgres::client_program("psql", server.pooler_port(), "postgres")
            .env("PGUSER", "certain")
            .env("PGSSLMODE", "require")
            .env("PGSSLCERT", identity.certificate())
            .env("PGSSLKEY", identity.key())
            .args(["-XAtc", "SELECT current_user"]),
    );
    let said = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&said).trim().to_owned()
}

#[test]
fn a_certificate_proves_its_common_name_only() {
    if !support::only_weir() {
        return;
    }
    let authority = Authority::new("weir test");
    let server = Builtin::serving("");
    server.offer_tls(&authority.server());
    server.set("ssl_ca_file", authority.file());
    server.sql("postgres", "CREATE ROLE certain LOGIN");
    write_maps(&server, "weir SERVER certain\n");
    server.set_rules(
        "local all certain peer map=weir\nlocal all all scram-sha-256\n\
         hostssl all certain 127.0.0.1/32 cert\nhost all all 127.0.0.1/32 scram-sha-256",
    );
    let own = authority.user("certain");
    eventually("the certificate lets in", PATIENCE, || {
        (psql_with(&server, &own) == "certain").then_some(())
    });
    let alias = authority.issue(&Wanted { name: "other", hosts: &["certain"], expired: false });
    let failed = "certificate authentication failed";
    assert!(psql_with(&server, &alias).contains(failed), "a DNS name is no user");
    let strangers = Authority::new("another").user("certain");
    assert!(!psql_with(&server, &strangers).starts_with("certain"));
    // Weir has no lists of revoked certificates.
    server.set("ssl_crl_file", &authority.revoke(&alias));
    eventually("the rule refuses", PATIENCE, || {
        psql_with(&server, &own).contains("the method \"cert\" of line 4").then_some(())
    });
}

#[test]
fn pam_is_asked_by_the_service_of_the_rule() {
    if !support::only_weir() {
        return;
    }
    let services = open_folder("pam");
    let judge = services.join("judge");
    let script = "#!/bin/sh\nread -r said\n[ \"$said $PAM_RHOST\" = 'right 127.0.0.1' ]\n";
    fs::write(&judge, script).expect("our own folder");
    fs::set_permissions(&judge, fs::Permissions::from_mode(0o755)).expect("our own file");
    let asks = format!(
        "auth required pam_exec.so quiet expose_authtok {}\naccount required pam_permit.so\n",
        judge.display()
    );
    let denies = "auth required pam_deny.so\naccount required pam_deny.so\n";
    fs::write(services.join("postgresql"), asks).expect("our own folder");
    fs::write(services.join("other"), denies).expect("our own folder");
    let file = folder("settings").join("weir.ini");
    write_to(&file, &format!("auth_pam_confdir = {}\n", services.display()));
    let server = Builtin::serving(&format!("weir.config_file = '{}'", file.display()));
    server.sql("postgres", "CREATE ROLE known LOGIN PASSWORD 'right'");
    let rules = |options: &str| {
        let rule = format!("host all known,unknown 127.0.0.1/32 pam {options}");
        server.set_rules(&format!("local all all scram-sha-256\n{rule}"));
    };
    let login = |user: &str, password: &str| server.login(user, "postgres", password);
    rules("");
    until_code("", || login("known", "right"));
    let mut client = login("known", "right").expect("PAM lets it in");
    assert_eq!(client.value("SELECT current_user"), "known");
    let wrong = login("known", "wrong").expect_err("PAM refuses");
    assert_eq!(wrong.message(), "PAM authentication failed");
    // PAM would accept the password of this name, but there is no such role.
    assert_eq!(login("unknown", "right").expect_err("no role").code(), "28000");
    rules("pamservice=other");
    until_code("28000", || login("known", "right"));
    rules("pam_use_hostname=1");
    eventually("the line is named", PATIENCE, || {
        let error = login("known", "right").err()?;
        error.message().contains("the method \"pam\" of line 3 of pg_hba.conf").then_some(())
    });
}

fn write_to(file: &Path, text: &str) {
    fs::write(file, text).expect("cannot write the file");
    give_away(file);
}

#[test]
fn the_sockets_file_has_the_group_and_permissions_of_the_servers() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("");
    let uid = fs::metadata(server.data()).expect("it is there").uid().to_string();
    let groups = support::run(Command::new("id").args(["-G", &uid]));
    let Some(group) = groups.split_whitespace().nth(1) else {
        eprintln!("left out: the server's system user is in one group only");
        return;
    };
    server.configure(&format!("unix_socket_group = '{group}'\nunix_socket_permissions = 0770"));
    server.stop_by("INT");
    server.launch();
    server.wait_until_serving();
    let file = |port: u16| {
        let path = server.socket_folder().join(format!(".s.PGSQL.{port}"));
        let known = fs::metadata(path).expect("it listens");
        (known.gid().to_string(), known.mode() & 0o777)
    };
    assert_eq!(file(server.pooler_port()), (group.to_owned(), 0o770));
    assert_eq!(file(server.pooler_port()), file(server.port()));
}

#[test]
fn the_views_are_in_the_encoding_of_the_database() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("");
    server.sql(
        "postgres",
        "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0",
    );
    server.sql(
        "postgres",
        "CREATE DATABASE utf ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0",
    );
    server.create_functions("latin");
    let mut utf = server.superuser("utf");
    utf.rows("SET client_encoding = 'UTF8'");
    utf.rows(
        "CREATE ROLE \"j\u{fc}\" LOGIN PASSWORD 'x'; CREATE ROLE \"j\u{20ac}\" LOGIN PASSWORD 'x'",
    );
    utf.rows("CREATE DATABASE \"d\u{fc}\" TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'");
    until_code("", || server.login("j\u{20ac}", "d\u{fc}", "x"));
    let mut clients = ["j\u{fc}", "j\u{20ac}"].map(|user| {
        let mut client = server.login(user, "d\u{fc}", "x").expect("it is let in");
        client.rows("SELECT 1");
        client
    });
    let mut latin = server.superuser("latin");
    let named = |name: &str| {
        format!(
            "SELECT count(*) FROM weir_clients WHERE \"user\" = {name} AND database = 'd' || chr(252)"
        )
    };
    assert_eq!(latin.value(&named("'j' || chr(252)")), "1");
    assert_eq!(latin.value(&named("'j?'")), "1");
    latin.rows("SELECT weir_pause('d' || chr(252))");
    latin.rows("SELECT weir_resume('d' || chr(252))");
    assert_eq!(clients[0].value("SELECT 1"), "1");
}
