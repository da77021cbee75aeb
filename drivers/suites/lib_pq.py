"""lib/pq: Go's oldest driver; unnamed statements, COPY, listeners, cancel."""

from harness.go import GoSuite


class LibPq(GoSuite):
    name = "lib-pq"
    version = "v1.12.3"
    module = "github.com/lib/pq"
    setup = (
        ("postgres", "create role pqgo login superuser; create database pqgo owner pqgo"),
    )
    # Two of them are unknown to PostgreSQL, which is to say so itself.
    users = {"pqgo": "", "postgres": "", "pqgounknown": "", "thisuserreallydoesntexist": ""}
    # A login within 100 ms, or the whole package panics: not on a busy machine.
    patches = ((
        "notify_test.go",
        'time.After(100 * time.Millisecond):\n\t\tpanic("wantEvent: timeout")',
        'time.After(10 * time.Second):\n\t\tpanic("wantEvent: timeout")',
    ),)
    pool_size = {"session": 20}

    ends_backends = ("TestPing",)

    def environment(self, target):
        return target.libpq("pqgo", "pqgo")
