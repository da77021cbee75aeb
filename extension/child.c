/*
 * child.c: the process of the pooler. It is no process of PostgreSQL: it is started by fork and
 * exec, has no shared memory, and the server does not restart when it crashes.
 *
 * One pair of sockets connects it to the supervisor. The pooler says "weir 1 VERSION" on it when it
 * serves. When it reaches its end of file, the supervisor has ended, and the pooler ends as well.
 * A program that does not look at the pair is ended by the kernel (PR_SET_PDEATHSIG).
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

/* What the pooler says, up to its version. */
#define HELLO "weir 1 "
/* What a child says that cannot start the program. */
#define EXEC_FAILED "exec "

/* The first descriptor that a child may be given, and one behind all that it is given. */
#define FIRST_FD 3
#define ASIDE_FD (FIRST_FD + WEIR_SOCKETS_MAX + 8)

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

static void
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
       pid_t supervisor)
{
    int aside[WEIR_SOCKETS_MAX + 1];
    int devnull = open("/dev/null", O_RDWR);
    int adjust;
    sigset_t none;
    char text[32];

    for (int i = 0; i < NSIG; i++)
        signal(i, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != supervisor)
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
    if (write(FIRST_FD + count - 1, text, strlen(text)) < 0)
        _exit(126);
    _exit(127);
}

bool
child_start(Child *child, const char *binary, const char *config_path)
{
    int fds[WEIR_SOCKETS_MAX + 1];
    int count = sockets_list(fds);
    int pair[2];
    char lifeline[16];
    char *arguments[] = {"weir", "--supervised", lifeline, (char *) config_path, NULL};
    char **variables = environment(count);
    pid_t supervisor = getpid();
    sigset_t all;
    sigset_t before;
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        complain("cannot start the pooler: %s", strerror(errno));
        return false;
    }
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    snprintf(lifeline, sizeof(lifeline), "%d", FIRST_FD + count);
    fds[count] = pair[1];
    /* A signal in the child must not run a handler of the server. */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid = fork();
    if (pid == 0)
        become(binary, arguments, variables, fds, count + 1, supervisor);
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(pair[1]);
    pfree(variables);
    if (pid < 0) {
        complain("cannot start the pooler: %s", strerror(errno));
        close(pair[0]);
        return false;
    }
    *child = (Child){.pid = pid, .control = pair[0]};
    return true;
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
    if (len < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (len <= 0) {
        close(child->control);
        child->control = -1;
        return;
    }
    text[len] = '\0';
    text[strcspn(text, "\r\n")] = '\0';
    if (child->ready)
        return;
    if (strncmp(text, HELLO, strlen(HELLO)) == 0) {
        child->ready = true;
        complain_no_more();
        ereport(LOG, (errmsg("weir: the pooler %s serves port %d (PID %d)", text + strlen(HELLO),
                             weir_proxy_port, (int) child->pid)));
        return;
    }
    child->failed = true;
    if (strncmp(text, EXEC_FAILED, strlen(EXEC_FAILED)) == 0)
        complain("cannot start the pooler: %s", strerror(atoi(text + strlen(EXEC_FAILED))));
    else
        complain("weir.program is not a pooler of this library's version: it says \"%.40s\", not "
                 "\"%s...\"", text, HELLO);
    child_signal(child, SIGKILL);
}

void
child_signal(Child *child, int signal)
{
    if (child->pid <= 0)
        return;
    /* With its own children, if it has any: they have the sockets, too. */
    if (signal == SIGKILL)
        kill(-child->pid, SIGKILL);
    kill(child->pid, signal);
}

/* Whether the child has ended. */
bool
child_reap(Child *child, int *status)
{
    if (child->pid <= 0 || waitpid(child->pid, status, WNOHANG) != child->pid)
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
    if (child->pid > 0)
        waitpid(child->pid, &status, 0);
    child->pid = 0;
}
