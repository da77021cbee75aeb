//! The texts of refusals and the success of legitimate logins, for each method that both poolers
//! have. This passes with either. `matrix.rs` covers every method and every kind of server.

use std::process::{Command, Output};

use testkit::{Authority, Identity, Pooler, Postgres, Role, ServerAuth, Setup, Version};

/// A value of `auth_type`, and the refusals of clients that cannot prove their identity.
struct Way {
    auth_type: &'static str,
    /// The error about a wrong password; `None` if the method asks for none.
    wrong: Option<&'static str>,
    /// The method asks for a certificate instead of a password.
    certificate: bool,
}

const WAYS: [Way; 5] = [
    Way { auth_type: "trust", wrong: None, certificate: false },
    Way { auth_type: "plain", wrong: Some("password authentication failed"), certificate: false },
    Way { auth_type: "md5", wrong: Some("password authentication failed"), certificate: false },
    Way {
        auth_type: "scram-sha-256",
        wrong: Some("SASL authentication failed"),
        certificate: false,
    },
    Way { auth_type: "cert", wrong: None, certificate: true },
];

/// The versions of psql. Only the first has TLS.
const CLIENTS: [Version; 2] = [Version::Installed, Version::Eighteen];

/// The password that the client gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knows {
    Right,
    Wrong,
    Nothing,
}

/// A PostgreSQL with a role for each of its methods, and certificates for all of them.
struct Stage {
    postgres: Postgres,
    authority: Authority,
    roles: Vec<Role>,
    database: String,
}

impl Stage {
    fn new() -> Self {
        let postgres = Postgres::start();
        let authority = Authority::new("weir test");
        postgres.offer_tls(&authority.server());
        let roles = ServerAuth::ALL.map(|method| postgres.role(method)).to_vec();
        let database = postgres.database();
        Self { postgres, authority, roles, database }
    }

    fn pooler(&self, way: &Way, tls: bool) -> Pooler {
        let mut setup = Pooler::before(&self.postgres)
            .set("pool_mode", "transaction")
            .set("auth_type", way.auth_type)
            .set("server_tls_sslmode", if tls { "verify-full" } else { "disable" })
            .set("server_tls_ca_file", self.authority.file())
            .database(&self.database, "");
        if testkit::flavour() == testkit::Flavour::Weir {
            setup = setup.set("auth_failure_delay", 0);
        }
        for role in &self.roles {
            setup = setup.secret(&role.name, &role.password);
        }
        if tls {
            setup = with_certificate(setup, &self.authority.server())
                .set("client_tls_sslmode", if way.certificate { "verify-full" } else { "require" })
                .set("client_tls_ca_file", self.authority.file());
        }
        setup.start()
    }

    /// Returns psql for this role, over TLS if `tls`. It prints its user and whether the server
    /// uses TLS.
    fn psql(&self, pooler: &Pooler, version: Version, role: &Role, tls: bool) -> Command {
        let mut psql = Postgres::client_program_of(version, "psql", pooler.port(), &self.database);
        psql.env("PGUSER", &role.name).env_remove("PGPASSWORD").env("PGHOST", "localhost");
        psql.env("PGHOSTADDR", "127.0.0.1");
        if tls {
            psql.env("PGSSLMODE", "verify-full").env("PGSSLROOTCERT", self.authority.file());
        } else {
            psql.env("PGSSLMODE", "disable");
        }
        let sql = "SELECT current_user, ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        psql.args(["-XwAt", "-c", sql]);
        psql
    }
}

fn with_certificate(setup: Setup, own: &Identity) -> Setup {
    setup.set("client_tls_cert_file", own.certificate()).set("client_tls_key_file", own.key())
}

fn show(psql: &mut Command, own: &Identity) {
    psql.env("PGSSLCERT", own.certificate()).env("PGSSLKEY", own.key());
}

#[track_caller]
fn let_in(output: &Output, role: &Role, tls: bool, what: &str) {
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let expected = format!("{}|{}", role.name, if tls { "t" } else { "f" });
    assert_eq!(said.trim(), expected, "{what}: {errors}");
}

#[track_caller]
fn kept_out(output: &Output, why: &str, what: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains(why), "{what}: {errors}");
}

#[test]
fn users_log_in_or_get_the_right_refusal() {
    let stage = Stage::new();
    for way in &WAYS {
        for tls in [false, true] {
            if way.certificate && !tls {
                continue;
            }
            let pooler = stage.pooler(way, tls);
            for (role, method) in stage.roles.iter().zip(ServerAuth::ALL) {
                let what = format!("{} to {method:?}, TLS {tls}", way.auth_type);
                play_role(&stage, &pooler, way, role, tls, &what);
            }
        }
    }
}

fn play_role(stage: &Stage, pooler: &Pooler, way: &Way, role: &Role, tls: bool, what: &str) {
    let (own, other) = (stage.authority.user(&role.name), stage.authority.user("somebody"));
    for knows in [Knows::Right, Knows::Wrong, Knows::Nothing] {
        let what = format!("{what}, {knows:?}");
        let clients = if tls { &CLIENTS[..1] } else { &CLIENTS };
        for version in clients.iter().copied() {
            let mut psql = stage.psql(pooler, version, role, tls);
            match knows {
                Knows::Right => drop(psql.env("PGPASSWORD", &role.password)),
                Knows::Wrong => drop(psql.env("PGPASSWORD", "not this one")),
                Knows::Nothing => {}
            }
            match (way.certificate, knows) {
                (true, Knows::Right) => show(&mut psql, &own),
                (true, Knows::Wrong) => show(&mut psql, &other),
                _ => {}
            }
            let output = psql.output().expect("psql runs");
            match (knows, way.wrong) {
                (Knows::Right, _) => let_in(&output, role, tls, &what),
                (Knows::Wrong, _) if way.certificate => {
                    kept_out(&output, "certificate authentication failed", &what);
                }
                // The client is refused in the TLS handshake, with the text of its own library.
                (Knows::Nothing, _) if way.certificate => kept_out(&output, "", &what),
                (_, None) => let_in(&output, role, tls, &what),
                (Knows::Wrong, Some(why)) => kept_out(&output, why, &what),
                // psql gives up when it is asked for a password.
                (Knows::Nothing, Some(_)) => kept_out(&output, "no password supplied", &what),
            }
        }
    }
    if tls {
        let mut bare = stage.psql(pooler, Version::Installed, role, false);
        let output = bare.env("PGPASSWORD", &role.password).output().expect("psql runs");
        kept_out(&output, "SSL required", what);
    }
}
