"""Twenty clients at a time that know what their sessions must hold."""

import random
import struct
import threading
import time

from direct.lobby import SYNC, Lobby, ask, codes, execute, message, ok, parse, query
from servers import PATIENCE_S

# The server cuts longer names to this one.
LONG = "n" * 63
NAMES = ("s0", "s1", "s2", "s3", "s4", LONG)
MANY_EXECUTES = 3000
MANY_SETTINGS = 100
BAD_LENGTHS = (0, 1 << 31, (1 << 32) - 1)


class Visit:
    """One client, from its login to its end. Its table is no other client's."""

    def __init__(self, pooler, dice, seed):
        self.client = pooler.client()
        self.dice = dice
        self.seed = seed
        self.settings, self.names = {}, {}
        self.table = f"own_{seed}"
        self.number = dice.randrange(1000)
        ok(self.client.query(
            f"DROP TABLE IF EXISTS {self.table}; CREATE TABLE {self.table} (v int);"
            f"INSERT INTO {self.table} VALUES ({self.number})"
        ))
        # The columns of the table now, and when `star` was prepared.
        self.is_wide = False
        self.was_wide = None

    def step(self):
        often = (self.sets, self.reads, self.prepares, self.closes, self.runs, self.runs, self.misses)
        seldom = (self.deallocates, self.sends_much, self.sends_bytes, self.changes_its_table)
        rarely = (self.executes_often, self.sets_many)
        kind = self.dice.randrange(40)
        self.dice.choice(rarely if kind == 0 else seldom if kind < 6 else often)()

    def sets(self):
        name, value = f"app.v{self.dice.randrange(4)}", f"{self.seed} {self.dice.random()}"
        ok(self.client.query(f"SET {name} = '{value}'"))
        self.settings[name] = value

    def sets_many(self):
        value = f"{self.seed} {self.dice.random()}"
        names = [f"app.m{number}" for number in range(MANY_SETTINGS)]
        ok(self.client.query(";".join(f"SET {name} = '{value}'" for name in names)))
        self.settings.update(dict.fromkeys(names, value))

    def reads(self):
        known = sorted(self.settings) + [f"app.v{self.dice.randrange(4)}", "app.m7"]
        name = self.dice.choice(known)
        found = ok(self.client.query(f"SELECT current_setting('{name}', true)")).value()
        assert (found or "") == self.settings.get(name, ""), f"{name}: {found}, {self.settings.get(name)}"

    def spelled(self, name):
        return name + "n" * self.dice.randrange(20) if name == LONG else name

    def close_message(self, name):
        return message(b"C", b"S" + self.spelled(name).encode() + b"\0")

    def run(self, name):
        return execute(self.spelled(name))

    def prepares(self):
        """Texts that others have, too, under this name or another."""
        name = self.dice.choice(NAMES)
        value = f"{self.dice.choice((self.seed, 'all'))} {self.dice.randrange(3)}"
        before = self.close_message(name) if name in self.names else b""
        text = parse(self.spelled(name), f"SELECT '{value}'")
        within(self.client, self.dice, before + text + SYNC)
        self.names[name] = value

    def closes(self):
        if self.names:
            name = self.dice.choice(sorted(self.names))
            within(self.client, self.dice, self.close_message(name) + SYNC)
            del self.names[name]

    def deallocates(self):
        kind = self.dice.randrange(4)
        if kind == 0:
            ok(self.client.query("DISCARD ALL"))
            self.settings.clear()
        elif kind == 1:
            within(self.client, self.dice, query("DEALLOCATE ALL"))
        elif self.names:
            name = self.dice.choice(sorted(self.names))
            within(self.client, self.dice, query(f"DEALLOCATE {self.spelled(name)}"))
            del self.names[name]
        if kind < 2:
            self.names.clear()
            self.was_wide = None

    def runs(self):
        if self.dice.randrange(2):
            ok(self.client.query("BEGIN"))
        for name in self.dice.sample(sorted(self.names), len(self.names)):
            found = ok(ask(self.client, self.run(name) + SYNC)).value()
            assert found == self.names[name], f"{name}: {found}, not {self.names[name]}"
        self.client.query("COMMIT")

    def misses(self):
        missing = self.dice.choice(NAMES)
        if missing not in self.names:
            answer = ask(self.client, self.run(missing) + SYNC)
            assert [code for code, _ in answer.errors] == ["26000"], answer

    def executes_often(self):
        for name in sorted(self.names)[:1]:
            answer = ok(ask(self.client, execute(name) * MANY_EXECUTES + SYNC))
            wrong = [row for row in answer.texts() if row != [self.names[name]]]
            assert len(answer.rows) == MANY_EXECUTES and not wrong, (len(answer.rows), wrong[:3])

    def sends_much(self):
        """A backend learns names from the first 8 KiB only."""
        length = self.dice.randrange(8_000, 60_000)
        names = sorted(self.names)
        data = parse("", f"SELECT length('{'x' * length}')") + execute("")
        data += b"".join(self.run(name) for name in names) + SYNC
        answer = within(self.client, self.dice, data)
        assert answer.texts() == [[str(length)], *([self.names[name]] for name in names)], answer

    def sends_bytes(self):
        word = f"{self.seed} {self.dice.random()}"
        data = query(f"SELECT '{word}'")
        for name in sorted(self.names)[:1]:
            data = parse("", f"SELECT '{word}'") + self.run(name) + execute("") + SYNC
        for byte in data:
            self.client.socket.sendall(bytes([byte]))
        found = ok(self.client.take(self.client.until_ready())).texts()
        assert found[-1] == [word] and len(found) <= 2, found

    def changes_its_table(self):
        if self.was_wide is None:
            data = message(b"C", b"Sstar\0") + message(b"C", b"Svalue\0")
            data += parse("star", f"SELECT * FROM {self.table}")
            ok(ask(self.client, data + parse("value", f"SELECT v FROM {self.table}") + SYNC))
            self.was_wide = self.is_wide
        self.is_wide = self.dice.randrange(2) == 0
        self.number += 1
        change = "ADD COLUMN IF NOT EXISTS w int" if self.is_wide else "DROP COLUMN IF EXISTS w"
        ok(self.client.query(
            f"ALTER TABLE {self.table} {change}; UPDATE {self.table} SET v = {self.number}"
        ))
        assert ok(ask(self.client, execute("value") + SYNC)).value() == str(self.number)
        if self.is_wide == self.was_wide:
            assert ok(ask(self.client, execute("star") + SYNC)).value() == str(self.number)
        else:
            assert codes(self.client, execute("star") + SYNC)[1] == ["0A000"]

    def leave(self):
        client, kind = self.client, self.dice.randrange(6)
        if kind == 0:
            client.socket.sendall(message(b"X"))
        elif kind == 1:
            behind = self.dice.choice((b"", b"Q", query(f"DROP TABLE {self.table}"), message(b"X")))
            client.socket.sendall(query("SELECT 'last'") + message(b"X") + behind)
            assert ok(client.take(client.until_ready())).value() == "last"
            assert ends(client)
        elif kind == 2:
            length = self.dice.choice(BAD_LENGTHS)
            client.socket.sendall(b"Q" + struct.pack("!I", length) + b"junk")
            assert ends(client)
        elif kind == 3:
            client.socket.sendall(query("SELECT 'part'")[: self.dice.randrange(1, 12)])
        client.close()


def ends(client):
    """The connection is closed, without another answer."""
    try:
        return client.socket.recv(100) == b""
    except ConnectionResetError:
        return True


def within(client, dice, data):
    """Within a transaction, by itself, or in two pieces."""
    kind = dice.randrange(3)
    if kind == 0:
        ok(client.query("BEGIN"))
    if kind == 1:
        cut = dice.randrange(1, len(data))
        client.socket.sendall(data[:cut])
        time.sleep(dice.random() / 500)
        data = data[cut:]
    answer = ok(ask(client, data))
    if kind == 0:
        ok(client.query(dice.choice(("COMMIT", "ROLLBACK"))))
    return answer


def torture(pooler, seed, seconds, failures, counts):
    dice = random.Random(seed)
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            visit = Visit(pooler, dice, seed)
            for _ in range(dice.randrange(1, 60)):
                visit.step()
                counts[seed] += 1
            visit.leave()
    except Exception as error:
        failures.append(f"seed {seed}: {error!r}")


def direct_torture(run):
    with Lobby(run, backends=4) as pooler:
        failures, counts = [], [0] * 20
        threads = [
            threading.Thread(
                target=torture, args=(pooler, seed, run.torture_seconds, failures, counts)
            )
            for seed in range(len(counts))
        ]
        for thread in threads:
            thread.start()
        end = time.monotonic() + run.torture_seconds + PATIENCE_S
        for thread in threads:
            thread.join(max(0, end - time.monotonic()))
        hung = sum(thread.is_alive() for thread in threads)
        print(f"extension: torture: {sum(counts)} steps on {run.major}, {len(failures)} wrong, {hung} hung")
        assert not hung, "a client waits for ever"
        assert not failures, failures[:3]
        assert min(counts) > 0, counts
