/*
 * guard.c: runs something that may raise an ERROR, where none may leave the library.
 */
#include "attend.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

static MemoryContext memory = NULL;

/* Work of the library's own is being done. */
static bool is_up = false;

bool
guard_is_up(void)
{
    return is_up;
}

static void
log_failure(MemoryContext context, const char *what)
{
    PG_TRY();
    {
        ErrorData *error;

        MemoryContextSwitchTo(context);
        error = CopyErrorData();
        FlushErrorState();
        ereport(LOG_SERVER_ONLY,
                (errmsg("weir: %s: %s", what, error->message ? error->message : "no message")));
    }
    PG_CATCH();
    {
        FlushErrorState();
    }
    PG_END_TRY();
}

/*
 * False: `work` has returned it, or has failed. No transaction is open before and after, and the
 * memory that `work` allocates is freed. A cancel request does not end it. Nothing that core says
 * meanwhile is sent: a client that asks for debug messages would get those of transactions that are
 * not its own, and core's flush of each message would look like the end of the client's. The
 * server's log says `what` has failed and why; NULL: it says nothing.
 */
bool
guarded(bool (*work)(void *argument), void *argument, const char *what)
{
    MemoryContext before = CurrentMemoryContext;
    ResourceOwner owner = CurrentResourceOwner;
    uint32 holdoff = InterruptHoldoffCount;
    uint32 cancel_holdoff = QueryCancelHoldoffCount;
    volatile bool done = false;

    is_up = true;
    HOLD_INTERRUPTS();
    PG_TRY();
    {
        if (memory == NULL)
            memory = AllocSetContextCreate(TopMemoryContext, "weir guest", ALLOCSET_DEFAULT_SIZES);
        MemoryContextSwitchTo(memory);
        done = work(argument);
        MemoryContextSwitchTo(memory);
        MemoryContextReset(memory);
    }
    PG_CATCH();
    {
        done = false;
        if (what != NULL)
            log_failure(before, what);
        else
            FlushErrorState();
        LWLockReleaseAll();
        AbortOutOfAnyTransaction();
    }
    PG_END_TRY();
    InterruptHoldoffCount = holdoff;
    QueryCancelHoldoffCount = cancel_holdoff;
    CurrentResourceOwner = owner;
    MemoryContextSwitchTo(before);
    is_up = false;
    return done;
}

/* The context in which the transaction was begun: before 17, its end switches to another one. */
static MemoryContext around = NULL;

/* A transaction of the library's own. Its snapshot never waits, whatever the defaults are. */
void
own_transaction_begin(void)
{
    around = CurrentMemoryContext;
    StartTransactionCommand();
    XactIsoLevel = XACT_READ_COMMITTED;
    XactDeferrable = false;
}

void
own_transaction_end(void)
{
    CommitTransactionCommand();
    MemoryContextSwitchTo(around);
}
