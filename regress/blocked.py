"""Rewrites the question which sessions block each other, to use names.

The isolation tests' driver asks PostgreSQL whether one of its sessions waits for another one, by the
process ids that its connections were told at login. In auto mode those are nobody's: the process
changes from transaction to transaction. What stays is the name that the driver gives each of its
connections (application_name), which Weir carries to whatever server the connection has. So the one
statement with that question is prepared with another text on its way: the same function, of the
processes that bear these names when it is asked. Nothing else that the driver says is touched.
"""

import re
import struct

QUESTION = re.compile(
    rb"SELECT pg_catalog\.pg_isolation_test_session_is_blocked\(\$1, '\{([\d,]+)\}'\)"
)
TEXT = """
SELECT coalesce(bool_or(pg_catalog.pg_isolation_test_session_is_blocked(
  waits.pid, ARRAY(
    SELECT pid FROM pg_catalog.pg_stat_get_activity(NULL) WHERE application_name IN ({all})))), false)
FROM pg_catalog.pg_stat_get_activity(NULL) waits
WHERE application_name = CASE $1::int {cases} END
"""


def with_names(message, names):
    """A client's message; if it prepares the question, it comes back as the one that asks for `names`,
    which are those of the told process ids."""
    if message[:1] != b"P" or not (asked := QUESTION.search(message)):
        return message
    pids = [int(pid) for pid in asked.group(1).split(b",")]
    cases = " ".join(f"WHEN {pid} THEN {quoted(names[pid])}" for pid in pids)
    text = TEXT.format(all=", ".join(quoted(names[pid]) for pid in pids), cases=cases)
    body = message[5:].replace(asked.group(0), text.encode())
    return b"P" + struct.pack("!I", len(body) + 4) + body


def quoted(name):
    return "'" + name.replace("'", "''") + "'"
