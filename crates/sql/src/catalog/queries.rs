//! The queries that read a database's catalogs.
//!
//! `pg_depend` does not list PostgreSQL's own functions. A view with `nextval()` has it only in the
//! tree of its rule, `pg_rewrite.ev_action`. So the queries read the numbers from the trees.

/// Some rows of the catalogs, with a query for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Functions,
    Operators,
    Relations,
    Types,
    /// The uses of aggregates, views, policies, partitions and types.
    Uses,
    /// The tables that no other part needs. Only lists with stars do.
    Tables,
}

impl Part {
    /// The parts of each catalog.
    pub const ALL: [Self; 5] =
        [Self::Functions, Self::Operators, Self::Relations, Self::Types, Self::Uses];

    /// Returns the query for PostgreSQL 14 and later. The results are read as text.
    pub const fn query(self) -> &'static str {
        match self {
            Self::Functions => FUNCTIONS,
            Self::Operators => OPERATORS,
            Self::Relations => RELATIONS,
            Self::Types => TYPES,
            Self::Uses => USES,
            Self::Tables => TABLES,
        }
    }
}

/// Triggers are not called by a text.
const FUNCTIONS: &str = "\
SELECT p.oid, p.proname, p.provolatile = 'v', l.lanname, \
CASE WHEN p.prosqlbody IS NULL THEN p.prosrc ELSE pg_catalog.pg_get_function_sqlbody(p.oid) END \
FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_language l ON l.oid = p.prolang \
WHERE (p.oid >= 16384 OR p.provolatile = 'v') AND p.prokind <> 'p' AND p.prorettype NOT IN \
('pg_catalog.trigger'::pg_catalog.regtype, 'pg_catalog.event_trigger'::pg_catalog.regtype)";

const OPERATORS: &str = "\
SELECT oid, oprname, oprcode::pg_catalog.oid FROM pg_catalog.pg_operator WHERE oid >= 16384";

const TABLES: &str = "\
SELECT oid, relname, false FROM pg_catalog.pg_class WHERE oid >= 16384 AND relkind IN ('r', 'm') \
AND relpersistence = 'p' ORDER BY oid";

/// The functions in the catalogs that PostgreSQL calls for the values of a type without their names in
/// the text: those of its casts, of its operator classes and of a range.
macro_rules! handlers {
    () => {
        "(SELECT k.castsource AS type, k.castfunc AS function FROM pg_catalog.pg_cast k \
         WHERE k.castfunc >= 16384 \
         UNION SELECT k.casttarget, k.castfunc FROM pg_catalog.pg_cast k WHERE k.castfunc >= 16384 \
         UNION SELECT m.amproclefttype, m.amproc::pg_catalog.oid FROM pg_catalog.pg_amproc m \
         WHERE m.amproc::pg_catalog.oid >= 16384 \
         UNION SELECT r.rngtypid, f.oid FROM pg_catalog.pg_range r CROSS JOIN LATERAL \
         (VALUES (r.rngcanonical::pg_catalog.oid), (r.rngsubdiff::pg_catalog.oid)) f(oid) \
         WHERE f.oid >= 16384)"
    };
}

/// These functions for each type that has some: also for arrays, domains and ranges of it. A type of
/// PostgreSQL's own would concern nearly every text, so it is left out.
macro_rules! carriers {
    () => {
        concat!(
            "(SELECT t.oid AS type, h.function FROM ",
            handlers!(),
            " h JOIN pg_catalog.pg_type t ON h.type IN (t.oid, t.typelem, t.typbasetype) \
             WHERE h.type >= 16384 \
             UNION SELECT o.type, h.function FROM ",
            handlers!(),
            " h JOIN pg_catalog.pg_range r ON r.rngsubtype = h.type CROSS JOIN LATERAL \
             (VALUES (r.rngtypid), (r.rngmultitypid)) o(type) WHERE h.type >= 16384)"
        )
    };
}

/// The tables with columns of such types, and those whose indexes and partitions use operator classes
/// with functions of a user.
macro_rules! handled_tables {
    () => {
        concat!(
            "(SELECT a.attrelid AS oid, w.function FROM ",
            carriers!(),
            " w JOIN pg_catalog.pg_attribute a ON a.atttypid = w.type \
             WHERE a.attnum > 0 AND a.attrelid >= 16384 \
             UNION SELECT i.oid, m.amproc::pg_catalog.oid FROM pg_catalog.pg_amproc m \
             JOIN pg_catalog.pg_opclass c ON c.opcfamily = m.amprocfamily JOIN (\
             SELECT x.indrelid AS oid, x.indclass AS classes FROM pg_catalog.pg_index x \
             UNION ALL SELECT p.partrelid, p.partclass FROM pg_catalog.pg_partitioned_table p) i \
             ON c.oid = ANY (i.classes) WHERE m.amproc::pg_catalog.oid >= 16384)"
        )
    };
}

/// Of ordinary tables only those that have policies or children, that a view uses, or whose values
/// PostgreSQL handles with functions of a user.
const RELATIONS: &str = concat!(
    "\
SELECT c.oid, c.relname, c.relkind IN ('S', 'f') OR c.relpersistence = 'u' \
FROM pg_catalog.pg_class c WHERE c.oid >= 16384 AND c.relpersistence <> 't' AND (\
c.relkind IN ('S', 'f', 'v', 'p') OR c.relkind IN ('r', 'm') AND (c.relpersistence = 'u' \
OR c.relhassubclass OR EXISTS (SELECT FROM pg_catalog.pg_policy WHERE polrelid = c.oid) \
OR EXISTS (SELECT FROM pg_catalog.pg_depend WHERE refobjid = c.oid \
AND refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass \
AND classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass) \
OR c.oid IN (SELECT h.oid FROM ",
    handled_tables!(),
    " h)))"
);

const TYPES: &str = "\
SELECT t.oid, t.typname FROM pg_catalog.pg_type t WHERE t.oid >= 16384 AND (\
t.typtype IN ('b', 'd', 'e', 'm', 'r') OR t.typtype = 'c' AND EXISTS (SELECT FROM \
pg_catalog.pg_class c WHERE c.oid = t.typrelid AND c.relkind = 'c'))";

macro_rules! numbers {
    ($tree:literal) => {
        concat!(
            "(SELECT pg_catalog.string_agg(DISTINCT m[1] || ' ' || m[2], ',') FROM \
             pg_catalog.regexp_matches(",
            $tree,
            "::pg_catalog.text, ':(funcid|opfuncid|opno|aggfnoid|winfnoid|hashfuncid|eqop|sortop|\
             relid) (\\d+)', 'g') m)"
        )
    };
}

/// PostgreSQL's own views are judged by their names. A materialized view is a table to its readers.
const USES: &str = concat!(
    "SELECT 'function', aggfnoid::pg_catalog.oid, pg_catalog.concat_ws(',', \
     'funcid ' || aggtransfn::pg_catalog.oid, 'funcid ' || aggfinalfn::pg_catalog.oid, \
     'funcid ' || aggcombinefn::pg_catalog.oid, 'funcid ' || aggserialfn::pg_catalog.oid, \
     'funcid ' || aggdeserialfn::pg_catalog.oid, 'funcid ' || aggmtransfn::pg_catalog.oid, \
     'funcid ' || aggminvtransfn::pg_catalog.oid, 'funcid ' || aggmfinalfn::pg_catalog.oid, \
     'sortop ' || aggsortop), \
     NULL::pg_catalog.text FROM pg_catalog.pg_aggregate \
     WHERE aggfnoid::pg_catalog.oid >= 16384 \
     UNION ALL SELECT 'function', d.oid, ",
    numbers!("d.proargdefaults"),
    ", 'SELECT ' || pg_catalog.pg_get_expr(d.proargdefaults, 0) FROM pg_catalog.pg_proc d \
     WHERE d.proargdefaults IS NOT NULL AND d.oid >= 16384 \
     UNION ALL SELECT 'relation', r.ev_class, ",
    numbers!("r.ev_action"),
    ", pg_catalog.pg_get_viewdef(r.ev_class) FROM pg_catalog.pg_rewrite r JOIN \
     pg_catalog.pg_class c ON c.oid = r.ev_class \
     WHERE r.ev_type = '1' AND c.relkind = 'v' AND c.oid >= 16384 \
     UNION ALL SELECT 'relation', p.polrelid, ",
    numbers!("p.polqual"),
    ", 'SELECT ' || pg_catalog.pg_get_expr(p.polqual, p.polrelid) FROM pg_catalog.pg_policy p \
     WHERE p.polqual IS NOT NULL AND p.polcmd IN ('r', '*') \
     UNION ALL SELECT 'relation', i.inhparent, 'relid ' || i.inhrelid, NULL \
     FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid \
     WHERE c.relkind IN ('f', 'p') OR c.relpersistence = 'u' OR c.relhassubclass \
     UNION ALL SELECT 'type', t.oid, pg_catalog.concat_ws(',', \
     'funcid ' || t.typinput::pg_catalog.oid, 'funcid ' || t.typoutput::pg_catalog.oid), NULL \
     FROM pg_catalog.pg_type t WHERE t.oid >= 16384 AND t.typtype IN ('b', 'd', 'e', 'r') \
     UNION ALL SELECT 'type', n.contypid, ",
    numbers!("n.conbin"),
    ", 'SELECT ' || pg_catalog.pg_get_expr(n.conbin, 0) FROM pg_catalog.pg_constraint n \
     WHERE n.contypid <> 0 AND n.conbin IS NOT NULL AND n.contypid >= 16384 \
     UNION ALL SELECT 'type', w.type, 'funcid ' || w.function, NULL FROM ",
    carriers!(),
    " w UNION ALL SELECT 'relation', w.oid, 'funcid ' || w.function, NULL FROM ",
    handled_tables!(),
    " w UNION ALL SELECT 'function', p.oid, 'funcid ' || w.function, NULL FROM ",
    carriers!(),
    " w JOIN pg_catalog.pg_proc p ON w.type = p.prorettype OR w.type = ANY (p.proargtypes) \
     WHERE p.oid >= 16384"
);

/// Returns one row, whose value differs after a change of what [`Part`] reads. It costs a few
/// milliseconds.
pub const CHANGES: &str = "\
SELECT pg_catalog.sum(pg_catalog.hashtextextended(\
t.kind || t.oid::pg_catalog.text || '/' || t.xmin::pg_catalog.text, 0)) FROM (\
SELECT 'p' AS kind, oid, xmin FROM pg_catalog.pg_proc \
UNION ALL SELECT 'o', oid, xmin FROM pg_catalog.pg_operator WHERE oid >= 16384 \
UNION ALL SELECT 'c', oid, xmin FROM pg_catalog.pg_class WHERE oid >= 16384 \
UNION ALL SELECT 'r', oid, xmin FROM pg_catalog.pg_rewrite WHERE oid >= 16384 \
UNION ALL SELECT 'l', oid, xmin FROM pg_catalog.pg_policy \
UNION ALL SELECT 't', oid, xmin FROM pg_catalog.pg_type WHERE oid >= 16384 \
UNION ALL SELECT 'k', oid, xmin FROM pg_catalog.pg_cast WHERE oid >= 16384 \
UNION ALL SELECT 'm', oid, xmin FROM pg_catalog.pg_amproc WHERE oid >= 16384 \
UNION ALL SELECT 'd', oid, xmin FROM pg_catalog.pg_constraint WHERE contypid <> 0) t";
