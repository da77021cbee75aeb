/*
 * adopt.c: takes over a pooler that runs already. After a crash of one of its processes, the server
 * ends all others and starts them again, the supervisor among them. The pooler is no process of the
 * server and has outlived that, with its clients.
 *
 * It listens on a socket in the data folder, the door. The next supervisor connects there and shows
 * the cookie, a text that only the processes of this start of the server know. The pooler answers
 * with the sockets on which it listens. The connection is the control connection from then on.
 *
 * A process id proves nothing here: it may be that of another process by now, or of a zombie. The
 * kernel tells which process listens at the door (SO_PEERCRED).
 */
#include "weir.h"
#include "supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "storage/ipc.h"
#include "utils/builtins.h"

/* How long the pooler may take for each step. The machine may be short of memory. */
#define PATIENCE_S 5
#define COOKIE_LEN 16

static char cookie[2 * COOKIE_LEN + 1] = "";
static bool is_left = false;

/* In the postmaster: all supervisors of this start of the server inherit it. */
void
adopt_make_cookie(void)
{
    unsigned char bytes[COOKIE_LEN];
    bool done = pg_strong_random(bytes, sizeof(bytes)) && !fault_wanted("cookie");

    if (!done)
        ereport(FATAL,
                (errcode(ERRCODE_INTERNAL_ERROR),
                 errmsg("weir: the pooler's secret cannot be made"),
                 errdetail("The operating system gave no random bytes."),
                 errhint("With weir.connection_proxies = 0, the server starts without a pooler.")));
    (void) hex_encode((char *) bytes, sizeof(bytes), cookie);
}

/*
 * For a pooler that is being started. What is sent here is read before all else. If the other end
 * is closed, the program has ended already, and its end says more than this error.
 */
void
adopt_tell_cookie(int control)
{
    char text[64];

    snprintf(text, sizeof(text), "cookie %s", cookie);
    if (send(control, text, strlen(text), MSG_NOSIGNAL) < 0 && errno != EPIPE &&
        errno != ECONNRESET)
        complain("the pooler cannot be told the cookie: %s", strerror(errno));
}

static void
remove_sockets(int code, Datum argument)
{
    if (is_left || !is_own_process())
        return;
    unlink(WEIR_DOOR_SOCKET);
    unlink(WEIR_DIRECT_SOCKET);
}

static void
remove_sockets_at_exit(void)
{
    static bool will_remove = false;

    if (!will_remove)
        on_proc_exit(remove_sockets, 0);
    will_remove = true;
}

/* The pooler goes on without this process, and so do its door and its socket for backends. */
void
adopt_leave_door(void)
{
    is_left = true;
}

/*
 * Makes the door of a pooler that is about to be started. Nobody can connect before that pooler
 * listens on it. Each pooler gets a new one, so the kernel never names an earlier one as listener.
 * -1: it cannot be made.
 */
int
adopt_open_door(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = WEIR_DOOR_SOCKET};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    remove_sockets_at_exit();
    unlink(WEIR_DOOR_SOCKET);
    if (fd >= 0 && bind(fd, (struct sockaddr *) &address, sizeof(address)) == 0 &&
        chmod(WEIR_DOOR_SOCKET, 0600) == 0)
        return fd;
    complain("cannot make the socket %s: %s", WEIR_DOOR_SOCKET, strerror(errno));
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Connects to the door. -1: no process listens there. */
static int
knock(struct ucred *listener)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = WEIR_DOOR_SOCKET};
    struct timeval patience = {.tv_sec = PATIENCE_S};
    socklen_t len = sizeof(*listener);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (connect(fd, (struct sockaddr *) &address, sizeof(address)) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, listener, &len) != 0 ||
        listener->uid != geteuid() || listener->pid <= 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Reads the answer: the text and descriptors. Returns the number of descriptors; -1: no answer. */
static int
read_answer(int fd, char *text, size_t size, int *fds)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(WEIR_SOCKETS_MAX * sizeof(int))];
    } control;
    struct iovec part = {.iov_base = text, .iov_len = size - 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.room,
                             .msg_controllen = sizeof(control.room)};
    ssize_t len = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    struct cmsghdr *header = len <= 0 ? NULL : CMSG_FIRSTHDR(&message);
    int count = 0;

    if (len <= 0)
        return -1;
    text[len] = '\0';
    text[strcspn(text, "\r\n")] = '\0';
    if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
        count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(fds, CMSG_DATA(header), count * sizeof(int));
    }
    return count;
}

/* A pooler that cannot be adopted has the port, so no other one can start before it ends. */
static void
end_pooler(int fd, pid_t pid)
{
    char byte;

    complain("the pooler with the PID %d does not answer the new supervisor and is ended",
             (int) pid);
    child_signal_stopped(pid, SIGKILL);
    while (recv(fd, &byte, 1, 0) > 0)
        continue;
    close(fd);
}

/* Returns whether there is a pooler. If so, `child` describes it. */
bool
adopt_pooler(Child *child)
{
    char text[256];
    int fds[WEIR_SOCKETS_MAX];
    struct ucred listener;
    int fd = knock(&listener);
    int count;

    if (fd < 0)
        return false;
    kill(listener.pid, SIGCONT); /* it may be stopped */
    snprintf(text, sizeof(text), "adopt %s", cookie);
    count = -1;
    if (send(fd, text, strlen(text), MSG_NOSIGNAL) > 0)
        count = read_answer(fd, text, sizeof(text), fds);
    if (count <= 0 || strncmp(text, WEIR_HELLO, strlen(WEIR_HELLO)) != 0) {
        for (int i = 0; i < count; i++)
            close(fds[i]);
        end_pooler(fd, listener.pid);
        return false;
    }
    fcntl(fd, F_SETFL, O_NONBLOCK);
    remove_sockets_at_exit();
    sockets_adopt(fds, count);
    *child = (Child){.pid = listener.pid, .control = fd, .ready = true, .adopted = true};
    ereport(LOG, (errmsg("weir: the pooler %s has kept its clients and serves port %d (PID %d)",
                         text + strlen(WEIR_HELLO), weir_proxy_port, (int) listener.pid)));
    return true;
}
