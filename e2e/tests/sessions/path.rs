//! The ways on which a script is played through Weir.

use std::sync::OnceLock;

use testkit::{Postgres, Version};

/// The standbys of the cluster that plays `Standbys`.
const STANDBYS: usize = 2;

/// The way of a client's requests to PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DataPath {
    /// Weir handles the queries, and sends probes.
    Proxied,
    /// Weir handles the queries, and the library `weir` reports the state of sessions.
    Library,
    /// PostgreSQL's backends serve the clients' sockets.
    Direct,
    /// A cluster: reads may run on standbys.
    Standbys,
}

impl DataPath {
    const ALL: [Self; 4] = [Self::Proxied, Self::Library, Self::Direct, Self::Standbys];

    /// Returns the only path to play, if `DATA_PATH` names one.
    pub(crate) fn chosen() -> Option<Self> {
        let name = std::env::var("DATA_PATH").ok()?;
        let chosen = Self::ALL.into_iter().find(|path| path.name() == name);
        assert!(chosen.is_some(), "DATA_PATH={name} is not one of {:?}", Self::ALL.map(Self::name));
        chosen
    }

    /// Returns its name in `DATA_PATH`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Proxied => "proxied",
            Self::Library => "library",
            Self::Direct => "direct",
            Self::Standbys => "standbys",
        }
    }

    /// Returns the number of scripts that `make verify` plays.
    pub(crate) fn seeds(self) -> u64 {
        match self {
            Self::Proxied => 50,
            Self::Library => 10,
            Self::Direct => 40,
            Self::Standbys => 20,
        }
    }

    /// Returns the maximum share of scripts that a stated limit ends.
    pub(crate) fn limits_max_percent(self) -> u64 {
        match self {
            Self::Proxied | Self::Library => 10,
            Self::Direct | Self::Standbys => 15,
        }
    }

    /// Returns the server that all scripts of this path use. In a cluster, this is the primary.
    pub(crate) fn postgres(self) -> &'static Postgres {
        match self {
            Self::Proxied => Postgres::shared(),
            Self::Library | Self::Direct => {
                static SERVER: OnceLock<Postgres> = OnceLock::new();
                SERVER.get_or_init(|| Postgres::start_with_library(Version::Installed))
            }
            Self::Standbys => &nodes()[0],
        }
    }

    /// Returns the primary and its standbys, or nothing without a cluster.
    pub(crate) fn nodes(self) -> &'static [Postgres] {
        match self {
            Self::Standbys => nodes(),
            Self::Proxied | Self::Library | Self::Direct => &[],
        }
    }
}

fn nodes() -> &'static [Postgres] {
    static NODES: OnceLock<Vec<Postgres>> = OnceLock::new();
    NODES.get_or_init(|| {
        let nodes = Postgres::start_cluster(STANDBYS);
        // Otherwise a standby gets a commit only when the primary happens to flush its log.
        nodes[0].set("synchronous_commit", "on");
        // Otherwise a standby has a write before anyone can read.
        nodes[STANDBYS].set("recovery_min_apply_delay", "20ms");
        nodes
    })
}
