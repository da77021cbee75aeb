"""River: a job queue over pgx; LISTEN and NOTIFY, leadership by leases, advisory locks, COPY, schemas
of its own for each test."""

from harness.go import GoSuite


class River(GoSuite):
    name = "river"
    version = "v0.31.0"
    module = "github.com/riverqueue/river"
    modes = ("session", "auto")
    # The workspace names modules that are not in this one; go.sum leaves out those of the repository.
    changes = (("rm", "go.work"), ("go", "mod", "tidy"))
    setup = (("postgres", "create database river_test"),)
    # 15 for the tests' common pool, and 4 for each of those that tests make of it.
    pool_size = {"session": 60, "auto": 30}
    # Its stress tests start and stop a job up to 500 times inside of one transaction, with pauses of
    # random length: straight against PostgreSQL one of them takes 0.02 to 12 s.
    keys = {"idle_transaction_timeout": 120}
    left_out = {
        "Test_Producer_CanSafelyCompleteJobsWhileFetchingNewOnes": "has to do 10,000 jobs in 20 s",
    }

    def environment(self, target):
        url = f"postgres://postgres@{target.host}:{target.port}/river_test"
        # By the second its tests wait for ten seconds in place of three.
        return {"TEST_DATABASE_URL": f"{url}?pool_max_conns=15&sslmode=disable",
                "GITHUB_ACTIONS": "true"}
