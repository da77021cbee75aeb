"""pgjdbc: Java's driver; named statements after five runs, batches, large objects, XA, cancel."""

from harness.maven import MavenSuite


class PgJdbc(MavenSuite):
    name = "pgjdbc"
    version = "42.7.13"
    artifact = "org.postgresql:postgresql"
    classifier = "jdbc-src"
    # The rest never meets a server.
    classes = ("org/postgresql/jdbc/**/*Test", "org/postgresql/test/**/*Test")
    arguments = ("-DskipShadeDependencies=true",)
    settings = {"max_prepared_transactions": 64, "max_connections": 200}
    setup = (
        ("postgres", """
            create role test login;
            create database test owner test;
        """),
        ("test", "create extension hstore; create extension citext"),
    )
    users = {"test": "test", "postgres": ""}
    keys = {"ignore_startup_parameters": "extra_float_digits, options, synchronous_commit"}
    pool_size = {"session": 30, "transaction": 3}

    def configure(self, target):
        (self.work / "build.local.properties").write_text(
            f"test.url.PGHOST={target.host}\ntest.url.PGPORT={target.port}\n"
        )
