//! Weir does not reveal whether a user exists: neither by its requests, nor by the lengths of its
//! messages, nor by its response times.

use std::time::{Duration, Instant};

use super::known_role;
use crate::support;
use testkit::{Message, Pooler, Postgres, RawClient, Role, ServerAuth, Verifier, frontend};

const ROUNDS: usize = 150;

/// The properties of a login with a wrong password that a client can observe.
#[derive(Debug, PartialEq, Eq)]
struct Shape {
    /// Tag and length of each message.
    lengths: Vec<(u8, usize)>,
    /// The number of iterations in the SCRAM challenge, and the length of its salt.
    challenge: Option<(String, usize)>,
}

fn shape(messages: &[Message]) -> Shape {
    let lengths = messages.iter().map(|message| (message.tag, message.body.len())).collect();
    let challenge = messages.iter().find(|message| message.body.starts_with(&[0, 0, 0, 11]));
    let challenge = challenge.map(|message| {
        let text = String::from_utf8_lossy(&message.body[4..]).into_owned();
        let part = |name: &str| {
            text.split(',').find_map(|part| part.strip_prefix(name)).expect("SCRAM").to_owned()
        };
        (part("i="), part("s=").len())
    });
    Shape { lengths, challenge }
}

fn failed(pooler: &Pooler, user: &str, database: &str) -> Vec<Message> {
    let mut client = RawClient::connect(pooler.port());
    client.try_authenticate(&[("user", user), ("database", database)], "wrong")
}

fn salt(pooler: &Pooler, user: &str, database: &str) -> String {
    let messages = failed(pooler, user, database);
    let challenge = messages.iter().find(|message| message.body.starts_with(&[0, 0, 0, 11]));
    let text = String::from_utf8_lossy(&challenge.expect("a challenge").body[4..]).into_owned();
    text.split(',').find_map(|part| part.strip_prefix("s=")).expect("a salt").to_owned()
}

/// Starts a pooler whose users all have the kind of secret that `secret` makes of a role. The
/// unknown user `nobody` sorts before them.
fn pooler(auth_type: &str, secret: impl Fn(&Role) -> String) -> (Pooler, Role, String) {
    let (setup, database) = support::setup("transaction");
    let role = Postgres::shared().role_with(ServerAuth::Scram, Verifier::Scram);
    let setup = setup.set("auth_type", auth_type).secret(&role.name, &secret(&role));
    (setup.set("auth_failure_delay", 0).workers(2).start(), role, database)
}

/// Returns a verifier with an unusual number of iterations.
fn verifier_with_many_iterations(role: &Role) -> String {
    role.verifier.replacen("$4096:", "$9000:", 1)
}

#[test]
fn unknown_and_known_users_get_the_same_requests_core_strict() {
    if !support::only_weir() {
        return;
    }
    let clear: fn(&Role) -> String = |role| role.password.clone();
    let stored: fn(&Role) -> String = |role| role.verifier.clone();
    let cases = [
        ("plain", clear),
        ("plain", stored),
        ("md5", clear),
        ("md5", stored),
        ("scram-sha-256", clear),
        ("scram-sha-256", stored),
        ("scram-sha-256", verifier_with_many_iterations),
    ];
    for (at, (auth_type, secret)) in cases.into_iter().enumerate() {
        let (pooler, role, database) = pooler(auth_type, secret);
        let known = shape(&failed(&pooler, &role.name, &database));
        let unknown = shape(&failed(&pooler, "nobody", &database));
        assert_eq!(known, unknown, "case {at}, {auth_type}");
    }
}

#[test]
fn a_salt_is_the_same_at_every_try_whether_the_user_exists_or_not_strict() {
    if !support::only_weir() {
        return;
    }
    let (pooler, role, database) = pooler("scram-sha-256", |role| role.password.clone());
    for user in [role.name.as_str(), "nobody"] {
        let first = salt(&pooler, user, &database);
        // The salt must not depend on the worker or on reloads.
        let mut held = Vec::new();
        for round in 0..30 {
            held.push(RawClient::connect(pooler.port()));
            assert_eq!(salt(&pooler, user, &database), first, "{user}, round {round}");
            if round == 15 {
                pooler.reload();
            }
        }
    }
}

/// Returns the time until the final answer of a failed login.
fn verdict_time(pooler: &Pooler, user: &str, database: &str) -> Duration {
    let mut client = RawClient::connect(pooler.port());
    client.send(frontend::startup(&[("user", user), ("database", database)]));
    let asked = client.read();
    assert_eq!(asked.body[..4], [0, 0, 0, 3], "clear text is asked for");
    let began = Instant::now();
    client.send(frontend::password("wrong"));
    assert_eq!(client.read().tag, b'E');
    began.elapsed()
}

/// Returns how often a sample of `a` takes longer than one of `b`, which is one half if they cannot
/// be distinguished, and the difference of the medians.
fn compare(a: &mut [Duration], b: &mut [Duration]) -> (f64, Duration) {
    let longer: usize = a.iter().map(|x| b.iter().filter(|y| x > *y).count()).sum();
    a.sort();
    b.sort();
    let (x, y) = (a[a.len() / 2], b[b.len() / 2]);
    (longer as f64 / (a.len() * b.len()) as f64, x.max(y) - x.min(y))
}

/// Returns whether a client on another machine could distinguish `a` from `b` by measuring.
fn differ(pooler: &Pooler, database: &str, a: &str, b: &str) -> bool {
    let (mut times_a, mut times_b) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // Measures alternately, so that drift affects both equally.
        let measure = |user: &str, times: &mut Vec<Duration>| {
            times.push(verdict_time(pooler, user, database));
        };
        if round % 2 == 0 {
            measure(a, &mut times_a);
            measure(b, &mut times_b);
        } else {
            measure(b, &mut times_b);
            measure(a, &mut times_a);
        }
    }
    let (longer, apart) = compare(&mut times_a, &mut times_b);
    println!(
        "{a} takes longer than {b} in {longer:.2} of all pairs; the medians differ by {apart:?}"
    );
    !(0.25..0.75).contains(&longer) && apart > Duration::from_micros(150)
}

#[test]
fn the_time_of_a_refusal_does_not_tell_whether_the_user_exists() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let (setup, clear) = known_role(setup);
    let stored = Postgres::shared().role_with(ServerAuth::Scram, Verifier::Scram);
    let pooler = setup
        .set("auth_type", "plain")
        .set("auth_failure_delay", 0)
        .secret("stored", &stored.verifier)
        .start();
    // Other tests use the machine at the same time. What is there shows in each measurement.
    let differs = |a: &str, b: &str| differ(&pooler, &database, a, b);
    // Shows that the check can fail: Weir derives keys for a password, but not for a verifier.
    let is_noisy = !(0..3).any(|_| differs("stored", &clear.name));
    assert!(!is_noisy, "this machine is too noisy to tell anything");
    // Each unknown name sorts before the known one that it is compared with.
    for (known, unknown) in [("stored", "storec"), (clear.name.as_str(), "rold")] {
        let is_told = (0..3).all(|_| differs(known, unknown));
        assert!(!is_told, "the time tells that {known} exists, and {unknown} does not");
    }
}
