"""pgdriver: bun's own driver, a protocol implementation in Go."""

from harness.go import GoSuite


class PgDriver(GoSuite):
    name = "pgdriver"
    # There is no v1.3.0 of it.
    version = "v1.2.18"
    module = "github.com/uptrace/bun/driver/pgdriver"
    packages = (".",)
    changes = (("go", "mod", "edit", "-dropreplace=github.com/uptrace/bun"), ("go", "mod", "tidy"))
    setup = (("postgres", "create database test"),)
    pool_size = {"session": 20}

    def environment(self, target):
        return {"PG": f"postgres://postgres:postgres@{target.host}:{target.port}/test?sslmode=disable"}
