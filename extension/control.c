/*
 * control.c: the socket between an attending backend and Weir. Each packet is one message, and
 * descriptors come by SCM_RIGHTS. When a backend meets a guest for the first time, it asks for the
 * guest's descriptor. It gets those of some others with it, so that it asks seldom.
 */
#include "attend.h"
#include "supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "libpq/libpq-be.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/wait_event.h"

#define WELCOME_PATIENCE_S 5
#define MORE_MAX 31 /* descriptors that come with the one asked for */
#define DESCRIPTORS_MAX (MORE_MAX + 1)
#define WORD_LEN 64

/* The beginning of each ticket of the pooler in the server. crates/engine writes it. */
#define OWN_TICKET "own:"

typedef enum Kind {
    KIND_HELLO = 1,
    KIND_NEED,
    KIND_RETURNED,
    KIND_LEFT,
    KIND_WELCOME = 16,
    KIND_DESCRIPTOR,
    KIND_ENLIST,
    KIND_LEAVE,
    KIND_WAKE,
    KIND_GO
} Kind;

typedef struct Message {
    uint32 kind;
    uint32 place;
    uint32 generation;
    uint32 value;
} Message;

typedef struct Owner {
    uint32 place;
    uint32 generation;
} Owner;

/* What arrives: a message, and what comes with it. */
typedef struct Packet {
    Message message;
    Owner more[MORE_MAX]; /* of KIND_DESCRIPTOR: `value` of them, for the second descriptor on */
    int descriptors[DESCRIPTORS_MAX];
    int count; /* of the descriptors */
} Packet;

typedef struct Hello {
    Message message; /* `value` is the layout, `place` the process */
    char ticket[WORD_LEN];
    char database[NAMEDATALEN];
    char user[NAMEDATALEN];
    char version[16];
} Hello;

static char ticket[WORD_LEN];

static int control = -1;

static ControlCommand command = CONTROL_NONE;

static void
close_all(Packet *packet)
{
    for (int i = 0; i < packet->count; i++)
        close(packet->descriptors[i]);
    packet->count = 0;
}

static bool
is_whole(const Packet *packet, size_t len)
{
    size_t more = packet->message.value;

    if (len < sizeof(Message) || packet->message.kind != KIND_DESCRIPTOR)
        return len == sizeof(Message);
    return more <= MORE_MAX && len == sizeof(Message) + more * sizeof(Owner) &&
           packet->count == more + 1;
}

/* The bytes of one message; 0: the end; -1: there is none, or it is not valid. */
static ssize_t
receive(Packet *packet, int flags)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * DESCRIPTORS_MAX)];
    } room;
    struct iovec part = {.iov_base = packet, .iov_len = offsetof(Packet, descriptors)};
    struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &room,
                          .msg_controllen = sizeof(room)};
    ssize_t got = recvmsg(control, &head, flags | MSG_CMSG_CLOEXEC);

    packet->count = 0;
    if (got <= 0)
        return got;
    for (struct cmsghdr *one = CMSG_FIRSTHDR(&head); one != NULL; one = CMSG_NXTHDR(&head, one)) {
        if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_RIGHTS)
            continue;
        packet->count = (one->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(packet->descriptors, CMSG_DATA(one), packet->count * sizeof(int));
    }
    /* MSG_CTRUNC: there was no room for a descriptor, as a rule because of the limit. */
    if (!is_whole(packet, got) || (head.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) != 0) {
        close_all(packet);
        errno = EPROTO;
        return -1;
    }
    return got;
}

/* Handles a message that Weir may send at any time. Closes the descriptors that come with it. */
static void
obey(Packet *packet)
{
    close_all(packet);
    switch (packet->message.kind) {
        case KIND_ENLIST:
            command = CONTROL_ENLIST;
            break;
        case KIND_LEAVE:
            if (command != CONTROL_GO)
                command = CONTROL_LEAVE;
            break;
        case KIND_GO:
            command = CONTROL_GO;
            break;
        default:
            break;
    }
}

/* Weir has to answer until then. */
static uint64 patience_until;

/*
 * A system call was interrupted, as by the signal of a NOTIFY, and is to be repeated. With a time
 * limit of the socket, SA_RESTART has no effect.
 */
static bool
is_interrupted(void)
{
    return errno == EINTR && !ProcDiePending && attach_now_us() < patience_until;
}

/* On a local socket this may be repeated. */
static bool
connect_to(const struct sockaddr_un *address)
{
    int result;

    do
        result = connect(control, (const struct sockaddr *) address, sizeof(*address));
    while (result < 0 && is_interrupted());
    return result == 0;
}

/* The next connection shows this ticket. */
void
control_note_ticket(const char *value)
{
    strlcpy(ticket, value, sizeof(ticket));
}

static bool
is_our_user(void)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);

    return getsockopt(control, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid == geteuid();
}

/* The socket of the Weir that has opened this backend's connection. */
static void
find_socket(char *path, size_t size)
{
    if (strncmp(ticket, OWN_TICKET, strlen(OWN_TICKET)) == 0)
        strlcpy(path, WEIR_DIRECT_SOCKET, size);
    else if (weir_control_socket != NULL && weir_control_socket[0] != '\0')
        strlcpy(path, weir_control_socket, size);
    else
        snprintf(path, size, "%s/weir/control", DataDir);
}

static bool
open_socket(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = WELCOME_PATIENCE_S};
    char path[MAXPGPATH];

    patience_until = attach_now_us() + WELCOME_PATIENCE_S * UINT64CONST(1000000);
    find_socket(path, sizeof(path));
    if (strlcpy(address.sun_path, path, sizeof(address.sun_path)) >= sizeof(address.sun_path)) {
        errno = ENAMETOOLONG;
        return false;
    }
    control = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    return control >= 0 &&
           setsockopt(control, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0 &&
           setsockopt(control, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) == 0 &&
           connect_to(&address);
}

/* A message of Weir's, or its end, raises SIGIO (orders.c). */
static bool
let_it_wake(void)
{
    int flags = fcntl(control, F_GETFL);

    return flags >= 0 && fcntl(control, F_SETOWN, MyProcPid) == 0 &&
           fcntl(control, F_SETSIG, SIGIO) == 0 &&
           fcntl(control, F_SETFL, flags | O_ASYNC | O_NONBLOCK) == 0;
}

/* Guests have higher numbers than PostgreSQL's own files. */
static void
raise_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void) setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static bool
greet(Welcome *welcome)
{
    Hello hello = {.message = {.kind = KIND_HELLO, .place = MyProcPid, .value = LOBBY_LAYOUT}};
    Packet answer;
    ssize_t got;

    strlcpy(hello.ticket, ticket, sizeof(hello.ticket));
    strlcpy(hello.database, MyProcPort->database_name, sizeof(hello.database));
    strlcpy(hello.user, MyProcPort->user_name, sizeof(hello.user));
    strlcpy(hello.version, WEIR_VERSION, sizeof(hello.version));
    do
        got = send(control, &hello, sizeof(hello), MSG_NOSIGNAL);
    while (got < 0 && is_interrupted());
    if (got != sizeof(hello))
        return false;
    do
        got = receive(&answer, 0);
    while (got < 0 && is_interrupted());
    if (got == 0)
        errno = ECONNRESET;
    if (got <= 0)
        return false;
    if (answer.message.kind != KIND_WELCOME || answer.count != 2) {
        close_all(&answer);
        errno = EPROTO;
        return false;
    }
    welcome->memory = answer.descriptors[0];
    welcome->set = answer.descriptors[1];
    welcome->line = answer.message.place;
    welcome->base = answer.message.value;
    return true;
}

/* Connects and shows the ticket. False: this backend is an ordinary one; the log says why. */
bool
control_connect(Welcome *welcome)
{
    if (open_socket() && is_our_user() && greet(welcome)) {
        raise_limit();
        if (let_it_wake()) {
            command = CONTROL_ENLIST;
            return true;
        }
        close(welcome->memory);
        close(welcome->set);
    }
    ereport(LOG_SERVER_ONLY, (errmsg("weir: the control socket cannot be used: %m")));
    control_close();
    return false;
}

/*
 * Has Weir's process ended? A signal handler asks. The signal does not tell: if Weir ends right
 * after a message, there is one signal for both.
 */
bool
control_has_ended(void)
{
    struct pollfd at = {.fd = control};

    return control >= 0 && poll(&at, 1, 0) > 0 && (at.revents & POLLHUP) != 0;
}

void
control_close(void)
{
    if (control >= 0)
        close(control);
    control = -1;
}

/* Reads all messages that have arrived. Returns Weir's last command. */
ControlCommand
control_read(void)
{
    for (;;) {
        Packet packet;
        ssize_t got = receive(&packet, MSG_DONTWAIT);

        if (got > 0)
            obey(&packet);
        else if (got == 0)
            return CONTROL_CLOSED;
        else if (errno == EAGAIN)
            return command;
        else if (errno != EINTR)
            return CONTROL_CLOSED;
    }
}

static void
tell(Kind kind, uint32 place, uint32 generation, uint32 value)
{
    Message message = {.kind = kind, .place = place, .generation = generation, .value = value};

    /* If the queue is full, this waits, for a short time only: Weir's thread reads this socket. */
    while (send(control, &message, sizeof(message), MSG_NOSIGNAL) < 0) {
        if (errno == EAGAIN)
            (void) WaitLatchOrSocket(NULL, WL_SOCKET_WRITEABLE | WL_EXIT_ON_PM_DEATH, control, 0,
                                     PG_WAIT_EXTENSION);
        else if (errno != EINTR)
            return;
    }
}

void
control_returned(uint32 place, uint32 generation, Reason reason)
{
    tell(KIND_RETURNED, place, generation, reason);
}

void
control_left(void)
{
    command = CONTROL_NONE;
    tell(KIND_LEFT, 0, 0, 0);
}

/* Gives the descriptor the number of its place. The place has no guest that this process serves. */
static bool
keep(Lobby *lobby, uint32 place, uint32 generation, int descriptor)
{
    bool done = false;

    if (place < lobby->places) {
        lobby_note_held(lobby, place, 0);
        done = dup3(descriptor, lobby->base + (int) place, O_CLOEXEC) >= 0;
    }
    close(descriptor);
    if (done)
        lobby_note_held(lobby, place, generation);
    return done;
}

/* Keeps the descriptors of a packet; false: not the one that was asked for. */
static bool
keep_all(Lobby *lobby, const Packet *packet)
{
    bool done = keep(lobby, packet->message.place, packet->message.generation,
                     packet->descriptors[0]);

    for (int i = 1; i < packet->count; i++) {
        const Owner *owner = &packet->more[i - 1];

        if (lobby_holds(lobby, owner->place, owner->generation))
            close(packet->descriptors[i]);
        else
            (void) keep(lobby, owner->place, owner->generation, packet->descriptors[i]);
    }
    return done;
}

static bool
wait_for_descriptor(Lobby *lobby, uint32 place, uint32 generation)
{
    for (;;) {
        Packet packet;
        ssize_t got = receive(&packet, MSG_DONTWAIT);

        if (got > 0 && packet.message.kind == KIND_DESCRIPTOR && packet.message.place == place &&
            packet.message.generation == generation)
            return keep_all(lobby, &packet);
        if (got > 0)
            obey(&packet);
        else if (got == 0 || (errno != EAGAIN && errno != EINTR))
            return false;
        else if (ProcDiePending)
            return false;
        else {
            (void) WaitLatchOrSocket(MyLatch,
                                     WL_LATCH_SET | WL_SOCKET_READABLE | WL_EXIT_ON_PM_DEATH,
                                     control, 0, PG_WAIT_EXTENSION);
            ResetLatch(MyLatch);
        }
    }
}

/* Gets the guest's descriptor, unless this process has it. */
bool
control_fetch(Lobby *lobby, uint32 place, uint32 generation)
{
    if (lobby_holds(lobby, place, generation))
        return true;
    tell(KIND_NEED, place, generation, 0);
    return wait_for_descriptor(lobby, place, generation);
}
