"""pgjdbc's replication package. The source release leaves its tests out; the scenarios are our own."""

from harness.maven import JavaScenarioSuite

from .pgjdbc_tls import PgJdbcTls


class PgJdbcReplication(JavaScenarioSuite):
    name = "pgjdbc-replication"
    version = PgJdbcTls.version
    download = PgJdbcTls.download
    settings = {"wal_level": "logical", "max_replication_slots": 20, "max_wal_senders": 20,
                "wal_sender_timeout": "3s"}
    keys = {"ignore_startup_parameters": "extra_float_digits"}
    pool_size = {"session": 20}
    seconds_max = 300

    def environment(self, target):
        return target.libpq("postgres", "postgres")
