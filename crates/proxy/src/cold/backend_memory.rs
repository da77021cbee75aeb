//! Closes servers whose processes have more private memory than `server_max_memory`.
//!
//! Linux tells the memory of a process of this host. The process is asked about only if it is surely the
//! backend of the connection. The number in BackendKeyData does not suffice: a server elsewhere, or in
//! another PID namespace, has numbers of its own.
//!
//! * Over a unix socket, the kernel names the process that listens. The backend is its child.
//! * Over TCP to an address of this host, the title of the backend has the port of Weir's end.
//!
//! A parked server is closed at once. In a full pool, servers are never parked. There, one query's
//! memory must not count, so a server in use is closed only if several looks, each during another
//! use, have found too much.

use std::{
    collections::{HashMap, HashSet},
    os::fd::RawFd,
    time::Duration,
};

use engine::{
    ids::{PoolId, WorkerId},
    pool::{Parked, Pool},
    server::CloseReason,
};
use net::sys::{Address, process, socket};
use tokio::{task, time::sleep};

use crate::{
    cold::controller::Controller,
    exchange::{hub::lock, mail::ShellMail, reports::LimitedServer, transport::Transport},
    warning,
};

/// The interval of the looks. In each, at most one server of a pool is chosen, so that the clients of a
/// pool need not wait for many logins at the same time.
const LOOK: Duration = Duration::from_secs(2);
/// The number of looks that must find too much while clients use the server.
const LOOKS_IN_USE: u32 = 3;
/// The number of looks without any figure after which that is logged.
const LOOKS_IN_VAIN: u32 = 2;

/// The results of earlier looks.
#[derive(Debug, Default)]
struct Found {
    /// Servers in use that were too large, by serial number: the number of looks, and of uses at the
    /// last one.
    large: HashMap<u64, (u32, u64)>,
    /// Pools whose servers have no known memory, with the number of looks.
    unknown: HashMap<PoolId, u32>,
}

/// Looks at the servers forever.
pub(crate) async fn keep(controller: Controller) {
    let mut found = Found::default();
    loop {
        sleep(LOOK).await;
        let hub = &controller.0.shared.hub;
        if !hub.pools().iter().any(|pool| lock(pool).settings.server_max_memory > 0) {
            found = Found::default();
            continue;
        }
        let Some(used) = controller.ask(ShellMail::LimitedServers).await else { return };
        let mut servers: Vec<LimitedServer> = used.into_iter().flatten().collect();
        servers.extend(parked(&controller));
        // A server that is closed now had its descriptor all the time until then.
        let measure = move || -> Vec<_> {
            servers.into_iter().map(|server| (server, private_bytes(&server))).collect()
        };
        let Ok(measured) = task::spawn_blocking(measure).await else { return };
        for pool in found.in_vain(&measured) {
            tell_unknown(&controller, pool);
        }
        let chosen = found.choose(&measured);
        if hub.switches().is_halted() {
            continue;
        }
        for server in chosen {
            let mailbox = hub.mailbox(server.worker);
            match server.is_parked {
                true => {
                    condemn(&controller, &server);
                    mailbox.post(ShellMail::Review);
                }
                false => mailbox.post(ShellMail::ServerIsLarge(server.serial)),
            }
        }
    }
}

/// Withdraws a server from its pool, unless a client has it now.
fn condemn(controller: &Controller, server: &LimitedServer) {
    let is_it = |parked: &Parked<_>| parked.server.serial == server.serial;
    in_pool(controller, server.pool, |pool| pool.condemn_where(is_it, CloseReason::MaxMemory));
}

/// Does something with the pool, if it still exists.
fn in_pool<R>(
    controller: &Controller,
    id: PoolId,
    act: impl FnOnce(&mut Pool<Transport>) -> R,
) -> Option<R> {
    let pools = controller.0.shared.hub.pools();
    pools.iter().map(|pool| lock(pool)).find(|pool| pool.id == id).map(|mut pool| act(&mut pool))
}

/// Returns the parked servers. One that no client has had yet would not be smaller if it was new.
fn parked(controller: &Controller) -> Vec<LimitedServer> {
    let hub = &controller.0.shared.hub;
    let mut found = Vec::new();
    for pool in hub.pools() {
        let pool = lock(&pool);
        let limit = pool.settings.server_max_memory;
        if limit == 0 {
            continue;
        }
        for worker in (0..hub.worker_count()).map(WorkerId) {
            let used = pool.idle_at(worker).filter(|parked| parked.server.uses > 0);
            found.extend(used.map(|parked| {
                let fd = parked.transport.describe().fd;
                LimitedServer::new(worker, fd, &parked.server, limit, true)
            }));
        }
    }
    found
}

fn tell_unknown(controller: &Controller, id: PoolId) {
    let Some(key) = in_pool(controller, id, |pool| pool.key.clone()) else { return };
    warning!(
        "server_max_memory has no effect on pool {}/{}: the memory of its servers is not known; they run \
         on another host or in a container, or /proc does not show them",
        key.database,
        key.user
    );
}

impl Found {
    /// Chooses the largest server of each pool that is to be closed.
    fn choose(&mut self, measured: &[(LimitedServer, Option<u64>)]) -> Vec<LimitedServer> {
        let mut large = HashMap::new();
        let mut chosen: HashMap<PoolId, (u64, LimitedServer)> = HashMap::new();
        for (server, bytes) in measured {
            let Some(bytes) = bytes.filter(|bytes| *bytes > server.limit) else { continue };
            if !server.is_parked {
                let (looks, uses) = self.large.get(&server.serial).copied().unwrap_or_default();
                let is_another = server.is_direct || looks == 0 || uses != server.uses;
                let looks = looks + u32::from(is_another);
                large.insert(server.serial, (looks, server.uses));
                if looks < LOOKS_IN_USE {
                    continue;
                }
            }
            if chosen.get(&server.pool).is_none_or(|(largest, _)| bytes > *largest) {
                chosen.insert(server.pool, (bytes, *server));
            }
        }
        self.large = large;
        chosen.into_values().map(|(_, server)| server).collect()
    }

    /// Returns the pools of which no server's memory is known, once each.
    fn in_vain(&mut self, measured: &[(LimitedServer, Option<u64>)]) -> Vec<PoolId> {
        let known: HashSet<PoolId> =
            measured.iter().filter(|(_, bytes)| bytes.is_some()).map(|(own, _)| own.pool).collect();
        let all: HashSet<PoolId> = measured.iter().map(|(own, _)| own.pool).collect();
        self.unknown.retain(|pool, _| !known.contains(pool));
        let mut due = Vec::new();
        for pool in all.difference(&known) {
            let looks = self.unknown.entry(*pool).or_default();
            *looks = looks.saturating_add(1);
            if *looks == LOOKS_IN_VAIN {
                due.push(*pool);
            }
        }
        due
    }
}

/// The other end of a connection to a server of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Near {
    /// A unix socket, and the process that listens there.
    Unix { listener: u32 },
    /// An address of this host, and the port of Weir's end.
    Tcp { port: u16 },
}

impl Near {
    /// Returns `None` if the other end may be on another host.
    fn of(fd: RawFd) -> Option<Self> {
        match (socket::local_address(fd).ok()?, socket::peer_address(fd).ok()?) {
            (Address::Inet(own), Address::Inet(peer)) => {
                let is_near = peer.ip().is_loopback() || own.ip() == peer.ip();
                is_near.then_some(Self::Tcp { port: own.port() })
            }
            (Address::Inet(_), _) | (_, Address::Inet(_)) => None,
            _ => {
                // 0: the process is in a namespace that this process does not see.
                let (listener, _) = socket::peer_credentials(fd).ok()?;
                (listener != 0).then_some(Self::Unix { listener })
            }
        }
    }

    /// Returns the private memory of the process with this number, if that is surely the backend of this
    /// connection.
    fn private_bytes(self, number: u32) -> Option<u64> {
        let status = process::Status::find(number)?;
        let title = process::title(number)?;
        self.is_to(number, &status, &title).then_some(status.private_bytes)
    }

    /// Is the process with this number surely the backend of this connection?
    fn is_to(self, number: u32, status: &process::Status, title: &str) -> bool {
        let is_ours = match self {
            Self::Unix { listener } => status.parent == listener,
            // As in "postgres: alice app 127.0.0.1(40312) idle".
            Self::Tcp { port } => title.contains(&format!("({port}) ")),
        };
        // PostgreSQL has told the number by which the process knows itself.
        is_ours && title.starts_with("postgres: ") && status.own_number == number
    }
}

fn private_bytes(server: &LimitedServer) -> Option<u64> {
    Near::of(server.fd)?.private_bytes(server.process)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::{
        net::{TcpListener, TcpStream},
        os::{
            fd::AsRawFd as _,
            unix::{net::UnixListener, net::UnixStream, process::CommandExt as _},
        },
        process::Command,
    };

    fn server(serial: u64, pool: u32, uses: u64, is_parked: bool) -> LimitedServer {
        LimitedServer {
            worker: WorkerId(0),
            pool: PoolId(pool),
            serial,
            fd: -1,
            process: 0,
            limit: 100,
            uses,
            is_parked,
            is_direct: false,
        }
    }

    fn serials(chosen: &[LimitedServer]) -> Vec<u64> {
        let mut serials: Vec<_> = chosen.iter().map(|server| server.serial).collect();
        serials.sort_unstable();
        serials
    }

    #[test]
    fn the_largest_parked_server_of_each_pool_goes_first() {
        let sizes = [(1, 0, Some(101)), (2, 0, Some(150)), (3, 0, Some(100)), (4, 1, Some(101))];
        let sizes = sizes.into_iter().chain([(5, 2, None), (6, 2, Some(99))]);
        let measured: Vec<_> =
            sizes.map(|(serial, pool, bytes)| (server(serial, pool, 1, true), bytes)).collect();
        assert_eq!(serials(&Found::default().choose(&measured)), [2, 4]);
    }

    #[test]
    fn a_server_in_use_goes_after_several_looks_during_several_uses() {
        let mut found = Found::default();
        let mut look = |uses, bytes| {
            serials(&found.choose(&[(server(1, 0, uses, false), Some(bytes))])) == [1]
        };
        // One long query.
        assert!(![5, 5, 5, 5, 5].into_iter().any(|uses| look(uses, 101)));
        assert!(!look(6, 101), "the second use");
        assert!(look(7, 101), "the third one");
        assert!(!look(8, 100), "its memory was given back");
        assert!(!look(9, 101) && !look(10, 101) && look(11, 101));
    }

    #[test]
    fn a_pool_without_figures_is_named_once() {
        let mut found = Found::default();
        let unknown = [(server(1, 0, 1, true), None), (server(2, 1, 1, true), None)];
        let half = [(server(1, 0, 1, true), None), (server(3, 0, 1, true), Some(1))];
        assert_eq!(found.in_vain(&unknown[..1]), []);
        assert_eq!(found.in_vain(&half), []);
        assert_eq!(found.in_vain(&unknown[..1]), []);
        assert_eq!(found.in_vain(&unknown[..1]), [PoolId(0)]);
        assert_eq!(found.in_vain(&unknown), []);
        assert_eq!(found.in_vain(&unknown), [PoolId(1)]);
        assert_eq!(found.in_vain(&unknown), []);
    }

    #[test]
    fn a_process_is_measured_only_if_it_is_the_backend_of_the_connection() {
        let mut backend = Command::new("sleep");
        let title = "postgres: alice app 127.0.0.1(5000) idle";
        let mut backend = backend.arg("60").arg0(title).spawn().unwrap();
        let number = backend.id();
        // The new program may not have replaced this one yet.
        while process::title(number).is_none_or(|found| !found.starts_with(title)) {
            std::thread::yield_now();
        }
        let (own, parent) = (std::process::id(), std::os::unix::process::parent_id());
        let bytes = |near: Near, number| near.private_bytes(number).is_some();
        let results = [
            bytes(Near::Unix { listener: own }, number),
            bytes(Near::Unix { listener: parent }, number),
            bytes(Near::Tcp { port: 5000 }, number),
            bytes(Near::Tcp { port: 500 }, number),
            bytes(Near::Tcp { port: 5001 }, number),
            // Not PostgreSQL; and no process.
            bytes(Near::Unix { listener: parent }, own),
            bytes(Near::Unix { listener: own }, u32::MAX),
        ];
        backend.kill().unwrap();
        backend.wait().unwrap();
        assert_eq!(results, [true, false, true, false, false, false, false]);
    }

    #[test]
    fn a_process_of_another_namespace_is_not_the_backend() {
        let title = "postgres: alice app 127.0.0.1(5000) idle";
        let of = |own_number| process::Status { parent: 7, own_number, private_bytes: 1 };
        for near in [Near::Unix { listener: 7 }, Near::Tcp { port: 5000 }] {
            assert!(near.is_to(40, &of(40), title));
            // It has the number 40 here, and 2 in its own namespace.
            assert!(!near.is_to(40, &of(2), title));
            assert!(!near.is_to(40, &of(40), "sleep 60"));
        }
    }

    #[test]
    fn the_other_end_is_near_on_a_unix_socket_and_at_an_own_address() {
        let path = std::env::temp_dir().join(format!("weir-near-{}", std::process::id()));
        let unix = UnixListener::bind(&path).unwrap();
        let stream = UnixStream::connect(&path).unwrap();
        let listener = std::process::id();
        assert_eq!(Near::of(stream.as_raw_fd()), Some(Near::Unix { listener }));
        std::fs::remove_file(path).unwrap();
        drop(unix);
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        let port = stream.local_addr().unwrap().port();
        assert_eq!(Near::of(stream.as_raw_fd()), Some(Near::Tcp { port }));
        assert_eq!(Near::of(-1), None);
    }
}
