//! Reads configuration files; the only file of this crate that uses the file system.

use std::borrow::Cow;
use std::cell::Cell;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use crate::auth_file::AuthFile;
use crate::auth_query::needs_no_search_path;
use crate::build::Position;
use crate::choice::AuthType;
use crate::config::Config;
use crate::config_error::ConfigError;
use crate::error::{Mistake, in_words};
use crate::hba::{Hba, IdentMaps};
use crate::ini::Comments;
use crate::ldap::LdapOptions;
use crate::pcp_file::PcpUsers;
use crate::reason::Reason;
use crate::table::{Database, Global};
use crate::variables::Lookup;

/// The longest file that is read: an `auth_file` with about a million users.
const FILE_LEN_MAX: u64 = 256 << 20;
/// open(2): the file may have become a pipe since it was checked. Linux uses this number on all
/// processors that Rust supports, except MIPS and SPARC.
const O_NONBLOCK: i32 = 0o4000;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl Config {
    /// Reads the file at `path`, as `weir.toml` if its name ends so, else as `pgbouncer.ini`, and
    /// the `auth_file` it names. Relative names are relative to the working folder.
    ///
    /// As in PgBouncer, an `auth_file` that cannot be read does not prevent the start, but its
    /// users cannot log in.
    ///
    /// # Errors
    /// Every mistake, or why the file could not be read.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::load_in(path, Some(variable))
    }

    /// Does the same, but leaves variables and the names of passwords' files as they are written.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn load_as_written(path: &Path) -> Result<Self, ConfigError> {
        Self::load_in(path, None)
    }

    fn load_in(path: &Path, variables: Option<Lookup>) -> Result<Self, ConfigError> {
        let file = path.display().to_string();
        let text = read_text(path).map_err(|error| {
            let reason = Reason::NotLoaded { file: file.clone(), why: in_words(&error) };
            let mistakes = vec![Mistake::in_file(&Arc::from(""), 0, reason)];
            ConfigError { mistakes, rest: None }
        })?;
        let is_toml = path.extension().is_some_and(|extension| extension == "toml");
        let parsed = match is_toml {
            true => Self::parse_toml_in(&text, &file, variables),
            false => Self::parse_ini_in(&text, &file, &read_text, variables),
        };
        match parsed {
            Ok(config) if variables.is_none() => Ok(config.with_its_files(path, file)),
            Ok(mut config) => match config.read_password_files() {
                mistakes if mistakes.is_empty() => Ok(config.with_its_files(path, file)),
                mistakes => {
                    let rest = Some(Box::new(config.with_its_files(path, file)));
                    Err(ConfigError { mistakes, rest })
                }
            },
            Err(ConfigError { mistakes, rest }) => {
                let rest = rest.map(|rest| Box::new(rest.with_its_files(path, file)));
                Err(ConfigError { mistakes, rest })
            }
        }
    }

    /// Reads the files that the configuration names.
    fn with_its_files(mut self, path: &Path, file: String) -> Self {
        self.path = Some(path.to_owned());
        self.global.conffile.get_or_insert(file);
        self.load_auth_file(|name| read_file(Path::new(&name)));
        self.load_hba(read_text);
        self.load_pcp_users();
        self.read_ldap_options();
        self.check_auth_queries();
        self
    }

    /// Reads the files that `password_file` of databases and clusters names. Returns why one cannot be
    /// used.
    fn read_password_files(&mut self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        let mut read = |section, entry: &str, file: &str| {
            let password = read_password(Path::new(file));
            let refuse = |why| {
                let position = Position::new(&Arc::from(file), 0, section, entry);
                mistakes.push(position.mistake("password_file", Reason::PasswordFile(why)));
            };
            password.map_err(refuse).ok()
        };
        for database in self.databases.values_mut().chain(&mut self.fallback) {
            if let Some(file) = database.password_file.clone() {
                let database = Arc::make_mut(database);
                database.password = read("databases", &database.name, &file);
            }
        }
        for (name, cluster) in &mut self.clusters {
            if let Some(file) = cluster.password_file.clone() {
                cluster.password = read("clusters", name, &file);
            }
        }
        mistakes
    }

    /// Returns the comments of a file that can be loaded, and what a `weir.toml` does not have.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn comments(path: &Path) -> io::Result<Comments> {
        let file = path.display().to_string();
        let text = read_text(path)?;
        Ok(match path.extension().is_some_and(|extension| extension == "toml") {
            true => Comments::of_toml(&text, &file),
            false => Comments::of_ini(&text, &file, &read_text),
        })
    }

    /// Sets a global key, as SET on the console does; a key that is only read at start is not
    /// changed.
    ///
    /// # Errors
    /// When there is no such key, or the value is invalid.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), Reason> {
        let Global { min_spare_servers: least, max_spare_servers: most, .. } = self.global;
        self.global.set(key, value)?;
        if let Some(reason) = self.crossed_spares() {
            (self.global.min_spare_servers, self.global.max_spare_servers) = (least, most);
            return Err(reason);
        }
        match key {
            "auth_file" => self.load_auth_file(|name| read_file(Path::new(&name))),
            "auth_hba_file" | "auth_ident_file" => self.load_hba(read_text),
            // The files may have been unreadable when the configuration was read.
            "auth_type" => {
                self.derive_access();
                if self.global.auth_type == AuthType::Hba {
                    self.load_hba(read_text);
                }
            }
            "auth_ldap_options" => self.read_ldap_options(),
            _ => {}
        }
        Ok(())
    }

    /// Reads the users and rules again, from the files that are named now. Earlier warnings and
    /// errors are dropped.
    pub fn reread_access(&mut self) {
        self.warnings.clear();
        self.errors.clear();
        (self.auth_file_unread, self.hba_unread) = (false, false);
        self.load_auth_file(|name| read_file(Path::new(&name)));
        self.load_hba(read_text);
        self.load_pcp_users();
    }

    /// As in PgBouncer, an unreadable file or an invalid line is a warning: clients that only it
    /// would let in are refused. On a reload, [`Self::keep_unread`] keeps the old rules if the new
    /// ones would let in nobody by mistake.
    fn load_hba(&mut self, read: impl Fn(&Path) -> io::Result<String>) {
        let mut warnings = Vec::new();
        let mut open = |name: &str, key: &'static str| {
            read(Path::new(name))
                .inspect_err(|error| {
                    let reason = Reason::NotOpened { key, why: in_words(error) };
                    warnings.push(Mistake::in_file(&Arc::from(name), 0, reason));
                })
                .unwrap_or_default()
        };
        let ident = self.global.auth_ident_file.clone().filter(|name| !name.is_empty());
        let (maps, odd) = ident.map_or_else(Default::default, |name| {
            IdentMaps::parse(&open(&name, "auth_ident_file"), &Arc::from(name.as_str()))
        });
        let name = &self.global.auth_hba_file;
        let content = if name.is_empty() { String::new() } else { open(name, "auth_hba_file") };
        let folder = Path::new(name).parent().unwrap_or(Path::new(""));
        let lacks = Cell::new(!warnings.is_empty());
        let further = |name: &str| read(&folder.join(name)).inspect_err(|_| lacks.set(true)).ok();
        let (hba, odder) = Hba::parse(&content, &Arc::from(name.as_str()), &maps, &further);
        // Without any rule, no client could log in.
        self.hba_unread = lacks.get() || hba.rules.is_empty() && !odder.is_empty();
        self.hba = hba;
        self.warnings.extend(warnings.into_iter().chain(odd).chain(odder));
    }

    /// Without the file, nobody can log in with Pgpool-II's tools. On a reload, [`Self::keep_unread`]
    /// keeps the old users.
    fn load_pcp_users(&mut self) {
        let name = self.global.pcp_file.clone().filter(|name| !name.is_empty());
        let file = Arc::from(name.clone().unwrap_or_default());
        let content = name.map(|name| read_text(Path::new(&name))).transpose();
        let is_unread = content.is_err();
        let (users, odd) = match content {
            Ok(content) => PcpUsers::parse(&content.unwrap_or_default(), &file),
            Err(error) => {
                let reason = Reason::NotOpened { key: "pcp_file", why: in_words(&error) };
                (PcpUsers::default(), vec![Mistake::in_file(&file, 0, reason)])
            }
        };
        if self.global.pcp_port != 0 && users.0.is_empty() && odd.is_empty() {
            self.warnings.push(self.positions.mistake("pcp_port", Reason::NoPcpUser));
        }
        self.pcp_users_unread = is_unread || users.0.is_empty() && !odd.is_empty();
        self.pcp_users = users;
        self.warnings.extend(odd);
    }

    /// With invalid options no client can log in.
    fn read_ldap_options(&mut self) {
        let text = self.global.auth_ldap_options.as_deref().filter(|text| !text.is_empty());
        self.ldap = match text.map(LdapOptions::parse) {
            None => None,
            Some(Ok(options)) => Some(Arc::new(options)),
            Some(Err(why)) => {
                let file = self.global.conffile.clone().unwrap_or_default();
                let position = Position::new(&Arc::from(file), 0, "pgbouncer", "");
                self.warnings.push(position.mistake("auth_ldap_options", Reason::Ldap(why)));
                None
            }
        };
    }

    /// Warns of a query with unqualified relations: the owner of the database can change its
    /// result.
    fn check_auth_queries(&mut self) {
        let file = Arc::from(self.global.conffile.clone().unwrap_or_default());
        let own = |(name, database): (&String, &Arc<Database>)| {
            let position = Position::new(&file, 0, "databases", name);
            database.auth_query.clone().map(|query| (position, query))
        };
        let queries = self.databases.iter().filter_map(own);
        let global = (Position::new(&file, 0, "pgbouncer", ""), self.global.auth_query.clone());
        for (position, query) in std::iter::once(global).chain(queries).collect::<Vec<_>>() {
            if !query.is_empty() && !needs_no_search_path(&query) {
                self.warnings.push(position.mistake("auth_query", Reason::NeedsSearchPath));
            }
        }
    }

    /// Without one of several files, the users of the others can log in.
    fn load_auth_file(&mut self, read: impl Fn(String) -> io::Result<Vec<u8>>) {
        let names = self.global.auth_file.clone().unwrap_or_default();
        if names.is_empty() {
            return;
        }
        self.auth_file = AuthFile::default();
        self.auth_file_unread = false;
        for name in names {
            let file = Arc::from(name.as_str());
            match read(name) {
                Ok(content) => {
                    let (auth_file, errors) = AuthFile::parse(&content, &file);
                    self.auth_file.users.extend(auth_file.users);
                    self.errors.extend(errors);
                }
                Err(error) => {
                    self.auth_file_unread = true;
                    let (file, why) = (file.to_string(), in_words(&error));
                    let reason = Reason::AuthFileNotOpened { file, why };
                    self.errors.push(Mistake::in_file(&Arc::from(""), 0, reason));
                }
            }
        }
    }
}

/// Reads a file of the configuration. A pipe or a device is refused, since the read may block or
/// never end; so is a file that is too long.
///
/// # Errors
/// When it cannot be read.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    // Even opening a device may have an effect.
    refuse_irregular(&fs::metadata(path)?)?;
    let file = fs::OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path)?;
    refuse_irregular(&file.metadata()?)?;
    let mut bytes = Vec::new();
    file.take(FILE_LEN_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_LEN_MAX {
        let limit = FILE_LEN_MAX >> 20;
        return Err(io::Error::other(format!("longer than {limit} MB")));
    }
    // Editors of other systems write a byte order mark.
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(bytes)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Returns the only line of a file.
fn read_password(file: &Path) -> Result<String, String> {
    let bytes = read_file(file).map_err(|error| in_words(&error))?;
    let mut text = String::from_utf8(bytes).map_err(|_| "it is not in UTF-8")?;
    text.truncate(text.trim_end_matches(['\r', '\n']).len());
    match () {
        () if text.is_empty() => Err("it has no password".to_owned()),
        () if text.contains(['\n', '\0']) => Err("it has more than one line".to_owned()),
        () => Ok(text),
    }
}

fn refuse_irregular(metadata: &fs::Metadata) -> io::Result<()> {
    match () {
        () if metadata.is_file() => Ok(()),
        () if metadata.is_dir() => {
            Err(io::Error::new(io::ErrorKind::IsADirectory, "Is a directory"))
        }
        () => Err(io::Error::other("not a regular file")),
    }
}

/// Reads a file as UTF-8. Comments may be in any encoding, as in PgBouncer.
fn read_text(path: &Path) -> io::Result<String> {
    let bytes = read_file(path)?;
    let is_comment = |line: &[u8]| matches!(line.trim_ascii_start(), [b';' | b'#', ..]);
    let lines = (1..).zip(bytes.split_inclusive(|byte| *byte == b'\n'));
    let lines = lines.map(|(number, line)| match str::from_utf8(line) {
        Ok(line) => Ok(Cow::Borrowed(line)),
        Err(_) if is_comment(line) => Ok(String::from_utf8_lossy(line)),
        Err(_) => Err(io::Error::other(format!("line {number} is not in UTF-8"))),
    });
    lines.collect()
}
