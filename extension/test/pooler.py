"""Weir's part of the direct path, as small as it can be: logs clients in by trust, hands their sockets
to backends through a lobby, and takes them back. It has lobby.c itself, as a library."""

import array
import ctypes
import mmap
import os
import pwd
import resource
import select
import signal
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

from servers import EXTENSION, PATIENCE_S, run
from session import Session
from wire import START

BASE = 9000
PLACES = 256
BACKENDS = 32
HELLO, NEED, RETURNED, LEFT = 1, 2, 3, 4
WELCOME, DESCRIPTOR, ENLIST, LEAVE, WAKE, GO = 16, 17, 18, 19, 20, 21
NONE, ENDED, PARTIAL, BAD, STATE, RECALLED, LISTENS = range(7)
LAYOUT = 10
KEY = "0123456789abcdef" * 2
# The value of SIGINT that announces an order.
SIGNAL = 0x52696557
ARMED = 2
SERVING, SLEEPING, LINGERING, PINNED_IDLE, HOLDING, LEAVING = 1, 2, 3, 4, 5, 6
# Offset in the header: holds without a question.
SILENT = 32
# Offsets in a backend's line: orders, the answer to ASK, and counters.
CANCEL, END, ASK, ANSWER, QUERIES, QUERY_US, TRANSACTION_US = 24, 32, 40, 56, 64, 72, 80
AT_REST, RUNS, IDLES = 1, 2, 3
MESSAGE = struct.Struct("=IIII")
LOSS_NONE, LOSS_CLOSE, LOSS_RETURNED = range(3)
PARTING_ENDS = 0
RECALL_TAKEN, RECALL_ASKED, RECALL_NONE = range(3)


def library(work):
    path = work / f"liblobby-{os.getpid()}.so"
    if not path.exists():
        run(["gcc", "-std=gnu11", "-O1", "-shared", "-fPIC", EXTENSION / "lobby.c", "-o", path])
    lib = ctypes.CDLL(str(path))
    lib.lobby_size.restype = ctypes.c_size_t
    lib.lobby_format.restype = ctypes.c_bool
    lib.lobby_format.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_uint32]
    lib.lobby_view_size.restype = ctypes.c_size_t
    lib.lobby_open_as_weir.argtypes = [
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32,
    ]
    lib.lobby_take.restype = ctypes.c_uint32
    lib.lobby_take.argtypes = [
        ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint32,
    ]
    lib.lobby_word.restype = ctypes.c_uint64
    lib.lobby_transaction.restype = ctypes.c_uint64
    lib.lobby_write_login.argtypes = [
        ctypes.c_void_p, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t,
    ]
    lib.lobby_order.argtypes = [
        ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint64,
    ]
    for name in ("open_as_weir", "put", "write_login", "admit", "vacate", "acknowledge", "leaver",
                 "read_window"):
        getattr(lib, f"lobby_{name}").restype = ctypes.c_bool
    return lib


def escaped(word):
    return b"".join(
        b"\\%03o" % byte if byte in b"\\;=" or not 32 <= byte < 127 else bytes([byte])
        for byte in word
    )


def settings(packet):
    """The parameters of the startup packet, as a place's window has them."""
    words = packet.split(b"\0")
    return b"".join(
        b";d:" + escaped(name) + b"=" + escaped(value)
        for name, value in zip(words[::2], words[1::2])
        if name and name not in (b"user", b"database")
    )


class Pooler:
    """A lobby and its control socket. `enlist` opens backends, `port` is where clients connect."""

    def __init__(self, cluster, work, backends=1, user="postgres"):
        self.cluster = cluster
        self.user = user
        self.lib = library(work)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        size = self.lib.lobby_size(BACKENDS, PLACES)
        self.memory = os.memfd_create("lobby", os.MFD_CLOEXEC)
        os.ftruncate(self.memory, size)
        self.map = mmap.mmap(self.memory, size)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        assert self.lib.lobby_format(address, size, BACKENDS, PLACES)
        self.set = select.epoll()
        self.view = (ctypes.c_uint64 * (self.lib.lobby_view_size() // 8 + 1))()
        self.lobby = ctypes.byref(self.view)
        assert self.lib.lobby_open_as_weir(self.lobby, address, BACKENDS, PLACES)
        self.blank = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        self.lib.lobby_use(self.lobby, self.set.fileno(), BASE, self.memory, self.blank)
        self.lib.lobby_use_lines(self.lobby, BACKENDS)
        self.lock = threading.RLock()
        self.threads = []
        self.generations = {}
        self.returned = []  # (place, reason), of all guests that came back
        self.kept = set()  # places that are not admitted again when they come back
        self.needs = []  # (place, generation), of all that backends have asked for
        self.gives_all = False  # with each descriptor those of all other guests
        self.more = []  # or the one asked for again, as those of these (place, generation)
        self.miscounts = False  # one more than there are
        self.uncounted = False  # with another descriptor that is not counted
        self.ends = False  # as soon as a backend has its descriptors
        self.base = BASE  # that backends are told
        self.backends = {}
        self.controls = {}
        self.ended = False
        self.listen(Path(work) / f"control-{time.monotonic_ns():x}")
        self.server = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port = self.server.getsockname()[1]
        self.greeting = b""
        for _ in range(backends):
            self.enlist()
        self.start(self.accept_clients)

    def start(self, work, *words):
        thread = threading.Thread(target=work, args=words, daemon=True)
        self.threads.append(thread)
        thread.start()

    def listen(self, path):
        """Backends check that the other side is of their own system user."""
        self.path = path
        self.control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        user = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
        self.control.bind(str(path))
        if user:
            os.chown(path, user.pw_uid, user.pw_gid)
            os.seteuid(user.pw_uid)
        self.control.listen(BACKENDS)
        if user:
            os.seteuid(0)
        # The server's configuration names one path.
        link = Path(self.cluster.folder) / "control"
        link.unlink(missing_ok=True)
        link.symlink_to(path)

    def enlist(self):
        """Opens one more backend."""
        number = len(self.backends)
        backend = Session(self.cluster.port, self.user, weir__report=1, weir__key=KEY,
                          weir__ticket=f"ticket-{number}")
        self.greeting = b"".join(
            b"S" + struct.pack("!I", len(body) + 4) + body
            for body in (name.encode() + b"\0" + value.encode() + b"\0"
                         for name, value in backend.greeting.parameters.items())
        )
        self.welcome(number, backend)

    def enlist_again(self, former):
        """One that has left comes back, with another number."""
        backend, number = self.backends.pop(former), max(self.backends, default=former) + 1
        text = f"/*weir {KEY[:16]}*/SELECT pg_catalog.set_config('weir.ticket', 'ticket-{number}', false)"
        backend.left = backend.dead = False
        answer = backend.query(text)
        assert not answer.errors, answer.errors
        self.welcome(number, backend)
        return number

    def welcome(self, number, backend):
        self.backends[number] = backend
        connection, _ = self.control.accept()
        hello = connection.recv(4096)
        kind, process, _, layout = MESSAGE.unpack_from(hello)
        assert (kind, layout) == (HELLO, LAYOUT), hello
        assert hello[16:].split(b"\0")[0] == f"ticket-{number}".encode()
        backend.process = process
        self.controls[number] = connection
        self.send(number, WELCOME, number, 0, self.base, [self.memory, self.set.fileno()])
        self.start(self.serve_backend, number)

    def send(self, number, kind, place=0, generation=0, value=0, descriptors=(), more=b""):
        self.lib.lobby_call(self.lobby, number)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        try:
            self.controls[number].sendmsg(
                [MESSAGE.pack(kind, place, generation, value) + more],
                rights if descriptors else [],
            )
        except OSError:
            pass  # its death is seen by serve_backend

    def serve_backend(self, number):
        while True:
            try:
                data = self.controls[number].recv(4096)
            except OSError:
                data = b""
            if not data:
                break
            kind, place, generation, value = MESSAGE.unpack_from(data)
            with self.lock:
                if self.ended:
                    return
                if kind == NEED:
                    self.give(number, place, generation)
                elif kind == RETURNED:
                    assert self.lib.lobby_acknowledge(self.lobby, place, number, generation)
                    self.take_back(place, value)
                elif kind == LEFT:
                    self.backends[number].left = True
        self.reclaim(number)

    def give(self, number, place, generation):
        self.needs.append((place, generation))
        more, sources = self.more, [place] * len(self.more)
        if self.gives_all:
            more = [one for one in self.generations.items() if one[0] != place]
            sources = [one[0] for one in more]
        text = b"".join(struct.pack("=II", *one) for one in more)
        descriptors = [BASE + source for source in [place, *sources]]
        descriptors += descriptors[:1] * self.uncounted
        count = len(more) + self.miscounts
        self.send(number, DESCRIPTOR, place, generation, count, descriptors, text)
        if self.ends:
            self.ended = True
            self.controls[number].shutdown(socket.SHUT_RDWR)

    def reclaim(self, number):
        with self.lock:
            if self.ended:
                return
            for place in range(PLACES):
                loss = self.lib.lobby_reclaim(self.lobby, number, place)
                if loss == LOSS_CLOSE:
                    self.close_guest(place)
                elif loss == LOSS_RETURNED:
                    self.take_back(place, RECALLED)
            self.lib.lobby_arm_again(self.lobby, number)
            self.wake_lingerers()
            self.backends[number].dead = True

    def state(self, place):
        return self.lib.lobby_word(self.lobby, place) & 0xFF

    @staticmethod
    def line(number):
        return 4096 + 128 * number

    def give_up_listeners(self):
        self.lib.lobby_set_gives_up(self.lobby, True)

    def leaver(self, place):
        """The number of the backend, if the guest is returned to leave with it."""
        number = ctypes.c_uint32()
        is_there = self.lib.lobby_leaver(self.lobby, place, ctypes.byref(number))
        return number.value if is_there else None

    def left_state(self, place):
        """The state and the channels of a guest that leaves with its backend."""
        size, channels = ctypes.c_uint32(), ctypes.c_uint32()
        self.lib.lobby_lengths(self.lobby, place, ctypes.byref(size), ctypes.byref(channels))
        data = ctypes.create_string_buffer(size.value + channels.value)
        assert self.lib.lobby_read_window(self.lobby, place, 0, data, len(data))
        return data.raw[:size.value], data.raw[size.value:]

    def silent(self):
        return struct.unpack_from("=I", self.map, SILENT)[0]

    def activity(self, number):
        return self.lib.lobby_activity(self.lobby, number)

    def stray(self, place):
        """Bytes of a message that are to be skipped."""
        return struct.unpack_from("=I", self.map, self.line(BACKENDS) + 64 * place + 44)[0]

    def transaction(self, number):
        return self.lib.lobby_transaction(self.lobby, number)

    def word(self, number, offset):
        return struct.unpack_from("=Q", self.map, self.line(number) + offset)[0]

    def order(self, number, offset, transaction, to=None):
        """As Weir would: the number first, then the signal. `to`: another process gets that."""
        self.lib.lobby_order(self.lobby, number, (CANCEL, END, ASK).index(offset), transaction)
        self.interrupt(number, to)

    def interrupt(self, number, to=None):
        process, value = to or self.backends[number].process, ctypes.c_void_p(SIGNAL)
        assert ctypes.CDLL(None).sigqueue(process, signal.SIGINT, value) == 0

    def leave_words(self, place, body):
        self.lib.lobby_leave_words(self.lobby, place, body, ctypes.c_size_t(len(body)))

    def wake_lingerers(self):
        for number in self.controls:
            if self.lib.lobby_lingers(self.lobby, number):
                self.send(number, WAKE)

    def recall(self, place):
        """The guest comes back, and stays here."""
        with self.lock:
            self.kept.add(place)
            found = self.lib.lobby_recall(self.lobby, place)
            if found == RECALL_TAKEN:
                self.returned.append((place, RECALLED))
            self.wake_lingerers()
            return found

    def admit(self, place):
        with self.lock:
            self.kept.discard(place)
            assert self.lib.lobby_admit(self.lobby, place)

    def take_back(self, place, reason):
        self.returned.append((place, reason))
        if reason in (ENDED, BAD, STATE):
            self.close_guest(place)
        elif place in self.kept or reason == LISTENS:
            pass
        elif reason == PARTIAL:
            self.start(self.wait_for_message, place, self.generations[place])
        else:
            assert self.lib.lobby_admit(self.lobby, place)

    def wait_for_message(self, place, generation):
        """Until the first message is whole, or 8 KiB of it have come. A client that ends before is
        closed."""
        deadline = time.monotonic() + PATIENCE_S
        ended = select.poll()
        with socket.socket(fileno=os.dup(BASE + place)) as copy:
            ended.register(copy, select.POLLRDHUP)
            while time.monotonic() < deadline and not self.ended:
                data = copy.recv(8192, socket.MSG_PEEK)
                whole = len(data) >= 5 and len(data) > struct.unpack_from("!I", data, 1)[0]
                has_ended = not whole and bool(ended.poll(0))
                if not data or whole or len(data) == 8192 or has_ended:
                    break
                time.sleep(0.0005)
        with self.lock:
            if self.ended or self.generations.get(place) != generation:
                return
            if has_ended:
                self.close_guest(place)
            else:
                assert self.lib.lobby_admit(self.lobby, place)

    def close_guest(self, place):
        assert self.lib.lobby_vacate(self.lobby, place, PARTING_ENDS)
        os.close(BASE + place)
        del self.generations[place]

    def accept_clients(self):
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            self.start(self.log_in, connection)

    def log_in(self, connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            size, code = struct.unpack("!II", connection.recv(8, socket.MSG_WAITALL))
            packet = connection.recv(size - 8, socket.MSG_WAITALL) if size > 8 else b""
            if code == START:
                break
            connection.sendall(b"N")
        with self.lock:
            if self.ended:
                return
            for place in range(PLACES):
                if place not in self.generations:
                    break
            else:
                raise AssertionError("no place is free")
            assert self.lib.lobby_put(self.lobby, place, connection.fileno())
            self.generations[place] = self.lib.lobby_take(self.lobby, place, 0, 0)
            assert self.generations[place]
            # The next client comes after this, and so takes a later place.
            connection.sendall(
                b"R\0\0\0\x08\0\0\0\0" + self.greeting
                + b"K\0\0\0\x0c\0\0\0\x01\0\0\0\x02" + b"Z\0\0\0\x05I"
            )
            connection.setblocking(False)
            connection.close()
            words = settings(packet)
            assert self.lib.lobby_write_login(self.lobby, place, words, len(words))
            assert self.lib.lobby_admit(self.lobby, place)

    def client(self, **asks):
        return Session(self.port, **asks)

    def alive(self):
        return sum(not getattr(one, "dead", False) for one in self.backends.values())

    def close(self):
        with self.lock:
            self.ended = True
        # No thread may use a number that is given to another socket.
        for one in (self.server, *self.controls.values()):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self.threads:
            thread.join(PATIENCE_S)
        for one in (self.server, self.control, *self.controls.values()):
            one.close()
        for backend in self.backends.values():
            backend.close()
        for place in list(self.generations):
            with self.lock:
                os.close(BASE + place)
        self.set.close()
        os.close(self.blank)
        os.close(self.memory)
