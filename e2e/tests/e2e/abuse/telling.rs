//! Whether a user exists is not told: not by what is asked, nor by the length of the messages, nor
//! by the time they take.

use std::time::{Duration, Instant};

use super::known_role;
use crate::support;
use testkit::{Message, Pooler, Postgres, RawClient, Role, ServerAuth, Verifier, frontend};

const ROUNDS: usize = 150;

/// What can be seen of a login with a wrong password.
#[derive(Debug, PartialEq, Eq)]
struct Shape {
    /// Tag and length of each message.
    lengths: Vec<(u8, usize)>,
    /// The iterations of its SCRAM challenge, and the length of the salt.
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

/// A pooler all of whose users have secrets of the kind that `secret` makes of a role. Somebody who
/// is called `nobody` stands before them in the alphabet.
fn pooler(auth_type: &str, secret: impl Fn(&Role) -> String) -> (Pooler, Role, String) {
    let (setup, database) = support::setup("transaction");
    let role = Postgres::shared().role_with(ServerAuth::Scram, Verifier::Scram);
    let setup = setup.set("auth_type", auth_type).secret(&role.name, &secret(&role));
    (setup.set("auth_failure_delay", 0).workers(2).start(), role, database)
}

/// A verifier with a number of iterations that is not the usual one.
fn dear_verifier(role: &Role) -> String {
    role.verifier.replacen("$4096:", "$9000:", 1)
}

#[test]
fn an_unknown_user_is_asked_what_known_ones_are_asked() {
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
        ("scram-sha-256", dear_verifier),
    ];
    for (at, (auth_type, secret)) in cases.into_iter().enumerate() {
        let (pooler, role, database) = pooler(auth_type, secret);
        let known = shape(&failed(&pooler, &role.name, &database));
        let unknown = shape(&failed(&pooler, "nobody", &database));
        assert_eq!(known, unknown, "case {at}, {auth_type}");
    }
}

#[test]
fn a_salt_is_the_same_at_every_try_whether_the_user_exists_or_not() {
    if !support::only_weir() {
        return;
    }
    let (pooler, role, database) = pooler("scram-sha-256", |role| role.password.clone());
    for user in [role.name.as_str(), "nobody"] {
        let first = salt(&pooler, user, &database);
        // Whichever worker has the client, and by whichever configuration.
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

/// How long the answer to the last word of a failed login takes.
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

/// How often a sample of `a` takes longer than one of `b`: a half, if nothing tells them apart; and by
/// how much the medians differ.
fn compare(a: &mut [Duration], b: &mut [Duration]) -> (f64, Duration) {
    let longer: usize = a.iter().map(|x| b.iter().filter(|y| x > *y).count()).sum();
    a.sort();
    b.sort();
    let (x, y) = (a[a.len() / 2], b[b.len() / 2]);
    (longer as f64 / (a.len() * b.len()) as f64, x.max(y) - x.min(y))
}

/// Can somebody who measures from another machine tell `a` from `b`?
fn differ(pooler: &Pooler, database: &str, a: &str, b: &str) -> (bool, f64, Duration) {
    let (mut times_a, mut times_b) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // In turn, so that what drifts falls on both.
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
    let differs = !(0.25..0.75).contains(&longer) && apart > Duration::from_micros(150);
    (differs, longer, apart)
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
    // The check can fail: keys are derived for a verifier and for a password they are not.
    let (differs, longer, apart) = differ(&pooler, &database, "stored", &clear.name);
    assert!(differs, "this machine is too noisy to tell anything: {longer}, {apart:?}");
    // Each unknown name stands before the known one it is compared with.
    for (known, unknown) in [("stored", "storec"), (clear.name.as_str(), "rold")] {
        let (differs, longer, apart) = differ(&pooler, &database, known, unknown);
        assert!(!differs, "{known} takes longer in {longer:.2} of all, by {apart:?}");
    }
}
