//! The server's side: a client proves that it knows a password.
//!
//! ```text
//!   ExpectClientFirst -> ExpectClientFinal -> Done      (any error: Done)
//! ```

use std::fmt;
use std::sync::Arc;

use super::attributes::{attributes, decode_key, encode, is_nonce};
use super::exchange::{
    GS2_BELIEVES_WE_CANNOT, GS2_BOUND, GS2_UNBOUND, MECHANISM, MECHANISM_PLUS, NONCE_LEN,
    ScramError,
};
use super::keys::{hmac, xor};
use super::verifier::ScramVerifier;

/// One exchange. It answers each of the client's two messages once.
pub struct ScramServer {
    verifier: ScramVerifier,
    nonce: [u8; NONCE_LEN],
    /// `tls-server-end-point` of the connection, if channel binding was offered.
    end_point: Option<Arc<[u8]>>,
    state: State,
}

enum State {
    ExpectClientFirst,
    ExpectClientFinal {
        /// The required value of the attribute `c`: base64 of the first message's header, followed
        /// by the channel's data if the client binds to it.
        channel_binding: String,
        /// The client's nonce followed by ours.
        nonce: Vec<u8>,
        /// The known part of the text that both sides sign: the first message of each.
        signed: Vec<u8>,
    },
    Done,
}

/// The client has proved itself. `Debug` shows nothing of it.
pub struct ServerFinished {
    /// The message that proves us to the client; it is sent before AuthenticationOk.
    pub reply: Vec<u8>,
    /// Recovered from the proof. Together with the verifier's server key, it makes the
    /// [`ScramKeys`](super::ScramKeys) for a login at a server with the same verifier.
    pub client_key: [u8; 32],
}

impl fmt::Debug for ServerFinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerFinished").finish_non_exhaustive()
    }
}

impl fmt::Debug for ScramServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScramServer").finish_non_exhaustive()
    }
}

impl ScramServer {
    /// The nonce must be random and never used before.
    #[must_use]
    pub fn new(verifier: ScramVerifier, server_nonce: [u8; NONCE_LEN]) -> Self {
        Self { verifier, nonce: server_nonce, end_point: None, state: State::ExpectClientFirst }
    }

    /// Also offers channel binding to the TLS connection whose certificate has this digest
    /// (`tls-server-end-point`, RFC 5929). Empty means none.
    #[must_use]
    pub fn bound_to(mut self, end_point: &Arc<[u8]>) -> Self {
        self.end_point = Some(Arc::clone(end_point)).filter(|digest| !digest.is_empty());
        self
    }

    /// Returns the mechanisms that the client may choose from, the best one first.
    pub fn mechanisms(&self) -> &'static [&'static str] {
        match self.end_point {
            Some(_) => &[MECHANISM_PLUS, MECHANISM],
            None => &[MECHANISM],
        }
    }

    /// Reads the mechanism and the data of the SASLInitialResponse. Returns the data of the
    /// AuthenticationSASLContinue.
    ///
    /// # Errors
    /// When the mechanism was not offered, or when the message is malformed, unsupported or
    /// repeated.
    pub fn client_first(&mut self, mechanism: &[u8], data: &[u8]) -> Result<Vec<u8>, ScramError> {
        let State::ExpectClientFirst = std::mem::replace(&mut self.state, State::Done) else {
            return Err(ScramError::OutOfOrder);
        };
        let offered = self.mechanisms().iter().find(|name| name.as_bytes() == mechanism);
        let binds = *offered.ok_or(ScramError::Mechanism)? == MECHANISM_PLUS;
        let (flag, bare) = parse_gs2_header(data)?;
        let channel_binding = match (flag, &self.end_point) {
            (Flag::Bound, Some(end_point)) if binds => {
                encode(&[GS2_BOUND, &end_point[..]].concat())
            }
            (Flag::Bound, None) => return Err(ScramError::ChannelBinding),
            // The client believes that we do not support it, although we have offered it. So an
            // attacker has shortened our list of mechanisms (RFC 5802, section 6).
            (Flag::BelievesWeCannot, Some(_)) => return Err(ScramError::ChannelBindingDowngrade),
            (Flag::BelievesWeCannot, None) => encode(GS2_BELIEVES_WE_CANNOT),
            (Flag::Unbound, _) if !binds => encode(GS2_UNBOUND),
            // The flag does not match the mechanism.
            (Flag::Bound | Flag::Unbound, _) => return Err(ScramError::ChannelBindingMismatch),
        };
        let mut attributes = attributes(bare);
        attributes.expect(b'n', "a user name")?;
        let client_nonce = attributes.expect(b'r', "a nonce")?;
        attributes.skip_extensions()?;
        if !is_nonce(client_nonce) {
            return Err(ScramError::Malformed { expected: "a nonce of visible characters" });
        }

        let nonce = [client_nonce, encode(&self.nonce).as_bytes()].concat();
        let parameters =
            format!(",s={},i={}", encode(&self.verifier.salt), self.verifier.iterations);
        let reply = [b"r=", &nonce[..], parameters.as_bytes()].concat();
        let signed = [bare, b",", &reply, b","].concat();
        self.state = State::ExpectClientFinal { channel_binding, nonce, signed };
        Ok(reply)
    }

    /// Reads the data of the SASLResponse. If its proof is right, returns those of the
    /// AuthenticationSASLFinal.
    ///
    /// # Errors
    /// [`ScramError::Proof`] for a wrong password; others when the message is malformed, belongs
    /// to another exchange, or is out of order.
    pub fn client_final(&mut self, data: &[u8]) -> Result<ServerFinished, ScramError> {
        let State::ExpectClientFinal { channel_binding, nonce, signed } =
            std::mem::replace(&mut self.state, State::Done)
        else {
            return Err(ScramError::OutOfOrder);
        };
        let (without_proof, proof) = split_proof(data)?;
        let mut attributes = attributes(without_proof);
        let binding = attributes.expect(b'c', "a channel binding")?;
        let repeated_nonce = attributes.expect(b'r', "a nonce")?;
        attributes.skip_extensions()?;
        if binding != channel_binding.as_bytes() {
            return Err(ScramError::ChannelBindingMismatch);
        }
        if repeated_nonce != nonce {
            return Err(ScramError::Nonce);
        }

        let signature = hmac(&self.verifier.stored_key, &[&signed, without_proof]);
        let client_key = xor(proof, signature);
        if !self.verifier.verify_client_key(&client_key) {
            return Err(ScramError::Proof);
        }
        let signature = hmac(&self.verifier.server_key, &[&signed, without_proof]);
        Ok(ServerFinished { reply: format!("v={}", encode(&signature)).into_bytes(), client_key })
    }
}

/// The channel binding that the client announces.
#[derive(Clone, Copy)]
enum Flag {
    /// The client does not support it.
    Unbound,
    /// The client supports it, and believes that we do not.
    BelievesWeCannot,
    /// The client uses it.
    Bound,
}

/// Reads the channel-binding flag and the authorization identity, which precede the message proper.
/// Returns the flag and the rest.
fn parse_gs2_header(data: &[u8]) -> Result<(Flag, &[u8]), ScramError> {
    let mut parts = data.splitn(3, |byte| *byte == b',');
    let flag = match parts.next() {
        Some(b"n") => Flag::Unbound,
        Some(b"y") => Flag::BelievesWeCannot,
        Some(b"p=tls-server-end-point") => Flag::Bound,
        Some([b'p', b'=', ..]) => return Err(ScramError::ChannelBinding),
        _ => return Err(ScramError::Malformed { expected: "a channel-binding flag" }),
    };
    match (parts.next(), parts.next()) {
        (Some(b""), Some(bare)) => Ok((flag, bare)),
        (Some([b'a', b'=', ..]), _) => Err(ScramError::AuthorizationIdentity),
        _ => Err(ScramError::Malformed { expected: "an empty authorization identity" }),
    }
}

/// Splits off the proof, which is the last attribute and signs everything before it.
fn split_proof(data: &[u8]) -> Result<(&[u8], [u8; 32]), ScramError> {
    let error = ScramError::Malformed { expected: "a proof at the end" };
    let comma = data.iter().rposition(|byte| *byte == b',');
    let Some((without_proof, proof)) = comma.and_then(|at| data.split_at_checked(at)) else {
        return Err(error);
    };
    match proof.strip_prefix(b",p=").and_then(decode_key) {
        Some(proof) => Ok((without_proof, proof)),
        None => Err(error),
    }
}
