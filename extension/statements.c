/*
 * statements.c: statements of SQL's PREPARE, and channels that are listened to.
 *
 * The server's table of statements is private, so the names are kept when PREPARE is seen, and
 * asked about when a report is written. A rollback does not take a statement away, so nothing else
 * has to be followed.
 */
#include "weir.h"
#include "compat.h"

#include "commands/prepare.h"
#include "executor/executor.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"

/* Names that are kept. With more, the state cannot be told until all are forgotten. */
#define NAMES_MAX 256

static char names[NAMES_MAX][NAMEDATALEN];
static int names_count = 0;
static bool names_missing = false;

/* True if there may be channels. */
static bool listening = false;

/* A statement of SQL's PREPARE; those of the protocol do not count. */
static PreparedStatement *
prepared(const char *name)
{
    PreparedStatement *found = FetchPreparedStatement(name, false);

    return found != NULL && found->from_sql ? found : NULL;
}

static void
forget_gone(void)
{
    int kept = 0;

    for (int i = 0; i < names_count; i++) {
        if (prepared(names[i]) == NULL)
            continue;
        if (kept != i)
            memcpy(names[kept], names[i], NAMEDATALEN);
        kept++;
    }
    names_count = kept;
}

/* Keeps the name of a PREPARE that is about to be run. */
void
statements_note(const char *name)
{
    char cut[NAMEDATALEN];

    if (name == NULL)
        return;
    strlcpy(cut, name, sizeof(cut));
    for (int i = 0; i < names_count; i++)
        if (strcmp(names[i], cut) == 0)
            return;
    if (names_count == NAMES_MAX)
        forget_gone();
    if (names_count == NAMES_MAX) {
        names_missing = true;
        return;
    }
    memcpy(names[names_count++], cut, sizeof(cut));
}

/* DEALLOCATE ALL has been run. */
void
statements_forget_all(void)
{
    names_count = 0;
    names_missing = false;
}

bool
statements_write(Text *out)
{
    if (names_missing)
        return false;
    if (names_count > 0)
        forget_gone();
    for (int i = 0; i < names_count && !out->full; i++) {
        const char *query = prepared(names[i])->plansource->query_string;

        text_item(out, "p:");
        text_escaped(out, names[i], strlen(names[i]));
        text_literal(out, "=");
        text_escaped(out, query, strlen(query));
    }
    if (listening)
        channels_write(out);
    return true;
}

/* LISTEN is about to be run. */
void
channels_note(void)
{
    listening = true;
}

/* The list is the server's own: its function is called as the executor would call it. */
void
channels_write(Text *out)
{
    LOCAL_FCINFO(fcinfo, 0);
    FmgrInfo function = {0};
    ReturnSetInfo result = {0};
    ExprContext *context = CreateStandaloneExprContext();
    int found = 0;

    function.fn_addr = pg_listening_channels;
    function.fn_oid = F_PG_LISTENING_CHANNELS;
    function.fn_strict = true;
    function.fn_retset = true;
    function.fn_mcxt = CurrentMemoryContext;
    result.type = T_ReturnSetInfo;
    result.econtext = context;
    result.allowedModes = (int) SFRM_ValuePerCall;
    result.returnMode = SFRM_ValuePerCall;
    for (;;) {
        Datum value;
        char *channel;

        InitFunctionCallInfoData(*fcinfo, &function, 0, InvalidOid, NULL, (Node *) &result);
        result.isDone = ExprSingleResult;
        value = FunctionCallInvoke(fcinfo);
        if (result.isDone != ExprMultipleResult)
            break;
        found++;
        channel = TextDatumGetCString(value);
        text_item(out, "l:");
        text_escaped(out, channel, strlen(channel));
        fault_point("channels");
    }
    FreeExprContext(context, true);
    if (found == 0)
        listening = false;
}
