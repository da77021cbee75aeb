//! `auth_type = ldap`, and `ldap` in rules: an LDAP server checks passwords.

pub(crate) mod directory;

use std::net::TcpListener;
use std::time::{Duration, Instant};

use self::directory::{Directory, READER_PASSWORD, bind_options, names, reader, search, url};
use super::requests;
use crate::support;
use testkit::{
    Authority, ManualAuthority, Pooler, Postgres, RawClient, Role, ServerAuth, Setup, open_folder,
};

const REFUSED: &str = "LDAP authentication failed";

/// Returns a pooler without users of its own.
fn setup(options: &str) -> (Setup, String) {
    let (setup, database) = support::setup("transaction");
    (setup.set("auth_type", "ldap").set("auth_ldap_options", options), database)
}

/// Returns a pooler with these rules.
fn ruled(rules: &str) -> (Setup, String) {
    let file = open_folder("ldap-rules").join("hba.conf");
    std::fs::write(&file, rules).expect("our own folder");
    let (setup, database) = support::setup("transaction");
    (setup.set("auth_type", "hba").set("auth_hba_file", file.display()), database)
}

/// Logs in. Returns the user's name in PostgreSQL, or the message of the refusal.
fn login(pooler: &Pooler, database: &str, user: &str, password: &str) -> Result<String, String> {
    let mut client = RawClient::connect(pooler.port());
    match client.authenticate(&[("user", user), ("database", database)], password) {
        Ok(messages) => {
            assert_eq!(requests(&messages), [3, 0], "asked for its password in clear");
            Ok(client.value("SELECT current_user"))
        }
        Err(error) => Err(error.message().to_owned()),
    }
}

#[track_caller]
fn check(pooler: &Pooler, database: &str, role: &Role) {
    let Role { name, password, .. } = role;
    assert_eq!(login(pooler, database, name, password).as_ref(), Ok(name), "{}", pooler.log());
    assert_eq!(login(pooler, database, name, "wrong"), Err(REFUSED.into()));
    assert_eq!(login(pooler, database, "nobody", password), Err(REFUSED.into()));
}

#[test]
fn a_password_is_valid_if_it_binds_to_ldap() {
    if !support::only_weir() {
        return;
    }
    let role = Postgres::shared().role(ServerAuth::Scram);
    let directory = Directory::start(&[&role], &Authority::new("weir test").server(), false);
    let (setup, database) = setup(&bind_options(directory.port));
    let pooler = setup.set("verbose", 3).start();
    check(&pooler, &database, &role);
    pooler.log_contains("LDAP login failed for user uid=");
    let empty = login(&pooler, &database, &role.name, "");
    assert_eq!(empty, Err("empty password returned by client".into()));
    assert_eq!(
        login(&pooler, &database, &role.name, &"x".repeat(65_536)),
        Err("password authentication failed".into())
    );
    // Only a client that has proven its identity learns that the database does not exist.
    assert_eq!(login(&pooler, "none", &role.name, "wrong"), Err(REFUSED.into()));
    assert_eq!(
        login(&pooler, "none", &role.name, &role.password),
        Err("no such database: none".into())
    );
    assert!(!pooler.log().contains(&role.password));
}

/// Tests the form for Active Directory, as a key and in a rule: the URL names only the server, and
/// Weir composes the name to bind as from prefix and suffix.
#[test]
fn a_url_may_stand_beside_prefix_and_suffix() {
    if !support::only_weir() {
        return;
    }
    let role = Postgres::shared().role(ServerAuth::Scram);
    let authority = Authority::new("weir test");
    let directory = Directory::start(&[&role], &authority.server(), false);
    for (scheme, port, more) in [
        ("ldap", directory.port, ""),
        ("ldap", directory.port, " ldaptls=1"),
        ("ldaps", directory.tls_port, ""),
    ] {
        let options = format!("ldapurl=\"{scheme}://127.0.0.1:{port}\" {}{more}", names());
        let rule = format!("host all all all ldap {options}\n");
        for (setup, database) in [setup(&options), ruled(&rule)] {
            let pooler = setup.environment("LDAPTLS_CACERT", authority.file()).start();
            check(&pooler, &database, &role);
        }
    }
}

#[test]
fn the_entry_to_bind_as_may_be_searched_for() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let (role, other) = (postgres.role(ServerAuth::Scram), postgres.role(ServerAuth::Password));
    let people = [&role, &other];
    let directory = Directory::start(&people, &Authority::new("weir test").server(), false);
    let port = directory.port;
    let by_mail = "ldapsearchfilter=\"(&(mail=$username)(objectClass=person))\"";
    for options in [
        search(port, &reader()),
        search(port, &format!("{} ldapsearchattribute=mail", reader())),
        search(port, &format!("{} {by_mail}", reader())),
        url(port),
    ] {
        let (setup, database) = setup(&options);
        let pooler = setup.set("verbose", 3).start();
        people.iter().for_each(|role| check(&pooler, &database, role));
        pooler.log_contains("LDAP user \"nobody\" does not exist");
        assert_eq!(login(&pooler, &database, "*", &role.password), Err(REFUSED.into()));
        pooler.log_contains("invalid character in user name for LDAP authentication");
        assert!(!pooler.log().contains(READER_PASSWORD));
    }

    let everybody = search(port, &format!("{} ldapsearchfilter=(sn=everybody)", reader()));
    let nobody_may = search(port, "");
    let stranger = search(port, "ldapbinddn=cn=stranger ldapbindpasswd=wrong");
    for (options, why) in [
        (everybody, "is not unique"),
        (nobody_may, "could not search LDAP"),
        (stranger, "could not perform initial LDAP bind"),
    ] {
        let (setup, database) = setup(&options);
        let pooler = setup.start();
        let answer = login(&pooler, &database, &role.name, &role.password);
        assert_eq!(answer, Err(REFUSED.into()), "{options}");
        pooler.log_contains(why);
    }
}

#[test]
fn ldap_over_tls_and_starttls_verify_the_server() {
    if !support::only_weir() {
        return;
    }
    let (authority, stranger) = (Authority::new("weir test"), Authority::new("somebody else"));
    let role = Postgres::shared().role(ServerAuth::Scram);
    // The server refuses passwords without TLS.
    let directory = Directory::start(&[&role], &authority.server(), true);
    let tls = bind_options(directory.tls_port);
    let start_tls = format!("{} ldaptls=1", bind_options(directory.port));
    for options in [format!("{tls} ldapscheme=ldaps"), start_tls] {
        let (setup, database) = setup(&options);
        let pooler = setup.environment("LDAPTLS_CACERT", authority.file()).start();
        check(&pooler, &database, &role);

        let (setup, database) = self::setup(&options);
        let pooler = setup.environment("LDAPTLS_CACERT", stranger.file()).start();
        let answer = login(&pooler, &database, &role.name, &role.password);
        assert_eq!(answer, Err(REFUSED.into()), "{options}");
        pooler.log_contains("could not connect to LDAP server");
    }
    let (setup, database) = setup(&bind_options(directory.port));
    let pooler = setup.start();
    let answer = login(&pooler, &database, &role.name, &role.password);
    assert_eq!(answer, Err(REFUSED.into()));
}

/// If TLS begins in the wrong way for the port, the login must fail, and soon.
#[test]
fn tls_on_the_other_port_is_refused() {
    if !support::only_weir() {
        return;
    }
    let authority = Authority::new("weir test");
    let role = Postgres::shared().role(ServerAuth::Scram);
    let directory = Directory::start(&[&role], &authority.server(), false);
    let (plain, tls) = (bind_options(directory.port), bind_options(directory.tls_port));
    for options in [
        format!("{plain} ldapscheme=ldaps"),
        format!("{tls} ldaptls=1"),
        // This is StartTLS within TLS.
        format!("{tls} ldapscheme=ldaps ldaptls=1"),
        format!("{plain} ldapscheme=ldaps ldaptls=1"),
    ] {
        let (setup, database) = setup(&options);
        let pooler = setup.environment("LDAPTLS_CACERT", authority.file()).start();
        let began = Instant::now();
        let answer = login(&pooler, &database, &role.name, &role.password);
        assert_eq!(answer, Err(REFUSED.into()), "{options}");
        assert!(began.elapsed() < Duration::from_secs(3), "{options}: {:?}", began.elapsed());
    }
}

/// libldap reads this configuration, and so PgBouncer does.
#[test]
fn openldaps_configuration_names_the_trusted_authorities() {
    if !support::only_weir() {
        return;
    }
    let (authority, stranger) = (Authority::new("weir test"), ManualAuthority::new("weir test"));
    let role = Postgres::shared().role(ServerAuth::Scram);
    // A certificate of version 1, which names the address in its common name.
    let directory = Directory::start(&[&role], &stranger.issue("127.0.0.1"), true);
    let options = format!("{} ldapscheme=ldaps", bind_options(directory.tls_port));
    let folder = open_folder("authorities");
    let own = std::fs::read(stranger.file()).expect("our own file");
    std::fs::write(folder.join("own.pem"), own).expect("our own folder");
    let conf = folder.join("ldap.conf");
    std::fs::write(&conf, "TLS_REQCERT never\n").expect("our own folder");
    let (conf, folder) = (conf.to_str().expect("plain"), folder.to_str().expect("plain"));
    for (variables, is_good) in [
        (&[("LDAPTLS_CACERT", stranger.file())][..], true),
        (&[("LDAPTLS_CACERT", authority.file())], false),
        (&[("LDAPTLS_CACERT", authority.file()), ("LDAPTLS_CACERTDIR", folder)], true),
        (&[("LDAPTLS_CACERT", authority.file()), ("LDAPTLS_REQCERT", "allow")], true),
        (&[("LDAPCONF", conf)], true),
        (&[("LDAPCONF", conf), ("LDAPTLS_REQCERT", "demand")], false),
    ] {
        let (mut setup, database) = setup(&options);
        for (name, value) in variables {
            setup = setup.environment(name, value);
        }
        let pooler = setup.start();
        let answer = login(&pooler, &database, &role.name, &role.password);
        let expected = if is_good { Ok(role.name.clone()) } else { Err(REFUSED.into()) };
        assert_eq!(answer, expected, "{variables:?}: {}", pooler.log());
    }
}

#[test]
fn a_rule_may_say_which_server_judges() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let [known, other] = [(); 2].map(|()| postgres.role(ServerAuth::Scram));
    let directory = Directory::start(&[&known], &Authority::new("weir test").server(), false);
    let options = bind_options(directory.port);
    let (setup, database) = ruled(&format!(
        "host all {} all ldap {options}\nhost all all all scram-sha-256\n",
        known.name
    ));
    let pooler = setup.secret(&other.name, &other.password).start();
    check_one(&pooler, &database, &known);
    let mut client = pooler.login(&other.name, &database, &other.password).expect("by SCRAM");
    assert_eq!(client.value("SELECT 1"), "1");
}

#[track_caller]
fn check_one(pooler: &Pooler, database: &str, role: &Role) {
    let Role { name, password, .. } = role;
    assert_eq!(login(pooler, database, name, password).as_ref(), Ok(name), "{}", pooler.log());
    assert_eq!(login(pooler, database, name, "wrong"), Err(REFUSED.into()));
}

#[test]
fn dead_ldap_servers_are_skipped_and_silent_ones_delay_no_other_login() {
    if !support::only_weir() {
        return;
    }
    let role = Postgres::shared().role(ServerAuth::Scram);
    let directory = Directory::start(&[&role], &Authority::new("weir test").server(), false);
    // Nothing listens on that address of this machine.
    let options = bind_options(directory.port).replace("=127.0.0.1 ", "=\"127.0.0.9 127.0.0.1\" ");
    let (setup, database) = setup(&options);
    let pooler = setup.start();
    check_one(&pooler, &database, &role);
    drop(directory);
    let answer = login(&pooler, &database, &role.name, &role.password);
    assert_eq!(answer, Err(REFUSED.into()));
    pooler.log_contains("could not connect to LDAP server");

    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = silent.local_addr().expect("bound").port();
    let options = bind_options(port);
    let (setup, database) =
        ruled(&format!("host all {} all ldap {options}\nhost all all all md5\n", role.name));
    let pooler = setup.set("client_login_timeout", 3).start();
    let began = Instant::now();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| login(&pooler, &database, &role.name, &role.password));
        let connected = silent.accept();
        assert!(connected.is_ok(), "the server is asked");
        assert_eq!(pooler.client(&database).value("SELECT 1"), "1");
        let answer = waiting.join().expect("no panic");
        assert!(answer.is_err_and(|error| error.contains("client_login_timeout")));
    });
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn parallel_ldap_logins_work_and_a_reload_applies_options() {
    if !support::only_weir() {
        return;
    }
    let role = Postgres::shared().role(ServerAuth::Scram);
    let directory = Directory::start(&[&role], &Authority::new("weir test").server(), false);
    let (setup, database) = setup(&bind_options(1));
    let mut pooler = setup.workers(2).set("admin_users", &role.name).start();
    let answer = login(&pooler, &database, &role.name, &role.password);
    assert_eq!(answer, Err(REFUSED.into()));
    pooler.reconfigure(|ini| ini.set("auth_ldap_options", bind_options(directory.port)));
    pooler.signal("HUP");
    testkit::eventually("the options count", Duration::from_secs(20), || {
        login(&pooler, &database, &role.name, &role.password).ok()
    });
    std::thread::scope(|scope| {
        for at in 0..60 {
            let (pooler, database, role) = (&pooler, &database, &role);
            scope.spawn(move || {
                let right = at % 3 != 0;
                let password = if right { role.password.as_str() } else { "wrong" };
                assert_eq!(login(pooler, database, &role.name, password).is_ok(), right);
            });
        }
    });
    // LDAP checks the passwords of console users, too.
    let console = pooler.login(&role.name, "pgbouncer", &role.password);
    assert!(console.is_ok());
    assert!(pooler.login(&role.name, "pgbouncer", "wrong").is_err());
}

#[test]
fn without_options_nobody_is_let_in() {
    if !support::only_weir() {
        return;
    }
    for (options, told) in [("", None), ("ldapserver=x", Some("auth_ldap_options"))] {
        let (setup, database) = setup(options);
        let pooler = setup.start();
        let answer = login(&pooler, &database, "app", "x");
        assert_eq!(answer, Err("auth_ldap_options is null".into()));
        if let Some(told) = told {
            pooler.log_contains(told);
        }
    }
}

#[test]
fn guesses_are_delayed_with_ldap_too() {
    if !support::only_weir() {
        return;
    }
    let role = Postgres::shared().role(ServerAuth::Scram);
    let directory = Directory::start(&[&role], &Authority::new("weir test").server(), false);
    let (setup, database) = setup(&bind_options(directory.port));
    let pooler = setup.set("auth_failure_delay", 2).start();
    for _ in 0..5 {
        assert!(login(&pooler, &database, &role.name, "wrong").is_err());
    }
    let began = Instant::now();
    assert!(login(&pooler, &database, &role.name, "wrong").is_err());
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
}
