"""The scenarios' own statements with random bytes as binary parameters, directly and through what is
tested: rows and SQLSTATE have to be the same. SEED=N plays a round again; a failure prints it."""

import ast
import os
import random
import re
import time
from pathlib import Path

import psycopg
import pytest
from psycopg.pq import ExecStatus

FILES = sorted(path.name for path in Path(__file__).parent.glob("test_*.py") if path.name != Path(__file__).name)
ROUNDS = 12
# Of a value's binary form: some types have one length only.
SIZES = {16: 1, 21: 2, 23: 4, 26: 4, 700: 4, 20: 8, 701: 8, 1082: 4, 1083: 8, 1114: 8, 1184: 8, 1186: 16, 2950: 16}
BYTEA = 17
# Statements whose result varies, that wait, or that affect other sessions.
LEFT_OUT = re.compile(
    r"pg_(sleep|backend|terminate|cancel|notify|stat|prepared|locks|advisory|try)|now\(\)|random|currval|lastval"
    r"|nextval|clock_|current_|txid|generate_series|repeat\(|copy |listen|begin|commit|prepare |set_config|lo_", re.I)


def statements(name):
    """Statements with parameters that stand in a file, in PostgreSQL's notation; `{t}` is a table."""
    found = set()
    for node in ast.walk(ast.parse(Path(__file__).with_name(name).read_text(encoding="utf8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{t}" for part in node.values]
            text = "".join(parts)
        else:
            continue
        # Of two marks one kind is left: what is named or typed is a place like any other.
        numbers = iter(range(1, 1000))
        text = re.sub(r"%(\(\w+\))?[sbt]", lambda _: f"${next(numbers)}", text)
        if re.match(r"\s*(select|insert|update|delete|values|with)\b", text, re.I) and "$1" in text \
                and not LEFT_OUT.search(text):
            found.add(text.replace("%%", "%"))
    return sorted(found)


def play(conn, text, values, types, wanted):
    """Executes the text in a transaction and rolls it back. Returns success, SQLSTATE and rows."""
    pg = conn.pgconn
    pg.exec_(b"begin")
    try:
        result = pg.exec_params(text, values, types, [1] * len(values), wanted)
        state = result.error_field(psycopg.pq.DiagnosticField.SQLSTATE)
        rows = [[result.get_value(row, column) for column in range(result.nfields)]
                for row in range(result.ntuples)]
        return result.status == ExecStatus.FATAL_ERROR, state, rows
    finally:
        pg.exec_(b"rollback")


def parameter_types(conn, text):
    """Returns the types that PostgreSQL infers, or one for each parameter."""
    pg = conn.pgconn
    pg.exec_(b"begin")
    try:
        if pg.prepare(b"", text).status == ExecStatus.COMMAND_OK:
            told = pg.describe_prepared(b"")
            return [told.param_type(number) for number in range(told.nparams)]
        return [0] * max(int(number) for number in re.findall(rb"\$(\d+)", text))
    finally:
        pg.exec_(b"rollback")


def value(dice, type_):
    length = SIZES.get(type_)
    if length is None or dice.random() < 0.1:
        length = dice.choice([0, 1, 2, 4, 8, 12, 16, 100, 3000])
    return None if dice.random() < 0.05 else dice.randbytes(length)


@pytest.mark.parametrize("file", FILES)
def test_statements_with_random_parameters(connect, table, file):
    seed = int(os.environ.get("SEED", time.time_ns() % 10**9))
    print(f"SEED={seed}")
    dice = random.Random(f"{seed} {file}")
    direct = connect(port=os.environ["DIRECT_PORT"])
    pooled = connect()
    for text in statements(file):
        sql = text.replace("{t}", table).encode()
        inferred = parameter_types(direct, sql)
        for _ in range(ROUNDS):
            values = [value(dice, type_) for type_ in inferred]
            types = [BYTEA if dice.random() < 0.3 else 0 for _ in values]
            wanted = dice.choice([0, 1])
            answers = [play(one, sql, values, types, wanted) for one in (direct, pooled)]
            assert answers[0] == answers[1], f"SEED={seed}: {sql} {types} {values}"
