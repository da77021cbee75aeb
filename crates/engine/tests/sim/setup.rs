//! What a run is like: drawn from the seed.

use config::{Config, PoolMode};
use wire::md5;
use wire::scram::ScramVerifier;

use crate::backend::{Account, Backend, ServerAuth};
use crate::client::{Client, Who};
use crate::net::Factory;
use crate::rng::Rng;
use crate::script::Author;

/// Few, so that deriving keys costs nothing.
const ITERATIONS: u32 = 2;
const CAPACITIES: [&[usize]; 4] = [&[64], &[200, 5000], &[1 << 16], &[100, 1 << 16]];

pub(crate) struct Setup {
    pub(crate) mode: PoolMode,
    pub(crate) workers: u16,
    pub(crate) clients: usize,
    pub(crate) config: Config,
    pub(crate) pool_size: u32,
    /// Do servers die and refuse?
    pub(crate) stormy: bool,
    /// Do servers say things nobody asked for?
    pub(crate) chatty: bool,
    /// Do clients vanish at any byte?
    pub(crate) careless: bool,
    pub(crate) capacities: &'static [usize],
    auth: ServerAuth,
    client_auth: &'static str,
}

impl Setup {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let mode = match rng.below(6) {
            0 => PoolMode::Session,
            1 => PoolMode::Statement,
            _ => PoolMode::Transaction,
        };
        let pool_size = rng.pick(&[1, 1, 2, 3, 5]);
        let (auth, client_auth, stored) = authentication(rng);
        let mut ini = format!(
            "[databases]\ndb0 = host=127.0.0.1 port=5000 dbname=db0\n\
             db1 = host=127.0.0.1 port=5001\n[pgbouncer]\npool_mode = {}\n\
             default_pool_size = {pool_size}\nauth_type = {client_auth}\nserver_login_retry = 1\n\
             query_wait_timeout = 0\nquery_wait_notify = 0\nscram_iterations = {ITERATIONS}\nmax_client_conn = 1000\n",
            mode.word(),
        );
        let mut add = |key: &str, value: usize| ini.push_str(&format!("{key} = {value}\n"));
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
        let mut config =
            Config::parse_ini(&ini, "sim.ini", &|_| Ok(String::new())).expect("a good sim.ini");
        for user in 0..2 {
            config.auth_file.users.insert(format!("u{user}"), stored.replace("USER", &hash(user)));
        }
        Self {
            mode,
            workers: rng.range(1, 3) as u16,
            clients: rng.range(2, 10),
            config,
            pool_size,
            stormy: rng.once_in(3),
            chatty: rng.once_in(3),
            careless: rng.once_in(2),
            capacities: rng.pick(&CAPACITIES),
            auth,
            client_auth,
        }
    }

    pub(crate) fn client(&self, rng: &mut Rng, index: usize) -> Client {
        let user = format!("u{}", usize::from(rng.once_in(5)));
        let is_wrong = self.client_auth != "trust" && rng.once_in(12);
        let mut wants = Vec::new();
        if rng.once_in(2) {
            wants.push(("application_name", format!("app{}", rng.below(3))));
        }
        if rng.once_in(4) {
            wants.push(("TimeZone", rng.pick(&["Mars", "Venus"]).to_owned()));
        }
        let who = Who {
            password: if is_wrong { "wrong".into() } else { PASSWORD.to_owned() },
            database: format!("db{}", usize::from(rng.once_in(5))),
            user,
            is_wrong,
            asks_tls: rng.once_in(3),
            has_own_server: self.mode == PoolMode::Session,
            wants,
        };
        let length = rng.range(1, 10);
        let mut client = Client::new(who, Author::new(rng, index, self.mode).write(length));
        client.may_end = self.stormy;
        client
    }

    /// Makes the processes behind the servers' sockets.
    pub(crate) fn factory(&self) -> Factory {
        let (auth, stormy) = (self.auth.clone(), self.stormy);
        let session_mode = self.mode == PoolMode::Session;
        let mut pid = 1000;
        Box::new(move |_, rng| {
            pid += 1;
            let refuse = (stormy && rng.once_in(8)).then(|| rng.pick(&["53300", "57P03"]));
            let account = Account { auth: auth.clone(), password: PASSWORD.into(), refuse };
            Backend::server(pid, account, session_mode)
        })
    }
}

const PASSWORD: &str = "secret";

fn hash(user: usize) -> String {
    md5::hash(format!("u{user}").as_bytes(), PASSWORD.as_bytes())
}

/// The server's method, the clients', and what auth_file holds.
fn authentication(rng: &mut Rng) -> (ServerAuth, &'static str, String) {
    let verifier = ScramVerifier::from_password(PASSWORD.as_bytes(), b"salt", ITERATIONS);
    let scram = ServerAuth::Scram(verifier.clone());
    match rng.below(7) {
        0 => (ServerAuth::Md5, "md5", "USER".into()),
        1 => (scram, "scram-sha-256", verifier.to_string()),
        2 => (ServerAuth::Cleartext, "plain", PASSWORD.into()),
        3 => (scram, "md5", PASSWORD.into()),
        _ => (ServerAuth::Trust, "trust", PASSWORD.into()),
    }
}
