/*
 * model.h: processes that a scheduler runs by turns, a kernel's epoll set, and sockets.
 *
 * The scheduler tries every order of their steps up to a number of delays, and kills at every step.
 */
#ifndef MODEL_H
#define MODEL_H

#include <stdbool.h>
#include <stdint.h>

#define PROCESSES_MAX 8
#define SOCKETS_MAX 4
#define PLACES 3
#define BACKENDS_MAX 3
#define BASE 100
#define WEIR BACKENDS_MAX /* the row of Weir's descriptors; the backends have the first ones */

typedef void (*Main)(int argument);

/* A client's socket as the server's side sees it. */
typedef struct Socket {
    int unread;   /* requests that nobody has read */
    int answered;
    int server;   /* the backend that reads and writes now; -1: none */
    bool closed;
} Socket;

extern Socket sockets[SOCKETS_MAX];

/* The descriptor of a file without a client. */
#define BLANK SOCKETS_MAX

/* The socket that a process has under a place's number; -1: none. */
extern int descriptors[BACKENDS_MAX + 1][PLACES];

/* model.c: the scheduler. */

extern void model_process(const char *name, Main main, int argument, int row, bool mortal);

/* Another process may go on, or this one may be killed. */
extern void model_step(void);

/* Waits until `ready` is true. */
extern void model_wait(bool (*ready)(int argument), int argument);

/* The same, or for some time. True: the time is over, and no other process could go on before. */
extern bool model_wait_for_some_time(bool (*ready)(int argument), int argument);

/* An invariant does not hold: prints the steps and ends. */
extern void model_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* For the printed steps of a run that has failed. */
extern void model_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The row of descriptors of the process that runs. */
extern int model_row(void);

/* kernel.c: the epoll set. */

extern void kernel_reset(void);
extern void kernel_send(int socket);
extern bool kernel_has_event(void);
extern bool kernel_take_event(uint64_t *data);

/* world.c: what the scheduler calls. */

extern void world_begin(int scenario);
extern void world_punch(long at, long len);
extern void world_killed(int row);
extern void world_end(int kills);
extern const char *world_name(int scenario);

#endif /* MODEL_H */
