use proptest::prelude::*;

use super::*;
use crate::messages::{
    AuthenticationRequest, BackendKeyData, CommandComplete, DataRow, NegotiateProtocolVersion,
    ParameterStatus, ReadyForQuery,
};
use crate::{HEADER_LEN, Header};

/// Returns the body of the single message that `build` makes, which must have this code.
#[track_caller]
fn body(code: u8, build: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = b"earlier".to_vec();
    build(&mut out);
    let message = out.strip_prefix(b"earlier").unwrap();
    assert_eq!(Header::parse(message), Ok(Some(Header { code, total: message.len() })));
    message[HEADER_LEN..].to_vec()
}

#[test]
fn messages_are_laid_out_as_the_protocol_chapter_says() {
    for (code, build) in [
        (PARSE_COMPLETE, parse_complete as fn(&mut Vec<u8>)),
        (BIND_COMPLETE, bind_complete),
        (CLOSE_COMPLETE, close_complete),
        (NO_DATA, no_data),
        (EMPTY_QUERY, empty_query),
        (COPY_DONE, copy_done),
    ] {
        assert_eq!(body(code, build), b"");
    }
    assert_eq!(body(COPY_DATA, |out| copy_data(out, b"1\t\0\n")), b"1\t\0\n");
    assert_eq!(body(COPY_IN, |out| copy_in_response(out, 2)), b"\0\0\x02\0\0\0\0");
    assert_eq!(body(COPY_OUT, |out| copy_out_response(out, 0)), b"\0\0\0");
    assert_eq!(body(NOTIFICATION, |out| notification(out, 7, b"c", b"p")), b"\0\0\0\x07c\0p\0");
    let fields = ErrorFields::new("NOTICE", "00000", "hello");
    assert_eq!(body(NOTICE, |out| notice(out, &fields)), b"SNOTICE\0C00000\0Mhello\0\0");
}

#[test]
fn a_row_description_describes_text_columns_of_no_table() {
    let columns = [
        Column { name: "a", type_oid: 25, type_len: -1 },
        Column { name: "count", type_oid: 20, type_len: 8 },
    ];
    assert_eq!(
        body(ROW_DESCRIPTION, |out| row_description(out, &columns)),
        [
            &b"\0\x02"[..],
            b"a\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0",
            b"count\0\0\0\0\0\0\0\0\0\0\x14\0\x08\xff\xff\xff\xff\0\0",
        ]
        .concat()
    );
}

#[test]
fn the_negotiated_version_is_written_as_postgresql_writes_it() {
    // PostgreSQL 15's reply to a startup packet of version 3.9 with the option _pq_.x.
    assert_eq!(
        body(NEGOTIATE_PROTOCOL_VERSION, |out| negotiate_protocol_version(out, 0, &[b"_pq_.x"])),
        b"\0\x03\0\0\0\0\0\x01_pq_.x\0"
    );
}

#[test]
fn a_negotiated_version_is_read_back() {
    let decode = |body: &[u8]| NegotiateProtocolVersion::decode(body).ok();
    let read = |minor, declined| Some(NegotiateProtocolVersion { minor, declined });
    let written =
        body(NEGOTIATE_PROTOCOL_VERSION, |out| negotiate_protocol_version(out, 2, &[b"_pq_.x"]));
    assert_eq!(decode(&written), read(2, 1));
    assert_eq!(decode(b"\0\x03\0\0\0\0\0\0"), read(0, 0));
    // Too short, or of another major version.
    assert_eq!(decode(b"\0\x03\0\0\0\0\0"), None);
    assert_eq!(decode(b"\0\x02\0\0\0\0\0\0"), None);
}

#[test]
fn authentication_requests_are_read_back() {
    let salt = [1, 0, 2, 3];
    let md5 = |out: &mut Vec<u8>| authentication_md5(out, salt);
    let sasl_continue = |out: &mut Vec<u8>| authentication_sasl_continue(out, b"r=x");
    let sasl_final = |out: &mut Vec<u8>| authentication_sasl_final(out, b"v=x");
    for (expected, build) in [
        (AuthenticationRequest::Ok, &authentication_ok as &dyn Fn(&mut Vec<u8>)),
        (AuthenticationRequest::Cleartext, &authentication_cleartext),
        (AuthenticationRequest::Md5(salt), &md5),
        (AuthenticationRequest::SaslContinue(b"r=x"), &sasl_continue),
        (AuthenticationRequest::SaslFinal(b"v=x"), &sasl_final),
    ] {
        let body = body(AUTHENTICATION, build);
        assert_eq!(AuthenticationRequest::decode(&body), Ok(expected));
        for len in 0..4 {
            assert!(AuthenticationRequest::decode(&body[..len]).is_err(), "{expected:?} {len}");
        }
    }
    assert_eq!(
        AuthenticationRequest::decode(b"\0\0\0\x07"),
        Ok(AuthenticationRequest::Unsupported(7))
    );
    assert!(AuthenticationRequest::decode(b"\0\0\0\0x").is_err());
    assert!(AuthenticationRequest::decode(b"\0\0\0\x05abc").is_err());
}

#[test]
fn offered_mechanisms_are_read_back() {
    let offered = ["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"];
    let body = body(AUTHENTICATION, |out| authentication_sasl(out, &offered));
    let Ok(AuthenticationRequest::Sasl(list)) = AuthenticationRequest::decode(&body) else {
        panic!("{body:?}");
    };
    assert_eq!(list.collect::<Vec<_>>(), offered.map(str::as_bytes));
    assert!(list.contains("SCRAM-SHA-256"));
    assert!(!list.contains("SCRAM-SHA"));
    assert!(!list.contains(""));
    for len in 0..body.len() {
        assert!(AuthenticationRequest::decode(&body[..len]).is_err(), "{len}");
    }
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(1_u8.., 0..70)
}

proptest! {
    #[test]
    fn parameter_status_round_trip(name in text(), value in text()) {
        let body = body(PARAMETER_STATUS, |out| parameter_status(out, &name, &value));
        let expected = ParameterStatus { name: &name, value: &value };
        prop_assert_eq!(ParameterStatus::decode(&body), Ok(expected));
        for len in 0..body.len() {
            prop_assert!(ParameterStatus::decode(&body[..len]).is_err());
        }
    }

    #[test]
    fn backend_key_data_round_trip(pid: u32, secret in prop::collection::vec(any::<u8>(), 0..300)) {
        let body = body(BACKEND_KEY_DATA, |out| backend_key_data(out, pid, &secret));
        let decoded = BackendKeyData::decode(&body);
        if (4..=256).contains(&secret.len()) {
            prop_assert_eq!(decoded, Ok(BackendKeyData { pid, secret: &secret }));
        } else {
            prop_assert!(decoded.is_err());
        }
    }

    #[test]
    fn command_complete_round_trip(tag in "[A-Z 0-9]{0,40}") {
        let body = body(COMMAND_COMPLETE, |out| command_complete(out, &tag));
        prop_assert_eq!(CommandComplete::decode(&body), Ok(CommandComplete { tag: tag.as_bytes() }));
    }

    #[test]
    fn ready_for_query_round_trip(status: u8) {
        let body = body(READY_FOR_QUERY, |out| ready_for_query(out, status));
        let known = b"ITE".contains(&status).then_some(ReadyForQuery { status });
        prop_assert_eq!(ReadyForQuery::decode(&body).ok(), known);
    }

    #[test]
    fn data_row_round_trip(values: Vec<Option<Vec<u8>>>) {
        let values: Vec<_> = values.iter().map(Option::as_deref).collect();
        let body = body(DATA_ROW, |out| data_row(out, &values));
        let row = DataRow::decode(&body).unwrap();
        prop_assert_eq!((row.len(), row.is_empty()), (values.len(), values.is_empty()));
        prop_assert_eq!(row.values().collect::<Vec<_>>(), values);
        for len in 0..body.len() {
            prop_assert!(DataRow::decode(&body[..len]).is_err());
        }
        prop_assert!(DataRow::decode(&[&body[..], b"x"].concat()).is_err());
    }
}
