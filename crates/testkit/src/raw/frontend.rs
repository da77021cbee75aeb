//! The messages a frontend sends, as bytes.
//!
//! Written here and not taken from the product: if both sides of a test shared a codec, a mistake
//! in it would not be noticed.

/// Any message: tag, length, payload.
pub fn message(tag: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend_from_slice(&length(payload.len() + 4));
    bytes.extend_from_slice(payload);
    bytes
}

/// The first message of a connection; it has no tag. Protocol 3.0.
pub fn startup(parameters: &[(&str, &str)]) -> Vec<u8> {
    startup_of(0, parameters)
}

/// The first message with protocol 3.`minor`.
pub fn startup_of(minor: u16, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = (3 << 16 | u32::from(minor)).to_be_bytes().to_vec();
    for (key, value) in parameters {
        push_text(&mut body, key);
        push_text(&mut body, value);
    }
    body.push(0);
    [length(body.len() + 4).to_vec(), body].concat()
}

/// Asks for TLS.
pub fn ssl_request() -> Vec<u8> {
    special_request(80_877_103)
}

/// Asks for GSSAPI encryption.
pub fn gssenc_request() -> Vec<u8> {
    special_request(80_877_104)
}

/// Cancels the query of the connection with this key; sent on its own connection.
pub fn cancel_request(pid: i32, secret: &[u8]) -> Vec<u8> {
    let code: u32 = 80_877_102;
    let head = [length(12 + secret.len()), code.to_be_bytes(), pid.to_be_bytes()].concat();
    [&head, secret].concat()
}

/// A simple query, which may hold several statements.
pub fn query(sql: &str) -> Vec<u8> {
    message(b'Q', &text(sql))
}

/// Prepares a statement, all parameter types left to the server.
pub fn parse(name: &str, sql: &str) -> Vec<u8> {
    parse_typed(name, sql, &[])
}

/// Prepares a statement with the type OIDs of its first parameters.
pub fn parse_typed(name: &str, sql: &str, types: &[u32]) -> Vec<u8> {
    let mut payload = [text(name), text(sql)].concat();
    payload.extend_from_slice(&count(types.len()));
    for oid in types {
        payload.extend_from_slice(&oid.to_be_bytes());
    }
    message(b'P', &payload)
}

/// Binds text parameters; `None` is NULL. Results come as text.
pub fn bind(portal: &str, statement: &str, parameters: &[Option<&str>]) -> Vec<u8> {
    let mut payload = [text(portal), text(statement)].concat();
    payload.extend_from_slice(&count(0));
    payload.extend_from_slice(&count(parameters.len()));
    for parameter in parameters {
        match parameter {
            Some(value) => {
                payload.extend_from_slice(&length(value.len()));
                payload.extend_from_slice(value.as_bytes());
            }
            None => payload.extend_from_slice(&(-1i32).to_be_bytes()),
        }
    }
    payload.extend_from_slice(&count(0));
    message(b'B', &payload)
}

/// Describes a statement.
pub fn describe_statement(name: &str) -> Vec<u8> {
    message(b'D', &[b"S".to_vec(), text(name)].concat())
}

/// Describes a portal.
pub fn describe_portal(name: &str) -> Vec<u8> {
    message(b'D', &[b"P".to_vec(), text(name)].concat())
}

/// Runs a portal; `rows_max` of 0 means all rows.
pub fn execute(portal: &str, rows_max: u32) -> Vec<u8> {
    message(b'E', &[text(portal), rows_max.to_be_bytes().to_vec()].concat())
}

/// Closes a statement.
pub fn close_statement(name: &str) -> Vec<u8> {
    message(b'C', &[b"S".to_vec(), text(name)].concat())
}

/// Closes a portal.
pub fn close_portal(name: &str) -> Vec<u8> {
    message(b'C', &[b"P".to_vec(), text(name)].concat())
}

/// Ends a pipeline.
pub fn sync() -> Vec<u8> {
    message(b'S', &[])
}

/// Requests the replies so far.
pub fn flush() -> Vec<u8> {
    message(b'H', &[])
}

/// A piece of copy-in data.
pub fn copy_data(data: &[u8]) -> Vec<u8> {
    message(b'd', data)
}

/// The end of copy-in data.
pub fn copy_done() -> Vec<u8> {
    message(b'c', &[])
}

/// Aborts copy-in.
pub fn copy_fail(reason: &str) -> Vec<u8> {
    message(b'f', &text(reason))
}

/// Calls a function by OID with text arguments.
pub fn function_call(oid: u32, arguments: &[&str]) -> Vec<u8> {
    let mut payload = oid.to_be_bytes().to_vec();
    payload.extend_from_slice(&count(0));
    payload.extend_from_slice(&count(arguments.len()));
    for argument in arguments {
        payload.extend_from_slice(&length(argument.len()));
        payload.extend_from_slice(argument.as_bytes());
    }
    payload.extend_from_slice(&count(0));
    message(b'F', &payload)
}

/// A password, as text or as its MD5 hash.
pub fn password(secret: &str) -> Vec<u8> {
    message(b'p', &text(secret))
}

/// Ends the connection.
pub fn terminate() -> Vec<u8> {
    message(b'X', &[])
}

/// Zero-terminated text.
pub(super) fn text(value: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(value.len() + 1);
    push_text(&mut bytes, value);
    bytes
}

/// A length field of four bytes.
pub(super) fn length(value: usize) -> [u8; 4] {
    i32::try_from(value).expect("a message of 2 GB or more").to_be_bytes()
}

fn special_request(code: u32) -> Vec<u8> {
    [length(8), code.to_be_bytes()].concat()
}

fn push_text(bytes: &mut Vec<u8>, value: &str) {
    bytes.extend_from_slice(value.as_bytes());
    bytes.push(0);
}

fn count(value: usize) -> [u8; 2] {
    u16::try_from(value).expect("more than 65535 items in a message").to_be_bytes()
}
