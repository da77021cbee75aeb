//! The properties of a run, drawn from the seed.

use std::collections::BTreeMap;

use config::{AccessPolicy, Config, PoolMode, ReuseAfterError};
use engine::Drain;
use wire::md5;
use wire::scram::ScramVerifier;

use crate::backend::{Account, Backend, Library, ServerAuth};
use crate::bus::{Bus, Hearing};
use crate::client::{Client, Who};
use crate::net::Factory;
use crate::rng::Rng;
use crate::router::{Routed, is_reader};
use crate::schema::Schema;
use crate::script::{Author, Step};

/// The moment at which each run begins.
pub(crate) const START: u64 = 1_000_000;
/// A small number, so that deriving keys costs little.
const ITERATIONS: u32 = 2;
/// The time for which one client thinks in a run with spare servers.
const SPARES_PAUSE: u64 = 8_000_000;
const CAPACITIES: [&[usize]; 4] = [&[64], &[200, 5000], &[1 << 16], &[100, 1 << 16]];

/// The servers of a run that have the library that reports the state of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fleet {
    None,
    /// All of them. So clients may do what only the reports show.
    Reports,
    /// Some of them, in several versions.
    Mixed,
    /// None of them, and clients set the parameter of the reports themselves.
    Forged,
}

impl Fleet {
    fn library(self, rng: &mut Rng) -> Library {
        match self {
            Self::None => Library::Absent,
            Self::Reports if rng.once_in(3) => Library::Older,
            Self::Reports => Library::Loaded,
            Self::Mixed => match rng.below(8) {
                0..=2 => Library::Loaded,
                3 => rng.pick(&[Library::Unsure, Library::Older]),
                4 => Library::Newer,
                5 if rng.once_in(3) => Library::Refused,
                _ => Library::Absent,
            },
            Self::Forged => Library::Forged,
        }
    }
}

pub(crate) struct Setup {
    pub(crate) mode: PoolMode,
    pub(crate) workers: u16,
    pub(crate) clients: usize,
    pub(crate) config: Config,
    /// The present settings, as written in the file.
    pub(crate) keys: BTreeMap<&'static str, String>,
    users: Vec<(String, String)>,
    /// The largest pool size of this run.
    pub(crate) pool_size_max: u32,
    pub(crate) statements_max: usize,
    /// Is the configuration reloaded during the run?
    pub(crate) reloads: bool,
    /// Is Weir paused and resumed, and are its servers replaced?
    pub(crate) interrupts: bool,
    /// Is the servers' configuration reloaded during the run?
    pub(crate) reloads_servers: bool,
    /// Is there an online restart during the run?
    pub(crate) restarts: bool,
    /// May a reload change whether Weir translates statement names? Then clients use no names.
    plain: bool,
    /// May a reload change to session mode and back? Messages of auto mode may then be judged by
    /// the rules of session mode for a while.
    alternates: bool,
    /// May a reload change transaction mode to auto mode and back?
    mixes: bool,
    sleepy: bool,
    /// The kind of shutdown during the run, if there is one.
    pub(crate) drain: Option<Drain>,
    /// Can only PostgreSQL check passwords?
    pub(crate) proves: bool,
    /// Do clients stop reading for a while, and servers stop working?
    pub(crate) sluggish: bool,
    /// Do servers die and refuse connections?
    pub(crate) stormy: bool,
    /// Do servers send unrequested messages?
    pub(crate) chatty: bool,
    /// Do clients disconnect at any byte?
    pub(crate) careless: bool,
    pub(crate) capacities: &'static [usize],
    /// Are servers of two versions behind the same address?
    is_mixed: bool,
    /// Do clients listen?
    pub(crate) listens: bool,
    pub(crate) bus: Bus,
    /// Are requests of idle clients read before a pool is chosen?
    pub(crate) routed: Option<Routed>,
    /// Do clients keep their connections when a server is lost?
    pub(crate) keeps_clients: bool,
    /// Does a program print the passwords of one database?
    has_program: bool,
    /// The connections whose checkpoints are kept.
    pub(crate) timings: u32,
    fleet: Fleet,
    /// Draws the library of each server, so that the other parts of the run stay the same.
    fleet_seed: u64,
    auth: ServerAuth,
    client_auth: &'static str,
}

impl Setup {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let mode = match rng.below(8) {
            0 => PoolMode::Session,
            1 => PoolMode::Statement,
            2..=4 => PoolMode::Auto,
            _ => PoolMode::Transaction,
        };
        let pool_size = rng.pick(&[1, 1, 2, 3, 5]);
        let (auth, client_auth, stored) = authentication(rng);
        let mut keys = BTreeMap::new();
        let mut add = |key: &'static str, value: usize| keys.insert(key, value.to_string());
        add("max_prepared_statements", rng.pick(&[1, 2, 4, 200]));
        add("server_check_delay", rng.pick(&[0, 30]));
        add("server_idle_timeout", rng.pick(&[1, 600]));
        add("server_lifetime", rng.pick(&[1, 3600]));
        add("server_round_robin", rng.below(2));
        add("server_reset_query_always", usize::from(rng.once_in(6)));
        if rng.once_in(3) {
            add("max_db_connections", rng.pick(&[0, 1, 2]));
            add("max_user_connections", rng.pick(&[0, 1, 2, 3]));
            add("max_server_connections", rng.pick(&[0, 1, 2, 4]));
        }
        add("min_pool_size", rng.pick(&[0, 0, 2]));
        add("reserve_pool_size", rng.pick(&[0, 0, 1]));
        add("reserve_pool_timeout", 1);
        add("default_pool_size", pool_size);
        for key in LIMITS {
            add(key, usize::from(rng.once_in(8)));
        }
        add("scram_iterations", ITERATIONS as usize);
        keys.insert("pool_mode", mode.word().to_owned());
        keys.insert("auth_type", client_auth.to_owned());
        let users = (0..2).map(|user| (format!("u{user}"), stored.replace("USER", &hash(user))));
        // Numbers drawn from this do not change other parts of the run.
        let mut aside = Rng::new(rng.clone().next());
        let mut setup = Self {
            mode,
            workers: rng.range(1, 3) as u16,
            clients: rng.range(2, 10),
            config: Config::default(),
            keys,
            users: users.collect(),
            pool_size_max: 0,
            statements_max: 0,
            reloads: rng.once_in(4),
            interrupts: rng.once_in(4),
            reloads_servers: false,
            restarts: rng.once_in(4),
            plain: rng.once_in(4),
            alternates: false,
            mixes: false,
            sleepy: rng.once_in(6),
            drain: drain(rng),
            proves: client_auth == "plain" && !matches!(auth, ServerAuth::Cleartext),
            sluggish: rng.once_in(3),
            stormy: rng.once_in(3),
            chatty: rng.once_in(3),
            careless: rng.once_in(2),
            capacities: rng.pick(&CAPACITIES),
            is_mixed: mode == PoolMode::Auto && rng.once_in(4),
            listens: mode == PoolMode::Auto && !rng.once_in(3),
            bus: Bus::default(),
            routed: None,
            keeps_clients: false,
            has_program: false,
            timings: 0,
            fleet: Fleet::None,
            fleet_seed: 0,
            auth,
            client_auth,
        };
        setup.alternates = mode == PoolMode::Auto && setup.reloads && rng.once_in(2);
        // The new process does not learn from the old one which pools are paused or disabled.
        setup.restarts &= !setup.interrupts;
        // In session and transaction mode, a client may take the default for its own value.
        setup.reloads_servers = mode == PoolMode::Auto && !setup.alternates && aside.once_in(2);
        setup.mixes =
            mode == PoolMode::Transaction && setup.plain && setup.reloads && rng.once_in(2);
        // In session mode, Weir does not notice UNLISTEN.
        setup.listens &= !setup.alternates;
        if setup.is_mixed && rng.once_in(2) {
            setup.keys.insert("track_extra_parameters", "IntervalStyle, search_path".to_owned());
        }
        setup.read();
        setup
    }

    /// Routes requests in every third run whose mode does not change. It is drawn from its own
    /// seed, so the other runs stay the same.
    pub(crate) fn draw_routing(&mut self, seed: u64) {
        let changes_mode = self.reloads && (self.plain || self.alternates || self.mixes);
        // A client that listens may keep a reader.
        if !changes_mode && !self.listens && Rng::new(seed ^ 0x0072_6f75_7465).once_in(3) {
            self.routed = match self.mode {
                PoolMode::Auto => Some(Routed::Selects),
                PoolMode::Transaction => Some(Routed::Transactions),
                PoolMode::Session | PoolMode::Statement => None,
            };
        }
    }

    /// In half of the runs in which servers die, clients keep their connections then. It is drawn
    /// from its own seed, so the other runs stay the same.
    pub(crate) fn draw_keeping(&mut self, seed: u64) {
        let is_stateless = !self.may_have_sessions() && !self.mixes;
        self.keeps_clients =
            self.stormy && is_stateless && Rng::new(seed ^ 0x006b_6565_7073).once_in(2);
        let global = &self.config.global;
        let limits =
            [global.max_db_connections, global.max_user_connections, global.max_server_connections];
        // The last seat of a limit is for servers. A client that keeps its server needs no listener,
        // but it may lose this server, as by PAUSE. Of two seats, another pool's listener may have
        // the other one.
        if limits.iter().any(|limit| matches!(limit, 1 | 2)) {
            self.bus.forbid_listeners();
        }
    }

    /// A program prints the passwords of one database in every fourth run whose servers want one. It is
    /// drawn from its own seed, so the other runs stay the same.
    pub(crate) fn draw_passwords(&mut self, seed: u64) {
        let asks = !matches!(self.auth, ServerAuth::Trust) && !self.proves;
        if asks && Rng::new(seed ^ 0x0070_6173_7377_6f72).once_in(4) {
            self.has_program = true;
            self.read();
        }
    }

    /// Keeps the checkpoints of connections in every second run, of many or of few. It is drawn from its
    /// own seed, so the other runs stay the same.
    pub(crate) fn draw_timings(&mut self, seed: u64) {
        let mut rng = Rng::new(seed ^ 0x7469_6d69_6e67);
        self.timings = rng.pick(&[0, 0, 2, 1_000]);
        self.keys.insert("connection_timings", self.timings.to_string());
        self.read();
    }

    /// Marks idle servers in every third run. It is drawn from its own seed, so most runs stay the same.
    pub(crate) fn draw_marks(&mut self, seed: u64) {
        if Rng::new(seed ^ 0x006d_6172_6b73).once_in(3) {
            self.keys.insert("mark_pooled_servers", "1".to_owned());
            self.read();
        }
    }

    /// Closes servers after errors in every fourth run. It is drawn from its own seed, so the other
    /// runs stay the same.
    pub(crate) fn draw_reuse(&mut self, seed: u64) {
        if Rng::new(seed ^ 0x0072_6575_7365).once_in(4) {
            self.keys.insert("reuse_after_error", "never".to_owned());
            self.read();
        }
    }

    /// Limits the uses of a server in every fourth run. It is drawn from its own seed, so the other runs
    /// stay the same.
    pub(crate) fn draw_uses(&mut self, seed: u64) {
        let mut rng = Rng::new(seed ^ 0x0000_0000_7573_6573);
        if rng.once_in(4) {
            self.keys.insert("server_max_uses", rng.pick(&[1, 2, 5]).to_string());
            self.read();
        }
    }

    /// Lets the number of idle servers follow the demand in every third run. It is drawn from its own
    /// seed, so the other runs stay the same.
    pub(crate) fn draw_spares(&mut self, seed: u64) {
        let mut rng = Rng::new(seed ^ 0x7370_6172_6573);
        if rng.once_in(3) {
            self.change_spares(&mut rng);
            self.read();
        }
    }

    fn change_spares(&mut self, rng: &mut Rng) {
        let (min, max) = rng.pick(&[(1, 0), (2, 0), (0, 1), (1, 1), (1, 2), (3, 4)]);
        self.keys.insert("min_spare_servers", min.to_string());
        self.keys.insert("max_spare_servers", max.to_string());
    }

    /// Gives servers the library in every third run in auto mode. It is drawn from its own seed, so
    /// the other runs stay the same.
    pub(crate) fn draw_fleet(&mut self, seed: u64) {
        self.fleet_seed = seed ^ 0x0072_6570_6f72_7473;
        let mut rng = Rng::new(self.fleet_seed);
        if self.mode != PoolMode::Auto || !rng.once_in(3) {
            return;
        }
        self.fleet = match rng.below(6) {
            0 => Fleet::Forged,
            1 | 2 => Fleet::Mixed,
            // Servers of session mode do not report.
            _ if self.alternates => Fleet::Mixed,
            _ => Fleet::Reports,
        };
    }

    /// Changes the configuration file: pool sizes, limits and other keys.
    pub(crate) fn change(&mut self, rng: &mut Rng) {
        let (key, value) = match rng.below(8) {
            0..=2 => ("default_pool_size", rng.pick(&[1, 2, 3, 5])),
            3 => (rng.pick(&LIMITS), rng.below(2)),
            4 => ("server_check_delay", rng.pick(&[0, 30])),
            5 => ("server_lifetime", rng.pick(&[1, 3600])),
            _ if self.plain => ("max_prepared_statements", rng.pick(&[0, 1, 2, 200])),
            _ => ("max_prepared_statements", rng.pick(&[0, 1, 2, 200]).max(1)),
        };
        self.keys.insert(key, value.to_string());
        if self.has_spares() && rng.once_in(2) {
            self.change_spares(rng);
        }
        // Statement mode would disconnect a client that has a transaction open.
        if self.mode == PoolMode::Transaction && self.plain && rng.once_in(3) {
            self.keys.insert("pool_mode", rng.pick(&["session", "transaction"]).to_owned());
        }
        if self.mixes && rng.once_in(2) {
            self.keys.insert("pool_mode", rng.pick(&["auto", "transaction", "auto"]).to_owned());
        }
        if self.alternates && rng.once_in(2) {
            self.keys.insert("pool_mode", rng.pick(&["session", "auto"]).to_owned());
        }
        self.read();
    }

    /// Returns the user of this database's servers, whoever the client is.
    pub(crate) fn forced_user(&self, database: &str) -> Option<&'static str> {
        (self.has_program && database == "db0").then_some("u0")
    }

    fn read(&mut self) {
        let program = if self.has_program { "user=u0 password_command=/bin/token" } else { "" };
        let mut ini = format!(
            "[databases]\ndb0 = host=127.0.0.1 port=5000 dbname=db0 {program}\n\
             db1 = host=127.0.0.1 port=5001\n[pgbouncer]\nserver_login_retry = 1\nquery_wait_notify = 0\n\
             role_check_interval = 0\nmax_client_conn = 1000\n"
        );
        for (key, value) in &self.keys {
            ini.push_str(&format!("{key} = {value}\n"));
        }
        self.config =
            Config::parse_ini(&ini, "sim.ini", &|_| Ok(String::new())).expect("a good sim.ini");
        match self.proves {
            true => self.config.access = AccessPolicy::ProvenByServer,
            false => self.config.auth_file.users.extend(self.users.iter().cloned()),
        }
        let global = &self.config.global;
        self.pool_size_max = self.pool_size_max.max(global.default_pool_size);
        self.statements_max = self.statements_max.max(global.max_prepared_statements as usize);
    }

    pub(crate) fn may_have_sessions(&self) -> bool {
        self.mode == PoolMode::Session || self.alternates || (self.plain && self.reloads)
    }

    /// Are texts examined, at least for a while?
    pub(crate) fn may_be_auto(&self) -> bool {
        self.mode == PoolMode::Auto || self.mixes
    }

    /// May a server of one pool take the place of another pool's?
    pub(crate) fn is_limited(&self) -> bool {
        self.keys.contains_key("max_db_connections")
    }

    /// Does the number of idle servers follow the demand?
    pub(crate) fn has_spares(&self) -> bool {
        self.keys.contains_key("min_spare_servers")
    }

    /// Is every server checked before use, however short it was idle?
    pub(crate) fn checks_always(&self) -> bool {
        !self.reloads && self.keys["server_check_delay"] == "0"
    }

    /// May this limit have disconnected a client? A reload may just have switched the limit off.
    pub(crate) fn may_expire(&self, reason: &str) -> bool {
        if reason.starts_with("client_login_timeout") {
            // The default is a minute, and a pause may last that long.
            return self.interrupts;
        }
        let key = reason.replace(' ', "_");
        LIMITS.contains(&key.as_str()) && (self.reloads || self.keys[key.as_str()] != "0")
    }

    pub(crate) fn client(&self, rng: &mut Rng, index: usize) -> Client {
        let user = format!("u{}", usize::from(rng.once_in(5)));
        let is_wrong = self.client_auth != "trust" && rng.once_in(12);
        let mut wants = Vec::new();
        if self.mode == PoolMode::Auto {
            // RESET of a reported setting is reported in two parts (docs/auto-mode.md). In session
            // mode, a client with this parameter is refused.
            if !self.alternates && rng.once_in(3) {
                wants.push(("work_mem", format!("{index}MB")));
            }
        } else if self.mixes {
            // In auto mode RESET goes back to it, in transaction mode it does not.
        } else if rng.once_in(2) {
            wants.push(("application_name", format!("app{}", rng.below(3))));
        }
        if !self.may_be_auto() && rng.once_in(4) {
            wants.push(("TimeZone", rng.pick(&["Mars", "Venus"]).to_owned()));
        }
        let who = Who {
            password: if is_wrong { "wrong".into() } else { PASSWORD.to_owned() },
            database: format!("db{}", usize::from(rng.once_in(5))),
            user,
            is_wrong,
            asks_tls: rng.once_in(3),
            has_own_server: self.mode == PoolMode::Session,
            has_session: self.mode == PoolMode::Auto,
            wants,
        };
        let length = rng.range(1, 10);
        let mut author = Author::new(rng, index, self.mode);
        author.plain = self.plain;
        author.listens = self.listens;
        author.restyles = self.reloads_servers;
        author.fleet = self.fleet;
        (author.alternates, author.mixes) = (self.alternates, self.mixes);
        author.sleepy = self.sleepy;
        author.goes_back = who.has_session && !who.wants.is_empty();
        author.wide = self.capacities.iter().all(|capacity| *capacity > 10_000);
        let hearing = Hearing::new(self.bus.clone(), who.database.clone(), index);
        let mut client = Client::new(who, author.write(length), hearing);
        client.reference.backend.marks_defaults = self.reloads_servers;
        if self.keeps_clients {
            client.reference.follow_losses();
        }
        if self.has_spares() && index == 0 {
            // Meanwhile nothing happens, but its pool has a client.
            client.script.insert(client.script.len() / 2, Step::Think(SPARES_PAUSE));
        }
        if rng.once_in(4) {
            // It connects while the others work.
            client.thinks_until = START + rng.below(100_000) as u64;
        }
        client
    }

    /// Makes the server processes behind the sockets.
    pub(crate) fn factory(&self) -> Factory {
        let (auth, stormy) = (self.auth.clone(), self.stormy);
        let (session_mode, is_mixed) = (self.mode == PoolMode::Session, self.is_mixed);
        let (schema, bus) = (Schema::default(), self.bus.clone());
        let forgives = self.config.global.reuse_after_error == ReuseAfterError::Reset;
        let (fleet, mut of_fleet) = (self.fleet, Rng::new(self.fleet_seed.wrapping_add(1)));
        let uses_max = self.config.global.server_max_uses;
        let mut pid = 1000;
        Box::new(move |target, rng| {
            pid += 1;
            let refuse = (stormy && rng.once_in(8)).then(|| rng.pick(&["53300", "57P03"]));
            let account = Account { auth: auth.clone(), password: PASSWORD.into(), refuse };
            let refuses_reset = stormy && rng.once_in(6);
            let shared = (schema.clone(), bus.clone());
            let mut server = Backend::server(pid, account, shared, session_mode);
            server.refuses_reset = refuses_reset;
            server.forgives = forgives;
            server.load(fleet.library(&mut of_fleet));
            server.is_reader = is_reader(target);
            server.clients_max = if uses_max == 0 { usize::MAX } else { uses_max as usize };
            server.settings.reports_path = is_mixed && rng.once_in(2);
            server
        })
    }
}

/// Timeouts that disconnect a client, in seconds; 0 switches one off.
const LIMITS: [&str; 5] = [
    "query_wait_timeout",
    "query_timeout",
    "client_idle_timeout",
    "idle_transaction_timeout",
    "transaction_timeout",
];

/// The password of all users.
pub(crate) const PASSWORD: &str = "secret";

fn hash(user: usize) -> String {
    md5::hash(format!("u{user}").as_bytes(), PASSWORD.as_bytes())
}

fn drain(rng: &mut Rng) -> Option<Drain> {
    match rng.below(20) {
        0 => Some(Drain::WaitForServers),
        1 => Some(Drain::WaitForClients),
        _ => None,
    }
}

/// The methods of servers and of clients, and the content of auth_file.
fn authentication(rng: &mut Rng) -> (ServerAuth, &'static str, String) {
    let verifier = ScramVerifier::from_password(PASSWORD.as_bytes(), b"salt", ITERATIONS);
    let scram = ServerAuth::Scram(verifier.clone());
    match rng.below(9) {
        0 => (ServerAuth::Md5, "md5", "USER".into()),
        1 => (scram, "scram-sha-256", verifier.to_string()),
        2 => (ServerAuth::Cleartext, "plain", PASSWORD.into()),
        3 => (scram, "md5", PASSWORD.into()),
        7 => (scram, "plain", PASSWORD.into()),
        8 => (ServerAuth::Md5, "plain", PASSWORD.into()),
        _ => (ServerAuth::Trust, "trust", PASSWORD.into()),
    }
}
