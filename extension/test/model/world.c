/*
 * world.c: clients, backends and Weir over lobby.c, and what must hold.
 *
 *  - One process at a time reads a client's socket, and only the socket of the place's generation.
 *  - A request of a client is answered, unless its connection was closed.
 *  - A connection is closed only if a backend was killed that had it.
 *  - No client waits while a backend does nothing, unless it holds its guest.
 *  - A backend that holds its guest returns it to Weir at once.
 *  - A place has the window and the record of its guest, and of no guest before.
 *  - An order is obeyed in a transaction of the guest that it is for.
 *  - A guest that leaves with its backend takes its channels with it.
 *  - When Weir is killed, the next one goes on with every client on the list.
 *  - Each answer is counted once.
 */
#include "model.h"

#include "../../lobby.h"

#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>

#define MAIL_MAX 32
#define CLIENTS_MAX 3
#define FILE_WORDS ((4096 + 4096 + PLACES * LOBBY_WINDOW) / sizeof(uint64_t))

/* What Weir does besides, after it has admitted every client. */
typedef enum Order {
    ORDER_NONE,
    ORDER_RECALL_AND_ADMIT, /* the same client again, at the same place */
    ORDER_REUSE,            /* another client at its place, and it at a third one */
    ORDER_CANCEL            /* the query of client 0 */
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
    bool listens; /* client 0 leaves with its backend behind its first transaction */
    bool fails;   /* at first, the system refuses to put client 0 into its place */
    bool dies;    /* Weir may be killed, and the next one goes on */
} Scenario;

static const Scenario scenarios[] = {
    {.name = "rest", .clients = 2, .backends = 2, .requests = 2},
    {.name = "three", .clients = 1, .backends = 3, .requests = 2},
    {.name = "recall", .clients = 1, .backends = 2, .requests = 2,
     .order = ORDER_RECALL_AND_ADMIT},
    {.name = "reuse", .clients = 2, .backends = 2, .requests = 2, .order = ORDER_REUSE},
    {.name = "linger", .clients = 2, .backends = 2, .requests = 2, .lingers = true},
    {.name = "linger-blocked", .clients = 3, .backends = 3, .requests = 1, .lingers = true,
     .blocks = true},
    {.name = "linger-recall", .clients = 2, .backends = 2, .requests = 1, .lingers = true,
     .order = ORDER_RECALL_AND_ADMIT},
    {.name = "hold", .clients = 2, .backends = 2, .requests = 2, .lingers = true, .holds = true},
    {.name = "hold-blocked", .clients = 3, .backends = 3, .requests = 1, .lingers = true,
     .blocks = true, .holds = true},
    {.name = "hold-recall", .clients = 2, .backends = 2, .requests = 1, .lingers = true,
     .holds = true, .order = ORDER_RECALL_AND_ADMIT},
    {.name = "cancel", .clients = 2, .backends = 2, .requests = 1, .order = ORDER_CANCEL},
    {.name = "fill", .clients = 1, .backends = 2, .requests = 1, .fails = true},
    {.name = "depart", .clients = 1, .backends = 2, .requests = 2, .listens = true},
    {.name = "depart-recall", .clients = 1, .backends = 2, .requests = 2, .listens = true,
     .order = ORDER_RECALL_AND_ADMIT},
    {.name = "repair", .clients = 1, .backends = 2, .requests = 2, .dies = true,
     .order = ORDER_RECALL_AND_ADMIT},
    {.name = "repair-linger", .clients = 2, .backends = 2, .requests = 1, .dies = true,
     .lingers = true, .order = ORDER_RECALL_AND_ADMIT},
};

typedef enum Letter {
    LETTER_RETURNED,
    LETTER_LISTENS, /* the same, and the guest leaves with its backend */
    LETTER_DEATH
} Letter;

typedef struct Mail {
    Letter letter;
    int backend;
    int place;
    uint32_t generation;
} Mail;

static const Scenario *scenario;
static uint64_t memory[FILE_WORDS] __attribute__((aligned(4096)));
static uint32_t held[BACKENDS_MAX + 1][PLACES];
static Mail mail[MAIL_MAX];
static int mail_read;
static int mail_written;
static bool kicked[BACKENDS_MAX];
static int client_at[PLACES];      /* -1: none */
static uint32_t generation_at[PLACES];
static bool recalled;              /* a backend was asked for place 0 and has not answered */
static bool wanted_elsewhere;      /* ORDER_REUSE: the client of place 0 gets another place */
static bool welcome[BACKENDS_MAX]; /* it has a line */
static bool may_go[BACKENDS_MAX];  /* Weir has the guest with which it leaves */
static bool is_gone[BACKENDS_MAX]; /* Weir has handled its death */
static int proxied;                /* a client that has left the lobby; -1: none */
static int listed[PLACES];         /* clients on the list for the next Weir; -1: none */
static bool weir_is_dead;
static int unlisted;               /* clients that end with a Weir that is killed */
static uint64_t counted;           /* queries of backends that have ended */

static Lobby
view_of_weir(void)
{
    Lobby lobby;

    if (!lobby_open_as_weir(&lobby, memory, (uint32_t) scenario->backends, PLACES))
        model_fail("Weir cannot open the lobby");
    lobby_use(&lobby, 0, BASE, 0, BLANK);
    return lobby;
}

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
write_to_weir(Letter letter, int backend, uint32_t place, uint32_t generation)
{
    mail[mail_written++] = (Mail){
        .letter = letter, .backend = backend, .place = (int) place, .generation = generation,
    };
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

/* There is a Weir that has the client. */
static bool
has_descriptor(int place)
{
    return descriptors[WEIR][place] >= 0;
}

/* Asks Weir for the descriptor, unless it has that of this generation. */
static void
fetch(Lobby *lobby, int me, uint32_t place, uint32_t generation)
{
    if (lobby_holds(lobby, place, generation))
        return;
    model_step();
    if (!has_descriptor((int) place))
        model_wait(has_descriptor, (int) place);
    descriptors[me][place] = descriptors[WEIR][place];
    lobby_note_held(lobby, place, generation);
}

/* The number of its transaction, as attend.c has it. */
static void
next_transaction(LobbyBackend *line)
{
    if (scenario->order == ORDER_CANCEL)
        model_step();
    line->transaction++;
}

/* The signal may come at any time before. orders.c obeys an order for the transaction that runs. */
static void
obey(LobbyBackend *line, int socket)
{
    if (line->cancel == line->transaction && socket != 0)
        model_fail("an order for client 0 is obeyed for client %d", socket);
    line->cancel = 0;
}

/* The window has the login of this client. Its record has what this client was told. */
static void
check_place(const Lobby *lobby, uint32_t place, int socket)
{
    const LobbyPlace *at = lobby_place(lobby, place);
    const LobbyWindowHeader *header = (const LobbyWindowHeader *) lobby_window(lobby, place);

    if (at->told != (uint64_t) socket || at->process != (uint32_t) socket || at->leaver != 0 ||
        at->channels_len != 0)
        model_fail("the record of place %u is not that of client %d", place, socket);
    if (at->window_len != sizeof(*header) + 1 || header->settings_len != 1 ||
        *(const unsigned char *) (header + 1) != (unsigned char) socket)
        model_fail("the window of place %u is not that of client %d", place, socket);
}

static void
answer(Lobby *lobby, int me, uint32_t place, uint32_t generation)
{
    int socket = descriptors[me][place];
    LobbyBackend *line = lobby_backend(lobby, (uint32_t) me);

    if (socket < 0 || socket != client_at[place] || generation != generation_at[place])
        model_fail("backend %d serves the socket of another generation", me);
    if (sockets[socket].server >= 0)
        model_fail("two processes serve client %d", socket);
    sockets[socket].server = me;
    check_place(lobby, place, socket);
    next_transaction(line);
    line->place = place + 1;
    model_step();
    if (sockets[socket].unread > 0) {
        sockets[socket].unread--;
        model_step();
        if (scenario->blocks && socket == 1)
            model_wait(is_answered, 2);
        sockets[socket].answered++;
        line->queries++;
        lobby_window(lobby, place)[LOBBY_STATE - 1] = 1; /* the guest's state */
        model_note("backend %d answers client %d", me, socket);
    }
    model_step();
    obey(line, socket);
    next_transaction(line);
    line->place = 0;
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

static bool
may_leave(int me)
{
    return may_go[me];
}

/* Leaves the lobby with the guest, as depart.c does. */
static void
depart(Lobby *lobby, int me, uint32_t place, uint32_t generation)
{
    if (!lobby_prepare_leave(lobby, (uint32_t) me, place, "c", 1))
        model_fail("there is no room for a channel");
    if (lobby_return(lobby, (uint32_t) me, place, generation) != RELEASE_RETURNED)
        model_fail("a place is not its owner's");
    lobby_idle_leaving(lobby, (uint32_t) me);
    model_note("backend %d leaves with the client of place %u", me, place);
    write_to_weir(LETTER_LISTENS, me, place, generation);
    model_wait(may_leave, me);
    lobby_leave(lobby, (uint32_t) me);
}

static bool
is_welcome(int me)
{
    return welcome[me];
}

static void
backend_main(int me)
{
    Lobby lobby = view(me);

    model_wait(is_welcome, me);
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
            answer(&lobby, me, place, generation);
        } while (scenario->lingers && lingers(&lobby, me, place));
        if (scenario->listens && sockets[0].answered > 0) {
            depart(&lobby, me, place, generation);
            return;
        }
        switch (lobby_release(&lobby, (uint32_t) me, place, generation)) {
            case RELEASE_ARMED:
                model_note("backend %d releases place %u", me, place);
                break;
            case RELEASE_RETURNED:
                model_note("backend %d returns place %u", me, place);
                model_step();
                write_to_weir(LETTER_RETURNED, me, place, generation);
                break;
            case RELEASE_BROKEN:
                model_fail("a place is not its owner's");
        }
    }
}

/* Weir. */

/* It was killed: the next one goes on. */
static bool
is_successor(void)
{
    return weir_is_dead;
}

static void
fill(Lobby *lobby, int client, uint32_t place, int socket)
{
    unsigned char login = (unsigned char) client;
    uint32_t generation = lobby_take(lobby, place, (uint64_t) client, (uint32_t) client);

    if (generation == 0)
        model_fail("place %u is not free", place);
    if (lobby_window(lobby, place)[LOBBY_STATE - 1] != 0)
        model_fail("something is left in the window of place %u", place);
    if (!lobby_write_login(lobby, place, &login, 1))
        model_fail("there is no room for a login");
    if (lobby_put(lobby, place, socket) != (socket >= 0))
        model_fail("a socket is put into a place wrongly");
    generation_at[place] = generation;
}

static void
admit(Lobby *lobby, int client, uint32_t place)
{
    fill(lobby, client, place, client);
    client_at[place] = client;
    listed[place] = client;
    if (!lobby_admit(lobby, place))
        model_fail("the set does not take client %d", client);
    model_note("Weir admits client %d to place %u", client, place);
}

static void
vacate(Lobby *lobby, uint32_t place, LobbyParting parting)
{
    if (!lobby_vacate(lobby, place, parting))
        model_fail("place %u is not Weir's", place);
    client_at[place] = -1;
    listed[place] = -1;
}

/* The guest of the place is Weir's: it goes into the lobby again. */
static void
admit_again(Lobby *lobby, uint32_t place)
{
    int client = client_at[place];

    recalled = recalled && place != 0;
    if (scenario->dies) {
        if (!lobby_admit(lobby, place))
            model_fail("the set does not take client %d again", client);
        return;
    }
    vacate(lobby, place, PARTING_GOES_ON);
    if (wanted_elsewhere && place == 0) {
        wanted_elsewhere = false;
        admit(lobby, client, 2);
        /* The other client comes to the place that has become free. */
        if (lobby_recall(lobby, 1) == RECALL_TAKEN) {
            client = client_at[1];
            vacate(lobby, 1, PARTING_GOES_ON);
            admit(lobby, client, 0);
        }
        return;
    }
    admit(lobby, client, place);
}

static void
close_guest(Lobby *lobby, uint32_t place)
{
    recalled = recalled && place != 0;
    model_note("Weir closes client %d", client_at[place]);
    vacate(lobby, place, PARTING_ENDS);
}

static void
wake_lingerers(Lobby *lobby)
{
    for (int i = 0; i < scenario->backends; i++)
        if (lobby_lingers(lobby, (uint32_t) i))
            kick(i);
}

/* A place that may be a dead backend's. */
static void
reclaim(Lobby *lobby, int backend, uint32_t place)
{
    uint32_t leaver;

    switch (lobby_reclaim(lobby, (uint32_t) backend, place)) {
        case LOSS_NONE:
            break;
        case LOSS_CLOSE:
            close_guest(lobby, place);
            break;
        case LOSS_RETURNED:
            if (lobby_leaver(lobby, place, &leaver))
                close_guest(lobby, place);
            else
                admit_again(lobby, place);
            break;
    }
}

static void
handle_death(Lobby *lobby, int backend)
{
    uint64_t queries;
    uint64_t unused;

    for (uint32_t place = 0; place < PLACES; place++)
        reclaim(lobby, backend, place);
    lobby_arm_again(lobby, (uint32_t) backend);
    lobby_sums(lobby, (uint32_t) backend, &queries, &unused, &unused);
    lobby_clear_line(lobby, (uint32_t) backend);
    counted += queries;
    is_gone[backend] = true;
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

static void
cancel(Lobby *lobby)
{
    uint32_t backend;
    uint64_t transaction;
    bool is_pinned_idle;

    if (!lobby_serving(lobby, 0, &backend, &transaction, &is_pinned_idle))
        return;
    model_note("Weir cancels transaction %u of backend %u", (unsigned) transaction, backend);
    lobby_order(lobby, backend, LOBBY_CANCEL, transaction);
}

/* The guest leaves the lobby, and its backend may go. */
static void
let_go(Lobby *lobby, int backend, uint32_t place)
{
    uint32_t leaver;
    uint32_t state;
    uint32_t channels;
    char channel;

    if (!lobby_leaver(lobby, place, &leaver) || leaver != (uint32_t) backend)
        model_fail("the guest of place %u does not leave with backend %d", place, backend);
    lobby_lengths(lobby, place, &state, &channels);
    if (channels != 1 || !lobby_read_window(lobby, place, state, &channel, 1) || channel != 'c')
        model_fail("the channels of the guest of place %u are lost", place);
    recalled = recalled && place != 0;
    proxied = client_at[place];
    vacate(lobby, place, PARTING_GOES_ON);
    may_go[backend] = true;
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
        Mail next = mail[mail_read];
        uint32_t place = (uint32_t) next.place;

        /* A message is gone when it is read. The end of a connection stays. */
        if (next.letter == LETTER_DEATH) {
            handle_death(lobby, next.backend);
            mail_read++;
            continue;
        }
        mail_read++;
        if (!lobby_acknowledge(lobby, place, (uint32_t) next.backend, next.generation)) {
            if (!is_successor())
                model_fail("a guest was returned that is not");
        } else if (next.letter == LETTER_LISTENS) {
            let_go(lobby, next.backend, place);
        } else {
            admit_again(lobby, place);
        }
    }
}

static bool
is_served_or_over(int client)
{
    return sockets[client].server >= 0 || sockets[client].answered > 0 || has_mail(0);
}

static void
weir_main(int unused)
{
    Lobby lobby = view_of_weir();

    (void) unused;
    for (int i = 0; i < scenario->backends; i++) {
        lobby_clear_line(&lobby, (uint32_t) i);
        lobby_use_lines(&lobby, (uint32_t) i + 1);
        welcome[i] = true;
    }
    if (scenario->fails) {
        fill(&lobby, 0, 0, -1);
        if (!lobby_untake(&lobby, 0))
            model_fail("a place that was not filled is not free");
    }
    for (int client = 0; client < scenario->clients; client++)
        admit(&lobby, client, (uint32_t) client);
    model_wait(has_asked, 0);
    handle_mail(&lobby);
    if (scenario->order == ORDER_CANCEL) {
        model_wait(is_served_or_over, 0);
        cancel(&lobby);
    } else if (scenario->order != ORDER_NONE) {
        wanted_elsewhere = scenario->order == ORDER_REUSE;
        recall(&lobby);
    }
    for (;;) {
        model_wait(has_mail, 0);
        handle_mail(&lobby);
    }
}

/* The worker of Weir that has a client which has left the lobby. */
static bool
has_request(int unused)
{
    (void) unused;
    return proxied >= 0 && sockets[proxied].unread > 0;
}

static void
worker_main(int unused)
{
    (void) unused;
    for (;;) {
        model_wait(has_request, 0);
        if (sockets[proxied].server >= 0 || sockets[proxied].closed)
            model_fail("a client that has left is not the worker's");
        sockets[proxied].unread--;
        sockets[proxied].answered++;
        counted++;
    }
}

/* The next Weir, when the first one was killed. */

static bool
is_needed(int unused)
{
    (void) unused;
    return weir_is_dead;
}

/* As crates/proxy/src/lobby/service/repair.rs. True: a message about the place may be lost. */
static bool
repair(Lobby *lobby, uint32_t place)
{
    uint64_t word = lobby_word(lobby, place);
    LobbyState state = lobby_state_of(word);
    int owner = (int) lobby_owner_of(word) - 1;

    if (state == LOBBY_FREE && listed[place] >= 0) {
        lobby_clear(lobby, place);
        listed[place] = -1;
        client_at[place] = -1;
    } else if (state == LOBBY_FREE) {
        return false;
    } else if (listed[place] < 0) {
        lobby_free(lobby, place, true);
    } else if (state == LOBBY_ARMED) {
        lobby_arm_anew(lobby, place);
    } else if (owner >= 0 && is_gone[owner]) {
        reclaim(lobby, owner, place);
    } else if (state == LOBBY_OWNED) {
        lobby_arm_anew(lobby, place);
        kick(owner); /* by the descriptor, which it gets again */
    } else if (owner < 0) {
        admit_again(lobby, place);
    } else {
        return true;
    }
    return false;
}

static void
take_returned(Lobby *lobby, uint32_t place)
{
    uint64_t word = lobby_word(lobby, place);
    uint32_t owner = lobby_owner_of(word);

    if (owner != 0 &&
        lobby_acknowledge(lobby, place, owner - 1, lobby_generation_of(word)))
        admit_again(lobby, place);
}

static void
successor_main(int unused)
{
    Lobby lobby;
    bool is_lost[PLACES];
    bool any_lost = false;

    (void) unused;
    model_wait(is_needed, 0);
    for (int place = 0; place < PLACES; place++)
        descriptors[WEIR][place] = listed[place];
    lobby = view_of_weir();
    for (int i = 0; i < scenario->backends; i++)
        if (is_gone[i])
            lobby_leave(&lobby, (uint32_t) i);
    for (uint32_t place = 0; place < PLACES; place++) {
        is_lost[place] = repair(&lobby, place);
        any_lost = any_lost || is_lost[place];
    }
    handle_mail(&lobby);
    if (any_lost) {
        (void) model_wait_for_some_time(has_mail, 0);
        handle_mail(&lobby);
        for (uint32_t place = 0; place < PLACES; place++)
            if (is_lost[place])
                take_returned(&lobby, place);
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
    memset(welcome, 0, sizeof(welcome));
    memset(may_go, 0, sizeof(may_go));
    memset(is_gone, 0, sizeof(is_gone));
    memset(client_at, -1, sizeof(client_at));
    memset(listed, -1, sizeof(listed));
    proxied = -1;
    weir_is_dead = false;
    unlisted = 0;
    counted = 0;
    mail_read = 0;
    mail_written = 0;
    recalled = false;
    wanted_elsewhere = false;
    if (!lobby_format(memory, lobby_size((uint32_t) scenario->backends, PLACES),
                      (uint32_t) scenario->backends, PLACES))
        model_fail("the lobby cannot be formatted");
    model_process("Weir", weir_main, 0, WEIR, scenario->dies);
    for (int i = 0; i < scenario->backends; i++)
        model_process(backends[i], backend_main, i, i, true);
    for (int i = 0; i < scenario->clients; i++)
        model_process(clients[i], client_main, i, -1, false);
    if (scenario->listens)
        model_process("worker", worker_main, 0, -1, false);
    if (scenario->dies)
        model_process("the next Weir", successor_main, 0, WEIR, false);
}

void
world_punch(long at, long len)
{
    memset((unsigned char *) memory + at, 0, (size_t) len);
}

/* A client that is not on the list has no descriptor any more. */
static void
end_unlisted(void)
{
    for (int client = 0; client < scenario->clients; client++) {
        bool is_listed = false;

        for (int place = 0; place < PLACES; place++)
            is_listed = is_listed || listed[place] == client;
        if (!is_listed && !sockets[client].closed) {
            sockets[client].closed = true;
            unlisted++;
        }
    }
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
    if (row == WEIR) {
        weir_is_dead = true;
        end_unlisted();
        return;
    }
    write_to_weir(LETTER_DEATH, row, 0, 0);
}

/* No process can go on. */
void
world_end(int kills)
{
    int closed = 0;
    uint64_t answered = 0;

    for (int client = 0; client < scenario->clients; client++) {
        closed += sockets[client].closed;
        answered += (uint64_t) sockets[client].answered;
        if (!sockets[client].closed && sockets[client].answered < scenario->requests)
            model_fail("client %d is forgotten", client);
    }
    if (recalled)
        model_fail("a backend does not return the guest that Weir has asked for");
    if (closed - unlisted > kills - weir_is_dead)
        model_fail("%d clients were closed for %d deaths", closed, kills);
    for (int i = 0; i < scenario->backends; i++)
        counted += lobby_backend(&(Lobby){.memory = (unsigned char *) memory,
                                          .backends = (uint32_t) scenario->backends},
                                 (uint32_t) i)->queries;
    if (counted != answered)
        model_fail("%d of %d answers were counted", (int) counted, (int) answered);
}
