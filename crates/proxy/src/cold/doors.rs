//! The addresses of services that have a port of their own: HTTP and PCP. A reload moves them, and an
//! online restart closes them before the new process opens its own.
//!
//! A port that is in use is tried again at the next reload, not earlier. Otherwise Weir would get the
//! port of another program while that program is restarted.

mod connections;

pub(super) use self::connections::Connections;

use std::{
    fmt::Display,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use config::{Config, Global, in_words};
use tokio::{
    net::TcpListener,
    sync::{Mutex, Notify, watch},
    task::JoinSet,
    time::timeout,
};

use crate::{cold::listen, log, warning};

/// Connections the kernel may hold that are not accepted yet.
const BACKLOG: u32 = 16;
/// The pause when nothing can be accepted, say for lack of descriptors.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// A reload waits so long until new addresses have been tried. Names may have to be looked up.
const TRIAL_TIME: Duration = Duration::from_secs(10);

/// A service with addresses of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// Metrics and health checks.
    Metrics,
    /// Health checks.
    Health,
    /// The tools of Pgpool-II.
    Pcp,
}

impl Service {
    pub(crate) const ALL: [Self; 3] = [Self::Metrics, Self::Health, Self::Pcp];

    /// Returns the keys of its addresses and its port.
    pub(crate) fn keys(self) -> (&'static str, &'static str) {
        match self {
            Self::Metrics => ("metrics_addr", "metrics_port"),
            Self::Health => ("health_addr", "health_port"),
            Self::Pcp => ("pcp_listen", "pcp_port"),
        }
    }

    /// Returns the values of these keys.
    pub(crate) fn values(self, global: &Global) -> (&[String], u16) {
        match self {
            Self::Metrics => (&global.metrics_addr, global.metrics_port),
            Self::Health => (&global.health_addr, global.health_port),
            Self::Pcp => (&global.pcp_listen, global.pcp_port),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Health => "health checks",
            Self::Pcp => "PCP",
        }
    }

    /// Returns where it is found at this address: the first of its pages, if it has any.
    fn place(self, address: SocketAddr) -> String {
        match self {
            Self::Metrics => format!("http://{address}/metrics"),
            Self::Health => format!("http://{address}/health/ready"),
            Self::Pcp => address.to_string(),
        }
    }
}

/// The addresses and the port that the configuration asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Wanted {
    addresses: Vec<String>,
    /// 0 = none.
    port: u16,
}

impl Wanted {
    fn of(service: Service, global: &Global) -> Self {
        let (addresses, port) = service.values(global);
        Self { addresses: addresses.to_vec(), port }
    }

    /// Returns all addresses. A name without an address is a fault.
    fn resolved(&self, service: Service) -> Vec<Result<SocketAddr, String>> {
        if self.port == 0 {
            return Vec::new();
        }
        let resolve = |name: &String| match listen::addresses(name, self.port) {
            Ok(addresses) => addresses.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(fault(service, name, "getaddrinfo", &error))],
        };
        self.addresses.iter().flat_map(resolve).collect()
    }
}

/// One door for each service.
#[derive(Debug)]
pub(crate) struct Doors([Door; Service::ALL.len()]);

impl Default for Doors {
    fn default() -> Self {
        Self(Service::ALL.map(Door::new))
    }
}

impl Doors {
    fn all(&self) -> &[Door; Service::ALL.len()] {
        &self.0
    }

    pub(super) fn of(&self, service: Service) -> &Door {
        &self.0[service as usize]
    }

    /// The configuration may ask for others now.
    pub(crate) fn change(&self) {
        self.all().iter().for_each(Door::change);
    }

    /// Returns why something is not served at some addresses of the last change, a text for each.
    /// Waits until they have been tried. Addresses that could not be opened at the start are not
    /// reported until the configuration asks for others.
    pub(crate) async fn faults(&self) -> Vec<String> {
        let [first, second, third] =
            self.all().each_ref().map(|door| door.faults_within(TRIAL_TIME));
        let faults = tokio::join!(first, second, third);
        [faults.0, faults.1, faults.2].concat()
    }

    /// Closes all for good. When it returns, another process can open the same.
    pub(crate) async fn shut(&self) {
        for door in self.all() {
            door.shut().await;
        }
    }
}

/// Opens the addresses of a service wherever the present configuration asks for it, for ever. `accept`
/// serves one listener.
pub(super) async fn keep<F>(
    doors: &Doors,
    service: Service,
    config: impl Fn() -> Arc<Config>,
    accept: impl Fn(TcpListener) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let door = doors.of(service);
    loop {
        let changes = door.changes();
        let config = config();
        let wanted = Wanted::of(service, &config.global);
        for other in doors.all().iter().filter(|other| other.service != service) {
            other.leave(&Wanted::of(other.service, &config.global), &wanted).await;
        }
        door.open((wanted, changes), &accept).await;
        door.changed().await;
    }
}

/// The addresses of one service.
#[derive(Debug)]
pub(super) struct Door {
    service: Service,
    open: Mutex<Open>,
    changed: Notify,
    /// The number of changes.
    changes: AtomicU64,
    /// The last attempt to open what is wanted; `None` if this process does not have the service.
    tried: watch::Sender<Option<Trial>>,
}

/// The outcome of an attempt.
#[derive(Debug, Default)]
struct Trial {
    /// The number of changes before it.
    changes: u64,
    /// Why nothing is served at some addresses. Empty if that was already so at the start.
    faults: Vec<String>,
}

#[derive(Debug, Default)]
struct Open {
    /// As it is opened now; `None` if not all of it could be.
    wanted: Option<Wanted>,
    /// The addresses of the last attempt.
    asked: Option<Wanted>,
    /// Could `asked` not be opened at the start, and since then neither?
    failed_at_start: bool,
    /// The tasks, one for each address. Each has its listener.
    tasks: JoinSet<()>,
    /// True once it is closed for good: the next process serves there.
    is_shut: bool,
}

impl Door {
    fn new(service: Service) -> Self {
        Self {
            service,
            open: Mutex::default(),
            changed: Notify::default(),
            changes: AtomicU64::default(),
            tried: watch::Sender::default(),
        }
    }

    fn change(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_one();
    }

    /// Returns when [`Door::change`] has been called since the last time.
    async fn changed(&self) {
        self.changed.notified().await;
    }

    fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    async fn faults_within(&self, limit: Duration) -> Vec<String> {
        let changes = self.changes();
        let is_known =
            |trial: &Option<Trial>| trial.as_ref().is_none_or(|trial| trial.changes >= changes);
        let mut tried = self.tried.subscribe();
        let Ok(Ok(trial)) = timeout(limit, tried.wait_for(is_known)).await else {
            let name = self.service.name();
            return vec![format!("not known yet if {name} can be served: no result in {limit:?}")];
        };
        trial.as_ref().map_or_else(Vec::new, |trial| trial.faults.clone())
    }

    /// Closes a port that is wanted for another service, and not here any more.
    async fn leave(&self, wanted: &Wanted, others: &Wanted) {
        let mut open = self.open.lock().await;
        let is_taken = open.asked.as_ref().is_some_and(|asked| asked.port == others.port);
        if is_taken && !open.is_settled(wanted) {
            open.close().await;
        }
    }

    /// Opens what is wanted after so many changes. `accept` serves one listener, for ever.
    async fn open<F>(&self, (wanted, changes): (Wanted, u64), accept: impl Fn(TcpListener) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tried.send_if_modified(|trial| {
            trial.get_or_insert_default();
            false
        });
        let faults = self.open_only(wanted, accept).await;
        self.tried.send_replace(Some(Trial { changes, faults }));
    }

    /// Opens what is wanted and closes all else. Returns the faults to report.
    async fn open_only<F>(&self, wanted: Wanted, accept: impl Fn(TcpListener) -> F) -> Vec<String>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if self.open.lock().await.is_settled(&wanted) {
            return Vec::new();
        }
        let (service, resolving) = (self.service, wanted.clone());
        // A host name may have to be looked up. An online restart does not wait for that.
        let resolved = tokio::task::spawn_blocking(move || resolving.resolved(service)).await;
        let mut open = self.open.lock().await;
        if open.is_settled(&wanted) {
            return Vec::new();
        }
        open.close().await;
        let (name, (key, _)) = (service.name(), service.keys());
        let resolved =
            resolved.unwrap_or_else(|error| vec![Err(format!("cannot look up {key}: {error}"))]);
        let mut faults = Vec::new();
        for address in resolved {
            match address.and_then(|address| Ok((address, bind(service, address)?))) {
                Ok((address, listener)) => {
                    log!("serving {name} on {}", service.place(address));
                    open.tasks.spawn(accept(listener));
                }
                Err(fault) => {
                    warning!(
                        "{fault}; Weir goes on without {name}, and tries again at the next RELOAD"
                    );
                    faults.push(fault);
                }
            }
        }
        open.tried(wanted, faults)
    }

    async fn shut(&self) {
        let mut open = self.open.lock().await;
        open.is_shut = true;
        open.close().await;
    }
}

impl Open {
    /// Is there nothing to open?
    fn is_settled(&self, wanted: &Wanted) -> bool {
        self.is_shut || self.wanted.as_ref() == Some(wanted)
    }

    /// Remembers an attempt. Returns those of its faults that are to be reported.
    fn tried(&mut self, wanted: Wanted, faults: Vec<String>) -> Vec<String> {
        self.wanted = faults.is_empty().then(|| wanted.clone());
        let is_same = self.asked.as_ref().is_none_or(|asked| *asked == wanted);
        let is_first = self.asked.is_none();
        self.asked = Some(wanted);
        self.failed_at_start = !faults.is_empty() && is_same && (is_first || self.failed_at_start);
        if self.failed_at_start { Vec::new() } else { faults }
    }

    async fn close(&mut self) {
        self.wanted = None;
        self.tasks.shutdown().await;
    }
}

fn bind(service: Service, address: SocketAddr) -> Result<TcpListener, String> {
    let listener = listen::bind_inet(address, false, BACKLOG).and_then(|(socket, _)| {
        TcpListener::from_std(socket.into()).map_err(|error| ("epoll_ctl", error))
    });
    listener.map_err(|(step, error)| fault(service, &address, step, &error))
}

/// Returns the text for the log, the console and the journal.
fn fault(service: Service, address: &impl Display, step: &str, error: &io::Error) -> String {
    format!("cannot serve {} on {address}: {step}(): {}", service.name(), in_words(error))
}

#[cfg(test)]
mod tests {
    use std::{future::pending, sync::mpsc};

    use tokio::runtime::Builder;

    use super::*;

    #[tokio::test]
    async fn without_a_result_in_time_it_is_not_known() {
        let door = Door::new(Service::Metrics);
        door.change();
        assert!(door.faults_within(TRIAL_TIME).await.is_empty(), "this process serves nothing");
        door.open((Wanted::default(), door.changes()), |_| pending()).await;
        assert!(door.faults_within(TRIAL_TIME).await.is_empty());
        door.change();
        let faults = door.faults_within(Duration::from_millis(1)).await;
        assert_eq!(faults, ["not known yet if metrics can be served: no result in 1ms"]);
        door.open((Wanted::default(), door.changes()), |_| pending()).await;
        assert!(door.faults_within(TRIAL_TIME).await.is_empty());
    }

    #[test]
    fn settings_that_are_served_are_not_looked_up_again() {
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
        runtime.unwrap().block_on(async {
            let door = Door::new(Service::Metrics);
            door.open((Wanted::default(), 0), |_| pending()).await;
            // A look-up would wait for the only thread.
            let (end, is_ended) = mpsc::channel::<()>();
            let busy = tokio::task::spawn_blocking(move || is_ended.recv());
            let again = door.open((Wanted::default(), 1), |_| pending());
            let opened = timeout(Duration::from_secs(5), again).await;
            drop(end);
            busy.await.unwrap().unwrap_err();
            opened.expect("the settings are compared first");
        });
    }
}
