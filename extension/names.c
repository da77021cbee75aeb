/*
 * names.c: prepared statements of the guests, under the names that each has given them.
 *
 * The server has one table of names for a session. A statement is in that table, as one of the
 * attached guest's, or it is parked here; never both. So Close, DEALLOCATE and DISCARD free what is
 * the guest's own. A parked statement serves the next guest that has prepared the same text, with
 * the same types and columns and in the same parse context (context.c).
 *
 * When a transaction may have changed the table, its names are read with the function behind
 * pg_prepared_statements. What the messages said does not matter.
 */
#include "attend.h"
#include "compat.h"

#include "commands/prepare.h"
#include "executor/executor.h"
#include "executor/tuptable.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/plancache.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#define PARKED_MAX 512
#define NAMES_MAX 4096
#define TEXT_MAX (LOBBY_STATE - 1024)

typedef struct Named {
    char name[NAMEDATALEN];
    CachedPlanSource *source;
    const char *label; /* of its parse context; in the memory of the source */
    uint64 columns;    /* a number for the columns that it had then */
    bool is_postponed;
} Named;

typedef struct Parked {
    CachedPlanSource *source;
    const char *label;
    uint64 columns;
    uint64 used; /* the greatest one was used last */
} Parked;

/* The attached guest's, which the server's table has. */
static Named *named = NULL;
static int named_count = 0;

static Parked parked[PARKED_MAX];
static int parked_count = 0;
static uint64 uses = 0;

/* The guest's names and texts as its window has them. */
static char *kept = NULL;
static uint32 kept_len = 0;
static bool kept_fits = true;

static bool changed = false;

/* A statement was postponed because of its columns. It is prepared again at each restore. */
static bool outdated = false;

/*
 * A statement of the guest has other settings than those at rest. If the server analyzes it again,
 * it gets those.
 */
static bool differs = false;

/* One of them was analyzed otherwise than its label says. */
static bool astray = false;

/* A statement may have been analyzed under other settings since the names were read. */
static bool doubtful = false;

/*
 * Marks in the memory of an analysis, which the server frees when it analyzes the statement again:
 * the analysis is that of the label; it is not, so the statement is not parked.
 */
static const char as_labelled[] = "weir";
static const char otherwise[] = "weir: analyzed again";

/*
 * The unnamed statement. Many drivers prepare it, wait for its description, and run it with their
 * next message. Until then the guest needs this backend, if the statement is not known (unnamed.c);
 * else the backend waits for a while. After an error no Bind is awaited.
 */
static uint32 parsed = 0; /* statements, since the names were read */
static uint32 added = 0;  /* names, when they were read */
static bool is_over = true; /* something was bound behind the last Parse, or has failed */
static Bind awaited = BIND_NONE;
static TimestampTz known_at = 0; /* names that were prepared later are new */

/* A reply goes out. */
void
names_note_reply(char type)
{
    switch (type) {
        case '1':
            changed = true;
            parsed++;
            is_over = false;
            context_note_parse();
            unnamed_note_parse();
            break;
        case '3':
            changed = true;
            break;
        case '2':
            is_over = true;
            unnamed_note_bind();
            break;
        case 'E':
            is_over = true;
            unnamed_note_error();
            break;
        case 'C':
        case 'I':
            /* Without a Bind before, a simple query has ended, which drops the statement. */
            if (!is_over)
                unnamed_note_query();
            is_over = true;
            break;
        default:
            break;
    }
}

/* Has the transaction prepared the unnamed statement? */
bool
names_has_unnamed(void)
{
    return parsed > added;
}

/* Is the guest's next message to come to this backend, for its unnamed statement? */
Bind
names_await_bind(bool is_known)
{
    if (names_has_unnamed())
        awaited = is_known ? BIND_LIKELY : BIND_NEEDED;
    else if (awaited == BIND_LIKELY)
        awaited = BIND_NONE;
    if (is_over)
        awaited = BIND_NONE;
    parsed = 0;
    added = 0;
    return awaited;
}

/* DEALLOCATE, DISCARD or PREPARE has run. */
void
names_note_change(void)
{
    changed = true;
}

static void
need_memory(void)
{
    if (named == NULL)
        named = MemoryContextAlloc(TopMemoryContext, NAMES_MAX * sizeof(Named));
    if (kept == NULL)
        kept = MemoryContextAlloc(TopMemoryContext, TEXT_MAX);
}

/*
 * Takes a name out of the server's table and keeps its statement. The server drops what the entry
 * points to, so it is made to point to something that cannot be freed.
 */
static void
take_out(PreparedStatement *entry, const char *name)
{
    static CachedPlanSource nothing;

    memset(&nothing, 0, sizeof(nothing));
    nothing.magic = CACHEDPLANSOURCE_MAGIC;
    nothing.is_oneshot = true;
    entry->plansource = &nothing;
    DropPreparedStatement(name, false);
}

/*
 * Puts a statement into the server's table. The server saves it as if it were new: it takes it into
 * its list of saved statements, and drops its plan. So it leaves the list before, and its plan is
 * kept from the server. A statement that the server does not take is freed: outside of the list it
 * would not learn of changed tables.
 */
static void
put_in(const char *name, CachedPlanSource *source)
{
    struct CachedPlan *plan = source->gplan;

    if (source->is_saved)
        dlist_delete(&source->node);
    source->is_saved = false;
    source->gplan = NULL;
    PG_TRY();
    {
        fault_point("statement");
        StorePreparedStatement(name, source, false);
    }
    PG_CATCH();
    {
        source->gplan = plan;
        DropCachedPlan(source);
        PG_RE_THROW();
    }
    PG_END_TRY();
    source->gplan = plan;
}

static void
drop_oldest(void)
{
    int oldest = 0;

    for (int i = 1; i < parked_count; i++)
        if (parked[i].used < parked[oldest].used)
            oldest = i;
    DropCachedPlan(parked[oldest].source);
    parked[oldest] = parked[--parked_count];
}

static void
park(const Named *statement)
{
    if (parked_count == PARKED_MAX)
        drop_oldest();
    parked[parked_count++] = (Parked){.source = statement->source,
                                      .label = statement->label,
                                      .columns = statement->columns,
                                      .used = ++uses};
}

static const char *
mark_of(const CachedPlanSource *source)
{
    return source->query_context != NULL ? source->query_context->ident : NULL;
}

static void
set_mark(CachedPlanSource *source, const char *mark)
{
    if (source->query_context != NULL)
        MemoryContextSetIdentifier(source->query_context, mark);
}

/* Is the label one of settings only? */
static bool
has_no_moment(const char *label)
{
    return strncmp(label, "0=", 2) == 0;
}

/*
 * The server may have analyzed the statement again, as after a change of its table. `is_certain`:
 * the settings were those at rest then. True: it has got their label.
 */
static bool
settle(Named *one, bool is_certain)
{
    const char *mark = mark_of(one->source);
    bool is_at_rest;

    if (mark == as_labelled || mark == otherwise)
        return false;
    is_at_rest = strcmp(one->label, context_at_rest()) == 0;
    is_certain = is_certain && (is_at_rest || has_no_moment(one->label));
    if (is_certain && !is_at_rest) {
        char *before = unconstify(char *, one->label);

        one->label = MemoryContextStrdup(one->source->context, context_at_rest());
        pfree(before);
    }
    set_mark(one->source, is_certain ? as_labelled : otherwise);
    astray = astray || !is_certain;
    return is_certain && !is_at_rest;
}

/* The settings at rest, or the statements, are others than before. */
static void
find_differences(void)
{
    differs = false;
    for (int i = 0; i < named_count && !differs; i++)
        differs = has_no_moment(named[i].label) && strcmp(named[i].label, context_at_rest()) != 0;
}

/* Is it known that its label tells what it means? */
static bool
may_be_parked(const Named *one)
{
    const char *mark = mark_of(one->source);

    return !one->is_postponed && mark != otherwise &&
           (mark == as_labelled || strcmp(one->label, context_at_rest()) == 0);
}

static void
park_all(void)
{
    while (named_count > 0) {
        Named *last = &named[--named_count];
        PreparedStatement *entry = FetchPreparedStatement(last->name, false);

        /* Only those that are still what they were: the guest may have dropped one. */
        if (entry == NULL || entry->plansource != last->source)
            continue;
        take_out(entry, last->name);
        if (may_be_parked(last))
            park(last);
        else
            DropCachedPlan(last->source);
    }
}

/* The label is the copy in the source's memory then. */
static CachedPlanSource *
take_parked(Wanted *wanted)
{
    for (int i = 0; i < parked_count; i++) {
        CachedPlanSource *source = parked[i].source;

        if (parked[i].columns != wanted->columns || source->num_params != wanted->types_count ||
            strcmp(source->query_string, wanted->query) != 0 ||
            strcmp(parked[i].label, wanted->label) != 0)
            continue;
        if (wanted->types_count > 0 &&
            memcmp(source->param_types, wanted->types, wanted->types_count * sizeof(Oid)) != 0)
            continue;
        wanted->label = parked[i].label;
        parked[i] = parked[--parked_count];
        return source;
    }
    return NULL;
}

/* Makes the names of the server's table those of this text. Raises an ERROR if it cannot. */
void
names_restore(const char *wanted_text, uint32 len)
{
    const char *at = wanted_text;
    const char *end = wanted_text + len;
    int patience_ms = REMAKE_PATIENCE_MS;

    need_memory();
    if (context_is_touched()) {
        for (int i = 0; i < named_count; i++)
            if (settle(&named[i], !context_has_strayed()))
                astray = true;
        if (context_rest())
            find_differences();
    }
    if (len == kept_len && kept_fits && !outdated && !astray &&
        memcmp(wanted_text, kept, len) == 0)
        return;
    park_all();
    outdated = false;
    astray = false;
    /* If one cannot be made, none counts. */
    kept_len = 0;
    kept_fits = false;
    if (len > TEXT_MAX)
        elog(ERROR, "it has too many statements");
    if (len > 0) {
        char **labels;
        int labels_count;

        own_transaction_begin();
        labels_count = wanted_labels(&at, end, &labels);
        fault_conflict("conflict");
        while (at < end) {
            Wanted wanted;
            CachedPlanSource *source;
            Remade how = REMADE_WHOLE;

            wanted_read(&at, end, labels, labels_count, &wanted);
            if (named_count == NAMES_MAX)
                elog(ERROR, "it has too many statements");
            source = take_parked(&wanted);
            if (source == NULL) {
                source = remake(&wanted, &patience_ms, &how);
                wanted.label = MemoryContextStrdup(source->context, wanted.label);
            }
            outdated = outdated || how == REMADE_OUTDATED;
            named[named_count].is_postponed = how != REMADE_WHOLE;
            put_in(wanted.name, source);
            strlcpy(named[named_count].name, wanted.name, NAMEDATALEN);
            named[named_count].source = source;
            named[named_count].columns = wanted.columns;
            named[named_count].label = wanted.label;
            set_mark(source, as_labelled);
            named_count++;
        }
        own_transaction_end();
    }
    find_differences();
    memcpy(kept, wanted_text, len);
    kept_len = len;
    kept_fits = true;
    changed = false;
    known_at = GetCurrentTimestamp();
}

bool
names_are_outdated(void)
{
    return outdated;
}

/* What pg_prepared_statements tells: the names, in a transaction of our own. */
static int
list_names(char (*names)[NAMEDATALEN], int max)
{
    LOCAL_FCINFO(fcinfo, 0);
    FmgrInfo function;
    ReturnSetInfo result = {0};
    TupleTableSlot *slot;
    int count = 0;

    fmgr_info(F_PG_PREPARED_STATEMENT, &function);
    result.type = T_ReturnSetInfo;
    result.econtext = CreateStandaloneExprContext();
    result.allowedModes = (int) (SFRM_Materialize | SFRM_Materialize_Random);
    result.returnMode = SFRM_Materialize;
    InitFunctionCallInfoData(*fcinfo, &function, 0, InvalidOid, NULL, (Node *) &result);
    (void) FunctionCallInvoke(fcinfo);
    slot = MakeSingleTupleTableSlot(result.setDesc, &TTSOpsMinimalTuple);
    while (tuplestore_gettupleslot(result.setResult, true, false, slot)) {
        bool is_null;
        char *name = TextDatumGetCString(slot_getattr(slot, 1, &is_null));

        if (count < max)
            strlcpy(names[count], name, NAMEDATALEN);
        count++;
    }
    ExecDropSingleTupleTableSlot(slot);
    tuplestore_end(result.setResult);
    FreeExprContext(result.econtext, true);
    return count;
}

/* NULL: it is a new one. */
static const Named *
find_named(const CachedPlanSource *source)
{
    for (int i = 0; i < named_count; i++)
        if (named[i].source == source)
            return &named[i];
    return NULL;
}

/* The number of the statement's label among the different ones; true: it is the first with it. */
static bool
number_label(int statement, int *numbers, int *count)
{
    for (int i = 0; i < statement; i++) {
        if (strcmp(named[i].label, named[statement].label) != 0)
            continue;
        numbers[statement] = numbers[i];
        return false;
    }
    numbers[statement] = (*count)++;
    return true;
}

static void
write_text(void)
{
    Text out = {.start = kept, .end = kept, .limit = kept + TEXT_MAX};
    int *numbers = palloc((named_count + 1) * sizeof(int));
    int labels = 0;
    char digits[64];

    for (int i = 0; i < named_count; i++) {
        if (number_label(i, numbers, &labels)) {
            text_item(&out, "c:");
            text_literal(&out, named[i].label);
        }
    }
    for (int i = 0; i < named_count && !out.full; i++) {
        CachedPlanSource *source = named[i].source;

        text_item(&out, "n:");
        text_escaped(&out, named[i].name, strlen(named[i].name));
        snprintf(digits, sizeof(digits), "=%d," UINT64_FORMAT ",%d,", numbers[i],
                 named[i].columns, source->num_params);
        text_literal(&out, digits);
        for (int type = 0; type < source->num_params; type++) {
            snprintf(digits, sizeof(digits), "%u,", source->param_types[type]);
            text_literal(&out, digits);
        }
        text_escaped(&out, source->query_string, strlen(source->query_string));
    }
    kept_len = out.end - out.start;
    kept_fits = !out.full;
}

/* Is there the label of a Parse, which context.c has written? */
static bool
has_label(const CachedPlanSource *source)
{
    const char *mark = mark_of(source);

    return mark != NULL && mark != as_labelled && mark != otherwise;
}

/* A statement that the guest has prepared in the transaction. */
static void
note_new(Named *one)
{
    bool is_known = has_label(one->source);

    one->label = MemoryContextStrdup(one->source->context,
                                     is_known ? mark_of(one->source) : context_at_rest());
    if (!is_known) {
        /* It was analyzed again since its Parse, whose moment is not known any more. */
        set_mark(one->source, otherwise);
        astray = true;
    }
    one->columns = remake_columns(one->source->resultDesc);
    one->is_postponed = false;
}

/* Reads the names again. False: there are too many. An ERROR leaves everything as it was. */
static bool
read_names(void)
{
    char (*names)[NAMEDATALEN] = palloc(NAMES_MAX * NAMEDATALEN);
    Named *fresh;
    int count;
    int fresh_count = 0;
    uint32 fresh_added = 0;

    own_transaction_begin();
    count = list_names(names, NAMES_MAX);
    own_transaction_end();
    if (count > NAMES_MAX)
        return false;
    fresh = palloc(count * sizeof(Named) + 1);
    for (int i = 0; i < count; i++) {
        PreparedStatement *entry = FetchPreparedStatement(names[i], false);
        Named *one = &fresh[fresh_count];
        const Named *before;
        bool is_new;

        /* Those of SQL's PREPARE pin the guest. */
        if (entry == NULL || entry->from_sql)
            continue;
        /* One that is new may have the address of one that has gone. */
        is_new = entry->prepare_time > known_at;
        before = is_new || has_label(entry->plansource) ? NULL : find_named(entry->plansource);
        if (is_new)
            fresh_added++;
        if (before != NULL)
            *one = *before;
        strlcpy(one->name, names[i], NAMEDATALEN);
        one->source = entry->plansource;
        if (before == NULL)
            note_new(one);
        fresh_count++;
    }
    fault_point("names");
    memcpy(named, fresh, fresh_count * sizeof(Named));
    named_count = fresh_count;
    known_at = GetCurrentTimestamp();
    added = fresh_added;
    for (int i = 0; i < named_count; i++)
        if (has_label(named[i].source))
            set_mark(named[i].source, as_labelled);
    return true;
}

/*
 * Reads the names again, if they may have changed. True: they are to be saved. After an ERROR, the
 * next call reads them.
 */
bool
names_capture(void)
{
    bool is_other;

    doubtful = doubtful || context_has_strayed();
    if (context_is_touched() && context_rest())
        doubtful = true;
    if (!changed && !differs && !doubtful)
        return false;
    need_memory();
    /* They are read again each time then: the known ones may be gone. */
    if (changed && !read_names()) {
        kept_fits = false;
        return true;
    }
    for (int i = 0; i < named_count; i++)
        changed = settle(&named[i], !doubtful) || changed;
    find_differences();
    is_other = changed;
    if (is_other)
        write_text();
    changed = false;
    doubtful = false;
    return is_other;
}

/* NULL: the guest has more statements than its window can take. */
const char *
names_text(uint32 *len)
{
    *len = kept_fits ? kept_len : 0;
    return kept_fits ? (kept != NULL ? kept : "") : NULL;
}
