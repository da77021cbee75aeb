//! Logging in: trust, plain, MD5 and SCRAM-SHA-256, from the frontend's side.

use super::{Message, RawClient, ServerError, frontend, scram::Scram};
use md5::{Digest, Md5};

const OK: u32 = 0;
const CLEARTEXT: u32 = 3;
const MD5: u32 = 5;
const SASL: u32 = 10;
const SASL_CONTINUE: u32 = 11;
const SASL_FINAL: u32 = 12;

impl RawClient {
    /// Logs in over TCP, or returns the server's error.
    #[track_caller]
    pub fn login(
        port: u16,
        user: &str,
        database: &str,
        password: &str,
    ) -> Result<Self, ServerError> {
        let mut client = Self::connect(port);
        client.authenticate(&[("user", user), ("database", database)], password)?;
        Ok(client)
    }

    /// Sends the startup packet and replies to authentication requests. Returns all messages up to
    /// the first ReadyForQuery. The error is the server's last one before it closed the connection,
    /// or [`ServerError::closed`] if there was none.
    #[track_caller]
    pub fn authenticate(
        &mut self,
        startup: &[(&str, &str)],
        password: &str,
    ) -> Result<Vec<Message>, ServerError> {
        let messages = self.try_authenticate(startup, password);
        match messages.last() {
            Some(last) if last.tag == b'Z' => Ok(messages),
            _ => {
                let error = messages.iter().rfind(|m| m.tag == b'E').and_then(Message::error);
                Err(error.unwrap_or_else(ServerError::closed))
            }
        }
    }

    /// Does the same, but returns all messages up to ReadyForQuery or to the end.
    #[track_caller]
    pub fn try_authenticate(&mut self, startup: &[(&str, &str)], password: &str) -> Vec<Message> {
        self.send(frontend::startup_of(self.minor, startup));
        let user = startup.iter().find(|(key, _)| *key == "user").map_or("", |(_, user)| user);
        let mut scram = None;
        let mut messages = Vec::new();
        while let Some(message) = self.try_read().expect("no answer to the login") {
            if message.tag == b'R' {
                self.answer(&message.body, user, password, &mut scram);
            }
            let ready = message.tag == b'Z';
            messages.push(message);
            if ready {
                break;
            }
        }
        messages
    }

    #[track_caller]
    fn answer(&mut self, request: &[u8], user: &str, password: &str, scram: &mut Option<Scram>) {
        let (code, data) = request.split_first_chunk::<4>().expect("Authentication has a code");
        match u32::from_be_bytes(*code) {
            OK => {}
            CLEARTEXT => self.send(frontend::password(password)),
            MD5 => self.send(frontend::password(&md5_answer(user, password, data))),
            SASL => {
                assert!(data.starts_with(b"SCRAM-SHA-256\0"), "mechanisms {}", data.escape_ascii());
                let exchange = Scram::new(password);
                let first = exchange.first();
                let mut payload = frontend::text("SCRAM-SHA-256");
                payload.extend_from_slice(&frontend::length(first.len()));
                payload.extend_from_slice(first.as_bytes());
                self.send(frontend::message(b'p', &payload));
                *scram = Some(exchange);
            }
            SASL_CONTINUE => {
                let exchange = scram.as_mut().expect("SASLContinue without SASL");
                let answer = exchange.answer(&String::from_utf8_lossy(data));
                self.send(frontend::message(b'p', answer.as_bytes()));
            }
            SASL_FINAL => {
                let exchange = scram.as_ref().expect("SASLFinal without SASL");
                exchange.check_final(&String::from_utf8_lossy(data));
            }
            other => panic!("unknown authentication request {other}"),
        }
    }
}

/// Returns the verifier that PostgreSQL stores for an MD5 password.
pub fn md5_verifier(user: &str, password: &str) -> String {
    format!("md5{}", md5_hex(&[password.as_bytes(), user.as_bytes()]))
}

fn md5_answer(user: &str, password: &str, salt: &[u8]) -> String {
    let inner = md5_hex(&[password.as_bytes(), user.as_bytes()]);
    format!("md5{}", md5_hex(&[inner.as_bytes(), salt]))
}

fn md5_hex(parts: &[&[u8]]) -> String {
    let digest = parts.iter().fold(Md5::new(), |digest, part| digest.chain_update(part));
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
