/*
 * remake.c: prepares a guest's statement again, in a backend that has no copy of it.
 *
 * A statement that cannot be prepared now is postponed: the server analyzes it when the guest uses
 * it, and then the guest gets the error. So is one whose columns are not those that the guest may
 * have been told: a session of its own would raise an error, too.
 */
#include "attend.h"
#include "compat.h"

#include "access/tupdesc.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "parser/analyze.h"
#include "parser/parse_node.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/memutils.h"
#include "utils/plancache.h"
#include "utils/snapmgr.h"

#define SHORT_PATIENCE_MS 1

static uint64
mix(uint64 hash, uint64 value)
{
    return (hash ^ value) * UINT64CONST(0x100000001b3);
}

/*
 * A number for what the server compares when it refuses a statement whose columns have changed.
 * The modifier of a record's type is a number of this session.
 */
uint64
remake_columns(TupleDesc columns)
{
    uint64 hash = UINT64CONST(0xcbf29ce484222325);

    if (columns == NULL)
        return 0;
    for (int i = 0; i < columns->natts; i++) {
        Form_pg_attribute column = TupleDescAttr(columns, i);
        bool is_record = column->atttypid == RECORDOID;

        for (const char *byte = NameStr(column->attname); *byte != '\0'; byte++)
            hash = mix(hash, (unsigned char) *byte);
        hash = mix(hash, column->atttypid);
        hash = mix(hash, is_record ? 0 : (uint32) column->atttypmod);
        hash = mix(hash, column->attcollation);
    }
    return hash;
}

/* As exec_parse_message does. The transaction is ours, and has the mildest isolation. */
static CachedPlanSource *
make(const Wanted *wanted, const List *trees)
{
    RawStmt *tree = trees == NIL ? NULL : linitial_node(RawStmt, trees);
    List *queries = NIL;
    Oid *types = wanted->types;
    int types_count = wanted->types_count;
    CachedPlanSource *source;

    if (list_length(trees) > 1)
        elog(ERROR, "a statement of a guest's has more than one command");
    source = CreateCachedPlan(tree, wanted->query,
                              tree == NULL ? CMDTAG_UNKNOWN : CreateCommandTag(tree->stmt));
    if (tree != NULL) {
        PushActiveSnapshot(GetTransactionSnapshot());
        queries = pg_analyze_and_rewrite_varparams(tree, wanted->query, &types, &types_count, NULL);
        PopActiveSnapshot();
    }
    CompleteCachedPlan(source, queries, NULL, types, types_count, NULL, NULL,
                       CURSOR_OPT_PARALLEL_OK, true);
    return source;
}

/* Also of a set operation, whose leftmost part may have an INTO. */
static bool
is_select(const Node *statement)
{
    const SelectStmt *select = (const SelectStmt *) statement;

    if (!IsA(statement, SelectStmt))
        return false;
    while (select->op != SETOP_NONE)
        select = select->larg;
    return select->intoClause == NULL;
}

static bool
returns_nothing(const Node *statement)
{
    switch (nodeTag(statement)) {
        case T_InsertStmt:
            return !compat_has_returning((const InsertStmt *) statement);
        case T_UpdateStmt:
            return !compat_has_returning((const UpdateStmt *) statement);
        case T_DeleteStmt:
            return !compat_has_returning((const DeleteStmt *) statement);
        default:
            return false;
    }
}

/*
 * The text does not parse any more, as when another quotation of strings is in force: raises the
 * error of the text. The server calls this in place of an analysis.
 */
static void
refuse(ParseState *state, void *unused)
{
    (void) pg_parse_query(state->p_sourcetext);
    ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                    errmsg("the statement has to be prepared again")));
}

/* What stands in the place of a text that cannot be parsed. */
static RawStmt *
make_stand_in(void)
{
    RawStmt *tree = makeNode(RawStmt);

    tree->stmt = (Node *) makeNode(SelectStmt);
    return tree;
}

/* A column that no statement has. */
static TupleDesc
no_columns(void)
{
    TupleDesc columns = CreateTemplateTupleDesc(1);

    TupleDescInitEntry(columns, 1, "", INT4OID, -1, 0);
    return columns;
}

/*
 * A statement without its analysis. The server believes that a change of a table has made it
 * invalid, so it analyzes it before use. Columns have to be there for Describe to do so, too. They
 * may become others only for a SELECT, which always has columns: for the rest, the server raises an
 * error instead. `is_other`: for a SELECT, too.
 */
static CachedPlanSource *
postpone(const Wanted *wanted, const List *trees, bool is_other)
{
    RawStmt *tree = list_length(trees) == 1 ? linitial_node(RawStmt, trees) : NULL;
    ParserSetupHook setup = NULL;
    CachedPlanSource *source;
    MemoryContext before;

    /* The server never analyzes other commands again. */
    if (tree == NULL || !analyze_requires_snapshot(tree)) {
        tree = make_stand_in();
        setup = refuse;
    }
    source = CreateCachedPlan(tree, wanted->query, CreateCommandTag(tree->stmt));
    CompleteCachedPlan(source, NIL, NULL, wanted->types, wanted->types_count, setup, NULL,
                       CURSOR_OPT_PARALLEL_OK, is_other || !is_select(tree->stmt));
    before = MemoryContextSwitchTo(source->context);
    if (!returns_nothing(tree->stmt))
        source->resultDesc = no_columns();
    MemoryContextSwitchTo(before);
    source->is_valid = false;
    return source;
}

/* In the parse context of the guest's own Parse. */
static CachedPlanSource *
make_as_it_was(const Wanted *wanted, List **trees)
{
    TimestampTz moment = context_moment(wanted->label);
    int level = context_enter(wanted->label);
    CachedPlanSource *source;

    if (moment != 0)
        compat_set_transaction_start(moment);
    *trees = pg_parse_query(wanted->query);
    source = make(wanted, *trees);
    AtEOXact_GUC(true, level);
    return source;
}

/*
 * NULL: it cannot be prepared now. The wait for a lock is short, since other guests could be served
 * meanwhile, and it can be interrupted: no guest is attached. `trees`: the text, if it parses.
 */
static CachedPlanSource *
try_to_make(const Wanted *wanted, int *patience_ms, List **trees)
{
    MemoryContext before = CurrentMemoryContext;
    ResourceOwner owner = CurrentResourceOwner;
    uint32 holdoff = InterruptHoldoffCount;
    int lock_timeout = LockTimeout;
    TimestampTz began = GetCurrentTransactionStartTimestamp();
    CachedPlanSource *volatile source = NULL;

    BeginInternalSubTransaction(NULL);
    MemoryContextSwitchTo(before);
    PG_TRY();
    {
        LockTimeout = *patience_ms;
        RESUME_INTERRUPTS();
        source = make_as_it_was(wanted, trees);
        HOLD_INTERRUPTS();
        LockTimeout = lock_timeout;
        ReleaseCurrentSubTransaction();
    }
    PG_CATCH();
    {
        /* ERROR has let interrupts in. */
        InterruptHoldoffCount = holdoff;
        LockTimeout = lock_timeout;
        if (geterrcode() == ERRCODE_LOCK_NOT_AVAILABLE)
            *patience_ms = SHORT_PATIENCE_MS;
        source = NULL;
        MemoryContextSwitchTo(before);
        FlushErrorState();
        RollbackAndReleaseCurrentSubTransaction();
    }
    PG_END_TRY();
    compat_set_transaction_start(began);
    MemoryContextSwitchTo(before);
    CurrentResourceOwner = owner;
    return source;
}

/* A table has changed. The server analyzes other commands than these once only. */
static bool
has_other_columns(const CachedPlanSource *source, const Wanted *wanted)
{
    return remake_columns(source->resultDesc) != wanted->columns &&
           source->raw_parse_tree != NULL && analyze_requires_snapshot(source->raw_parse_tree);
}

/*
 * Prepares it, or postpones that. The transaction is ours. The statement belongs to the transaction
 * until the server saves it, so an ERROR before that frees it.
 */
CachedPlanSource *
remake(const Wanted *wanted, int *patience_ms, Remade *how)
{
    List *trees = NIL;
    CachedPlanSource *source = try_to_make(wanted, patience_ms, &trees);
    bool is_other = source != NULL && has_other_columns(source, wanted);

    *how = is_other ? REMADE_OUTDATED : source == NULL ? REMADE_LATER : REMADE_WHOLE;
    if (is_other) {
        /* The analysis may have changed the tree that it was given. */
        trees = list_make1(copyObject(source->raw_parse_tree));
        DropCachedPlan(source);
    }
    return *how == REMADE_WHOLE ? source : postpone(wanted, trees, is_other);
}
