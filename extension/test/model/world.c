/*
 * world.c: clients, backends and Weir over lobby.c, and what must hold.
 *
 *  - One process at a time reads a client's socket, and only the socket of the place's generation.
 *  - A request of a client is answered, unless its connection was closed.
 *  - A connection is closed only if a backend was killed that had it.
 *  - No client waits while a backend does nothing, unless it holds its guest.
 *  - A backend that holds its guest returns it to Weir at once.
 */
#include "model.h"

#include "../../lobby.h"

#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>

#define MAIL_MAX 32
#define CLIENTS_MAX 3
#define LINES ((4096 + 4096) / sizeof(uint64_t))

/* What Weir does besides, after it has admitted every client. */
typedef enum Order {
    ORDER_NONE,
    ORDER_RECALL_AND_ADMIT, /* the same client again, at the same place */
    ORDER_REUSE             /* another client at its place, and it at a third one */
} Order;

typedef struct Scenario {
    const char *name;
    int clients;
    int backends;
    int requests; /* of each client */
    Order order;
    bool lingers;
    bool blocks; /* client 1's transaction ends when client 2 has its answer */
    bool holds;  /* client 0 may ask for numbers that it has drawn */
} Scenario;

static const Scenario scenarios[] = {
    {"rest", 2, 2, 2, ORDER_NONE, false, false, false},
    {"three", 1, 3, 2, ORDER_NONE, false, false, false},
    {"recall", 1, 2, 2, ORDER_RECALL_AND_ADMIT, false, false, false},
    {"reuse", 2, 2, 2, ORDER_REUSE, false, false, false},
    {"linger", 2, 2, 2, ORDER_NONE, true, false, false},
    {"linger-blocked", 3, 3, 1, ORDER_NONE, true, true, false},
    {"linger-recall", 2, 2, 1, ORDER_RECALL_AND_ADMIT, true, false, false},
    {"hold", 2, 2, 2, ORDER_NONE, true, false, true},
    {"hold-blocked", 3, 3, 1, ORDER_NONE, true, true, true},
    {"hold-recall", 2, 2, 1, ORDER_RECALL_AND_ADMIT, true, false, true},
};

typedef enum Letter {
    LETTER_RETURNED,
    LETTER_DEATH
} Letter;

typedef struct Mail {
    Letter letter;
    int backend;
    int place;
} Mail;

static const Scenario *scenario;
/* Header, lines, and windows that are never written: the file is not that long. */
static uint64_t memory[LINES] __attribute__((aligned(4096)));
static uint32_t held[BACKENDS_MAX + 1][PLACES];
static Mail mail[MAIL_MAX];
static int mail_read;
static int mail_written;
static bool kicked[BACKENDS_MAX];
static int client_at[PLACES];      /* -1: none */
static uint32_t generation_at[PLACES];
static bool recalled;              /* a backend was asked for place 0 and has not answered */
static bool wanted_elsewhere;      /* ORDER_REUSE: the client of place 0 gets another place */

static Lobby
view(int row)
{
    Lobby lobby;
    size_t size = lobby_size((uint32_t) scenario->backends, PLACES);
    const char *why = lobby_open(&lobby, memory, size, 0, BASE, held[row], PLACES);

    if (why != NULL)
        model_fail("%s", why);
    return lobby;
}

/* Clients. */

static int answers_wanted[CLIENTS_MAX];

static bool
is_answered(int client)
{
    return sockets[client].closed ||
           (answers_wanted[client] > 0 && sockets[client].answered >= answers_wanted[client]);
}

static bool
has_asked(int client)
{
    return answers_wanted[client] > 0;
}

static void
client_main(int client)
{
    for (int i = 1; i <= scenario->requests && !sockets[client].closed; i++) {
        answers_wanted[client] = i;
        model_note("client %d asks", client);
        kernel_send(client);
        model_wait(is_answered, client);
    }
}

/* Backends. */

static void
write_to_weir(Letter letter, int backend, int place)
{
    mail[mail_written++] = (Mail){.letter = letter, .backend = backend, .place = place};
}

static void
kick(int backend)
{
    if (backend >= 0) {
        model_note("backend %d is woken", backend);
        kicked[backend] = true;
    }
}

static bool
has_event(int unused)
{
    (void) unused;
    return kernel_has_event();
}

static uint64_t
next_event(Lobby *lobby, int me)
{
    uint64_t event;

    model_step();
    if (kernel_take_event(&event))
        return event;
    lobby_sleep(lobby, (uint32_t) me);
    do {
        model_wait(has_event, 0);
    } while (!kernel_take_event(&event));
    return event;
}

/* Asks Weir for the descriptor, unless it has that of this generation. */
static void
fetch(Lobby *lobby, int me, uint32_t place, uint32_t generation)
{
    if (lobby_holds(lobby, place, generation))
        return;
    model_step();
    descriptors[me][place] = descriptors[WEIR][place];
    lobby_note_held(lobby, place, generation);
}

static void
answer(int me, uint32_t place, uint32_t generation)
{
    int socket = descriptors[me][place];

    if (socket < 0 || socket != client_at[place] || generation != generation_at[place])
        model_fail("backend %d serves the socket of another generation", me);
    if (sockets[socket].server >= 0)
        model_fail("two processes serve client %d", socket);
    sockets[socket].server = me;
    model_step();
    if (sockets[socket].unread > 0) {
        sockets[socket].unread--;
        model_step();
        if (scenario->blocks && socket == 1)
            model_wait(is_answered, 2);
        sockets[socket].answered++;
        model_note("backend %d answers client %d", me, socket);
    }
    model_step();
    sockets[socket].server = -1;
}

static bool
has_request_or_kick(int both)
{
    int me = both / PLACES;
    int socket = descriptors[me][both % PLACES];

    return kicked[me] || sockets[socket].unread > 0;
}

/* The time of a hold is over, before which no process could go on. */
static void
check_hold(const Lobby *lobby, uint32_t place)
{
    if (recalled && place == 0)
        model_fail("a backend holds the guest that Weir has asked for");
    for (uint32_t i = 0; i < lobby->backends; i++)
        if (lobby_backend(lobby, i)->activity == LOBBY_LINGERING && kernel_has_event())
            model_fail("a client waits, and a backend lingers");
}

/* True: the guest has sent a request. */
static bool
lingers(Lobby *lobby, int me, uint32_t place)
{
    int socket = descriptors[me][place];
    int both = me * PLACES + (int) place;
    bool holds = scenario->holds && socket == 0;

    while (lobby_linger(lobby, (uint32_t) me, place, holds) == LINGER_STAY) {
        if (!holds)
            model_wait(has_request_or_kick, both);
        else if (model_wait_for_some_time(has_request_or_kick, both))
            check_hold(lobby, place);
        if (sockets[socket].unread > 0)
            return true;
        holds = holds && kicked[me];
        kicked[me] = false;
    }
    return false;
}

static void
backend_main(int me)
{
    Lobby lobby = view(me);

    lobby_enter(&lobby, (uint32_t) me, 1000 + (uint32_t) me, (uint32_t) me);
    for (;;) {
        uint64_t event = next_event(&lobby, me);
        uint32_t place;
        uint32_t generation;

        model_note("backend %d has an event", me);
        if (lobby_claim(&lobby, (uint32_t) me, event, &place, &generation) == CLAIM_LOST)
            continue;
        model_note("backend %d owns place %u", me, place);
        fetch(&lobby, me, place, generation);
        do {
            kick(lobby_serve(&lobby, (uint32_t) me));
            answer(me, place, generation);
        } while (scenario->lingers && lingers(&lobby, me, place));
        switch (lobby_release(&lobby, (uint32_t) me, place, generation)) {
            case RELEASE_ARMED:
                model_note("backend %d releases place %u", me, place);
                break;
            case RELEASE_RETURNED:
                model_note("backend %d returns place %u", me, place);
                model_step();
                write_to_weir(LETTER_RETURNED, me, (int) place);
                break;
            case RELEASE_BROKEN:
                model_fail("a place is not its owner's");
        }
    }
}

/* Weir. */

static void
admit(Lobby *lobby, int client, uint32_t place)
{
    uint32_t generation = lobby_take(lobby, place);

    if (generation == 0)
        model_fail("place %u is not free", place);
    generation_at[place] = generation;
    client_at[place] = client;
    descriptors[WEIR][place] = client;
    if (!lobby_admit(lobby, place))
        model_fail("the set does not take client %d", client);
    model_note("Weir admits client %d to place %u", client, place);
}

static void
vacate(Lobby *lobby, uint32_t place)
{
    if (!lobby_vacate(lobby, place))
        model_fail("place %u is not Weir's", place);
    client_at[place] = -1;
    descriptors[WEIR][place] = -1;
}

/* The guest of the place is Weir's: it goes into the lobby again. */
static void
admit_again(Lobby *lobby, uint32_t place)
{
    int client = client_at[place];

    recalled = recalled && place != 0;
    vacate(lobby, place);
    if (wanted_elsewhere && place == 0) {
        wanted_elsewhere = false;
        admit(lobby, client, 2);
        /* The other client comes to the place that has become free. */
        if (lobby_recall(lobby, 1) == RECALL_TAKEN) {
            client = client_at[1];
            vacate(lobby, 1);
            admit(lobby, client, 0);
        }
        return;
    }
    admit(lobby, client, place);
}

static void
wake_lingerers(Lobby *lobby)
{
    for (int i = 0; i < scenario->backends; i++)
        if (lobby_lingers(lobby, (uint32_t) i))
            kick(i);
}

static void
handle_death(Lobby *lobby, int backend)
{
    for (uint32_t place = 0; place < PLACES; place++) {
        switch (lobby_reclaim(lobby, (uint32_t) backend, place)) {
            case LOSS_NONE:
                break;
            case LOSS_CLOSE:
                recalled = recalled && place != 0;
                model_note("Weir closes client %d", client_at[place]);
                sockets[client_at[place]].closed = true;
                vacate(lobby, place);
                break;
            case LOSS_RETURNED:
                admit_again(lobby, place);
                break;
        }
    }
    lobby_arm_again(lobby, (uint32_t) backend);
    wake_lingerers(lobby);
}

static void
recall(Lobby *lobby)
{
    model_note("Weir recalls place 0");
    switch (lobby_recall(lobby, 0)) {
        case RECALL_TAKEN:
            admit_again(lobby, 0);
            break;
        case RECALL_ASKED:
            recalled = true;
            wake_lingerers(lobby);
            break;
        case RECALL_NONE:
            break;
    }
}

static bool
has_mail(int unused)
{
    (void) unused;
    return mail_read < mail_written;
}

static void
handle_mail(Lobby *lobby)
{
    while (has_mail(0)) {
        Mail next = mail[mail_read++];

        switch (next.letter) {
            case LETTER_RETURNED:
                if (!lobby_acknowledge(lobby, (uint32_t) next.place, (uint32_t) next.backend))
                    model_fail("a guest was returned that is not");
                admit_again(lobby, (uint32_t) next.place);
                break;
            case LETTER_DEATH:
                handle_death(lobby, next.backend);
                break;
        }
    }
}

static void
weir_main(int unused)
{
    Lobby lobby = view(WEIR);

    (void) unused;
    for (int client = 0; client < scenario->clients; client++)
        admit(&lobby, client, (uint32_t) client);
    model_wait(has_asked, 0);
    handle_mail(&lobby);
    if (scenario->order != ORDER_NONE) {
        wanted_elsewhere = scenario->order == ORDER_REUSE;
        recall(&lobby);
    }
    for (;;) {
        model_wait(has_mail, 0);
        handle_mail(&lobby);
    }
}

/* The scheduler's side. */

const char *
world_name(int number)
{
    if (number < 0 || (size_t) number >= sizeof(scenarios) / sizeof(scenarios[0]))
        return NULL;
    return scenarios[number].name;
}

void
world_begin(int number)
{
    static const char *const clients[] = {"client 0", "client 1", "client 2"};
    static const char *const backends[] = {"backend 0", "backend 1", "backend 2"};

    scenario = &scenarios[number];
    memset(memory, 0, sizeof(memory));
    memset(held, 0, sizeof(held));
    memset(kicked, 0, sizeof(kicked));
    memset(answers_wanted, 0, sizeof(answers_wanted));
    for (int i = 0; i < PLACES; i++)
        client_at[i] = -1;
    mail_read = 0;
    mail_written = 0;
    recalled = false;
    wanted_elsewhere = false;
    if (!lobby_format(memory, lobby_size((uint32_t) scenario->backends, PLACES),
                      (uint32_t) scenario->backends, PLACES))
        model_fail("the lobby cannot be formatted");
    model_process("Weir", weir_main, 0, WEIR, false);
    for (int i = 0; i < scenario->backends; i++)
        model_process(backends[i], backend_main, i, i, true);
    for (int i = 0; i < scenario->clients; i++)
        model_process(clients[i], client_main, i, -1, false);
}

/* The kernel closes its descriptors, and Weir reads the end of its control socket. */
void
world_killed(int row)
{
    for (int i = 0; i < SOCKETS_MAX; i++)
        if (sockets[i].server == row)
            sockets[i].server = -1;
    for (int place = 0; place < PLACES; place++)
        descriptors[row][place] = -1;
    write_to_weir(LETTER_DEATH, row, 0);
}

/* No process can go on. */
void
world_end(int kills)
{
    int closed = 0;

    for (int client = 0; client < scenario->clients; client++) {
        closed += sockets[client].closed;
        if (!sockets[client].closed && sockets[client].answered < scenario->requests)
            model_fail("client %d is forgotten", client);
    }
    if (recalled)
        model_fail("a backend does not return the guest that Weir has asked for");
    if (closed > kills)
        model_fail("%d clients were closed for %d deaths", closed, kills);
}
