/*
 * apply.c: texts by which Weir restores a client's settings.
 *
 * Weir sends such a text and the client's request in one write, and does not wait in between. The
 * request must not run if the text has failed. So after an error in such a text the session refuses
 * every statement, until another such text begins.
 *
 * The text begins with a mark: a comment with the first half of `weir.key`. Weir's clients do not
 * know the key.
 */
#include "attend.h"
#include "compat.h"

#include "executor/executor.h"
#include "parser/analyze.h"
#include "tcop/tcopprot.h"

#define MARK_BEGIN "/*weir "
#define MARK_END "*/"

/* Shorter keys make no mark. */
#define KEY_MIN 32
#define HALF_LEN 16

/* Has the last marked text failed? */
static bool refuses = false;

static post_parse_analyze_hook_type next_analyze = NULL;
static ExecutorStart_hook_type next_executor_start = NULL;

static void analyze(ParseState *state, Query *query, JumbleState *jumble);
static void executor_start(QueryDesc *description, int flags);

void
apply_install(void)
{
    next_analyze = post_parse_analyze_hook;
    post_parse_analyze_hook = analyze;
    next_executor_start = ExecutorStart_hook;
    ExecutorStart_hook = executor_start;
}

static bool
is_marked(const char *text)
{
    const size_t begin = sizeof(MARK_BEGIN) - 1;

    return text != NULL && weir_key != NULL && strlen(weir_key) >= KEY_MIN &&
           strncmp(text, MARK_BEGIN, begin) == 0 &&
           strncmp(text + begin, weir_key, HALF_LEN) == 0 &&
           strncmp(text + begin + HALF_LEN, MARK_END, sizeof(MARK_END) - 1) == 0;
}

/* Is the text that runs one of Weir's own? */
bool
apply_is_marked(void)
{
    return is_marked(debug_query_string);
}

/* An ErrorResponse goes out. */
void
apply_note_error(void)
{
    if (is_marked(debug_query_string))
        refuses = true;
}

/* Called before anything runs: raises the error, unless a marked text begins. */
void
apply_check(void)
{
    attend_note_work();
    if (likely(!refuses))
        return;
    if (is_marked(debug_query_string)) {
        refuses = false;
        return;
    }
    ereport(ERROR,
            (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
             errmsg_internal("the client's settings were not restored, so nothing runs here")));
}

static void
analyze(ParseState *state, Query *query, JumbleState *jumble)
{
    apply_check();
    context_note_analysis();
    if (next_analyze != NULL)
        next_analyze(state, query, jumble);
}

/* A Bind of a statement that was prepared before is not analyzed again. */
static void
executor_start(QueryDesc *description, int flags)
{
    apply_check();
    if (next_executor_start != NULL)
        next_executor_start(description, flags);
    else
        standard_ExecutorStart(description, flags);
}
