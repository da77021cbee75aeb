//! The old process comes to rest, writes down what it has, and lets go of it when the new process
//! has said that it has everything. Whatever could not come to rest in time stays and is served
//! here until it leaves; then this process ends.

use std::{
    collections::HashMap,
    io,
    os::{
        fd::{AsRawFd as _, RawFd},
        unix::net::UnixStream,
    },
    sync::{Arc, Mutex, atomic::Ordering},
};

use engine::{
    ids::PoolId,
    parcel::{Estate, PoolRecord},
    pool::Pool,
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};

use super::{PATIENCE, REQUEST, read_frame, request, write_fds, write_frame};
use crate::{
    Peer,
    controller::{Controller, LOOK},
    exchange::lock,
    log,
    pooler::{ConsoleConnection, Shutdown},
    shared::{ShellMail, WorkerExport},
    sys::process,
    warning,
};

/// Is that no operator but a new process?
pub(crate) fn is_request(connection: &ConsoleConnection) -> bool {
    let is_ours = matches!(connection.peer, Peer::Unix { uid: Some(uid), .. } if uid == process::effective_uid());
    is_ours && connection.login.unread.starts_with(REQUEST.as_bytes())
}

/// Why the new process gets nothing.
enum Failure {
    /// It is told so.
    Refused(String),
    /// It has gone, or has not understood.
    Lost(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

/// Hands everything over. If that fails, all goes on as before.
pub(crate) async fn give(controller: Controller, connection: ConsoleConnection) {
    log!("another process asks to take over");
    let stream = UnixStream::from(connection.fd);
    let failure = match open(&stream, &connection.login.unread) {
        Ok(()) => match hold(&controller) {
            Ok(()) => match hand_over(&controller, &stream).await {
                Ok(successor) => {
                    log!("process {successor} has taken over");
                    return;
                }
                Err(error) => {
                    go_on(&controller);
                    error
                }
            },
            Err(error) => error,
        },
        Err(error) => error,
    };
    match failure {
        Failure::Refused(why) => {
            warning!("take-over refused: {why}");
            let _ = write_frame(&stream, b'R', why.as_bytes());
        }
        Failure::Lost(error) => warning!("take-over failed, going on as before: {error}"),
    }
}

fn open(stream: &UnixStream, said: &[u8]) -> Result<(), Failure> {
    process::set_blocking(stream.as_raw_fd())?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    if said == request().as_bytes() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(said);
    Err(Failure::Refused(format!("versions do not fit: \"{said}\" is not \"{}\"", request())))
}

/// Nothing is linked from now on.
fn hold(controller: &Controller) -> Result<(), Failure> {
    let shared = &controller.0.shared;
    if shared.draining.load(Ordering::Acquire) {
        return Err(Failure::Refused("pooler is shutting down".to_owned()));
    }
    shared.hub.switch(|switches| {
        if switches.is_halted() || switches.any_database_paused() {
            return Err(Failure::Refused("already suspended/paused".to_owned()));
        }
        switches.held = true;
        Ok(())
    })
}

async fn hand_over(controller: &Controller, stream: &UnixStream) -> Result<u32, Failure> {
    write_frame(stream, b'W', b"")?;
    come_to_rest(controller).await;
    let epochs = epochs(controller);
    let exports = export(controller).await;
    let Baggage { head, state, fds } = pack(controller, exports)?;
    let their = stream.try_clone()?;
    let sent = tokio::task::spawn_blocking(move || {
        write_frame(&their, b'S', &[&head, &state[..]].concat())?;
        write_fds(&their, &fds)?;
        match read_frame(&their)? {
            (b'A', pid) => {
                let pid = <[u8; 4]>::try_from(&pid[..]).map_err(io::Error::other)?;
                Ok(u32::from_be_bytes(pid))
            }
            _ => Err(io::Error::from(io::ErrorKind::InvalidData)),
        }
    });
    let successor = sent.await.map_err(io::Error::other)??;
    if controller.0.shared.draining.load(Ordering::Acquire) {
        // An operator was faster: servers may have been closed that the other believes to have.
        return Err(Failure::Refused("pooler is shutting down".to_owned()));
    }
    let is_another =
        |(pool, epoch): (&PoolId, &u64)| epochs.get(pool).is_some_and(|was| was != epoch);
    if self::epochs(controller).iter().any(is_another) {
        // The other has been told that they are good, and knows nothing of the order.
        return Err(Failure::Refused("servers are to be replaced meanwhile".to_owned()));
    }
    let control = &controller.0;
    let (done, mut all_done) = mpsc::unbounded_channel();
    control.shared.tell_all(|| ShellMail::Cede(done.clone()));
    drop(done);
    while all_done.recv().await.is_some() {}
    control.shared.listeners.iter().for_each(|listener| listener.abandon());
    // From here on there is no way back: if the other has died meanwhile, all of it has. The service
    // manager learns who it is before it says that it is ready.
    control.notifier.retire(successor);
    let _ = write_frame(stream, b'G', b"");
    let _ = control.orders.send(Shutdown::TakenOver);
    control.shared.hub.switch(|switches| {
        switches.held = false;
        Ok::<(), Failure>(())
    })?;
    control.shared.tell_all(|| ShellMail::Thaw);
    control.shared.tell_all(|| ShellMail::Review);
    Ok(successor)
}

/// Waits for what is under way, as long as SUSPEND would. Transactions that were stopped at once
/// could have locks that others wait for in vain; so they may end first.
async fn come_to_rest(controller: &Controller) {
    let (begun, patience) = (Instant::now(), controller.config().global.suspend_timeout);
    come_to_rest_by(controller, || ShellMail::Finish, begun + patience / 2).await;
    come_to_rest_by(controller, || ShellMail::Freeze, begun + patience).await;
}

async fn come_to_rest_by(controller: &Controller, how: fn() -> ShellMail, end: Instant) {
    let shared = &controller.0.shared;
    shared.gauges.iter().for_each(|gauge| gauge.quiet.store(false, Ordering::Release));
    shared.tell_all(how);
    let is_quiet = || shared.gauges.iter().all(|gauge| gauge.quiet.load(Ordering::Acquire));
    while !is_quiet() && Instant::now() < end {
        sleep(LOOK).await;
    }
}

/// Those of the pools, each of which another one follows when its servers are to be replaced (RECONNECT,
/// RELOAD). A pool that is made meanwhile has nothing that was handed over.
fn epochs(controller: &Controller) -> HashMap<PoolId, u64> {
    let pools = controller.0.shared.hub.pools();
    let epoch = |pool: &Arc<Mutex<Pool>>| {
        let pool = lock(pool);
        (pool.id, pool.epoch())
    };
    pools.iter().map(epoch).collect()
}

async fn export(controller: &Controller) -> Vec<WorkerExport> {
    let (reply, mut answers) = mpsc::unbounded_channel();
    controller.0.shared.tell_all(|| ShellMail::Export(reply.clone()));
    drop(reply);
    let mut exports = Vec::new();
    while let Some(export) = answers.recv().await {
        exports.push(export);
    }
    exports.sort_by_key(|export: &WorkerExport| export.worker);
    exports
}

/// What goes over.
struct Baggage {
    /// The counts of descriptors: those listened on, and all others.
    head: [u8; 8],
    state: Vec<u8>,
    fds: Vec<RawFd>,
}

fn pack(controller: &Controller, exports: Vec<WorkerExport>) -> Result<Baggage, Failure> {
    let shared = &controller.0.shared;
    let slots = shared.hub.slots();
    let pools = slots.iter().map(|slot| slot.as_ref().map(|pool| PoolRecord::of(&lock(pool))));
    let names = exports.first().map_or_else(Vec::new, |export| export.names.clone());
    let mut estate = Estate {
        now: shared.clock.now(),
        seed: shared.seed,
        names,
        statements: shared.hub.numbering(),
        pools: pools.collect(),
        disabled: shared.hub.switches().disabled().cloned().collect(),
        parcels: Vec::new(),
    };
    let open = shared.listeners.iter().filter(|listener| listener.is_open());
    let mut fds: Vec<_> = open.map(|listener| listener.fd()).collect();
    let listeners = fds.len() as u32;
    for export in exports {
        estate.parcels.push(export.parcel);
        fds.extend(export.fds);
    }
    let mut head = [0; 8];
    head[..4].copy_from_slice(&listeners.to_be_bytes());
    head[4..].copy_from_slice(&(fds.len() as u32 - listeners).to_be_bytes());
    let state = estate.to_bytes().map_err(io::Error::other)?;
    Ok(Baggage { head, state, fds })
}

/// Nothing was handed over.
fn go_on(controller: &Controller) {
    let shared = &controller.0.shared;
    let _ = shared.hub.switch(|switches| {
        switches.held = false;
        Ok::<(), ()>(())
    });
    shared.tell_all(|| ShellMail::Thaw);
    shared.tell_all(|| ShellMail::Review);
}
