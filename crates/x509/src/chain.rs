//! Builds the chain from a peer's certificate to a self-signed one.
//!
//! A trusted issuer is preferred to one that the peer has sent. After the first trusted
//! certificate, only trusted ones are used. The search never goes back: as in OpenSSL, a chain
//! without an end is refused.

use crate::{Certificate, MAX_DEPTH, verify::Refusal};

/// The certificates of a CA file. A self-signed one may end a chain, and is verified like any other
/// certificate of the chain.
#[derive(Clone, Debug, Default)]
pub struct Anchors(Vec<Certificate>);

/// The peer's certificate, its issuer, and so on to a trusted self-signed certificate.
#[derive(Debug)]
pub(crate) struct Chain<'a>(pub(crate) Vec<&'a Certificate>);

impl Anchors {
    #[must_use]
    pub fn new(certificates: Vec<Certificate>) -> Self {
        Self(certificates)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Certificate> {
        self.0.iter()
    }

    pub(crate) fn chain<'a>(
        &'a self,
        own: &'a Certificate,
        others: &'a [Certificate],
        now: i64,
    ) -> Result<Chain<'a>, Refusal> {
        let mut chain = vec![own];
        let mut is_trusted = false;
        let mut last = own;
        loop {
            // The peer's certificate, and MAX_DEPTH above it; the next one must be trusted.
            if chain.len() > MAX_DEPTH + 1 {
                return Err(Refusal::TooLong);
            }
            match issuer(self.0.iter(), last, &chain, now) {
                Some(known) if last.is_self_signed() => {
                    return if known == last { Ok(Chain(chain)) } else { Err(Refusal::SelfSigned) };
                }
                Some(known) => {
                    chain.push(known);
                    if known.is_self_signed() {
                        return Ok(Chain(chain));
                    }
                    (last, is_trusted) = (known, true);
                }
                None if last.is_self_signed() => return Err(Refusal::SelfSigned),
                None if is_trusted => return Err(Refusal::UnknownIssuer),
                None => {
                    let sent = issuer(others.iter(), last, &chain, now);
                    last = sent.ok_or(Refusal::UnknownIssuer)?;
                    chain.push(last);
                }
            }
        }
    }
}

/// Returns the issuer among these: the first that is valid now, or else the one that expires last.
fn issuer<'a>(
    candidates: impl Iterator<Item = &'a Certificate>,
    certificate: &Certificate,
    chain: &[&Certificate],
    now: i64,
) -> Option<&'a Certificate> {
    // A self-signed peer's certificate is its own issuer; otherwise no certificate is twice in a
    // chain.
    let is_alone = chain.len() == 1 && certificate.is_self_issued();
    let mut expired: Option<&Certificate> = None;
    for candidate in candidates {
        if !candidate.may_issue(certificate) || (!is_alone && chain.contains(&candidate)) {
            continue;
        }
        if candidate.is_within_its_dates(now) {
            return Some(candidate);
        }
        if expired.is_none_or(|expired| expired.not_after < candidate.not_after) {
            expired = Some(candidate);
        }
    }
    expired
}
