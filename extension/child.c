/*
 * child.c: the process of the pooler. It is no process of PostgreSQL: it is started by fork and
 * exec, has no shared memory, and the server does not restart when it crashes.
 *
 * One pair of sockets connects it to the supervisor. Each message on it is one line. The pooler
 * says "weir 2 VERSION" when it serves. When the pair reaches its end of file, the supervisor has
 * ended, and the pooler waits for the next one (adopt.c). It ends when the pipe of the postmaster
 * does. Until it serves, it is ended with the supervisor (PR_SET_PDEATHSIG, or keeper.c).
 *
 * crates/cli/src/supervised.rs is the other side.
 */
#include "weir.h"
#include "supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "postmaster/postmaster.h"

/* What a child says that cannot start the program. */
#define EXEC_FAILED "exec "

/*
 * The descriptors of a child: the listening sockets, then these, then its files. ASIDE_FD is behind
 * all of them.
 */
#define FIRST_FD 3

typedef enum Behind {
    BEHIND_CONTROL,
    BEHIND_SERVER, /* a pipe that ends with the postmaster */
    BEHIND_DOOR,
    BEHIND_FILES
} Behind;

#define FDS_MAX (WEIR_SOCKETS_MAX + BEHIND_FILES + WEIR_FILES)
#define ASIDE_FD (FIRST_FD + FDS_MAX)

/* How long a pooler has for its end before it is killed. */
#define END_PATIENCE_MS 700

extern char **environ;

/* The environment for the child. The place of LISTEN_PID is the first. */
static char **
environment(int sockets)
{
    int count = 0;
    int at = 0;
    char **all;

    while (environ[count] != NULL)
        count++;
    all = palloc((count + 3) * sizeof(char *));
    all[at++] = palloc0(64);
    all[at++] = psprintf("LISTEN_FDS=%d", sockets);
    for (int i = 0; i < count; i++) {
        /* The service manager waits for the server's messages, not for the pooler's. */
        if (strncmp(environ[i], "LISTEN_", 7) != 0 &&
            strncmp(environ[i], "NOTIFY_SOCKET=", 14) != 0)
            all[at++] = environ[i];
    }
    all[at] = NULL;
    return all;
}

void
close_from(int fd)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, fd, ~0U, 0) == 0)
        return;
#endif
    for (long end = sysconf(_SC_OPEN_MAX); fd < end; fd++)
        close(fd);
}

/* In the child, which has one thread and no more use of PostgreSQL's memory. Does not return. */
static void
become(const char *binary, char **arguments, char **variables, const int *fds, int count,
       int control, pid_t parent)
{
    int aside[FDS_MAX];
    int devnull = open("/dev/null", O_RDWR);
    int adjust;
    sigset_t none;
    char text[32];

    for (int i = 0; i < NSIG; i++)
        signal(i, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    setsid();
    /* The server may be protected from the kernel's killer of processes. The pooler is not. */
    adjust = open("/proc/self/oom_score_adj", O_WRONLY);
    if (adjust >= 0) {
        if (write(adjust, "0", 1) < 0)
            (void) adjust;
        close(adjust);
    }
    if (devnull >= 0) {
        dup2(devnull, 0);
        dup2(devnull, 1);
    }
    for (int i = 0; i < count; i++)
        aside[i] = fcntl(fds[i], F_DUPFD, ASIDE_FD);
    for (int i = 0; i < count; i++)
        dup2(aside[i], FIRST_FD + i);
    close_from(FIRST_FD + count);
    snprintf(variables[0], 64, "LISTEN_PID=%d", (int) getpid());
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execve(binary, arguments, variables);
    snprintf(text, sizeof(text), EXEC_FAILED "%d\n", errno);
    if (write(control, text, strlen(text)) < 0)
        _exit(126);
    _exit(127);
}

/* The path by which the pooler opens one of its files. */
char *
child_path_of(PoolerFile file)
{
    int fds[WEIR_SOCKETS_MAX];

    return psprintf("/proc/self/fd/%d", FIRST_FD + sockets_list(fds) + BEHIND_FILES + (int) file);
}

bool
child_start(Child *child, const char *binary, const int *files)
{
    int fds[FDS_MAX];
    int sockets = sockets_list(fds);
    int pair[2];
    char control[16];
    char *arguments[] = {"weir", "--supervised", control, child_path_of(FILE_CONFIG), NULL};
    char **variables;
    int door = adopt_open_door();
    pid_t parent = getpid();
    pid_t keeper = 0;
    sigset_t all;
    sigset_t before;
    pid_t pid;

    if (door < 0)
        return false;
    /* Each message is read as a whole, with its descriptors. */
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        complain("cannot start the pooler: %s", strerror(errno));
        close(door);
        return false;
    }
    variables = environment(sockets);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    snprintf(control, sizeof(control), "%d", FIRST_FD + sockets);
    fds[sockets + BEHIND_CONTROL] = pair[1];
    fds[sockets + BEHIND_SERVER] = postmaster_alive_fds[POSTMASTER_FD_WATCH];
    fds[sockets + BEHIND_DOOR] = door;
    memcpy(fds + sockets + BEHIND_FILES, files, WEIR_FILES * sizeof(int));
    /* A signal in the child must not run a handler of the server. */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid = keeper_is_needed() ? keeper_fork(door, &keeper) : fork();
    if (pid == 0)
        become(binary, arguments, variables, fds, sockets + BEHIND_FILES + WEIR_FILES,
               FIRST_FD + sockets, keeper == 0 ? parent : keeper);
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(pair[1]);
    close(door);
    pfree(variables);
    if (pid < 0) {
        complain("cannot start the pooler: %s", strerror(errno));
        close(pair[0]);
        return false;
    }
    *child = (Child){.pid = pid, .keeper = keeper, .control = pair[0]};
    adopt_tell_cookie(child->control);
    return true;
}

/*
 * Gives the pooler new files in place of the old ones; -1: the old one stays. The pooler then reads
 * them. False: it does not take them now.
 */
bool
child_give(Child *child, const int *files)
{
    static const char *const names[WEIR_FILES] = {"config", "users", "rules", "maps"};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(WEIR_FILES * sizeof(int))];
    } control = {0};
    char text[64] = "files";
    int fds[WEIR_FILES];
    int count = 0;
    struct iovec part = {.iov_base = text};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room};

    for (int i = 0; i < WEIR_FILES; i++) {
        if (files[i] < 0)
            continue;
        strlcat(text, " ", sizeof(text));
        strlcat(text, names[i], sizeof(text));
        fds[count++] = files[i];
    }
    part.iov_len = strlen(text);
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
    return child->control >= 0 && sendmsg(child->control, &message, MSG_NOSIGNAL) > 0;
}

/* A text for the log, which a terminal may show. */
static void
make_printable(char *text)
{
    for (; *text != '\0'; text++)
        if (*text < ' ' || *text > '~')
            *text = '?';
}

/* Reads what the child says about itself. */
void
child_listen(Child *child)
{
    char text[256];
    ssize_t len;

    if (child->control < 0)
        return;
    len = recv(child->control, text, sizeof(text) - 1, 0);
    /* If the child has ended before it read its cookie, its message comes after this error. */
    if (len < 0 && errno == ECONNRESET)
        len = recv(child->control, text, sizeof(text) - 1, 0);
    if (len < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (len <= 0) {
        close(child->control);
        child->control = -1;
        return;
    }
    text[len] = '\0';
    text[strcspn(text, "\r\n")] = '\0';
    make_printable(text);
    if (child->ready)
        return;
    if (strncmp(text, WEIR_HELLO, strlen(WEIR_HELLO)) == 0) {
        child->ready = true;
        complain_no_more();
        ereport(LOG, (errmsg("weir: the pooler %s serves port %d (PID %d)",
                             text + strlen(WEIR_HELLO), weir_proxy_port, (int) child->pid)));
        return;
    }
    child->failed = true;
    if (strncmp(text, EXEC_FAILED, strlen(EXEC_FAILED)) == 0)
        complain("cannot start the pooler: %s", strerror(atoi(text + strlen(EXEC_FAILED))));
    else
        complain("weir.program is not a pooler of this library's version: it says \"%.40s\", not "
                 "\"%s...\"", text, WEIR_HELLO);
    child_signal(child, SIGKILL);
}

/* Continues the children of a process: the holder (docs/built-in.md) has a group of its own. */
static void
wake_children(pid_t pid)
{
    char *path = psprintf("/proc/%d/task/%d/children", (int) pid, (int) pid);
    FILE *file = fopen(path, "re");
    int one;

    while (file != NULL && fscanf(file, "%d", &one) == 1)
        kill(one, SIGCONT);
    if (file != NULL)
        fclose(file);
    pfree(path);
}

/*
 * Asks a process that may be stopped (SIGSTOP) to end, and its children. A stopped process obeys
 * only SIGKILL, and does not notice that the server ends. It would keep the port and its clients.
 */
void
child_signal_stopped(pid_t pid, int signal)
{
    wake_children(pid);
    /* With its own children, if it has any: they have the sockets, too. */
    if (signal == SIGKILL)
        kill(-pid, SIGKILL);
    kill(pid, signal);
    kill(pid, SIGCONT);
}

void
child_signal(Child *child, int signal)
{
    if (child->pid <= 0)
        return;
    child_signal_stopped(child->pid, signal);
    if (child->keeper > 0)
        kill(child->keeper, SIGCONT);
}

/*
 * Whether our own process has ended: the pooler, or its keeper after it. A keeper that was killed
 * leaves a pooler that is no child of ours any more.
 */
static bool
reap_own(Child *child, int *status, int options)
{
    pid_t own = child->keeper > 0 ? child->keeper : child->pid;

    if (waitpid(own, status, options) != own)
        return false;
    if (child->keeper > 0 && WIFSIGNALED(*status)) {
        child->keeper = 0;
        child->adopted = true;
        return false;
    }
    if (child->keeper > 0)
        *status = keeper_status(*status);
    return true;
}

/* Whether the child has ended. The status of an adopted one is not known: -1. */
bool
child_reap(Child *child, int *status)
{
    if (child->pid <= 0)
        return false;
    if (child->adopted) {
        /* Nothing but its end closes the connection. */
        child_listen(child);
        if (child->control >= 0)
            return false;
        *status = -1;
    }
    else if (!reap_own(child, status, WNOHANG))
        return false;
    /* What it said last may explain its end. */
    child_listen(child);
    if (child->control >= 0)
        close(child->control);
    child->control = -1;
    child->pid = 0;
    return true;
}

/* Ends the child: by its own means first, then by SIGKILL. */
void
child_end(Child *child)
{
    int status;

    child_signal(child, SIGQUIT);
    for (int waited = 0; child->pid > 0 && waited < END_PATIENCE_MS; waited += 5) {
        if (child_reap(child, &status))
            return;
        usleep(5000);
    }
    child_signal(child, SIGKILL);
    if (child->pid > 0 && !child->adopted)
        reap_own(child, &status, 0);
    child->pid = 0;
}
