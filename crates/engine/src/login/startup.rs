//! A client's startup packet: its user and database, the limits on clients, and its settings.
//! Settings are accepted, dropped or refused (`track_extra_parameters`,
//! `ignore_startup_parameters`, `application_name_add_host`).

use std::sync::Arc;

use config::{Config, PoolMode};
use wire::startup::{MINOR_VERSION, StartupPacket};
use wire::{backend, startup};

use crate::admission::limits::ClientCounts;
use crate::client::Client;
use crate::encoding;
use crate::ids::{ClientId, Identity};
use crate::lifecycle::replication::Replication;
use crate::login::console::{is_console, is_operator, user_of_all};
use crate::login::door::Door;
use crate::operator::remarks::remark;
use crate::own_error::{Cause, OwnError};
use crate::session::carried::{Carried, SESSION_AUTHORIZATION, Setting};
use crate::session::left::OURS;
use crate::shell::{Drain, Event, Exchange, Io, Weight};
use crate::vars::{CLIENT_ENCODING, TrackedNames, Vars};

const USER_LEN_MAX: usize = 128;
const DATABASE_LEN_MAX: usize = 63;

const APPLICATION_NAME: &str = "application_name";
/// The `application_name` of a client that gives none, where addresses are added to names.
const NAMELESS: &[u8] = b"app";

/// The connection that the settings in a startup packet are for.
#[derive(Clone, Copy)]
struct LoginTarget<'a> {
    replicates: bool,
    database: &'a str,
    user: &'a str,
}

/// Returns None for settings that are private to Weir and its library.
fn setting(name: &[u8], value: &[u8]) -> Option<Setting> {
    let name = name.to_ascii_lowercase();
    // PostgreSQL sets the user of the login behind it, so it has no effect.
    let has_effect = !name.starts_with(OURS) && name != SESSION_AUTHORIZATION;
    has_effect.then(|| Setting { name: name.into(), value: value.into() })
}

/// Would the setting have an effect on a direct connection only because it is there at the login? SET
/// accepts such a value and loads nothing.
fn is_for_login_only(name: &[u8], value: &[u8]) -> bool {
    let names: [&[u8]; 2] = [b"local_preload_libraries", b"session_preload_libraries"];
    names.iter().any(|known| name.eq_ignore_ascii_case(known)) && !value.trim_ascii().is_empty()
}

/// Sets the client's value of a tracked parameter, which it is told at login.
fn take(vars: &mut Vars, slot: usize, value: &[u8]) {
    let value = if slot == CLIENT_ENCODING { encoding::reported(value) } else { value };
    vars.set(slot, value);
}

impl<X: Exchange> Door<'_, X> {
    /// Reads the startup packet.
    pub(crate) fn startup(
        &mut self,
        packet: &StartupPacket<'_>,
        io: &mut impl Io<X>,
    ) -> Result<(), OwnError<'static>> {
        let peer = &self.login().peer;
        let is_bare = peer.secured.is_none() && !peer.local;
        if is_bare && self.context.config.global.client_tls_sslmode.is_required() {
            return Err("SSL required".into());
        }
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let user =
            text(packet.get("user").filter(|user| !user.is_empty()).ok_or("no username supplied")?);
        let user = self.context.config.hba.known_user(&user).to_owned();
        let database = packet.get("database").filter(|name| !name.is_empty());
        let mut database = database.map_or_else(|| user.clone(), text);
        // PostgreSQL cuts longer names as well.
        database.truncate(database.floor_char_boundary(DATABASE_LEN_MAX));
        if user.len() >= USER_LEN_MAX {
            let message = format!("login failed: db={database} user={user}");
            let (name, weight) = ((database.as_str(), "(nouser)"), Weight::Log);
            if self.context.config.global.log_connections {
                io.event(Event::ClientRemark { client: self.id, name, weight, message: &message });
            }
            return Err("username too long".into());
        }
        let is_console = is_console(&self.context.config, &database);
        if self.context.drain.is_some_and(Drain::turns_newcomers_away) && !is_console {
            return Err(OwnError::new(Cause::ShuttingDown, "pooler is shutting down"));
        }
        let replication = Replication::of(packet);
        let target =
            LoginTarget { replicates: replication.is_some(), database: &database, user: &user };
        let (client, config) = (&*self.client, &self.context.config);
        let reader = Reader { id: self.id, client, target, config, names: &self.context.names };
        let vars = reader.vars(packet, io)?;
        let known_as = user_of_all(&self.context.config, &database);
        let requested = Arc::new(Identity { database, user });
        let identity = match &known_as {
            Ok(Some(known_as)) => {
                let database = requested.database.clone();
                Arc::new(Identity { database, user: known_as.clone() })
            }
            Ok(None) | Err(_) => requested.clone(),
        };
        let counts = self.count_client(&identity);
        let max = self.context.config.global.max_client_conn;
        if counts.process > max && !is_console {
            self.uncount_client(&identity);
            self.want_places();
            return Err(OwnError::new(
                Cause::TooManyClients,
                "no more connections allowed (max_client_conn)",
            )
            .detail(format!("max_client_conn is {max}.")));
        }
        negotiate(self.id, self.client, packet, io);
        if let Err(why) = known_as {
            self.uncount_client(&identity);
            remark(self.id, self.client, Weight::Error, why, io);
            return Err("bouncer config error".into());
        }
        let replication_kind = replication.as_ref().map(|asked| asked.kind);
        let name = (identity.database.as_str(), identity.user.as_str());
        io.event(Event::LoginAttempt { client: self.id, name, replication: replication_kind });
        self.client.identity = identity.clone();
        let login = self.client.login_mut();
        login.startup_at = io.now();
        login.vars = vars;
        login.replication = replication;
        login.requested = requested;
        self.refuse_beyond(counts, &identity)
    }

    /// Counts the client until it leaves, even if it is refused.
    fn count_client(&mut self, identity: &Identity) -> ClientCounts {
        self.client.pool.count();
        self.exchange.limits(|limits| limits.client_came(identity))
    }

    /// Ends counting a client that is refused before its identity is known.
    #[cold]
    fn uncount_client(&mut self, identity: &Identity) {
        if self.client.pool.uncount() {
            self.exchange.limits(|limits| limits.client_left(identity));
        }
    }

    /// Counts the client under another identity than it gave.
    ///
    /// # Errors
    /// Returns an error if a limit on clients of the new identity is reached.
    pub(crate) fn recount_client(
        &mut self,
        identity: Arc<Identity>,
    ) -> Result<(), OwnError<'static>> {
        let client = &mut *self.client;
        let before = std::mem::replace(&mut client.identity, identity.clone());
        if !client.pool.is_counted() {
            return Ok(());
        }
        self.exchange.limits(|limits| limits.client_left(&before));
        let counts = self.count_client(&identity);
        self.refuse_beyond(counts, &identity)
    }

    /// Is there room for one more client of this database and of this user?
    fn refuse_beyond(
        &mut self,
        counts: ClientCounts,
        identity: &Identity,
    ) -> Result<(), OwnError<'static>> {
        // Operators are always let in.
        if is_console(&self.context.config, &identity.database)
            && is_operator(&self.context.config, &identity.user)
        {
            return Ok(());
        }
        let over = |count: u32, limit: u32| limit > 0 && count > limit;
        let config = &self.context.config;
        let of_database = config.max_db_client_connections(&identity.database);
        let of_user = config.max_user_client_connections(&identity.user);
        let (limit, max) = if over(counts.database, of_database) {
            ("max_db_client_connections", of_database)
        } else if over(counts.user, of_user) {
            ("max_user_client_connections", of_user)
        } else {
            return Ok(());
        };
        self.want_places();
        let text = format!("client connections exceeded ({limit})");
        Err(OwnError::new(Cause::TooManyClients, text).detail(format!("{limit} is {max}.")))
    }
}

/// Reads the settings in a startup packet.
struct Reader<'a> {
    id: ClientId,
    client: &'a Client,
    target: LoginTarget<'a>,
    config: &'a Config,
    names: &'a TrackedNames,
}

impl Reader<'_> {
    /// Returns the client's own values of tracked parameters. If one is given several times, the
    /// last one counts. The packet's own parameters override those in `options`, as in PostgreSQL.
    /// The `options` of a replication client go to its server unchanged.
    ///
    /// # Errors
    /// Returns the error for a parameter that is neither tracked nor ignored.
    fn vars<X: Exchange>(
        &self,
        packet: &StartupPacket<'_>,
        io: &mut impl Io<X>,
    ) -> Result<Vars, OwnError<'static>> {
        let mut vars = Vars::default();
        let mut carried = Vec::new();
        let mut named = false;
        if let Some(options) = packet.get("options").filter(|_| !self.target.replicates) {
            self.options(options, (&mut vars, &mut carried), io)?;
        }
        for (name, value) in packet.parameters() {
            match name {
                b"user" | b"database" | b"replication" | b"options" => {}
                b"application_name" => {
                    self.name_application(value, &mut vars, io);
                    named = true;
                }
                _ if name.starts_with(b"_pq_.") => {}
                _ => match self.kept_slot(name) {
                    Some(slot) => take(&mut vars, slot, value),
                    None => {
                        let text = String::from_utf8_lossy(name);
                        if self.ignores(&text) {
                            continue;
                        }
                        if self.carries() && !is_for_login_only(name, value) {
                            carried.extend(setting(name, value));
                        } else {
                            return Err(self.unsupported("", &text, value, io).into());
                        }
                    }
                },
            }
        }
        if !named && self.config.global.application_name_add_host {
            self.name_application(NAMELESS, &mut vars, io);
        }
        vars.carried = Carried::new(carried);
        Ok(vars)
    }

    /// Reads settings in the form of command line arguments, each accepted or refused alone.
    fn options<X: Exchange>(
        &self,
        options: &[u8],
        (vars, carried): (&mut Vars, &mut Vec<Setting>),
        io: &mut impl Io<X>,
    ) -> Result<(), OwnError<'static>> {
        let all = self.ignores("options");
        let settings = match startup::parse_options(options) {
            Ok(settings) => settings,
            Err(_) if all => return Ok(()),
            Err(error) => return Err(error.to_string().into()),
        };
        for (name, value) in settings {
            if let Some(slot) = self.kept_slot(name.as_bytes()) {
                take(vars, slot, value.as_bytes());
                continue;
            }
            if self.ignores(&name) {
                continue;
            }
            let only_at_login = is_for_login_only(name.as_bytes(), value.as_bytes());
            if self.carries() && !only_at_login {
                carried.extend(setting(name.as_bytes(), value.as_bytes()));
            } else if !all || only_at_login {
                return Err(self.unsupported(" in options", &name, value.as_bytes(), io).into());
            }
        }
        Ok(())
    }

    /// Are all settings accepted and carried for this client?
    fn carries(&self) -> bool {
        let found = self.config.database(self.target.database);
        found.is_some_and(|found| self.config.pool_mode(&found, self.target.user) == PoolMode::Auto)
    }

    /// Returns the error for the client, which has only the name. The log has the value, too.
    fn unsupported<X: Exchange>(
        &self,
        place: &str,
        name: &str,
        value: &[u8],
        io: &mut impl Io<X>,
    ) -> String {
        let why = format!("unsupported startup parameter{place}: {name}");
        let message = format!("{why}={}", String::from_utf8_lossy(value));
        remark(self.id, self.client, Weight::Warning, &message, io);
        why
    }

    /// Returns the slot of a tracked parameter. `ignore_startup_parameters` drops what it drops with
    /// PgBouncer 1.25.2, `search_path` among others.
    fn kept_slot(&self, name: &[u8]) -> Option<usize> {
        let slot = self.names.slot(name)?;
        let drops = || self.ignores(&String::from_utf8_lossy(name));
        (!(self.names.may_be_ignored(slot) && drops())).then_some(slot)
    }

    fn ignores(&self, name: &str) -> bool {
        self.config.global.ignore_startup_parameters.iter().any(|known| known == name)
    }

    fn name_application<X: Exchange>(&self, name: &[u8], vars: &mut Vars, io: &impl Io<X>) {
        let Some(slot) = self.names.slot(APPLICATION_NAME.as_bytes()) else { return };
        if self.config.global.application_name_add_host {
            let origin = format!(" - {}", io.client_origin(self.id));
            vars.set(slot, &[name, origin.as_bytes()].concat());
        } else {
            vars.set(slot, name);
        }
    }
}

/// Declines unknown protocol extensions and newer minor versions.
fn negotiate<X: Exchange>(
    id: ClientId,
    client: &mut Client,
    packet: &StartupPacket<'_>,
    io: &mut impl Io<X>,
) {
    let unknown: Vec<&[u8]> = packet
        .parameters()
        .map(|(name, _)| name)
        .filter(|name| name.starts_with(b"_pq_."))
        .collect();
    if packet.minor >= MINOR_VERSION {
        client.key.lengthen();
    }
    if packet.minor > MINOR_VERSION || !unknown.is_empty() {
        let mut out = Vec::new();
        let minor = packet.minor.min(MINOR_VERSION);
        backend::negotiate_protocol_version(&mut out, minor, &unknown);
        io.send_client(id, &out);
    }
}
