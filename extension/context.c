/*
 * context.c: the parse context of a statement.
 *
 * The server decides what a text means when it analyzes it, by some settings (context.h) and, for a
 * literal such as 'now', by the time. So a statement is known by its text and by a *label*:
 *
 *     MOMENT=USER=VALUE=VALUE…
 *
 * MOMENT is the time of the Parse, in microseconds, if the text depends on it, else 0. USER is the
 * role that "$user" in `search_path` stands for. Values are written as in the report.
 *
 * The label of a new statement is written into the memory of its analysis, which the server frees
 * when it analyzes the statement again. So it never tells of another analysis. names.c takes it
 * from there when the transaction is over.
 */
#include "attend.h"
#include "compat.h"

#include "context.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "parser/scanner.h"
#include "utils/memutils.h"
#include "utils/plancache.h"
#include "utils/timestamp.h"

/* With more, as of a very long `search_path`, a statement is shared with nobody. */
#define LABEL_MAX 4096

/* core_yylex returns these for strings; the second one for U&'…', whose escapes it leaves. */
#define TOKEN_STRING 261
#define TOKEN_UNICODE_STRING 262

static const char *const names[] = {CONTEXT_SETTINGS};
static const char *const moments[] = {CONTEXT_MOMENTS};

/* The server's names for the memory of a statement, and of the analysis of one with a name. */
static const char source_memory[] = "CachedPlanSource";
static const char analysis_memory[] = "CachedPlanQuery";

static char at_rest[LABEL_MAX];      /* the label between transactions */
static TimestampTz reloaded_at = -1; /* when the server's files were read before it was made */
static bool touched = false;         /* one of the settings may have changed since */
static bool strayed = false;         /* and a text was analyzed then */

static bool
is_one(const char *name)
{
    if (pg_strcasecmp(name, "role") == 0 || pg_strcasecmp(name, "session_authorization") == 0)
        return true;
    for (int i = 0; i < lengthof(names); i++)
        if (pg_strcasecmp(name, names[i]) == 0)
            return true;
    return false;
}

/* A setting is about to be changed, perhaps for the transaction only. NULL: it may be any. */
void
context_note_set(const char *name)
{
    if (!touched && (name == NULL || is_one(name)))
        touched = true;
}

/* Writes the label of what is analyzed now. False: there is no room. */
static bool
write_label(char *to, int64 moment)
{
    static struct config_generic *settings[lengthof(names)];
    Text out = {.start = to, .end = to, .limit = to + LABEL_MAX - 1};
    char digits[48];

    snprintf(digits, sizeof(digits), INT64_FORMAT "=%u", moment, GetUserId());
    text_literal(&out, digits);
    for (int i = 0; i < lengthof(names); i++) {
        if (settings[i] == NULL)
            settings[i] = compat_setting(names[i]);
        text_literal(&out, "=");
        settings_write_value(&out, settings[i]);
    }
    *out.end = '\0';
    return !out.full;
}

/* Of a text that nobody shares: with a moment that no other has. */
static void
write_own_label(char *to)
{
    static uint32 serial = 0;

    snprintf(to, LABEL_MAX, "-%d." INT64_FORMAT ".%u", MyProcPid, MyStartTimestamp, ++serial);
}

static const char *
label_now(int64 moment)
{
    static char label[LABEL_MAX];

    if (!write_label(label, moment))
        write_own_label(label);
    return label;
}

/* Called when no transaction of a guest's is open. True: the settings are others than before. */
bool
context_rest(void)
{
    const char *now = label_now(0);

    touched = false;
    strayed = false;
    reloaded_at = PgReloadTime;
    if (strcmp(now, at_rest) == 0)
        return false;
    strlcpy(at_rest, now, LABEL_MAX);
    return true;
}

/* The label of what is analyzed without a moment of its own. */
const char *
context_at_rest(void)
{
    return at_rest;
}

/* May one of the settings have changed since `context_rest`? */
bool
context_is_touched(void)
{
    return touched || reloaded_at != PgReloadTime;
}

/* May a text have been analyzed meanwhile under other settings than those at rest? */
bool
context_has_strayed(void)
{
    return strayed || reloaded_at != PgReloadTime;
}

/* The server analyzes a text. */
void
context_note_analysis(void)
{
    if (unlikely(touched) && !strayed)
        strayed = strcmp(label_now(0), at_rest) != 0;
}

static bool
is_letter(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

/* Does the string have one of the words, between other bytes than letters? */
static bool
has_moment(const char *string)
{
    while (*string != '\0') {
        size_t len = 0;

        while (is_letter(string[len]))
            len++;
        for (int i = 0; i < lengthof(moments); i++)
            if (len == strlen(moments[i]) && pg_strncasecmp(string, moments[i], len) == 0)
                return true;
        string += len > 0 ? len : 1;
    }
    return false;
}

/* May a literal that ends here have another part on the next line? */
static bool
is_before_line_end(const char *at)
{
    at += strspn(at, " \t\f\v");
    return *at == '\n' || *at == '\r' || (at[0] == '-' && at[1] == '-');
}

/* A literal can have one of the words only if the text does, or has escapes or parts. */
static bool
may_have_moment(const char *text)
{
    if (strchr(text, '\'') == NULL && strchr(text, '$') == NULL)
        return false;
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '\\' || (at[0] == '&' && at[1] == '\'') ||
            (*at == '\'' && is_before_line_end(at + 1)))
            return true;
        for (int i = 0; i < lengthof(moments); i++)
            if ((*at | 0x20) == moments[i][0] &&
                pg_strncasecmp(at, moments[i], strlen(moments[i])) == 0)
                return true;
    }
    return false;
}

/* Does the text have a literal that may be read as the time? The server's own lexer finds them. */
static bool
is_of_its_moment(const char *text)
{
    core_yy_extra_type extra;
    core_YYSTYPE value;
    YYLTYPE at;
    core_yyscan_t scanner;
    bool found = false;
    int token;

    if (!may_have_moment(text))
        return false;
    scanner = scanner_init(text, &extra, &ScanKeywords, ScanKeywordTokens);
    extra.escape_string_warning = false;
    while (!found && (token = core_yylex(&value, &at, scanner)) != 0)
        found = token == TOKEN_UNICODE_STRING ||
                (token == TOKEN_STRING && has_moment(value.str));
    scanner_finish(scanner);
    return found;
}

/* The analysis of the newest statement; NULL: it is not one with a name. */
static MemoryContext
newest_analysis(const char **text)
{
    for (MemoryContext one = CacheMemoryContext->firstchild; one != NULL; one = one->nextchild) {
        if (strcmp(one->name, source_memory) != 0)
            continue;
        *text = one->ident;
        for (one = one->firstchild; one != NULL; one = one->nextchild)
            if (strcmp(one->name, analysis_memory) == 0)
                break;
        return one;
    }
    return NULL;
}

/*
 * A Parse is done, in the open transaction. What a text finds among temporary objects depends on
 * the moment as well.
 */
void
context_note_parse(void)
{
    const char *text = NULL;
    MemoryContext analysis = newest_analysis(&text);
    bool depends;

    if (analysis == NULL || text == NULL)
        return;
    depends = objects_are_near() || is_of_its_moment(text);
    MemoryContextCopyAndSetIdentifier(
        analysis, label_now(depends ? GetCurrentTransactionStartTimestamp() : 0));
}

/* The time of the label's Parse; 0: its text does not depend on it. */
TimestampTz
context_moment(const char *label)
{
    return label[0] == '-' ? 0 : strtoll(label, NULL, 10);
}

/*
 * Sets what the label says, for an analysis of the same text. The caller is in a transaction, and
 * ends this by AtEOXact_GUC with the level. Names are looked up for the role of the moment, as the
 * server itself does before it uses a statement.
 */
int
context_enter(const char *label)
{
    int level = NewGUCNestLevel();
    const char *at = strchr(label, '=');
    const char *now = strchr(label_now(0), '=');

    if (at == NULL || now == NULL || strcmp(at, now) == 0)
        return level;
    at = strchr(at + 1, '=');
    for (int i = 0; i < lengthof(names) && at != NULL; i++) {
        const char *end = strchr(at + 1, '=');
        char value[LABEL_MAX];

        if (!text_unescape(at + 1, end != NULL ? end : at + strlen(at), value, sizeof(value)))
            elog(ERROR, "the parse context of a statement cannot be read");
        if (strcmp(GetConfigOption(names[i], false, false), value) != 0)
            (void) set_config_option(names[i], value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
                                     true, 0, false);
        at = end;
    }
    return level;
}
