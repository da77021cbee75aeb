/*
 * watchdog.c: does the pooler still read what the supervisor says?
 *
 * Every few seconds the supervisor repeats the cookie, and the kernel tells whether it was read. A
 * pooler that is stopped or hangs is noticed in this way. It costs the pooler one short message.
 *
 * The time is counted in steps of the supervisor. So neither a change of the clock nor a suspended
 * machine makes the supervisor end a pooler.
 */
#include "weir.h"
#include "supervisor.h"

#include <sys/ioctl.h>
#include <time.h>

#include <linux/sockios.h>

/* The pause between two questions. */
#define ASK_MS 3000
/* A longer step counts as this: the supervisor itself did not run. */
#define STEP_MAX_MS 600

static pid_t watched = 0; /* the pooler; 0: none */
static int64 looked_at_ms = 0;
static int silent_ms = 0;
static int unasked_ms = 0;

static int
step_ms(void)
{
    struct timespec time = {0};
    int64 now;
    int64 step;

    clock_gettime(CLOCK_MONOTONIC, &time);
    now = (int64) time.tv_sec * 1000 + time.tv_nsec / 1000000;
    step = now - looked_at_ms;
    looked_at_ms = now;
    return (int) Min(step, STEP_MAX_MS);
}

/* Whether all that it was told was read. If the kernel does not tell, no pooler is suspected. */
static bool
has_read(const Child *child)
{
    int unread = 0;

    return child->control >= 0 &&
           (ioctl(child->control, SIOCOUTQ, &unread) != 0 || unread == 0);
}

/* Whether a pooler that serves has not answered for WATCHDOG_MS. Called at each step. */
bool
watchdog_expires(const Child *child)
{
    int step = step_ms();

    if (child->pid <= 0 || !child->ready || child->failed || child->pid != watched) {
        watched = child->ready && !child->failed ? child->pid : 0;
        silent_ms = unasked_ms = 0;
        return false;
    }
    if (!has_read(child)) {
        silent_ms += step;
        return silent_ms >= WATCHDOG_MS;
    }
    silent_ms = 0;
    unasked_ms += step;
    if (unasked_ms >= ASK_MS) {
        unasked_ms = 0;
        adopt_tell_cookie(child->control);
    }
    return false;
}
