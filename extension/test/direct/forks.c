/*
 * forks.c: a function that forks, as functions of PL/Perl and PL/Python can.
 */
#include "postgres.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "fmgr.h"

PG_MODULE_MAGIC;

extern __attribute__((visibility("default"))) Datum fork_child(PG_FUNCTION_ARGS);

PG_FUNCTION_INFO_V1(fork_child);

/* Returns the process id of a child that does nothing, and ends with its parent. */
Datum
fork_child(PG_FUNCTION_ARGS)
{
    pid_t child = fork();

    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    PG_RETURN_INT32(child);
}
