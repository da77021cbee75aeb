"""tokio-postgres: pipelines by default, COPY both ways, cancel, portals; logs in by SCRAM here, to
Weir and from Weir to PostgreSQL."""

from harness.cargo import CargoSuite

PASSWORD = "password"
USERS = ("postgres", "pass_user", "md5_user", "scram_user")


class TokioPostgres(CargoSuite):
    name = "tokio-postgres"
    version = "0.7.18"
    crate = "tokio-postgres"
    arguments = ("--tests", "--all-features")
    hba = "local all all scram-sha-256\nhost all all all scram-sha-256\n"
    setup = (("postgres", f"""
        alter role postgres password '{PASSWORD}';
        create role pass_user login password '{PASSWORD}';
        create role md5_user login password '{PASSWORD}';
        create role scram_user login password '{PASSWORD}';
        create extension hstore; create extension citext; create extension ltree;
    """),)
    users = {name: PASSWORD for name in USERS}
    keys = {"auth_type": "scram-sha-256"}
    pool_size = {"session": 10}

    def patch(self, text, target):
        return (
            text.replace("5433", str(target.port))
            .replace("/var/run/postgresql", str(target.lab.dir))
            # Its own server trusts this one; here everybody has a password.
            .replace("user=postgres", f"user=postgres password={PASSWORD}")
        )
