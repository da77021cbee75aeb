"""Random statements for route-diff: reads, and reads that are none, in every form that grammar allows.
The same ones in each run."""

import random

TABLES = ("t", "s.t", '"T"', "plain", "fine", "drawn", "fast", "guarded", "tenants", "locking", "parts",
          "numbers_seq", "pg_class", "pg_catalog.pg_type", "pg_stat_activity", "pg_locks", "stored")
COLUMNS = ("a", "b", "t.c", '"Select"', '"update"', "id", "v", "x.y", "*")
FUNCTIONS = ("count", "lower", "coalesce", "vol", "honest", "liar", "locker", "now", "random", "nextval",
             "pg_backend_pid", "pg_catalog.abs", "pg_advisory_lock", "s.honest", '"vol"', "max", "version",
             "careful", "txid_current", "current_setting", "pg_typeof", "overloaded", "gather", "jsonb_agg")
VALUES = ("1", "'x'", "$1", "NULL", "'it''s'", "E'a\\'b'", "$$INSERT$$", "$q$;$q$", "1.5e3", "'app.x'",
          "DATE '2020-01-01'", "B'01'", "U&'a'", "-1", "ARRAY[1,2]", "'a\\'")
OPERATORS = ("=", "<>", "!=", "<", "+", "-", "||", "->>", "@>", "<!>", "<+>", "~", "%", "<@", "AND", "OR",
             "LIKE", "IS DISTINCT FROM", "OPERATOR(public.<!>)")
BLANKS = (" ", " ", " ", "\n", " /* UPDATE */ ", " -- ;\n", "\t", " /* /* */ */ ")


class Writer:
    def __init__(self, seed):
        self.dice = random.Random(seed)

    def one(self, choices):
        return self.dice.choice(choices)

    def chance(self, share):
        return self.dice.random() < share

    def some(self, make, at_most):
        return ", ".join(make() for _ in range(self.dice.randint(1, at_most)))

    def expression(self, depth=0):
        kind = self.dice.random()
        if depth > 2 or kind < 0.35:
            return self.one(COLUMNS[:-1])
        if kind < 0.55:
            return self.one(VALUES)
        if kind < 0.75:
            return f"{self.one(FUNCTIONS)}({self.expression(depth + 1)})"
        if kind < 0.9:
            return f"{self.expression(depth + 1)} {self.one(OPERATORS)} {self.expression(depth + 1)}"
        if kind < 0.94:
            return f"({self.query(depth + 2)})"
        if kind < 0.97:
            return f"CASE WHEN {self.expression(depth + 1)} THEN 1 ELSE {self.expression(depth + 1)} END"
        return f"({self.expression(depth + 1)})::{self.one(('int', 'text', 'checked', 'numeric(1,2)'))}"

    def source(self, depth):
        kind = self.dice.random()
        if kind < 0.8 or depth > 2:
            alias = f" AS {self.one(('x', 'u', 'y'))}" if self.chance(0.3) else ""
            return self.one(TABLES) + alias
        if kind < 0.9:
            return f"({self.query(depth + 1)}) q"
        return f"{self.one(FUNCTIONS)}({self.expression(depth + 1)}) f"

    def query(self, depth=0):
        if self.chance(0.06):
            return f"VALUES ({self.some(lambda: self.expression(depth + 1), 3)})"
        if self.chance(0.06):
            return f"TABLE {self.one(TABLES)}"
        text = ""
        if self.chance(0.1) and depth < 2:
            text += f"WITH w AS ({self.query(depth + 1) if self.chance(0.7) else self.change()}) "
        text += "SELECT " + ("DISTINCT " if self.chance(0.1) else "")
        text += self.some(lambda: self.expression(depth), 3)
        if self.chance(0.03):
            text += f" INTO {self.one(('', 'TEMP '))}n"
        if self.chance(0.8):
            text += " FROM " + self.some(lambda: self.source(depth), 2)
        if self.chance(0.4):
            text += " WHERE " + self.expression(depth)
        if self.chance(0.15):
            text += " GROUP BY " + self.some(lambda: self.expression(depth + 1), 2)
        if self.chance(0.2):
            text += " ORDER BY " + self.expression(depth + 1)
        if self.chance(0.2):
            text += " LIMIT 5"
        if self.chance(0.06):
            text += " FOR " + self.one(("UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE NOWAIT"))
        if self.chance(0.06) and depth < 2:
            text = f"({text}) {self.one(('UNION', 'EXCEPT ALL'))} ({self.query(depth + 1)})"
        return text

    def change(self):
        table = self.one(TABLES)
        return self.one((
            f"INSERT INTO {table} VALUES ({self.expression(2)})",
            f"UPDATE {table} SET a = {self.expression(2)}",
            f"DELETE FROM {table} WHERE {self.expression(2)}",
            f"INSERT INTO {table} {self.query(2)} RETURNING *",
        ))

    def other(self):
        return self.one((
            "BEGIN", "BEGIN READ ONLY", "START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY",
            "START TRANSACTION READ ONLY, ISOLATION LEVEL REPEATABLE READ", "COMMIT", "SHOW work_mem",
            "BEGIN READ ONLY, NOT DEFERRABLE", "BEGIN DEFERRABLE READ ONLY", "BEGIN READ WRITE",
            f"EXPLAIN {self.query()}", f"EXPLAIN (ANALYZE, COSTS off) {self.query()}",
            f"EXPLAIN (VERBOSE) {self.query()}", f"EXPLAIN ANALYZE {self.query()}",
            f"EXPLAIN {self.change()}", f"COPY ({self.query()}) TO STDOUT", "COPY t FROM STDIN",
            f"COPY ({self.query()}) TO '/tmp/x'", f"COPY {self.one(TABLES)} TO STDOUT (FORMAT csv)",
            "TRUNCATE t", "CREATE TABLE n (a int)", f"PREPARE p AS {self.query()}", "EXECUTE p(1)",
            f"DECLARE c CURSOR FOR {self.query()}", "LOCK TABLE t", "NOTIFY a", "LISTEN a", "VACUUM t",
            f"{self.query()}; {self.query()}", f"{self.query()}; {self.change()}", "SET a.b = 'c'",
            "REFRESH MATERIALIZED VIEW stored", "DO 'BEGIN END'", "CALL p()",
            f"CREATE VIEW n AS {self.query()}", "ANALYZE t", "DISCARD ALL", "",
        ))

    def text(self):
        kind = self.dice.random()
        text = self.query() if kind < 0.75 else self.change() if kind < 0.82 else self.other()
        if self.chance(0.3):
            # Only between words, where a blank is one.
            text = "".join(self.one(BLANKS) if letter == " " and "'" not in text else letter
                           for letter in text)
        return text + self.one(("", "", ";", " ;;", " -- x"))


def texts(count, seed=1):
    writer = Writer(seed)
    found = {}
    while len(found) < count:
        found[writer.text()] = None
    return list(found)
