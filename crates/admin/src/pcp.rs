//! PCP, the protocol of Pgpool-II's tools `pcp_*`: one session, as bytes in and bytes out. The caller
//! has the socket and the clock.
//!
//! ```text
//!   salt ─► login ─► request ─► answer ─► request … ─► end
//!             └─► wrong: the caller waits before it sends the answer, and closes
//! ```
//!
//! * `frame.rs`: the messages of both directions
//! * `request.rs`: what a client may ask
//! * `answer.rs`: the answers with facts; `watchdog.rs`: the one about several Weirs
//!
//! A session tries one login. The caller decides when ([`Pcp::log_in`]), so that it can bound the
//! logins of all sessions together.
//!
//! **Invariant:** only a user that is logged in gets facts, and only an admin changes anything, by the
//! users of the present configuration.

mod answer;
mod frame;
mod request;
mod watchdog;

use std::fmt;
use std::sync::Arc;

use config::PcpUser;

use self::frame::{Answer, Frame};
use self::request::Request;
use crate::control::{Control, NotReloaded, Order, Shutdown};
use crate::pgpool;

/// One session.
pub struct Pcp {
    control: Arc<dyn Control>,
    /// Draws a salt.
    salts: fn() -> [u8; 4],
    /// The salt of the next login.
    salt: Option<[u8; 4]>,
    /// A login that is not tried yet.
    login: Option<Login>,
    /// The user that is logged in.
    user: Option<PcpUser>,
    /// Bytes that are not parsed yet.
    received: Vec<u8>,
}

struct Login {
    user: String,
    /// Proves the password for the salt.
    digest: String,
    salt: [u8; 4],
}

/// The caller's next step after a request. The answer is sent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcpNext {
    /// Receive more bytes: there is no whole request.
    Receive,
    /// There may be another request.
    GoOn,
    /// Call [`Pcp::log_in`]: the client wants to log in.
    LogIn,
    Close,
    Shutdown(Shutdown),
}

/// Why a request is not carried out.
enum Refusal {
    /// The session goes on.
    Error(String),
    /// The session ends.
    Fatal(&'static str),
}

impl From<&str> for Refusal {
    fn from(text: &str) -> Self {
        Self::Error(text.to_owned())
    }
}

impl fmt::Debug for Pcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pcp").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Pcp {
    /// `salts` draws four unpredictable bytes.
    pub fn new(control: Arc<dyn Control>, salts: fn() -> [u8; 4]) -> Self {
        Self { control, salts, salt: None, login: None, user: None, received: Vec::new() }
    }

    #[must_use]
    pub fn is_logged_in(&self) -> bool {
        self.user.is_some()
    }

    pub fn receive(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
    }

    /// Answers the next request, if there is a whole one; a login is answered by [`Self::log_in`].
    pub async fn answer(&mut self, out: &mut Vec<u8>) -> PcpNext {
        let frame = match Frame::take(&mut self.received) {
            Ok(Some(frame)) => frame,
            Ok(None) => return PcpNext::Receive,
            Err(reason) => return self.refuse(out, &Refusal::Fatal(reason)),
        };
        match Request::parse(&frame) {
            Ok(Request::End) => PcpNext::Close,
            Ok(request) => match self.carry_out(request, frame.code, out).await {
                Ok(next) => next,
                Err(refusal) => self.refuse(out, &refusal),
            },
            Err(refusal) => {
                let refusal = if self.is_logged_in() { refusal } else { UNAUTHORIZED };
                self.refuse(out, &refusal)
            }
        }
    }

    fn refuse(&self, out: &mut Vec<u8>, refusal: &Refusal) -> PcpNext {
        let (severity, what, next) = match refusal {
            Refusal::Error(what) => ("ERROR", what.as_str(), PcpNext::GoOn),
            Refusal::Fatal(what) => ("FATAL", *what, PcpNext::Close),
        };
        let user = self.user.as_ref().map_or("", |user| &user.name);
        self.control.error(&format!("PCP user '{user}': {what}"));
        frame::error(out, severity, what);
        next
    }

    /// Returns the error of a request that only an admin may make.
    fn refuse_changes(&self) -> Result<(), Refusal> {
        match &self.user {
            Some(user) if user.is_admin => Ok(()),
            Some(_) => Err("this user is read-only".into()),
            None => Err(UNAUTHORIZED),
        }
    }

    async fn carry_out(
        &mut self,
        request: Request<'_>,
        code: u8,
        out: &mut Vec<u8>,
    ) -> Result<PcpNext, Refusal> {
        let is_login = matches!(request, Request::Salt | Request::LogIn { .. });
        match self.is_logged_in() {
            true if is_login => return Err(Refusal::Fatal("this connection is logged in already")),
            true => self.follow_users()?,
            false if is_login => {}
            false => return Err(UNAUTHORIZED),
        }
        if request.needs_admin() {
            self.refuse_changes()?;
        }
        let done = |out: &mut Vec<u8>| frame::done(out, request::reply(code));
        match request {
            Request::Salt => {
                let salt = self.salt.insert((self.salts)());
                Answer::new(out, b'm').bytes(salt).end();
                return Ok(PcpNext::GoOn);
            }
            Request::LogIn { user, digest } => {
                let salt = self.salt.take().ok_or(Refusal::Fatal("login without a salt"))?;
                let (user, digest) = (user.to_owned(), digest.to_owned());
                self.login = Some(Login { user, digest, salt });
                return Ok(PcpNext::LogIn);
            }
            Request::End => return Ok(PcpNext::Close),
            Request::NodeCount => answer::node_count(out, &self.control.snapshot().await),
            Request::Nodes(which) => answer::nodes(out, &self.control.snapshot().await, which)?,
            Request::Health(id) => answer::health(out, &self.control.snapshot().await, id)?,
            Request::ProcessCount => answer::process_count(out, &self.control.snapshot().await),
            Request::Processes(which) => {
                answer::processes(out, &self.control.snapshot().await, which)?;
            }
            Request::Settings => answer::settings(out, &self.control.snapshot().await),
            Request::Watchdog(which) => {
                watchdog::members(out, &self.control.snapshot().await, which)?;
            }
            Request::SetLevel => done(out),
            Request::Detach(id) => {
                let (cluster, node) = self.node(id).await?;
                self.order(Order::Detach { cluster, node }).await?;
                done(out);
            }
            Request::Attach(id) => {
                let (cluster, node) = self.node(id).await?;
                self.order(Order::Attach { cluster, node }).await?;
                done(out);
            }
            Request::Promote { id, is_switchover } => {
                self.promote(id, is_switchover).await?;
                done(out);
            }
            Request::Reload => {
                self.reload().await?;
                done(out);
            }
            Request::Shutdown(how) => {
                self.note(&format!("SHUTDOWN {how:?} command issued"));
                done(out);
                return Ok(PcpNext::Shutdown(how));
            }
            Request::Unsupported(why) => return Err(why.into()),
        }
        Ok(PcpNext::GoOn)
    }

    /// Tries the login that [`PcpNext::LogIn`] tells of, and answers it. If the result is false, the
    /// caller waits before it sends the answer, and closes.
    pub fn log_in(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(Login { user, digest, salt }) = self.login.take() else { return false };
        let config = self.control.config();
        // All lines are tried, so that the time does not tell which names there are.
        let is_right = |own: &&PcpUser| {
            let is_proof = proves(&own.md5, &own.name, salt, &digest);
            is_proof && own.name == user
        };
        let mut right: Vec<_> = config.pcp_users.0.iter().filter(is_right).collect();
        self.user = right.pop().cloned();
        match self.is_logged_in() {
            true => Answer::new(out, b'r').text("AuthenticationOK").end(),
            false => {
                let name: String = user.chars().filter(|c| !c.is_control()).collect();
                self.control.error(&format!("PCP login of user '{name}' failed"));
                frame::error(out, "FATAL", "authentication failed: wrong user name or password");
            }
        }
        self.is_logged_in()
    }

    /// Takes the user's rights from the present configuration.
    ///
    /// # Errors
    /// When it has no such user with this password any more.
    fn follow_users(&mut self) -> Result<(), Refusal> {
        let config = self.control.config();
        let is_same = |own: &&PcpUser, user: &PcpUser| own.name == user.name && own.md5 == user.md5;
        if let Some(user) = &mut self.user {
            let present = config.pcp_users.0.iter().rfind(|own| is_same(own, user));
            let gone = "pcp_file has this user with this password no more";
            *user = present.ok_or(Refusal::Fatal(gone))?.clone();
        }
        Ok(())
    }

    /// Returns cluster and name of a node.
    async fn node(&self, id: i64) -> Result<(String, String), Refusal> {
        let nodes = pgpool::nodes(&self.control.snapshot().await);
        let node = answer::find(&nodes, id)?;
        Ok((node.cluster.clone(), node.row.name.clone()))
    }

    /// A node that is not the primary becomes it by a switchover only: Weir does not take a node for
    /// the primary because an operator says so.
    async fn promote(&self, id: i64, is_switchover: bool) -> Result<(), Refusal> {
        let (cluster, node) = self.node(id).await?;
        let clusters = self.control.snapshot().await.clusters;
        let is_primary = clusters.iter().any(|own| own.name == cluster && own.primary == node);
        match (is_switchover, is_primary) {
            (false, true) => Ok(()),
            (false, false) => Err(Refusal::Error(format!(
                "node {id} is not the primary: use --switchover, which makes it the primary"
            ))),
            (true, true) => Err(Refusal::Error(format!("node {id} is the primary already"))),
            (true, false) => self.order(Order::Promote { cluster, node }).await,
        }
    }

    async fn order(&self, order: Order) -> Result<(), Refusal> {
        if let Some(note) = order.note() {
            self.note(&note);
        }
        self.control.order(order).await.map_err(Refusal::Error)
    }

    async fn reload(&self) -> Result<(), Refusal> {
        self.note("RELOAD command issued");
        self.control.reload().await.map(drop).map_err(|NotReloaded { kept, mistakes }| {
            let reasons = kept.into_iter().chain(mistakes).collect::<Vec<_>>().join("; ");
            Refusal::Error(format!("reload failed: {reasons}"))
        })
    }

    fn note(&self, what: &str) {
        let user = self.user.as_ref().map_or("", |user| &user.name);
        self.control.note(&format!("{what} by PCP user '{user}'"));
    }
}

const UNAUTHORIZED: Refusal = Refusal::Fatal("connection not authorized");

/// Does the digest prove the password with this MD5? It hashes the MD5 with the user's name, and the
/// result with the salt.
fn proves(md5: &str, user: &str, salt: [u8; 4], digest: &str) -> bool {
    let stored = wire::md5::hash(user.as_bytes(), md5.as_bytes());
    wire::md5::verify(&stored, salt, format!("md5{digest}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From a capture of Pgpool-II 4.3.5 and its tools.
    #[test]
    fn a_digest_proves_the_password() {
        let (md5, salt) = ("5ebe2294ecd0e0f08eab7690d2a6ee69", [0xb5, 0x78, 0x11, 0x21]);
        let digest = "1d92e20d1748ca4caaad38d587f37aad";
        assert!(proves(md5, "pcpadmin", salt, digest));
        assert!(!proves(md5, "another", salt, digest));
        assert!(!proves(md5, "pcpadmin", [0; 4], digest));
        assert!(!proves(md5, "pcpadmin", salt, ""));
    }
}
