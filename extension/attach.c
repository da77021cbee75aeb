/*
 * attach.c: the socket of a guest, which core uses in place of the backend's own: the address that
 * is shown, and a look at the unread bytes. Also the lobby's file, and the sleep until a guest
 * sends something.
 */
#include "attend.h"
#include "compat.h"

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "peek.h"

#include "commands/async.h"
#include "libpq/libpq-be.h"
#include "libpq/libpq.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "storage/pmsignal.h"
#include "storage/sinval.h"
#include "utils/backend_status.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#define PEEK_MAX 8192

/*
 * Files that core opens beyond its own limit, and those of the library. Descriptors come with any
 * free number first (control.c), and that must not be the number of another guest.
 */
#define SPARE_FILES (128 + WAITS_MAX)

static unsigned char peeked[PEEK_MAX];

/* The backend's own connection. */
static struct {
    pgsocket socket;
    bool has_tls;
    WaitEventSet *set;
    SockAddr address;
} own;

void
attach_note_own(void)
{
    own.socket = MyProcPort->sock;
    own.has_tls = MyProcPort->ssl_in_use;
    own.set = FeBeWaitSet;
    own.address = MyProcPort->raddr;
}

/* Core reads from the own connection again, and writes to it. */
void
attach_use_own(void)
{
    MyProcPort->sock = own.socket;
    MyProcPort->ssl_in_use = own.has_tls;
    FeBeWaitSet = own.set;
}

/* Core does so with this socket, which has no TLS. */
void
attach_use(int socket)
{
    MyProcPort->sock = socket;
    MyProcPort->ssl_in_use = false;
}

static void
show(const SockAddr *address)
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
attach_show_own(void)
{
    show(&own.address);
}

void
attach_show_peer(int socket)
{
    SockAddr address = {0};

    address.salen = sizeof(address.addr);
    if (getpeername(socket, (struct sockaddr *) &address.addr, &address.salen) == 0)
        show(&address);
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

int
attach_first_code(void)
{
    return peeked[0];
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

/* Do the messages bind or describe the unnamed statement that was there before, as far as known? */
bool
attach_uses_unnamed(const Peek *peek)
{
    for (uint32 i = 0; i < peek->count; i++)
        if (peek->found[i].len == 0)
            return peek->found[i].verb == PEEK_BIND || peek->found[i].verb == PEEK_DESCRIBE;
    return peek->names == PEEK_NAMES_MANY;
}

/* Has core read a Terminate behind the last message? */
bool
attach_has_ended(void)
{
    bool ended;

    pq_startmsgread();
    ended = pq_peekbyte() == 'X';
    pq_endmsgread();
    return ended;
}

/* Drops all that core has read. Bytes behind a Terminate are no request. */
void
attach_discard_input(void)
{
    pq_startmsgread();
    while (compat_has_input())
        (void) pq_getbyte();
    pq_endmsgread();
}

/* Closes the sockets of these places, `to` not included. Called in a signal handler. */
void
attach_close(const Lobby *lobby, uint32 from, uint32 to)
{
    for (uint32 place = from; place < to; place++)
        if (lobby->held[place] != 0)
            (void) close(lobby->base + (int) place);
}

/* Closes the sockets of all places, whose numbers may be others'. No guest may be attached. */
void
attach_forget(Lobby *lobby)
{
    waits_forget();
    attach_close(lobby, 0, lobby->places);
    memset(lobby->held, 0, lobby->places * sizeof(lobby->held[0]));
}

/* Wakes a backend that lingers; -1: none. */
void
attach_wake(const Lobby *lobby, int backend)
{
    LobbyBackend *other = backend < 0 ? NULL : lobby_backend(lobby, (uint32) backend);
    Latch *latch = other == NULL ? NULL : compat_latch_of(other->latch);

    if (latch != NULL)
        SetLatch(latch);
}

/* Weir reads the same clock. */
uint64
attach_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* A time that core has measured, by that clock. */
uint64
attach_monotonic_us(TimestampTz at)
{
    TimestampTz now = GetCurrentTimestamp();

    return attach_now_us() - (at < now ? (uint64) (now - at) : 0);
}

/* Maps the file of a lobby. NULL, or why it cannot be used. */
static const char *
attach_map(const Welcome *welcome, Lobby *lobby)
{
    struct stat facts;
    void *memory;
    uint32 *held;
    const char *why;

    if (fstat(welcome->memory, &facts) != 0 || facts.st_size < 8192)
        return "the lobby's file cannot be used";
    memory = mmap(NULL, facts.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, welcome->memory, 0);
    if (memory == MAP_FAILED)
        return "the lobby's file cannot be mapped";
    held = calloc(LOBBY_PLACES_MAX, sizeof(uint32));
    why = held == NULL ? "there is no memory"
                       : lobby_open(lobby, memory, facts.st_size, welcome->set,
                                    (int) welcome->base, held, LOBBY_PLACES_MAX);
    if (why == NULL && lobby_backend(lobby, welcome->line) == NULL)
        why = "the lobby has no line of that number";
    if (why == NULL && (welcome->base > 1 << 30 ||
                        welcome->base + lobby->places > sysconf(_SC_OPEN_MAX)))
        why = "the process may have too few descriptors";
    if (why == NULL && welcome->base < max_safe_fds + SPARE_FILES)
        why = "max_files_per_process is too large for a direct pool";
    if (why != NULL) {
        free(held);
        munmap(memory, facts.st_size);
    }
    return why;
}

/* Connects to Weir, and maps its lobby. False: the log says why. */
bool
attach_connect(Lobby *lobby, uint32 *me)
{
    Welcome welcome;
    const char *why;

    if (!control_connect(&welcome))
        return false;
    why = attach_map(&welcome, lobby);
    close(welcome.memory);
    *me = welcome.line;
    if (why == NULL)
        return true;
    close(welcome.set);
    control_close();
    ereport(LOG_SERVER_ONLY, (errmsg("weir: %s", why)));
    return false;
}

static bool
check_interrupts(void *unused)
{
    RESUME_INTERRUPTS();
    CHECK_FOR_INTERRUPTS();
    HOLD_INTERRUPTS();
    return true;
}

/*
 * Ignores a cancel, as core does while no query runs. Core itself takes it, because it may be a
 * conflict with recovery. Before 17, that has a second flag, which only core can reset. If it
 * stayed, the next guest would be ended.
 */
void
attach_ignore_cancel(void)
{
    if (!QueryCancelPending || ProcDiePending)
        return;
    (void) guarded(check_interrupts, NULL, NULL);
    InterruptPending = true; /* the error came before core had looked at all of them */
}

/* Handles interrupts as core does while it waits. Ignores those that are meant for a guest. */
void
attach_serve_interrupts(void)
{
    attach_ignore_cancel();
    IdleSessionTimeoutPending = false;
    if (IdleStatsUpdateTimeoutPending) {
        IdleStatsUpdateTimeoutPending = false;
        pgstat_report_stat(true);
    }
    if (catchupInterruptPending)
        ProcessCatchupInterrupt();
    if (notifyInterruptPending)
        ProcessNotifyInterrupt(false);
    CHECK_FOR_INTERRUPTS();
}

/*
 * Waits for an event of the set, or with `event` NULL for bytes of the guest; for a message of
 * Weir's (SIGIO); for the latch (SIGURG). The latch's own way to wait would need a set that has the
 * lobby's in it, and all sleepers would wake for each event. `timeout_ms`: -1 is none.
 */
int
attach_sleep(const Lobby *lobby, uint32 place, struct epoll_event *event, int timeout_ms)
{
    struct pollfd guest = {.fd = lobby->base + (int) place, .events = POLLIN | POLLRDHUP};
    struct timespec timeout = {.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000};
    sigset_t before;
    sigset_t open = UnBlockSig;
    int got = 0;
    int error = 0;

    sigdelset(&open, SIGURG);
    pgstat_report_wait_start(PG_WAIT_EXTENSION);
    sigprocmask(SIG_SETMASK, &BlockSig, &before);
    MyLatch->maybe_sleeping = true;
    pg_memory_barrier();
    if (!MyLatch->is_set && PostmasterIsAlive()) {
        got = event != NULL ? epoll_pwait(lobby->set, event, 1, timeout_ms, &open)
                            : ppoll(&guest, 1, timeout_ms < 0 ? NULL : &timeout, &open);
        error = errno;
    }
    MyLatch->maybe_sleeping = false;
    sigprocmask(SIG_SETMASK, &before, NULL);
    pgstat_report_wait_end();
    ResetLatch(MyLatch);
    if (!PostmasterIsAlive())
        proc_exit(1);
    errno = error;
    return got;
}
