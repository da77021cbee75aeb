//! A login, from the startup packet to the first ReadyForQuery, by the method that the server
//! requests.

use std::sync::Arc;

use wire::{
    ErrorFields, frontend, md5,
    messages::AuthenticationRequest,
    scram::{MECHANISM, MECHANISM_PLUS, NONCE_LEN, ScramClient, ScramKeys, ScramSecret},
};

/// libpq's text for a server that asks for a password when there is none.
pub(crate) const NO_PASSWORD: &str = "fe_sendauth: no password supplied";

/// The user of the logins, and the keys derived from the password. SCRAM's thousands of hashes are
/// computed once per thread, not per login.
#[derive(Debug)]
pub struct Keyring {
    user: String,
    password: Option<String>,
    derived: Option<(Vec<u8>, u32, ScramKeys)>,
}

impl Keyring {
    #[must_use]
    pub fn new(user: &str, password: Option<&str>) -> Self {
        Self { user: user.to_owned(), password: password.map(str::to_owned), derived: None }
    }

    fn password(&self) -> Result<&[u8], String> {
        let password = self.password.as_ref().map(String::as_bytes);
        password.ok_or_else(|| NO_PASSWORD.to_owned())
    }
}

/// One login in progress, after the startup packet.
#[derive(Debug, Default)]
pub struct Login {
    scram: Option<Box<ScramClient>>,
}

impl Login {
    /// Reads one message and appends the answer to `out`. Returns true when the login is complete.
    /// SCRAM may bind to `end_point`.
    ///
    /// # Errors
    /// Why the login fails, in libpq's words.
    pub fn handle(
        &mut self,
        (code, body): (u8, &[u8]),
        keyring: &mut Keyring,
        end_point: &Arc<[u8]>,
        out: &mut Vec<u8>,
    ) -> Result<bool, String> {
        match code {
            b'R' => {
                let request =
                    AuthenticationRequest::decode(body).map_err(|error| error.to_string())?;
                self.answer(request, keyring, end_point, out)?;
                Ok(false)
            }
            b'E' => Err(server_error(body)),
            b'Z' => Ok(true),
            b'S' | b'N' | b'K' | b'v' => Ok(false),
            other => Err(format!("message {:?} during startup", char::from(other))),
        }
    }

    fn answer(
        &mut self,
        request: AuthenticationRequest<'_>,
        keyring: &mut Keyring,
        end_point: &Arc<[u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        match request {
            AuthenticationRequest::Ok => {}
            AuthenticationRequest::Cleartext => {
                frontend::password(out, keyring.password()?);
            }
            AuthenticationRequest::Md5(salt) => {
                let stored = md5::hash(keyring.user.as_bytes(), keyring.password()?);
                frontend::password(out, md5::response(&stored, salt).as_bytes());
            }
            AuthenticationRequest::Sasl(offered) => {
                if !offered.contains(MECHANISM) {
                    return Err("none of the server's SASL authentication mechanisms are \
                                supported"
                        .to_owned());
                }
                let mut nonce = [0; NONCE_LEN];
                getrandom::fill(&mut nonce).map_err(|error| error.to_string())?;
                let secret = ScramSecret::Password(keyring.password()?.to_vec());
                let mut exchange = ScramClient::new(secret, nonce)
                    .bound_to(end_point, offered.contains(MECHANISM_PLUS));
                if let Some((salt, iterations, keys)) = keyring.derived.clone() {
                    exchange = exchange.with_derived(salt, iterations, keys);
                }
                let first = exchange.first();
                frontend::sasl_initial(out, exchange.mechanism(), &first);
                self.scram = Some(Box::new(exchange));
            }
            AuthenticationRequest::SaslContinue(data) => {
                let answer = self.exchange()?.server_first(data);
                frontend::sasl_response(out, &answer.map_err(|error| error.to_string())?);
            }
            AuthenticationRequest::SaslFinal(data) => {
                let exchange = self.exchange()?;
                exchange.server_final(data).map_err(|error| error.to_string())?;
                keyring.derived = exchange.derived();
            }
            AuthenticationRequest::Unsupported(method) => {
                return Err(format!("authentication method {method} not supported"));
            }
        }
        Ok(())
    }

    fn exchange(&mut self) -> Result<&mut ScramClient, String> {
        self.scram.as_deref_mut().ok_or_else(|| "SASL message out of order".to_owned())
    }
}

/// Formats an ErrorResponse as libpq does: severity and message, then the other fields.
pub(crate) fn server_error(body: &[u8]) -> String {
    let fields = ErrorFields::decode(body).unwrap_or_default();
    let text = |code| fields.get(code).map(String::from_utf8_lossy);
    let severity = String::from_utf8_lossy(fields.severity());
    let mut shown = format!("{severity}:  {}", fields.message());
    for (code, name) in [(b'D', "DETAIL"), (b'H', "HINT")] {
        if let Some(more) = text(code) {
            shown.push_str(&format!("\n{name}:  {more}"));
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use wire::scram::{ScramServer, ScramVerifier};

    use super::*;

    /// Returns the body of the answer to an authentication request.
    fn answer(login: &mut Login, keyring: &mut Keyring, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        assert_eq!(login.handle((b'R', body), keyring, &Arc::default(), &mut out), Ok(false));
        if !out.is_empty() {
            assert_eq!(
                (out[0], out.len() as u32 - 1),
                (b'p', u32::from_be_bytes([out[1], out[2], out[3], out[4]]))
            );
            out.drain(..5);
        }
        out
    }

    #[test]
    fn md5_hashes_twice_with_the_salt() {
        let mut keyring = Keyring::new("bench", Some("secret"));
        let answer = answer(&mut Login::default(), &mut keyring, &[0, 0, 0, 5, 1, 2, 3, 4]);
        let (digits, end) = answer.split_at(answer.len() - 1);
        assert_eq!(end, b"\0");
        assert!(md5::verify(&md5::hash(b"bench", b"secret"), [1, 2, 3, 4], digits));
    }

    #[test]
    fn scram_logs_in_and_keeps_the_keys() {
        let mut keyring = Keyring::new("bench", Some("secret"));
        for _ in 0..2 {
            let verifier = ScramVerifier::from_password(b"secret", b"0123456789abcdef", 4096);
            let mut server = ScramServer::new(verifier, [7; NONCE_LEN]);
            let mut login = Login::default();
            let initial = answer(&mut login, &mut keyring, b"\0\0\0\x0aSCRAM-SHA-256\0\0");
            let challenge =
                server.client_first(MECHANISM.as_bytes(), &initial[MECHANISM.len() + 5..]).unwrap();
            let body = [&11u32.to_be_bytes()[..], &challenge].concat();
            let proof = answer(&mut login, &mut keyring, &body);
            let finished = server.client_final(&proof).unwrap();
            let body = [&12u32.to_be_bytes()[..], &finished.reply].concat();
            assert!(answer(&mut login, &mut keyring, &body).is_empty());
            assert!(keyring.derived.is_some());
        }
    }

    #[test]
    fn a_password_that_is_not_known_is_an_error() {
        let (mut keyring, mut out) = (Keyring::new("bench", None), Vec::new());
        let request = (b'R', &[0, 0, 0, 3][..]);
        let failed = Login::default().handle(request, &mut keyring, &Arc::default(), &mut out);
        assert_eq!(failed, Err(NO_PASSWORD.to_owned()));
    }
}
