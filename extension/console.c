/*
 * console.c: commands of the pooler's console, for SQL functions and the supervisor. They go over
 * the unix socket in the data folder, which only the server's own system user may open.
 */
#include "weir.h"
#include "compat.h"
#include "supervisor.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "catalog/namespace.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "libpq/pqformat.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"
#include "utils/wait_event.h"

#define MESSAGE_MAX (64 * 1024 * 1024)
#define SHOW_PATIENCE_MS 10000
#define ENDLESS (-1)

typedef struct Console {
    int fd;
    TimestampTz deadline; /* 0: none */
    StringInfoData in;    /* received, from `cursor` on not yet read */
    char *error;          /* what the console or the system has answered */
} Console;

/* Called for the columns first, then for each row. */
typedef void (*RowReader)(StringInfo message, bool is_header, void *into);

static void
fail(Console *console, const char *why)
{
    if (console->error == NULL)
        console->error = pstrdup(why);
}

/* Waits until the socket is ready. False: the time is over. */
static bool
wait_for_socket(Console *console, int event)
{
    int events = event | WL_LATCH_SET | WL_EXIT_ON_PM_DEATH;
    long ms = -1;

    if (console->deadline != 0) {
        ms = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), console->deadline);
        if (ms <= 0) {
            fail(console, "the pooler does not answer");
            return false;
        }
        events |= WL_TIMEOUT;
    }
    if (WaitLatchOrSocket(MyLatch, events, console->fd, ms, PG_WAIT_EXTENSION) & WL_LATCH_SET) {
        ResetLatch(MyLatch);
        CHECK_FOR_INTERRUPTS();
    }
    return true;
}

static bool
send_all(Console *console, const char *bytes, int len)
{
    while (len > 0) {
        ssize_t sent = send(console->fd, bytes, len, MSG_NOSIGNAL);

        if (sent > 0) {
            bytes += sent;
            len -= sent;
        }
        else if (errno != EAGAIN && errno != EINTR) {
            fail(console, strerror(errno));
            return false;
        }
        else if (!wait_for_socket(console, WL_SOCKET_WRITEABLE))
            return false;
    }
    return true;
}

/* Receives until this many bytes are unread. */
static bool
need(Console *console, int len)
{
    StringInfo in = &console->in;

    if (in->cursor > 0) {
        memmove(in->data, in->data + in->cursor, in->len - in->cursor);
        in->len -= in->cursor;
        in->cursor = 0;
    }
    while (in->len < len) {
        ssize_t got;

        enlargeStringInfo(in, Max(len - in->len, 8192));
        got = recv(console->fd, in->data + in->len, in->maxlen - in->len - 1, 0);
        if (got > 0)
            in->len += got;
        else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
            fail(console, got == 0 ? "the pooler has closed the connection" : strerror(errno));
            return false;
        }
        else if (!wait_for_socket(console, WL_SOCKET_READABLE))
            return false;
    }
    return true;
}

/* Reads one message. Its text is at `message`, until the next one is read. */
static bool
next_message(Console *console, char *type, StringInfo message)
{
    uint32 len;

    if (!need(console, 5))
        return false;
    *type = console->in.data[0];
    memcpy(&len, console->in.data + 1, 4);
    len = pg_ntoh32(len);
    if (len < 4 || len > MESSAGE_MAX) {
        fail(console, "the pooler's answer cannot be read");
        return false;
    }
    if (!need(console, len + 1))
        return false;
    message->data = console->in.data + 5;
    message->len = message->maxlen = len - 4;
    message->cursor = 0;
    console->in.cursor = len + 1;
    return true;
}

/* The field M of an ErrorResponse. */
static void
take_error(Console *console, StringInfo message)
{
    const char *at = message->data;
    const char *end = at + message->len;

    while (at < end && *at != '\0') {
        size_t len = strnlen(at + 1, end - at - 1);

        if (*at == 'M') {
            char *text = pnstrdup(at + 1, len);

            fail(console, text);
            return;
        }
        at += len + 2;
    }
    fail(console, "the pooler refuses without a reason");
}

/* Reads up to ReadyForQuery. */
static bool
read_answer(Console *console, RowReader reader, void *into)
{
    char type;
    StringInfoData message;

    while (next_message(console, &type, &message)) {
        if (type == 'Z')
            return console->error == NULL;
        if (type == 'E')
            take_error(console, &message);
        else if ((type == 'T' || type == 'D') && reader != NULL)
            reader(&message, type == 'T', into);
    }
    return false;
}

static bool
log_in(Console *console)
{
    static const char words[] = "user\0pgbouncer\0database\0pgbouncer\0client_encoding\0UTF8\0";
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = WEIR_CONSOLE_SOCKET};
    uint32 head[2] = {pg_hton32(8 + sizeof(words)), pg_hton32(196608)};

    while (connect(console->fd, (struct sockaddr *) &address, sizeof(address)) != 0) {
        if (errno != EAGAIN && errno != EINTR) {
            fail(console, errno == ENOENT || errno == ECONNREFUSED ? "the pooler does not run"
                                                                   : strerror(errno));
            return false;
        }
        pg_usleep(10000);
        CHECK_FOR_INTERRUPTS();
        if (console->deadline != 0 && GetCurrentTimestamp() > console->deadline) {
            fail(console, "the pooler does not answer");
            return false;
        }
    }
    return send_all(console, (char *) head, sizeof(head)) &&
           send_all(console, words, sizeof(words)) && read_answer(console, NULL, NULL);
}

/* Runs one command. Returns NULL, or the reason of its failure. */
static char *
run(const char *text, int timeout_ms, RowReader reader, void *into)
{
    Console console = {.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    uint32 len = pg_hton32(strlen(text) + 5);

    if (console.fd < 0)
        return pstrdup(strerror(errno));
    if (timeout_ms != ENDLESS)
        console.deadline = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), timeout_ms);
    initStringInfo(&console.in);
    PG_TRY();
    {
        if (log_in(&console) && send_all(&console, "Q", 1) &&
            send_all(&console, (char *) &len, sizeof(len)) &&
            send_all(&console, text, strlen(text) + 1))
            (void) read_answer(&console, reader, into);
    }
    PG_FINALLY();
    {
        close(console.fd);
    }
    PG_END_TRY();
    pfree(console.in.data);
    return console.error;
}

/* For the supervisor: a failure is a line of the log. */
bool
console_order(const char *text, int timeout_ms)
{
    char *error = run(text, timeout_ms, NULL, NULL);

    if (error != NULL)
        ereport(LOG, (errmsg("weir: %s of the pooler failed: %s", text, error)));
    return error == NULL;
}

/*
 * The pooler speaks UTF-8. Characters that the database's encoding does not have become question
 * marks, so that one name does not hide all rows.
 */
static char *
from_utf8(const char *text, int len)
{
    int encoding = GetDatabaseEncoding();
    StringInfoData out;

    initStringInfo(&out);
    while (len > 0) {
        int valid = encoding == PG_SQL_ASCII ? len : pg_encoding_verifymbstr(PG_UTF8, text, len);

        if (encoding == PG_UTF8 || encoding == PG_SQL_ASCII)
            appendBinaryStringInfo(&out, text, valid);
        else if (valid > 0) {
            int room = valid * MAX_CONVERSION_GROWTH + 1;
            char *converted = palloc(room);
            Oid proc = FindDefaultConversionProc(PG_UTF8, encoding);

            valid = OidIsValid(proc)
                        ? pg_do_encoding_conversion_buf(proc, PG_UTF8, encoding,
                                                        (unsigned char *) unconstify(char *, text),
                                                        valid, (unsigned char *) converted, room,
                                                        true)
                        : 0;
            if (valid > 0)
                appendStringInfoString(&out, converted);
            pfree(converted);
        }
        text += valid;
        len -= valid;
        if (len > 0) {
            int skipped = Min(pg_encoding_mblen(PG_UTF8, text), len);

            appendStringInfoChar(&out, '?');
            text += skipped;
            len -= skipped;
        }
    }
    return out.data;
}

/* Where the rows of an answer go: to the columns of the same names. */
typedef struct Rows {
    ReturnSetInfo *result;
    AttInMetadata *meta;
    int *column; /* for each column of the answer, one of the result; -1: none */
    int count;
} Rows;

static void
take_header(Rows *rows, StringInfo message)
{
    TupleDesc desc = rows->result->setDesc;

    rows->count = pq_getmsgint(message, 2);
    rows->column = palloc(Max(rows->count, 1) * sizeof(int));
    for (int i = 0; i < rows->count; i++) {
        const char *name = pq_getmsgrawstring(message);

        (void) pq_getmsgbytes(message, 18);
        rows->column[i] = -1;
        for (int at = 0; at < desc->natts; at++) {
            if (strcmp(NameStr(TupleDescAttr(desc, at)->attname), name) == 0)
                rows->column[i] = at;
        }
    }
}

static void
take_row(StringInfo message, bool is_header, void *into)
{
    Rows *rows = into;
    char **values;
    HeapTuple tuple;
    int count;

    if (is_header) {
        take_header(rows, message);
        return;
    }
    values = palloc0(rows->result->setDesc->natts * sizeof(char *));
    count = pq_getmsgint(message, 2);
    for (int i = 0; i < count; i++) {
        int len = pq_getmsgint(message, 4);

        if (len < 0)
            continue;
        if (i < rows->count && rows->column[i] >= 0)
            values[rows->column[i]] = from_utf8(pq_getmsgbytes(message, len), len);
        else
            (void) pq_getmsgbytes(message, len);
    }
    tuple = BuildTupleFromCStrings(rows->meta, values);
    tuplestore_puttuple(rows->result->setResult, tuple);
    heap_freetuple(tuple);
    pfree(values);
}

static void
show(FunctionCallInfo fcinfo, const char *word)
{
    Rows rows = {.result = (ReturnSetInfo *) fcinfo->resultinfo};
    char *command = psprintf("SHOW %s EXTENDED", word);
    char *error;

    for (const char *at = word; *at != '\0'; at++) {
        if (!((*at >= 'A' && *at <= 'Z') || *at == '_'))
            ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                            errmsg("\"%s\" is no word of the pooler's SHOW", word)));
    }
    InitMaterializedSRF(fcinfo, 0);
    rows.meta = TupleDescGetAttInMetadata(rows.result->setDesc);
    error = run(command, SHOW_PATIENCE_MS, take_row, &rows);
    if (error != NULL)
        ereport(ERROR, (errcode(ERRCODE_CONNECTION_EXCEPTION),
                        errmsg("weir: %s failed: %s", command, from_utf8(error, strlen(error)))));
}

PG_FUNCTION_INFO_V1_VISIBLE(weir_show);
PG_FUNCTION_INFO_V1_VISIBLE(weir_state);
PG_FUNCTION_INFO_V1_VISIBLE(weir_order);

/* weir_show(text): a SHOW of the console with all columns, by the names of these. */
Datum
weir_show(PG_FUNCTION_ARGS)
{
    show(fcinfo, text_to_cstring(PG_GETARG_TEXT_PP(0)));
    return (Datum) 0;
}

/* pg_pooler_state(): a row for each worker thread. */
Datum
weir_state(PG_FUNCTION_ARGS)
{
    show(fcinfo, "WORKERS");
    return (Datum) 0;
}

/* weir_order(verb, database): an order of the console. The database may be NULL. */
Datum
weir_order(PG_FUNCTION_ARGS)
{
    StringInfoData command;
    char *database;
    char *error;

    if (PG_ARGISNULL(0))
        ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
                        errmsg("weir: the order must not be null")));
    initStringInfo(&command);
    appendStringInfoString(&command, text_to_cstring(PG_GETARG_TEXT_PP(0)));
    if (!PG_ARGISNULL(1)) {
        appendStringInfoChar(&command, ' ');
        database = text_to_cstring(PG_GETARG_TEXT_PP(1));
        text_quoted(&command, pg_server_to_any(database, strlen(database), PG_UTF8), '"');
    }
    error = run(command.data, ENDLESS, NULL, NULL);
    if (error != NULL)
        ereport(ERROR, (errcode(ERRCODE_CONNECTION_EXCEPTION),
                        errmsg("weir: %s failed: %s", from_utf8(command.data, command.len),
                               from_utf8(error, strlen(error)))));
    PG_RETURN_VOID();
}
