/*
 * keeper.c: the parent of the pooler in a container.
 *
 *      postmaster (1) --- supervisor --- keeper --- pooler
 *
 * In a container whose first process is the postmaster, the kernel makes the postmaster the parent
 * of each orphan. A pooler that has outlived its supervisor would be one. The postmaster restarts
 * the server when a child of its own is killed, even if it did not start that child. So the pooler
 * is a child of the keeper there. The keeper ends after the pooler, with status 0 if the postmaster
 * is its parent by then.
 *
 * The keeper has no shared memory, which would keep the server from starting again, and no file but
 * the door.
 */
#include "weir.h"
#include "supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/pg_shmem.h"
#include "utils/ps_status.h"

/* The exit status stands for a signal above this number, as in a shell. */
#define SIGNALED 128

bool
keeper_is_needed(void)
{
    return PostmasterPid == 1;
}

/* Returns whether the pooler serves. It listens at the door then, and outlives its supervisor. */
static bool
serves(int door)
{
    int listens = 0;
    socklen_t len = sizeof(listens);

    return getsockopt(door, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) == 0 && listens != 0;
}

/* In the keeper, where all signals are blocked. Does not return. */
static void
keep(pid_t pooler, pid_t supervisor, int door)
{
    sigset_t awaited;
    int status = 0;

    init_ps_display("weir keeper");
    PGSharedMemoryDetach();
    dup2(door, 0);
    close_from(1);
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    sigaddset(&awaited, SIGTERM);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    while (waitpid(pooler, &status, WNOHANG) == 0) {
        if (getppid() != supervisor && !serves(0))
            kill(pooler, SIGKILL);
        sigwaitinfo(&awaited, NULL);
    }
    if (getppid() != supervisor)
        _exit(0);
    _exit(WIFSIGNALED(status) ? SIGNALED + WTERMSIG(status) : WEXITSTATUS(status));
}

/*
 * Does what fork() does, with a keeper in between. It returns 0 in the pooler, where *keeper is its
 * parent. Block all signals before the call.
 */
pid_t
keeper_fork(int door, pid_t *keeper)
{
    pid_t supervisor = getpid();
    pid_t pooler = -1;
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    *keeper = fork();
    if (*keeper == 0) {
        *keeper = getpid();
        setsid();
        pooler = fork();
        if (pooler == 0)
            return 0;
        if (pooler < 0 || write(ends[1], &pooler, sizeof(pooler)) != sizeof(pooler))
            _exit(1);
        keep(pooler, supervisor, door);
    }
    close(ends[1]);
    if (*keeper > 0 && read(ends[0], &pooler, sizeof(pooler)) != sizeof(pooler)) {
        pooler = -1;
        waitpid(*keeper, NULL, 0);
    }
    close(ends[0]);
    return pooler;
}

/* The pooler's status, as the keeper's tells it. */
int
keeper_status(int status)
{
    bool is_signal = WIFEXITED(status) && WEXITSTATUS(status) > SIGNALED;

    return is_signal ? WEXITSTATUS(status) - SIGNALED : status;
}
