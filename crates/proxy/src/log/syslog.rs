//! The system's log: datagrams to `/dev/log` in the format of RFC 3164, as syslog(3) writes them. A
//! line that the daemon does not accept at once is lost, because workers write here too and must
//! not wait.

use std::{
    fmt::Write as _,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process,
    sync::{Mutex, PoisonError},
};

use super::{level::Level, line::local_time};

const SOCKET: &str = "/dev/log";

/// The names and codes of syslog(3).
const FACILITIES: [(&str, u8); 20] = [
    ("auth", 4),
    ("authpriv", 10),
    ("cron", 9),
    ("daemon", 3),
    ("ftp", 11),
    ("kern", 0),
    ("lpr", 6),
    ("mail", 2),
    ("news", 7),
    ("syslog", 5),
    ("user", 1),
    ("uucp", 8),
    ("local0", 16),
    ("local1", 17),
    ("local2", 18),
    ("local3", 19),
    ("local4", 20),
    ("local5", 21),
    ("local6", 22),
    ("local7", 23),
];
const DAEMON: u8 = 3;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The connection to the system's log. It is opened at the first line, and again after a restart of
/// the daemon.
pub(super) struct Syslog {
    path: PathBuf,
    ident: String,
    facility: u8,
    socket: Mutex<Option<UnixDatagram>>,
}

impl Syslog {
    pub(super) fn new(ident: &str, facility: &str) -> Self {
        Self::at(Path::new(SOCKET), ident, facility)
    }

    fn at(path: &Path, ident: &str, facility: &str) -> Self {
        let known = FACILITIES.iter().find(|(name, _)| *name == facility);
        let facility = known.map_or(DAEMON, |(_, code)| *code);
        Self { path: path.to_owned(), ident: ident.to_owned(), facility, socket: Mutex::new(None) }
    }

    /// Sends one line; `second` is when it was logged, in seconds since 1970.
    pub(super) fn write(&self, level: Level, second: i64, message: &str) {
        let packet = self.packet(level, second, message);
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        // The daemon may have been restarted since the last line.
        for _ in 0..2 {
            if socket.is_none() {
                *socket = self.open();
            }
            let Some(open) = socket.as_ref() else { return };
            match open.send(packet.as_bytes()) {
                Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => *socket = None,
                Ok(_) | Err(_) => return,
            }
        }
    }

    fn open(&self) -> Option<UnixDatagram> {
        let socket = UnixDatagram::unbound().ok()?;
        socket.set_nonblocking(true).ok()?;
        socket.connect(&self.path).ok()?;
        Some(socket)
    }

    fn packet(&self, level: Level, second: i64, message: &str) -> String {
        let (tm, _) = local_time(second);
        let month = usize::try_from(tm.tm_mon).ok().and_then(|month| MONTHS.get(month));
        let mut packet = String::with_capacity(message.len() + 64);
        let _ = write!(
            packet,
            "<{}>{} {:2} {:02}:{:02}:{:02} {}[{}]: {message}",
            self.facility * 8 + level.priority(),
            month.unwrap_or(&"Jan"),
            tm.tm_mday,
            tm.tm_hour,
            tm.tm_min,
            tm.tm_sec,
            self.ident,
            process::id(),
        );
        packet
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(daemon: &UnixDatagram) -> String {
        let mut buffer = [0; 512];
        let len = daemon.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..len].to_vec()).unwrap()
    }

    #[test]
    fn lines_are_datagrams_and_a_new_daemon_gets_them_too() {
        let path = std::env::temp_dir().join(format!("weir-syslog-{}", process::id()));
        let syslog = Syslog::at(&path, "pooler", "local3");
        syslog.write(Level::Log, 0, "nobody listens yet");
        let pid = process::id();
        for _ in 0..2 {
            let daemon = UnixDatagram::bind(&path).unwrap();
            for (level, priority) in
                [(Level::Fatal, 154), (Level::Warning, 156), (Level::Log, 158), (Level::Noise, 159)]
            {
                // Mid-January in every time zone.
                syslog.write(level, 14 * 86_400, "the message");
                let line = heard(&daemon);
                let rest = line.strip_prefix(&format!("<{priority}>Jan 1")).expect("the priority");
                // "5 00:00:00 "
                assert_eq!(rest.as_bytes()[1], b' ', "{line}");
                assert_eq!(&rest[11..], format!("pooler[{pid}]: the message"), "{line}");
            }
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn an_unknown_facility_is_daemon() {
        let packet = |facility| Syslog::new("x", facility).packet(Level::Error, 0, "m");
        assert!(packet("nonsense").starts_with("<27>"));
        assert!(packet("daemon").starts_with("<27>"));
        assert!(packet("kern").starts_with("<3>"));
        assert!(packet("local7").starts_with("<187>"));
    }
}
