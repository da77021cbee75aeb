/*
 * events.c: events of a session that leave no visible state, such as a call of setseed().
 *
 * Calls of PostgreSQL's own functions are seen by object_access_hook, wherever they stand: the
 * executor asks for permission when it prepares an expression. Utility statements are seen by
 * ProcessUtility_hook, also those that a function runs. With weir.unsupported = error the hook
 * refuses them.
 */
#include "attend.h"
#include "compat.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "tcop/utility.h"
#include "utils/fmgroids.h"
#include "utils/syscache.h"

typedef enum Event {
    EVENT_DISCARD, /* the numbers of sequences were forgotten, before all that is listed with it */
    EVENT_CURRVAL,
    EVENT_LASTVAL,
    EVENT_SETSEED,
    EVENT_LOAD,
    EVENT_BACKUP,
    EVENT_ORIGIN,
    EVENT_DBLINK,
    EVENT_SLOT,
    EVENTS
} Event;

static const char *const words[EVENTS] = {
    "discard", "currval", "lastval", "setseed", "load", "backup", "origin", "dblink", "slot",
};

static uint32 pending = 0;
static uint64 number = 0;

/* A number was drawn. It is in no report. */
static bool drawn = false;

static object_access_hook_type next_object_access = NULL;
static ProcessUtility_hook_type next_utility = NULL;
static GucRealCheckHook next_check_seed = NULL;

static void object_access(ObjectAccessType access, Oid classId, Oid objectId, int subId, void *arg);
static void utility(PlannedStmt *planned, const char *query, bool readOnlyTree,
                    ProcessUtilityContext context, ParamListInfo params,
                    QueryEnvironment *environment, DestReceiver *dest, QueryCompletion *completion);
static bool check_seed(double *newval, void **extra, GucSource source);

void
events_install(void)
{
    struct config_generic *seed = compat_setting("seed");

    next_object_access = object_access_hook;
    object_access_hook = object_access;
    next_utility = ProcessUtility_hook;
    ProcessUtility_hook = utility;
    /* SET seed and set_config('seed', …) begin a series as setseed() does. */
    if (seed != NULL && seed->vartype == PGC_REAL) {
        next_check_seed = ((struct config_real *) seed)->check_hook;
        ((struct config_real *) seed)->check_hook = check_seed;
    }
}

bool
events_pending(void)
{
    return pending != 0;
}

/* Forgets the events. True: one of them leaves state that only this session has. */
bool
events_take(Numbers *numbers)
{
    const uint32 questions = 1 << EVENT_CURRVAL | 1 << EVENT_LASTVAL;
    bool binds = (pending & ~(questions | 1 << EVENT_DISCARD)) != 0;

    /* The client has its answer about a number of the same transaction. */
    if ((pending & questions) != 0)
        *numbers = drawn ? NUMBERS_NONE : NUMBERS_ASKED;
    else
        *numbers = drawn ? NUMBERS_DRAWN : NUMBERS_NONE;
    drawn = false;
    pending = 0;
    return binds;
}

void
events_write(Text *out)
{
    char digits[32];
    const char *separator = ":";

    drawn = false;
    if (pending == 0)
        return;
    number++;
    text_item(out, "e:");
    snprintf(digits, sizeof(digits), UINT64_FORMAT, number);
    text_literal(out, digits);
    for (Event event = 0; event < EVENTS; event++) {
        if ((pending & (1 << event)) == 0)
            continue;
        text_literal(out, separator);
        text_literal(out, words[event]);
        separator = ",";
    }
    pending = 0;
}

static const char refusal[] =
    "this statement needs a session of its own (auto_unsupported = error)";

static void
note(Event event)
{
    if (weir_unsupported == UNSUPPORTED_ERROR)
        ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg_internal("%s", refusal)));
    pending |= 1 << event;
}

/* Tells that the session holds a temporary replication slot. */
void
events_note_slot(void)
{
    pending |= 1 << EVENT_SLOT;
}

/* A function of the contributed module dblink that opens a connection which stays. */
static bool
is_dblink(Oid function)
{
    HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
    bool is = false;

    if (HeapTupleIsValid(tuple)) {
        Form_pg_proc form = (Form_pg_proc) GETSTRUCT(tuple);

        is = form->prolang == ClanguageId &&
             (strcmp(NameStr(form->proname), "dblink_connect") == 0 ||
              strcmp(NameStr(form->proname), "dblink_connect_u") == 0);
        ReleaseSysCache(tuple);
    }
    return is;
}

static void
function_called(Oid function)
{
    switch (function) {
        case F_CURRVAL:
            note(EVENT_CURRVAL);
            break;
        case F_LASTVAL:
            note(EVENT_LASTVAL);
            break;
        case F_NEXTVAL:
        case F_SETVAL_REGCLASS_INT8:
        case F_SETVAL_REGCLASS_INT8_BOOL:
            drawn = true;
            break;
        case F_SETSEED:
            note(EVENT_SETSEED);
            break;
        case F_SET_CONFIG:
            context_note_set(NULL);
            break;
        case F_PG_BACKUP_START:
            note(EVENT_BACKUP);
            break;
        case F_PG_REPLICATION_ORIGIN_SESSION_SETUP:
            note(EVENT_ORIGIN);
            break;
        case F_PG_CREATE_PHYSICAL_REPLICATION_SLOT:
        case F_PG_CREATE_LOGICAL_REPLICATION_SLOT:
        case F_PG_COPY_PHYSICAL_REPLICATION_SLOT_NAME_NAME_BOOL:
        case F_PG_COPY_PHYSICAL_REPLICATION_SLOT_NAME_NAME:
        case F_PG_COPY_LOGICAL_REPLICATION_SLOT_NAME_NAME_BOOL_NAME:
        case F_PG_COPY_LOGICAL_REPLICATION_SLOT_NAME_NAME_BOOL:
        case F_PG_COPY_LOGICAL_REPLICATION_SLOT_NAME_NAME:
            slots_note();
            break;
        default:
            if (function >= FirstNormalObjectId && is_dblink(function))
                note(EVENT_DBLINK);
            break;
    }
}

static void
object_access(ObjectAccessType access, Oid classId, Oid objectId, int subId, void *arg)
{
    if (next_object_access != NULL)
        next_object_access(access, classId, objectId, subId, arg);
    if (access == OAT_FUNCTION_EXECUTE && classId == ProcedureRelationId) {
        apply_check();
        function_called(objectId);
    }
}

static void
utility(PlannedStmt *planned, const char *query, bool readOnlyTree, ProcessUtilityContext context,
        ParamListInfo params, QueryEnvironment *environment, DestReceiver *dest,
        QueryCompletion *completion)
{
    Node *statement = planned->utilityStmt;
    bool forgets_numbers = false;
    bool forgets_statements = false;
    bool changes_names = false;

    apply_check();
    switch (nodeTag(statement)) {
        case T_PrepareStmt:
            statements_note(((PrepareStmt *) statement)->name);
            break;
        case T_DeallocateStmt:
            changes_names = true;
            forgets_statements = ((DeallocateStmt *) statement)->name == NULL;
            break;
        case T_ListenStmt:
            channels_note();
            break;
        case T_LoadStmt:
            note(EVENT_LOAD);
            break;
        case T_VariableSetStmt:
            context_note_set(((VariableSetStmt *) statement)->name);
            break;
        case T_ExecuteStmt:
            /* The function around it may have settings of its own. */
            if (context != PROCESS_UTILITY_TOPLEVEL)
                context_note_set(NULL);
            break;
        case T_DiscardStmt:
            forgets_statements = ((DiscardStmt *) statement)->target == DISCARD_ALL;
            if (forgets_statements)
                context_note_set(NULL);
            forgets_numbers =
                forgets_statements || ((DiscardStmt *) statement)->target == DISCARD_SEQUENCES;
            break;
        default:
            break;
    }
    if (next_utility != NULL)
        next_utility(planned, query, readOnlyTree, context, params, environment, dest, completion);
    else
        standard_ProcessUtility(planned, query, readOnlyTree, context, params, environment, dest,
                                completion);
    /* The statement itself may be freed by now: a procedure can roll back. */
    if (changes_names || forgets_statements)
        names_note_change();
    if (forgets_statements)
        statements_forget_all();
    if (forgets_numbers) {
        drawn = false;
        pending &= ~((1 << EVENT_CURRVAL) | (1 << EVENT_LASTVAL));
        pending |= 1 << EVENT_DISCARD;
    }
}

/* PostgreSQL begins the series when it assigns the value, unless it comes from a file. */
static bool
check_seed(double *newval, void **extra, GucSource source)
{
    if (source == PGC_S_SESSION) {
        if (weir_unsupported == UNSUPPORTED_ERROR) {
            GUC_check_errcode(ERRCODE_FEATURE_NOT_SUPPORTED);
            GUC_check_errmsg("%s", refusal);
            return false;
        }
        pending |= 1 << EVENT_SETSEED;
    }
    return next_check_seed == NULL || next_check_seed(newval, extra, source);
}
