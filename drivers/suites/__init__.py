"""The suites there are, one module each, in the order they are run."""

from .asyncpg import Asyncpg
from .django import Django
from .lib_pq import LibPq
from .node_postgres import NodePostgres
from .pg8000 import Pg8000
from .pgjdbc import PgJdbc
from .pgjdbc_tls import PgJdbcTls
from .pgx import Pgx
from .pgx_tls import PgxTls
from .psycopg import Psycopg
from .psycopg2 import Psycopg2
from .sqlalchemy import SqlAlchemy
from .sqlx import Sqlx
from .tokio_postgres import TokioPostgres

SUITES = {
    suite.name: suite()
    for suite in (
        Psycopg, NodePostgres, Asyncpg, Psycopg2, Pg8000, Pgx, PgJdbc, LibPq, TokioPostgres, Sqlx,
        SqlAlchemy, Django, PgxTls, PgJdbcTls,
    )
}

# What continuous integration can afford, in session mode.
QUICK = ("psycopg", "node-postgres", "asyncpg", "lib-pq", "pgx-tls", "pgjdbc-tls")
