"""Twenty clients at a time that know what their sessions must hold."""

import random
import threading
import time

from direct.lobby import SYNC, Lobby, ask, execute, message, ok, parse
from servers import PATIENCE_S


def torture(pooler, seed, seconds, failures, counts):
    """One client that knows what its session must hold."""
    dice = random.Random(seed)
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            client = pooler.client()
            settings, names = {}, {}
            for _ in range(dice.randrange(1, 60)):
                one_step(client, dice, seed, settings, names)
                counts[0] += 1
            leave(client, dice)
    except Exception as error:
        failures.append(f"seed {seed}: {error!r}")


def one_step(client, dice, seed, settings, names):
    kind = dice.randrange(8)
    if kind == 0:
        name, value = f"app.v{dice.randrange(4)}", f"{seed} {dice.random()}"
        ok(client.query(f"SET {name} = '{value}'"))
        settings[name] = value
    elif kind == 1:
        name = f"app.v{dice.randrange(4)}"
        found = ok(client.query(f"SELECT current_setting('{name}', true)")).value()
        assert (found or "") == settings.get(name, ""), f"{name}: {found}, {settings.get(name)}"
    elif kind == 2:
        name, value = f"s{dice.randrange(5)}", f"{dice.choice((seed, 'all'))} {dice.randrange(3)}"
        data = message(b"C", b"S" + name.encode() + b"\0") + parse(name, f"SELECT '{value}'") + SYNC
        within(client, dice, data)
        names[name] = value
    elif kind == 3 and names:
        name = dice.choice(sorted(names))
        within(client, dice, message(b"C", b"S" + name.encode() + b"\0") + SYNC)
        del names[name]
    elif kind in (4, 5, 6):
        ok(client.query("BEGIN")) if dice.randrange(2) else None
        for name in dice.sample(sorted(names), len(names)):
            found = ok(ask(client, execute(name) + SYNC)).value()
            assert found == names[name], f"{name}: {found}, not {names[name]}"
        client.query("COMMIT")
    else:
        missing = f"s{dice.randrange(5)}"
        if missing not in names:
            answer = ask(client, execute(missing) + SYNC)
            assert [code for code, _ in answer.errors] == ["26000"], answer


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
    ok(ask(client, data))
    if kind == 0:
        ok(client.query(dice.choice(("COMMIT", "ROLLBACK"))))


def leave(client, dice):
    if dice.randrange(2):
        client.socket.sendall(message(b"X"))
    client.close()


def direct_torture(run):
    with Lobby(run, backends=4) as pooler:
        failures, counts = [], [0]
        threads = [
            threading.Thread(
                target=torture, args=(pooler, seed, run.torture_seconds, failures, counts)
            )
            for seed in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(run.torture_seconds + PATIENCE_S)
        assert not any(thread.is_alive() for thread in threads), "a client waits for ever"
        assert not failures, failures[:3]
        print(f"extension: torture: {counts[0]} steps on {run.major}")
