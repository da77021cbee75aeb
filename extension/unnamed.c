/*
 * unnamed.c: the unnamed statement of the guest, which goes with it to other backends.
 *
 * Core keeps it where no library can look. Its text and its types are taken from the guest's Parse
 * message, or, if that was not seen before core read it, from the portal when it is bound. They are
 * kept as the body of the Parse message that makes core prepare it again. A guest whose Parse was
 * not seen, and that has not bound it yet, keeps this backend (names.c).
 */
#include "attend.h"

#include <arpa/inet.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "peek.h"

#include "access/xact.h"
#include "mb/pg_wchar.h"
#include "nodes/params.h"
#include "tcop/tcopprot.h"
#include "utils/portal.h"

/* A longer statement is not carried to other backends. */
#define BODY_MAX 8192

/* The guest's statement. 0 bytes: it has none, or its text is not known. */
static char body[BODY_MAX];
static uint32 body_len = 0;
static bool changed = false;

/* Core has prepared something that may be the unnamed statement. */
static bool doubtful = false;

/* The request that core reads, and how many of its names were looked at; NULL: unknown. */
static const Peek *request = NULL;
static uint32 looked_at;

/* Core's unnamed statement is the one of `body`. */
static bool is_current = false;

/* The guest's first message prepares the unnamed statement. */
static bool is_parsing = false;

/* Core may still have an unnamed statement, which the next guest must not use. */
static bool is_left = false;

/* What is left is another guest's, until core has dropped it: it begins to run a message then. */
static bool is_foreign = false;
static bool outlives = false;

/* The pair of sockets through which core gets messages of ours. */
static int pair[2] = {-1, -1};

bool
unnamed_open(void)
{
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0;
}

void
unnamed_close(void)
{
    close(pair[0]);
    close(pair[1]);
}

/* Core's end. */
pgsocket
unnamed_socket(void)
{
    return pair[1];
}

static void
forget(void)
{
    if (body_len > 0)
        changed = true;
    body_len = 0;
}

/* All messages are known, and only the last one is a Sync. */
static bool
is_one_batch(const Peek *peek)
{
    return peek->names == PEEK_NAMES_ALL && peek->syncs == 1 && peek->last == 'S';
}

/* The guest's first messages. A simple query drops the statement; so does a Parse that fails. */
void
unnamed_note_request(const Peek *peek)
{
    request = is_one_batch(peek) ? peek : NULL;
    looked_at = 0;
    is_parsing = attach_forgets_unnamed(peek) && peek->parses > 0;
    if (attach_forgets_unnamed(peek) && !is_parsing)
        forget();
}

/* A simple query has ended. Or an older portal has run; then the next Bind tells the statement. */
void
unnamed_note_query(void)
{
    forget();
    doubtful = true;
    is_current = false;
}

void
unnamed_note_error(void)
{
    if (is_parsing)
        forget();
    is_parsing = false;
    /* Core skips what follows, up to a Sync. */
    request = NULL;
    /* A text that is not valid in the guest's encoding does not come to that. */
    if (is_foreign && debug_query_string == NULL)
        outlives = true;
}

bool
unnamed_is_foreign(void)
{
    return is_foreign;
}

/* The Parse of the request that core has just run; NULL: unknown. */
static const PeekName *
next_parse(void)
{
    while (request != NULL && looked_at < request->count) {
        const PeekName *found = &request->found[looked_at++];

        if (found->verb == PEEK_PARSE)
            return found;
    }
    request = NULL;
    return NULL;
}

/* The body of a Parse message begins with the name, and its length stands before it. */
static uint32
message_len(const PeekName *found)
{
    uint32 len;

    memcpy(&len, found->name - sizeof(len), sizeof(len));
    return ntohl(len) - sizeof(len);
}

/* Keeps the statement. Core has its text in the server's encoding. 0 bytes: there is no room. */
static void
keep(const char *fresh, uint32 len)
{
    doubtful = false;
    is_current = true;
    if (len == body_len && memcmp(fresh, body, len) == 0)
        return;
    memcpy(body, fresh, len);
    body_len = len;
    changed = true;
}

/* False: the types are not found, or the statement is too long. */
static bool
keep_parsed(const PeekName *found)
{
    static char fresh[BODY_MAX];
    const unsigned char *end = found->name + message_len(found);
    const unsigned char *text = found->name + 1;
    const unsigned char *nul = text < end ? memchr(text, '\0', end - text) : NULL;
    size_t types_len = nul != NULL ? end - nul - 1 : 0;
    size_t text_len = debug_query_string != NULL ? strlen(debug_query_string) + 1 : 0;

    if (types_len < sizeof(uint16) || text_len == 0 || 1 + text_len + types_len > BODY_MAX)
        return false;
    fresh[0] = '\0';
    memcpy(fresh + 1, debug_query_string, text_len);
    memcpy(fresh + 1 + text_len, nul + 1, types_len);
    keep(fresh, 1 + text_len + types_len);
    return true;
}

/* A Parse is done. */
void
unnamed_note_parse(void)
{
    const PeekName *found = next_parse();

    is_parsing = false;
    if (found != NULL && found->len > 0)
        return;
    is_left = true;
    if (found != NULL && keep_parsed(found))
        return;
    doubtful = true;
    is_current = false;
}

/* Core has prepared an unnamed statement, and it is not known. */
bool
unnamed_is_doubtful(void)
{
    return doubtful;
}

/* The unnamed portal, if the Bind that has just run has made it out of the unnamed statement. */
static Portal
bound_portal(void)
{
    Portal portal = GetPortalByName("");

    if (!PortalIsValid(portal) || portal->prepStmtName != NULL || portal->sourceText == NULL ||
        portal->creation_time != GetCurrentStatementStartTimestamp())
        return NULL;
    return portal;
}

/* False: there is no room. */
static bool
write_body(const Portal portal, char *to, uint32 *len)
{
    ParamListInfo params = portal->portalParams;
    int count = params != NULL ? params->numParams : 0;
    size_t text = strlen(portal->sourceText) + 1;
    uint16 types = htons((uint16) count);
    char *at = to;

    if (1 + text + sizeof(types) + count * sizeof(uint32) > BODY_MAX)
        return false;
    *at++ = '\0';
    memcpy(at, portal->sourceText, text);
    at += text;
    memcpy(at, &types, sizeof(types));
    at += sizeof(types);
    for (int i = 0; i < count; i++) {
        uint32 type = htonl(params->params[i].ptype);

        memcpy(at, &type, sizeof(type));
        at += sizeof(type);
    }
    *len = at - to;
    return true;
}

/* A Bind is done. */
void
unnamed_note_bind(void)
{
    static char fresh[BODY_MAX];
    uint32 len = 0;
    Portal portal = doubtful ? bound_portal() : NULL;

    if (portal == NULL)
        return;
    if (!write_body(portal, fresh, &len))
        len = 0;
    keep(fresh, len);
}

/* A transaction is over. `prepared`: it has prepared an unnamed statement. True: save the body. */
bool
unnamed_settle(bool prepared)
{
    bool saves;

    request = NULL;
    if (doubtful && prepared && body_len > 0) {
        body_len = 0;
        changed = true;
    }
    doubtful = false;
    is_foreign = outlives;
    is_left = is_left || outlives;
    outlives = false;
    saves = changed;
    changed = false;
    return saves;
}

/* The next guest's. Core does not have it yet. */
bool
unnamed_restore(const char *from, uint32 len)
{
    /* A name, a text, and a count of types. */
    if (len > BODY_MAX || (len > 0 && (len < 4 || memchr(from + 1, '\0', len - 3) == NULL)))
        return false;
    memcpy(body, from, len);
    body_len = len;
    changed = false;
    doubtful = false;
    is_current = false;
    return true;
}

const char *
unnamed_body(uint32 *len)
{
    *len = body_len;
    return body;
}

/* Bytes that core will read from the pair. */
static size_t waiting = 0;

size_t
unnamed_waiting(void)
{
    return waiting;
}

/* Has core read all? */
bool
unnamed_was_read(void)
{
    int left = 0;

    return ioctl(pair[1], FIONREAD, &left) == 0 && left == 0;
}

/* Core has read all. */
void
unnamed_note_read(void)
{
    waiting = 0;
}

/* Makes core read these bytes before those of the guest's socket. */
bool
unnamed_feed(const char *bytes, size_t len)
{
    bool done = send(pair[0], bytes, len, MSG_NOSIGNAL) == (ssize_t) len;

    if (done)
        waiting += len;
    return done;
}

/* Makes core run messages of ours, whose answers nobody gets. */
static Switch
run_before(const char *messages, size_t len)
{
    return unnamed_feed(messages, len) ? SWITCH_RUNS : SWITCH_FAILED;
}

/* Drops the unnamed statement, as every simple query does. */
static Switch
clear(void)
{
    static const char query[] = {'Q', 0, 0, 0, 5, 0};

    return run_before(query, sizeof(query));
}

/* A Parse and a Sync. The text is in the encoding of the server, and core expects the guest's. */
typedef struct Messages {
    char bytes[BODY_MAX * MAX_CONVERSION_GROWTH + 16];
    size_t len;
} Messages;

static bool
write_messages(void *argument)
{
    static const char sync[] = {'S', 0, 0, 0, 4};
    Messages *to = argument;
    const char *text = body + 1;
    const char *types = text + strlen(text) + 1;
    size_t types_len = body + body_len - types;
    const char *sent = pg_server_to_client(text, strlen(text));
    size_t sent_len = strlen(sent) + 1;
    uint32 size = htonl(sizeof(size) + 1 + sent_len + types_len);
    char *at = to->bytes;

    *at++ = 'P';
    memcpy(at, &size, sizeof(size));
    at += sizeof(size);
    *at++ = '\0';
    memcpy(at, sent, sent_len);
    at += sent_len;
    memcpy(at, types, types_len);
    at += types_len;
    memcpy(at, sync, sizeof(sync));
    to->len = at + sizeof(sync) - to->bytes;
    return true;
}

/* If core cannot prepare it any more, the guest's Bind fails. */
static Switch
prepare(void)
{
    static Messages messages;

    if (!guarded(write_messages, &messages, "the unnamed statement has no form for its client"))
        return clear();
    return run_before(messages.bytes, messages.len);
}

/* Makes core's unnamed statement the guest's, before the messages that have come. */
Switch
unnamed_switch(const Peek *peek, bool is_new)
{
    bool was_left = (is_left && is_new) || is_foreign;

    is_foreign = was_left && attach_forgets_unnamed(peek);
    if (is_new || attach_forgets_unnamed(peek))
        is_left = false;
    if (attach_forgets_unnamed(peek))
        return SWITCH_DONE;
    if (body_len > 0 && !is_current && attach_uses_unnamed(peek)) {
        is_left = true;
        is_current = true;
        return prepare();
    }
    return was_left ? clear() : SWITCH_DONE;
}
