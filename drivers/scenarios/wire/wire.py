"""PostgreSQL's protocol as bytes: messages to send, and a connection that puts the answers in words.

A client is played by the messages that it puts into one write, and by the answers that it waits for
before the next one. `Connection.talk` does both. Its answers are one string, one word a message:

    1 2 3       ParseComplete, BindComplete, CloseComplete
    t:23,25     ParameterDescription with its types
    T:id,data   RowDescription with its names; n is NoData
    D:7|x       a row; a value that is not printable is in hexadecimal digits, NULL is ~
    C:SELECT_1  CommandComplete; I is EmptyQueryResponse, s is PortalSuspended
    E:42601     ErrorResponse with its SQLSTATE
    N:01000     NoticeResponse
    A:name|text NotificationResponse, without the process id
    G H d:x c   CopyInResponse, CopyOutResponse, CopyData, CopyDone
    Z:I         ReadyForQuery

ParameterStatus may come at any time. It is kept in `Connection.parameters`."""

import os
import socket
import struct

PATIENCE_SECONDS = 20

PROTOCOL = 3 << 16
CANCEL, TLS = 80877102, 80877103


def message(code, body=b""):
    return code + struct.pack("!i", len(body) + 4) + body


def packet(number, body=b""):
    """A message without a code, as they come first on a connection."""
    return struct.pack("!ii", len(body) + 8, number) + body


def text(word):
    return word.encode() + b"\0"


def counted(form, numbers):
    return struct.pack(f"!h{len(numbers)}{form}", len(numbers), *numbers)


def query(sql):
    return message(b"Q", text(sql))


def parse(sql, name="", types=()):
    return message(b"P", text(name) + text(sql) + counted("i", types))


def bind(values=(), name="", portal="", formats=(), results=()):
    """`values` are strings in text format, bytes in binary format, or None."""
    formats = formats or [int(isinstance(value, bytes)) for value in values]
    body = text(portal) + text(name) + counted("h", formats) + struct.pack("!h", len(values))
    for value in values:
        raw = value.encode() if isinstance(value, str) else value
        body += struct.pack("!i", -1) if raw is None else struct.pack("!i", len(raw)) + raw
    return message(b"B", body + counted("h", results))


def describe(kind, name=""):
    return message(b"D", kind.encode() + text(name))


def execute(portal="", rows=0):
    return message(b"E", text(portal) + struct.pack("!i", rows))


def close(kind, name=""):
    return message(b"C", kind.encode() + text(name))


def sync():
    return message(b"S")


def flush():
    return message(b"H")


def copy_data(data):
    return message(b"d", data)


def copy_done():
    return message(b"c")


def copy_fail(reason):
    return message(b"f", text(reason))


def address():
    return os.environ["PGHOST"], int(os.environ["PGPORT"])


class Connection:
    """One connection, logged in. libpq's environment variables have the address."""

    def __init__(self, asks_for_tls=False, **parameters):
        """Goes on without TLS, but may ask for it first, as some clients do."""
        self.socket = socket.create_connection(address(), PATIENCE_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.read = self.socket.makefile("rb").read
        self.parameters, self.key = {}, b""
        # The fields of the last error.
        self.error = {}
        if asks_for_tls:
            self.socket.sendall(packet(TLS))
            assert self.read(1) == b"N"
        login = {"user": os.environ["PGUSER"], "database": os.environ["PGDATABASE"], **parameters}
        self.socket.sendall(packet(PROTOCOL, b"".join(
            text(name) + text(value) for name, value in login.items()) + b"\0"))
        self.welcome = self.answers()

    def talk(self, *messages, until="Z", times=1):
        """Sends the messages in one write and returns the answers up to the last one waited for."""
        self.send(*messages)
        return self.answers(until, times)

    def send(self, *messages):
        self.socket.sendall(b"".join(messages))

    def answers(self, until="Z", times=1):
        """Returns the answers up to the word that begins with `until`, as often as `times` says, or up
        to the end of the connection."""
        words = []
        while times:
            words.append(self.answer())
            if words[-1].startswith(until):
                times -= 1
            elif words[-1].endswith("!"):
                break
        return " ".join(words)

    def answer(self):
        """Returns the next message in words."""
        while True:
            header = self.read(5)
            if not header:
                return "gone!"
            body = self.read(struct.unpack("!i", header[1:])[0] - 4)
            if word := self.word(header[:1].decode(), body):
                return word

    def word(self, code, body):
        if code == "S":
            name, value, _ = body.decode().split("\0")
            self.parameters[name] = value
            return None
        if code == "K":
            self.key = body
            return None
        if code == "R":
            assert struct.unpack("!i", body[:4])[0] == 0, "the server asks for a password"
            return None
        return " ".join(f"{code}{self.rest(code, body)}".split()).replace(" ", "_")

    def rest(self, code, body):
        if code == "Z":
            return f":{body.decode()}"
        if code == "C":
            return f":{body[:-1].decode()}"
        if code in "EN":
            fields = dict((field[:1].decode(), field[1:].decode()) for field in body.split(b"\0") if field)
            if code == "E":
                self.error = fields
            return f":{fields['C']}" + ("!" if fields["S"] == "FATAL" else "")
        if code == "A":
            channel, payload, _ = body[4:].decode().split("\0")
            return f":{channel}|{payload}"
        if code == "t":
            return ":" + ",".join(map(str, types(body)))
        if code == "T":
            return ":" + ",".join(columns(body))
        if code == "D":
            return ":" + "|".join(map(readable, values(body)))
        if code == "d":
            return f":{readable(body)}"
        return ""

    def cancel(self):
        """Sends a cancel request for what runs here, and waits until it has been taken."""
        with socket.create_connection(address(), PATIENCE_SECONDS) as other:
            other.sendall(packet(CANCEL, self.key))
            assert other.recv(1) == b""

    def drop(self):
        """Closes the socket without a word."""
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def close(self):
        if self.socket.fileno() < 0:
            return
        try:
            self.send(message(b"X"))
        except OSError:
            pass
        self.socket.close()


def types(body):
    return struct.unpack(f"!{(len(body) - 2) // 4}i", body[2:])


def columns(body):
    at, names = 2, []
    while at < len(body):
        end = body.index(b"\0", at)
        names.append(body[at:end].decode())
        at = end + 19
    return names


def values(body):
    at, found = 2, []
    for _ in range(struct.unpack("!h", body[:2])[0]):
        size, = struct.unpack("!i", body[at:at + 4])
        found.append(None if size < 0 else body[at + 4:at + 4 + size])
        at += 4 + max(size, 0)
    return found


def readable(value):
    if value is None:
        return "~"
    return value.decode() if all(32 <= byte < 127 or byte == 10 for byte in value) else value.hex()
