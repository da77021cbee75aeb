//! Makes a `weir.toml` from the settings: the global keys, and the order of all parts.

use std::fmt;
use std::path::Path;

use crate::cluster::Mode;
use crate::conf::{Broken, Settings};
use crate::lists::items;
use crate::passwords::{Decrypt, Opener, User};
use crate::report::{Report, Verdict};
use crate::table::Part;
use crate::toml::Toml;
use crate::values::seconds;

const SECOND: u64 = 1_000;

/// A file beside `pgpool.conf`.
#[derive(Clone, Copy, Debug)]
pub struct TextFile<'a> {
    pub name: &'a str,
    pub text: &'a str,
}

/// The configuration of a Pgpool-II, and the names of the files to write.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// The name of `pgpool.conf`.
    pub name: &'a str,
    pub settings: &'a Settings,
    pub pool_hba: Option<TextFile<'a>>,
    pub pool_passwd: Option<TextFile<'a>>,
    pub pcp_conf: Option<TextFile<'a>>,
    /// The text of `.pgpoolkey`.
    pub key: Option<&'a str>,
    pub decrypt: Decrypt<'a>,
    /// The file for the users of `pool_passwd`.
    pub auth_file: &'a str,
    /// The file for the password with which Weir watches the nodes.
    pub password_file: &'a str,
}

/// Without the texts, which have passwords.
impl fmt::Debug for Sources<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The result of a conversion.
pub struct Converted {
    /// The text of the `weir.toml`.
    pub toml: String,
    pub report: Report,
    /// The text of the file for the users of `pool_passwd`.
    pub auth_file: Option<String>,
    /// The text of the file for the password with which Weir watches the nodes.
    pub password_file: Option<String>,
}

/// Without the passwords.
impl fmt::Debug for Converted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { toml, report, .. } = self;
        let mut shown = f.debug_struct("Converted");
        shown.field("toml", toml).field("report", report).finish_non_exhaustive()
    }
}

/// Converts a configuration.
///
/// # Errors
/// When a value or a line is not valid for Pgpool-II either, or a password cannot be decrypted.
pub fn convert(sources: &Sources<'_>) -> Result<Converted, Broken> {
    let opener = Opener { key: sources.key, decrypt: sources.decrypt };
    let users = match sources.pool_passwd {
        Some(file) => crate::passwords::users(file.text, file.name, opener)?,
        None => Vec::new(),
    };
    let mut work = Work {
        from: *sources,
        settings: sources.settings,
        opener,
        mode: Mode::of(sources.settings)?,
        users,
        toml: Toml::default(),
        verdicts: Vec::new(),
        notes: Vec::new(),
        password: None,
        is_asking: false,
    };
    work.listening()?;
    work.clients()?;
    work.tls()?;
    work.log()?;
    work.logins()?;
    work.pcp()?;
    work.servers()?;
    let (auth_file, refused) = crate::passwords::auth_file(&work.users);
    for user in refused {
        work.notes.push(format!("{}: the name of the user is too long for Weir", user.place));
    }
    let Work { toml, verdicts, notes, password, users, .. } = work;
    Ok(Converted {
        toml: toml.finish(),
        report: Report::new(sources.settings, sources.name, &verdicts, notes),
        auth_file: (!users.is_empty()).then_some(auth_file),
        password_file: password.map(|password| password + "\n"),
    })
}

/// A conversion that is going on.
pub(crate) struct Work<'a> {
    pub(crate) from: Sources<'a>,
    pub(crate) settings: &'a Settings,
    pub(crate) opener: Opener<'a>,
    pub(crate) mode: Mode,
    pub(crate) users: Vec<User>,
    pub(crate) toml: Toml,
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) notes: Vec<String>,
    /// The password with which Weir watches the nodes.
    pub(crate) password: Option<String>,
    /// Does PostgreSQL check the passwords of clients?
    pub(crate) is_asking: bool,
}

impl Work<'_> {
    /// Says of a parameter what its row in the table does not say.
    pub(crate) fn say(&mut self, name: &str, part: Part, why: impl Into<String>) {
        self.verdicts.push(Verdict { name: name.to_owned(), part, why: why.into() });
    }

    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Returns a file name as Pgpool-II understands it: relative to the folder of `pgpool.conf`.
    pub(crate) fn path(&self, name: &str) -> String {
        let folder = Path::new(self.from.name).parent().unwrap_or(Path::new(""));
        folder.join(name).display().to_string()
    }

    pub(crate) fn port(&self, name: &str, default: u16) -> Result<u16, Broken> {
        let read = |text: &str| text.parse().ok().filter(|port| *port > 0);
        Ok(self.settings.parsed(name, "a port", read)?.unwrap_or(default))
    }

    fn listening(&mut self) -> Result<(), Broken> {
        let listen = self.settings.get("listen_addresses").map_or("localhost", |it| &it.value);
        let listen = items(listen, ',');
        if !listen.is_empty() {
            self.toml.list("listen_addr", &listen);
        }
        self.toml.bare("listen_port", self.port("port", 9999)?);
        let folders = self.settings.get("unix_socket_directories");
        let folders = folders.or_else(|| self.settings.get("socket_dir"));
        let folders = folders.map_or("/tmp", |it| &it.value);
        let folders: Vec<_> = folders.split(',').map(str::trim).collect();
        self.toml.text("unix_socket_dir", folders[0]);
        if folders.len() == 1 {
            self.say("unix_socket_directories", Part::Kept, "");
        }
        if let Some(group) = self.settings.text("unix_socket_group") {
            self.toml.text("unix_socket_group", group);
        }
        let octal = |text: &str| u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
        let mode = self.settings.parsed("unix_socket_permissions", "octal permissions", octal)?;
        if let Some(mode) = mode {
            self.toml.bare("unix_socket_mode", format_args!("{mode:#o}"));
        }
        Ok(())
    }

    fn clients(&mut self) -> Result<(), Broken> {
        let number = |name, default| Ok(self.settings.number(name)?.unwrap_or(default));
        let children = number("num_init_children", 32)?.max(1);
        let reserved = number("reserved_connections", 0)?;
        let waiting = children.saturating_mul(number("listen_backlog_multiplier", 2)?);
        let sets = number("max_pool", 4)?.max(1);
        let nodes = self.nodes()?.len().max(1) as u64;
        let clients = match reserved {
            0 => children.saturating_add(waiting),
            _ => children.saturating_sub(reserved).max(1),
        };
        let servers = children.saturating_mul(sets).saturating_mul(nodes);
        let limit = u64::from(i32::MAX.unsigned_abs());
        self.toml.bare("max_client_conn", clients.min(limit));
        self.toml.bare("default_pool_size", children.min(limit));
        self.toml.bare("max_server_connections", servers.min(limit));
        let times: [(&str, &[&str], u64); 4] = [
            ("client_idle_limit", &["client_idle_timeout", "idle_transaction_timeout"], SECOND),
            ("connection_life_time", &["server_idle_timeout"], SECOND),
            ("authentication_timeout", &["client_login_timeout"], SECOND),
            ("connect_timeout", &["server_connect_timeout"], 1),
        ];
        for (name, keys, unit) in times {
            if let Some(time) = self.settings.time(name, unit)? {
                keys.iter().for_each(|key| self.toml.bare(key, seconds(time)));
            }
        }
        let settings = self.settings;
        for item in settings.effective() {
            let number = item.name.strip_prefix("connect_timeout");
            if number.is_some_and(|number| !number.is_empty()) {
                self.say(&item.name, Part::Without, "Weir has one such time for all nodes");
            }
        }
        Ok(())
    }

    fn tls(&mut self) -> Result<(), Broken> {
        const KEYS: [(&str, &str); 3] = [
            ("ssl_key", "client_tls_key_file"),
            ("ssl_cert", "client_tls_cert_file"),
            ("ssl_ca_cert", "client_tls_ca_file"),
        ];
        if !self.settings.switch("ssl")?.unwrap_or(false) {
            let why =
                "clients get no TLS; towards PostgreSQL, Weir uses TLS if the server offers it";
            self.say("ssl", Part::Changed, why);
            for (name, _) in KEYS {
                self.say(name, Part::Without, "`ssl` is off");
            }
            return Ok(());
        }
        let has = |name| self.settings.text(name).is_some();
        if !has("ssl_key") || !has("ssl_cert") {
            let why = "clients get no TLS: `ssl_key` or `ssl_cert` is missing";
            self.say("ssl", Part::Changed, why);
            return Ok(());
        }
        self.toml.text("client_tls_sslmode", "prefer");
        for (name, key) in KEYS {
            if let Some(file) = self.settings.text(name) {
                self.toml.text(key, &self.path(file));
            }
        }
        if let Some(file) = self.settings.text("ssl_ca_cert") {
            self.toml.text("server_tls_ca_file", &self.path(file));
        }
        Ok(())
    }

    fn log(&mut self) -> Result<(), Broken> {
        for name in ["log_connections", "log_disconnections"] {
            if let Some(on) = self.settings.switch(name)? {
                self.toml.bare(name, on);
            }
        }
        match self.settings.text("log_destination") {
            Some(places) if places.contains("syslog") => self.toml.bare("syslog", true),
            Some(_) => self.say("log_destination", Part::Kept, ""),
            None => {}
        }
        if let Some(facility) = self.settings.text("syslog_facility") {
            self.toml.text("syslog_facility", &facility.to_ascii_lowercase());
        }
        if let Some(ident) = self.settings.text("syslog_ident") {
            self.toml.text("syslog_ident", ident);
        }
        Ok(())
    }
}
