//! The holder: a second process with the same descriptors as Weir (`net::sys::twin`). When Weir is
//! killed, it has the lobbies of direct pools still, and hands them to the next Weir as in an online
//! restart (`cold/takeover`). It costs a client nothing but an entry in a list (`lobby::HeldList`).
//!
//! ```text
//!  Weir ── clone ──► holder: waits
//!  killed            closes all but the lobbies, reads the list
//!  next Weir ──────► hands over, waits
//!  publishes the name of its own holder, then "D"
//!                    ends
//! ```
//!
//! The name of a socket in the data folder tells which holder has the lobbies. A Weir that dies
//! before it has published its own leaves them to the holder before, which waits for the next one.
//! A Weir that ends by itself ends its holder first.
//!
//! * `package`: the state for the next process, made from the list

mod package;

use std::{
    fs,
    io::{self, Read as _},
    mem,
    os::{
        fd::{AsFd as _, AsRawFd as _, BorrowedFd, IntoRawFd as _, OwnedFd},
        unix::{fs::MetadataExt as _, net::UnixStream},
    },
    panic,
    path::{Path, PathBuf},
    process::id,
    time::{Duration, Instant},
};

use net::sys::{process, process::Process, socket, twin};

use crate::{
    frame::{DONE, PATIENCE, REFUSAL, read_frame, request, write_fds, write_frame},
    lobby::{HeldList, Unnamed, disconnect, listen_for_streams},
    log, warning,
};
use package::Package;

const BACKLOG: u32 = 8;
/// The time for which clients wait for the next Weir.
const NEXT_PATIENCE: Duration = Duration::from_secs(60);
/// The interval at which the holder looks whether another one has its name.
const LOOK_MS: i32 = 500;
/// A Weir that has lived for a shorter time may have died of the lobbies that it took over.
const LIFE_MIN: Duration = Duration::from_secs(10);
/// The number of such processes in a row after which the lobbies are given to no other one.
const DEATHS_MAX: u32 = 20;

/// The holder as Weir sees it. If this is dropped, the holder ends, and nothing is held.
#[derive(Debug)]
pub struct Holder {
    process: Process,
    path: PathBuf,
    /// The number of the file of the holder's socket.
    inode: u64,
}

/// The parts of the holder that the thread of the lobbies has.
#[derive(Debug)]
pub struct Held {
    pub(crate) list: HeldList,
    pub(crate) name: Unnamed,
    pub(crate) holder: Process,
}

impl Holder {
    /// Starts a holder, which the next process will find at `path`. It ends when the other end of
    /// the pipe `server` is closed. Call it before the first thread is started.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn start(path: &Path, server: BorrowedFd<'_>) -> io::Result<(Self, Held)> {
        // The holder keeps this limit, and so many descriptors may be on their way to the next Weir.
        let _ = process::raise_file_limit();
        let (listener, name) = listen_for_streams(path)?;
        socket::listen(listener.as_raw_fd(), BACKLOG)?;
        let (list, inode) = (HeldList::new()?, name.inode()?);
        let weir = Process::open(id())?;
        match twin::start()? {
            Some(process) => {
                // The descriptors are the holder's. It has the same numbers.
                let _ = (listener.into_raw_fd(), mem::ManuallyDrop::new(weir));
                let holder = Process::of(process::duplicate(process.fd())?);
                Ok((Self { process, path: path.to_owned(), inode }, Held { list, name, holder }))
            }
            None => {
                // Nothing of Weir's may be cleaned up here.
                let _name = mem::ManuallyDrop::new(name);
                end_well();
                let (path, began) = (path.to_owned(), Instant::now());
                // It closes descriptors by their numbers, so their owners must not do it again.
                let own = Own { listener, list, inode, path, weir, began };
                mem::ManuallyDrop::new(own).run(server);
                twin::end()
            }
        }
    }
}

/// Makes the holder end with status 0, whatever happens. The postmaster may be its parent, and would
/// take another status for a crash.
fn end_well() {
    twin::end_well();
    // Their numbers may get another meaning in Weir.
    log::forget_files();
    panic::set_hook(Box::new(|about| {
        warning!("the holder of the clients of direct pools has failed: {about}");
        twin::end()
    }));
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.process.kill();
        // The thread of the lobbies may have waited for its end already.
        let _ = self.process.wait();
        if is_at(&self.path, self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn is_at(path: &Path, inode: u64) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.ino() == inode)
}

/// The holder's own state.
struct Own {
    listener: OwnedFd,
    list: HeldList,
    /// The number of the file of its socket.
    inode: u64,
    path: PathBuf,
    weir: Process,
    began: Instant,
}

/// The result of a hand-over.
enum Given {
    /// The next process needs this holder no longer.
    Done,
    /// The next process has ended before its own holder had the lobbies. An error, if there was one.
    Unfinished(Option<io::Error>),
    /// The next process cannot read them.
    Never,
}

impl Own {
    fn run(&self, server: BorrowedFd<'_>) {
        twin::stand_alone(c"weir-holder");
        loop {
            let Ok([has_ended, weir_has_ended]) = twin::wait([server, self.weir.as_fd()], -1)
            else {
                return;
            };
            if has_ended {
                return self.leave();
            }
            if weir_has_ended {
                break;
            }
        }
        if self.has_name()
            && let Err(error) = self.serve(server)
        {
            warning!("the clients of direct pools are lost: {error}");
        }
    }

    /// Would the next process find this holder?
    fn has_name(&self) -> bool {
        is_at(&self.path, self.inode)
    }

    /// PostgreSQL has ended, and Weir with it.
    fn leave(&self) {
        if self.has_name() {
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Weir has been killed.
    fn serve(&self, server: BorrowedFd<'_>) -> io::Result<()> {
        let mut package = Package::of(self.list.read()?);
        let mut kept = vec![0, 1, 2, self.listener.as_raw_fd(), server.as_raw_fd()];
        kept.extend(package.fds());
        // Proxied clients and servers see the end of Weir now. Backends may have descriptors of
        // clients that have left their lobby.
        twin::end_connections_but(&kept)?;
        twin::close_all_but(kept)?;
        if package.is_empty() {
            return Ok(());
        }
        if has_killed_too_many(&mut package, self.began.elapsed() < LIFE_MIN) {
            return Ok(());
        }
        let clients = package.clients();
        log!("Weir was killed; {clients} clients of direct pools wait for the next one");
        self.hand_over(&mut package, server)
    }

    fn hand_over(&self, package: &mut Package, server: BorrowedFd<'_>) -> io::Result<()> {
        let end = Instant::now() + NEXT_PATIENCE;
        while self.has_name() && Instant::now() < end {
            let [has_ended, is_asked] = twin::wait([server, self.listener.as_fd()], LOOK_MS)?;
            if has_ended {
                self.leave();
                return Ok(());
            }
            if !is_asked {
                continue;
            }
            match self.give(package, server) {
                Ok(Given::Done) => return Ok(()),
                Ok(Given::Never) => break,
                Ok(Given::Unfinished(why)) => {
                    if has_killed_too_many(package, true) {
                        return Ok(());
                    }
                    let clients = package.clients();
                    let why = why.map_or_else(String::new, |error| format!(" ({error})"));
                    log!(
                        "the next Weir has ended, too{why}; {clients} clients of direct pools wait"
                    );
                }
                Err(error) => warning!("the clients of direct pools wait longer: {error}"),
            }
        }
        warning!("no process takes the {} clients of direct pools", package.clients());
        disconnect_all(package);
        Ok(())
    }

    /// Hands everything to the process that has connected.
    fn give(&self, package: &mut Package, server: BorrowedFd<'_>) -> io::Result<Given> {
        let (fd, _) = socket::accept(self.listener.as_raw_fd())?;
        let (_, user) = socket::peer_credentials(fd.as_raw_fd())?;
        if user != process::effective_uid() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        process::set_blocking(fd.as_raw_fd())?;
        let mut stream = UnixStream::from(fd);
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut said = vec![0; 2 * request().len()];
        let len = stream.read(&mut said)?;
        if said[..len] != *request().as_bytes() {
            let said = String::from_utf8_lossy(&said[..len]).into_owned();
            let why = format!("the versions differ: \"{said}\" is not \"{}\"", request());
            write_frame(&stream, REFUSAL, why.as_bytes())?;
            return Ok(Given::Never);
        }
        // From now on it may die of what it gets.
        Ok(self
            .give_to(&stream, package, server)
            .unwrap_or_else(|error| Given::Unfinished(Some(error))))
    }

    fn give_to(
        &self,
        stream: &UnixStream,
        package: &mut Package,
        server: BorrowedFd<'_>,
    ) -> io::Result<Given> {
        write_frame(stream, b'W', b"")?;
        write_frame(stream, b'S', &package.body()?)?;
        package.parts().iter().try_for_each(|part| write_fds(stream, part))?;
        let (letter, answer) = read_frame(stream)?;
        let taken = answer.get(4..).filter(|_| letter == b'A').ok_or(io::ErrorKind::InvalidData)?;
        write_frame(stream, b'G', b"")?;
        let taken: Vec<_> = taken.iter().map(|is_taken| *is_taken != 0).collect();
        disconnect_all(&package.keep(&taken));
        if package.is_empty() {
            return Ok(Given::Done);
        }
        let [has_ended, _] = twin::wait([server, stream.as_fd()], -1)?;
        if has_ended {
            self.leave();
            return Ok(Given::Done);
        }
        let is_done = read_frame(stream).is_ok_and(|(letter, _)| letter == DONE);
        // It may have died behind the publication.
        Ok(if is_done || !self.has_name() { Given::Done } else { Given::Unfinished(None) })
    }
}

/// Notes that a process that had the lobbies has ended. Returns true if it is one too many in a row.
/// The clients are disconnected then.
fn has_killed_too_many(package: &mut Package, was_soon: bool) -> bool {
    let deaths = package.note_death(was_soon);
    if deaths < DEATHS_MAX {
        return false;
    }
    warning!(
        "{deaths} poolers in a row were killed soon after their start, so the next one does not get \
         the {} clients of direct pools",
        package.clients()
    );
    disconnect_all(package);
    true
}

/// Tells the clients of these lobbies that no process takes them.
fn disconnect_all(package: &Package) {
    package.lobbies().for_each(|(lobby, memory)| disconnect(lobby, memory));
}
