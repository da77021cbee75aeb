/*
 * lobby.c: ../../lobby.c on files of random bytes, which change between its calls as if another
 * process wrote them. It is built with AddressSanitizer. Each file is a block of its own, so an
 * access beyond it is found.
 *
 *   fuzz/run lobby SECONDS [SEED]
 */
#include "../../lobby.h"

#include "fuzz.h"

#define BACKENDS_TRIED 4
#define PLACES_TRIED 3
#define CALLS 60
#define PAGE 4096

static unsigned char *file;
static size_t file_len;
static uint32_t held[PLACES_TRIED];
static unsigned char window[LOBBY_WINDOW];

static void
fail(const char *what)
{
    printf("lobby: seed %llu: %s\n", (unsigned long long) seed, what);
    exit(1);
}

/* Mostly one that exists, or the next; sometimes any. */
static uint32_t
draw_number(uint32_t count)
{
    switch (draw(20)) {
        case 0:
            return (uint32_t) draw_word();
        case 1:
            return UINT32_MAX - draw(3);
        default:
            return draw(count + 1);
    }
}

/* Of all kinds that a place's word may have. */
static uint64_t
draw_place_word(void)
{
    if (draw(8) == 0)
        return draw_word();
    return draw(5) | (uint64_t) draw(2) << 8 | (uint64_t) draw(BACKENDS_TRIED + 2) << 16 |
           (uint64_t) draw(3) << 32;
}

static void
make_file(uint32_t backends, uint32_t places)
{
    file_len = lobby_size(backends, places);
    file = calloc(1, file_len);
    if (file == NULL)
        abort();
    check(lobby_format(file, file_len, backends, places));
    memset(held, 0, sizeof(held));
}

/* A file whose header or size is wrong is not opened. */
static bool
open_file(Lobby *lobby)
{
    LobbyHeader *header = (LobbyHeader *) file;
    size_t told = file_len;
    bool is_wrong = true;
    bool opened;

    switch (draw(16)) {
        case 0:
            header->magic ^= 1 + draw(255);
            break;
        case 1:
            header->layout += 1 + draw(5);
            break;
        case 2:
            header->backends = (uint32_t) draw_word() | LOBBY_BACKENDS_MAX << 1;
            break;
        case 3:
            header->places = (uint32_t) draw_word() | LOBBY_PLACES_MAX << 1;
            break;
        case 4:
            header->places += 1 + draw(3);
            break;
        case 5:
            header->window ^= 1 + draw(1 << 20);
            break;
        case 6:
            told = draw((uint32_t) file_len);
            break;
        case 7:
            header->places = header->backends = 0;
            break;
        default:
            is_wrong = false;
            break;
    }
    opened = lobby_open(lobby, file, told, -1, 1000, held, PLACES_TRIED) == NULL;
    check(opened == !is_wrong);
    if (opened)
        lobby_use(lobby, -1, 1000, -1, -1);
    return opened;
}

/* Another process writes. */
static void
disturb(const Lobby *lobby)
{
    uint32_t place = draw(lobby->places);
    LobbyBackend *line = lobby_backend(lobby, draw(lobby->backends));

    switch (draw(6)) {
        case 0:
            file[draw(PAGE)] = (unsigned char) draw_word();
            break;
        case 1:
            file[PAGE + draw((uint32_t) (file_len - PAGE) % (64 * PAGE))] =
                (unsigned char) draw_word();
            break;
        case 2:
            line->activity = draw(4) == 0 ? (uint32_t) draw_word() : draw(7);
            break;
        case 3:
            ((LobbyHeader *) file)->lines = draw_number(lobby->backends);
            break;
        default:
            lobby_place(lobby, place)->word = draw_place_word();
            break;
    }
}

static void
check_inside(const Lobby *lobby, const void *at, size_t len)
{
    const unsigned char *from = at;

    check(from >= lobby->memory + PAGE && from + len <= lobby->memory + file_len);
}

static void
call_backends_side(Lobby *lobby, uint32_t me, uint32_t place, uint32_t generation)
{
    uint32_t claimed_place;
    uint32_t claimed_generation;
    int woken;

    switch (draw(8)) {
        case 0:
            if (lobby_claim(lobby, me, draw(2) == 0 ? place : draw_word(), &claimed_place,
                            &claimed_generation) == CLAIM_DONE)
                check(claimed_place < lobby->places);
            break;
        case 1:
            (void) lobby_release(lobby, me, place, generation);
            break;
        case 2:
            (void) lobby_return(lobby, me, place, generation);
            break;
        case 3:
            lobby_enter(lobby, me, draw(3), draw(3));
            break;
        case 4:
            woken = lobby_serve(lobby, me);
            check(woken >= -1 && woken < (int) lobby->backends);
            check(woken < 0 || (uint32_t) woken != me);
            break;
        case 5:
            (void) lobby_linger(lobby, me, place, draw(2) == 0);
            break;
        case 6:
            lobby_sleep(lobby, me);
            (void) lobby_called(lobby, me);
            (void) lobby_prepare_leave(lobby, me, place, window, draw(2 * LOBBY_STATE));
            break;
        default:
            lobby_idle_pinned(lobby, me);
            lobby_work_pinned(lobby, me);
            lobby_leave(lobby, me);
            break;
    }
}

static void
call_weirs_side(Lobby *lobby, uint32_t backend, uint32_t place)
{
    uint32_t one;
    uint32_t other;

    switch (draw(12)) {
        case 0:
            if (lobby_take(lobby, place, draw_word(), draw(3)) == 0)
                (void) lobby_untake(lobby, place);
            break;
        case 1:
            check(!lobby_write_login(lobby, place, window, LOBBY_STATE - draw(12)));
            check(lobby_write_login(lobby, place, window, LOBBY_STATE - 12) ==
                  (place < lobby->places));
            break;
        case 2:
            (void) lobby_admit(lobby, place);
            break;
        case 3:
            (void) lobby_vacate(lobby, place, draw(2) == 0 ? PARTING_ENDS : PARTING_GOES_ON);
            break;
        case 4:
            (void) lobby_recall(lobby, place);
            break;
        case 5:
            (void) lobby_acknowledge(lobby, place, backend, draw(3));
            (void) lobby_is_owner(lobby, place, backend, draw(3));
            break;
        case 6:
            (void) lobby_reclaim(lobby, backend, place);
            lobby_arm_again(lobby, backend);
            break;
        case 7:
            if (lobby_leaver(lobby, place, &one))
                check(place < lobby->places);
            lobby_lengths(lobby, place, &one, &other);
            check(one + other <= LOBBY_STATE);
            check(lobby_read_window(lobby, place, one, window, other) == (place < lobby->places));
            check(!lobby_read_window(lobby, place, LOBBY_STATE - draw(4), window, 4));
            break;
        case 8:
            lobby_arm_anew(lobby, place);
            lobby_free(lobby, place, draw(2) == 0);
            break;
        case 9:
            check(!lobby_strand(lobby, place) || place < lobby->places);
            break;
        case 10:
            lobby_clear_line(lobby, backend);
            lobby_use_lines(lobby, draw_number(lobby->backends));
            lobby_set_gives_up(lobby, draw(2) == 0);
            break;
        default:
            lobby_call(lobby, backend);
            lobby_leave_words(lobby, place, window, draw(2 * LOBBY_WORDS));
            break;
    }
}

/* What Weir asks about backends and guests. */
static void
ask(Lobby *lobby, uint32_t backend, uint32_t place)
{
    uint32_t counts[3];
    uint64_t sums[3];
    bool is_pinned_idle;

    lobby_kept(lobby, &counts[0], &counts[1], &counts[2]);
    check(counts[0] <= lobby->backends && counts[1] <= counts[0] && counts[2] <= counts[1]);
    if (lobby_serving(lobby, place, &counts[0], &sums[0], &is_pinned_idle))
        check(place < lobby->places && counts[0] < lobby->backends);
    lobby_order(lobby, backend, (LobbyOrder) draw(3), draw_word());
    check(lobby_answer(lobby, backend, &sums[0]) <= LOBBY_IDLES);
    lobby_sums(lobby, backend, &sums[0], &sums[1], &sums[2]);
    lobby_times(lobby, place, &sums[0], &sums[1]);
    (void) lobby_is_idle(lobby, place);
    (void) lobby_transactions(lobby, place);
    (void) lobby_transaction(lobby, backend);
    (void) lobby_has_come(lobby, backend);
    (void) lobby_is_too_large(lobby, backend);
    (void) lobby_lingers(lobby, backend);
}

static void
look(Lobby *lobby, uint32_t backend, uint32_t place)
{
    check((lobby_backend(lobby, backend) != NULL) == (backend < lobby->backends));
    check((lobby_place(lobby, place) != NULL) == (place < lobby->places));
    if (backend < lobby->backends)
        check_inside(lobby, lobby_backend(lobby, backend), sizeof(LobbyBackend));
    if (place < lobby->places) {
        check_inside(lobby, lobby_place(lobby, place), sizeof(LobbyPlace));
        check_inside(lobby, lobby_window(lobby, place), LOBBY_WINDOW);
        check_inside(lobby, lobby_words(lobby, place), LOBBY_WORDS);
    }
    check(lobby_state_of(draw_word()) <= LOBBY_OWNED);
    lobby_note_held(lobby, place, draw(3));
    (void) lobby_holds(lobby, place, draw(3));
    for (int holds = 0; holds < LOBBY_SILENT_ASKS_MAX; holds++)
        lobby_note_silence(lobby);
    check(lobby_is_silent(lobby));
    lobby_note_question(lobby);
    check(!lobby_is_silent(lobby));
}

static void
try_one(void)
{
    Lobby lobby;
    uint32_t backends = 1 + draw(BACKENDS_TRIED);
    uint32_t places = 1 + draw(PLACES_TRIED);

    make_file(backends, places);
    if (open_file(&lobby)) {
        for (int i = 0; i < CALLS; i++) {
            uint32_t backend = draw_number(backends);
            uint32_t place = draw_number(places);

            disturb(&lobby);
            switch (draw(4)) {
                case 0:
                    call_backends_side(&lobby, backend, place, draw(3));
                    break;
                case 1:
                    call_weirs_side(&lobby, backend, place);
                    break;
                case 2:
                    ask(&lobby, backend, place);
                    break;
                default:
                    look(&lobby, backend, place);
                    break;
            }
            check(lobby.backends == backends && lobby.places == places);
        }
    }
    free(file);
}

int
main(int count, char **words)
{
    uint64_t done = try_seeds(count, words, 64, try_one);

    printf("lobby: %llu files\n", (unsigned long long) done);
    return 0;
}
