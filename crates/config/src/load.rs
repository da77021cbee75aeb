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
use crate::error::{ConfigError, Mistake, in_words};
use crate::hba::{Hba, IdentMaps};
use crate::ini::Comments;
use crate::ldap::LdapOptions;
use crate::reason::Reason;
use crate::table::Database;

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
        let file = path.display().to_string();
        let text = read_text(path).map_err(|error| {
            let reason = Reason::NotLoaded { file: file.clone(), why: in_words(&error) };
            let mistakes = vec![Mistake::in_file(&Arc::from(""), 0, reason)];
            ConfigError { mistakes, global: None }
        })?;
        let is_toml = path.extension().is_some_and(|extension| extension == "toml");
        let mut config = match is_toml {
            true => Self::parse_toml(&text, &file)?,
            false => Self::parse_ini(&text, &file, &read_text)?,
        };
        config.path = Some(path.to_owned());
        config.global.conffile.get_or_insert(file);
        config.load_auth_file(|name| read_file(Path::new(&name)));
        config.load_hba(read_text);
        config.read_ldap_options();
        config.check_auth_queries();
        Ok(config)
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
        self.global.set(key, value)?;
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

    fn load_auth_file(&mut self, read: impl Fn(String) -> io::Result<Vec<u8>>) {
        let Some(name) = self.global.auth_file.clone().filter(|name| !name.is_empty()) else {
            return;
        };
        let file = Arc::from(name.as_str());
        let content = read(name);
        self.auth_file_unread = content.is_err();
        match content {
            Ok(content) => {
                let (auth_file, errors) = AuthFile::parse(&content, &file);
                self.auth_file = auth_file;
                self.errors.extend(errors);
            }
            Err(error) => {
                let (file, why) = (file.to_string(), in_words(&error));
                let reason = Reason::AuthFileNotOpened { file, why };
                self.errors.push(Mistake::in_file(&Arc::from(""), 0, reason));
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
