//! Bodies that the views refuse. The tests of the builders check that the views read what builders
//! write.

use proptest::prelude::*;

use super::*;
use crate::{HEADER_LEN, backend};

#[track_caller]
fn refused<T: std::fmt::Debug>(decoded: Result<T, MessageError>, expected: &str) {
    assert_eq!(decoded.unwrap_err().to_string(), expected);
}

#[test]
fn errors_say_what_was_expected() {
    refused(Query::decode(b"select 1"), "malformed Query: expected a query string");
    refused(Query::decode(b"a\0b"), "malformed Query: expected the end of the message");
    refused(Parse::decode(b"s\0q"), "malformed Parse: expected a query string");
    refused(Bind::decode(b"p\0s"), "malformed Bind: expected a statement name");
    refused(
        Password::decode(b"p\0q"),
        "malformed PasswordMessage: expected the end of the message",
    );
    refused(
        StatementOrPortal::decode(b"Xname\0"),
        "malformed Describe or Close: expected a kind of S or P",
    );
    refused(
        StatementOrPortal::decode(b"Sname\0x"),
        "malformed Describe or Close: expected the end of the message",
    );
    refused(
        ReadyForQuery::decode(b"II"),
        "malformed ReadyForQuery: expected a status of I, T or E",
    );
}

#[test]
fn the_types_of_a_parse_are_as_many_as_it_says() {
    assert!(Parse::decode(b"\0q\0\0\0").is_ok());
    assert!(Parse::decode(b"\0q\0\0\x01\0\0\0\x17").is_ok());
    for types in [&b""[..], b"\0", b"\0\x01", b"\0\x01\0\0\0", b"\0\0x", b"\0\x01\0\0\0\x17x"] {
        assert!(Parse::decode(&[b"\0q\0", types].concat()).is_err(), "{types:?}");
    }
}

#[test]
fn sasl_data_are_as_long_as_they_say() {
    let no_data = SaslInitialResponse { mechanism: b"M", data: b"" };
    assert_eq!(SaslInitialResponse::decode(b"M\0\xff\xff\xff\xff"), Ok(no_data));
    for tail in
        [&b"\xff\xff\xff\xffx"[..], b"\xff\xff\xff\xfex", b"\x7f\xff\xff\xffx", b"\0\0\0\0x"]
    {
        assert!(SaslInitialResponse::decode(&[b"M\0", tail].concat()).is_err(), "{tail:?}");
    }
}

#[test]
fn a_row_with_a_wild_length_is_refused() {
    for value in [&b"\x7f\xff\xff\xff"[..], b"\xff\xff\xff\xfe", b"\x80\0\0\0", b""] {
        assert!(DataRow::decode(&[b"\0\x01", value].concat()).is_err(), "{value:?}");
    }
    assert!(DataRow::decode(b"\xff\xff").is_err());
}

#[test]
fn a_row_description_has_names_and_types() {
    let columns = [
        backend::Column { name: "database", type_oid: 25, type_len: -1 },
        backend::Column { name: "maxwait", type_oid: 23, type_len: 4 },
    ];
    let mut out = Vec::new();
    backend::row_description(&mut out, &columns);
    let body = &out[HEADER_LEN..];
    let read = RowDescription::decode(body).unwrap();
    assert_eq!(read.columns, [(&b"database"[..], 25), (&b"maxwait"[..], 23)]);
    for len in 0..body.len() {
        assert!(RowDescription::decode(&body[..len]).is_err(), "{len}");
    }
}

#[test]
fn debug_shows_no_password_and_no_key() {
    let password = Password { password: b"hunter2" };
    let initial = SaslInitialResponse { mechanism: b"M", data: b"n,,n=,r=x" };
    let key = BackendKeyData { pid: 1, secret: b"abcd" };
    assert_eq!(format!("{password:?}"), "Password { .. }");
    assert_eq!(format!("{initial:?}"), "SaslInitialResponse { mechanism: \"M\", .. }");
    assert_eq!(format!("{key:?}"), "BackendKeyData { pid: 1, .. }");
}

/// Bytes that contain more of what the decoders expect than random ones.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![3 => Just(0), 1 => Just(0xff), 1 => 1_u8..16, 2 => any::<u8>()];
    prop::collection::vec(byte, 0..80)
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_or_refused(body in body()) {
        let _ = Bind::decode(&body);
        let _ = BackendKeyData::decode(&body);
        let _ = CommandComplete::decode(&body);
        let _ = ParameterStatus::decode(&body);
        if let Ok(said) = NotificationResponse::decode(&body) {
            let mut again = Vec::new();
            backend::notification(&mut again, said.pid, said.channel, said.payload);
            prop_assert_eq!(&again[HEADER_LEN..], &body[..]);
        }
        let _ = Parse::decode(&body);
        let _ = Password::decode(&body);
        let _ = Query::decode(&body);
        let _ = ReadyForQuery::decode(&body);
        let _ = SaslInitialResponse::decode(&body);
        let _ = StatementOrPortal::decode(&body);
        let _ = Execute::decode(&body);
        let _ = bind_names(&body);
        if let Ok(AuthenticationRequest::Sasl(list)) = AuthenticationRequest::decode(&body) {
            prop_assert!(list.count() <= body.len());
        }
        if let Ok(row) = RowDescription::decode(&body) {
            prop_assert!(row.columns.len() <= body.len());
        }
        if let Ok(row) = DataRow::decode(&body) {
            prop_assert_eq!(row.values().count(), row.len());
        }
    }
}
