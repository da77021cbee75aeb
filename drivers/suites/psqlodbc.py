"""psqlodbc: PostgreSQL's ODBC driver, by pyodbc. The scenarios are our own."""

from harness.script import ScriptSuite


class Psqlodbc(ScriptSuite):
    name = "psqlodbc"
    package = "odbc-postgresql"
    # Debian's own, since that is the one its pyodbc belongs to.
    command = ("/usr/bin/python3", "-B", "scenarios.py")
