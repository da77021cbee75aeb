/*
 * kernel.c: one epoll set, as Linux has it: entries are known by socket and number, EPOLLONESHOT
 * disarms an entry when its event is taken, and events are given out in the order of arrival.
 */
#include "model.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#define ENTRIES_MAX 16

typedef struct Entry {
    bool used;
    bool armed;
    bool queued;
    int socket;
    int place;
    uint64_t data;
} Entry;

Socket sockets[SOCKETS_MAX];
int descriptors[BACKENDS_MAX + 1][PLACES];

static Entry entries[ENTRIES_MAX];
static int queue[ENTRIES_MAX]; /* of entries, the oldest first */
static int queued;

void
kernel_reset(void)
{
    memset(entries, 0, sizeof(entries));
    memset(sockets, 0, sizeof(sockets));
    memset(descriptors, -1, sizeof(descriptors));
    queued = 0;
    for (int i = 0; i < SOCKETS_MAX; i++)
        sockets[i].server = -1;
}

static void
unqueue(int entry)
{
    int kept = 0;

    for (int i = 0; i < queued; i++)
        if (queue[i] != entry)
            queue[kept++] = queue[i];
    queued = kept;
    entries[entry].queued = false;
}

static void
look(int entry)
{
    Entry *at = &entries[entry];

    if (at->used && at->armed && !at->queued && sockets[at->socket].unread > 0) {
        at->queued = true;
        queue[queued++] = entry;
    }
}

void
kernel_send(int socket)
{
    sockets[socket].unread++;
    for (int i = 0; i < ENTRIES_MAX; i++)
        if (entries[i].socket == socket)
            look(i);
}

/* An entry whose socket has been read meanwhile has no event. */
bool
kernel_has_event(void)
{
    while (queued > 0 && sockets[entries[queue[0]].socket].unread == 0)
        unqueue(queue[0]);
    return queued > 0;
}

bool
kernel_take_event(uint64_t *data)
{
    int first;

    if (!kernel_has_event())
        return false;
    first = queue[0];
    unqueue(first);
    entries[first].armed = false;
    *data = entries[first].data;
    return true;
}

static int
find(int socket, int place)
{
    for (int i = 0; i < ENTRIES_MAX; i++)
        if (entries[i].used && entries[i].socket == socket && entries[i].place == place)
            return i;
    return -1;
}

static int
set(int entry, const struct epoll_event *event)
{
    entries[entry].armed = true;
    entries[entry].data = event->data.u64;
    unqueue(entry);
    look(entry);
    return 0;
}

static int
add(int socket, int place, const struct epoll_event *event)
{
    for (int i = 0; i < ENTRIES_MAX; i++) {
        if (entries[i].used)
            continue;
        entries[i] = (Entry){.used = true, .socket = socket, .place = place};
        return set(i, event);
    }
    model_fail("the model's epoll set is full");
}

/* lobby.c is compiled with -Depoll_ctl=model_epoll_ctl, and so on. */
extern int model_epoll_ctl(int epfd, int operation, int fd, struct epoll_event *event);
extern int model_dup3(int from, int to, int flags);
extern int model_shutdown(int fd, int how);
extern int model_fallocate(int fd, int mode, long at, long len);

/* A client's descriptor, before it has a place, has the number of its socket. */
int
model_dup3(int from, int to, int flags)
{
    (void) flags;
    model_step();
    if (from < 0) {
        errno = EBADF;
        return -1;
    }
    descriptors[model_row()][to - BASE] = from == BLANK ? -1 : from;
    return to;
}

int
model_shutdown(int fd, int how)
{
    int socket;

    (void) how;
    model_step();
    socket = descriptors[model_row()][fd - BASE];
    if (socket >= 0)
        sockets[socket].closed = true;
    return 0;
}

int
model_fallocate(int fd, int mode, long at, long len)
{
    (void) fd;
    (void) mode;
    model_step();
    world_punch(at, len);
    return 0;
}

int
model_epoll_ctl(int epfd, int operation, int fd, struct epoll_event *event)
{
    int place = fd - BASE;
    int socket;
    int entry;

    (void) epfd;
    model_step();
    socket = descriptors[model_row()][place];
    if (socket < 0) {
        errno = EBADF;
        return -1;
    }
    entry = find(socket, place);
    if (operation == EPOLL_CTL_ADD && entry < 0)
        return add(socket, place, event);
    if (operation == EPOLL_CTL_ADD) {
        errno = EEXIST;
        return -1;
    }
    if (entry < 0) {
        errno = ENOENT;
        return -1;
    }
    if (operation == EPOLL_CTL_MOD)
        return set(entry, event);
    unqueue(entry);
    entries[entry].used = false;
    return 0;
}
