//! SCRAM on both sides, keys taken from logins, and logins that only PostgreSQL can check.

use std::sync::Arc;

use config::{AccessPolicy, AuthType, PoolMode};
use engine::auth::Peer;
use engine::server_secret::ServerSecret;
use wire::backend;
use wire::md5;
use wire::messages::{AuthenticationRequest, SaslInitialResponse};
use wire::scram::{MECHANISM, ScramClient, ScramSecret, ScramServer, ScramVerifier};

use crate::messages::*;
use crate::rig::{Client, Rig, Server, server_welcome, server_welcome_with};

pub(crate) fn verifier(secret: &str) -> ScramVerifier {
    ScramVerifier::from_password(secret.as_bytes(), b"salt salt salt!!", 4096)
}

fn stored_as(stored: String) -> Rig {
    Rig::new(|config| {
        config.global.auth_type = AuthType::ScramSha256;
        config.auth_file.users.insert("alice".into(), stored);
    })
}

/// Takes one authentication request, and returns its kind.
fn request(client: &Client) -> Vec<u8> {
    let got = client.take();
    assert_eq!((got[0], got[4] as usize + 1), (b'R', got.len()), "{}", got.escape_ascii());
    got[5..].to_vec()
}

/// The client's side of the exchange up to its proof. Returns the salt's length and the iterations.
pub(crate) fn prove(client: &Client, secret: &str) -> (usize, u32) {
    let mechanisms = request(client);
    assert_eq!(mechanisms, b"\0\0\0\x0aSCRAM-SHA-256\0\0");
    let mut scram = ScramClient::new(ScramSecret::Password(secret.into()), [5; 18]);
    let mut first = Vec::new();
    wire::frontend::sasl_initial(&mut first, MECHANISM, &scram.first());
    client.send([first]);
    let body = request(client);
    let Ok(AuthenticationRequest::SaslContinue(data)) = AuthenticationRequest::decode(&body) else {
        panic!("{}", body.escape_ascii());
    };
    let mut answer = Vec::new();
    wire::frontend::sasl_response(&mut answer, &scram.server_first(data).expect("a challenge"));
    client.send([answer]);
    let (salt, iterations, _) = scram.derived().expect("keys of the password");
    (salt.len(), iterations)
}

/// Removes the server's part of the exchange from the front of the login answer.
pub(crate) fn take_final(client: &Client) {
    let got = client.take();
    assert_eq!(got[..9], *b"R\0\0\0\x36\0\0\0\x0c", "{}", show(&got).join("; "));
    assert!(got.ends_with(&ready('I')), "{}", show(&got).join("; "));
}

#[test]
fn a_right_and_a_wrong_password() {
    for stored in ["secret".to_owned(), verifier("secret").to_string()] {
        let rig = stored_as(stored).manual();
        let client = rig.connect();
        client.say_hello(&[]);
        prove(&client, "wrong");
        client.expect_fatal("SASL authentication failed");
        let client = rig.connect();
        client.say_hello(&[]);
        prove(&client, "secret");
        assert!(client.is_open() && client.take().starts_with(b"R\0\0\0\x36\0\0\0\x0c"));
    }
}

#[test]
fn the_console_is_no_pool_even_where_any_name_is_a_database() {
    let rig = Rig::new(|config| {
        config.global.auth_type = AuthType::ScramSha256;
        config.global.admin_users = vec!["alice".into()];
        config.auth_file.users.insert("alice".into(), verifier("secret").to_string());
        config.fallback = config.databases.get("app").cloned();
    });
    let client = rig.connect();
    client.say_hello_as("alice", "pgbouncer");
    prove(&client, "secret");
    assert_eq!(rig.consoles().len(), 1);
    assert_eq!(rig.report(0).stats, []);
}

#[test]
fn an_unknown_user_takes_the_course_of_a_wrong_password() {
    let rig = stored_as(verifier("secret").to_string());
    let mut courses = Vec::new();
    for user in ["alice", "bob", "bob"] {
        let client = rig.connect();
        client.send([startup(&[("user", user), ("database", "app")])]);
        courses.push(prove(&client, "wrong"));
        client.expect_fatal("SASL authentication failed");
    }
    assert_eq!(courses, [(16, 4096); 3]);
}

#[test]
fn md5_gives_way_to_scram_where_a_verifier_is_stored() {
    let rig = Rig::new(|config| {
        config.global.auth_type = AuthType::Md5;
        config.auth_file.users.insert("alice".into(), verifier("secret").to_string());
    });
    let client = rig.connect();
    client.say_hello(&[]);
    prove(&client, "wrong");
    client.expect_fatal("SASL authentication failed");
}

#[test]
fn an_unknown_mechanism_is_refused() {
    let rig = stored_as("secret".into());
    let client = rig.connect();
    client.say_hello(&[]);
    client.take();
    let mut initial = Vec::new();
    wire::frontend::sasl_initial(&mut initial, "SCRAM-SHA-256-PLUS", b"n,,n=,r=x");
    client.send([initial]);
    client.expect_fatal("client selected an invalid SASL authentication mechanism");
}

/// PostgreSQL's side of a SCRAM login.
pub(crate) fn challenge(
    server: &Server,
    verifier: ScramVerifier,
) -> Result<(), wire::scram::ScramError> {
    server.take();
    let mut out = Vec::new();
    backend::authentication_sasl(&mut out, &[MECHANISM]);
    server.send([out]);
    let mut scram = ScramServer::new(verifier, [9; 18]);
    let initial = server.take();
    let initial = SaslInitialResponse::decode(&initial[5..]).expect("a first message");
    let mut out = Vec::new();
    backend::authentication_sasl_continue(
        &mut out,
        &scram.client_first(initial.mechanism, initial.data)?,
    );
    server.send([out]);
    let finished = scram.client_final(&server.take()[5..])?;
    let mut out = Vec::new();
    backend::authentication_sasl_final(&mut out, &finished.reply);
    server.send([out, server_welcome(0)]);
    Ok(())
}

#[test]
fn a_verifier_and_a_clients_proof_open_the_server() {
    let rig = stored_as(verifier("secret").to_string()).manual();
    let client = rig.connect();
    client.say_hello(&[]);
    prove(&client, "secret");
    let server = rig.server(0);
    server.connect();
    assert_eq!(challenge(&server, verifier("secret")), Ok(()));
    take_final(&client);
    assert!(server.is_parked());
}

#[test]
fn a_plain_password_opens_the_server_by_any_method() {
    let rig = Rig::transaction().manual();
    let client = rig.connect();
    client.say_hello(&[]);
    let server = rig.server(0);
    server.connect();
    server.expect([server_startup(&[("user", "alice"), ("database", "app")])]);
    server.send([b"R\0\0\0\x08\0\0\0\x03".to_vec()]);
    server.expect([password("secret")]);
    server.send([b"R\0\0\0\x0c\0\0\0\x05salt".to_vec()]);
    let response = md5::response(&md5::hash(b"alice", b"secret"), *b"salt");
    server.expect([password(&response)]);
    assert_eq!(challenge(&server, verifier("secret")), Ok(()));
    client.expect_welcome(&[]);
}

#[test]
fn a_verifier_without_a_proof_opens_nothing() {
    let rig = Rig::new(|config| {
        config.auth_file.users.insert("alice".into(), verifier("secret").to_string());
    })
    .manual();
    let client = rig.connect();
    client.say_hello(&[]);
    let server = rig.server(0);
    server.connect();
    let mut out = Vec::new();
    backend::authentication_sasl(&mut out, &[MECHANISM]);
    server.send([out]);
    assert!(!server.is_open());
    assert!(rig.logged("password is SCRAM secret but client authentication did not provide"));
}

#[test]
fn a_server_that_does_not_know_the_password_either_is_not_trusted() {
    let rig = stored_as("secret".into()).manual();
    let client = rig.connect();
    client.say_hello(&[]);
    prove(&client, "secret");
    let server = rig.server(0);
    server.connect();
    let mut forged = verifier("secret");
    forged.server_key = [0; 32];
    assert_eq!(challenge(&server, forged), Ok(()), "it took our proof");
    assert!(!server.is_open() && rig.logged("incorrect SCRAM server signature"));
}

/// Neither before Weir's proof nor after it.
#[test]
fn a_server_that_ends_scram_without_a_proof_is_not_trusted() {
    for continues in [false, true] {
        let rig = Rig::transaction().manual();
        let client = rig.connect();
        client.say_hello(&[]);
        let server = rig.server(0);
        server.connect();
        server.take();
        let mut out = Vec::new();
        backend::authentication_sasl(&mut out, &[MECHANISM]);
        server.send([out]);
        let initial = server.take();
        if continues {
            let initial = SaslInitialResponse::decode(&initial[5..]).expect("a first message");
            let mut scram = ScramServer::new(verifier("another"), [9; 18]);
            let first = scram.client_first(initial.mechanism, initial.data).expect("a client's");
            let mut out = Vec::new();
            backend::authentication_sasl_continue(&mut out, &first);
            server.send([out]);
            server.take();
        }
        server.send([server_welcome(0)]);
        assert!(!server.is_open() && rig.logged("ended SCRAM without its own proof"));
    }
}

pub(crate) fn proving() -> Rig {
    proving_in(20)
}

/// A pool of at most so many servers.
pub(crate) fn proving_in(size: u32) -> Rig {
    proving_on(1, size)
}

fn proving_on(workers: usize, size: u32) -> Rig {
    Rig::with_workers(workers, |config| {
        config.access = AccessPolicy::ProvenByServer;
        config.global.default_pool_size = size;
        config.auth_file.users.clear();
    })
    .manual()
}

pub(crate) fn local() -> Peer {
    Peer { loopback: true, ..Peer::default() }
}

pub(crate) fn asked(rig: &Rig, secret: &str) -> Client {
    asked_at(rig, 0, secret)
}

fn asked_at(rig: &Rig, worker: usize, secret: &str) -> Client {
    asked_as(rig, worker, "alice", secret)
}

fn asked_as(rig: &Rig, worker: usize, user: &str, secret: &str) -> Client {
    let client = rig.connect_from(worker, local());
    client.say_hello_as(user, "app");
    client.expect([b"R\0\0\0\x08\0\0\0\x03".to_vec()]);
    client.send([password(secret)]);
    client
}

/// The server that was opened last. It asks for SCRAM, and its password is "secret".
pub(crate) fn judge(rig: &Rig) -> Server {
    judge_at(rig, rig.servers() - 1)
}

fn judge_at(rig: &Rig, at: usize) -> Server {
    let server = rig.server(at);
    server.connect();
    if challenge(&server, verifier("secret")).is_err() {
        server.send([fatal("28P01", "password authentication failed for user \"alice\"")]);
        server.die();
    }
    server
}

#[test]
fn the_server_itself_decides_which_clients_log_in() {
    let rig = proving();
    let client = asked(&rig, "secret");
    client.expect([]);
    let first = judge(&rig);
    client.expect_welcome(&[]);
    assert!(first.is_parked());

    let wrong = asked(&rig, "wrong");
    judge(&rig);
    wrong.expect([fatal("28P01", "password authentication failed for user \"alice\"")]);
    assert!(!wrong.is_open());
    assert_eq!(rig.pool(|pool| pool.counts()), (1, 0), "nothing is left of the attempt");
    assert!(rig.pool(|pool| pool.failure.is_none()));

    let again = asked(&rig, "secret");
    again.expect_welcome(&[]);
    assert_eq!(rig.servers(), 2, "what is proven is proven");
}

#[test]
fn a_superuser_is_an_admin_of_the_console() {
    let rig = proving();
    let client = rig.connect_from(0, local());
    client.say_hello_as("alice", "weir");
    client.take();
    client.send([password("secret")]);
    let server = rig.server(0);
    server.connect();
    server.take();
    server.send([b"R\0\0\0\x0c\0\0\0\x05salt".to_vec()]);
    server.take();
    server.send([server_welcome_with(0, &[("is_superuser", "on")])]);
    assert_eq!(rig.consoles().iter().map(|login| login.admin).collect::<Vec<_>>(), [true]);
}

#[test]
fn a_waiting_client_gets_the_seat_of_a_failed_proof_at_once() {
    let rig = proving_in(1);
    let client = asked(&rig, "secret");
    let first = judge(&rig);
    client.expect_welcome(&[]);
    let wrong = asked(&rig, "wrong");
    first.die();
    client.send([query("select 1")]);
    assert_eq!(rig.servers(), 2, "the proof has the only place");
    judge(&rig);
    wrong.expect([fatal("28P01", "password authentication failed for user \"alice\"")]);
    assert_eq!(rig.servers(), 3);
    judge(&rig).expect([query("select 1")]);
}

#[test]
fn a_proof_takes_a_place_like_any_server() {
    let rig = proving_in(1);
    let client = asked(&rig, "secret");
    let first = judge(&rig);
    client.expect_welcome(&[]);
    client.send([query("begin")]);
    first.expect([query("begin")]);
    first.send([complete("BEGIN"), ready('T')]);
    client.expect([complete("BEGIN"), ready('T')]);
    let wrong = asked(&rig, "wrong");
    assert_eq!(rig.servers(), 1, "there is no place");
    client.send([query("commit")]);
    first.send([complete("COMMIT"), ready('I')]);
    assert!(!first.is_open(), "it makes room");
    assert_eq!((rig.servers(), rig.pool(|pool| pool.counts().0)), (2, 1));
    judge(&rig);
    wrong.expect([fatal("28P01", "password authentication failed for user \"alice\"")]);
    assert_eq!(rig.pool(|pool| pool.counts()), (0, 0));
}

#[test]
fn one_proof_serves_all_waiting_clients_with_the_same_password() {
    let rig = proving_in(1);
    let clients = [(); 3].map(|()| asked(&rig, "secret"));
    assert_eq!(rig.servers(), 1);
    let first = judge(&rig);
    for client in clients {
        client.expect_welcome(&[]);
    }
    assert!(first.is_parked());
    assert_eq!(rig.servers(), 1);
}

#[test]
fn the_seat_of_a_failed_proof_goes_to_a_client_of_another_worker() {
    let rig = proving_on(2, 1);
    let wrong = asked(&rig, "wrong");
    let right = asked_at(&rig, 1, "secret");
    assert_eq!(rig.servers(), 1);
    judge(&rig);
    assert!(!wrong.is_open());
    assert_eq!(rig.servers(), 2);
    judge(&rig);
    right.expect_welcome(&[]);
}

#[test]
fn further_servers_open_with_the_keys_of_the_proof() {
    let rig = proving();
    let client = asked(&rig, "secret");
    judge(&rig);
    client.expect_welcome(&[]);
    let other = asked(&rig, "secret");
    other.expect_welcome(&[]);
    client.send([query("begin")]);
    rig.server(0).send([complete("BEGIN"), ready('T')]);
    other.send([query("select 1")]);
    let second = judge(&rig);
    second.expect([query("select 1")]);
}

#[test]
fn further_servers_open_with_the_hash_where_md5_is_asked_for() {
    let rig = proving();
    let answer = |at: usize| {
        let server = rig.server(at);
        server.connect();
        server.expect([server_startup(&[("user", "alice"), ("database", "app")])]);
        server.send([b"R\0\0\0\x0c\0\0\0\x05salt".to_vec()]);
        let response = md5::response(&md5::hash(b"alice", b"secret"), *b"salt");
        server.expect([password(&response)]);
        server.send([server_welcome(at)]);
    };
    let client = asked(&rig, "secret");
    answer(0);
    client.expect_welcome(&[]);
    let other = asked(&rig, "secret");
    other.expect_welcome(&[]);
    client.send([query("begin")]);
    rig.server(0).send([complete("BEGIN"), ready('T')]);
    other.send([query("select 1")]);
    answer(1);
    rig.server(1).expect([query("select 1")]);
}

#[test]
fn a_server_with_trust_proves_no_password() {
    let rig = proving();
    let client = asked(&rig, "anything");
    let server = rig.server(0);
    server.connect();
    server.send([server_welcome(0)]);
    let told = String::from_utf8_lossy(&client.take()).into_owned();
    assert!(told.contains("the server did not ask for a password"), "{told}");
    assert!(!client.is_open() && !server.is_open());
    assert_eq!(rig.pool(|pool| pool.counts()), (0, 0));
}

#[test]
fn a_password_is_asked_for_on_loopback_only() {
    let rig = proving();
    let client = rig.connect();
    client.say_hello(&[]);
    client.expect_fatal("login rejected");
}

#[test]
fn a_password_is_asked_for_over_tls_from_any_address() {
    let rig = proving();
    let peer = Peer { secured: Some(Arc::default()), ..Peer::default() };
    let client = rig.connect_from(0, peer);
    client.say_hello_as("alice", "app");
    client.expect([b"R\0\0\0\x08\0\0\0\x03".to_vec()]);
    client.send([password("secret")]);
    judge(&rig);
    client.expect_welcome(&[]);
}

#[test]
fn the_proof_of_a_client_that_leaves_is_given_up() {
    let rig = proving();
    let client = asked(&rig, "secret");
    client.leave();
    assert!(!rig.server(0).is_open());
    assert_eq!(rig.pool(|pool| pool.counts()), (0, 0));
}

#[test]
fn nothing_is_read_while_the_proof_is_out() {
    let rig = proving();
    let client = asked(&rig, "secret");
    client.send([query("select 1")]);
    assert_eq!(client.unread(), query("select 1").len());
    let server = judge(&rig);
    client.expect_welcome(&[]);
    server.expect([query("select 1")]);
}

/// Alice's pool asks for a seat, to which bob's pool has a better right. While bob's pool is asked,
/// alice's own pool is asked as well.
#[test]
fn no_client_is_proven_twice_by_seats_that_come_at_once() {
    let rig = Rig::new(|config| {
        config.access = AccessPolicy::ProvenByServer;
        config.global.max_db_connections = 4;
    })
    .manual();
    let lost = asked(&rig, "lost");
    let _carol = [(); 3].map(|()| asked_as(&rig, 0, "carol", "secret"));
    let bob = asked_as(&rig, 0, "bob", "secret");
    let (right, wrong) = (asked(&rig, "secret"), asked(&rig, "wrong"));
    assert_eq!(rig.servers(), 4, "there is no seat");
    rig.later(300_000);
    rig.server(1).refuse();
    assert_eq!(rig.servers(), 5, "bob has had none");
    let _bob = (bob, asked_as(&rig, 0, "bob", "secret"));
    rig.set_openings_max(0);
    rig.server(2).refuse();
    rig.server(3).refuse();
    rig.set_openings_max(64);
    rig.server(0).refuse();
    assert!(!lost.is_open());
    assert_eq!(rig.servers(), 7, "one for each of them");
    judge_at(&rig, 6);
    wrong.expect([fatal("28P01", "password authentication failed for user \"alice\"")]);
    assert!(right.is_open());
    judge_at(&rig, 5);
    right.expect_welcome(&[]);
}

#[test]
fn the_keys_go_along_to_a_process_with_another_mode() {
    let rig = stored_as(verifier("secret").to_string());
    let client = rig.connect();
    client.say_hello(&[]);
    prove(&client, "secret");
    client.take();
    rig.hand_over_to(|config| config.global.pool_mode = PoolMode::Session);
    assert!(rig.pool(|pool| matches!(pool.server_secret, Some(ServerSecret::Scram(_)))));
}
