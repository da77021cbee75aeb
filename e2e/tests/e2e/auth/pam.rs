//! `auth_type = pam`, and `pam` in rules: a real PAM stack checks passwords. The library and its
//! modules are the system's. Only the folder of the services belongs to the test (pam_wrapper).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::requests;
use crate::support;
use testkit::{Pooler, Postgres, RawClient, Role, ServerAuth, Setup, eventually, open_folder};

const REFUSED: &str = "PAM authentication failed";

/// Returns Debian's folder with the library that makes PAM look for services elsewhere, and with
/// the module that reads users from a file.
fn libraries() -> String {
    format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH)
}

/// Gives the pooler a service `pgbouncer` with this text. Replaces FOLDER in it by the returned
/// folder.
fn with_service(setup: Setup, service: &str) -> (Setup, PathBuf) {
    let folder = open_folder("pam");
    let services = folder.join("services");
    fs::create_dir(&services).expect("our own folder");
    fs::write(services.join("pgbouncer"), service.replace("FOLDER", &folder.display().to_string()))
        .expect("our own folder");
    let wrapper = Path::new(&libraries()).join("libpam_wrapper.so");
    assert!(wrapper.is_file(), "there is no {}: see scripts/setup", wrapper.display());
    let setup = setup
        .environment("LD_PRELOAD", wrapper.display())
        .environment("PAM_WRAPPER", 1)
        .environment("PAM_WRAPPER_SERVICE_DIR", services.display());
    (setup, folder)
}

fn setup(service: &str) -> (Setup, String, PathBuf) {
    let (setup, database) = support::setup("transaction");
    let (setup, folder) = with_service(setup.set("auth_type", "pam"), service);
    (setup, database, folder)
}

/// Gives PAM these users, in a file.
pub(super) fn with_users(setup: Setup, roles: &[Role]) -> Setup {
    let module = format!("{}/pam_wrapper/pam_matrix.so passdb=FOLDER/users", libraries());
    let service = format!("auth required {module}\naccount required {module}\n");
    let (setup, folder) = with_service(setup, &service);
    let users: String =
        roles.iter().map(|role| format!("{}:{}:pgbouncer\n", role.name, role.password)).collect();
    fs::write(folder.join("users"), users).expect("our own folder");
    setup
}

/// Returns a setup in which PAM passes the password to a program on its standard input.
fn program(script: &str) -> (Setup, String, PathBuf) {
    let (setup, database, folder) = setup(
        "auth required pam_exec.so quiet expose_authtok FOLDER/judge\naccount required pam_permit.so\n",
    );
    let judge = folder.join("judge");
    fs::write(
        &judge,
        format!("#!/bin/sh\n{}\n", script.replace("FOLDER", &folder.display().to_string())),
    )
    .expect("our own folder");
    fs::set_permissions(&judge, fs::Permissions::from_mode(0o755)).expect("our own file");
    (setup, database, folder)
}

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

#[test]
fn a_password_that_the_service_accepts_is_right() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let roles = [ServerAuth::Scram, ServerAuth::Password].map(|way| postgres.role(way));
    let (setup, database) = support::setup("transaction");
    let setup = with_users(setup.set("auth_type", "pam"), &roles).set("verbose", 3);
    let role = &roles[0];
    let pooler = setup.set("admin_users", &role.name).start();
    for Role { name, password, .. } in &roles {
        let answer = login(&pooler, &database, name, password);
        assert_eq!(answer.as_ref(), Ok(name), "{}", pooler.log());
        assert_eq!(login(&pooler, &database, name, "wrong"), Err(REFUSED.into()));
    }
    assert_eq!(login(&pooler, &database, "nobody", &role.password), Err(REFUSED.into()));
    pooler.log_contains("pam_authenticate() failed: ");
    let empty = login(&pooler, &database, &role.name, "");
    assert_eq!(empty, Err("empty password returned by client".into()));
    assert!(!pooler.log().contains(&role.password));
    assert!(pooler.login(&role.name, "pgbouncer", &role.password).is_ok(), "the console");
    assert!(pooler.login(&role.name, "pgbouncer", "wrong").is_err(), "the console");
}

#[test]
fn a_right_password_is_not_enough_for_an_account_that_is_closed() {
    if !support::only_weir() {
        return;
    }
    let (setup, database, _) = setup("auth required pam_permit.so\naccount required pam_deny.so\n");
    let pooler = setup.start();
    assert_eq!(login(&pooler, &database, "app", "x"), Err(REFUSED.into()));
    pooler.log_contains("pam_acct_mgmt() failed: ");
    // Without a service of that name, the service `other` decides. If it is missing as well, no
    // user is let in.
    let (setup, database, folder) = self::setup("");
    fs::remove_file(folder.join("services/pgbouncer")).expect("our own file");
    let pooler = setup.start();
    assert_eq!(login(&pooler, &database, "app", "x"), Err(REFUSED.into()));
}

/// Tests `auth_pam_confdir`: PAM reads the service from that folder. If the folder has no such
/// service, no user is let in.
#[test]
fn the_service_may_be_in_another_folder() {
    if !support::only_weir() {
        return;
    }
    let role = Postgres::shared().role(ServerAuth::Scram);
    let all = open_folder("pam");
    let right = Ok(role.name.clone());
    let services = [
        ("yes", Some("pam_permit.so"), right),
        ("no", Some("pam_deny.so"), Err(REFUSED.into())),
        ("empty", None, Err(REFUSED.into())),
    ];
    for (name, module, expected) in services {
        let folder = all.join(name);
        fs::create_dir(&folder).expect("our own folder");
        if let Some(module) = module {
            let service = format!("auth required {module}\naccount required {module}\n");
            fs::write(folder.join("pgbouncer"), service).expect("our own folder");
        }
        let (setup, database) = support::setup("transaction");
        let setup = setup.set("auth_type", "pam").set("auth_pam_confdir", folder.display());
        let pooler = setup.start();
        assert_eq!(login(&pooler, &database, &role.name, &role.password), expected, "{name}");
    }
}

/// A service that cannot check passwords is not a reason to slow down the user. `pam_debug` returns
/// the result that its argument names.
#[test]
fn a_pam_that_cannot_check_a_password_has_not_refused_it() {
    if !support::only_weir() {
        return;
    }
    let account = "account required pam_permit.so\n";
    let unavailable = [
        (Some("auth required pam_debug.so auth=authinfo_unavail"), "retrieve authentication info"),
        (Some("auth required pam_weir_has_none.so"), "Module is unknown"),
        (None, "pam_start() failed: "),
    ];
    for (auth, reason) in unavailable {
        let (setup, database, folder) = setup(&format!("{}\n{account}", auth.unwrap_or_default()));
        if auth.is_none() {
            fs::remove_file(folder.join("services/pgbouncer")).expect("our own file");
        }
        let pooler = setup.set("auth_failure_delay", 60).start();
        // More than are checked without a pause after wrong passwords.
        for _ in 0..8 {
            assert_eq!(login(&pooler, &database, "app", "x"), Err(REFUSED.into()), "{auth:?}");
        }
        pooler.log_contains(reason);
    }
    // A refusal counts, also with the code that `pam_exec` has for it.
    for result in ["auth_err", "system_err"] {
        let auth = format!("auth required pam_debug.so auth={result}\n{account}");
        let (setup, database, _) = setup(&auth);
        let setup = setup.set("auth_failure_delay", 60).set("client_login_timeout", 5);
        let pooler = setup.start();
        for _ in 0..5 {
            assert_eq!(login(&pooler, &database, "app", "x"), Err(REFUSED.into()), "{result}");
        }
        let late = login(&pooler, &database, "app", "x");
        assert_eq!(late, Err("client_login_timeout".into()), "{result}");
    }
}

/// The errors of modules are logged, in PgBouncer's words.
#[test]
fn the_log_has_what_modules_say_of_an_error() {
    if !support::only_weir() {
        return;
    }
    let (setup, database, _) =
        setup("auth required pam_exec.so /bin/false\naccount required pam_permit.so\n");
    let pooler = setup.start();
    assert_eq!(login(&pooler, &database, "app", "x"), Err(REFUSED.into()));
    pooler.log_contains("WARNING pam_conversation(): PAM error: /bin/false failed: exit code 1");
}

#[test]
fn a_slow_pam_module_delays_no_other_login() {
    if !support::only_weir() {
        return;
    }
    let script = "echo \"$PAM_USER $PAM_RHOST\" >>FOLDER/asked\n\
                  while ! [ -e FOLDER/go ]; do sleep 0.05; done; read -r word; [ \"$word\" = right ]";
    let (setup, database, folder) = program(script);
    let rules = folder.join("hba.conf");
    fs::write(&rules, "host all app all md5\nhost all all all pam\n").expect("our own folder");
    let pooler = setup.set("auth_type", "hba").set("auth_hba_file", rules.display()).start();
    std::thread::scope(|scope| {
        let waiting = ["wrong", "wrong", "wrong"]
            .map(|password| scope.spawn(|| login(&pooler, &database, "other", password)));
        eventually("the program is asked", Duration::from_secs(30), || {
            fs::read_to_string(folder.join("asked")).ok().filter(|text| !text.is_empty())
        });
        assert_eq!(pooler.client(&database).value("SELECT 1"), "1");
        let asked = fs::read_to_string(folder.join("asked")).expect("our own folder");
        assert_eq!(asked, "other 127.0.0.1\n", "one at a time");
        fs::write(folder.join("go"), "").expect("our own folder");
        for answer in waiting {
            assert_eq!(answer.join().expect("no panic"), Err(REFUSED.into()));
        }
    });
}

#[test]
fn a_wrong_password_is_answered_late_and_a_right_one_is_not() {
    if !support::only_weir() {
        return;
    }
    let role = Postgres::shared().role(ServerAuth::Scram);
    let module = format!("{}/pam_wrapper/pam_matrix.so passdb=FOLDER/users", libraries());
    // The delay is two seconds, which PAM randomly varies by up to half.
    let (setup, database, folder) = setup(&format!(
        "auth optional pam_faildelay.so delay=2000000\n\
         auth required {module}\naccount required {module}\n"
    ));
    let users = format!("{}:{}:pgbouncer\n", role.name, role.password);
    fs::write(folder.join("users"), users).expect("our own folder");
    let pooler = setup.start();
    std::thread::scope(|scope| {
        let late = scope.spawn(|| {
            let began = Instant::now();
            let answer = login(&pooler, &database, &role.name, "wrong");
            assert_eq!(answer, Err(REFUSED.into()));
            (began, Instant::now())
        });
        pooler.log_contains("pam_authenticate() failed");
        // The first login still waits.
        let answer = login(&pooler, &database, &role.name, &role.password);
        assert_eq!(answer.as_ref(), Ok(&role.name));
        let (began, ended) = late.join().expect("no panic");
        assert!(ended - began >= Duration::from_millis(900), "{:?}", ended - began);
    });
}
