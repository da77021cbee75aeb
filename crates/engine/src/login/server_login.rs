//! A login to PostgreSQL in progress, as plain data, and the purpose of a server that is not opened for
//! the pool's queue. `lifecycle/open.rs` handles the login, `engine/opening.rs` the purpose.

use wire::scram::ScramClient;

use crate::ids::ClientId;
use crate::login::issued::IssuedLogin;
use crate::login::server_secret::ServerSecret;
use crate::session::ahead::Key;
use crate::session::carried::Carried;
use crate::session::probe::Probe;
use crate::session::state_report::StateReport;
use crate::settings::Target;
use crate::vars::Welcome;

/// The purpose of a server that is not opened for the pool's queue. If it concerns one client, a
/// failure says nothing about the pool.
#[derive(Debug)]
pub enum ServerPurpose {
    /// To check whether this is the client's password.
    Proof { client: ClientId, password: Vec<u8> },
    /// To be used by this client only.
    Replication { client: ClientId },
    /// To take this client's settings, which another server has refused.
    Settings { client: ClientId },
    /// To listen for all clients of the pool.
    Listen,
    /// To serve clients' sockets itself. PostgreSQL's backend shows this ticket.
    Attend { ticket: String },
}

impl ServerPurpose {
    /// Returns the client that the server is opened for, if there is one.
    pub fn client(&self) -> Option<ClientId> {
        match self {
            Self::Proof { client, .. }
            | Self::Replication { client }
            | Self::Settings { client } => Some(*client),
            Self::Listen | Self::Attend { .. } => None,
        }
    }

    /// Returns the password for the login, if it is not the pool's.
    pub fn password(&self) -> Option<&[u8]> {
        match self {
            Self::Proof { password, .. } => Some(password),
            Self::Replication { .. }
            | Self::Settings { .. }
            | Self::Listen
            | Self::Attend { .. } => None,
        }
    }
}

/// A login to PostgreSQL in progress.
#[derive(Debug, Default)]
pub struct ServerLogin {
    pub stage: LoginStage,
    pub version: ProtocolVersion,
    pub scram: Option<ScramClient>,
    pub server_secret: Option<ServerSecret>,
    /// Set if the secret is a password of `password_command`.
    pub(crate) issued: Option<IssuedLogin>,
    pub welcome: Welcome,
    pub purpose: Option<ServerPurpose>,
    /// Did the server ask for a password?
    pub challenged: bool,
    /// The server is asked to report its session's state.
    pub asks_report: bool,
    pub state_report: Option<StateReport>,
    pub key: Key,
}

/// The progress of a login to PostgreSQL.
#[derive(Debug, Default)]
pub enum LoginStage {
    #[default]
    Connecting,
    /// `password_command` is to name the password. Then this target is connected to.
    AwaitsPassword(Target),
    /// The socket is connected. TLS is starting, or the server authenticates Weir.
    Reached,
    Authenticated,
    /// `connect_query` is running.
    ConnectQuery,
    /// A probe asks what `connect_query` has set.
    Asked(Probe),
    /// The server has refused it. `repeats`: for the same reason as the pool's login before.
    Refused {
        repeats: bool,
    },
}

/// The protocol version on a new server: 3 and this minor number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolVersion {
    /// The server is asked to use it.
    Offered(u16),
    /// The server has accepted or negotiated it, or has simply gone on.
    Settled(u16),
}

impl ProtocolVersion {
    pub fn minor(self) -> u16 {
        match self {
            Self::Offered(minor) | Self::Settled(minor) => minor,
        }
    }

    pub fn settle(&mut self) {
        *self = Self::Settled(self.minor());
    }
}

impl Default for ProtocolVersion {
    fn default() -> Self {
        Self::Offered(0)
    }
}

impl ServerLogin {
    /// Takes a state report.
    pub fn hear_state(&mut self, value: &[u8]) {
        match &mut self.state_report {
            Some(report) => {
                report.hear(value, false);
            }
            None if self.asks_report => self.state_report = StateReport::at_login(value),
            None => {}
        }
        self.state_report.take_if(|report| !report.is_known());
    }

    /// Returns the settings of the new session, if the server reports its state.
    pub(crate) fn reported_settings(&self) -> Option<Carried> {
        self.state_report.as_ref()?.state()?.settings
    }

    /// Returns the client's password, if the login is to check it.
    pub fn proof(&self) -> Option<&[u8]> {
        self.purpose.as_ref().and_then(ServerPurpose::password)
    }
}
