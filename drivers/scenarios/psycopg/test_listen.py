"""LISTEN and NOTIFY: who hears what, and when."""

from conftest import until

# Direct they come at once; this is how long one that does not come is waited for.
SECONDS = 8


def test_a_notification_reaches_who_listens(connect, name):
    one, other = connect(autocommit=True), connect(autocommit=True)
    one.execute(f"listen {name}")
    for number in range(3):
        other.execute(f"select pg_notify('{name}', 'message {number}')")
    heard = [(note.channel, note.payload) for note in one.notifies(timeout=SECONDS, stop_after=3)]
    assert heard == [(name, f"message {number}") for number in range(3)]


def test_a_notification_waits_for_the_commit(connect, name):
    one, other = connect(autocommit=True), connect()
    one.execute(f"listen {name}")
    other.execute(f"notify {name}, 'early'")
    assert list(one.notifies(timeout=0.2)) == []
    other.rollback()
    other.execute(f"notify {name}, 'late'")
    other.commit()
    assert [note.payload for note in one.notifies(timeout=SECONDS, stop_after=1)] == ["late"]


def test_one_hears_oneself(auto, name):
    auto.execute(f"listen {name}")
    auto.execute(f"notify {name}, 'to myself'")
    note, = auto.notifies(timeout=SECONDS, stop_after=1)
    assert (note.payload, note.pid) == ("to myself", auto.info.backend_pid)


def test_after_unlisten_nothing_is_heard(connect, name):
    one, other = connect(autocommit=True), connect(autocommit=True)
    one.execute(f"listen {name}")
    one.execute(f"unlisten {name}")
    other.execute(f"notify {name}")
    assert list(one.notifies(timeout=0.2)) == []


def test_listeners_are_not_inherited(connect, name):
    one = connect(autocommit=True)
    one.execute(f"listen {name}")
    one.close()
    for _ in range(3):
        other = connect(autocommit=True)
        other.execute(f"notify {name}, 'for nobody'")
        assert other.execute("select 1").fetchone() == (1,)
        assert list(other.notifies(timeout=0.1)) == []


def test_a_handler_hears_between_statements(connect, name):
    one, other, heard = connect(autocommit=True), connect(autocommit=True), []
    one.add_notify_handler(lambda note: heard.append(note.payload))
    one.execute(f"listen {name}")
    other.execute(f"notify {name}, 'by the way'")
    until(lambda: one.execute("select 1") and heard, SECONDS)
    assert heard == ["by the way"]
