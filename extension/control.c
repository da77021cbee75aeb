/*
 * control.c: the socket between an attending backend and Weir. Each packet is one message, and
 * descriptors come by SCM_RIGHTS. A backend asks for a descriptor once for each guest it meets.
 */
#include "attend.h"
#include "supervisor.h"

#include <fcntl.h>
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
#define DESCRIPTORS_MAX 2
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

typedef struct Hello {
    Message message; /* `value` is the layout, `place` the process */
    char ticket[WORD_LEN];
    char database[NAMEDATALEN];
    char user[NAMEDATALEN];
    char version[16];
} Hello;

static int control = -1;

static ControlCommand command = CONTROL_NONE;

static void
close_all(int *descriptors, int count)
{
    for (int i = 0; i < count; i++)
        close(descriptors[i]);
}

/* The bytes of one message; 0: the end; -1: there is none, or it is not valid. */
static ssize_t
receive(Message *message, int *descriptors, int *count, int flags)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * DESCRIPTORS_MAX)];
    } room;
    struct iovec part = {.iov_base = message, .iov_len = sizeof(*message)};
    struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &room,
                          .msg_controllen = sizeof(room)};
    ssize_t got = recvmsg(control, &head, flags | MSG_CMSG_CLOEXEC);

    *count = 0;
    if (got <= 0)
        return got;
    for (struct cmsghdr *one = CMSG_FIRSTHDR(&head); one != NULL; one = CMSG_NXTHDR(&head, one)) {
        if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_RIGHTS)
            continue;
        *count = (one->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(descriptors, CMSG_DATA(one), *count * sizeof(int));
    }
    /* MSG_CTRUNC: there was no room for a descriptor, as a rule because of the limit. */
    if (got != sizeof(*message) || (head.msg_flags & MSG_CTRUNC) != 0) {
        close_all(descriptors, *count);
        *count = 0;
        errno = EPROTO;
        return -1;
    }
    return got;
}

/* Handles a message that Weir may send at any time. Closes the descriptors that come with it. */
static void
obey(const Message *message, int *descriptors, int count)
{
    close_all(descriptors, count);
    switch (message->kind) {
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
    if (strncmp(weir_ticket, OWN_TICKET, strlen(OWN_TICKET)) == 0)
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

    find_socket(path, sizeof(path));
    if (strlcpy(address.sun_path, path, sizeof(address.sun_path)) >= sizeof(address.sun_path)) {
        errno = ENAMETOOLONG;
        return false;
    }
    control = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    return control >= 0 &&
           setsockopt(control, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0 &&
           setsockopt(control, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) == 0 &&
           connect(control, (struct sockaddr *) &address, sizeof(address)) == 0;
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
    Message answer;
    int descriptors[DESCRIPTORS_MAX];
    int count;

    strlcpy(hello.ticket, weir_ticket, sizeof(hello.ticket));
    strlcpy(hello.database, MyProcPort->database_name, sizeof(hello.database));
    strlcpy(hello.user, MyProcPort->user_name, sizeof(hello.user));
    strlcpy(hello.version, WEIR_VERSION, sizeof(hello.version));
    if (send(control, &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello))
        return false;
    if (receive(&answer, descriptors, &count, 0) <= 0)
        return false;
    if (answer.kind != KIND_WELCOME || count != 2) {
        close_all(descriptors, count);
        errno = EPROTO;
        return false;
    }
    welcome->memory = descriptors[0];
    welcome->set = descriptors[1];
    welcome->line = answer.place;
    welcome->base = answer.value;
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
        Message message;
        int descriptors[DESCRIPTORS_MAX];
        int count;
        ssize_t got = receive(&message, descriptors, &count, MSG_DONTWAIT);

        if (got > 0)
            obey(&message, descriptors, count);
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

static bool
wait_for_descriptor(Lobby *lobby, uint32 place, uint32 generation)
{
    for (;;) {
        Message message;
        int descriptors[DESCRIPTORS_MAX];
        int count;
        ssize_t got = receive(&message, descriptors, &count, MSG_DONTWAIT);

        if (got > 0 && message.kind == KIND_DESCRIPTOR && count == 1 && message.place == place &&
            message.generation == generation) {
            bool done = dup3(descriptors[0], lobby->base + (int) place, O_CLOEXEC) >= 0;

            close(descriptors[0]);
            return done;
        }
        if (got > 0)
            obey(&message, descriptors, count);
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
    lobby_note_held(lobby, place, 0);
    tell(KIND_NEED, place, generation, 0);
    if (!wait_for_descriptor(lobby, place, generation))
        return false;
    lobby_note_held(lobby, place, generation);
    return true;
}
