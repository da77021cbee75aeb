use proptest::prelude::*;

use super::*;
use crate::frontend;

fn packet(code: u32, rest: &[u8]) -> Vec<u8> {
    let length = (8 + rest.len()) as u32;
    [&length.to_be_bytes()[..], &code.to_be_bytes(), rest].concat()
}

#[track_caller]
fn check_packet_len(bytes: &[u8], expected: Result<Option<usize>, StartupError>) {
    assert_eq!(packet_len(bytes), expected, "{bytes:?}");
}

#[test]
fn the_length_has_limits() {
    check_packet_len(b"", Ok(None));
    check_packet_len(b"\0\0\0", Ok(None));
    check_packet_len(b"GET", Ok(None));
    check_packet_len(b"\0\0\0\0", Err(StartupError::Length(0)));
    check_packet_len(b"\0\0\0\x07", Err(StartupError::Length(7)));
    check_packet_len(b"\0\0\0\x08", Ok(Some(8)));
    check_packet_len(b"\0\x01\0\0rest", Ok(Some(65_536)));
    check_packet_len(b"\0\x01\0\x01", Err(StartupError::Length(65_537)));
    check_packet_len(b"\xff\xff\xff\xff", Err(StartupError::Length(u32::MAX)));
    check_packet_len(b"\x7f\xff\xff\xff", Err(StartupError::Length(i32::MAX as u32)));
}

#[test]
fn other_protocols_are_told_apart() {
    check_packet_len(b"GET / HTTP/1.1\r\n", Err(StartupError::Http));
    check_packet_len(b"POST", Err(StartupError::Http));
    check_packet_len(b"PRI * HTTP/2.0", Err(StartupError::Http));
    check_packet_len(b"\r\n\r\n\0\r\nQUIT\n", Err(StartupError::ProxyHeader));
    check_packet_len(b"PROXY TCP4 ", Err(StartupError::ProxyHeader));
    check_packet_len(b"\x16\x03\x01\x02\0\x01", Err(StartupError::Tls));
    check_packet_len(b"SSH-", Err(StartupError::Length(u32::from_be_bytes(*b"SSH-"))));
}

#[test]
fn requests_of_a_fixed_length_have_that_length() {
    assert_eq!(parse(&packet(SSL_REQUEST, b"")), Ok(StartupRequest::Ssl));
    assert_eq!(parse(&packet(GSSENC_REQUEST, b"")), Ok(StartupRequest::GssEnc));
    assert_eq!(parse(&packet(SSL_REQUEST, b"x")), Err(StartupError::Length(9)));
    assert_eq!(parse(&packet(GSSENC_REQUEST, b"\0\0")), Err(StartupError::Length(10)));
}

#[test]
fn a_cancel_key_has_a_secret_of_4_to_256_bytes() {
    for len in 0..300 {
        let secret = vec![7; len];
        let mut out = Vec::new();
        frontend::cancel_request(&mut out, 0xdead_beef, &secret);
        let expected = if (4..=256).contains(&len) {
            Ok(StartupRequest::Cancel(CancelKey { pid: 0xdead_beef, secret }))
        } else {
            Err(StartupError::CancelKey)
        };
        assert_eq!(parse(&out), expected, "{len}");
    }
    assert_eq!(parse(&packet(CANCEL_REQUEST, b"abc")), Err(StartupError::CancelKey));
}

#[test]
fn debug_shows_no_cancel_secret() {
    let key = CancelKey { pid: 1, secret: b"\x2a\x2a\x2a\x2a".to_vec() };
    assert_eq!(format!("{key:?}"), "CancelKey { pid: 1, .. }");
}

#[test]
fn only_the_major_version_3_is_read() {
    let version = |major: u32, minor: u32| major << 16 | minor;
    assert_eq!(parse(&packet(version(2, 0), &[0; 288])), Err(StartupError::OldProtocol));
    assert_eq!(parse(&packet(version(1, 0), b"\0")), Err(StartupError::OldProtocol));
    for (major, minor) in [(0, 0), (4, 0), (1234, 5681), (0xffff, 0xffff)] {
        assert_eq!(
            parse(&packet(version(major.into(), minor.into()), b"\0")),
            Err(StartupError::UnsupportedVersion { major, minor })
        );
    }
    let newer = packet(version(3, 2), b"user\0u\0\0");
    let Ok(StartupRequest::Startup(newer)) = parse(&newer) else { panic!() };
    assert_eq!((newer.major, newer.minor), (3, 2));
}

#[test]
fn parameters_end_with_a_terminator_that_is_the_last_byte() {
    for parameters in
        [&b""[..], b"user", b"user\0", b"user\0u", b"user\0u\0", b"user\0u\0\0\0", b"\0x", b"\0\0"]
    {
        assert_eq!(
            parse(&packet(PROTOCOL_3_0, parameters)),
            Err(StartupError::MissingTerminator),
            "{parameters:?}"
        );
    }
    assert_eq!(
        StartupError::MissingTerminator.to_string(),
        "invalid startup packet layout: expected terminator as last byte"
    );
}

#[test]
fn parameters_keep_their_order_and_the_last_of_a_name_counts() {
    let packet = packet(PROTOCOL_3_0, b"user\0a\0database\0\0user\0b\0\0");
    let Ok(StartupRequest::Startup(startup)) = parse(&packet) else { panic!() };
    let expected: [(&[u8], &[u8]); 3] = [(b"user", b"a"), (b"database", b""), (b"user", b"b")];
    assert_eq!(startup.parameters().collect::<Vec<_>>(), expected);
    assert_eq!(startup.get("user"), Some(&b"b"[..]));
    assert_eq!(startup.get("database"), Some(&b""[..]));
    assert_eq!(startup.get("options"), None);
}

#[test]
fn no_parameters_are_a_packet_too() {
    let packet = packet(PROTOCOL_3_0, b"\0");
    let Ok(StartupRequest::Startup(startup)) = parse(&packet) else { panic!() };
    assert_eq!(startup.parameters().count(), 0);
}

#[test]
fn a_packet_that_is_not_as_long_as_it_says_is_refused() {
    let whole = packet(PROTOCOL_3_0, b"user\0u\0\0");
    let declared = whole.len() as u32;
    for len in 0..whole.len() {
        let expected = if len < 4 { 0 } else { declared };
        assert_eq!(parse(&whole[..len]), Err(StartupError::Length(expected)), "{len}");
    }
    assert_eq!(parse(&[&whole[..], b"x"].concat()), Err(StartupError::Length(declared)));
}

proptest! {
    #[test]
    fn startup_round_trip(parameters in prop::collection::vec(
        ("[a-zA-Z_.]{1,20}", "[^\0]{0,30}"), 0..10)
    ) {
        let given: Vec<_> = parameters.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let mut out = Vec::new();
        frontend::startup(&mut out, 0, &given);
        let Ok(StartupRequest::Startup(startup)) = parse(&out) else { panic!() };
        let read: Vec<_> = startup.parameters().collect();
        let expected: Vec<_> = given.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())).collect();
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        code in prop_oneof![Just(PROTOCOL_3_0), Just(CANCEL_REQUEST), any::<u32>()],
        rest: Vec<u8>
    ) {
        let _ = packet_len(&rest);
        let _ = parse(&rest);
        if let Ok(StartupRequest::Startup(startup)) = parse(&packet(code, &rest)) {
            prop_assert!(startup.parameters().all(|(name, _)| !name.is_empty()));
        }
    }
}
