/*
 * handover.c: what it costs that many processes take clients from one epoll set by the rules of
 * ../../lobby.c. The answers are canned: a process reads a request, sends the answer of a short
 * SELECT, and releases the client.
 *
 *   handover PROCESSES CLIENTS SECONDS SETS
 *
 * SETS: so many lobbies, each with its share of the processes and clients. 0: each process has a
 * set of its own, and no client changes hands. The difference to that is the cost of a hand-over.
 * Prints transactions per second, and the processes' CPU time for each.
 */
#include "../../lobby.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BASE 2000
#define GENERATORS 2
#define REQUEST_LEN 40
#define ANSWER_LEN 66
#define PROCESSES_MAX 256
#define CLIENTS_MAX 4096

typedef struct Shared {
    uint64_t transactions[PROCESSES_MAX][8]; /* a cache line each */
} Shared;

static Shared *shared;
static int processes;
static int clients;
static int sets;
static Lobby lobbies[PROCESSES_MAX];
static int client_ends[CLIENTS_MAX];
static volatile sig_atomic_t is_over;

static void
fail(const char *what)
{
    perror(what);
    exit(1);
}

static void
note_end(int signal)
{
    (void) signal;
    is_over = 1;
}

static void *
map(size_t size)
{
    int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);

    if (memory == MAP_FAILED)
        fail("mmap");
    return memory;
}

/* Reads the request and answers it. */
static void
serve(int me, int guest)
{
    char bytes[ANSWER_LEN] = {0};

    if (recv(guest, bytes, REQUEST_LEN, MSG_DONTWAIT) == REQUEST_LEN) {
        if (send(guest, bytes, ANSWER_LEN, MSG_NOSIGNAL) != ANSWER_LEN)
            fail("send");
        shared->transactions[me][0]++;
    }
}

static void
backend_shared(Lobby *lobby, int me, int number)
{
    lobby_enter(lobby, (uint32_t) me, (uint32_t) getpid(), (uint32_t) me);
    while (!is_over) {
        struct epoll_event event;
        uint32_t place;
        uint32_t generation;
        int got = epoll_wait(lobby->set, &event, 1, 0);

        /* As attend.c does: it says that it sleeps, and looks without a pause before. */
        if (got == 0) {
            lobby_sleep(lobby, (uint32_t) me);
            got = epoll_wait(lobby->set, &event, 1, 100);
        }
        if (got != 1)
            continue;
        if (lobby_claim(lobby, (uint32_t) me, event.data.u64, &place, &generation) == CLAIM_LOST)
            continue;
        (void) lobby_serve(lobby, (uint32_t) me);
        serve(number, lobby->base + (int) place);
        if (lobby_release(lobby, (uint32_t) me, place, generation) != RELEASE_ARMED)
            fail("a place has another owner");
    }
}

static void
backend_apart(int me)
{
    int set = epoll_create1(0);

    for (int place = me; place < clients; place += processes) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = BASE + place};

        if (epoll_ctl(set, EPOLL_CTL_ADD, BASE + place, &event) != 0)
            fail("epoll_ctl");
    }
    while (!is_over) {
        struct epoll_event event;
        int got = epoll_wait(set, &event, 1, 0);

        if (got == 0)
            got = epoll_wait(set, &event, 1, 100);
        if (got == 1)
            serve(me, event.data.fd);
    }
}

/* Sends a request for each of its clients, and the next one when the answer has come. */
static void
generate(int number)
{
    char bytes[ANSWER_LEN] = {0};
    struct epoll_event events[64];
    int set = epoll_create1(0);

    for (int place = number; place < clients; place += GENERATORS) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = client_ends[place]};

        if (epoll_ctl(set, EPOLL_CTL_ADD, client_ends[place], &event) != 0 ||
            send(client_ends[place], bytes, REQUEST_LEN, 0) != REQUEST_LEN)
            fail("a client");
    }
    while (!is_over) {
        int got = epoll_wait(set, events, 64, 100);

        for (int i = 0; i < got; i++)
            if (recv(events[i].data.fd, bytes, ANSWER_LEN, MSG_WAITALL) != ANSWER_LEN ||
                send(events[i].data.fd, bytes, REQUEST_LEN, MSG_NOSIGNAL) != REQUEST_LEN)
                exit(is_over ? 0 : 1);
    }
}

static pid_t
begin(void (*work)(int number), int number)
{
    pid_t child = fork();

    if (child < 0)
        fail("fork");
    if (child == 0) {
        work(number);
        _exit(0);
    }
    return child;
}

static void
be_backend(int number)
{
    if (sets == 0)
        backend_apart(number);
    else
        backend_shared(&lobbies[number % sets], number / sets, number);
}

static void
make_clients(void)
{
    for (int place = 0; place < clients; place++) {
        int ends[2];

        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0 || dup2(ends[0], BASE + place) < 0)
            fail("socketpair");
        close(ends[0]);
        client_ends[place] = ends[1];
    }
}

static void
make_lobby(int number)
{
    Lobby *lobby = &lobbies[number];
    uint32_t backends = (uint32_t) (processes / sets);
    uint32_t places = (uint32_t) (clients / sets);
    size_t size = lobby_size(backends, places);
    void *memory = map(size);
    uint32_t *held = calloc(places, sizeof(uint32_t));
    int set = epoll_create1(0);
    int base = BASE + number * (int) places;

    if (!lobby_format(memory, size, backends, places) ||
        lobby_open(lobby, memory, size, set, base, held, places) != NULL)
        fail("the lobby");
    lobby_use_lines(lobby, backends);
    for (uint32_t place = 0; place < places; place++)
        if (lobby_take(lobby, place, 0, 0) == 0 || !lobby_admit(lobby, place))
            fail("a client is not admitted");
}

static double
seconds_of(struct timeval time)
{
    return (double) time.tv_sec + (double) time.tv_usec / 1e6;
}

int
main(int count, char **words)
{
    struct rlimit files;
    pid_t children[PROCESSES_MAX + GENERATORS];
    double cpu = 0;
    uint64_t transactions = 0;
    int seconds;

    if (count != 5 || (processes = atoi(words[1])) < 1 || processes > PROCESSES_MAX ||
        (clients = atoi(words[2])) < 1 || clients > CLIENTS_MAX || (seconds = atoi(words[3])) < 1 ||
        (sets = atoi(words[4])) < 0 ||
        (sets > 0 && (sets > processes || processes % sets != 0 || clients % sets != 0))) {
        fprintf(stderr, "handover PROCESSES CLIENTS SECONDS SETS\n");
        return 2;
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void) setrlimit(RLIMIT_NOFILE, &files);
    }
    signal(SIGTERM, note_end);
    shared = map(sizeof(Shared));
    make_clients();
    for (int i = 0; i < sets; i++)
        make_lobby(i);
    for (int i = 0; i < processes; i++)
        children[i] = begin(be_backend, i);
    for (int i = 0; i < GENERATORS; i++)
        children[processes + i] = begin(generate, i);
    sleep((unsigned) seconds);
    for (int i = 0; i < processes + GENERATORS; i++)
        kill(children[i], SIGTERM);
    for (int i = 0; i < processes + GENERATORS; i++) {
        struct rusage usage;
        int status;

        if (wait4(children[i], &status, 0, &usage) < 0 || status != 0)
            fail("a process");
        if (i >= processes)
            continue;
        cpu += seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
        transactions += shared->transactions[i][0];
    }
    printf("%d %d %.0f %.3f\n", processes, sets, (double) transactions / seconds,
           cpu * 1e6 / (double) transactions);
    return 0;
}
