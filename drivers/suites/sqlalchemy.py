"""SQLAlchemy: the tests of its PostgreSQL dialect, over psycopg2."""

from harness.python import PytestSuite


class SqlAlchemy(PytestSuite):
    name = "sqlalchemy"
    version = "2.0.51"
    project = "SQLAlchemy"
    requirements = ("psycopg2-binary==2.9.13", "greenlet==3.2.4", "typing-extensions==4.15.0")
    # Its tests load themselves from the sources beside them. What is not collected tests the ORM,
    # not the driver.
    paths = ("lib", "test", "setup.cfg", "pyproject.toml")
    collected = ("test/dialect/postgresql", "test/dialect/test_suite.py")
    settings = {"max_prepared_transactions": 10}
    setup = (
        ("postgres", "create database test"),
        ("test", """
            create schema test_schema; create schema test_schema_2;
            create extension hstore; create extension citext;
            alter database test set default_text_search_config = 'pg_catalog.english';
        """),
    )
    pool_size = {"session": 10}

    def options(self, target):
        return (f"--dburi=postgresql+psycopg2://postgres@{target.host}:{target.port}/test",)

    def environment(self, target):
        return {"PGSSLMODE": "disable"}
