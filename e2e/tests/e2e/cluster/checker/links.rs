//! The network between Weir and the nodes. With network namespaces every direction between any two of
//! them can be cut alone. They need root; without it there are relays before the nodes, and only the
//! lines between Weir and a node can be cut.

use testkit::{Network, Postgres, Relay, Way};

/// Two ends of a line: Weir or a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Weir,
    Node(usize),
}

pub(super) enum Links {
    Namespaces(Network, Vec<std::net::Ipv4Addr>),
    Relays(Vec<Relay>),
}

impl Links {
    /// Starts so many nodes, and the network between them.
    pub(super) fn start(nodes: usize) -> (Self, Vec<Postgres>) {
        match Network::start() {
            Ok(mut network) => {
                let hosts: Vec<_> = (0..nodes).map(|_| network.host()).collect();
                let nodes = Postgres::start_cluster_at(&hosts);
                let addresses = hosts.iter().map(testkit::Host::address).collect();
                (Self::Namespaces(network, addresses), nodes)
            }
            Err(why) => {
                eprintln!(
                    "relays instead of network namespaces, so nodes are not cut off from each other: {why}"
                );
                let nodes = Postgres::start_cluster(nodes - 1);
                (Self::Relays(nodes.iter().map(|node| Relay::before(node.port())).collect()), nodes)
            }
        }
    }

    /// Returns the addresses of the nodes for Weir.
    pub(super) fn addresses(&self, nodes: &[Postgres]) -> Vec<String> {
        match self {
            Self::Namespaces(..) => {
                nodes.iter().map(|node| format!("{}:{}", node.address(), node.port())).collect()
            }
            Self::Relays(relays) => {
                relays.iter().map(|relay| format!("127.0.0.1:{}", relay.port())).collect()
            }
        }
    }

    /// Can nodes be cut off from each other?
    pub(super) fn are_complete(&self) -> bool {
        matches!(self, Self::Namespaces(..))
    }

    /// Drops all that is sent in this direction.
    pub(super) fn cut(&self, from: End, to: End) {
        match (self, from, to) {
            (Self::Namespaces(network, addresses), from, to) => {
                let address = |end| match end {
                    End::Weir => network.own_address(),
                    End::Node(node) => addresses[node],
                };
                network.cut(address(from), address(to));
            }
            (Self::Relays(relays), End::Weir, End::Node(node)) => relays[node].cut_more(Way::There),
            (Self::Relays(relays), End::Node(node), End::Weir) => relays[node].cut_more(Way::Back),
            (Self::Relays(_), End::Weir, End::Weir)
            | (Self::Relays(_), End::Node(_), End::Node(_)) => {
                unreachable!("only namespaces can do it")
            }
        }
    }

    pub(super) fn heal(&self) {
        match self {
            Self::Namespaces(network, _) => network.heal(),
            Self::Relays(relays) => relays.iter().for_each(Relay::heal),
        }
    }
}
