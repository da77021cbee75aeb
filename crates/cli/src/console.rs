//! Connects the console and the pooler: `admin` answers, `proxy` has the connections and the facts,
//! and neither depends on the other. `console/rows.rs` translates the facts.

mod rows;

use std::{
    io,
    net::TcpStream,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::{Arc, OnceLock},
};

use admin::{
    Boxed, Console, Control, Incident, Login, NotReloaded, Order, Recording, Shutdown, Snapshot,
};
use config::{Config, Global};
use proxy::{
    ConsoleConnection, ConsoleHandler, ConsoleRequest, Controller, Peer, ReloadError, TlsStream,
    error, log, log::About, warning,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use crate::moment::Moment;

/// Serves the console of a pooler, for [`proxy::StartOptions`].
pub(crate) fn handler() -> ConsoleHandler {
    // The process has one console, created when the first connection brings the pooler's
    // controller.
    let console: OnceLock<Arc<Console>> = OnceLock::new();
    Box::new(move |controller, request| {
        let made = || Arc::new(Console::new(control(controller)));
        let console = console.get_or_init(made).clone();
        match request {
            ConsoleRequest::Connection(connection) => {
                tokio::spawn(serve(console, controller.clone(), connection));
            }
            ConsoleRequest::Cancel(key) => console.cancel(key.pid, &key.secret),
        }
    })
}

/// Returns the pooler as the console and PCP see it.
pub(crate) fn control(controller: &Controller) -> Arc<dyn Control> {
    Arc::new(Pooler(controller.clone()))
}

async fn serve(console: Arc<Console>, controller: Controller, connection: ConsoleConnection) {
    let ConsoleConnection { fd, tls, peer, login, unsent, seat: _seat } = connection;
    let now = Moment::now(&controller);
    let connected_at = now.wall(login.connected_at);
    let port = controller.config().global.listen_port;
    let secured = tls.as_ref().map_or_else(String::new, |tls| tls.describe());
    let mut connection = rows::console((&fd, login.serial), &peer, secured, connected_at, port);
    connection.user.clone_from(&login.user);
    let (number, user, address) = (connection.fd, login.user.clone(), peer.label(port));
    let label = format!("C-{number:#x}: pgbouncer/{user}@{address}");
    let login = Login {
        label,
        admin: login.admin,
        process_id: login.process_id,
        secret: login.secret,
        connection,
        unread: login.unread,
    };
    let reason = match (stream(fd, &peer), tls) {
        (Ok(Stream::Tcp(stream)), Some(tls)) => {
            talk(&console, TlsStream::new(stream, tls, unsent), login, &[]).await
        }
        (Ok(Stream::Tcp(stream)), None) => talk(&console, stream, login, &unsent).await,
        (Ok(Stream::Unix(stream)), _) => talk(&console, stream, login, &unsent).await,
        (Err(error), _) => Some(error.to_string()),
    };
    if let Some(reason) = reason
        && controller.config().global.log_disconnections
    {
        let age = Moment::now(&controller).seconds - connected_at;
        let about = About {
            side: 'C',
            number: Some(number),
            database: "pgbouncer",
            user: &user,
            address: &address,
        };
        log!(of about, "closing because: {reason} (age={age}s)");
    }
}

async fn talk<S>(console: &Console, mut stream: S, login: Login, unsent: &[u8]) -> Option<String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match stream.write_all(unsent).await {
        Ok(()) => console.serve(stream, login).await,
        Err(error) => Some(error.to_string()),
    }
}

enum Stream {
    Tcp(tokio::net::TcpStream),
    Unix(tokio::net::UnixStream),
}

fn stream(fd: OwnedFd, peer: &Peer) -> io::Result<Stream> {
    match peer {
        Peer::Unix { .. } | Peer::Process(_) | Peer::Unknown => {
            tokio::net::UnixStream::from_std(UnixStream::from(fd)).map(Stream::Unix)
        }
        Peer::V4(..) | Peer::V6(_) => {
            tokio::net::TcpStream::from_std(TcpStream::from(fd)).map(Stream::Tcp)
        }
    }
}

/// Returns the flight recorder's content, without asking the workers.
pub(crate) fn incident(controller: &Controller, made: String) -> Incident {
    let recording = rows::recording(controller.recorded(), Moment::now(controller));
    Incident::of(made, &rows::bare_snapshot(controller), &recording)
}

/// Returns the reasons for the place of a pool's requests, for the metrics.
pub(crate) fn routes(pool: &proxy::PoolMeasures) -> Vec<admin::RouteRow> {
    rows::routes(&pool.key, &pool.settings)
}

/// Returns the state of all clusters, for the metrics.
pub(crate) fn clusters(controller: &Controller) -> Vec<admin::ClusterRow> {
    rows::clusters(controller, Moment::now(controller))
}

/// The pooler as the console sees it.
struct Pooler(Controller);

impl Control for Pooler {
    fn snapshot(&self) -> Boxed<'_, Snapshot> {
        Box::pin(async {
            let facts = self.0.snapshot().await;
            rows::snapshot(&self.0, facts, Moment::now(&self.0))
        })
    }

    fn explain_route(&self, text: &[u8]) -> Vec<admin::Judgement> {
        let judged = self.0.explain_route(text).into_iter();
        let row = |one: proxy::Judgement| admin::Judgement {
            database: one.database,
            judge: one.judge,
            place: one.place,
            reason: one.reason,
            description: one.description,
        };
        judged.map(row).collect()
    }

    fn timings(&self) -> Recording {
        rows::recording(self.0.timings(), Moment::now(&self.0))
    }

    fn recording(&self) -> Boxed<'_, Recording> {
        Box::pin(async { rows::recording(self.0.recording().await, Moment::now(&self.0)) })
    }

    fn reload(&self) -> Boxed<'_, Result<Vec<String>, NotReloaded>> {
        let controller = self.0.clone();
        Box::pin(async move {
            // A reload reads files, and this thread must answer other requests meanwhile.
            let reloaded = tokio::task::spawn_blocking(move || controller.reload()).await;
            self.0.barrier().await;
            let mistakes = match reloaded {
                Err(error) => vec![error.to_string()],
                Ok(reloaded) => match self.0.conclude_reload(reloaded).await {
                    Ok(changes) => return Ok(changes),
                    Err(ReloadError::Partly(kept)) => {
                        return Err(NotReloaded { kept, ..NotReloaded::default() });
                    }
                    Err(ReloadError::Mistakes(error)) => {
                        error.mistakes.iter().map(ToString::to_string).collect()
                    }
                    Err(error @ ReloadError::NoFile) => vec![error.to_string()],
                },
            };
            Err(NotReloaded { mistakes, ..NotReloaded::default() })
        })
    }

    fn config(&self) -> Arc<Config> {
        self.0.config()
    }

    fn refusal(&self, order: &Order) -> Option<String> {
        let refused = self.0.order_fits(&translated(order.clone()));
        refused.err().map(|error| error.to_string())
    }

    fn order(&self, order: Order) -> Boxed<'_, Result<(), String>> {
        let order = translated(order);
        Box::pin(async move { self.0.order(order).await.map_err(|error| error.to_string()) })
    }

    fn give_up(&self) {
        // An error means that there is nothing to undo.
        let _ = self.0.resume_all();
    }

    fn abandoned(&self) {
        self.0.console_abandoned();
    }

    fn set(&self, key: String, value: String) -> Boxed<'_, Result<Option<String>, String>> {
        let controller = self.0.clone();
        let concerns_address = Global::concerns_address(&key);
        Box::pin(async move {
            // Like a reload, this may read files.
            let done = tokio::task::spawn_blocking(move || controller.set(&key, &value)).await;
            self.0.barrier().await;
            match done.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(None) if concerns_address => {
                    let faults = self.0.address_faults().await;
                    Ok((!faults.is_empty()).then(|| faults.join("; ")))
                }
                done => done,
            }
        })
    }

    fn note(&self, what: &str) {
        self.0.note_order(what);
        log!("{what}");
    }

    fn error(&self, what: &str) {
        error!("{what}");
    }

    fn pooler_error(&self, who: &str, what: &str) {
        if self.0.config().global.log_pooler_errors {
            warning!("{who} pooler error: {what}");
        }
    }

    fn shutdown(&self, how: Shutdown) {
        self.0.shutdown(match how {
            Shutdown::Now => proxy::Shutdown::Immediate,
            Shutdown::WaitForServers => proxy::Shutdown::WaitForServers,
            Shutdown::WaitForClients => proxy::Shutdown::WaitForClients,
        });
    }
}

fn translated(order: Order) -> proxy::Order {
    match order {
        Order::Pause(database) => proxy::Order::Pause(database),
        Order::Resume(database) => proxy::Order::Resume(database),
        Order::Suspend => proxy::Order::Suspend,
        Order::Kill(database) => proxy::Order::Kill(database),
        Order::KillClient(id) => proxy::Order::KillClient(id),
        Order::Reconnect(database) => proxy::Order::Reconnect(database),
        Order::WaitClose(database) => proxy::Order::WaitClose(database),
        Order::Disable(database) => proxy::Order::Disable(database),
        Order::Enable(database) => proxy::Order::Enable(database),
        Order::FailoverPause(cluster) => proxy::Order::FailoverPause(cluster),
        Order::FailoverResume(cluster) => proxy::Order::FailoverResume(cluster),
        Order::FailoverForget(member) => proxy::Order::FailoverForget(member),
        Order::Switchover { database, node } => proxy::Order::Switchover { database, node },
        Order::Promote { cluster, node } => proxy::Order::Promote { cluster, node },
        Order::Detach { cluster, node } => proxy::Order::Detach { cluster, node },
        Order::Attach { cluster, node } => proxy::Order::Attach { cluster, node },
    }
}
