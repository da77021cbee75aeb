//! Passwords that LDAP or PAM checks.

use std::sync::Arc;

use config::ldap::LdapOptions;
use config::{AuthType, Config};
use engine::auth::{Judge, Password};
use engine::shell::{Check, Checked};

use crate::messages::*;
use crate::rig::{Client, Rig};

const OPTIONS: &str = "ldapserver=a ldapprefix=uid=";

fn rig(change: impl FnOnce(&mut Config)) -> Rig {
    Rig::new(|config| {
        config.global.auth_type = AuthType::Ldap;
        config.ldap = LdapOptions::parse(OPTIONS).ok().map(Arc::new);
        change(config);
    })
    .manual()
}

/// A client that has been asked for its password in clear.
fn asked(rig: &Rig, user: &str) -> Client {
    let client = rig.connect();
    client.say_hello_as(user, "app");
    client.expect([b"R\0\0\0\x08\0\0\0\x03".to_vec()]);
    client
}

#[test]
fn the_judge_decides_whoever_it_is() {
    let rig = rig(|_| {});
    for user in ["alice", "mallory"] {
        for right in [true, false] {
            let client = asked(&rig, user);
            client.send([password("it")]);
            client.expect([]);
            let (id, serial, check) = rig.check();
            let judge = Judge::Ldap(Arc::new(LdapOptions::parse(OPTIONS).expect("options")));
            let expected =
                Check::Password { judge, user: user.into(), password: Password("it".into()) };
            assert_eq!(check, expected);
            assert!(!format!("{check:?}").contains("it\""), "{check:?}");
            rig.answer_check(id, serial, &Checked::Password(Some(right)));
            match right {
                true => assert!(client.is_open()),
                false => client.expect_fatal("LDAP authentication failed"),
            }
        }
    }
}

#[test]
fn a_password_that_no_service_could_check_is_not_a_guess() {
    let rig = rig(|_| {});
    // More than are checked without a pause after wrong passwords.
    for _ in 0..10 {
        let client = asked(&rig, "alice");
        client.send([password("it")]);
        let (id, serial, _) = rig.check();
        rig.answer_check(id, serial, &Checked::Password(None));
        client.expect_fatal("LDAP authentication failed");
    }
}

#[test]
fn a_right_password_opens_the_server_too() {
    let rig = rig(|config| {
        // The password of `auth_file` is not used: the checked one replaces it.
        config.auth_file.users.insert("alice".into(), "old".into());
    });
    let client = asked(&rig, "alice");
    client.send([password("it")]);
    let (id, serial, _) = rig.check();
    rig.answer_check(id, serial, &Checked::Password(Some(true)));
    let server = rig.server(0);
    server.connect();
    server.take();
    server.send([b"R\0\0\0\x08\0\0\0\x03".to_vec()]);
    server.expect([password("it")]);
}

#[test]
fn an_impossible_password_is_not_passed_on() {
    let rig = rig(|_| {});
    for (said, told) in [
        (password(""), "empty password returned by client"),
        (password(&"x".repeat(65_536)), "password authentication failed"),
        (b"p\0\0\0\x07\xff\xfe\0".to_vec(), "LDAP authentication failed"),
    ] {
        let client = asked(&rig, "alice");
        client.send([said]);
        client.expect_fatal(told);
    }
    // The next check would have number one.
    let client = asked(&rig, "alice");
    client.send([password(&"x".repeat(65_535))]);
    rig.check();
}

#[test]
fn without_options_there_is_no_judge() {
    let rig = rig(|config| config.ldap = None);
    let client = rig.connect();
    client.say_hello(&[]);
    client.expect_fatal("auth_ldap_options is null");
}

#[test]
fn pam_checks_users_without_auth_query() {
    let rig = rig(|config| config.global.auth_type = AuthType::Pam);
    let client = asked(&rig, "alice");
    client.send([password("it")]);
    let (id, serial, check) = rig.check();
    assert!(matches!(check, Check::Password { judge: Judge::Pam(_), .. }), "{check:?}");
    rig.answer_check(id, serial, &Checked::Password(Some(false)));
    client.expect_fatal("PAM authentication failed");

    rig.reload(|config| crate::rig::app(config).auth_user = Some("asker".into()));
    let client = rig.connect();
    client.say_hello(&[]);
    client.expect_fatal("bouncer config error");
    assert!(rig.logged("PAM can't be used together with database authentication"));
}

/// The next client has the slot of the one that was asked about.
#[test]
pub(crate) fn an_answer_is_for_the_question_that_was_asked() {
    for has_answered in [false, true] {
        let rig = rig(|_| {});
        let client = asked(&rig, "alice");
        client.send([password("it")]);
        let (id, serial, _) = rig.check();
        client.leave();
        let next = asked(&rig, "alice");
        if has_answered {
            next.send([password("wrong")]);
            assert_eq!(rig.check().0, id);
        }
        rig.answer_check(id, serial, &Checked::Password(Some(true)));
        assert_eq!(rig.servers(), 0);
        next.expect([]);
        assert!(next.is_open());
    }
}
