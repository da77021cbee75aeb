/*
 * complain.c: lines in the server's log about what keeps the pooler from running. The supervisor
 * tries again and again, and a line that it has just written is not written again.
 */
#include "weir.h"
#include "supervisor.h"

#include "utils/memutils.h"

static char *last = NULL;

void
complain(const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (last != NULL && strcmp(last, text) == 0)
        return;
    complain_no_more();
    last = MemoryContextStrdup(TopMemoryContext, text);
    ereport(LOG, (errmsg("weir: %s", text)));
}

/* The problem that was logged last; empty if there is none. */
const char *
complaint(void)
{
    return last == NULL ? "" : last;
}

/* The pooler serves: the next problem is a new one. */
void
complain_no_more(void)
{
    if (last != NULL)
        pfree(last);
    last = NULL;
}
