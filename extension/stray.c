/*
 * stray.c: COPY data that comes when no COPY runs. A client that was told of an error may still be
 * sending, and core neither runs nor answers such messages. It would wait for the client's next
 * request, and keep this backend for it.
 *
 * A message may be longer than what has come of it. Its place remembers how much is left.
 */
#include "attend.h"
#include "compat.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include "peek.h"

#include "libpq/libpq.h"

/* A client that sends without a pause is put at rest after so many messages. Others may wait. */
#define STRAYS_MAX 64
/* And within a long one after so many reads. */
#define READS_MAX 64

static bool
is_stray(int code)
{
    return code == 'd' || code == 'c' || code == 'f';
}

/* Reads what has come of the rest of a message. False: the connection has ended. */
static bool
skip(int socket, uint32 *left)
{
    static char room[8192];

    for (int i = 0; i < READS_MAX && *left > 0; i++) {
        ssize_t got = recv(socket, room, Min(*left, sizeof(room)), MSG_DONTWAIT);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 && errno == EAGAIN;
        *left -= got;
    }
    return true;
}

/* Peeks at what the claimed guest has sent behind such messages. REASON_NONE: serve it. */
Reason
stray_look(int socket, uint32 *left, Peek *peek)
{
    for (int i = 0; i < STRAYS_MAX; i++) {
        Reason reason;

        if (!skip(socket, left))
            return REASON_ENDED;
        if (*left > 0)
            break;
        reason = attach_look(socket, peek);
        if (reason != REASON_NONE || peek->first_len == 0 || !is_stray(attach_first_code()))
            return reason;
        *left = (uint32) peek->first_len;
    }
    peek->first = PEEK_NOTHING;
    return REASON_NONE;
}

/* Drops such messages from what core has read, behind a transaction. */
void
stray_drop(uint32 *left)
{
    pq_startmsgread();
    while (compat_has_input() && is_stray(pq_peekbyte())) {
        char code;
        uint32 size;

        if (pq_getbytes(&code, sizeof(code)) != 0 || pq_getbytes((char *) &size, sizeof(size)) != 0)
            break; /* the connection has ended */
        size = ntohl(size);
        /* Core ends a session for a shorter one. This ends at the next look. */
        *left = size > sizeof(size) ? size - sizeof(size) : 0;
        while (*left > 0 && compat_has_input() && pq_getbyte() != EOF)
            (*left)--;
    }
    pq_endmsgread();
}
