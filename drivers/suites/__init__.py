"""The suites there are, one module each, in the order they are run."""

from .activerecord import ActiveRecord
from .asyncpg import Asyncpg
from .bun import Bun
from .dbd_pg import DbdPg
from .django import Django
from .gorm import Gorm
from .lib_pq import LibPq
from .libpqxx import Libpqxx
from .node_postgres import NodePostgres
from .peewee import Peewee
from .pg8000 import Pg8000
from .pgdriver import PgDriver
from .pgjdbc import PgJdbc
from .pgjdbc_replication import PgJdbcReplication
from .pgjdbc_tls import PgJdbcTls
from .pgx import Pgx
from .pgx_tls import PgxTls
from .php import Php
from .prisma import PrismaClient
from .procrastinate import Procrastinate
from .psqlodbc import Psqlodbc
from .psycopg import Psycopg
from .psycopg2 import Psycopg2
from .r2dbc import R2dbc
from .rails import Rails
from .river import River
from .ruby_pg import RubyPg
from .sqlalchemy import SqlAlchemy
from .sqlx import Sqlx
from .tokio_postgres import TokioPostgres
from .wire import Npgsql, Postgrest, Postgrex

SUITES = {
    suite.name: suite()
    for suite in (
        Psycopg, NodePostgres, Asyncpg, Psycopg2, Pg8000, Pgx, PgJdbc, LibPq, TokioPostgres, Sqlx,
        SqlAlchemy, Django, PgxTls, PgJdbcTls, Libpqxx,
        River, PgDriver, DbdPg, Php, RubyPg, Psqlodbc, Gorm, Bun,
        Procrastinate, Peewee, PrismaClient, ActiveRecord, Rails, R2dbc, PgJdbcReplication,
        Npgsql, Postgrex, Postgrest,
    )
}

# Suites that are short enough for continuous integration, in session mode.
QUICK = ("psycopg", "node-postgres", "asyncpg", "lib-pq", "pgx-tls", "pgjdbc-tls")
