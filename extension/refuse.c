/*
 * refuse.c: answers clients while the pooler cannot be started. The supervisor has the listening
 * sockets, so without an answer these clients would wait until the cause is gone.
 *
 * A client gets the error after its startup packet: what is not read when a socket is closed resets
 * the connection, and the client might lose the error. Only a client on this machine gets the
 * reason, since it may name files.
 */
#include "weir.h"
#include "supervisor.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libpq/pqcomm.h"
#include "port/pg_bswap.h"
#include "postmaster/postmaster.h"
#include "utils/timestamp.h"

/* Clients whose startup packet is not complete. If one more comes, the first one is closed. */
#define CALLERS_MAX 64
#define CALLER_PATIENCE_MS 5000
#define HEAD_LEN 8

typedef struct Caller {
    int fd;
    TimestampTz until;
    bool is_near; /* it is on this machine */
    int has;      /* bytes of the head */
    uint32 head[HEAD_LEN / sizeof(uint32)];
    uint32 left; /* bytes behind the head that have not come */
} Caller;

static Caller callers[CALLERS_MAX];
static int count = 0;
/* The listening sockets, these clients and the pooler that starts; -1: closed. */
static int watch = -1;

static bool
add_to_watch(int fd)
{
    struct epoll_event event = {.events = EPOLLIN};

    return epoll_ctl(watch, EPOLL_CTL_ADD, fd, &event) == 0 || errno == EEXIST;
}

/* Opens the watch. It is readable when refuse_callers() has something to do. */
static void
open_watch(void)
{
    int fds[WEIR_SOCKETS_MAX];
    int sockets = sockets_list(fds);

    if (watch >= 0 || sockets == 0)
        return;
    watch = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; watch >= 0 && i < sockets; i++)
        add_to_watch(fds[i]);
}

/* The descriptor to wait for in place of `control`, which is the pooler's or -1. */
int
refuse_watch(int control)
{
    if (watch < 0)
        return control;
    if (control >= 0)
        add_to_watch(control);
    return watch;
}

static void
drop(int at)
{
    close(callers[at].fd);
    memmove(callers + at, callers + at + 1, (--count - at) * sizeof(Caller));
}

void
refuse_end(void)
{
    while (count > 0)
        drop(0);
    if (watch >= 0)
        close(watch);
    watch = -1;
}

static bool
is_on_this_machine(const struct sockaddr_storage *address)
{
    switch (address->ss_family) {
    case AF_UNIX:
        return true;
    case AF_INET:
        return (ntohl(((const struct sockaddr_in *) address)->sin_addr.s_addr) >> 24) == 127;
    case AF_INET6:
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *) address)->sin6_addr);
    default:
        return false;
    }
}

static void
accept_from(int listening)
{
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t len = sizeof(address);
    int fd;

    while ((fd = accept4(listening, (struct sockaddr *) &address, &len,
                         SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        if (count == CALLERS_MAX)
            drop(0);
        callers[count++] = (Caller){
            .fd = fd,
            .until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), CALLER_PATIENCE_MS),
            .is_near = is_on_this_machine(&address)};
        add_to_watch(fd);
        len = sizeof(address);
    }
}

static void
field(StringInfo out, char code, const char *text)
{
    appendStringInfoChar(out, code);
    appendBinaryStringInfo(out, text, strlen(text) + 1);
}

static void
send_error(const Caller *caller, const char *why)
{
    StringInfoData out;
    uint32 len;

    initStringInfo(&out);
    appendBinaryStringInfo(&out, "E\0\0\0\0", 5);
    field(&out, 'S', "FATAL");
    field(&out, 'V', "FATAL");
    field(&out, 'C', "57P03");
    field(&out, 'M', "the connection pooler cannot start");
    field(&out, 'D', caller->is_near ? why : "The server's log has the reason.");
    field(&out, 'H', psprintf("The pooler serves port %d as soon as the cause is gone. The server "
                              "itself serves port %d.", weir_proxy_port, PostPortNumber));
    appendStringInfoChar(&out, '\0');
    len = pg_hton32(out.len - 1);
    memcpy(out.data + 1, &len, sizeof(len));
    /* It fits into the buffer of a new socket. */
    if (send(caller->fd, out.data, out.len, MSG_NOSIGNAL) == out.len)
        shutdown(caller->fd, SHUT_WR);
    pfree(out.data);
}

/* Reads up to the end of the head, or of the packet. False: nothing more can be read now. */
static bool
receive(Caller *caller, bool *is_over)
{
    char rest[1024];
    ssize_t got;

    if (caller->has < HEAD_LEN)
        got = recv(caller->fd, (char *) caller->head + caller->has, HEAD_LEN - caller->has, 0);
    else
        got = recv(caller->fd, rest, Min(sizeof(rest), caller->left), 0);
    *is_over = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
    if (got <= 0)
        return false;
    if (caller->has == HEAD_LEN) {
        caller->left -= got;
        return true;
    }
    caller->has += got;
    if (caller->has == HEAD_LEN) {
        uint32 len = pg_ntoh32(caller->head[0]);

        *is_over = len < HEAD_LEN || len > MAX_STARTUP_PACKET_LENGTH;
        caller->left = len - HEAD_LEN;
    }
    return !*is_over;
}

/* Reads what the client has sent. True: it has its answer, or will get none. */
static bool
is_answered(Caller *caller, const char *why)
{
    bool is_over;

    while (receive(caller, &is_over)) {
        if (caller->has < HEAD_LEN || caller->left > 0)
            continue;
        switch (pg_ntoh32(caller->head[1])) {
        case NEGOTIATE_SSL_CODE:
        case NEGOTIATE_GSS_CODE:
            /* Encryption is not offered. */
            if (send(caller->fd, "N", 1, MSG_NOSIGNAL) != 1)
                return true;
            caller->has = 0;
            break;
        case CANCEL_REQUEST_CODE:
            return true;
        default:
            send_error(caller, why);
            return true;
        }
    }
    return is_over;
}

/* Answers the clients that have come. */
void
refuse_callers(const char *why)
{
    int fds[WEIR_SOCKETS_MAX];
    int sockets = sockets_list(fds);
    TimestampTz now = GetCurrentTimestamp();

    open_watch();
    for (int i = 0; i < sockets; i++)
        accept_from(fds[i]);
    for (int at = count - 1; at >= 0; at--) {
        if (is_answered(&callers[at], why) || now >= callers[at].until)
            drop(at);
    }
}
