/*
 * access.c: who may log in through the pooler, from the server's catalogs, pg_hba.conf and
 * pg_ident.conf.
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
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

#define VERIFIER_LEN_MAX 512
/* How often the interfaces of the machine are looked at, if a rule depends on them. */
#define INTERFACES_MS 900

static bool stale = true;         /* a catalog or the file has changed */
static TimestampTz expires_at = 0; /* when the next password becomes invalid; 0: none does */
static MemoryContext rules_context = NULL;
static MemoryContext maps_context = NULL;
/* As of the last reload without mistakes, of each of the two files. */
static Rules files = {NIL, NIL};
static TimestampTz interfaces_at = 0; /* when they are looked at again */

static StringInfoData users;
static StringInfoData rules;
static StringInfoData limits;
static StringInfoData maps;
static StringInfoData interfaces;
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

    /* A worker without a database does not do this by itself, and would miss new memberships. */
    StartTransactionCommand();
    initialize_acl();
    CommitTransactionCommand();
    MemoryContextSwitchTo(TopMemoryContext);
    CacheRegisterSyscacheCallback(AUTHOID, note_change, (Datum) 0);
    CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, note_change, (Datum) 0);
    CacheRegisterSyscacheCallback(DATABASEOID, note_change, (Datum) 0);
    initStringInfo(&users);
    initStringInfo(&rules);
    initStringInfo(&limits);
    initStringInfo(&maps);
    initStringInfo(&interfaces);
    MemoryContextSwitchTo(before);
}

/* Reads one of the files. With mistakes in it, what was read before stays in force. */
static void
read_file(bool (*load)(List **), List **into, MemoryContext *kept)
{
    MemoryContext context =
        AllocSetContextCreate(TopMemoryContext, "weir rules", ALLOCSET_DEFAULT_SIZES);
    MemoryContext before = MemoryContextSwitchTo(context);
    List *read;

    if (load(&read)) {
        if (*kept != NULL)
            MemoryContextDelete(*kept);
        *kept = context;
        *into = read;
    }
    else
        MemoryContextDelete(context);
    MemoryContextSwitchTo(before);
}

/* Reads pg_hba.conf and pg_ident.conf, as the server does. */
void
access_read_rules(void)
{
    read_file(hba_load, &files.lines, &rules_context);
    read_file(ident_load, &files.maps, &maps_context);
    stale = true;
}

/* A name that the pooler's line-based, UTF-8 files can hold. Roles with others cannot log in. */
bool
access_can_write(const char *name)
{
    return strpbrk(name, "\r\n") == NULL && pg_encoding_verifymbstr(PG_UTF8, name, strlen(name)) ==
                                                (int) strlen(name);
}

/* A role can give itself a verifier of any length. No password matches a longer one. */
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
    role->is_super = form->rolsuper;
    role->can_login = form->rolcanlogin && role->limit != 0;
    role->verifier = "";
    /* A worker without a database cannot read what is stored out of line. */
    if (!no_verifier && VARATT_IS_EXTERNAL(DatumGetPointer(verifier)))
        role->can_login = false;
    else if (!no_verifier && (is_endless || end >= now))
        role->verifier = usable(TextDatumGetCString(verifier));
    if (!is_endless && end >= now && !TIMESTAMP_NOT_FINITE(end) &&
        (expires_at == 0 || end < expires_at))
        expires_at = end;
    return role;
}

static Database *
database_of(HeapTuple tuple, TupleDesc desc)
{
    Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);
    Database *database = palloc0(sizeof(Database));
    bool is_default;
    Datum privileges = heap_getattr(tuple, Anum_pg_database_datacl, desc, &is_default);

    database->name = pstrdup(NameStr(form->datname));
    database->owner = form->datdba;
    /* Stored out of line if there are some hundred grantees. Then PostgreSQL judges alone, when a
     * server connection opens. */
    if (!is_default && !VARATT_IS_EXTERNAL(DatumGetPointer(privileges)))
        database->privileges = DatumGetAclPCopy(privileges);
    return database;
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

        if (access_can_write(role->name))
            catalog->roles = lappend(catalog->roles, role);
    }
    table_endscan(scan);
    table_close(table, AccessShareLock);

    table = table_open(DatabaseRelationId, AccessShareLock);
    scan = table_beginscan_catalog(table, 0, NULL);
    while (HeapTupleIsValid(tuple = heap_getnext(scan, ForwardScanDirection))) {
        Database *database = database_of(tuple, RelationGetDescr(table));

        if (access_can_write(database->name))
            catalog->databases = lappend(catalog->databases, database);
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

/*
 * Where the pooler logs in: over a unix socket, unless that asks for the system's user. A comma
 * would separate two hosts of the pooler's configuration, and a line break two lines.
 */
static void
choose_host(void)
{
    char *folders = pstrdup(Unix_socket_directories);
    List *paths = NIL;
    ListCell *cell;

    strlcpy(server_host, "127.0.0.1", sizeof(server_host));
    if (!(hba_local_needs_peer(files.lines) && listens_on_loopback()) &&
        SplitDirectoriesString(folders, ',', &paths)) {
        foreach (cell, paths) {
            const char *path = lfirst(cell);

            if (strpbrk(path, ",\r\n") != NULL)
                continue;
            strlcpy(server_host, path, sizeof(server_host));
            break;
        }
    }
    list_free_deep(paths);
    pfree(folders);
}

/* Rules with samehost or samenet depend on the interfaces of the machine, now. */
static void
look_at_interfaces(void)
{
    TimestampTz now = GetCurrentTimestamp();
    char *found;

    /* Rules that are written now have the present addresses: the next look compares with these. */
    if (now < interfaces_at && !stale)
        return;
    interfaces_at = TimestampTzPlusMilliseconds(now, INTERFACES_MS);
    found = hba_interfaces(files.lines);
    if (strcmp(found, interfaces.data) != 0) {
        resetStringInfo(&interfaces);
        appendStringInfoString(&interfaces, found);
        stale = true;
    }
    pfree(found);
}

/* All texts together, to find out whether one has changed. */
static char *
all_texts(void)
{
    return psprintf("%s%s%s%s", users.data, rules.data, limits.data, maps.data);
}

/* Reads what has changed. False: nothing has. */
bool
access_refresh(void)
{
    MemoryContext caller = CurrentMemoryContext;
    bool changed = false;

    /* The start of a transaction receives the invalidations of other processes. */
    StartTransactionCommand();
    /* A standby has no serializable transactions. */
    XactIsoLevel = XACT_READ_COMMITTED;
    look_at_interfaces();
    if (stale || (expires_at != 0 && expires_at < GetCurrentTimestamp())) {
        Catalog catalog = {NIL, NIL};
        char *before = all_texts();
        char *now;

        stale = false;
        read_catalog(&catalog);
        write_roles(&catalog);
        resetStringInfo(&rules);
        hba_write(&rules, &files, &catalog);
        resetStringInfo(&maps);
        ident_write(&maps, files.maps, &catalog);
        choose_host();
        now = all_texts();
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
access_maps(void)
{
    return maps.data;
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
    return hba_asks_for_tls(files.lines);
}

const char *
access_server_host(void)
{
    return server_host;
}
