"""Rows of large results (rows.c): the guest gets what a direct connection gets."""

import socket
import struct
import time

from direct.lobby import SYNC, Lobby, message, ok, parse, query, wait_for
from session import Session


def receive(session, length):
    """So many bytes, or fewer if the connection has ended."""
    data = b""
    while len(data) < length:
        more = session.socket.recv(length - len(data))
        if not more:
            break
        data += more
    return data


def read(session):
    """The next message. None: the connection has ended, perhaps within one."""
    head = receive(session, 5)
    if len(head) < 5:
        return None
    kind, length = struct.unpack("!cI", head)
    body = receive(session, length - 4)
    return (kind, body) if len(body) == length - 4 else None


def told(session, data):
    """All messages up to ReadyForQuery."""
    session.socket.sendall(data)
    messages = [read(session)]
    while messages[-1][0] != b"Z":
        messages.append(read(session))
    return messages


def rows(length, count):
    return f"SELECT n, repeat(chr(97 + n % 26), {length}) FROM generate_series(1, {count}) n"


NOTICES = """CREATE FUNCTION tell(n int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN IF n % 97 = 0 THEN RAISE NOTICE 'row %', n; END IF; RETURN n; END $$"""

LENGTHS = (
    # Around the lengths at which something else happens.
    *((length, 30) for length in (1600, 8170, 8186, 8192, 16362, 16368, 16384)),
    *((length, 8) for length in (65500, 65515, 65520, 65525, 65531, 65536, 70000, 200000)),
    (10, 30000), (1000, 16), (1000, 17), (1000, 66), (1000, 1000),
)

TEXTS = (
    *(rows(length, count) for length, count in LENGTHS),
    "SELECT n, repeat('x', n * 37 % 40000) FROM generate_series(1, 400) n",
    "SELECT n, repeat('x', 70000 * (n % 5)) FROM generate_series(1, 20) n",
    # Notices, parameters and errors are sent between rows, and several results in turn.
    "SELECT tell(n), repeat('y', 900) FROM generate_series(1, 1000) n",
    "SELECT set_config('application_name', 'at ' || n / 100, false), repeat('z', 900) "
    "FROM generate_series(1, 500) n",
    "SELECT 1 / (n - 500), repeat('e', 900) FROM generate_series(1, 1000) n",
    "; ".join([rows(500, 100), rows(2, 2), "SELECT", rows(70000, 2), "SELECT 1 / 0", rows(1, 1)]),
    f"COPY ({rows(77, 20000)}) TO STDOUT",
    f"COPY ({rows(9000, 50)}) TO STDOUT (FORMAT binary)",
    f"BEGIN; DECLARE c CURSOR FOR {rows(300, 900)}; FETCH 100 FROM c; FETCH 700 FROM c; "
    "FETCH ALL FROM c; COMMIT",
)


def batch(*limits):
    """One portal that is executed again and again with these limits of rows."""
    bind = message(b"B", b"\0\0\0\0\0\0\0\0")
    runs = (message(b"E", b"\0" + struct.pack("!I", limit)) for limit in limits)
    return bind + b"".join(runs) + SYNC


def direct_rows_are_those_of_a_direct_connection(run):
    with Lobby(run) as pooler:
        guest = pooler.client()
        direct = Session(run.cluster.port, "postgres")
        ok(direct.query(NOTICES))
        # It is told the values of parameters before its first result.
        ok(guest.query("SELECT 1"))
        for text in TEXTS:
            assert told(guest, query(text)) == told(direct, query(text)), text
        for text, limits in ((rows(100, 3000), (1, 500, 2000, 0)), (rows(8000, 30), (3, 7, 20, 0))):
            data = parse("", text) + batch(*limits)
            assert told(guest, data) == told(direct, data), text
        ok(direct.query("DROP FUNCTION tell"))
        guest.close()
        direct.close()


def direct_what_comes_before_any_other_reply_comes_whole(run):
    """A client that sends ahead: rows of a portal that was bound before, and a long notice."""
    bound = parse("", rows(1000, 400)) + message(b"B", b"c\0\0\0\0\0\0\0\0")
    some, rest = (message(b"E", b"c\0" + struct.pack("!I", limit)) for limit in (100, 0))
    told_first = query("DO $$ BEGIN RAISE NOTICE '%', repeat('n', 300000); END $$")
    pipelines = (
        (query("BEGIN"), bound + SYNC, some + SYNC, rest + SYNC, query("COMMIT")),
        (told_first, query("SELECT 1"), told_first, told_first, query("SELECT 2")),
    )
    with Lobby(run) as pooler:
        guest = pooler.client()
        guest.socket.settimeout(20)
        direct = Session(run.cluster.port, "postgres")
        ok(guest.query("SELECT 1"))
        for requests in pipelines:
            data = b"".join(requests)
            answers = []
            for client in (guest, direct):
                answers.append(told(client, data))
                answers[-1] += [one for _ in requests[1:] for one in told(client, b"")]
            assert answers[0] == answers[1], [[(kind, len(body)) for kind, body in answer]
                                              for answer in answers]
        guest.close()
        direct.close()


def direct_rows_that_come_slowly_are_sent_at_once(run):
    with Lobby(run) as pooler:
        guest = pooler.client()
        # The first ones fill pieces, each of the last fifty takes 20 ms.
        text = ("SELECT repeat('s', 500), pg_sleep(CASE WHEN n > 200 THEN 0.02 ELSE 0 END) "
                "FROM generate_series(1, 250) n")
        guest.socket.sendall(query(text))
        times = {}
        count = 0
        while True:
            kind, _ = read(guest)
            if kind == b"Z":
                break
            if kind == b"D":
                count += 1
                times[count] = time.monotonic()
        # Core sends 16 of these at a time.
        assert times[250] - times[205] > 0.25, times[250] - times[205]
        guest.close()


def direct_a_guest_that_reads_slowly_gets_all_rows(run):
    with Lobby(run) as pooler:
        guest = pooler.client()
        guest.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        guest.socket.sendall(query(rows(5000, 1000)))
        count, turn = 0, 0
        while True:
            turn += 1
            if turn % 50 == 0:
                time.sleep(0.002)
            kind, _ = read(guest)
            count += kind == b"D"
            if kind == b"Z":
                break
        assert count == 1000, count
        guest.close()


def direct_a_guest_may_leave_within_a_large_result(run):
    with Lobby(run, backends=2, deaths=1) as pooler:
        guest = pooler.client()
        guest.socket.sendall(query("SELECT pg_backend_pid(), repeat('g', 1000) "
                                   "FROM generate_series(1, 1000000)"))
        assert read(guest)[0] == b"T"
        guest.socket.close()
        wait_for(lambda: pooler.alive() == 1)


def direct_a_backend_ends_though_its_guest_does_not_read(run):
    with Lobby(run, backends=2, deaths=1) as pooler:
        guest, direct = pooler.client(), Session(run.cluster.port, "postgres")
        pid = ok(guest.query("SELECT pg_backend_pid()")).value()
        guest.socket.sendall(query(rows(1000, 1000000)))
        read(guest)
        waits = f"SELECT wait_event FROM pg_stat_activity WHERE pid = {pid}"
        wait_for(lambda: ok(direct.query(waits)).value() == "ClientWrite")
        assert ok(direct.query(f"SELECT pg_terminate_backend({pid})")).value() == "t"
        wait_for(lambda: pooler.alive() == 1)
        # What was sent are rows, and the last one may be cut off.
        while (last := read(guest)) is not None:
            assert last[0] in b"DE", last[0]
        direct.close()
