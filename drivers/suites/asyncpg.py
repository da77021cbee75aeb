"""asyncpg: prepared statements by default, pipelines, COPY both ways, cancel, listeners."""

from harness.python import PytestSuite


class Asyncpg(PytestSuite):
    name = "asyncpg"
    version = "0.32.0"
    project = "asyncpg"
    requirements = ("asyncpg==0.32.0", "distro==1.9.0")
    settings = {"max_prepared_transactions": 10}
    # test_pool opens 20 connections of one user at a time.
    pool_size = {"session": 30}
    keys = {"ignore_startup_parameters": "client_min_messages"}
    left_out = {
        "tests/test__environment.py": "wants variables of its authors' CI",
        "tests/test__sourcecode.py": "looks at the driver's sources",
    }

    ends_backends = (
        "tests/test_execute.py::TestExecuteScript::test_execute_script_interrupted_by_server",
        "tests/test_pool.py::TestPool::test_pool_remote_close",
    )

    def environment(self, target):
        return target.libpq("postgres", "postgres")
