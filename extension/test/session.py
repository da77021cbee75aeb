"""A client of PostgreSQL's that keeps what it is told of its session: the reports of the library."""

import socket
import struct
from dataclasses import dataclass, field

from wire import PATIENCE_S, START, columns, first

NAME = "weir.state"


@dataclass
class Answer:
    """The messages up to one ReadyForQuery."""

    rows: list = field(default_factory=list)
    errors: list = field(default_factory=list)  # (SQLSTATE, text)
    notices: list = field(default_factory=list)
    reports: list = field(default_factory=list)
    parameters: dict = field(default_factory=dict)
    status: str = ""
    # The message before ReadyForQuery was a report.
    is_last: bool = False

    def texts(self):
        return [[None if one is None else one.decode() for one in row] for row in self.rows]

    def value(self):
        return self.texts()[0][0]


class Session:
    """Logged in by trust. `asks`: parameters of the startup packet."""

    def __init__(self, port, user="postgres", database="postgres", **asks):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.held = b""
        words = {"user": user, "database": database}
        words.update({name.replace("__", "."): value for name, value in asks.items()})
        body = struct.pack("!I", START) + b"".join(
            name.encode() + b"\0" + str(word).encode() + b"\0" for name, word in words.items()
        ) + b"\0"
        self.socket.sendall(struct.pack("!I", len(body) + 4) + body)
        self.greeting = self.until_ready()
        self.state, self.events = [], []
        self.take(self.greeting)

    def query(self, text, encoding="utf-8"):
        self.send(b"Q", text.encode(encoding) + b"\0")
        return self.take(self.until_ready())

    def pipeline(self, texts, earlier=0):
        """Sends all at once, with a Sync behind each; an answer for each, and for `earlier` requests
        that were sent before."""
        for text in texts:
            self.send(b"P", b"\0" + text.encode() + b"\0\0\0")
            self.send(b"B", b"\0\0\0\0\0\0\0\0")
            self.send(b"E", b"\0\0\0\0\0")
            self.send(b"S", b"")
        return [self.take(self.until_ready()) for _ in range(earlier + len(texts))]

    def prepare(self, name, text):
        self.send(b"P", name.encode() + b"\0" + text.encode() + b"\0\0\0")
        self.send(b"S", b"")
        return self.take(self.until_ready())

    def send(self, code, body):
        self.socket.sendall(code + struct.pack("!I", len(body) + 4) + body)

    def until_ready(self):
        answer = Answer()
        while True:
            while (message := first(self.held)) is not None:
                self.held = self.held[len(message):]
                if self.note(answer, message[:1], message[5:]):
                    return answer
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionError(f"closed by the server: {answer.errors}")
            self.held += data

    def note(self, answer, code, body):
        """True if it was the last message."""
        if code == b"Z":
            answer.status = body.decode()
            return True
        answer.is_last = False
        if code == b"D":
            answer.rows.append(columns(body))
        elif code in b"EN":
            fields = {part[:1]: part[1:].decode("utf-8", "replace") for part in body.split(b"\0")}
            words = (fields[b"C"], fields[b"M"])
            (answer.errors if code == b"E" else answer.notices).append(words)
            if fields[b"S"] == "FATAL":
                raise ConnectionError(f"{words}")
        elif code == b"S":
            name, value = (part.decode("utf-8", "replace") for part in body.split(b"\0")[:2])
            if name == NAME:
                answer.reports.append(value)
                answer.is_last = True
            else:
                answer.parameters[name] = value
        return False

    def take(self, answer):
        """Keeps what was reported: `state` is the last one, `events` those of this answer."""
        self.events = []
        for report in answer.reports:
            form, *items = report.split(";")
            if form != "v1":
                raise AssertionError(f"not a report: {report}")
            self.state = sorted(item for item in items if item[:2] not in ("e:", "w:"))
            for item in items:
                if item.startswith("e:"):
                    _, number, words = item.split(":")
                    self.events.append((int(number), words.split(",")))
        return answer

    def close(self):
        self.socket.close()
