"""Runs the table of states and the cases on one server."""

import inspect
import traceback

import cases
from session import Session
from table import ERROR, NOT_ASKED, ORACLE, REFUSAL, SAME, TABLE, UNLISTED


class Run:
    def __init__(self, installation, cluster, library, work, only):
        self.major = installation.major
        self.installation = installation
        self.cluster = cluster
        self.library = library
        self.work = work
        self.only = only
        self.passed = 0
        self.steps = 0
        self.failures = []

    def session(self, **asks):
        return Session(self.cluster.port, **{"weir__report": 1, **asks})

    def all(self):
        for group in TABLE:
            self.one(f"table: {group.name}", lambda group=group: steps(self, group))
        self.at(self.cluster, cases)

    def at(self, cluster, module, prefix="case_"):
        """The cases of a module whose names begin so, on that server."""
        self.cluster = cluster
        for name, case in inspect.getmembers(module, inspect.isfunction):
            if case.__module__ == module.__name__ and name.startswith(prefix):
                self.one(name.removeprefix("case_"), lambda case=case: case(self))

    def one(self, name, test):
        if self.only not in name:
            return
        try:
            test()
            self.passed += 1
        except Exception as error:
            self.failures.append(f"{name}: {error}")
            if not isinstance(error, AssertionError):
                traceback.print_exc()


def steps(run, group):
    session = run.session(user=group.user, **group.asks)
    asked = run.session()
    pid = session.query("SELECT pg_backend_pid()").value()
    expected = []
    for step in group.steps:
        text, state, events, *failure = step
        before, number = session.state, last_number(session)
        answer = session.query(text)
        where = f"{group.name}: {text}"
        failed = [code for code, _ in answer.errors]
        if failure == [ERROR]:
            assert failed, f"{where}: did not fail"
        elif failure:
            assert answer.errors == [(failure[0], REFUSAL)], f"{where}: {answer.errors}"
        else:
            assert not failed, f"{where}: {answer.errors}"
        if state is not SAME:
            expected = sorted(item for item in state.split(";") if item)
        assert session.state == expected, f"{where}: {session.state}, not {expected}"
        words = [word for _, word in session.events]
        assert words == ([events.split(",")] if events else []), f"{where}: {words}, not {events}"
        if session.events:
            assert session.events[0][0] == number + 1, f"{where}: numbers {session.events}"
            session.number = session.events[0][0]
        told = 1 if events or session.state != before else 0
        assert len(answer.reports) == told, f"{where}: {answer.reports}"
        assert not told or answer.is_last, f"{where}: not right before ReadyForQuery"
        if answer.status == "I" and not group.asks:
            compare(session, expected, where)
        run.steps += 1
    session.close()
    asked.close()
    del pid


def last_number(session):
    return getattr(session, "number", 0)


def compare(session, expected, where):
    """With what pg_settings tells, where the session may see it."""
    told = {tuple(item[2:].split("=", 1)) for item in expected if item.startswith("s:")}
    told = {(plain(name), plain(value)) for name, value in told}
    answer = session.query(ORACLE)
    listed = {(name, value) for name, value in answer.texts()}
    names = {name for name, _ in listed}
    differs = {one for one in told if one[0] in names} ^ listed
    exact = {one for one in differs if one[0] not in ("random_page_cost", "dynamic_library_path")}
    assert not exact, f"{where}: pg_settings tells otherwise: {exact}"
    assert not answer.reports, f"{where}: a SELECT made a report"


def plain(text):
    parts = text.split("\\")
    head, rest = parts[0], parts[1:]
    return head + "".join(chr(int(part[:3], 8)) + part[3:] for part in rest)
