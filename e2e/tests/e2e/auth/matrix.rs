//! Every login method of clients with every login method of servers, with and without TLS on either
//! side, and with the right password, a wrong one and none.

use std::process::Command;

use super::ldap::directory::{Directory, bind_options};
use super::pam;
use crate::support;
use testkit::{Authority, Pooler, Postgres, Role, ServerAuth, Setup, Version, open_folder};

/// The methods that PgBouncer supports as well, and whether they check the password.
const METHODS: [(&str, bool); 8] = [
    ("trust", false),
    ("plain", true),
    ("md5", true),
    ("scram-sha-256", true),
    ("hba", true),
    ("ldap", true),
    ("pam", true),
    ("cert", false),
];

struct Matrix {
    authority: Authority,
    postgres: Postgres,
    roles: [Role; 4],
    directory: Directory,
}

impl Matrix {
    fn new(version: Version) -> Self {
        let authority = Authority::new("weir test");
        let postgres = Postgres::start_version(version);
        let roles = ServerAuth::ALL.map(|way| postgres.role(way));
        let people: Vec<&Role> = roles.iter().collect();
        let directory = Directory::start(&people, &authority.server(), false);
        Self { authority, postgres, roles, directory }
    }

    /// Returns a pooler with this method that knows every role's password.
    fn pooler(&self, database: &str, method: &str, server_tls: &str) -> Pooler {
        let own = self.authority.server();
        let client_tls = if method == "cert" { "verify-full" } else { "allow" };
        let setup = Pooler::before(&self.postgres)
            .set("pool_mode", "transaction")
            .set("auth_type", method)
            .set("client_tls_sslmode", client_tls)
            .set("client_tls_ca_file", self.authority.file())
            .set("client_tls_cert_file", own.certificate())
            .set("client_tls_key_file", own.key())
            .set("server_tls_sslmode", server_tls)
            .set("server_tls_ca_file", self.authority.file())
            .set("auth_failure_delay", 0)
            .database(database, "");
        let known = |setup: Setup, role: &Role| setup.secret(&role.name, &role.password);
        let setup = self.roles.iter().fold(setup, known);
        match method {
            "ldap" => setup.set("auth_ldap_options", bind_options(self.directory.port)).start(),
            "pam" => pam::with_users(setup, &self.roles).start(),
            "hba" => {
                let rules = open_folder("matrix").join("hba.conf");
                let text = "hostssl all all all scram-sha-256\nhost all all all md5\n";
                std::fs::write(&rules, text).expect("our own folder");
                setup.set("auth_hba_file", rules.display()).start()
            }
            _ => setup.start(),
        }
    }

    /// Returns psql for this role, with or without TLS, and with this password or none.
    fn psql(
        &self,
        pooler: &Pooler,
        database: &str,
        role: &Role,
        tls: bool,
        password: Option<&str>,
    ) -> Command {
        let mut psql = pooler.client_program("psql", database);
        psql.env("PGUSER", &role.name)
            .env("PGSSLMODE", if tls { "verify-full" } else { "disable" })
            .env("PGSSLROOTCERT", self.authority.file())
            .args(["-X", "-wAt", "-c"])
            .arg("SELECT current_user, ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()");
        match password {
            Some(password) => psql.env("PGPASSWORD", password),
            None => psql.env_remove("PGPASSWORD"),
        };
        psql
    }

    fn check(&self, method: &str, matters: bool, server_tls: &str) {
        let database = self.postgres.database();
        let pooler = self.pooler(&database, method, server_tls);
        for tls in [true, false] {
            for (at, role) in self.roles.iter().enumerate() {
                let own = self.authority.user(&role.name);
                // A client's mistake is tried with one kind of server only, since the answer does
                // not depend on it.
                let tried = [Some(role.password.as_str()), Some("wrong"), None];
                let tried = if at == 0 { &tried[..] } else { &tried[..1] };
                for password in tried {
                    let mut psql = self.psql(&pooler, &database, role, tls, *password);
                    if method == "cert" && tls {
                        psql.env("PGSSLCERT", own.certificate()).env("PGSSLKEY", own.key());
                    }
                    let is_right = *password == Some(role.password.as_str());
                    let expected = (is_right || !matters) && (method != "cert" || tls);
                    let output = psql.output().expect("psql runs");
                    let said = String::from_utf8_lossy(&output.stdout);
                    let case = format!(
                        "{method}, TLS {tls}, server {server_tls} {:?}, {password:?}: {}\n{}",
                        ServerAuth::ALL[at],
                        String::from_utf8_lossy(&output.stderr),
                        pooler.log()
                    );
                    assert_eq!(output.status.success(), expected, "{case}");
                    if expected {
                        let secured = if server_tls == "disable" { "f" } else { "t" };
                        assert_eq!(said.trim(), format!("{}|{secured}", role.name), "{case}");
                    }
                }
            }
        }
    }
}

#[test]
fn every_login_works_with_and_without_tls() {
    if !support::only_weir() {
        return;
    }
    let matrix = Matrix::new(Version::Installed);
    matrix.postgres.offer_tls(&matrix.authority.server());
    for server_tls in ["disable", "verify-full"] {
        for (method, matters) in METHODS {
            matrix.check(method, matters, server_tls);
        }
    }
}

#[test]
fn every_login_works_with_postgresql_18() {
    if !support::only_weir() {
        return;
    }
    // PostgreSQL 18 was built without TLS.
    let matrix = Matrix::new(Version::Eighteen);
    for (method, matters) in METHODS {
        matrix.check(method, matters, "disable");
    }
}
