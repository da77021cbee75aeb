/*
 * report.c: when a report of the session's state is sent, and how.
 *
 * ReadyForQuery goes out through the table PqCommMethods. The library puts a table of its own in
 * its place, and writes a ParameterStatus `weir.state` before each ReadyForQuery whose status is I:
 * the transaction is over by then, and the next one has not begun.
 *
 * No error leaves report_send: what fails is reported as `u`.
 */
#include "attend.h"
#include "compat.h"

#include "libpq/libpq.h"
#include "miscadmin.h"

/* More than once only where test/cost measures what one takes. */
#ifndef WEIR_REPEAT
#define WEIR_REPEAT 1
#endif

/* Longer reports are not sent. */
#define REPORT_MAX (60 * 1024)

/* The size of the part after the state: the library's version and the numbered events. */
#define TAIL_MAX 256

/* The parameter's name with its NUL, and the value's beginning. */
static const char head[] = "weir.state\0v1";
#define HEAD_LEN (sizeof(head) - 1)

/* One holds the last report, the other is written to. */
static char buffers[2][HEAD_LEN + REPORT_MAX + TAIL_MAX + 1];
static size_t last_len = 0; /* of the last report's state; 0: none was sent */
static int last = 0;

/* The next report is sent in any case: Weir does not know the state any more. */
static bool is_due = false;

static const PQcommMethods *core = NULL;
static PQcommMethods ours;
static bool failed_before = false;

static int put_message(char type, const char *body, size_t len);
static void report_send(void);

/* Begins to report; has no effect when called again. */
void
report_install(void)
{
    if (core != NULL)
        return;
    events_install();
    objects_install();
    apply_install();
    core = PqCommMethods;
    ours = *core;
    ours.putmessage = put_message;
    PqCommMethods = &ours;
}

bool
report_is_on(void)
{
    return core != NULL;
}

/* The state has changed while no reports were sent. */
void
report_renew(void)
{
    is_due = true;
}

/* Sends a message behind the hook. */
int
report_put(char type, const char *body, size_t len)
{
    return core->putmessage(type, body, len);
}

void
report_set_flush(int (*flush)(void))
{
    ours.flush = flush;
}

int
report_flush(void)
{
    return core->flush();
}

static int
put_message(char type, const char *body, size_t len)
{
    bool at_rest = type == 'Z' && len == 1 && body[0] == 'I';
    int result;

    /* A client gets no messages about what the library does. */
    if (guard_is_up() || rows_are_busy())
        return 0;
    if ((type == 'D' || type == 'd') && attend_passes_rows())
        return rows_put(type, body, len) ? 0 : core->putmessage(type, body, len);
    (void) rows_end();
    if (type == 'E') {
        apply_note_error();
        if (orders_put_last_words(body, len))
            return 0;
    }
    if (type == 'A' && notify_put(body, len))
        return 0;
    if (at_rest && last_len == 0)
        attend_with(weir_ticket);
    if (attend_put(type, at_rest) == PUT_SWALLOW)
        return 0;
    if (at_rest && !attend_has_guest())
        for (int i = 0; i < WEIR_REPEAT; i++)
            report_send();
    result = core->putmessage(type, body, len);
    attend_note_put(at_rest);
    return result;
}

/* Could all of the state be written? */
static bool complete;

static bool
write_state(void *argument)
{
    Text *out = argument;

    complete = settings_write(out) && statements_write(out) && objects_write(out);
    return true;
}

/* Writes the state, or tells that it cannot be told. The server's log has the first reason only. */
static bool
try_to_write_state(Text *out)
{
    const char *what = failed_before ? NULL : "the session's state cannot be reported";

    if (!guarded(write_state, out, what)) {
        failed_before = true;
        return false;
    }
    if (complete)
        failed_before = false;
    return complete && !out->full;
}

static void
report_send(void)
{
    bool first = last_len == 0;
    char *buffer = buffers[!last];
    Text out = {.start = buffer, .end = buffer + HEAD_LEN};
    size_t len;

    memcpy(buffer, head, HEAD_LEN);
    out.limit = out.end + REPORT_MAX;
    if (!try_to_write_state(&out)) {
        out.end = buffer + HEAD_LEN;
        out.full = false;
        text_item(&out, "u");
    }
    len = out.end - buffer;
    if (!first && !is_due && !events_pending() && len == last_len &&
        memcmp(buffer, buffers[last], len) == 0)
        return;
    is_due = false;
    last = !last;
    last_len = len;
    out.limit += TAIL_MAX;
    if (first)
        text_item(&out, "w:" WEIR_VERSION);
    events_write(&out);
    *out.end++ = '\0';
    (void) core->putmessage('S', buffer, out.end - buffer);
}
