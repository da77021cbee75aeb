/*
 * waits.c: the wait sets with which core waits until it can read from a guest, or write to it.
 *
 * To make one takes 3 µs, so they are kept, and a guest without one takes that of another guest.
 * Core cannot exchange the socket of a set. So this is done behind its back, in the set's epoll
 * instance and in its entry for the socket. Where these are not found, the set is made anew.
 */
#include "attend.h"
#include "compat.h"

#include <sys/epoll.h>
#include <unistd.h>

#include "libpq/libpq.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/latch.h"

typedef struct WaitSet {
    WaitEventSet *set;
    int socket;
    uint32 place;
    uint32 generation; /* 0: no guest's */
    int epoll;         /* -1: unknown, as is the entry */
    WaitEvent *entry;  /* the set's entry for the socket */
} WaitSet;

static WaitSet all[WAITS_MAX];

/* Has the epoll instance the socket? One that did not have it does not keep it. */
static bool
has_socket(int epoll, int socket)
{
    struct epoll_event unused = {0};

    if (epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &unused) != 0)
        return errno == EEXIST;
    (void) epoll_ctl(epoll, EPOLL_CTL_DEL, socket, NULL);
    return false;
}

/*
 * Finds the set's epoll instance: it has taken the number that was the lowest free one before, and
 * has the socket. It names its entry for the socket in the event that the socket is writable.
 */
static void
find_inside(WaitSet *at, int epoll)
{
    struct epoll_event events[FeBeWaitSetNEvents] = {0};
    int count;

    at->epoll = -1;
    if (epoll < 0 || !has_socket(epoll, at->socket))
        return;
    count = epoll_wait(epoll, events, FeBeWaitSetNEvents, 0);
    for (int i = 0; i < count; i++) {
        WaitEvent *entry = events[i].data.ptr;

        if (entry == NULL || entry->pos != FeBeWaitSetSocketPos || entry->fd != at->socket ||
            entry->events != WL_SOCKET_WRITEABLE)
            continue;
        at->epoll = epoll;
        at->entry = entry;
    }
}

static void
forget(WaitSet *at)
{
    if (at->set != NULL)
        FreeWaitEventSet(at->set);
    at->set = NULL;
}

/* The number that the next descriptor will have, as a rule. */
static int
lowest_number(int socket)
{
    int number = dup(socket);

    if (number >= 0)
        close(number);
    return fault_wanted("set") ? all[0].epoll : number;
}

/* If it raises an ERROR, no guest uses what there is. */
static void
make(WaitSet *at, int socket)
{
    int epoll = lowest_number(socket);

    at->epoll = -1;
    at->generation = 0;
    at->set = compat_create_wait_set(FeBeWaitSetNEvents);
    AddWaitEventToSet(at->set, WL_SOCKET_WRITEABLE, socket, NULL, NULL);
    AddWaitEventToSet(at->set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
    AddWaitEventToSet(at->set, WL_POSTMASTER_DEATH, PGINVALID_SOCKET, NULL, NULL);
    at->socket = socket;
    find_inside(at, epoll);
}

/*
 * Exchanges the socket of a set. False: the set cannot be used any more. That the old socket can be
 * removed shows that its number still names it. A closed socket would stay in the set, because
 * other processes have it, too.
 */
static bool
exchange(WaitSet *at, int socket)
{
    struct epoll_event event = {.events = EPOLLERR | EPOLLHUP | EPOLLOUT, .data.ptr = at->entry};

    if (at->epoll < 0 || epoll_ctl(at->epoll, EPOLL_CTL_DEL, at->socket, NULL) != 0 ||
        epoll_ctl(at->epoll, EPOLL_CTL_ADD, socket, &event) != 0)
        return false;
    at->socket = at->entry->fd = socket;
    at->entry->events = WL_SOCKET_WRITEABLE;
    return true;
}

/* Core waits for this guest from now on. Raises an ERROR if that is not possible. */
void
waits_use(int socket, uint32 place, uint32 generation)
{
    /* Core raises an error beyond a third of the files that it may open. */
    WaitSet *at = &all[place % Max(1, Min(WAITS_MAX, max_safe_fds / 6))];

    if (at->set != NULL && (at->place != place || at->generation != generation) &&
        !exchange(at, socket))
        forget(at);
    if (at->set == NULL)
        make(at, socket);
    at->place = place;
    at->generation = generation;
    FeBeWaitSet = at->set;
}

/* Before the sockets of guests are closed. */
void
waits_forget(void)
{
    for (int i = 0; i < WAITS_MAX; i++)
        forget(&all[i]);
}
