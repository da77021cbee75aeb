//! Channel binding: what is bound, what must not be.

use std::sync::Arc;

use super::*;

// As the exchange in `tests.rs`, over a connection whose certificate has the digest 0x20..0x40;
// computed with Python's hashlib and hmac.
const BOUND_FIRST: &str = "p=tls-server-end-point,,n=,r=ERERERERERERERERERERERER";
const BOUND_FINAL: &str = "\
    c=cD10bHMtc2VydmVyLWVuZC1wb2ludCwsICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=\
    ,r=ERERERERERERERERERERERER7u7u7u7u7u7u7u7u7u7u7u7u,\
    p=yQgnHdNovMqBuCpbhNr06A3ovLMQNy9OJp9dL4zYtkE=";
const BOUND_SERVER_FINAL: &str = "v=wnzkfFYuINQvKmmXZ/RXa4b3ZFUIzEARJ6yJZKOVxZk=";

fn end_point() -> Arc<[u8]> {
    (0x20..0x40).collect()
}

fn bound_server() -> ScramServer {
    server().bound_to(&end_point())
}

fn error(mechanism: &str, first: &str) -> ScramError {
    bound_server().client_first(mechanism.as_bytes(), first.as_bytes()).unwrap_err()
}

#[test]
fn a_bound_exchange_byte_for_byte() {
    let mut server = bound_server();
    assert_eq!(server.mechanisms(), [MECHANISM_PLUS, MECHANISM]);
    let mut client = client("secret").bound_to(&end_point(), true);
    assert_eq!(client.mechanism(), MECHANISM_PLUS);
    assert_eq!(client.first(), BOUND_FIRST.as_bytes());
    let challenge = server.client_first(MECHANISM_PLUS.as_bytes(), BOUND_FIRST.as_bytes());
    assert_eq!(challenge, Ok(SERVER_FIRST.into()));
    let answer = client.server_first(SERVER_FIRST.as_bytes());
    assert_eq!(answer.as_deref(), Ok(BOUND_FINAL.as_bytes()));
    let finished = server.client_final(BOUND_FINAL.as_bytes()).unwrap();
    assert_eq!(finished.reply, BOUND_SERVER_FINAL.as_bytes());
    assert_eq!(client.server_final(&finished.reply), Ok(()));
}

#[test]
fn a_client_of_another_channel_is_refused_whatever_it_knows() {
    let other: Arc<[u8]> = [7; 32].into();
    let mut client = client("secret").bound_to(&other, true);
    let mut server = bound_server();
    let challenge = server.client_first(MECHANISM_PLUS.as_bytes(), &client.first()).unwrap();
    let answer = client.server_first(&challenge).unwrap();
    assert_eq!(server.client_final(&answer).unwrap_err(), ScramError::ChannelBindingMismatch);
}

#[test]
fn a_client_that_was_not_shown_the_offer_of_binding_is_refused() {
    let mut unaware = client("secret").bound_to(&end_point(), false);
    assert_eq!(unaware.mechanism(), MECHANISM);
    let first = unaware.first();
    assert!(first.starts_with(b"y,,"));
    let answer = bound_server().client_first(MECHANISM.as_bytes(), &first);
    assert_eq!(answer, Err(ScramError::ChannelBindingDowngrade));
    // If nothing was offered, the flag is right.
    let mut server = server();
    let challenge = server.client_first(MECHANISM.as_bytes(), &first).unwrap();
    assert!(server.client_final(&unaware.server_first(&challenge).unwrap()).is_ok());
}

#[test]
fn a_client_without_channel_binding_is_accepted() {
    let none: Arc<[u8]> = [].into();
    let mut client = client("secret").bound_to(&none, true);
    assert_eq!((client.mechanism(), &client.first()[..3]), (MECHANISM, &b"n,,"[..]));
    let mut server = bound_server();
    let challenge = server.client_first(MECHANISM.as_bytes(), &client.first()).unwrap();
    assert!(server.client_final(&client.server_first(&challenge).unwrap()).is_ok());
}

#[test]
fn the_flag_is_that_of_the_mechanism() {
    let unbound = "n,,n=,r=abc";
    assert_eq!(error(MECHANISM_PLUS, unbound), ScramError::ChannelBindingMismatch);
    assert_eq!(error(MECHANISM, BOUND_FIRST), ScramError::ChannelBindingMismatch);
    assert_eq!(error(MECHANISM_PLUS, "y,,n=,r=abc"), ScramError::ChannelBindingDowngrade);
    assert_eq!(error(MECHANISM_PLUS, "p=tls-unique,,n=,r=a"), ScramError::ChannelBinding);
    assert_eq!(error("SCRAM-SHA-1", unbound), ScramError::Mechanism);
    let not_offered = server().client_first(MECHANISM_PLUS.as_bytes(), BOUND_FIRST.as_bytes());
    assert_eq!(not_offered, Err(ScramError::Mechanism));
}
