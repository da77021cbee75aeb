"""As much of PostgreSQL's protocol as the proxy needs (chapter 55 of its manual): where messages end,
how a session begins, and a client that asks by simple queries."""

import socket
import struct

PATIENCE_S = 120
START = 196608
CANCEL = 80877102
REQUESTS_FOR_ENCRYPTION = (80877103, 80877104)
READY_IDLE = b"Z\0\0\0\5I"


class Connection:
    """Logged in by trust. Errors are what its statements may well have; only a connection that breaks
    raises one (OSError)."""

    def __init__(self, port, **words):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        body = struct.pack("!I", START) + b"".join(
            name.encode() + b"\0" + word + b"\0" for name, word in words.items()
        ) + b"\0"
        self.socket.sendall(struct.pack("!I", len(body) + 4) + body)
        self.held = b""
        self.rows_until_ready()

    def query(self, text):
        """The rows, as lists of bytes; a NULL is None."""
        self.ask(text)
        return self.rows_until_ready()

    def ask(self, text):
        body = text.encode() + b"\0"
        self.socket.sendall(b"Q" + struct.pack("!I", len(body) + 4) + body)

    def prepare(self, name, text):
        """By a message of the protocol."""
        body = name.encode() + b"\0" + text.encode() + b"\0\0\0"
        self.socket.sendall(b"P" + struct.pack("!I", len(body) + 4) + body + b"S\0\0\0\4")
        self.rows_until_ready()

    def rows_until_ready(self):
        rows = []
        while True:
            while (message := first(self.held)) is not None:
                self.held = self.held[len(message):]
                if message[:1] == b"D":
                    rows.append(columns(message[5:]))
                if message[:1] == b"Z":
                    return rows
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionError
            self.held += data

    def close(self):
        close(self.socket)


def columns(body):
    found, at = [], 2
    for _ in range(struct.unpack_from("!H", body)[0]):
        length = struct.unpack_from("!i", body, at)[0]
        found.append(body[at + 4:at + 4 + length] if length >= 0 else None)
        at += 4 + max(length, 0)
    return found


def startup(client, weir):
    """Passes the startup packet on; what it said, or nothing if no session comes of it."""
    while True:
        head = exactly(client, 8)
        length, code = struct.unpack("!II", head)
        if code in REQUESTS_FOR_ENCRYPTION:
            client.sendall(b"N")
            continue
        rest = exactly(client, length - 8)
        weir.sendall(head + rest)
        if code == CANCEL:
            return None
        words = rest.split(b"\0")
        return dict(zip(words[::2], words[1::2]))


def first(held):
    """The first message, if all of it is there."""
    if len(held) < 5:
        return None
    length = 1 + struct.unpack_from("!I", held, 1)[0]
    return held[:length] if len(held) >= length else None


def exactly(reader, count):
    data = b""
    while len(data) < count:
        more = reader.recv(count - len(data))
        if not more:
            raise ConnectionError
        data += more
    return data


def messages(reader):
    """Yields the complete messages of each read, as a list. An incomplete one is kept for the next."""
    held = b""
    while data := reader.recv(65536):
        held += data
        whole = []
        while (message := first(held)) is not None:
            held = held[len(message):]
            whole.append(message)
        yield whole


def has_ended(one):
    try:
        return one.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False


def close(one):
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    one.close()
