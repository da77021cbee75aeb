/*
 * objects.c: temporary objects, locks of the session, cursors WITH HOLD, temporary replication
 * slots.
 */
#include "weir.h"
#include "compat.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_namespace.h"
#include "miscadmin.h"
#include "nodes/memnodes.h"
#include "replication/slot.h"
#include "storage/lmgr.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/rel.h"

/* True if the temporary schema has objects, as far as is known. */
static bool has_temporary = false;

/* True if has_temporary must be looked up again. */
static bool stale = true;

static bool slots_used = false;

/*
 * A transaction that makes or drops a temporary object has touched the temporary schema. One that
 * drops something else may drop it by a dependency, and has written to the catalog then.
 */
static void
transaction_ended(XactEvent event, void *arg)
{
    if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
        return;
    if (MyXactFlags & XACT_FLAGS_ACCESSEDTEMPNAMESPACE)
        stale = true;
    else if (has_temporary && TransactionIdIsValid(GetTopTransactionIdIfAny()))
        stale = true;
}

void
objects_install(void)
{
    RegisterXactCallback(transaction_ended, NULL);
}

/*
 * Returns whether anything depends on the schema. This is one look into an index, in a transaction
 * of its own, with a snapshot of the catalog only. Returns false if a lock is not free.
 */
static bool
look_up_temporary(Oid schema)
{
    bool locked;

    StartTransactionCommand();
    locked = ConditionalLockRelationOid(DependRelationId, AccessShareLock) &&
             ConditionalLockRelationOid(DependReferenceIndexId, AccessShareLock);
    if (locked) {
        Relation depend = table_open(DependRelationId, NoLock);
        ScanKeyData keys[2];
        SysScanDesc scan;

        ScanKeyInit(&keys[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ,
                    ObjectIdGetDatum(NamespaceRelationId));
        ScanKeyInit(&keys[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ,
                    ObjectIdGetDatum(schema));
        scan = systable_beginscan(depend, DependReferenceIndexId, true, NULL, 2, keys);
        has_temporary = HeapTupleIsValid(systable_getnext(scan));
        fault_point("temporary");
        systable_endscan(scan);
        table_close(depend, NoLock);
    }
    CommitTransactionCommand();
    return locked;
}

/* Returns the parent of all portals' memory contexts. The server's pointer to it is private. */
static MemoryContext
portal_contexts(void)
{
    static MemoryContext found = NULL;

    if (found == NULL)
        found = TopMemoryContext->firstchild;
    while (found != NULL && strcmp(found->name, "TopPortalContext") != 0)
        found = found->nextchild;
    return found;
}

/*
 * Returns whether the portal is ready, or is a cursor WITH HOLD that has failed. The server's own
 * function leaves out the second, but its name is taken until it is closed.
 */
static bool
is_left(const char *name)
{
    Portal portal = GetPortalByName(name);

    return portal != NULL &&
           (portal->status == PORTAL_READY || (portal->cursorOptions & CURSOR_OPT_HOLD) != 0);
}

static bool
has_portal(void)
{
    MemoryContext all = portal_contexts();

    if (all == NULL)
        return true; /* unknown */
    /* The context of the portal without a name is named in words. */
    for (MemoryContext one = all->firstchild; one != NULL; one = one->nextchild)
        if (one->ident != NULL && (is_left(one->ident) || is_left("")))
            return true;
    return false;
}

/* Asked within a transaction. */
bool
objects_are_near(void)
{
    return has_temporary || (MyXactFlags & XACT_FLAGS_ACCESSEDTEMPNAMESPACE) != 0;
}

/* False: it cannot be told now whether there are temporary objects. */
bool
objects_write(Text *out)
{
    if (!OidIsValid(MyProc->tempNamespaceId)) {
        has_temporary = false;
        stale = false;
    } else if (stale) {
        if (!look_up_temporary(MyProc->tempNamespaceId))
            return false;
        stale = false;
    }
    if (has_temporary)
        text_item(out, "t");
    /* No transaction is open, so every lock is the session's and every portal is WITH HOLD. */
    if (compat_holds_locks())
        text_item(out, "k");
    if (has_portal())
        text_item(out, "c");
    if (slots_used && slots_held())
        events_note_slot();
    return true;
}

/* A function that makes replication slots is about to be called. */
void
slots_note(void)
{
    slots_used = true;
}

/* Returns whether this session has a temporary slot. Only called if one may have been made. */
bool
slots_held(void)
{
    bool held = false;

    LWLockAcquire(ReplicationSlotControlLock, LW_SHARED);
    for (int i = 0; i < max_replication_slots && !held; i++) {
        ReplicationSlot *slot = &ReplicationSlotCtl->replication_slots[i];

        held = slot->in_use && slot->active_pid == MyProcPid &&
               slot->data.persistency == RS_TEMPORARY;
    }
    LWLockRelease(ReplicationSlotControlLock);
    slots_used = false;
    return held;
}
