//! The client's side: Weir logs in to PostgreSQL, and checks that PostgreSQL knows the password
//! too.
//!
//! ```text
//!   ExpectServerFirst -> ExpectServerFinal -> Proven      (any error: Failed)
//! ```

use std::fmt;
use std::sync::Arc;

use subtle::ConstantTimeEq;

use super::attributes::{attributes, decode, decode_key, encode, is_nonce};
use super::exchange::{
    GS2_BELIEVES_WE_CANNOT, GS2_BOUND, GS2_UNBOUND, ITERATIONS_MAX, MECHANISM, MECHANISM_PLUS,
    NONCE_LEN, ScramError,
};
use super::keys::{ScramKeys, hmac, sha256, xor};
use super::verifier::parse_iterations;

/// The end of a connection to which a login can be bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ChannelEnd {
    /// The connection has no TLS.
    #[default]
    Plain,
    /// `tls-server-end-point` of its certificate (RFC 5929).
    Digest(Arc<[u8]>),
    /// Its certificate has none: the RFC has no rule for the algorithm of its signature.
    NoDigest,
}

/// The secret for the login. `Debug` shows only its kind.
#[derive(Clone)]
pub enum ScramSecret {
    /// Keys from a client's proof; they fit only a server with the same verifier.
    Keys(ScramKeys),
    Password(Vec<u8>),
}

impl fmt::Debug for ScramSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keys(_) => "Keys(..)",
            Self::Password(_) => "Password(..)",
        })
    }
}

/// One exchange. It answers the server's first message and checks the last one.
pub struct ScramClient {
    secret: ScramSecret,
    /// Our nonce as in the messages.
    nonce: String,
    binding: Binding,
    /// Keys of the password, with the salt and the iterations that they were derived with.
    derived: Option<(Vec<u8>, u32, ScramKeys)>,
    state: State,
}

/// The channel binding that we announce.
enum Binding {
    /// We do not support it.
    Unbound,
    /// We support it, and the server has not offered it.
    NotOffered,
    /// To the connection whose certificate has this digest.
    Bound(Arc<[u8]>),
}

enum State {
    ExpectServerFirst,
    ExpectServerFinal {
        signature: [u8; 32],
    },
    /// Both sides know the password.
    Proven,
    Failed,
}

impl fmt::Debug for ScramClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScramClient").finish_non_exhaustive()
    }
}

impl ScramClient {
    /// The nonce must be random and never used before.
    #[must_use]
    pub fn new(secret: ScramSecret, nonce: [u8; NONCE_LEN]) -> Self {
        Self {
            secret,
            nonce: encode(&nonce),
            binding: Binding::Unbound,
            derived: None,
            state: State::ExpectServerFirst,
        }
    }

    /// Binds to the TLS connection whose server certificate has this digest
    /// (`tls-server-end-point`, RFC 5929; empty: there is none), if the server `offers` it.
    /// Otherwise the server will notice if an attacker has removed its offer.
    #[must_use]
    pub fn bound_to(mut self, end_point: &Arc<[u8]>, offers: bool) -> Self {
        self.binding = match (end_point.is_empty(), offers) {
            (true, _) => Binding::Unbound,
            (false, true) => Binding::Bound(Arc::clone(end_point)),
            (false, false) => Binding::NotOffered,
        };
        self
    }

    /// Binds to the server's end of the connection. If its certificate has no digest, an attacker may
    /// have chosen that certificate to prevent the binding. So the login goes on only if the
    /// certificate is `trusted`, or if the server confirms that it offers no binding.
    ///
    /// # Errors
    /// When the server offers a binding that its certificate does not allow.
    pub fn bound_to_server(
        mut self,
        end: &ChannelEnd,
        offers: bool,
        trusted: bool,
    ) -> Result<Self, ScramError> {
        match end {
            ChannelEnd::Digest(digest) => return Ok(self.bound_to(digest, offers)),
            ChannelEnd::NoDigest if offers && !trusted => return Err(ScramError::NoDigest),
            ChannelEnd::NoDigest if !trusted => self.binding = Binding::NotOffered,
            ChannelEnd::NoDigest | ChannelEnd::Plain => self.binding = Binding::Unbound,
        }
        Ok(self)
    }

    /// Returns the mechanism of the SASLInitialResponse.
    pub fn mechanism(&self) -> &'static str {
        match self.binding {
            Binding::Bound(_) => MECHANISM_PLUS,
            Binding::Unbound | Binding::NotOffered => MECHANISM,
        }
    }

    /// Takes the result of [`Self::derived`] from an earlier exchange with the same password. It
    /// saves deriving the keys if the server still has the same salt and iterations.
    #[must_use]
    pub fn with_derived(mut self, salt: Vec<u8>, iterations: u32, keys: ScramKeys) -> Self {
        self.derived = Some((salt, iterations, keys));
        self
    }

    /// Returns the data of the SASLInitialResponse.
    pub fn first(&mut self) -> Vec<u8> {
        [self.gs2_header(), self.first_bare().as_bytes()].concat()
    }

    fn gs2_header(&self) -> &'static [u8] {
        match self.binding {
            Binding::Unbound => GS2_UNBOUND,
            Binding::NotOffered => GS2_BELIEVES_WE_CANNOT,
            Binding::Bound(_) => GS2_BOUND,
        }
    }

    /// Returns the header again, and the digest with channel binding.
    fn channel_binding(&self) -> String {
        match &self.binding {
            Binding::Unbound | Binding::NotOffered => encode(self.gs2_header()),
            Binding::Bound(end_point) => encode(&[self.gs2_header(), &end_point[..]].concat()),
        }
    }

    /// The name is empty, because PostgreSQL takes the user from the startup packet.
    fn first_bare(&self) -> String {
        format!("n=,r={}", self.nonce)
    }

    /// Reads the data of the AuthenticationSASLContinue and returns those of the SASLResponse. With
    /// a password this derives the keys, unless they are known.
    ///
    /// # Errors
    /// When the message is malformed, demands more than [`ITERATIONS_MAX`] iterations from a
    /// password, belongs to another exchange, or is out of order.
    pub fn server_first(&mut self, data: &[u8]) -> Result<Vec<u8>, ScramError> {
        let State::ExpectServerFirst = std::mem::replace(&mut self.state, State::Failed) else {
            return Err(ScramError::OutOfOrder);
        };
        let malformed = |expected| ScramError::Malformed { expected };
        let mut attributes = attributes(data);
        let nonce = attributes.expect(b'r', "a nonce")?;
        let salt = attributes.expect(b's', "a salt")?;
        let salt = decode(salt).ok_or(malformed("a salt in base64"))?;
        let iterations = attributes.expect(b'i', "a count of iterations")?;
        let iterations = parse_iterations(iterations).ok_or(malformed("a positive number"))?;
        attributes.skip_extensions()?;
        // The server must have appended a nonce of its own.
        if !nonce.strip_prefix(self.nonce.as_bytes()).is_some_and(is_nonce) {
            return Err(ScramError::Nonce);
        }

        let keys = self.keys(salt, iterations)?;
        let binding = self.channel_binding();
        let without_proof = [b"c=", binding.as_bytes(), b",r=", nonce].concat();
        let signed = [self.first_bare().as_bytes(), b",", data, b",", &without_proof].concat();
        let proof = xor(keys.client_key, hmac(&sha256(&keys.client_key), &[&signed]));
        self.state = State::ExpectServerFinal { signature: hmac(&keys.server_key, &[&signed]) };
        Ok([&without_proof[..], b",p=", encode(&proof).as_bytes()].concat())
    }

    fn keys(&mut self, salt: Vec<u8>, iterations: u32) -> Result<ScramKeys, ScramError> {
        let password = match &self.secret {
            ScramSecret::Keys(keys) => return Ok(keys.clone()),
            ScramSecret::Password(password) => password,
        };
        match &self.derived {
            Some((known_salt, known_iterations, keys))
                if *known_salt == salt && *known_iterations == iterations =>
            {
                Ok(keys.clone())
            }
            _ if iterations > ITERATIONS_MAX => Err(ScramError::Iterations(iterations)),
            _ => {
                let keys = ScramKeys::from_password(password, &salt, iterations);
                self.derived = Some((salt, iterations, keys.clone()));
                Ok(keys)
            }
        }
    }

    /// Reads the data of the AuthenticationSASLFinal, by which the server proves itself.
    ///
    /// # Errors
    /// When the server reports an error, does not know the verifier, or is out of order.
    pub fn server_final(&mut self, data: &[u8]) -> Result<(), ScramError> {
        let State::ExpectServerFinal { signature } =
            std::mem::replace(&mut self.state, State::Failed)
        else {
            return Err(ScramError::OutOfOrder);
        };
        if let Some(error) = data.strip_prefix(b"e=") {
            return Err(ScramError::Refused(String::from_utf8_lossy(error).into_owned()));
        }
        let mut attributes = attributes(data);
        let given = decode_key(attributes.expect(b'v', "a signature")?)
            .ok_or(ScramError::Malformed { expected: "a signature in base64" })?;
        attributes.skip_extensions()?;
        if !bool::from(signature.ct_eq(&given)) {
            return Err(ScramError::ServerSignature);
        }
        self.state = State::Proven;
        Ok(())
    }

    /// Has the server proved that it knows the password, too?
    #[must_use]
    pub fn is_proven(&self) -> bool {
        matches!(self.state, State::Proven)
    }

    /// Returns salt, iterations and the keys derived from the password, for [`Self::with_derived`]
    /// next time. Returns `None` before [`Self::server_first`] or if the keys were given. Keep them
    /// only after [`Self::server_final`] has succeeded.
    #[must_use]
    pub fn derived(&self) -> Option<(Vec<u8>, u32, ScramKeys)> {
        self.derived.clone()
    }
}
