mod binding;

use proptest::prelude::*;

use super::attributes::{decode_key, encode};
use super::keys::{hmac, sha256, xor};
use super::*;

// One exchange with the password `secret`, the salt 0..16 and nonces of 0x11 and 0xee, computed
// with Python's hashlib and hmac.
const CLIENT_FIRST: &str = "n,,n=,r=ERERERERERERERERERERERER";
const SERVER_FIRST: &str = "\
    r=ERERERERERERERERERERERER7u7u7u7u7u7u7u7u7u7u7u7u,s=AAECAwQFBgcICQoLDA0ODw==,i=4096";
const CLIENT_FINAL: &str = "\
    c=biws,r=ERERERERERERERERERERERER7u7u7u7u7u7u7u7u7u7u7u7u,p=Iml04uelMVfk+T3kjl0iyoyeEMcfK7\
    GG+7dvvaRpwVo=";
const SERVER_FINAL: &str = "v=Te1ePcEMOuxylZr2az/joCJqIod5rSBcZXZab+snL6A=";
const VERIFIER: &str = "\
    SCRAM-SHA-256$4096:AAECAwQFBgcICQoLDA0ODw==$THoPhoTAuqyoQsK4dUHncUzgfD8fdmhsgKZhWVqNP5U=:7\
    YiHMMi2OcXGRogub03Ek06JRZ9bkhTOdCzHa5iPLiQ=";

/// Passwords and PostgreSQL 15's stored values for them. One is plain ASCII, normalisation changes
/// one, its rules for right-to-left text forbid one, and its rules would reduce one to nothing.
const STORED: [(&str, &str); 4] = [
    (
        "secret",
        "SCRAM-SHA-256$4096:P5eTEer6BaeWH3bO6/RSDA==$\
         jBi1nhKc5Tv4PFg/wcADL38xKsvJUOMkIfJiWLUD57g=:cHn9T8+AWlIxzjB+AXF2Bb5G+7XWUzIiuxAvIoJqvVI=",
    ),
    (
        "paßword \u{2168}",
        "SCRAM-SHA-256$4096:MrDWOFHPHAbJ4lSSx7Bvzw==$\
         o1Qv3He1ttp83S/DJz4t3ZjQyk8W8Xf16Qyb1BcgZWY=:KFCHhcs5oszet/BA/3KPfrZjNkqqWMOL+CpQ0Emba8U=",
    ),
    (
        "\u{627}1",
        "SCRAM-SHA-256$4096:t9Mxyk1KZ+PrwDS8Yw+Hbw==$\
         S2mfaauRthu23X2PHuF5O6biFntu5JZPXvWyatSDiPM=:Olxf9Sd/Pqd/mftig7B1kxeb9xpriVB2Ru7jeBy7RXM=",
    ),
    (
        "\u{ad}",
        "SCRAM-SHA-256$4096:fjVJKfjIw16pGTP8zusSOQ==$\
         vVoFKCZucx4yn4WbUZz5KFRlB87rHRfgXdlEEAtwzHk=:LKfvXaxw1/marD5qbhv+9G0j4Iyjz54s1HP1joVin04=",
    ),
];

fn verifier() -> ScramVerifier {
    ScramVerifier::parse(VERIFIER).unwrap()
}

fn server() -> ScramServer {
    ScramServer::new(verifier(), [0xee; NONCE_LEN])
}

fn client(password: &str) -> ScramClient {
    ScramClient::new(ScramSecret::Password(password.into()), [0x11; NONCE_LEN])
}

fn malformed(expected: &'static str) -> ScramError {
    ScramError::Malformed { expected }
}

#[test]
fn the_example_of_rfc_7677() {
    let salt = b"\x5b\x6d\x99\x68\x9d\x12\x35\x8e\xec\xa0\x4b\x14\x12\x36\xfa\x81";
    let signed = b"n=user,r=rOprNGfwEbeRWgbNEkqO,\
        r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,\
        c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    let keys = ScramKeys::from_password(b"pencil", salt, 4096);
    let signature = hmac(&sha256(&keys.client_key), &[signed]);
    assert_eq!(
        encode(&xor(keys.client_key, signature)),
        "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    );
    assert_eq!(
        encode(&hmac(&keys.server_key, &[signed])),
        "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    );
}

#[test]
fn a_long_key_is_hashed_first() {
    // python: hmac.new(b'k' * 65, b'data', 'sha256').hexdigest()
    let expected = "a79b53d0bf1cb4bb00c301979e6e60ef792a435cafabd76ab9e8989bbdef2dff";
    assert_eq!(hmac(&[b'k'; 65], &[b"da", b"ta"]).map(|b| format!("{b:02x}")).concat(), expected);
}

#[test]
fn a_whole_exchange_byte_for_byte() {
    let (mut client, mut server) = (client("secret"), server());
    assert_eq!(client.first(), CLIENT_FIRST.as_bytes());
    assert_eq!(
        server.client_first(MECHANISM.as_bytes(), CLIENT_FIRST.as_bytes()),
        Ok(SERVER_FIRST.into())
    );
    assert_eq!(client.server_first(SERVER_FIRST.as_bytes()), Ok(CLIENT_FINAL.into()));
    let finished = server.client_final(CLIENT_FINAL.as_bytes()).unwrap();
    assert_eq!(finished.reply, SERVER_FINAL.as_bytes());
    assert_eq!(client.server_final(&finished.reply), Ok(()));
    let (salt, iterations, keys) = client.derived().unwrap();
    assert_eq!((salt, iterations), ((0..16).collect(), 4096));
    assert_eq!(finished.client_key, keys.client_key);
    assert_eq!(verifier().server_key, keys.server_key);
}

#[test]
fn stored_values_of_postgresql_match_the_password() {
    for (password, stored) in STORED {
        let verifier = ScramVerifier::parse(stored).unwrap();
        assert!(verifier.verify_password(password.as_bytes()), "{password:?}");
        assert!(!verifier.verify_password(b"other"));
        assert_eq!(
            ScramVerifier::from_password(password.as_bytes(), &verifier.salt, 4096),
            verifier
        );
        assert_eq!(verifier.to_string(), stored);
    }
}

#[test]
fn other_texts_are_no_verifier() {
    for (from, to) in [
        ("SCRAM-SHA-256", "SCRAM-SHA-1"),
        ("SCRAM-SHA-256", "scram-sha-256"),
        ("4096", ""),
        ("4096", "0"),
        ("4096", "+1"),
        ("4096", "4294967296"),
        ("==$", "=$"),
        ("$4096", "4096"),
        (":AA", "AA"),
        ("=:", "A=:"),
    ] {
        let text = VERIFIER.replacen(from, to, 1);
        assert_ne!(text, VERIFIER, "{from}");
        assert_eq!(ScramVerifier::parse(&text), None, "{text}");
    }
    for len in 0..VERIFIER.len() {
        assert_eq!(ScramVerifier::parse(&VERIFIER[..len]), None, "{len}");
    }
    assert_eq!(ScramVerifier::parse(&format!("{VERIFIER}A")), None);
}

#[test]
fn a_mock_fails_like_a_wrong_password_and_looks_the_same_twice() {
    let mock = ScramVerifier::mock(&[9; 32], b"nobody", 4096);
    assert_eq!(mock, ScramVerifier::mock(&[9; 32], b"nobody", 4096));
    assert_ne!(mock.salt, ScramVerifier::mock(&[9; 32], b"somebody", 4096).salt);
    assert_ne!(mock.salt, ScramVerifier::mock(&[8; 32], b"nobody", 4096).salt);
    assert_eq!((mock.salt.len(), mock.iterations), (16, ITERATIONS_DEFAULT));
    let mut server = ScramServer::new(mock, [0; NONCE_LEN]);
    let mut client = client("secret");
    let first = server.client_first(MECHANISM.as_bytes(), &client.first()).unwrap();
    let last = client.server_first(&first).unwrap();
    assert_eq!(server.client_final(&last).unwrap_err(), ScramError::Proof);
}

#[test]
fn keys_learnt_from_a_client_open_the_server() {
    let finished = {
        let (mut client, mut server) = (client("secret"), server());
        let first = server.client_first(MECHANISM.as_bytes(), &client.first()).unwrap();
        server.client_final(&client.server_first(&first).unwrap()).unwrap()
    };
    let keys = ScramKeys { client_key: finished.client_key, server_key: verifier().server_key };
    let mut client = ScramClient::new(ScramSecret::Keys(keys), [3; NONCE_LEN]);
    let mut server = ScramServer::new(verifier(), [4; NONCE_LEN]);
    let first = server.client_first(MECHANISM.as_bytes(), &client.first()).unwrap();
    let finished = server.client_final(&client.server_first(&first).unwrap()).unwrap();
    assert_eq!(client.server_final(&finished.reply), Ok(()));
    assert_eq!(client.derived(), None);
}

#[test]
fn derived_keys_are_used_only_for_their_salt_and_iterations() {
    let wrong = ScramKeys { client_key: [0; 32], server_key: [0; 32] };
    let last = |salt: Vec<u8>, iterations| {
        client("secret")
            .with_derived(salt, iterations, wrong.clone())
            .server_first(SERVER_FIRST.as_bytes())
            .unwrap()
    };
    let salt: Vec<u8> = (0..16).collect();
    assert_ne!(last(salt.clone(), 4096), CLIENT_FINAL.as_bytes());
    assert_eq!(last(salt, 4095), CLIENT_FINAL.as_bytes());
    assert_eq!(last(vec![], 4096), CLIENT_FINAL.as_bytes());
}

#[test]
fn too_many_iterations_are_refused_before_they_are_computed() {
    let demand = |iterations: u32| {
        let message = SERVER_FIRST.replace("i=4096", &format!("i={iterations}"));
        client("secret").server_first(message.as_bytes())
    };
    assert_eq!(demand(4096).unwrap(), CLIENT_FINAL.as_bytes());
    for iterations in [ITERATIONS_MAX + 1, u32::MAX] {
        assert_eq!(demand(iterations), Err(ScramError::Iterations(iterations)));
    }
}

#[test]
fn a_wrong_password_is_a_wrong_proof() {
    let (mut client, mut server) = (client("Secret"), server());
    let first = server.client_first(MECHANISM.as_bytes(), &client.first()).unwrap();
    let last = client.server_first(&first).unwrap();
    assert_eq!(server.client_final(&last).unwrap_err(), ScramError::Proof);
}

#[test]
fn the_client_s_first_message_is_checked() {
    let ok = |message: &str| {
        assert!(
            server().client_first(MECHANISM.as_bytes(), message.as_bytes()).is_ok(),
            "{message}"
        )
    };
    ok("n,,n=,r=abc");
    ok("y,,n=,r=abc");
    ok("n,,n=anybody=2C,r=abc,x=extension");
    let check = |message: &str, expected: ScramError| {
        assert_eq!(
            server().client_first(MECHANISM.as_bytes(), message.as_bytes()),
            Err(expected),
            "{message}"
        );
    };
    check("p=tls-server-end-point,,n=,r=abc", ScramError::ChannelBinding);
    check("n,a=admin,n=,r=abc", ScramError::AuthorizationIdentity);
    check("n,,m=x,n=,r=abc", ScramError::MandatoryExtension);
    check("", malformed("a channel-binding flag"));
    check("x,,n=,r=abc", malformed("a channel-binding flag"));
    check("n,b,n=,r=abc", malformed("an empty authorization identity"));
    check("n,", malformed("an empty authorization identity"));
    check("n,,", malformed("a user name"));
    check("n,,r=abc", malformed("a user name"));
    check("n,,n=", malformed("a nonce"));
    check("n,,n=,r=", malformed("a nonce of visible characters"));
    check("n,,n=,r=a c", malformed("a nonce of visible characters"));
    check("n,,n=,r=a\u{e9}", malformed("a nonce of visible characters"));
    check("n,,n=,r=abc,", malformed("an extension"));
    check("n,,n=,r=abc,1=x", malformed("an extension"));
}

#[test]
fn the_client_s_last_message_is_checked() {
    let check = |message: &str, expected: ScramError| {
        let mut server = server();
        server.client_first(MECHANISM.as_bytes(), CLIENT_FIRST.as_bytes()).unwrap();
        assert_eq!(server.client_final(message.as_bytes()).unwrap_err(), expected, "{message}");
    };
    let replaced = |from, to| CLIENT_FINAL.replacen(from, to, 1);
    check(&replaced("biws", "eSws"), ScramError::ChannelBindingMismatch);
    check(&replaced("r=ER", "r=EQ"), ScramError::Nonce);
    check(&replaced(",p=", ",x=1,p="), ScramError::Proof);
    check(&replaced(",p=", ",x,p="), malformed("an extension"));
    check(&replaced(",p=", ",q="), malformed("a proof at the end"));
    check(&format!("{CLIENT_FINAL}A"), malformed("a proof at the end"));
    check(&format!("{CLIENT_FINAL},x=1"), malformed("a proof at the end"));
    check("", malformed("a proof at the end"));
    for len in 0..CLIENT_FINAL.len() {
        check(&CLIENT_FINAL[..len], malformed("a proof at the end"));
    }
}

#[test]
fn a_client_that_said_y_repeats_it() {
    let mut server = server();
    server
        .client_first(MECHANISM.as_bytes(), CLIENT_FIRST.replacen('n', "y", 1).as_bytes())
        .unwrap();
    assert_eq!(
        server.client_final(CLIENT_FINAL.as_bytes()).unwrap_err(),
        ScramError::ChannelBindingMismatch
    );
}

#[test]
fn the_server_s_first_message_is_checked() {
    let check = |message: &str, expected: ScramError| {
        let mut client = client("secret");
        assert_eq!(client.server_first(message.as_bytes()), Err(expected), "{message}");
        assert_eq!(client.derived(), None);
    };
    let replaced = |from, to| SERVER_FIRST.replacen(from, to, 1);
    let own_nonce = encode(&[0x11; NONCE_LEN]);
    check(&replaced("r=ER", "r=EQ"), ScramError::Nonce);
    check(&format!("r={own_nonce},s=AAAA,i=1"), ScramError::Nonce);
    check(&replaced("i=4096", "i=1000001"), ScramError::Iterations(1_000_001));
    check(&replaced("i=4096", "i=0"), malformed("a positive number"));
    check(&replaced("i=4096", "i=-1"), malformed("a positive number"));
    check(&replaced("i=4096", "i="), malformed("a positive number"));
    check(&replaced("s=AA", "s=!A"), malformed("a salt in base64"));
    check(&format!("m=x,{SERVER_FIRST}"), ScramError::MandatoryExtension);
    check(&format!("{SERVER_FIRST},"), malformed("an extension"));
    check("e=other-error", malformed("a nonce"));
    for len in 0..SERVER_FIRST.find(",i=").unwrap() {
        assert!(client("secret").server_first(&SERVER_FIRST.as_bytes()[..len]).is_err(), "{len}");
    }
}

#[test]
fn the_server_s_last_message_is_checked() {
    let mut waiting = client("secret");
    waiting.server_first(SERVER_FIRST.as_bytes()).unwrap();
    let (salt, iterations, keys) = waiting.derived().unwrap();
    let last = |message: &[u8]| {
        let mut client = client("secret").with_derived(salt.clone(), iterations, keys.clone());
        client.server_first(SERVER_FIRST.as_bytes()).unwrap();
        client.server_final(message)
    };
    assert_eq!(last(SERVER_FINAL.as_bytes()), Ok(()));
    assert_eq!(last(b"e=invalid-proof"), Err(ScramError::Refused("invalid-proof".into())));
    assert_eq!(last(b"v=AAAA"), Err(malformed("a signature in base64")));
    let other = format!("v={}", encode(&[0; 32]));
    assert_eq!(last(other.as_bytes()), Err(ScramError::ServerSignature));
    for len in 0..SERVER_FINAL.len() {
        assert!(last(&SERVER_FINAL.as_bytes()[..len]).is_err(), "{len}");
    }
}

#[test]
fn each_message_is_taken_once_and_in_order() {
    let mut server = server();
    assert_eq!(server.client_final(CLIENT_FINAL.as_bytes()).unwrap_err(), ScramError::OutOfOrder);
    assert_eq!(
        server.client_first(MECHANISM.as_bytes(), CLIENT_FIRST.as_bytes()),
        Err(ScramError::OutOfOrder)
    );
    let mut client = client("secret");
    assert_eq!(client.server_final(SERVER_FINAL.as_bytes()), Err(ScramError::OutOfOrder));
    assert_eq!(client.server_first(SERVER_FIRST.as_bytes()), Err(ScramError::OutOfOrder));
}

#[test]
fn debug_shows_no_secret() {
    let keys = ScramKeys { client_key: [7; 32], server_key: [7; 32] };
    let shown = [
        format!("{:?}", verifier()),
        format!("{keys:?}"),
        format!("{:?}", ScramSecret::Keys(keys)),
        format!("{:?} {:?}", ScramSecret::Password(b"secret".to_vec()), client("secret")),
        format!("{:?}", server()),
        format!("{:?}", ServerFinished { reply: vec![7], client_key: [7; 32] }),
    ]
    .concat();
    assert!(!shown.contains('7') && !shown.contains("secret"), "{shown}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_right_password_and_no_other_gets_in(
        password: Vec<u8>, tried: Vec<u8>, salt: Vec<u8>, iterations in 0_u32..20,
        client_nonce: [u8; NONCE_LEN], server_nonce: [u8; NONCE_LEN],
    ) {
        let verifier = ScramVerifier::from_password(&password, &salt, iterations);
        let stored = verifier.to_string();
        prop_assert_eq!(ScramVerifier::parse(&stored), Some(verifier.clone()));
        for tried in [&password, &tried] {
            let mut client = ScramClient::new(ScramSecret::Password(tried.clone()), client_nonce);
            let mut server = ScramServer::new(verifier.clone(), server_nonce);
            let first = server.client_first(MECHANISM.as_bytes(), &client.first()).unwrap();
            let finished = server.client_final(&client.server_first(&first).unwrap());
            if verifier.verify_password(tried) {
                prop_assert_eq!(client.server_final(&finished.unwrap().reply), Ok(()));
            } else {
                prop_assert_eq!(finished.unwrap_err(), ScramError::Proof);
            }
            prop_assert!(*tried != password || verifier.verify_password(tried));
        }
    }

    /// A message with one changed byte ends the exchange, on either side.
    #[test]
    fn a_changed_message_is_refused(
        which in 0_usize..4, at: prop::sample::Index, replacement: u8
    ) {
        let mut messages = [CLIENT_FIRST, SERVER_FIRST, CLIENT_FINAL, SERVER_FINAL]
            .map(|message| message.as_bytes().to_vec());
        let byte = at.get_mut(&mut messages[which]);
        prop_assume!(*byte != replacement);
        *byte = replacement;
        let [client_first, server_first, client_final, server_final] = messages;

        let mut server = server();
        let let_in = server.client_first(MECHANISM.as_bytes(), &client_first).is_ok()
            && server.client_final(&client_final).is_ok();
        let keys = ScramKeys {
            client_key: xor(
                decode_key(&CLIENT_FINAL.as_bytes()[CLIENT_FINAL.len() - 44..]).unwrap(),
                hmac(&verifier().stored_key, &[signed().as_bytes()]),
            ),
            server_key: verifier().server_key,
        };
        let mut client = ScramClient::new(ScramSecret::Keys(keys), [0x11; NONCE_LEN]);
        let trusted = client.server_first(&server_first).is_ok()
            && client.server_final(&server_final).is_ok();
        let from_client = which % 2 == 0;
        prop_assert_eq!((let_in, trusted), (!from_client, from_client));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>, text in "[cnrspivey]=[a-zA-Z0-9+/=,]{0,60}") {
        for data in [&bytes, text.as_bytes()] {
            let _ = server().client_first(MECHANISM.as_bytes(), data);
            let mut server = server();
            server.client_first(MECHANISM.as_bytes(), CLIENT_FIRST.as_bytes()).unwrap();
            prop_assert!(server.client_final(data).is_err());
            prop_assert!(client("secret").server_first(data).is_err());
            let _ = ScramVerifier::parse(&String::from_utf8_lossy(data));
        }
    }
}

/// Returns the text that both sides sign in the exchange above.
fn signed() -> String {
    let without_proof = CLIENT_FINAL.split_once(",p=").unwrap().0;
    format!("{},{SERVER_FIRST},{without_proof}", &CLIENT_FIRST["n,,".len()..])
}
