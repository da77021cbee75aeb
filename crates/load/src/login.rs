//! A login, from the startup packet to the first ReadyForQuery, by the method that the server
//! requests.

use std::sync::Arc;

use wire::{
    ErrorFields, frontend, md5,
    messages::AuthenticationRequest,
    scram::{MECHANISM, MECHANISM_PLUS, NONCE_LEN, ScramClient, ScramKeys, ScramSecret},
};

use crate::target::Target;

/// libpq's text for a server that asks for a password when there is none.
pub(crate) const NO_PASSWORD: &str = "fe_sendauth: no password supplied";

/// The user of the logins, and the keys derived from the password. SCRAM's thousands of hashes are
/// computed once per thread, not per login.
#[derive(Debug)]
pub(crate) struct Keyring {
    pub(crate) target: Arc<Target>,
    derived: Option<(Vec<u8>, u32, ScramKeys)>,
}

impl Keyring {
    pub(crate) fn new(target: Arc<Target>) -> Self {
        Self { target, derived: None }
    }

    fn password(&self) -> Result<&str, String> {
        let password = self.target.password.as_deref();
        password.ok_or_else(|| NO_PASSWORD.to_owned())
    }
}

/// One login in progress.
#[derive(Debug)]
pub(crate) struct Login {
    scram: Option<Box<ScramClient>>,
}

impl Login {
    /// Appends the startup packet to `out`.
    pub(crate) fn begin(target: &Target, out: &mut Vec<u8>) -> Self {
        let parameters: Vec<(&str, &str)> =
            target.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        frontend::startup(out, 0, &parameters);
        Self { scram: None }
    }

    /// Reads one message and appends the answer to `out`. Returns true when the login is complete.
    /// SCRAM may bind to `end_point`.
    ///
    /// # Errors
    /// Why the login fails, in libpq's words.
    pub(crate) fn handle(
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
                frontend::password(out, keyring.password()?.as_bytes());
            }
            AuthenticationRequest::Md5(salt) => {
                let user = keyring.target.user.as_bytes();
                let stored = md5::hash(user, keyring.password()?.as_bytes());
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
                let secret = ScramSecret::Password(keyring.password()?.as_bytes().to_vec());
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
