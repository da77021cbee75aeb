/*
 * attach.c: the socket of a guest, which core uses in place of home's: what core waits with, the
 * address that it shows, and a look at the bytes that wait.
 */
#include "attend.h"
#include "compat.h"

#include <sys/socket.h>

#include "peek.h"

#include "libpq/libpq-be.h"
#include "miscadmin.h"
#include "utils/backend_status.h"

#define PEEK_MAX 8192
#define WAIT_SETS 64

typedef struct WaitSet {
    WaitEventSet *set;
    uint32 place;
    uint32 generation;
} WaitSet;

static WaitSet wait_sets[WAIT_SETS];
static unsigned char peeked[PEEK_MAX];

/* Core waits with this. Sets are kept, since to make one takes 3 µs. */
void
attach_wait_set(int socket, uint32 place, uint32 generation)
{
    WaitSet *at = &wait_sets[place % WAIT_SETS];

    if (at->set == NULL || at->place != place || at->generation != generation) {
        if (at->set != NULL)
            FreeWaitEventSet(at->set);
        at->set = NULL;
        at->set = compat_create_wait_set(FeBeWaitSetNEvents);
        AddWaitEventToSet(at->set, WL_SOCKET_WRITEABLE, socket, NULL, NULL);
        AddWaitEventToSet(at->set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
        AddWaitEventToSet(at->set, WL_POSTMASTER_DEATH, PGINVALID_SOCKET, NULL, NULL);
        at->place = place;
        at->generation = generation;
    }
    FeBeWaitSet = at->set;
}

void
attach_show(const SockAddr *address)
{
    volatile PgBackendStatus *entry = MyBEEntry;

    MyProcPort->raddr = *address;
    if (entry == NULL || entry->st_procpid != MyProcPid)
        return;
    PGSTAT_BEGIN_WRITE_ACTIVITY(entry);
    memcpy((char *) &entry->st_clientaddr, address, sizeof(SockAddr));
    PGSTAT_END_WRITE_ACTIVITY(entry);
}

void
attach_show_peer(int socket)
{
    SockAddr address = {0};

    address.salen = sizeof(address.addr);
    if (getpeername(socket, (struct sockaddr *) &address.addr, &address.salen) == 0)
        attach_show(&address);
}

/* Peeks at what the claimed guest has sent; REASON_NONE: serve it. */
Reason
attach_look(int socket, Peek *peek)
{
    ssize_t got = recv(socket, peeked, sizeof(peeked), MSG_PEEK | MSG_DONTWAIT);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        got = 0;
    else if (got <= 0)
        return REASON_ENDED;
    peek_walk(peeked, got, peek);
    switch (peek->first) {
        case PEEK_END:
            return REASON_ENDED;
        case PEEK_BAD:
            return REASON_BAD;
        case PEEK_PARTIAL:
            return got == sizeof(peeked) ? REASON_NONE : REASON_PARTIAL;
        case PEEK_NOTHING:
        case PEEK_WHOLE:
            return REASON_NONE;
    }
    return REASON_BAD;
}

/* Does the first message make core forget its unnamed statement? */
bool
attach_forgets_unnamed(const Peek *peek)
{
    if (peeked[0] == 'Q')
        return true;
    return peeked[0] == 'P' && peek->count > 0 && peek->found[0].verb == PEEK_PARSE &&
           peek->found[0].name == peeked + 5 && peek->found[0].len == 0;
}
