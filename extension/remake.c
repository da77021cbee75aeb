/*
 * remake.c: prepares a guest's statement again, in a backend that has no copy of it.
 *
 * A statement that cannot be prepared now is postponed: the server analyzes it when the guest uses
 * it, and then the guest gets the error.
 */
#include "attend.h"
#include "compat.h"

#include "access/xact.h"
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
    SaveCachedPlan(source);
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

/*
 * A statement without its analysis. The server believes that a change of a table has made it
 * invalid, so it analyzes it before use. Columns have to be there for Describe to do so, too. They
 * may become others only for a SELECT, which always has columns: for the rest, the server raises an
 * error instead.
 */
static CachedPlanSource *
postpone(const Wanted *wanted, const List *trees)
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
                       CURSOR_OPT_PARALLEL_OK, !is_select(tree->stmt));
    before = MemoryContextSwitchTo(source->context);
    if (!returns_nothing(tree->stmt))
        source->resultDesc = CreateTemplateTupleDesc(0);
    MemoryContextSwitchTo(before);
    source->is_valid = false;
    SaveCachedPlan(source);
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
    CachedPlanSource *volatile source = NULL;

    BeginInternalSubTransaction(NULL);
    MemoryContextSwitchTo(before);
    PG_TRY();
    {
        LockTimeout = *patience_ms;
        RESUME_INTERRUPTS();
        *trees = pg_parse_query(wanted->query);
        source = make(wanted, *trees);
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
    MemoryContextSwitchTo(before);
    CurrentResourceOwner = owner;
    return source;
}

/* Prepares it, or postpones that. The transaction is ours. */
CachedPlanSource *
remake(const Wanted *wanted, int *patience_ms, bool *is_postponed)
{
    List *trees = NIL;
    CachedPlanSource *source = try_to_make(wanted, patience_ms, &trees);

    *is_postponed = source == NULL;
    return source != NULL ? source : postpone(wanted, trees);
}
