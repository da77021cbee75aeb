/*
 * access.c: who may log in through the pooler, from the server's catalogs and pg_hba.conf.
 *
 * The texts are for the pooler only and stay in memory. They hold the verifiers of pg_authid, so
 * that the pooler can check a password; a verifier does not open a session by itself.
 */
#include "weir.h"
#include "supervisor.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "libpq/crypt.h"
#include "mb/pg_wchar.h"
#include "postmaster/postmaster.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#define VERIFIER_LEN_MAX 512

static bool stale = true;         /* a catalog or the file has changed */
static TimestampTz expires_at = 0; /* when the next password becomes invalid; 0: none does */
static MemoryContext rules_context = NULL;
static List *lines = NIL; /* of pg_hba.conf, as of the last reload without mistakes */

static StringInfoData users;
static StringInfoData rules;
static StringInfoData limits;
static char server_host[MAXPGPATH];

static void
note_change(Datum argument, int cache, uint32 hash)
{
    stale = true;
}

void
access_watch(void)
{
    MemoryContext before = MemoryContextSwitchTo(TopMemoryContext);

    CacheRegisterSyscacheCallback(AUTHOID, note_change, (Datum) 0);
    CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, note_change, (Datum) 0);
    CacheRegisterSyscacheCallback(DATABASEOID, note_change, (Datum) 0);
    initStringInfo(&users);
    initStringInfo(&rules);
    initStringInfo(&limits);
    MemoryContextSwitchTo(before);
}

/* Reads pg_hba.conf. With mistakes in it, the rules before stay in force, as in the server. */
void
access_read_rules(void)
{
    MemoryContext context =
        AllocSetContextCreate(TopMemoryContext, "weir rules", ALLOCSET_DEFAULT_SIZES);
    MemoryContext before = MemoryContextSwitchTo(context);
    List *read;

    if (hba_load(&read)) {
        if (rules_context != NULL)
            MemoryContextDelete(rules_context);
        rules_context = context;
        lines = read;
    }
    else
        MemoryContextDelete(context);
    MemoryContextSwitchTo(before);
    stale = true;
}

/* A name that the pooler's line-based, UTF-8 files can hold. Roles with others cannot log in. */
static bool
can_write(const char *name)
{
    return strpbrk(name, "\r\n") == NULL && pg_encoding_verifymbstr(PG_UTF8, name, strlen(name)) ==
                                                (int) strlen(name);
}

/* A role can give itself a verifier of any length. No password fits such a one. */
static char *
usable(char *verifier)
{
    return strlen(verifier) > VERIFIER_LEN_MAX ||
                   get_password_type(verifier) == PASSWORD_TYPE_PLAINTEXT
               ? ""
               : verifier;
}

static Role *
role_of(HeapTuple tuple, TupleDesc desc, TimestampTz now)
{
    Form_pg_authid form = (Form_pg_authid) GETSTRUCT(tuple);
    Role *role = palloc0(sizeof(Role));
    bool no_verifier;
    bool is_endless;
    Datum verifier = heap_getattr(tuple, Anum_pg_authid_rolpassword, desc, &no_verifier);
    Datum until = heap_getattr(tuple, Anum_pg_authid_rolvaliduntil, desc, &is_endless);
    TimestampTz end = is_endless ? 0 : DatumGetTimestampTz(until);

    role->oid = form->oid;
    role->name = pstrdup(NameStr(form->rolname));
    role->limit = form->rolsuper ? -1 : form->rolconnlimit;
    role->can_login = form->rolcanlogin && role->limit != 0;
    role->verifier = "";
    if (!no_verifier && (is_endless || end >= now))
        role->verifier = usable(TextDatumGetCString(verifier));
    if (!is_endless && end >= now && !TIMESTAMP_NOT_FINITE(end) &&
        (expires_at == 0 || end < expires_at))
        expires_at = end;
    return role;
}

static void
read_catalog(Catalog *catalog)
{
    TimestampTz now = GetCurrentTimestamp();
    Relation table;
    TableScanDesc scan;
    HeapTuple tuple;

    (void) GetTransactionSnapshot();
    expires_at = 0;
    table = table_open(AuthIdRelationId, AccessShareLock);
    scan = table_beginscan_catalog(table, 0, NULL);
    while (HeapTupleIsValid(tuple = heap_getnext(scan, ForwardScanDirection))) {
        Role *role = role_of(tuple, RelationGetDescr(table), now);

        if (can_write(role->name))
            catalog->roles = lappend(catalog->roles, role);
    }
    table_endscan(scan);
    table_close(table, AccessShareLock);

    table = table_open(DatabaseRelationId, AccessShareLock);
    scan = table_beginscan_catalog(table, 0, NULL);
    while (HeapTupleIsValid(tuple = heap_getnext(scan, ForwardScanDirection))) {
        char *name = pstrdup(NameStr(((Form_pg_database) GETSTRUCT(tuple))->datname));

        if (can_write(name))
            catalog->databases = lappend(catalog->databases, name);
    }
    table_endscan(scan);
    table_close(table, AccessShareLock);
}

static void
write_roles(const Catalog *catalog)
{
    ListCell *cell;

    resetStringInfo(&users);
    resetStringInfo(&limits);
    foreach (cell, catalog->roles) {
        const Role *role = lfirst(cell);

        if (!role->can_login)
            continue;
        text_quoted(&users, role->name, '"');
        appendStringInfoChar(&users, ' ');
        text_quoted(&users, role->verifier, '"');
        appendStringInfoChar(&users, '\n');
        if (role->limit > 0) {
            text_quoted(&limits, role->name, '\'');
            appendStringInfo(&limits,
                             " = max_user_client_connections=%d max_user_connections=%d\n",
                             role->limit, role->limit);
        }
    }
}

/* Returns whether the server listens on 127.0.0.1. */
static bool
listens_on_loopback(void)
{
    return strstr(ListenAddresses, "localhost") != NULL || strchr(ListenAddresses, '*') != NULL ||
           strstr(ListenAddresses, "127.0.0.1") != NULL ||
           strstr(ListenAddresses, "0.0.0.0") != NULL;
}

/* Where the pooler logs in: over the unix socket, unless that asks for the system's user. */
static void
choose_host(void)
{
    const char *end = strchr(Unix_socket_directories, ',');
    int len = end == NULL ? (int) strlen(Unix_socket_directories)
                          : (int) (end - Unix_socket_directories);

    if (len == 0 || (hba_local_needs_peer(lines) && listens_on_loopback()))
        strlcpy(server_host, "127.0.0.1", sizeof(server_host));
    else
        snprintf(server_host, sizeof(server_host), "%.*s", len, Unix_socket_directories);
}

/* Reads what has changed. False: nothing has. */
bool
access_refresh(void)
{
    MemoryContext caller = CurrentMemoryContext;
    bool changed = false;

    /* Its start receives the invalidations of other processes. */
    StartTransactionCommand();
    /* A standby has no serializable transactions. */
    XactIsoLevel = XACT_READ_COMMITTED;
    if (stale || (expires_at != 0 && expires_at < GetCurrentTimestamp())) {
        Catalog catalog = {NIL, NIL};
        char *before = psprintf("%s%s%s", users.data, rules.data, limits.data);
        char *now;

        stale = false;
        read_catalog(&catalog);
        write_roles(&catalog);
        resetStringInfo(&rules);
        hba_write(&rules, lines, &catalog);
        choose_host();
        now = psprintf("%s%s%s", users.data, rules.data, limits.data);
        changed = strcmp(before, now) != 0;
        explicit_bzero(before, strlen(before));
        explicit_bzero(now, strlen(now));
    }
    CommitTransactionCommand();
    MemoryContextSwitchTo(caller);
    return changed;
}

const char *
access_users(void)
{
    return users.data;
}

const char *
access_rules(void)
{
    return rules.data;
}

const char *
access_limits(void)
{
    return limits.data;
}

/* Returns whether the pooler should use TLS to the server, although both are on this machine. */
bool
access_needs_tls(void)
{
    return hba_asks_for_tls(lines);
}

const char *
access_server_host(void)
{
    return server_host;
}
