"""pgx: pipelines, statement caches, batches, COPY, cancel; pgconn, pgxpool and stdlib beside it."""

from harness.go import GoSuite


class Pgx(GoSuite):
    name = "pgx"
    version = "v5.12.0"
    module = "github.com/jackc/pgx/v5"
    # The packages whose tests connect to a server. pgproto3's tests do not, and need gigabytes.
    packages = (".", "./multitracer", "./pgconn", "./pgtype", "./pgxpool", "./stdlib",
                "./tracelog")
    settings = {"max_prepared_transactions": 10}
    setup = (
        ("postgres", "create database pgx_test"),
        ("pgx_test", """
            create extension hstore;
            create extension ltree;
            create domain uint64 as numeric(20,0);
            create user " tricky, ' } "" \\\\ test user " superuser password 'secret';
        """),
    )
    # The second is unknown to PostgreSQL, which is to say so itself.
    users = {"postgres": "", "pgxinvalidusertest": ""}
    pool_size = {"session": 30}

    # The first waits for a notification without end, the second panics over a temporary table.
    fatal = {"transaction": ["TestListenNotify", "TestConnExecBatchImplicitTransaction"]}

    def environment(self, target):
        url = f"host={target.host} port={target.port} user=postgres dbname=pgx_test"
        return {**target.libpq("postgres", "pgx_test"), "PGX_TEST_DATABASE": url,
                "PGX_TEST_TCP_CONN_STRING": url}
