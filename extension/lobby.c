/*
 * lobby.c: the file that the backends of a pool and Weir share, and the rules for its state words.
 *
 * The epoll loop is in attend.c, and the contents of the windows are in guest.c and names.c.
 *
 * Every access to a word that others write is one call of load, store or swap. test/model stops at
 * each of them, and at each system call, and tries what happens if another process goes on there,
 * or if this one is killed there.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "lobby.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef LOBBY_MODEL
extern void model_step(void);
#else
#define model_step() ((void) 0)
#endif

#define PAGE 4096

/* A state word: state in bits 0 to 7, RECALL, the owner + 1 in bits 16 to 31, the generation. */
#define STATE_MASK UINT64_C(0xff)
#define RECALL (UINT64_C(1) << 8)
#define OWNER_SHIFT 16
#define OWNER_MASK (UINT64_C(0xffff) << OWNER_SHIFT)
#define GENERATION_SHIFT 32

_Static_assert(sizeof(LobbyBackend) == LOBBY_BACKEND_LINE, "a backend has one line");
_Static_assert(sizeof(LobbyPlace) == LOBBY_LINE, "a place has one line");
_Static_assert(sizeof(LobbyHeader) <= PAGE, "the header has one page");
_Static_assert(LOBBY_BACKENDS_MAX < 0xffff, "an owner has 16 bits");

static uint64_t
load(const uint64_t *word)
{
    model_step();
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static void
store(uint64_t *word, uint64_t value)
{
    model_step();
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}

static bool
swap(uint64_t *word, uint64_t from, uint64_t to)
{
    model_step();
    return __atomic_compare_exchange_n(word, &from, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static uint32_t
load32(const uint32_t *word)
{
    model_step();
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static void
store32(uint32_t *word, uint32_t value)
{
    model_step();
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}

/* These are for words that no other process uses now. */
static void
fill(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}

static void
fill32(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}

static uint64_t
make_word(LobbyState state, uint32_t owner, uint32_t generation)
{
    return (uint64_t) state | (uint64_t) owner << OWNER_SHIFT |
           (uint64_t) generation << GENERATION_SHIFT;
}

/* A word's state; one that does not exist counts as TAKEN, which no backend touches. */
LobbyState
lobby_state_of(uint64_t word)
{
    uint64_t state = word & STATE_MASK;

    return state <= LOBBY_OWNED ? (LobbyState) state : LOBBY_TAKEN;
}

uint32_t
lobby_generation_of(uint64_t word)
{
    return (uint32_t) (word >> GENERATION_SHIFT);
}

uint32_t
lobby_owner_of(uint64_t word)
{
    return (uint32_t) ((word & OWNER_MASK) >> OWNER_SHIFT);
}

static size_t
lines_size(uint32_t backends, uint32_t places)
{
    size_t lines = (size_t) backends * LOBBY_BACKEND_LINE + (size_t) places * LOBBY_LINE;

    return (lines + PAGE - 1) / PAGE * PAGE;
}

size_t
lobby_size(uint32_t backends, uint32_t places)
{
    if (backends == 0 || backends > LOBBY_BACKENDS_MAX || places == 0 || places > LOBBY_PLACES_MAX)
        return 0;
    return PAGE + lines_size(backends, places) + (size_t) places * LOBBY_WINDOW;
}

bool
lobby_format(void *memory, size_t size, uint32_t backends, uint32_t places)
{
    LobbyHeader *header = memory;

    if (size == 0 || size != lobby_size(backends, places))
        return false;
    header->magic = LOBBY_MAGIC;
    header->layout = LOBBY_LAYOUT;
    header->backends = backends;
    header->places = places;
    header->window = LOBBY_WINDOW;
    return true;
}

const char *
lobby_open(Lobby *lobby, void *memory, size_t size, int set, int base, uint32_t *held,
           uint32_t room)
{
    LobbyHeader header;

    if (memory == NULL || size < PAGE)
        return "the file is too short";
    header = *(const LobbyHeader *) memory;
    if (header.magic != LOBBY_MAGIC)
        return "the file is no lobby";
    if (header.layout != LOBBY_LAYOUT || header.window != LOBBY_WINDOW)
        return "the file has another layout";
    if (lobby_size(header.backends, header.places) == 0 ||
        lobby_size(header.backends, header.places) != size)
        return "the file has another size than its header says";
    if (header.places > room)
        return "the file has too many places";
    lobby->memory = memory;
    lobby->backends = header.backends;
    lobby->places = header.places;
    lobby->set = set;
    lobby->base = base;
    lobby->held = held;
    lobby->file = -1;
    lobby->blank = -1;
    return NULL;
}

LobbyBackend *
lobby_backend(const Lobby *lobby, uint32_t backend)
{
    if (backend >= lobby->backends)
        return NULL;
    return (LobbyBackend *) (lobby->memory + PAGE + (size_t) backend * LOBBY_BACKEND_LINE);
}

LobbyPlace *
lobby_place(const Lobby *lobby, uint32_t place)
{
    if (place >= lobby->places)
        return NULL;
    return (LobbyPlace *) (lobby->memory + PAGE + (size_t) lobby->backends * LOBBY_BACKEND_LINE +
                           (size_t) place * LOBBY_LINE);
}

unsigned char *
lobby_window(const Lobby *lobby, uint32_t place)
{
    if (place >= lobby->places)
        return NULL;
    return lobby->memory + PAGE + lines_size(lobby->backends, lobby->places) +
           (size_t) place * LOBBY_WINDOW;
}

unsigned char *
lobby_words(const Lobby *lobby, uint32_t place)
{
    unsigned char *window = lobby_window(lobby, place);

    return window != NULL ? window + LOBBY_STATE : NULL;
}

void
lobby_note_question(Lobby *lobby)
{
    LobbyHeader *header = (LobbyHeader *) lobby->memory;

    store32(&header->asks, 1);
    if (load32(&header->silent) != 0)
        store32(&header->silent, 0);
}

/* A count that is lost to another backend, which counts at the same time, does no harm. */
void
lobby_note_silence(Lobby *lobby)
{
    uint32_t *silent = &((LobbyHeader *) lobby->memory)->silent;
    uint32_t before = load32(silent);

    if (before < LOBBY_SILENT_ASKS_MAX)
        store32(silent, before + 1);
}

bool
lobby_is_silent(const Lobby *lobby)
{
    const LobbyHeader *header = (const LobbyHeader *) lobby->memory;

    return load32(&header->silent) >=
           (load32(&header->asks) != 0 ? LOBBY_SILENT_ASKS_MAX : LOBBY_SILENT_MAX);
}

uint64_t
lobby_word(const Lobby *lobby, uint32_t place)
{
    const LobbyPlace *at = lobby_place(lobby, place);

    return at != NULL ? load(&at->word) : 0;
}

bool
lobby_holds(const Lobby *lobby, uint32_t place, uint32_t generation)
{
    return place < lobby->places && generation != 0 && lobby->held[place] == generation;
}

void
lobby_note_held(Lobby *lobby, uint32_t place, uint32_t generation)
{
    if (place < lobby->places)
        lobby->held[place] = generation;
}

/* The number of a place's socket, in every process. */
static int
number_of(const Lobby *lobby, uint32_t place)
{
    return lobby->base + (int) place;
}

/* Tells the set to wait for the guest. An event carries the generation and the place. */
static bool
set_entry(const Lobby *lobby, int operation, uint32_t place, uint32_t generation)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT};

    event.data.u64 = (uint64_t) generation << GENERATION_SHIFT | place;
    return epoll_ctl(lobby->set, operation, number_of(lobby, place), &event) == 0;
}

/*
 * Takes the guest that an event names. Only the generation of the state word counts. The event may
 * have an older generation of the same socket: a backend releases a guest, Weir takes it and admits
 * it again, and then the backend arms it with the old generation. If such an event were ignored,
 * the guest would never be served.
 */
LobbyClaim
lobby_claim(Lobby *lobby, uint32_t me, uint64_t event, uint32_t *place, uint32_t *generation)
{
    uint32_t number = (uint32_t) event;
    LobbyPlace *at = lobby_place(lobby, number);
    uint64_t word;

    if (at == NULL)
        return CLAIM_LOST;
    word = load(&at->word);
    if (lobby_state_of(word) != LOBBY_ARMED)
        return CLAIM_LOST;
    *place = number;
    *generation = lobby_generation_of(word);
    if (!swap(&at->word, word, make_word(LOBBY_OWNED, me + 1, *generation)))
        return CLAIM_LOST;
    return CLAIM_DONE;
}

/* OWNED(me) → `to`, or TAKEN(me) if Weir has asked for the guest. */
static LobbyRelease
give_up(Lobby *lobby, uint32_t me, uint32_t place, uint32_t generation, LobbyState to)
{
    LobbyPlace *at = lobby_place(lobby, place);
    uint64_t owned = make_word(LOBBY_OWNED, me + 1, generation);
    uint64_t taken = make_word(LOBBY_TAKEN, me + 1, generation);

    if (at == NULL)
        return RELEASE_BROKEN;
    if (to == LOBBY_ARMED && swap(&at->word, owned, make_word(LOBBY_ARMED, 0, generation)))
        return RELEASE_ARMED;
    if (to == LOBBY_TAKEN && swap(&at->word, owned, taken))
        return RELEASE_RETURNED;
    return swap(&at->word, owned | RECALL, taken) ? RELEASE_RETURNED : RELEASE_BROKEN;
}

/*
 * Puts the guest at rest. Its window must be written before. The state word is changed first, and
 * the set then: an event that came before the state would be lost.
 */
LobbyRelease
lobby_release(Lobby *lobby, uint32_t me, uint32_t place, uint32_t generation)
{
    LobbyRelease released = give_up(lobby, me, place, generation, LOBBY_ARMED);

    /* ENOENT: Weir has taken the guest meanwhile, and out of the set. */
    if (released == RELEASE_ARMED)
        (void) set_entry(lobby, EPOLL_CTL_MOD, place, generation);
    return released;
}

/* Gives the guest to Weir. */
LobbyRelease
lobby_return(Lobby *lobby, uint32_t me, uint32_t place, uint32_t generation)
{
    return give_up(lobby, me, place, generation, LOBBY_TAKEN);
}

void
lobby_enter(Lobby *lobby, uint32_t me, uint32_t process, uint32_t latch)
{
    LobbyBackend *line = lobby_backend(lobby, me);

    if (line == NULL)
        return;
    line->process = process;
    line->latch = latch;
    line->place = 0;
    store32(&line->activity, LOBBY_SERVING);
}

void
lobby_leave(const Lobby *lobby, uint32_t me)
{
    LobbyBackend *line = lobby_backend(lobby, me);

    if (line != NULL)
        store32(&line->activity, LOBBY_ABSENT);
}

static void
set_activity(const Lobby *lobby, uint32_t me, LobbyActivity activity)
{
    LobbyBackend *line = lobby_backend(lobby, me);

    if (line != NULL)
        store32(&line->activity, activity);
}

/*
 * A backend other than `me` with this activity; -1: none. A shared count would be wrong after the
 * death of a backend.
 */
static int
find_other(const Lobby *lobby, uint32_t me, LobbyActivity activity)
{
    uint32_t lines = load32(&((const LobbyHeader *) lobby->memory)->lines);

    for (uint32_t i = 0; i < lines && i < lobby->backends; i++)
        if (i != me && load32(&lobby_backend(lobby, i)->activity) == (uint32_t) activity)
            return (int) i;
    return -1;
}

void
lobby_sleep(Lobby *lobby, uint32_t me)
{
    set_activity(lobby, me, LOBBY_SLEEPING);
}

bool
lobby_prepare_leave(const Lobby *lobby, uint32_t me, uint32_t place, const void *channels,
                    uint32_t len)
{
    LobbyPlace *at = lobby_place(lobby, place);
    uint32_t used = at != NULL ? load32(&at->window_len) : 0;

    if (at == NULL || used > LOBBY_STATE || len > LOBBY_STATE - used)
        return false;
    memcpy(lobby_window(lobby, place) + used, channels, len);
    fill32(&at->channels_len, len);
    store32(&at->leaver, me + 1);
    return true;
}

void
lobby_idle_leaving(Lobby *lobby, uint32_t me)
{
    set_activity(lobby, me, LOBBY_LEAVING);
}

void
lobby_idle_pinned(Lobby *lobby, uint32_t me)
{
    set_activity(lobby, me, LOBBY_PINNED_IDLE);
}

void
lobby_work_pinned(Lobby *lobby, uint32_t me)
{
    set_activity(lobby, me, LOBBY_SERVING);
}

/*
 * Writes first and looks for sleepers then. lobby_linger does so as well, so that of two backends
 * that do this at the same time at least one sees the other.
 */
int
lobby_serve(Lobby *lobby, uint32_t me)
{
    set_activity(lobby, me, LOBBY_SERVING);
    if (find_other(lobby, me, LOBBY_SLEEPING) >= 0)
        return -1;
    return find_other(lobby, me, LOBBY_LINGERING);
}

bool
lobby_called(Lobby *lobby, uint32_t me)
{
    LobbyBackend *line = lobby_backend(lobby, me);

    if (line == NULL || load32(&line->called) == 0)
        return false;
    store32(&line->called, 0);
    return true;
}

LobbyLinger
lobby_linger(Lobby *lobby, uint32_t me, uint32_t place, bool holds)
{
    set_activity(lobby, me, holds ? LOBBY_HOLDING : LOBBY_LINGERING);
    if ((holds || find_other(lobby, me, LOBBY_SLEEPING) >= 0) &&
        (lobby_word(lobby, place) & RECALL) == 0)
        return LINGER_STAY;
    /* If it stayed LINGERING, others would wake it instead of one that does linger. */
    set_activity(lobby, me, LOBBY_SERVING);
    return LINGER_RELEASE;
}

size_t
lobby_view_size(void)
{
    return sizeof(Lobby);
}

bool
lobby_open_as_weir(Lobby *lobby, void *memory, uint32_t backends, uint32_t places)
{
    size_t size = lobby_size(backends, places);

    return lobby_open(lobby, memory, size, -1, -1, NULL, places) == NULL &&
           lobby->backends == backends && lobby->places == places;
}

void
lobby_use(Lobby *lobby, int set, int base, int file, int blank)
{
    lobby->set = set;
    lobby->base = base;
    lobby->file = file;
    lobby->blank = blank;
}

bool
lobby_put(const Lobby *lobby, uint32_t place, int socket)
{
    return place < lobby->places && dup3(socket, number_of(lobby, place), O_CLOEXEC) >= 0;
}

/* It cannot fail for two open descriptors. */
void
lobby_clear(const Lobby *lobby, uint32_t place)
{
    (void) lobby_put(lobby, place, lobby->blank);
}

void
lobby_clear_line(const Lobby *lobby, uint32_t backend)
{
    uint64_t *words = (uint64_t *) lobby_backend(lobby, backend);

    model_step();
    for (size_t i = 0; words != NULL && i < LOBBY_BACKEND_LINE / sizeof(*words); i++)
        fill(&words[i], 0);
}

void
lobby_use_lines(const Lobby *lobby, uint32_t lines)
{
    store32(&((LobbyHeader *) lobby->memory)->lines, lines);
}

void
lobby_set_gives_up(const Lobby *lobby, bool gives_up)
{
    store32(&((LobbyHeader *) lobby->memory)->gives_up, gives_up);
}

uint32_t
lobby_take(const Lobby *lobby, uint32_t place, uint64_t told, uint32_t process)
{
    LobbyPlace *at = lobby_place(lobby, place);
    uint64_t word;
    uint32_t generation;

    if (at == NULL)
        return 0;
    word = load(&at->word);
    if (lobby_state_of(word) != LOBBY_FREE)
        return 0;
    generation = lobby_generation_of(word) + 1;
    if (generation == 0)
        generation = 1;
    if (!swap(&at->word, word, make_word(LOBBY_TAKEN, 0, generation)))
        return 0;
    /* Nothing of the guest before may be left. */
    fill(&at->request_us, 0);
    fill(&at->transaction_us, 0);
    fill(&at->transactions, 0);
    fill(&at->told, told);
    fill32(&at->window_len, 0);
    fill32(&at->stray, 0);
    fill32(&at->asks, 0);
    fill32(&at->process, process);
    fill32(&at->leaver, 0);
    fill32(&at->channels_len, 0);
    return generation;
}

bool
lobby_has_room_for(size_t settings_len)
{
    return settings_len <= LOBBY_STATE - sizeof(LobbyWindowHeader);
}

bool
lobby_write_login(const Lobby *lobby, uint32_t place, const void *settings, size_t len)
{
    LobbyPlace *at = lobby_place(lobby, place);
    LobbyWindowHeader header = {.settings_len = (uint32_t) len};
    unsigned char *window = lobby_window(lobby, place);

    if (at == NULL || !lobby_has_room_for(len))
        return false;
    if (len > 0) {
        memcpy(window, &header, sizeof(header));
        memcpy(window + sizeof(header), settings, len);
    }
    fill32(&at->window_len, len > 0 ? (uint32_t) (sizeof(header) + len) : 0);
    return true;
}

/* The state comes first, and then the set: an event that came before the state would be lost. */
bool
lobby_admit(const Lobby *lobby, uint32_t place)
{
    LobbyPlace *at = lobby_place(lobby, place);
    uint64_t word = lobby_word(lobby, place);
    uint32_t generation = lobby_generation_of(word);
    uint64_t armed = make_word(LOBBY_ARMED, 0, generation);

    if (at == NULL || word != make_word(LOBBY_TAKEN, 0, generation) ||
        !swap(&at->word, word, armed))
        return false;
    if (set_entry(lobby, EPOLL_CTL_ADD, place, generation))
        return true;
    /* A socket that a backend has returned is in the set still. */
    if (errno == EEXIST && set_entry(lobby, EPOLL_CTL_MOD, place, generation))
        return true;
    (void) swap(&at->word, armed, word);
    return false;
}

/* Weir takes a guest's socket out of the set before it closes it, or numbers it otherwise. */
static void
remove_entry(const Lobby *lobby, uint32_t place)
{
    struct epoll_event unused = {0};

    (void) epoll_ctl(lobby->set, EPOLL_CTL_DEL, number_of(lobby, place), &unused);
}

/* The window becomes zeros, and takes no memory. */
static void
punch_window(const Lobby *lobby, uint32_t place)
{
    off_t at = lobby_window(lobby, place) - lobby->memory;

    (void) fallocate(lobby->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, LOBBY_WINDOW);
}

bool
lobby_vacate(const Lobby *lobby, uint32_t place, LobbyParting parting)
{
    LobbyPlace *at = lobby_place(lobby, place);
    uint64_t word = lobby_word(lobby, place);
    uint32_t generation = lobby_generation_of(word);

    if (at == NULL || word != make_word(LOBBY_TAKEN, 0, generation))
        return false;
    remove_entry(lobby, place);
    /* Backends have copies of the descriptor. */
    if (parting == PARTING_ENDS)
        (void) shutdown(number_of(lobby, place), SHUT_RDWR);
    lobby_clear(lobby, place);
    punch_window(lobby, place);
    return swap(&at->word, word, make_word(LOBBY_FREE, 0, generation));
}

bool
lobby_untake(const Lobby *lobby, uint32_t place)
{
    if (lobby_place(lobby, place) == NULL)
        return false;
    return lobby_state_of(lobby_word(lobby, place)) == LOBBY_FREE ||
           lobby_vacate(lobby, place, PARTING_ENDS);
}

LobbyRecall
lobby_recall(const Lobby *lobby, uint32_t place)
{
    LobbyPlace *at = lobby_place(lobby, place);

    if (at == NULL)
        return RECALL_NONE;
    for (;;) {
        uint64_t word = load(&at->word);

        switch (lobby_state_of(word)) {
            case LOBBY_FREE:
            case LOBBY_TAKEN:
                return RECALL_NONE;
            case LOBBY_ARMED:
                if (!swap(&at->word, word, make_word(LOBBY_TAKEN, 0, lobby_generation_of(word))))
                    break;
                remove_entry(lobby, place);
                return RECALL_TAKEN;
            case LOBBY_OWNED:
                if (swap(&at->word, word, word | RECALL))
                    return RECALL_ASKED;
                break;
        }
    }
}

/* Of the generation of the message: an old message must not give another guest back. */
bool
lobby_acknowledge(const Lobby *lobby, uint32_t place, uint32_t backend, uint32_t generation)
{
    LobbyPlace *at = lobby_place(lobby, place);

    return at != NULL && backend < lobby->backends &&
           swap(&at->word, make_word(LOBBY_TAKEN, backend + 1, generation),
                make_word(LOBBY_TAKEN, 0, generation));
}

bool
lobby_is_owner(const Lobby *lobby, uint32_t place, uint32_t backend, uint32_t generation)
{
    uint64_t word = lobby_word(lobby, place);

    return lobby_state_of(word) == LOBBY_OWNED && lobby_owner_of(word) == backend + 1 &&
           lobby_generation_of(word) == generation;
}

LobbyLoss
lobby_reclaim(const Lobby *lobby, uint32_t backend, uint32_t place)
{
    LobbyPlace *at = lobby_place(lobby, place);
    uint64_t word = lobby_word(lobby, place);
    bool owned = lobby_state_of(word) == LOBBY_OWNED;

    if (at == NULL || backend >= lobby->backends || lobby_owner_of(word) != backend + 1)
        return LOSS_NONE;
    if (!swap(&at->word, word, make_word(LOBBY_TAKEN, 0, lobby_generation_of(word))))
        return LOSS_NONE;
    /* One that lingered had saved the guest's state, and had read nothing more. */
    return owned && !lobby_lingers(lobby, backend) ? LOSS_CLOSE : LOSS_RETURNED;
}

void
lobby_arm_again(const Lobby *lobby, uint32_t backend)
{
    lobby_leave(lobby, backend);
    for (uint32_t place = 0; place < lobby->places; place++) {
        uint64_t word = lobby_word(lobby, place);

        /* A guest that is claimed meanwhile is armed too early, and its event will be lost. */
        if (lobby_state_of(word) == LOBBY_ARMED)
            (void) set_entry(lobby, EPOLL_CTL_MOD, place, lobby_generation_of(word));
    }
}

void
lobby_call(const Lobby *lobby, uint32_t backend)
{
    LobbyBackend *line = lobby_backend(lobby, backend);

    if (line != NULL)
        store32(&line->called, 1);
}

bool
lobby_leaver(const Lobby *lobby, uint32_t place, uint32_t *backend)
{
    const LobbyPlace *at = lobby_place(lobby, place);
    uint32_t leaver = at != NULL ? load32(&at->leaver) : 0;

    if (leaver == 0 || lobby_state_of(lobby_word(lobby, place)) != LOBBY_TAKEN)
        return false;
    *backend = leaver - 1;
    return true;
}

void
lobby_lengths(const Lobby *lobby, uint32_t place, uint32_t *state, uint32_t *channels)
{
    const LobbyPlace *at = lobby_place(lobby, place);

    *state = at != NULL ? load32(&at->window_len) : 0;
    *channels = at != NULL ? load32(&at->channels_len) : 0;
    if (*state > LOBBY_STATE)
        *state = LOBBY_STATE;
    if (*channels > LOBBY_STATE - *state)
        *channels = LOBBY_STATE - *state;
}

bool
lobby_read_window(const Lobby *lobby, uint32_t place, uint32_t from, void *into, uint32_t len)
{
    const unsigned char *window = lobby_window(lobby, place);

    if (window == NULL || from > LOBBY_STATE || len > LOBBY_STATE - from)
        return false;
    memcpy(into, window + from, len);
    return true;
}

void
lobby_arm_anew(const Lobby *lobby, uint32_t place)
{
    uint32_t generation = lobby_generation_of(lobby_word(lobby, place));

    if (place < lobby->places && !set_entry(lobby, EPOLL_CTL_ADD, place, generation))
        (void) set_entry(lobby, EPOLL_CTL_MOD, place, generation);
}

void
lobby_free(const Lobby *lobby, uint32_t place, bool has_number)
{
    LobbyPlace *at = lobby_place(lobby, place);
    uint64_t word, taken;

    if (at == NULL)
        return;
    do {
        word = load(&at->word);
        taken = make_word(LOBBY_TAKEN, 0, lobby_generation_of(word));
    } while (!swap(&at->word, word, taken));
    if (has_number)
    {
        (void) lobby_vacate(lobby, place, PARTING_ENDS);
        return;
    }
    punch_window(lobby, place);
    (void) swap(&at->word, taken, make_word(LOBBY_FREE, 0, lobby_generation_of(taken)));
}

bool
lobby_strand(const Lobby *lobby, uint32_t place)
{
    LobbyPlace *at = lobby_place(lobby, place);
    uint64_t word = lobby_word(lobby, place);
    LobbyState state = lobby_state_of(word);

    return at != NULL && (state == LOBBY_ARMED || state == LOBBY_TAKEN) &&
           swap(&at->word, word, make_word(LOBBY_TAKEN, 0, lobby_generation_of(word)));
}

LobbyActivity
lobby_activity(const Lobby *lobby, uint32_t backend)
{
    const LobbyBackend *line = lobby_backend(lobby, backend);

    return line != NULL ? (LobbyActivity) load32(&line->activity) : LOBBY_ABSENT;
}

bool
lobby_lingers(const Lobby *lobby, uint32_t backend)
{
    LobbyActivity activity = lobby_activity(lobby, backend);

    return activity == LOBBY_LINGERING || activity == LOBBY_HOLDING;
}

bool
lobby_has_come(const Lobby *lobby, uint32_t backend)
{
    const LobbyBackend *line = lobby_backend(lobby, backend);

    return line != NULL && load32(&line->process) != 0;
}

bool
lobby_is_too_large(const Lobby *lobby, uint32_t backend)
{
    const LobbyBackend *line = lobby_backend(lobby, backend);

    return line != NULL && load32(&line->too_large) != 0;
}

uint64_t
lobby_transaction(const Lobby *lobby, uint32_t backend)
{
    const LobbyBackend *line = lobby_backend(lobby, backend);

    return line != NULL ? load(&line->transaction) : 0;
}

void
lobby_sums(const Lobby *lobby, uint32_t backend, uint64_t *queries, uint64_t *query_us,
           uint64_t *transaction_us)
{
    const LobbyBackend *line = lobby_backend(lobby, backend);

    *queries = line != NULL ? load(&line->queries) : 0;
    *query_us = line != NULL ? load(&line->query_us) : 0;
    *transaction_us = line != NULL ? load(&line->transaction_us) : 0;
}

void
lobby_kept(const Lobby *lobby, uint32_t *all, uint32_t *keeping, uint32_t *large)
{
    uint32_t lines = load32(&((const LobbyHeader *) lobby->memory)->lines);

    *all = *keeping = *large = 0;
    for (uint32_t i = 0; i < lines && i < lobby->backends; i++) {
        LobbyActivity activity = lobby_activity(lobby, i);

        *all += activity != LOBBY_ABSENT;
        *keeping += activity == LOBBY_PINNED_IDLE;
        *large += activity == LOBBY_PINNED_IDLE && lobby_is_too_large(lobby, i);
    }
}

/*
 * The number is that of this guest's transaction only if the guest had this backend before and
 * after it was read.
 */
bool
lobby_serving(const Lobby *lobby, uint32_t place, uint32_t *backend, uint64_t *transaction,
              bool *is_pinned_idle)
{
    uint64_t word = lobby_word(lobby, place);
    uint32_t owner = lobby_owner_of(word);
    const LobbyBackend *line = owner != 0 ? lobby_backend(lobby, owner - 1) : NULL;

    if (line == NULL || lobby_state_of(word) != LOBBY_OWNED)
        return false;
    *backend = owner - 1;
    *transaction = load(&line->transaction);
    *is_pinned_idle = lobby_activity(lobby, owner - 1) == LOBBY_PINNED_IDLE;
    return load32(&line->place) == place + 1 && lobby_word(lobby, place) == word;
}

bool
lobby_is_idle(const Lobby *lobby, uint32_t place)
{
    uint64_t word = lobby_word(lobby, place);
    uint32_t backend;
    uint64_t transaction;
    bool is_pinned_idle;

    if (lobby_state_of(word) != LOBBY_OWNED || lobby_owner_of(word) == 0)
        return true;
    if (lobby_lingers(lobby, lobby_owner_of(word) - 1))
        return true;
    return lobby_serving(lobby, place, &backend, &transaction, &is_pinned_idle) && is_pinned_idle;
}

void
lobby_times(const Lobby *lobby, uint32_t place, uint64_t *request_us, uint64_t *transaction_us)
{
    const LobbyPlace *at = lobby_place(lobby, place);

    *request_us = at != NULL ? load(&at->request_us) : 0;
    *transaction_us = at != NULL ? load(&at->transaction_us) : 0;
}

uint64_t
lobby_transactions(const Lobby *lobby, uint32_t place)
{
    const LobbyPlace *at = lobby_place(lobby, place);

    return at != NULL ? load(&at->transactions) : 0;
}

void
lobby_order(const Lobby *lobby, uint32_t backend, LobbyOrder order, uint64_t transaction)
{
    LobbyBackend *line = lobby_backend(lobby, backend);

    if (line == NULL)
        return;
    switch (order) {
        case LOBBY_CANCEL:
            store(&line->cancel, transaction);
            break;
        case LOBBY_END:
            store(&line->end, transaction);
            break;
        case LOBBY_ASK:
            store(&line->answer, 0);
            store(&line->ask, transaction);
            break;
    }
}

LobbyDoing
lobby_answer(const Lobby *lobby, uint32_t backend, uint64_t *since_us)
{
    const LobbyBackend *line = lobby_backend(lobby, backend);
    uint64_t answer = line != NULL ? load(&line->answer) : 0;

    *since_us = answer >> 2;
    return (LobbyDoing) (answer & 3);
}

void
lobby_leave_words(const Lobby *lobby, uint32_t place, const void *body, size_t len)
{
    unsigned char *words = lobby_words(lobby, place);
    bool fits = len <= LOBBY_WORDS - sizeof(uint32_t);

    if (words == NULL)
        return;
    if (fits && len > 0)
        memcpy(words + sizeof(uint32_t), body, len);
    store32((uint32_t *) words, fits ? (uint32_t) len : 0);
}
