"""Connecting: where, as whom, with which settings, and what a refusal says."""

import concurrent.futures

import psycopg
import pytest
from conftest import is_running, until
from psycopg import conninfo


def test_a_url_says_where_to(connect):
    info = conninfo.conninfo_to_dict("")
    assert info == {}
    pgconn = connect().info
    url = f"postgresql://{pgconn.user}@{pgconn.host}:{pgconn.port}/{pgconn.dbname}"
    assert connect(url).execute("select current_user").fetchone() == ("postgres",)


def test_keywords_overrule_the_environment(connect):
    one = connect("user=postgres", user="alice", dbname="template1")
    assert one.execute("select current_user::text, current_database()::text").fetchone() == (
        "alice", "template1")


def test_prefer_without_tls_falls_back_on_the_same_socket(connect):
    one = connect(sslmode="prefer")
    assert not one.pgconn.ssl_in_use
    assert one.execute("select 1").fetchone() == (1,)


def test_disable_never_asks_for_tls(connect):
    assert connect(sslmode="disable").execute("select 2").fetchone() == (2,)


def test_gss_encryption_is_declined(connect):
    one = connect(gssencmode="prefer")
    assert one.execute("select 3").fetchone() == (3,)


def test_require_is_refused_by_the_driver_when_there_is_no_tls():
    with pytest.raises(psycopg.OperationalError, match="SSL"):
        psycopg.connect(sslmode="require")


def test_the_second_of_two_hosts_is_taken_when_the_first_refuses(connect):
    here = connect().info
    one = connect(host=f"127.0.0.1,{here.host}", port=f"1,{here.port}")
    assert one.info.port == here.port
    assert one.execute("select 4").fetchone() == (4,)


def test_target_session_attrs_is_asked_of_the_server(connect):
    one = connect(target_session_attrs="read-write")
    assert one.execute("show transaction_read_only").fetchone() == ("off",)


def test_a_standby_is_not_what_we_are(connect):
    with pytest.raises(psycopg.OperationalError):
        connect(target_session_attrs="standby")


def test_application_name_is_known_to_the_server_and_told_back(connect):
    one = connect(application_name="weir scenario")
    assert one.pgconn.parameter_status(b"application_name") == b"weir scenario"
    assert one.execute("show application_name").fetchone() == ("weir scenario",)
    assert one.execute("select application_name from pg_stat_activity"
                       " where pid = pg_backend_pid()").fetchone() == ("weir scenario",)


def test_a_fallback_name_counts_only_without_another(connect):
    assert connect(fallback_application_name="fallback").execute(
        "show application_name").fetchone() == ("fallback",)
    assert connect(fallback_application_name="fallback", application_name="own").execute(
        "show application_name").fetchone() == ("own",)


@pytest.mark.parametrize("option, shown", [
    ("-c TimeZone=Asia/Tokyo", ("timezone", "Asia/Tokyo")),
    ("-c DateStyle=German", ("datestyle", "German, DMY")),
    ("-cintervalstyle=iso_8601", ("intervalstyle", "iso_8601")),
    ("--timezone=America/New_York", ("timezone", "America/New_York")),
    ("-c application_name=from\\ options", ("application_name", "from options")),
])
def test_settings_within_options(connect, option, shown):
    one = connect(options=option)
    assert one.execute(f"show {shown[0]}").fetchone() == (shown[1],)


def test_several_settings_within_options(connect):
    one = connect(options="-c TimeZone=Asia/Tokyo -c DateStyle=SQL,DMY")
    row = one.execute(
        "select current_setting('timezone'), current_setting('datestyle')").fetchone()
    assert row == ("Asia/Tokyo", "SQL, DMY")


def test_any_setting_within_options(connect):
    one = connect(options="-c work_mem=7MB")
    assert one.execute("show work_mem").fetchone() == ("7MB",)


def test_the_environment_s_timezone(connect, monkeypatch):
    monkeypatch.setenv("PGTZ", "Europe/Paris")
    one = connect()
    assert one.execute("show timezone").fetchone() == ("Europe/Paris",)
    assert one.info.timezone.key == "Europe/Paris"


def test_an_unknown_database_is_told_with_its_state():
    with pytest.raises(psycopg.OperationalError, match="nosuchdb"):
        psycopg.connect(dbname="nosuchdb")


def test_an_unknown_role_is_refused():
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(user="nobody_of_this_name")


def test_nobody_listens():
    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(host="127.0.0.1", port=1)


def test_what_the_driver_knows_of_the_server_at_once(connect):
    info = connect().info
    version = connect().execute("show server_version_num").fetchone()[0]
    assert info.server_version == int(version)
    assert info.encoding == "utf-8"
    assert info.parameter_status("integer_datetimes") == "on"
    assert info.parameter_status("standard_conforming_strings") == "on"
    assert info.parameter_status("is_superuser") == "on"
    assert info.parameter_status("session_authorization") == "postgres"
    assert info.parameter_status("server_encoding") == "UTF8"


def test_another_user_has_other_parameters(connect):
    info = connect(user="alice").info
    assert info.parameter_status("is_superuser") == "off"
    assert info.parameter_status("session_authorization") == "alice"


def test_the_backend_s_number_is_the_one_sql_shows(conn):
    assert conn.execute("select pg_backend_pid()").fetchone() == (conn.info.backend_pid,)


@pytest.mark.parametrize("cursor", [psycopg.Cursor, psycopg.ClientCursor])
@pytest.mark.parametrize("function", ["pg_cancel_backend", "pg_terminate_backend"])
def test_a_query_is_ended_by_its_connection_s_number(connect, cursor, function):
    one, other = connect(autocommit=True), connect(autocommit=True)
    ended = {"pg_cancel_backend": psycopg.errors.QueryCanceled,
             "pg_terminate_backend": psycopg.errors.AdminShutdown}[function]
    marker = f"by number {one.info.backend_pid}"
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = pool.submit(one.execute, f"select pg_sleep(15), '{marker}'")
        until(lambda: is_running(other, marker))
        done = cursor(other).execute(f"select {function}(%s)", [one.info.backend_pid])
        assert done.fetchone() == (True,)
        with pytest.raises(ended):
            asked.result(timeout=20)


def test_a_hundred_connections_one_after_another(connect):
    for number in range(100):
        one = connect()
        assert one.execute("select %s::int", [number]).fetchone() == (number,)
        one.close()


def test_a_closed_connection_refuses_work(connect):
    one = connect()
    one.close()
    with pytest.raises(psycopg.OperationalError, match="closed"):
        one.execute("select 1")


def test_ping_tells_a_server_that_takes_connections(connect):
    info = connect().info
    answer = psycopg.pq.PGconn.ping(f"host={info.host} port={info.port}".encode())
    assert answer == psycopg.pq.Ping.OK


def test_the_connection_s_context_commits_and_closes(connect, table):
    with connect() as one:
        one.execute(f"insert into {table} values (1, 'kept')")
    assert one.closed
    assert connect().execute(f"select data from {table}").fetchall() == [("kept",)]


def test_the_connection_s_context_rolls_back_at_an_error(connect, table):
    with pytest.raises(ZeroDivisionError), connect() as one:
        one.execute(f"insert into {table} values (1, 'lost')")
        raise ZeroDivisionError
    assert connect().execute(f"select count(*) from {table}").fetchone() == (0,)
