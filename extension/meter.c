/*
 * meter.c: gives core the requests of a guest that sends ahead, a few at a time.
 *
 * Core reads as much as its buffer takes, 8 KiB, and cannot give back what it has read. A backend
 * whose guest always has more there would serve no other guest. So if more requests have come than
 * may be run at a time, the first of them are taken from the guest's socket and given to core
 * through the pair of sockets of unnamed.c. Core reads them at once, in one piece. Then it has the
 * guest's socket again, and its buffer is empty when these requests are done.
 *
 * The number grows as long as the requests are short, and counts for one guest only. So where
 * guests take turns, each turn is one request, or the rest of a transaction.
 */
#include "attend.h"

#include <arpa/inet.h>
#include <sys/socket.h>

/* What core reads at once. */
#define CORE_BUFFER 8192
/* At most so many requests at a time, and more than before only if these took less than this. */
#define REQUESTS_MAX 16
#define SHORT_US 5000

static struct {
    uint32 place;
    uint32 generation; /* 0: no guest's */
    uint32 requests;   /* at a time */
    uint64 began;      /* when core got the last ones */
} turn;

typedef struct Found {
    size_t len;      /* of whole requests, as many as wanted */
    uint32 requests; /* whole ones */
} Found;

static Found
find(const unsigned char *bytes, size_t len, uint32 wanted)
{
    Found found = {0};
    size_t at = 0;

    while (len - at > sizeof(uint32) && found.requests < wanted) {
        unsigned char code = bytes[at];
        uint32 size;

        memcpy(&size, bytes + at + 1, sizeof(size));
        size = ntohl(size);
        if (size < sizeof(size) || size > len - at - 1)
            break;
        at += 1 + size;
        if (code == 'Q' || code == 'S' || code == 'F') {
            found.requests++;
            found.len = at;
        }
    }
    return found;
}

static uint32
next_number(uint32 place, uint32 generation, uint64 now)
{
    if (turn.generation != generation || turn.place != place) {
        turn.place = place;
        turn.generation = generation;
        turn.requests = 1;
    } else if (now < turn.began + SHORT_US) {
        turn.requests = Min(turn.requests * 2, REQUESTS_MAX);
    } else {
        turn.requests = Max(turn.requests / 2, 1);
    }
    turn.began = now;
    return turn.requests;
}

/* Takes what was peeked at from the guest's socket. */
static void
take(int socket, size_t len)
{
    static char room[CORE_BUFFER];

    while (len > 0) {
        ssize_t got = recv(socket, room, len, MSG_DONTWAIT);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return; /* the connection has ended */
        len -= got;
    }
}

/*
 * Core is about to read the guest's next request, and has none of its bytes. `is_within` a
 * transaction: one at a time, to find its end. True: core is to read from unnamed_socket().
 */
bool
meter_feed(int socket, uint32 place, uint32 generation, bool is_within)
{
    static unsigned char bytes[CORE_BUFFER];
    size_t room = sizeof(bytes) - Min(sizeof(bytes), unnamed_waiting());
    ssize_t got = room > 0 ? recv(socket, bytes, room, MSG_PEEK | MSG_DONTWAIT) : 0;
    uint32 wanted = 1;
    Found found;

    if (got <= 0)
        return false;
    if (!is_within)
        wanted = next_number(place, generation, attach_now_us());
    found = find(bytes, got, wanted);
    if (found.requests == 0 || !unnamed_feed((const char *) bytes, found.len))
        return false;
    take(socket, found.len);
    return true;
}
