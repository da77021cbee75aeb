//! Watches over the name of the socket to which backends connect. A program that cleans up a folder may
//! remove the name, and then no backend finds its lobby any more. The thread of the lobbies looks
//! once a second.

use std::{
    fs, io,
    os::{fd::AsRawFd as _, unix::fs::MetadataExt as _},
    path::PathBuf,
};

use engine::ids::Micros;
use net::sys::epoll;

use super::{
    super::control::{self, Unnamed},
    LISTENER, Service,
};
use crate::{log, warning};

/// The pause between two looks.
const PAUSE: Micros = 1_000_000;

#[derive(Debug)]
pub(super) struct Name {
    path: PathBuf,
    /// The number of the socket's file.
    inode: u64,
    looked_at: Micros,
    /// The loss was logged.
    is_lost: bool,
}

impl Name {
    pub(super) fn of(unnamed: &Unnamed) -> io::Result<Self> {
        let (path, inode) = (unnamed.path().to_owned(), unnamed.inode()?);
        Ok(Self { path, inode, looked_at: 0, is_lost: false })
    }

    fn is_own(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode)
    }
}

impl Service {
    /// Makes the name anew if it is gone. If another process has it, says so once.
    pub(super) fn look_at_name(&mut self, now: Micros) {
        let is_due = now.saturating_sub(self.name.looked_at) >= PAUSE;
        if !is_due || self.shared.lobby.is_succeeded() {
            return;
        }
        self.name.looked_at = now;
        if self.name.is_own() {
            self.name.is_lost = false;
            return;
        }
        let path = self.name.path.clone();
        let lost = if control::is_listened_at(&path) {
            "another process listens there; each Weir needs its own".to_owned()
        } else {
            match self.listen_anew() {
                Ok(()) => {
                    return warning!(
                        "direct_socket: {} was gone, and is made anew",
                        path.display()
                    );
                }
                Err(error) => error.to_string(),
            }
        };
        if !std::mem::replace(&mut self.name.is_lost, true) {
            warning!(
                "direct_socket: {} is not this process's any more ({lost}): PostgreSQL's backends \
                 cannot come, so direct pools get no new servers",
                path.display()
            );
        }
    }

    fn listen_anew(&mut self) -> io::Result<()> {
        let (listener, unnamed) = control::listen(&self.name.path)?;
        let name = Name::of(&unnamed)?;
        self.own.add(listener.as_raw_fd(), epoll::READABLE, LISTENER)?;
        unnamed.publish()?;
        let _ = self.own.delete(self.listener.as_raw_fd());
        self.listener = listener;
        self.is_listening = true;
        self.name = Name { looked_at: self.name.looked_at, ..name };
        log!("direct_socket: listening at {}", self.name.path.display());
        Ok(())
    }
}
