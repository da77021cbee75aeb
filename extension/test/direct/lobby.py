"""What the cases of this folder share: a pooler with a lobby for the time of one case, and messages."""

import struct
import time

from pooler import STATE, Pooler
from servers import PATIENCE_S


def ok(answer):
    assert not answer.errors, answer.errors
    return answer


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("it did not happen")


class Lobby:
    """A pooler for the time of one case, whose backends have to survive it. `deaths`: so many do
    not; None: any number."""

    def __init__(self, run, backends=1, deaths=0, user="postgres"):
        self.pooler = Pooler(run.cluster, run.work, backends, user)
        self.expected = None if deaths is None else backends - deaths

    def __enter__(self):
        return self.pooler

    def __exit__(self, kind, *_):
        try:
            if kind is not None:
                last = self.pooler.returned[-20:]
                print(f"extension: {kind}: {last}, {self.pooler.alive()} live")
            else:
                if self.expected is not None:
                    wait_for(lambda: self.pooler.alive() <= self.expected)
                    alive = self.pooler.alive()
                    assert alive == self.expected, f"{alive} backends live"
                bad = [one for one in self.pooler.returned if one[1] == STATE]
                assert not bad, f"guests whose state was not restored: {bad}"
        finally:
            self.pooler.close()


class Tolerant(Lobby):
    """Its clients' states may be refused."""

    def __exit__(self, kind, *more):
        self.refused = [one for one in self.pooler.returned if one[1] == STATE]
        self.pooler.returned[:] = [one for one in self.pooler.returned if one[1] != STATE]
        super().__exit__(kind, *more)


def message(code, body=b""):
    return code + struct.pack("!I", len(body) + 4) + body


def parse(name, text):
    return message(b"P", name.encode() + b"\0" + text.encode() + b"\0\0\0")


def execute(name):
    return message(b"B", b"\0" + name.encode() + b"\0\0\0\0\0\0\0") + message(b"E", b"\0\0\0\0\0")


SYNC = message(b"S")


def query(text):
    return message(b"Q", text.encode() + b"\0")


def ask(client, data):
    client.socket.sendall(data)
    return client.take(client.until_ready())


def move(run, pooler, client):
    """Ends the backend that serves the client, which goes to another one."""
    pid = ok(client.query("SELECT pg_backend_pid()")).value()
    before = pooler.alive()
    run.session().query(f"SELECT pg_terminate_backend({pid})")
    wait_for(lambda: pooler.alive() < before)
    # Also if another process has the tables locked.
    client.socket.settimeout(5)
    assert ok(client.query("SELECT pg_backend_pid()")).value() != pid


def codes(client, data):
    """The kinds of messages that answer this."""
    kinds = []
    note = client.note
    client.note = lambda answer, code, body: kinds.append(code) or note(answer, code, body)
    answer = ask(client, data)
    client.note = note
    return b"".join(kinds), [code for code, _ in answer.errors]


def describe(name):
    return message(b"D", b"S" + name.encode() + b"\0") + SYNC


def is_refused(client):
    try:
        client.query("SELECT 1")
    except OSError:
        return True
    return False


def is_running(run, text):
    return ok(run.session().query(
        f"SELECT count(*) FROM pg_stat_activity WHERE query = '{text}' AND state = 'active'"
    )).value() == "1"
