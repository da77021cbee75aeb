"""SET, SHOW, what the server reports of its settings, encodings and time zones, and their reset."""

import psycopg
import pytest
from psycopg import pq

REPORTED = [
    ("application_name", "changed"), ("client_encoding", "LATIN1"), ("datestyle", "SQL, DMY"),
    ("intervalstyle", "iso_8601"), ("timezone", "Asia/Kolkata"),
    ("standard_conforming_strings", "off"),
]


def reported(one, name):
    spelt = {"datestyle": "DateStyle", "intervalstyle": "IntervalStyle", "timezone": "TimeZone"}
    return one.pgconn.parameter_status(spelt.get(name, name).encode()).decode()


@pytest.mark.parametrize("name, value", REPORTED, ids=[name for name, _ in REPORTED])
def test_a_reported_setting_is_told_and_kept(auto, name, value):
    auto.execute(f"set {name} = {value}" if ", " in value else f"set {name} = '{value}'")
    assert reported(auto, name) == value
    for _ in range(6):
        assert auto.execute(f"show {name}").fetchone() == (value,)


@pytest.mark.parametrize("name, value", REPORTED, ids=[name for name, _ in REPORTED])
def test_reset_tells_the_value_of_the_login(auto, name, value):
    before = auto.execute(f"show {name}").fetchone()[0]
    auto.execute(f"set {name} = {value}" if ", " in value else f"set {name} = '{value}'")
    auto.execute(f"reset {name}")
    assert reported(auto, name) == before
    for _ in range(6):
        assert auto.execute(f"show {name}").fetchone() == (before,)


def test_each_client_keeps_its_own(connect):
    zones = ["Asia/Tokyo", "Europe/Berlin", "America/Lima", "Africa/Cairo", "Asia/Kabul"]
    many = [connect(autocommit=True) for _ in zones]
    for one, zone in zip(many, zones):
        one.execute("select set_config('timezone', %s, false)", [zone])
    for _ in range(8):
        for one, zone in zip(many, zones):
            shown = one.execute("select current_setting('timezone'), now()").fetchone()
            assert shown[0] == zone
            assert one.info.timezone.key == zone
            assert shown[1].tzinfo.key == zone


def test_names_of_applications_do_not_mix(connect):
    many = [connect(autocommit=True, application_name=f"app {number}") for number in range(8)]
    for _ in range(5):
        for number, one in enumerate(many):
            assert one.execute("show application_name").fetchone() == (f"app {number}",)


def test_set_local_ends_with_the_transaction(conn):
    before = conn.execute("show timezone").fetchone()
    conn.execute("set local timezone = 'Asia/Tokyo'")
    assert conn.execute("show timezone").fetchone() == ("Asia/Tokyo",)
    assert reported(conn, "timezone") == "Asia/Tokyo"
    conn.commit()
    assert reported(conn, "timezone") == before[0]
    assert conn.execute("show timezone").fetchone() == before


def test_a_set_that_is_rolled_back_never_was(conn):
    before = conn.execute("show timezone").fetchone()
    conn.execute("set timezone = 'Asia/Tokyo'")
    conn.rollback()
    assert reported(conn, "timezone") == before[0]
    for _ in range(6):
        assert conn.execute("show timezone").fetchone() == before
        conn.commit()


def test_a_set_before_a_savepoint_is_kept(conn):
    conn.execute("set timezone = 'Asia/Tokyo'")
    conn.execute("savepoint a")
    conn.execute("set timezone = 'Asia/Kabul'")
    conn.execute("rollback to savepoint a")
    conn.commit()
    assert reported(conn, "timezone") == "Asia/Tokyo"
    for _ in range(6):
        assert conn.execute("show timezone").fetchone() == ("Asia/Tokyo",)
        conn.commit()


def test_a_wrong_value_changes_nothing(auto):
    before = auto.execute("show timezone").fetchone()
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        auto.execute("set timezone = 'Nowhere/Land'")
    assert (reported(auto, "timezone"),) == before
    assert auto.execute("show timezone").fetchone() == before


def test_a_function_with_settings_of_its_own(auto, name):
    auto.execute(f"create function {name}() returns text language sql"
                 " set timezone = 'Asia/Tokyo' as $$ select current_setting('timezone') $$")
    try:
        before = auto.execute("show timezone").fetchone()
        assert auto.execute(f"select {name}()").fetchone() == ("Asia/Tokyo",)
        assert auto.execute("show timezone").fetchone() == before
        assert (reported(auto, "timezone"),) == before
    finally:
        auto.execute(f"drop function {name}()")


def test_a_setting_nobody_reports_within_a_transaction(conn):
    conn.execute("set local work_mem = '9MB'")
    assert conn.execute("show work_mem").fetchone() == ("9MB",)
    conn.commit()
    assert conn.execute("show work_mem").fetchone() != ("9MB",)


def test_a_setting_nobody_reports_for_the_session(auto):
    auto.execute("set work_mem = '9MB'")
    for _ in range(4):
        assert auto.execute("show work_mem").fetchone() == ("9MB",)


def test_search_path_for_the_session(auto, name):
    auto.execute(f"create schema {name}")
    try:
        auto.execute(f"set search_path = {name}, public")
        for _ in range(4):
            assert auto.execute("select current_schema()").fetchone() == (name,)
    finally:
        auto.execute(f"drop schema {name} cascade")


def test_search_path_for_one_transaction(conn, name):
    conn.execute(f"create schema {name}")
    conn.execute(f"set local search_path = {name}")
    conn.execute("create table here (n int)")
    assert conn.execute("select count(*) from here").fetchone() == (0,)
    conn.rollback()


def test_a_role_for_one_transaction(conn):
    conn.execute("set local role alice")
    assert conn.execute("select current_user").fetchone() == ("alice",)
    conn.commit()
    assert conn.execute("select current_user").fetchone() == ("postgres",)


def test_session_authorization_is_told(conn):
    conn.execute("set local session authorization alice")
    assert reported(conn, "session_authorization") == "alice"
    assert reported(conn, "is_superuser") == "off"
    conn.rollback()
    assert reported(conn, "session_authorization") == "postgres"
    assert reported(conn, "is_superuser") == "on"


def test_a_setting_with_a_prefix_of_its_own(conn):
    conn.execute("select set_config('scenario.tenant', '42', true)")
    assert conn.execute("select current_setting('scenario.tenant')").fetchone() == ("42",)
    conn.commit()
    assert conn.execute("select current_setting('scenario.tenant', true)").fetchone()[0] in (
        None, "")


def test_what_one_client_sets_another_never_sees(connect):
    for number in range(6):
        one = connect(autocommit=True)
        one.execute(f"set scenario.secret = 'of {number}'")
        one.close()
        other = connect(autocommit=True)
        seen = other.execute("select current_setting('scenario.secret', true)").fetchone()[0]
        assert seen in (None, "")


def test_discard_all_returns_to_the_login(connect):
    one = connect(autocommit=True, options="-c TimeZone=Asia/Tokyo", application_name="first")
    one.execute("set timezone = 'Asia/Kabul'")
    one.execute("set application_name = 'second'")
    one.execute("discard all")
    for _ in range(6):
        assert one.execute("select current_setting('timezone'),"
                           " current_setting('application_name')").fetchone() == (
            "Asia/Tokyo", "first")
    assert (reported(one, "timezone"), reported(one, "application_name")) == (
        "Asia/Tokyo", "first")


# Encodings.


@pytest.mark.parametrize("encoding, text", [
    ("LATIN1", "Grüße"), ("LATIN9", "100 €"), ("WIN1251", "Привет"), ("EUC_JP", "日本語"),
    ("SJIS", "日本語"), ("BIG5", "中文"), ("UTF8", "🌍"),
])
def test_text_in_the_client_s_encoding(connect, encoding, text):
    one = connect(client_encoding=encoding, autocommit=True)
    for _ in range(4):
        row = one.execute("select %s::text, length(%s::text)", [text, text]).fetchone()
        assert row == (text, len(text))


def test_bytes_are_those_of_the_encoding(connect):
    one = connect(client_encoding="LATIN1", autocommit=True)
    assert one.pgconn.exec_("select 'ü'".encode("latin1")).get_value(0, 0) == b"\xfc"


def test_a_change_of_encoding_at_run_time(auto):
    for encoding in ("LATIN1", "UTF8", "WIN1252", "UTF8"):
        auto.execute(f"set client_encoding = '{encoding}'")
        assert reported(auto, "client_encoding") == encoding
        assert auto.execute("select 'ü'").fetchone() == ("ü",)


def test_clients_with_different_encodings_beside_one_another(connect):
    many = [connect(client_encoding=encoding, autocommit=True)
            for encoding in ("UTF8", "LATIN1", "WIN1252", "UTF8", "LATIN9")]
    for _ in range(5):
        for one in many:
            assert one.execute("select %s::text || 'ß'", ["ä"]).fetchone() == ("äß",)


def test_what_the_encoding_cannot_say(connect):
    one = connect(client_encoding="LATIN1", autocommit=True)
    with pytest.raises(psycopg.errors.UntranslatableCharacter):
        one.execute("select chr(8364)")
    assert one.execute("select 1").fetchone() == (1,)


def test_a_byte_that_is_no_utf_8(auto):
    result = auto.pgconn.exec_(b"select '\xff\xfe'")
    assert result.error_field(pq.DiagnosticField.SQLSTATE) == b"22021"


def test_sql_ascii_passes_bytes(connect):
    one = connect(client_encoding="SQL_ASCII", autocommit=True)
    assert one.execute("select 'ü'::text".encode()).fetchone()[0] == "ü".encode()
