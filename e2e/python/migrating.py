"""The load of a migration: four clients that never stop while the pooler before them is replaced.

usage: migrating.py URL NAMED

NAMED is "named" where prepared statements with a name outlive a transaction, else "unnamed". Each
client connects, runs twenty transactions, leaves, and begins anew. Lines on
standard input name the phase that begins; a phase "moving" is one in which connections may be refused
or lost. After each line the script answers, once every client has done five more connections in the
new phase (but "moving", which is answered at once). Ends at the end of the input with one line for
each error that a client has met outside of "moving", and with status 0 if there was none.
"""

import sys
import threading
import time

import psycopg

URL = sys.argv[1]
PREPARE_THRESHOLD = 1 if sys.argv[2] == "named" else None
CLIENTS = 4
phase = "begin"
# The number of phases "moving" that have begun. A client may notice a cut connection only later.
moves = 0
done = [0] * CLIENTS
errors = []
ended = threading.Event()


def work(number):
    turn = 0
    while not ended.is_set():
        begun = (phase, moves)
        try:
            with psycopg.connect(URL, connect_timeout=10, prepare_threshold=PREPARE_THRESHOLD) as conn:
                for _ in range(20):
                    turn += 1
                    row = conn.execute("SELECT %s::int + 1", (turn,)).fetchone()
                    assert row == (turn + 1,), row
                    conn.commit()
            done[number] += 1
        except Exception as error:
            if "moving" not in (begun[0], phase) and begun[1] == moves:
                errors.append(f"{phase}: {error}")
            time.sleep(0.02)


def next_connections():
    """Waits until each client has completed five connections more."""
    wanted = [count + 5 for count in done]
    limit = time.monotonic() + 30
    while any(have < want for have, want in zip(done, wanted)):
        if time.monotonic() > limit:
            errors.append(f"{phase}: the clients do not get on: {done} of {wanted}")
            return
        time.sleep(0.01)


threads = [threading.Thread(target=work, args=(number,)) for number in range(CLIENTS)]
for thread in threads:
    thread.start()
for line in sys.stdin:
    moves += line.strip() == "moving"
    phase = line.strip()
    if phase != "moving":
        next_connections()
    print(phase, flush=True)
ended.set()
for thread in threads:
    thread.join()
for error in errors[:20]:
    print(error)
sys.exit(1 if errors else 0)
