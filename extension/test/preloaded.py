"""Cases on a second server: the library is preloaded by the postmaster, postgresql.conf asks for reports
without effect, and the library fails where app.fault says."""

import cases
from cases import ok
from servers import Cluster
from session import Session


def case_preloaded_library_reports_to_who_asks_only(run):
    assert run.session().greeting.reports == ["v1;w:1.1"]
    plain = Session(run.cluster.port)
    assert not plain.greeting.reports and not ok(plain.query("SET work_mem = '2MB'")).reports
    assert ok(plain.query("SHOW weir.report")).value() == "0"
    workers = run.session()
    for text in (
        "SET debug_parallel_query = on" if run.major >= 16 else "SET force_parallel_mode = on",
        "CREATE TEMP TABLE mine (a int)", "SELECT count(*) FROM pg_class",
    ):
        ok(workers.query(text))
    assert "t" in workers.state, workers.state


def case_preloaded_library_refuses_a_name_of_its_own_prefix(run):
    try:
        run.session(weir__nothing="1")
    except ConnectionError as error:
        assert "invalid configuration parameter name" in str(error), error
    else:
        raise AssertionError("let in")


def case_preloaded_failures_are_reported_and_leave_nothing(run):
    for place, text in (
        ("settings", "SELECT 1"), ("channels", "LISTEN a"), ("temporary", "CREATE TEMP TABLE m (a int)"),
    ):
        session = run.session()
        ok(session.query(f"SET app.fault = '{place}'"))
        ok(session.query(text))
        assert session.state == ["u"], (place, session.state)
        answer = ok(session.query("SELECT setseed(0.1)"))
        assert answer.reports == ["v1;u;e:1:setseed"], (place, answer.reports)
        for _ in range(200):
            ok(session.query("SELECT 1"))
        answer = ok(session.query("SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()"))
        assert int(answer.value()) <= 3, "those of the question itself"
        ok(session.query("RESET app.fault"))
        expected = {"settings": [], "channels": ["l:a"], "temporary": ["t"]}[place]
        assert session.state == expected, (place, session.state)


def case_preloaded_failures_are_logged_once(run):
    log = run.cluster.log.read_text(errors="replace")
    before = log.count("cannot be reported: fault at settings")
    session = run.session()
    ok(session.query("SET app.fault = 'settings'"))
    for _ in range(10):
        ok(session.query("SELECT 1"))
    log = run.cluster.log.read_text(errors="replace")
    assert log.count("cannot be reported: fault at settings") == before + 1


def case_preloaded_replication_is_unharmed(run):
    """Its workers have the library here."""
    cases.case_logical_replication_is_unharmed(run)


def case_preloaded_without_random_bytes_there_is_no_start(run):
    """The pooler would have an empty text for its secret."""
    settings = "shared_preload_libraries = 'weir'\nweir.program = '/bin/false'\napp.fault = 'cookie'\n"
    name = f"{run.major}-no-random"
    try:
        cluster = Cluster(run.installation, run.work, name, run.work / f"library-{run.major}-faults", settings)
    except SystemExit as error:
        assert "FATAL:  weir: the pooler's secret cannot be made" in str(error), error
    else:
        cluster.stop()
        raise AssertionError("the server has started")
