/*
 * model.c: runs a scenario again and again, each time with another order of the processes' steps.
 *
 * The plain order is: a process runs until it has to wait, then the next one in turn. A run differs
 * from it by at most `--delays` delays: one delay passes over one process that could run. At every
 * step each mortal process may be killed, at most `--kills` times a run. All such runs are made.
 *
 *   model SCENARIO [--delays N] [--kills N] [--runs MAX]
 *
 * Accesses to memory are tried in one order for all processes: what a weaker order of the
 * processor's does is not tried. lobby.c uses sequentially consistent accesses only.
 */
#include "model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define STACK (64 * 1024)
#define DEPTH_MAX 20000
#define NOTES_MAX 2000
#define NOTE_LEN 80

typedef enum Life {
    UNUSED,
    NEW,
    RUNS,
    WAITS,
    ENDED,
    KILLED
} Life;

typedef struct Process {
    const char *name;
    Main main;
    int argument;
    int row;
    bool mortal;
    Life life;
    bool (*ready)(int);
    int ready_argument;
    bool expires;
    jmp_buf at;
} Process;

typedef struct Choice {
    short taken;
    short count;
} Choice;

static Process processes[PROCESSES_MAX];
static unsigned char stacks[PROCESSES_MAX][STACK] __attribute__((aligned(64)));
static int process_count;
static int current = -1;
static bool nothing_ran; /* every process waited before this step */
static jmp_buf scheduler;

static Choice trail[DEPTH_MAX];
static int trail_len;
static int depth;

static int delays_max = 2;
static int kills_max = 1;
static int delays;
static int kills;

static char notes[NOTES_MAX][NOTE_LEN];
static int note_count;
static int scenario;
static long runs;

void
model_process(const char *name, Main main, int argument, int row, bool mortal)
{
    processes[process_count++] = (Process){
        .name = name, .main = main, .argument = argument, .row = row, .mortal = mortal, .life = NEW,
    };
}

int
model_row(void)
{
    return processes[current].row;
}

void
model_note(const char *format, ...)
{
    va_list args;

    if (note_count == NOTES_MAX)
        return;
    va_start(args, format);
    vsnprintf(notes[note_count++], NOTE_LEN, format, args);
    va_end(args);
}

void
model_fail(const char *format, ...)
{
    va_list args;

    for (int i = 0; i < note_count; i++)
        printf("  %s\n", notes[i]);
    printf("scenario %s, run %ld: ", world_name(scenario), runs);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    exit(1);
}

static void
leave(Life life)
{
    processes[current].life = life;
    if (_setjmp(processes[current].at) == 0)
        _longjmp(scheduler, 1);
}

void
model_step(void)
{
    leave(RUNS);
}

void
model_wait(bool (*ready)(int), int argument)
{
    processes[current].ready = ready;
    processes[current].ready_argument = argument;
    leave(WAITS);
}

bool
model_wait_for_some_time(bool (*ready)(int), int argument)
{
    processes[current].expires = true;
    model_wait(ready, argument);
    processes[current].expires = false;
    return nothing_ran;
}

static void
begin(void)
{
    processes[current].main(processes[current].argument);
    leave(ENDED);
}

/* The first time a process needs its stack; later a jump is enough, which takes no system call. */
static void
resume(int process)
{
    static ucontext_t unused;
    ucontext_t fresh;

    current = process;
    if (_setjmp(scheduler) != 0)
        return;
    if (processes[process].life != NEW)
        _longjmp(processes[process].at, 1);
    getcontext(&fresh);
    fresh.uc_stack.ss_sp = stacks[process];
    fresh.uc_stack.ss_size = STACK;
    fresh.uc_link = NULL;
    makecontext(&fresh, begin, 0);
    swapcontext(&unused, &fresh);
}

static bool
can_run(const Process *process)
{
    switch (process->life) {
        case NEW:
        case RUNS:
            return true;
        case WAITS:
            return process->ready(process->ready_argument);
        case UNUSED:
        case ENDED:
        case KILLED:
            return false;
    }
    return false;
}

/* One of `count` ways to go on: what the trail says, else the first one. */
static int
choose(int count)
{
    if (depth == DEPTH_MAX)
        model_fail("the run does not end");
    if (depth == trail_len)
        trail[trail_len++] = (Choice){.taken = 0, .count = (short) count};
    if (trail[depth].count != count)
        model_fail("the model is not deterministic");
    return trail[depth++].taken;
}

/* The processes that can run, the one whose turn it is first. Last those whose time may be over. */
static int
runnable(int order[PROCESSES_MAX])
{
    int count = 0;
    int from = current < 0 ? 0 : current;

    for (int i = 0; i < process_count; i++) {
        int process = (from + i) % process_count;

        if (can_run(&processes[process]))
            order[count++] = process;
    }
    nothing_ran = count == 0;
    for (int i = 0; i < process_count; i++) {
        const Process *process = &processes[i];

        if (process->life == WAITS && process->expires && !can_run(process))
            order[count++] = i;
    }
    return count;
}

static int
killable(int order[PROCESSES_MAX])
{
    int count = 0;

    if (kills == kills_max)
        return 0;
    for (int i = 0; i < process_count; i++)
        if (processes[i].mortal && processes[i].life != ENDED && processes[i].life != KILLED)
            order[count++] = i;
    return count;
}

static void
run_once(void)
{
    process_count = 0;
    current = -1;
    depth = 0;
    delays = 0;
    kills = 0;
    note_count = 0;
    kernel_reset();
    world_begin(scenario);
    for (;;) {
        int order[PROCESSES_MAX];
        int victims[PROCESSES_MAX];
        int count = runnable(order);
        int victim_count = killable(victims);
        int turns = count;
        int chosen;

        if (turns > delays_max - delays + 1)
            turns = delays_max - delays + 1;
        if (count == 0 && victim_count == 0)
            break;
        /* With nothing to run, the last way is to end without a further death. */
        chosen = choose(turns + victim_count + (count == 0));
        if (count == 0 && chosen == 0)
            break;
        if (count == 0)
            chosen--;
        if (chosen < turns) {
            delays += chosen;
            resume(order[chosen]);
        } else {
            Process *victim = &processes[victims[chosen - turns]];

            kills++;
            victim->life = KILLED;
            model_note("%s is killed", victim->name);
            world_killed(victim->row);
        }
    }
    world_end(kills);
}

/* The next order of steps; false: all have been tried. */
static bool
advance(void)
{
    trail_len = depth;
    while (trail_len > 0 && trail[trail_len - 1].taken + 1 >= trail[trail_len - 1].count)
        trail_len--;
    if (trail_len == 0)
        return false;
    trail[trail_len - 1].taken++;
    return true;
}

int
main(int count, char **words)
{
    long runs_max = -1;

    if (count < 2) {
        for (int i = 0; world_name(i) != NULL; i++)
            printf("%s\n", world_name(i));
        return 0;
    }
    while (world_name(scenario) != NULL && strcmp(world_name(scenario), words[1]) != 0)
        scenario++;
    if (world_name(scenario) == NULL)
        return 2;
    for (int i = 2; i + 1 < count; i += 2) {
        long value = strtol(words[i + 1], NULL, 10);

        if (strcmp(words[i], "--delays") == 0)
            delays_max = (int) value;
        else if (strcmp(words[i], "--kills") == 0)
            kills_max = (int) value;
        else if (strcmp(words[i], "--runs") == 0)
            runs_max = value;
        else
            return 2;
    }
    do {
        runs++;
        run_once();
    } while (runs != runs_max && advance());
    printf("%s: %ld runs, delays <= %d, kills <= %d\n", world_name(scenario), runs, delays_max,
           kills_max);
    return 0;
}
