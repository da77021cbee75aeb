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

/// Of ordinary tables only those that have policies or children, or that a view uses.
const RELATIONS: &str = "\
SELECT c.oid, c.relname, c.relkind IN ('S', 'f') OR c.relpersistence = 'u' \
FROM pg_catalog.pg_class c WHERE c.oid >= 16384 AND c.relpersistence <> 't' AND (\
c.relkind IN ('S', 'f', 'v', 'p') OR c.relkind IN ('r', 'm') AND (c.relpersistence = 'u' \
OR c.relhassubclass OR EXISTS (SELECT FROM pg_catalog.pg_policy WHERE polrelid = c.oid) \
OR EXISTS (SELECT FROM pg_catalog.pg_depend WHERE refobjid = c.oid \
AND refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass \
AND classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass)))";

const TYPES: &str = "\
SELECT oid, typname FROM pg_catalog.pg_type WHERE oid >= 16384 AND typtype IN ('b', 'd', 'e', 'r')";

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
     'funcid ' || aggminvtransfn::pg_catalog.oid, 'funcid ' || aggmfinalfn::pg_catalog.oid), \
     NULL::pg_catalog.text FROM pg_catalog.pg_aggregate \
     WHERE aggfnoid::pg_catalog.oid >= 16384 \
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
     UNION ALL SELECT 'type', s.oid, 'funcid ' || k.castfunc, NULL FROM pg_catalog.pg_cast k \
     CROSS JOIN LATERAL (VALUES (k.castsource), (k.casttarget)) s(oid) \
     WHERE k.castfunc >= 16384 AND s.oid >= 16384",
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
UNION ALL SELECT 'd', oid, xmin FROM pg_catalog.pg_constraint WHERE contypid <> 0) t";
