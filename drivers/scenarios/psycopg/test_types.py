"""Values of many types, there and back: as parameters and results, in text and in binary."""

import datetime as dt
import decimal
import enum
import ipaddress
import uuid

import psycopg
import pytest
from psycopg.types.composite import CompositeInfo, register_composite
from psycopg.types.enum import EnumInfo, register_enum
from psycopg.types.json import Json, Jsonb
from psycopg.types.multirange import Multirange
from psycopg.types.range import Range

UTC = dt.timezone.utc

VALUES = [
    ("bool", True), ("bool", False), ("int2", -32768), ("int4", 2**31 - 1), ("int8", -(2**63)),
    ("oid", 4294967295), ("float4", 0.5), ("float8", 1e300), ("float8", float("-inf")),
    ("numeric", decimal.Decimal("12345678901234567890.123456789")),
    ("numeric", decimal.Decimal("NaN")), ("numeric", decimal.Decimal("1e-30")),
    ("text", ""), ("text", "Grüße, 世界 🌍"), ("text", "quote ' backslash \\ percent %"),
    ("varchar(5)", "short"), ("bytea", b""), ("bytea", bytes(range(256))),
    ("date", dt.date(1999, 12, 31)), ("date", dt.date(1, 1, 1)),
    ("time", dt.time(23, 59, 59, 999999)),
    ("timetz", dt.time(12, 0, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30)))),
    ("timestamp", dt.datetime(2024, 2, 29, 1, 2, 3, 4)),
    ("timestamptz", dt.datetime(2024, 2, 29, 1, 2, 3, 4, UTC)),
    ("interval", dt.timedelta(days=-3, seconds=7, microseconds=11)),
    ("uuid", uuid.UUID("12345678-1234-5678-1234-567812345678")),
    ("inet", ipaddress.ip_address("::1")), ("inet", ipaddress.ip_interface("10.1.2.3/8")),
    ("cidr", ipaddress.ip_network("192.168.0.0/16")),
    ("int4[]", [1, None, 3]), ("text[]", ["a", "b,c", '"', None, ""]), ("int4[]", []),
    ("int4[][]", [[1, 2], [3, 4]]), ("float8[]", [0.5, -0.5]),
    ("int4range", Range(1, 10)), ("daterange", Range(dt.date(2020, 1, 1), None)),
    ("int4range", Range(empty=True)), ("int4multirange", Multirange([Range(1, 3), Range(5, 9)])),
]


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
@pytest.mark.parametrize("kind, value", VALUES, ids=lambda part: str(part)[:24])
def test_a_value_returns_as_it_went(auto, kind, value, binary):
    mark = "%b" if binary else "%t"
    row = auto.execute(f"select {mark}::{kind}, pg_typeof({mark}::{kind})::text", [value, value],
                       binary=binary).fetchone()
    assert str(row[0]) == str(value)
    assert type(row[0]) is type(value)
    assert row[1] != "unknown"


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_null_of_every_kind(auto, binary):
    kinds = sorted({kind for kind, _ in VALUES})
    row = auto.execute("select " + ", ".join(f"%s::{kind}" for kind in kinds),
                       [None] * len(kinds), binary=binary).fetchone()
    assert row == (None,) * len(kinds)


@pytest.mark.parametrize("wrapper, kind", [(Json, "json"), (Jsonb, "jsonb")])
def test_json_there_and_back(auto, wrapper, kind):
    value = {"a": [1, 2.5, None, True], "ü": {"nested": "\u2028"}}
    assert auto.execute(f"select %s::{kind}", [wrapper(value)]).fetchone() == (value,)
    assert auto.execute(f"select %s::{kind}", [wrapper(value)], binary=True).fetchone() == (value,)


def test_columns_tell_name_type_size_and_format(auto):
    cursor = auto.execute("select 1::int2 as small, 'x'::varchar(7) as word,"
                          " 1.50::numeric(10,2) as amount")
    small, word, amount = cursor.description
    assert (small.name, small.type_code, small.internal_size) == ("small", 21, 2)
    assert (word.name, word.type_code, word.display_size) == ("word", 1043, 7)
    assert (amount.type_code, amount.precision, amount.scale) == (1700, 10, 2)


def test_a_column_tells_its_table(auto, table):
    cursor = auto.execute(f"select id, data, 1 from {table}")
    oid = auto.execute("select %s::regclass::oid", [table]).fetchone()[0]
    result = cursor.pgresult
    assert [result.ftable(column) for column in range(3)] == [oid, oid, 0]
    assert [result.ftablecol(column) for column in range(3)] == [1, 2, 0]


def test_a_composite_type_is_registered_and_read(auto, name):
    auto.execute(f"create type {name} as (number int, word text)")
    try:
        register_composite(CompositeInfo.fetch(auto, name), auto)
        value = auto.execute(f"select (7, 'seven')::{name}").fetchone()[0]
        assert (value.number, value.word) == (7, "seven")
        assert auto.execute(f"select (%s::{name}).word", [value]).fetchone() == ("seven",)
    finally:
        auto.execute(f"drop type {name}")


def test_an_enum_is_registered_and_read(auto, name):
    mood = enum.Enum("mood", ["sad", "happy"])
    auto.execute(f"create type {name} as enum ('sad', 'happy')")
    try:
        register_enum(EnumInfo.fetch(auto, name), auto, mood)
        assert auto.execute(f"select %s::{name}", [mood.happy]).fetchone() == (mood.happy,)
        assert auto.execute(f"select array['sad', 'happy']::{name}[]").fetchone() == (
            [mood.sad, mood.happy],)
    finally:
        auto.execute(f"drop type {name}")


def test_a_domain_looks_like_its_base(auto, name):
    auto.execute(f"create domain {name} as int check (value > 0)")
    try:
        assert auto.execute(f"select 5::{name}").fetchone() == (5,)
        with pytest.raises(psycopg.errors.CheckViolation) as caught:
            auto.execute(f"select (%s)::{name}", [-5])
        assert caught.value.diag.datatype_name == name
    finally:
        auto.execute(f"drop domain {name}")


def test_a_record_without_a_name(auto):
    assert auto.execute("select row(1, 'a'::text, null)", binary=True).fetchone() == ((1, "a", None),)


def test_void_and_no_columns(auto):
    assert auto.execute("select pg_sleep(0)").fetchone() == ("",)
    cursor = auto.execute("select from generate_series(1, 3)")
    assert cursor.fetchall() == [(), (), ()]
    assert len(cursor.description) == 0


def test_sixteen_hundred_columns(auto):
    row = auto.execute("select " + ", ".join(f"{n} as c{n}" for n in range(1600))).fetchone()
    assert row == tuple(range(1600))


def test_thousands_of_parameters(auto):
    numbers = list(range(20_000))
    marks = ", ".join(["(%s::int)"] * len(numbers))
    assert auto.execute(f"select sum(n), count(*) from (values {marks}) as v(n)",
                        numbers).fetchone() == (sum(numbers), len(numbers))


def test_too_many_parameters_are_the_driver_s_error(auto):
    with pytest.raises(psycopg.Error):
        auto.execute("select 1 where 1 in (" + ", ".join(["%s"] * 70_000) + ")", range(70_000))
    assert auto.execute("select 'alive'").fetchone() == ("alive",)
