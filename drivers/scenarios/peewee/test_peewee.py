"""peewee's PostgreSQL features, over psycopg 2 and 3. Where to connect to is in libpq's variables."""

import datetime as dt
import itertools
import os
import threading
import uuid

import peewee as pw
import pytest
from playhouse import postgres_ext as ext
from playhouse.pool import PooledPostgresqlDatabase

NUMBERS = itertools.count()


@pytest.fixture(params=["psycopg2", "psycopg"])
def database(request):
    options = {"prefer_psycopg3": True} if request.param == "psycopg" else {}
    made = ext.PostgresqlExtDatabase(os.environ["PGDATABASE"], **options)
    yield made
    if not made.is_closed():
        made.close()


@pytest.fixture
def models(database):
    """Author and Book, on tables of their own."""
    mark = f"peewee{os.getpid()}_{next(NUMBERS)}"

    class Author(pw.Model):
        name = pw.TextField(unique=True)
        born = pw.DateTimeField(null=True)
        secret = pw.BlobField(null=True)
        key = pw.UUIDField(null=True)
        extra = ext.BinaryJSONField(null=True, index=False)
        tags = ext.ArrayField(pw.TextField, null=True, index=False)

        class Meta:
            table_name = f"{mark}_author"

    class Book(pw.Model):
        author = pw.ForeignKeyField(Author, backref="books", on_delete="CASCADE")
        title = pw.TextField()

        class Meta:
            table_name = f"{mark}_book"

    database.bind([Author, Book])
    database.create_tables([Author, Book])
    yield Author, Book
    if database.is_closed():
        database.connect()
    database.rollback()
    database.drop_tables([Author, Book])


def test_values(models):
    author, _ = models
    made = {"name": "Grüße 'x' \\ %", "born": dt.datetime(1999, 12, 31, 23, 59, 59, 1),
            "secret": bytes(range(256)), "key": uuid.uuid4(), "extra": {"a": [1, None]}, "tags": ["a", "b,"]}
    author.create(**made)
    for _ in range(10):
        got = author.get(author.name == made["name"])
        assert {key: getattr(got, key) for key in made if key != "secret"} == {
            key: value for key, value in made.items() if key != "secret"}
        assert bytes(got.secret) == made["secret"]


def test_ids(models):
    author, _ = models
    for number in range(1, 21):
        assert author.create(name=str(number)).id == number


def test_many(models):
    author, book = models
    author.insert_many([{"name": str(number)} for number in range(1000)]).execute()
    assert author.select().count() == 1000
    one = author.get(author.name == "7")
    book.insert_many([(one, "a"), (one, "b")], fields=[book.author, book.title]).execute()
    assert [found.title for found in one.books.order_by(book.title)] == ["a", "b"]
    assert author.delete().where(author.name == "7").execute() == 1
    assert book.select().count() == 0


def test_upsert_and_returning(models):
    author, _ = models
    for number in range(3):
        author.insert(name="a", tags=[str(number)]).on_conflict(
            conflict_target=[author.name], preserve=[author.tags]).execute()
    changed = author.update(tags=["x"]).where(author.name == "a").returning(author.id, author.tags)
    assert [row.tags for row in changed.execute()] == [["x"]]


def test_json_and_arrays(models):
    author, _ = models
    for number in range(20):
        author.create(name=str(number), extra={"n": number, "even": number % 2 == 0}, tags=[str(number % 3)])
    assert author.select().where(author.extra.contains({"even": True})).count() == 10
    assert author.select().where(author.extra.contains({"n": 7})).get().name == "7"
    assert author.select().where(author.tags.contains("2")).count() == 6


def test_atomic(models, database):
    author, _ = models
    with database.atomic():
        author.create(name="kept")
        with pytest.raises(pw.IntegrityError):
            with database.atomic():
                author.create(name="kept")
        with database.atomic() as inner:
            author.create(name="lost")
            inner.rollback()
        author.create(name="kept, too")
    with pytest.raises(ZeroDivisionError):
        with database.atomic():
            author.create(name="gone")
            raise ZeroDivisionError
    assert sorted(row.name for row in author.select()) == ["kept", "kept, too"]


def test_errors(models, database):
    author, _ = models
    for text, wanted in (("select nothing", pw.ProgrammingError), ("selec", pw.ProgrammingError),
                         ("select 1 / 0", pw.DataError)):
        with pytest.raises(wanted):
            database.execute_sql(text)
        database.rollback()
        assert author.select().count() == 0


def test_rows_in_parts(database):
    rows = ext.ServerSide if hasattr(ext, "ServerSide") else None
    query = pw.RawQuery("select n, repeat('x', 100) from generate_series(1, 20000) n", ()).bind(database)
    if rows:
        with database.atomic():
            assert sum(row["n"] if isinstance(row, dict) else row[0] for row in rows(query.tuples())) == 200010000
    else:
        assert sum(row[0] for row in query.tuples()) == 200010000


def test_temporary_tables_and_settings(database):
    database.execute_sql("set work_mem = '5MB'")
    database.execute_sql("create temp table own (n int)")
    other = pw.PostgresqlDatabase(os.environ["PGDATABASE"])
    for number in range(10):
        other.execute_sql("set work_mem = '7MB'")
        database.execute_sql("insert into own values (%s)", [number])
        assert database.execute_sql("show work_mem").fetchone() == ("5MB",)
    assert database.execute_sql("select count(*) from own").fetchone() == (10,)
    other.close()


def test_numbers_of_sequences(database):
    name = f"peewee{os.getpid()}_{next(NUMBERS)}"
    database.execute_sql(f"create sequence {name}")
    for number in range(1, 11):
        database.execute_sql("select nextval(%s)", [name])
        assert database.execute_sql("select currval(%s)", [name]).fetchone() == (number,)
    assert database.get_tables() is not None
    database.execute_sql(f"drop sequence {name}")


def test_advisory_locks(database):
    other = pw.PostgresqlDatabase(os.environ["PGDATABASE"])
    key = os.getpid() * 1000 + next(NUMBERS)
    database.execute_sql("select pg_advisory_lock(%s)", [key])
    for _ in range(5):
        assert other.execute_sql("select pg_try_advisory_lock(%s)", [key]).fetchone() == (False,)
    assert database.execute_sql("select pg_advisory_unlock(%s)", [key]).fetchone() == (True,)
    assert other.execute_sql("select pg_try_advisory_lock(%s)", [key]).fetchone() == (True,)
    other.close()


def test_a_pool_of_threads(models):
    author, _ = models
    pool = PooledPostgresqlDatabase(os.environ["PGDATABASE"], max_connections=8)
    failures = []

    def work(worker):
        try:
            for number in range(20):
                with pool.connection_context(), author.bind_ctx(pool):
                    author.create(name=f"{worker} {number}")
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=[worker]) for worker in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    pool.close_all()
    assert not failures
    assert author.select().count() == 120


def test_introspection(models, database):
    author, _ = models
    table = author._meta.table_name
    assert table in database.get_tables()
    assert [column.name for column in database.get_columns(table)] == [
        "id", "name", "born", "secret", "key", "extra", "tags"]
    assert database.get_primary_keys(table) == ["id"]
    assert [index.columns for index in database.get_indexes(table) if not index.columns == ["id"]] == [["name"]]
