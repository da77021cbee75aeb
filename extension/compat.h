/*
 * compat.h: everything that differs between PostgreSQL 15, 16, 17 and 18.
 */
#ifndef WEIR_COMPAT_H
#define WEIR_COMPAT_H

#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "fmgr.h"
#include "libpq/hba.h"
#include "libpq/libpq.h"
#include "mb/pg_wchar.h"
#include "regex/regex.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procsignal.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/memutils.h"

#if PG_VERSION_NUM < 150000
#error "the library weir needs PostgreSQL 15 or later"
#endif

/* Marks the symbols that the server must find in the library. The Makefile hides all others. */
#if PG_VERSION_NUM >= 160000
#define WEIR_EXPORT PGDLLEXPORT
#else
#define WEIR_EXPORT __attribute__((visibility("default")))
#endif

/* The library's module magic, with its name and version. */
#if PG_VERSION_NUM >= 180000
#define WEIR_MODULE_MAGIC PG_MODULE_MAGIC_EXT(.name = "weir", .version = WEIR_VERSION)
#else
#define WEIR_MODULE_MAGIC                                                          \
    extern WEIR_EXPORT const Pg_magic_struct *PG_MAGIC_FUNCTION_NAME(void);        \
    PG_MODULE_MAGIC
#endif

/* Memory of values and extras of settings: the server frees it by the same means. */
#if PG_VERSION_NUM >= 160000
#define compat_guc_malloc(size) guc_malloc(LOG, size)
#define compat_guc_free(pointer) guc_free(pointer)
#define compat_guc_strdup(text) guc_strdup(LOG, text)
#else
#define compat_guc_malloc(size) malloc(size)
#define compat_guc_free(pointer) free(pointer)
#define compat_guc_strdup(text) strdup(text)
#endif

/* Returns whether this backend holds a lock. */
static inline bool
compat_holds_locks(void)
{
    for (int i = 0; i < NUM_LOCK_PARTITIONS; i++) {
#if PG_VERSION_NUM >= 160000
        if (!dlist_is_empty(&MyProc->myProcLocks[i]))
            return true;
#else
        if (!SHMQueueEmpty(&MyProc->myProcLocks[i]))
            return true;
#endif
    }
    return false;
}

/*
 * A walk over the settings that may have been set.
 *
 * From 16 on the server keeps a circular list of the settings that differ from the default. Its
 * head is private to guc.c: it is the one node of the circle that is in no setting. It is found
 * once, by comparing the nodes with the addresses of all settings.
 */
#if PG_VERSION_NUM >= 160000

typedef struct SettingsList {
    dlist_node *head; /* NULL: not found */
} SettingsList;

typedef struct SettingsWalk {
    dlist_node *at;
} SettingsWalk;

static int
compat_compare_addresses(const void *a, const void *b)
{
    uintptr_t left = (uintptr_t) *(struct config_generic *const *) a;
    uintptr_t right = (uintptr_t) *(struct config_generic *const *) b;

    return (left > right) - (left < right);
}

static inline void
compat_settings_find(SettingsList *list)
{
    int count;
    struct config_generic **all = get_guc_variables(&count);
    dlist_node *node = NULL;

    list->head = NULL;
    for (int i = 0; i < count && node == NULL; i++)
        if (all[i]->source != PGC_S_DEFAULT)
            node = &all[i]->nondef_link;
    qsort(all, count, sizeof(*all), compat_compare_addresses);
    for (int steps = 0; node != NULL && steps <= count; steps++) {
        struct config_generic *around = dlist_container(struct config_generic, nondef_link, node);

        if (bsearch(&around, all, count, sizeof(*all), compat_compare_addresses) == NULL) {
            list->head = node;
            break;
        }
        node = node->next;
    }
    pfree(all);
}

static inline bool
compat_settings_begin(const SettingsList *list, SettingsWalk *walk)
{
    walk->at = list->head;
    return list->head != NULL;
}

static inline struct config_generic *
compat_settings_next(const SettingsList *list, SettingsWalk *walk)
{
    walk->at = walk->at->next;
    if (walk->at == list->head)
        return NULL;
    return dlist_container(struct config_generic, nondef_link, walk->at);
}

#else

typedef struct SettingsList {
    char nothing;
} SettingsList;

typedef struct SettingsWalk {
    struct config_generic **at;
    struct config_generic **end;
} SettingsWalk;

static inline void
compat_settings_find(SettingsList *list)
{
}

static inline bool
compat_settings_begin(const SettingsList *list, SettingsWalk *walk)
{
    walk->at = get_guc_variables();
    walk->end = walk->at + GetNumConfigOptions();
    return true;
}

static inline struct config_generic *
compat_settings_next(const SettingsList *list, SettingsWalk *walk)
{
    return walk->at == walk->end ? NULL : *walk->at++;
}

#endif

/* A setting by its name, of which there must be one. */
static inline struct config_generic *
compat_setting(const char *name)
{
#if PG_VERSION_NUM >= 160000
    return find_option(name, false, true, ERROR);
#else
    struct config_generic **all = get_guc_variables();
    int count = GetNumConfigOptions();

    for (int i = 0; i < count; i++)
        if (strcmp(all[i]->name, name) == 0)
            return all[i];
    return NULL;
#endif
}

/* All settings; the caller does not keep the array beyond its memory context. */
static inline struct config_generic **
compat_all_settings(int *count)
{
#if PG_VERSION_NUM >= 160000
    return get_guc_variables(count);
#else
    *count = GetNumConfigOptions();
    return get_guc_variables();
#endif
}

/* Whether core has read more of the client's bytes than it has used. */
static inline bool
compat_has_input(void)
{
#if PG_VERSION_NUM >= 170000
    return pq_buffer_remaining_data() > 0;
#else
    return pq_buffer_has_data();
#endif
}

/* A set of the kind that core waits with for its client. */
static inline WaitEventSet *
compat_create_wait_set(int events)
{
#if PG_VERSION_NUM >= 170000
    return CreateWaitEventSet(NULL, events);
#else
    return CreateWaitEventSet(TopMemoryContext, events);
#endif
}

/* The number of this backend's latch, and the latch of a number from another process. */
static inline uint32
compat_latch_number(void)
{
#if PG_VERSION_NUM >= 170000
    return (uint32) MyProcNumber;
#else
    return (uint32) MyProc->pgprocno;
#endif
}

static inline Latch *
compat_latch_of(uint32 number)
{
    return number < ProcGlobal->allProcCount ? &GetPGProcByNumber(number)->procLatch : NULL;
}

/*
 * Changes the time at which the open transaction has begun. The server lets only the workers of a
 * parallel query do so.
 */
static inline void
compat_set_transaction_start(TimestampTz at)
{
    int number = ParallelWorkerNumber;

    ParallelWorkerNumber = 0;
    SetParallelStartTimestamps(at, GetCurrentStatementStartTimestamp());
    ParallelWorkerNumber = number;
}

/* What a standby's recovery does to a transaction that has to end. */
static inline void
compat_conflict(void)
{
#if PG_VERSION_NUM >= 170000
    HandleRecoveryConflictInterrupt(PROCSIG_RECOVERY_CONFLICT_SNAPSHOT);
#else
    RecoveryConflictInterrupt(PROCSIG_RECOVERY_CONFLICT_SNAPSHOT);
#endif
}

/* Whether an INSERT, UPDATE or DELETE has RETURNING. */
#if PG_VERSION_NUM >= 180000
#define compat_has_returning(statement) ((statement)->returningClause != NULL)
#else
#define compat_has_returning(statement) ((statement)->returningList != NIL)
#endif

/* A function that SQL can call: the Makefile hides everything else. */
#define PG_FUNCTION_INFO_V1_VISIBLE(name)                 \
    extern WEIR_EXPORT Datum name(PG_FUNCTION_ARGS);      \
    extern WEIR_EXPORT const Pg_finfo_record *CppConcat(pg_finfo_, name)(void); \
    PG_FUNCTION_INFO_V1(name)

/* Opens pg_hba.conf and splits it into lines and words, which are valid until it is closed. */
static inline FILE *
compat_hba_open(const char *name, List **tokens)
{
#if PG_VERSION_NUM >= 160000
    char *error = NULL;
    FILE *file = open_auth_file(name, LOG, 0, &error);

    if (file != NULL)
        tokenize_auth_file(name, file, tokens, DEBUG1, 0);
#else
    FILE *file = AllocateFile(name, "r");

    if (file != NULL)
        tokenize_auth_file(name, file, tokens, DEBUG1);
#endif
    return file;
}

static inline void
compat_hba_close(FILE *file)
{
#if PG_VERSION_NUM >= 160000
    free_auth_file(file, 0);
#else
    FreeFile(file);
#endif
}

/* The parts of a line of pg_ident.conf. */
static inline const char *
compat_system_user(const IdentLine *line)
{
#if PG_VERSION_NUM >= 160000
    return line->system_user->string;
#else
    return line->ident_user;
#endif
}

static inline bool
compat_system_user_is_regex(const IdentLine *line)
{
#if PG_VERSION_NUM >= 160000
    return line->system_user->regex != NULL;
#else
    return line->ident_user[0] == '/';
#endif
}

/* Before 16, the role is always a name. */
static inline AuthToken
compat_ident_role(const IdentLine *line)
{
#if PG_VERSION_NUM >= 160000
    return *line->pg_user;
#else
    return (AuthToken){.string = line->pg_role, .quoted = true};
#endif
}

/* A word of pg_hba.conf that is a regular expression. There are none before 16. */
static inline bool
compat_is_regex(const AuthToken *token)
{
#if PG_VERSION_NUM >= 160000
    return token->regex != NULL;
#else
    return false;
#endif
}

static inline bool
compat_regex_matches(const AuthToken *token, const char *name)
{
#if PG_VERSION_NUM >= 160000
    int len = strlen(name);
    pg_wchar *wide = palloc((len + 1) * sizeof(pg_wchar));
    int wide_len = pg_mb2wchar_with_len(name, wide, len);
    int result = pg_regexec(token->regex, wide, wide_len, 0, NULL, 0, NULL, 0);

    pfree(wide);
    return result == REG_OKAY;
#else
    return false;
#endif
}

#endif /* WEIR_COMPAT_H */
