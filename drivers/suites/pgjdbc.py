"""pgjdbc: Java's driver; named statements after five runs, batches, large objects, XA, cancel."""

from harness.maven import MavenSuite


class PgJdbc(MavenSuite):
    name = "pgjdbc"
    version = "42.7.13"
    artifact = "org.postgresql:postgresql"
    classifier = "jdbc-src"
    # The rest never meets a server.
    classes = ("org/postgresql/jdbc/**/*Test", "org/postgresql/test/**/*Test")
    left_out = {
        "QuotationTest": "three thousand logins to try what the driver does by itself",
        # Through a pooler its role, dropped and made anew, meets servers of the one before.
        "ScramTest": "is about passwords, for which the lab does not ask",
    }
    # Most tests make their table by this; as an ordinary one it is there in transaction mode too,
    # and the test can show something else.
    patches = ((
        "src/test/java/org/postgresql/test/TestUtil.java",
        '"create temp table "', '"create table "',
    ),)
    arguments = ("-DskipShadeDependencies=true",)
    settings = {"max_prepared_transactions": 64, "max_connections": 200}
    setup = (
        ("postgres", """
            create role test login;
            create database test owner test;
        """),
        ("test", "create extension hstore; create extension citext"),
    )
    # A test makes the last one; PostgreSQL is to have the say on its login.
    users = {"test": "test", "postgres": "", "nobody": ""}
    keys = {"ignore_startup_parameters": "extra_float_digits, synchronous_commit"}
    pool_size = {"session": 30}

    # The first kills its backend and writes until that is noticed; the pid it knows is Weir's. The
    # other waits for a notification without end.
    fatal = {"transaction": ["CopyTest#lockReleaseOnCancelFailure", "NotifyTest"],
             "auto": ["CopyTest#lockReleaseOnCancelFailure"]}

    def configure(self, target):
        (self.work / "build.local.properties").write_text(
            f"test.url.PGHOST={target.host}\ntest.url.PGPORT={target.port}\n"
        )
