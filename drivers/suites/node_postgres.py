"""node-postgres: a protocol implementation in JavaScript, with pg-cursor, pg-query-stream,
pg-copy-streams and pg-pool. Its packages carry no tests; these are our own."""

from harness.node import NodeSuite


class NodePostgres(NodeSuite):
    name = "node-postgres"
    version = "8.23.1"
    settings = {"max_prepared_transactions": 20}
    # Beside the scenarios' own connections, forty at a time are compared with one another.
    pool_size = {"session": 60}
    users = {"postgres": "", "alice": "secret"}
    setup = (("postgres", "create role alice login; grant all on schema public to alice"),)

    def environment(self, target):
        return {**target.libpq("postgres", "postgres"), "DIRECT_PORT": str(target.lab.port)}
