use proptest::prelude::*;

use super::*;
use crate::messages::{
    Bind, FirstParameter, Parse, Password, Query, SaslInitialResponse, StatementOrPortal,
    bind_names, bind_values, call_function, call_values, first_parameter, parameter_count,
};
use crate::startup::{StartupRequest, packet_len};
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

#[track_caller]
fn opening(build: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    build(&mut out);
    assert_eq!(packet_len(&out), Ok(Some(out.len())));
    out
}

#[test]
fn messages_are_laid_out_as_the_protocol_chapter_says() {
    assert_eq!(body(QUERY, |out| query(out, b"select 1")), b"select 1\0");
    assert_eq!(body(EXECUTE, |out| execute(out, b"c", 258)), b"c\0\0\0\x01\x02");
    assert_eq!(body(SYNC, sync), b"");
    assert_eq!(body(FLUSH, flush), b"");
    assert_eq!(body(TERMINATE, terminate), b"");
    assert_eq!(body(COPY_DATA, |out| copy_data(out, b"1\t\0\n")), b"1\t\0\n");
    assert_eq!(body(COPY_DONE, copy_done), b"");
    assert_eq!(body(COPY_FAIL, |out| copy_fail(out, b"why")), b"why\0");
    assert_eq!(body(PASSWORD, |out| sasl_response(out, b"c=biws")), b"c=biws");
    assert_eq!(
        body(BIND, |out| bind_text(out, b"s", &[Some(b"ab"), None])),
        b"\0s\0\0\0\0\x02\0\0\0\x02ab\xff\xff\xff\xff\0\0"
    );
}

#[test]
fn the_opening_packets_are_read_back() {
    let packet = opening(|out| startup(out, 0, &[("user", "u"), ("database", "d")]));
    assert_eq!(packet, b"\0\0\0\x1b\0\x03\0\0user\0u\0database\0d\0\0");
    assert_eq!(opening(ssl_request), b"\0\0\0\x08\x04\xd2\x16\x2f");
    assert_eq!(opening(gssenc_request), b"\0\0\0\x08\x04\xd2\x16\x30");
    let packet = opening(|out| cancel_request(out, 7, b"abcd"));
    assert_eq!(packet, b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x07abcd");
}

#[test]
fn a_nul_cannot_smuggle_in_another_field() {
    let packet = opening(|out| startup(out, 0, &[("user", "u\0database\0evil")]));
    let Ok(StartupRequest::Startup(packet)) = startup::parse(&packet) else { panic!() };
    assert_eq!(packet.parameters().collect::<Vec<_>>(), [(&b"user"[..], &b"u"[..])]);
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(1_u8.., 0..70)
}

proptest! {
    #[test]
    fn parse_round_trip(name in name(), sql in name(), types: Vec<[u8; 4]>) {
        let types_raw = [&(types.len() as u16).to_be_bytes()[..], &types.concat()].concat();
        let body = body(PARSE, |out| parse(out, &name, &sql, &types_raw));
        let expected = Parse { name: &name, sql: &sql, types_raw: &types_raw };
        prop_assert_eq!(Parse::decode(&body), Ok(expected));
        for len in 0..body.len() {
            prop_assert!(Parse::decode(&body[..len]).is_err());
        }
    }

    #[test]
    fn bind_round_trip(portal in name(), statement in name(), rest: Vec<u8>) {
        let body = body(BIND, |out| bind(out, &portal, &statement, &rest));
        let expected = Bind { portal: &portal, statement: &statement, rest: &rest };
        prop_assert_eq!(Bind::decode(&body), Ok(expected));
        let names_end = portal.len() + statement.len() + 2;
        for len in 0..=body.len() {
            let names = (len >= names_end).then_some((&portal[..], &statement[..], names_end));
            prop_assert_eq!(bind_names(&body[..len]), names);
        }
    }

    #[test]
    fn values_of_a_bind_are_found(
        formats in prop::collection::vec(0..2_u16, 0..3),
        values: Vec<Option<Vec<u8>>>,
        cut in any::<prop::sample::Index>(),
    ) {
        let mut rest = (formats.len() as u16).to_be_bytes().to_vec();
        rest.extend(formats.iter().flat_map(|format| format.to_be_bytes()));
        rest.extend((values.len() as u16).to_be_bytes());
        for value in &values {
            let len = value.as_ref().map_or(-1, |value| value.len() as i32);
            rest.extend(len.to_be_bytes());
            rest.extend(value.iter().flatten());
        }
        let body = body(BIND, |out| bind(out, b"p", b"s", &rest));
        let there: Vec<_> = values.iter().flatten().map(Vec::as_slice).collect();
        prop_assert_eq!(bind_values(&body).collect::<Vec<_>>(), &there[..]);
        let first = values.first().map(|value| FirstParameter {
            is_binary: formats.first() == Some(&1),
            value: value.as_deref(),
            count: values.len() as u16,
        });
        prop_assert_eq!(first_parameter(&body), first);
        prop_assert_eq!(parameter_count(&body), Some(values.len() as u16));
        let call = [&955_u32.to_be_bytes()[..], &rest, &[0, 0]].concat();
        prop_assert_eq!(call_values(&call).collect::<Vec<_>>(), &there[..]);
        prop_assert_eq!((call_function(&call), call_function(&call[..3])), (Some(955), None));
        // All values that have arrived are found in the first part of a message.
        let part: Vec<_> = bind_values(&body[..cut.index(body.len())]).collect();
        prop_assert!(part.iter().zip(&there).all(|(part, whole)| whole.starts_with(part)));
    }

    #[test]
    fn query_and_password_round_trip(text in name()) {
        let sent = body(QUERY, |out| query(out, &text));
        prop_assert_eq!(Query::decode(&sent), Ok(Query { sql: &text }));
        let sent = body(PASSWORD, |out| password(out, &text));
        prop_assert_eq!(Password::decode(&sent), Ok(Password { password: &text }));
    }

    #[test]
    fn statement_and_portal_round_trip(name in name()) {
        for (code, kind, build) in [
            (DESCRIBE, b'S', describe_statement as fn(&mut Vec<u8>, &[u8])),
            (DESCRIBE, b'P', describe_portal),
            (CLOSE, b'S', close_statement),
            (CLOSE, b'P', close_portal),
        ] {
            let body = body(code, |out| build(out, &name));
            let expected = StatementOrPortal { kind, name: &name };
            prop_assert_eq!(StatementOrPortal::decode(&body), Ok(expected));
        }
    }

    #[test]
    fn sasl_initial_round_trip(mechanism in "[A-Z0-9-]{0,20}", data: Vec<u8>) {
        let body = body(PASSWORD, |out| sasl_initial(out, &mechanism, &data));
        let expected = SaslInitialResponse { mechanism: mechanism.as_bytes(), data: &data };
        prop_assert_eq!(SaslInitialResponse::decode(&body), Ok(expected));
        for len in 0..body.len() {
            prop_assert!(SaslInitialResponse::decode(&body[..len]).is_err());
        }
    }
}
