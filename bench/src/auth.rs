//! A client's login, from its startup packet to the first ReadyForQuery, with the authentication
//! method that the pooler requests.

use anyhow::{Context, Result, bail, ensure};
use wire::md5;
use wire::scram::{MECHANISM, NONCE_LEN, ScramClient, ScramKeys, ScramSecret};

use crate::frame::{Fields, Frame, put};

/// The user, database and password of all clients of a run.
#[derive(Debug)]
pub(crate) struct Credentials {
    pub(crate) user: String,
    pub(crate) database: String,
    password: String,
    /// The keys derived from the password, kept after the first login. Deriving them takes
    /// thousands of hashes; doing so for each login would make the load generator the bottleneck.
    derived: Option<(Vec<u8>, u32, ScramKeys)>,
    nonces: u64,
}

impl Credentials {
    pub(crate) fn new(user: &str, database: &str, password: &str) -> Self {
        Self {
            user: user.to_owned(),
            database: database.to_owned(),
            password: password.to_owned(),
            derived: None,
            nonces: 0,
        }
    }

    fn scram(&mut self) -> ScramClient {
        // A counter suffices as a nonce: it never repeats, and nothing secret is protected here.
        self.nonces += 1;
        let mut nonce = [0; NONCE_LEN];
        nonce[..8].copy_from_slice(&self.nonces.to_be_bytes());
        let secret = ScramSecret::Password(self.password.clone().into_bytes());
        let exchange = ScramClient::new(secret, nonce);
        match self.derived.clone() {
            Some((salt, iterations, keys)) => exchange.with_derived(salt, iterations, keys),
            None => exchange,
        }
    }
}

/// The state of one login.
#[derive(Debug, Default)]
pub(crate) struct Login {
    scram: Option<Box<ScramClient>>,
    authenticated: bool,
    has_key: bool,
}

impl Login {
    /// Handles a message of the pooler and appends the answer. Returns true when the client is
    /// logged in.
    pub(crate) fn handle(
        &mut self,
        frame: Frame<'_>,
        credentials: &mut Credentials,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        match frame.tag {
            b'R' => self.handle_request(frame.body, credentials, out)?,
            b'K' => self.has_key = frame.body.len() == 8,
            b'S' | b'N' => {}
            b'Z' => {
                ensure!(self.authenticated, "ready for queries without AuthenticationOk");
                ensure!(self.has_key, "ready for queries without a cancel key");
                ensure!(frame.body == b"I", "logged in within a transaction");
                return Ok(true);
            }
            other => bail!("message {:?} during login", other as char),
        }
        Ok(false)
    }

    fn handle_request(
        &mut self,
        body: &[u8],
        credentials: &mut Credentials,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let mut fields = Fields(body);
        match fields.u32()? {
            0 => self.authenticated = true,
            3 => put(out, b'p', &[credentials.password.as_bytes(), b"\0"]),
            5 => {
                let salt = fields.u32()?.to_be_bytes();
                let stored =
                    md5::hash(credentials.user.as_bytes(), credentials.password.as_bytes());
                put(out, b'p', &[md5::response(&stored, salt).as_bytes(), b"\0"]);
            }
            10 => {
                ensure!(fields.string()? == MECHANISM.as_bytes(), "a SASL mechanism not known");
                let mut exchange = credentials.scram();
                let first = exchange.first();
                let length = (first.len() as u32).to_be_bytes();
                put(out, b'p', &[MECHANISM.as_bytes(), b"\0", &length, &first]);
                self.scram = Some(Box::new(exchange));
            }
            11 => put(out, b'p', &[&self.exchange()?.server_first(fields.0)?]),
            12 => {
                let exchange = self.exchange()?;
                exchange.server_final(fields.0)?;
                credentials.derived = exchange.derived();
            }
            other => bail!("authentication request {other} is not one the rig knows"),
        }
        Ok(())
    }

    fn exchange(&mut self) -> Result<&mut ScramClient> {
        self.scram.as_deref_mut().context("a SASL message before the mechanism was agreed")
    }
}

#[cfg(test)]
mod tests {
    use wire::scram::{ScramServer, ScramVerifier};

    use super::*;

    fn request(login: &mut Login, credentials: &mut Credentials, body: &[u8]) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        login.handle(Frame { tag: b'R', body }, credentials, &mut out)?;
        let Some((frame, length)) = Frame::split(&out)? else { return Ok(out) };
        assert_eq!((frame.tag, length), (b'p', out.len()));
        Ok(frame.body.to_vec())
    }

    #[test]
    fn md5_hashes_twice_with_the_salt() {
        let mut credentials = Credentials::new("bench", "bench", "secret");
        let body = [0, 0, 0, 5, 1, 2, 3, 4];
        let answer = request(&mut Login::default(), &mut credentials, &body).unwrap();
        let (digits, end) = answer.split_at(answer.len() - 1);
        assert_eq!(end, b"\0");
        assert!(md5::verify(&md5::hash(b"bench", b"secret"), [1, 2, 3, 4], digits));
    }

    #[test]
    fn scram_logs_in_and_keeps_the_keys() {
        let mut credentials = Credentials::new("bench", "bench", "secret");
        for _ in 0..2 {
            let verifier = ScramVerifier::from_password(b"secret", b"0123456789abcdef", 4096);
            let mut server = ScramServer::new(verifier, [7; NONCE_LEN]);
            let mut login = Login::default();
            let initial =
                request(&mut login, &mut credentials, b"\0\0\0\x0aSCRAM-SHA-256\0\0").unwrap();
            let challenge =
                server.client_first(MECHANISM.as_bytes(), &initial[MECHANISM.len() + 5..]).unwrap();
            let body = [&11u32.to_be_bytes()[..], &challenge].concat();
            let proof = request(&mut login, &mut credentials, &body).unwrap();
            let finished = server.client_final(&proof).unwrap();
            let body = [&12u32.to_be_bytes()[..], &finished.reply].concat();
            assert!(request(&mut login, &mut credentials, &body).unwrap().is_empty());
            assert!(credentials.derived.is_some());
        }
    }

    #[test]
    fn ready_before_authentication_is_an_error() {
        let mut credentials = Credentials::new("bench", "bench", "");
        let frame = Frame { tag: b'Z', body: b"I" };
        assert!(Login::default().handle(frame, &mut credentials, &mut Vec::new()).is_err());
    }
}
