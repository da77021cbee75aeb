"""The oracle of route-diff: PostgreSQL's own parser (libpg_query) and the catalogs, read in another way
than Weir reads them. Views and the sources of functions are parsed, not scanned."""

import json
import re

from pglast import parser

# PostgreSQL's volatile functions that return the same kind of thing on any node.
HARMLESS = {"random", "random_normal", "clock_timestamp", "timeofday", "gen_random_uuid", "uuidv4",
            "uuidv7"}
# Functions of PostgreSQL's own that tell of the node, or of this one process.
NODE = re.compile(
    r"^(pg_stat_|pg_statio_|txid_|inet_server_|inet_client_|pg_.*(wal|xlog|recovery|snapshot|replication|backend|lock|xact|"
    r"prepared|cursor|setting|size|filepath|filenode|_ls_|_read_|control|conf|postmaster|temp|tablespace_"
    r"|logfile|sequence|shmem|timezone_names|timezone_abbrevs|memory|config|hba|promote|sleep|"
    r"notif|listening|origin|safe|blocking|progress|available|logical|physical|current_|last_|"
    r"next|export|show|visible_in|_io)|version$|current_setting$|mxid_age$|lastval$|currval$)")
SAME = re.compile(r"_is_visible$|^pg_get_serial_sequence$|^pg_get_.*def|^pg_client_encoding$")
READ = {"SelectStmt"}
WRITES = {"InsertStmt", "UpdateStmt", "DeleteStmt", "MergeStmt"}


class Oracle:
    """The facts of a database, by bare names."""

    def __init__(self, facts):
        self.functions = {}
        self.relations = {}
        self.operators = {}
        for row in facts["functions"]:
            self.functions.setdefault(row["name"], []).append(row)
        self.numbers = {row["oid"]: row for row in facts["functions"]}
        for row in facts["relations"]:
            self.relations.setdefault(row["name"], []).append(row)
        for row in facts["operators"]:
            self.operators.setdefault(row["name"], []).append(row["function"])
        self.known = {}

    def judge(self, text):
        """The reasons that the text may not run on a standby; None if it is no SQL."""
        try:
            statements = parser.parse_sql_json(text)
        except (parser.ParseError, UnicodeError, ValueError):
            return None
        try:
            statements = json.loads(statements).get("stmts", [])
        except (ValueError, RecursionError):
            return None
        if len(statements) != 1:
            return {"no single statement"}
        (kind, body), = statements[0]["stmt"].items()
        return self.of_statement(kind, body)

    def of_statement(self, kind, body):
        if kind == "TransactionStmt":
            return of_transaction(body)
        if kind == "ExplainStmt":
            options = {option["DefElem"]["defname"] for option in body.get("options", [])}
            (inner, query), = body["query"].items()
            found = {"explain analyze"} if "analyze" in options else set()
            return found | (self.within(query) if inner in READ else {f"explain {inner}"})
        if kind == "CopyStmt":
            found = {"copy"} if body.get("is_from") or "filename" in body else set()
            return found | self.within(body)
        if kind not in READ:
            return {kind}
        return self.within(body)

    def within(self, node):
        found = set()
        stack = [node]
        while stack:
            node = stack.pop()
            if isinstance(node, list):
                stack.extend(node)
            elif isinstance(node, dict):
                for key, value in node.items():
                    if isinstance(value, (dict, list)):
                        stack.append(value)
                        found |= self.of_node(key, value)
        return found

    def of_node(self, key, value):
        if key in WRITES:
            return {key}
        if key == "intoClause":
            return {"into"}
        if key == "lockingClause":
            return {"row lock"}
        if key == "FuncCall":
            name = last(value["funcname"])
            custom = name == "current_setting" and is_of_application(value)
            return set() if custom else self.of_function(name)
        if key in ("RangeVar", "relation") and "relname" in value:
            return self.of_relation(value["relname"])
        if key == "A_Expr" and value.get("name"):
            return self.of_operator(last(value["name"]))
        return set()

    def of_function(self, name):
        return self.once(("function", name), lambda: self.find_function(name))

    def find_function(self, name):
        found = set()
        for row in self.functions.get(name, [{"name": name, "volatile": False, "own": True}]):
            found |= self.of_row(row)
        return found

    def of_row(self, row):
        name, found = row["name"], set()
        if NODE.search(name) and not SAME.search(name):
            found.add(f"node: {name}()")
        if "advisory" in name:
            found.add(f"lock: {name}()")
        if row["volatile"] and not (row["own"] and name in HARMLESS):
            found.add(f"volatile: {name}()")
        if row["own"]:
            return found
        if row["language"] == "sql":
            found |= {f"{name}(): {one}" for one in self.of_source(row["source"])}
        elif row["language"] == "plpgsql":
            found |= {f"{name}(): {one}" for one in self.of_plpgsql(row["source"])}
        for part in row["parts"] or []:
            # Exactly that function, and not others of its name.
            found |= self.of_row(self.numbers[part])
        return found

    def of_relation(self, name):
        return self.once(("relation", name), lambda: self.find_relation(name))

    def find_relation(self, name):
        found = set()
        for row in self.relations.get(name, []):
            if row["kind"] in ("S", "f"):
                found.add(f"kind {row['kind']}: {name}")
            if row["persistence"] == "u":
                found.add(f"unlogged: {name}")
            if row["definition"] and not (row["own"] and name in ("pg_user", "pg_roles")):
                found |= {f"{name}: {one}" for one in self.of_source(row["definition"])}
            for text in row["policies"] or []:
                found |= {f"{name}: {one}" for one in self.of_source(f"SELECT {text}")}
            for child in row["children"] or []:
                found |= self.of_relation(child)
        return found

    def of_operator(self, name):
        found = set()
        for function in self.operators.get(name, []):
            found |= self.of_function(function)
        return found

    def of_source(self, text):
        try:
            statements = json.loads(parser.parse_sql_json(text)).get("stmts", [])
        except (parser.ParseError, ValueError):
            return set()
        found = set()
        for statement in statements:
            (kind, body), = statement["stmt"].items()
            found |= {kind} if kind not in READ | {"ReturnStmt"} else self.within(body)
        return found

    def of_plpgsql(self, text):
        """Its queries are in strings; the words around them do no harm."""
        found = set()
        for call in re.findall(r"([a-z_][a-z_0-9]*)\s*\(", text.lower()):
            if call in self.functions and call != "current_setting":
                found |= self.of_function(call)
        if re.search(r"\bexecute\b", text, re.I):
            found.add("execute")
        return found

    def once(self, key, find):
        if key not in self.known:
            self.known[key] = set()  # For what uses itself.
            self.known[key] = find()
        return self.known[key]


def is_of_application(call):
    """`current_setting('app.x')` is a setting of the session, which Weir carries."""
    argument = call.get("args", [{}])[0]
    argument = argument.get("TypeCast", {}).get("arg", argument)
    return "." in argument.get("A_Const", {}).get("sval", {}).get("sval", "")


def of_transaction(body):
    if body["kind"] not in ("TRANS_STMT_BEGIN", "TRANS_STMT_START"):
        return {"transaction"}
    options = {}
    for option in body.get("options", []):
        element = option["DefElem"]
        value = element["arg"]["A_Const"]
        options[element["defname"]] = value.get("sval", {}).get("sval") or value.get("ival", {}).get("ival", 0)
    found = set()
    if not options.get("transaction_read_only"):
        found.add("read write")
    if options.get("transaction_deferrable") or options.get("transaction_isolation") == "serializable":
        found.add("serializable")
    return found


def last(names):
    return names[-1]["String"]["sval"]


# Facts as JSON, one query each.
FACTS = {
    "functions": """
        SELECT p.oid::int8 AS oid, p.proname AS name, p.provolatile = 'v' AS volatile, l.lanname AS language,
          p.oid < 16384 AS own,
          CASE WHEN p.oid >= 16384 THEN coalesce(pg_get_function_sqlbody(p.oid), p.prosrc) END AS source,
          (SELECT array_agg(s.oid::int8) FROM pg_aggregate a, unnest(ARRAY[aggtransfn, aggfinalfn,
            aggcombinefn, aggserialfn, aggdeserialfn, aggmtransfn, aggminvtransfn, aggmfinalfn]::oid[])
            f(oid) JOIN pg_proc s ON s.oid = f.oid WHERE a.aggfnoid = p.oid AND p.oid >= 16384) AS parts
        FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
        WHERE p.prokind <> 'p' AND p.prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype)""",
    "relations": """
        SELECT c.relname AS name, c.relkind AS kind, c.relpersistence AS persistence,
          c.oid < 16384 AS own,
          CASE WHEN c.relkind = 'v' THEN pg_get_viewdef(c.oid) END AS definition,
          (SELECT array_agg(pg_get_expr(polqual, polrelid)) FROM pg_policy
            WHERE polrelid = c.oid AND polqual IS NOT NULL AND polcmd IN ('r', '*')) AS policies,
          (SELECT array_agg(k.relname) FROM pg_inherits i JOIN pg_class k ON k.oid = i.inhrelid
            WHERE i.inhparent = c.oid) AS children
        FROM pg_class c WHERE c.relkind IN ('r', 'v', 'p', 'f', 'S', 'm')
          AND c.relpersistence <> 't'""",
    "operators": """
        SELECT o.oprname AS name, p.proname AS function FROM pg_operator o
        JOIN pg_proc p ON p.oid = o.oprcode WHERE o.oid >= 16384""",
}
