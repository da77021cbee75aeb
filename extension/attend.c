/*
 * attend.c: serves the guests of a lobby, one transaction after the other.
 *
 * ReadyForQuery ends in a flush, which is the last thing before core reads the next message. If no
 * transaction is open then, this file saves the guest's state, puts it at rest, and waits for
 * another. Core gets the guest by the number of its socket: MyProcPort->sock. Within a transaction
 * core reads and waits as in any backend.
 *
 *        ┌──────────── a transaction is over, nothing pins ───────────┐
 *        ▼                                                            │
 *   no guest ── event ── claim ── peek ── restore ──► guest attached ─┘
 *     │  ▲                          │
 *     │  └───────── returned ◄──────┘
 *     └── LEAVE ──► an ordinary backend, until ENLIST
 *
 * A guest that listens leaves the lobby with its backend (depart.c). A backend may linger with a
 * guest (hold.c). Without one, core has the backend's own connection, and tells Weir its errors.
 */
#include "attend.h"
#include "compat.h"

#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "peek.h"

#include "access/xact.h"
#include "libpq/libpq-be.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/timeout.h"

typedef enum Phase {
    PHASE_OFF,      /* no ticket, or no lobby */
    PHASE_ORDINARY, /* an ordinary backend of Weir's */
    PHASE_WAITING,  /* in the lobby, without a guest */
    PHASE_LEAVING,  /* likewise; waits until Weir has the guest that it has returned */
    PHASE_CLEARING, /* core runs messages of ours, before the guest's first one */
    PHASE_SERVING
} Phase;

/*
 * A signal handler reads these three. While a guest is attached, it reads `lobby` and `place`, too.
 * They change only while none is, and `set_phase` keeps the order of the writes.
 */
static volatile sig_atomic_t phase = PHASE_OFF;
static LobbyBackend *volatile line;
static volatile sig_atomic_t idles = false; /* the line says that the pinned guest runs nothing */

static Lobby lobby;
static uint32 me;

/* The attached guest's. */
static uint32 place;
static uint32 generation;
static bool owned = false; /* the place's state word says so */
static bool pinned;
static bool departs; /* pinned by nothing but its channels: it leaves with this backend */
/* A ReadyForQuery with status I has been written, not flushed. Core flushes each notice, too. */
static bool at_rest = false;

/* The guest sends ahead (meter.c). */
static bool metered = false;
/* A ReadyForQuery within a transaction of such a guest has been written, not flushed. */
static bool goes_on = false;
/* Core reads from the pair of sockets, until it has read all or sends the first reply. */
static bool fed = false;

static void
set_phase(Phase next)
{
    pg_compiler_barrier();
    phase = next;
    pg_compiler_barrier();
}

/* A guest that runs nothing stays connected when this backend ends. */
static void
leave_at_exit(int code, Datum unused)
{
    if (!is_own_process() || phase == PHASE_OFF || phase == PHASE_LEAVING)
        return;
    if (phase == PHASE_WAITING && owned &&
        lobby_release(&lobby, me, place, generation) == RELEASE_RETURNED)
        control_returned(place, generation, REASON_RECALLED);
    lobby_leave(&lobby, me);
}

/* Connects to Weir, and enters its lobby at the flush that follows. */
static bool
begin(void *unused)
{
    static bool registered = false;

    if (!unnamed_open())
        return false;
    /* The signals come before a message of Weir's can raise one. */
    if (!orders_install() || !attach_connect(&lobby, &me)) {
        unnamed_close();
        return false;
    }
    (void) guest_note_parameter(NULL); /* perhaps they have changed since it was here last */
    line = lobby_backend(&lobby, me);
    attach_note_own();
    if (!registered)
        on_proc_exit(leave_at_exit, 0);
    registered = true;
    set_phase(PHASE_ORDINARY);
    return true;
}

/* Core reads the guest's next requests from the pair, if they are to be counted. */
static void
feed(bool is_within)
{
    int guest = lobby.base + (int) place;

    if ((is_within && compat_has_input()) || !meter_feed(guest, place, generation, is_within))
        return;
    metered = true;
    fed = true;
    attach_use(unnamed_socket());
}

/* Core has read all that it was fed. Its next message goes to the guest, of whatever length. */
static void
end_feed(void)
{
    fed = false;
    unnamed_note_read();
    if (phase == PHASE_SERVING)
        attach_use(lobby.base + (int) place);
}

static int
flush(void)
{
    bool was_fed = fed;
    int result;

    if (guard_is_up())
        return 0;
    if (was_fed)
        attach_use(lobby.base + (int) place);
    result = rows_end() == 0 ? report_flush() : EOF;
    if (was_fed)
        attach_use(unnamed_socket());
    if (goes_on) {
        goes_on = false;
        feed(true);
    }
    if (at_rest) {
        at_rest = false;
        attend_flushed();
    }
    return result;
}

/* It comes to the lobby with this ticket, its first or another one, at the flush that follows. */
void
attend_with(const char *ticket)
{
    if (phase != PHASE_OFF || ticket == NULL || ticket[0] == '\0')
        return;
    control_note_ticket(ticket);
    report_set_flush(flush);
}

bool
attend_has_guest(void)
{
    return phase == PHASE_SERVING || phase == PHASE_CLEARING;
}

LobbyBackend *
attend_line(void)
{
    return line;
}

/* Signal handlers call this one and the next. */
uint64
attend_transaction(void)
{
    return phase == PHASE_SERVING ? line->transaction : 0;
}

bool
attend_close_others(void)
{
    if (!attend_has_guest())
        return false;
    attach_close(&lobby, 0, place);
    attach_close(&lobby, place + 1, lobby.places);
    return idles;
}

/* The lobby, and the place of the guest that is served; NULL: there is none. */
const Lobby *
attend_lobby(uint32 *at)
{
    *at = place;
    return phase == PHASE_SERVING ? &lobby : NULL;
}

/* A signal handler may look at the number at any time. */
static void
next_transaction(void)
{
    __atomic_store_n(&line->transaction, line->transaction + 1, __ATOMIC_SEQ_CST);
}

/* Rows have no effect here but those of `attend_note_work` and `attend_note_put`. */
bool
attend_passes_rows(void)
{
    if (unlikely(fed))
        end_feed(); /* a portal that was bound before: its rows are the first reply */
    return phase == PHASE_SERVING && !idles && !at_rest;
}

/* Core runs something, or replies. Called often. */
void
attend_note_work(void)
{
    if (likely(!idles))
        return;
    idles = false;
    tally_resume(lobby_place(&lobby, place));
    lobby_work_pinned(&lobby, me);
}

static bool
capture(void *unused)
{
    LobbyPlace *at = lobby_place(&lobby, place);
    bool is_known = !unnamed_is_doubtful(); /* the capture settles it */
    Numbers numbers;
    Bind awaited;
    Tie tie = guest_capture(&numbers);

    departs = tie == TIE_CHANNELS && depart_may(&lobby, at);
    pinned = tie == TIE_OTHER;
    hold_note(&lobby, numbers, &at->asks);
    awaited = names_await_bind(is_known);
    hold_note_bind(awaited == BIND_LIKELY);
    if (awaited == BIND_NEEDED)
        pinned = true;
    if (!guest_save(lobby_window(&lobby, place), &at->window_len))
        pinned = true;
    line->too_large = guest_is_too_large();
    departs = departs && !pinned;
    pinned = pinned || tie != TIE_NONE;
    guest_tell(&at->told);
    return true;
}

/* Looks at a message before it goes out; ends_transaction: ReadyForQuery with status I. */
Put
attend_put(char type, bool ends_transaction)
{
    if (phase == PHASE_OFF)
        return PUT_PASS;
    /* Some messages are no replies: core may put them before it reads. */
    if (unlikely(fed) && ((type != 'A' && type != 'N' && type != 'S') || unnamed_was_read()))
        end_feed();
    if (phase == PHASE_CLEARING) {
        if (type == 'S')
            (void) guest_note_parameter(NULL);
        at_rest = at_rest || ends_transaction;
        return PUT_SWALLOW;
    }
    /* Notices that no guest has caused. An error goes to Weir. */
    if ((phase == PHASE_WAITING || phase == PHASE_LEAVING) && type == 'N')
        return PUT_SWALLOW;
    if (type != 'A')
        attend_note_work();
    names_note_reply(type);
    if (phase == PHASE_SERVING)
        tally_note(line, type);
    if (type == 'S' && phase == PHASE_SERVING)
        return guest_note_parameter(&lobby_place(&lobby, place)->told) ? PUT_PASS : PUT_SWALLOW;
    if (type == 'S')
        (void) guest_note_parameter(NULL);
    if (type == 'Z' && !ends_transaction && phase == PHASE_SERVING)
        guest_tell_within(&lobby_place(&lobby, place)->told);
    if (metered && type == 'Z' && !ends_transaction)
        goes_on = true;
    if (ends_transaction && phase == PHASE_SERVING &&
        !guarded(capture, NULL, "the state of a direct pool's client cannot be saved"))
        pinned = true, departs = false;
    return PUT_PASS;
}

/* The message has been written. */
void
attend_note_put(bool ends_transaction)
{
    at_rest = ends_transaction;
}

/* Detaches the guest: core has the backend's own connection again. */
static void
use_own_socket(void)
{
    attach_use_own();
    line->place = 0;
    set_phase(PHASE_WAITING);
}

/* Ends this backend. No guest may be attached, because it would get the error. */
static void
fail(const char *why)
{
    use_own_socket();
    ereport(FATAL, (errcode(ERRCODE_ADMIN_SHUTDOWN), errmsg("weir: %s", why)));
}

static void
give_back(Reason reason)
{
    use_own_socket();
    owned = false;
    hold_end(&lobby);
    if (lobby_return(&lobby, me, place, generation) != RELEASE_RETURNED)
        fail("a place of the lobby has another owner");
    control_returned(place, generation, reason);
}

static void
put_at_rest(void)
{
    use_own_socket();
    owned = false;
    switch (lobby_release(&lobby, me, place, generation)) {
        case RELEASE_ARMED:
            break;
        case RELEASE_RETURNED:
            control_returned(place, generation, REASON_RECALLED);
            break;
        case RELEASE_BROKEN:
            fail("a place of the lobby has another owner");
    }
}

static bool
restore(void *unused)
{
    LobbyPlace *at = lobby_place(&lobby, place);
    bool goes_on = hold_goes_on(place, generation, at->transactions);

    if (!guest_restore(goes_on, lobby_window(&lobby, place), at->window_len))
        elog(ERROR, "its data in the lobby cannot be read");
    waits_use(lobby.base + (int) place, place, generation);
    return true;
}

static bool
fetch(void *unused)
{
    return control_fetch(&lobby, place, generation);
}

/* Gives the guest's first message to core, or the guest to Weir; false: there is none to serve. */
static bool
serve(bool is_new)
{
    int guest = lobby.base + (int) place;
    static Peek peek; /* looked at until the transaction is over */
    Reason reason;

    /* Core would take them for the guest's. The guest stays in the lobby. */
    if (compat_has_input())
        fail("bytes of another client are left");
    reason = stray_look(guest, &lobby_place(&lobby, place)->stray, &peek);
    if (reason == REASON_NONE && peek.first == PEEK_NOTHING) {
        put_at_rest();
        return false;
    }
    if (reason == REASON_NONE && is_new &&
        !guarded(restore, NULL, "the state of a direct pool's client cannot be restored"))
        reason = REASON_STATE;
    if (reason != REASON_NONE) {
        give_back(reason);
        if (guest_is_mixed())
            fail("the settings of a direct pool's client were restored only in part");
        return false;
    }
    attach_wake(&lobby, lobby_serve(&lobby, me));
    lobby_place(&lobby, place)->request_us = attach_now_us();
    tally_begin();
    attach_ignore_cancel();
    next_transaction();
    line->place = place + 1;
    waits_use(guest, place, generation);
    attach_use(guest);
    set_phase(PHASE_SERVING);
    orders_look_again();
    if (is_new)
        attach_show_peer(guest);
    metered = goes_on = false;
    unnamed_note_request(&peek);
    switch (unnamed_switch(&peek, is_new)) {
        case SWITCH_DONE:
            break;
        case SWITCH_RUNS:
            attach_use(unnamed_socket());
            set_phase(PHASE_CLEARING);
            break;
        case SWITCH_FAILED:
            fail("the unnamed statement cannot be exchanged");
    }
    if (peek.syncs > 1 || (peek.syncs == 1 && peek.rest == PEEK_REST_CUT))
        feed(false);
    return true;
}

/* Takes the guest of an event; false: there is none to serve. */
static bool
attach(uint64 event)
{
    if (lobby_claim(&lobby, me, event, &place, &generation) == CLAIM_LOST)
        return false;
    owned = true;
    line->place = place + 1;
    hold_forget();
    if (!guarded(fetch, NULL, "the socket of a direct pool's client cannot be fetched")) {
        if (control_read() == CONTROL_CLOSED)
            give_back(REASON_RECALLED); /* Weir has dismissed this backend only */
        owned = false; /* else Weir closes it: another backend could not fetch it either */
        fail("the socket of a direct pool's client cannot be fetched");
    }
    return serve(true);
}

static bool
clean(void *unused)
{
    hold_note_end(0, 0, 0);
    attach_forget(&lobby);
    return guest_restore(false, NULL, 0);
}

/* Goes to Weir as soon as Weir has the guest. */
static void
leave_with_guest(void)
{
    if (!depart_wait())
        fail("the pooler has closed its control socket");
    line = NULL; /* an order's signal may come while the lobby's memory goes */
    depart_end(&lobby, me);
    set_phase(PHASE_OFF);
}

/* Returns the guest, and leaves with it. The session keeps nothing but the guest's channels. */
static void
depart(void)
{
    use_own_socket();
    owned = false; /* if this fails, Weir closes the guest */
    attach_show_own();
    hold_end(&lobby);
    if (!guarded(clean, NULL, "a backend cannot leave the lobby") ||
        !depart_return(&lobby, me, place, generation))
        fail("a backend cannot leave the lobby with its client");
    set_phase(PHASE_LEAVING);
    leave_with_guest();
}

/* Becomes an ordinary backend of Weir's again. */
static void
leave_lobby(void)
{
    lobby_leave(&lobby, me);
    if (!guarded(clean, NULL, "a backend cannot leave the lobby"))
        fail("a backend cannot leave the lobby");
    attach_show_own();
    set_phase(PHASE_ORDINARY);
    control_left();
}

/* False: Weir does not want this backend in the lobby. */
static bool
is_wanted(void)
{
    ControlCommand command = control_read();

    if (command == CONTROL_CLOSED)
        fail("the pooler has closed its control socket");
    return command != CONTROL_LEAVE;
}

/* Waits until there is a guest to serve, or this backend is to leave the lobby. */
static void
attend(void)
{
    bool idle = false;

    for (;;) {
        struct epoll_event event;
        int got;

        /* A backend that never sleeps is told by its line. */
        if ((lobby_called(&lobby, me) || idle) && !is_wanted()) {
            leave_lobby();
            return;
        }
        attach_serve_interrupts();
        got = epoll_wait(lobby.set, &event, 1, 0);
        if (got == 0 && idle) {
            got = attach_sleep(&lobby, place, &event, -1);
        } else if (got == 0) {
            lobby_sleep(&lobby, me);
            idle = true;
        }
        if (got < 0 && errno != EINTR)
            fail("the lobby's epoll set cannot be used");
        if (got > 0) {
            idle = false;
            if (attach(event.data.u64))
                return;
        }
    }
}

static void
begin_to_attend(void)
{
    lobby_enter(&lobby, me, MyProcPid, compat_latch_number());
    set_phase(PHASE_WAITING);
    attend();
}

/*
 * Waits for the guest while another backend sleeps, or while the guest may ask for a number. True:
 * it has sent bytes.
 */
static bool
linger(void)
{
    /* A statement may have its columns again by the guest's next request. */
    if (names_are_outdated())
        return false;
    for (;;) {
        int timeout_ms = hold_left_ms(&lobby);

        if (lobby_linger(&lobby, me, place, timeout_ms >= 0) == LINGER_RELEASE)
            return false;
        if (InterruptPending)
            attach_serve_interrupts();
        if (attach_sleep(&lobby, place, NULL, timeout_ms) == 1)
            return true;
        if (!is_wanted())
            return false;
    }
}

/* A transaction of the guest's is over, and all was sent. */
static void
transaction_over(void)
{
    LobbyPlace *at = lobby_place(&lobby, place);

    next_transaction();
    at->transaction_us = attach_now_us();
    at->transactions++;
    hold_note_end(place, generation, at->transactions);
    tally_end(line, at->transaction_us - at->request_us);
    if (orders_pooler_is_gone())
        fail("the pooler has ended");
    /* Replies reach nobody any more. The next look at the guest finds the end of its connection. */
    ClientConnectionLost = 0;
    if (!pinned)
        stray_drop(&at->stray);
    if (unnamed_is_foreign() && ((pinned && !departs) || compat_has_input())) {
        owned = false; /* a part of its requests is read */
        fail("an unnamed statement of another client is left");
    }
    if (compat_has_input() && !attach_has_ended()) {
        at->request_us = at->transaction_us;
        tally_begin();
        return;
    }
    if (departs && !compat_has_input() && depart_prepare(&lobby, me, place))
        return depart();
    if (pinned) {
        if (!compat_has_input()) {
            idles = true;
            lobby_idle_pinned(&lobby, me);
        }
        return;
    }
    if (compat_has_input()) {
        attach_discard_input();
        give_back(REASON_ENDED);
        attend();
        return;
    }
    use_own_socket();
    /* Core has begun it for this guest, and would look at it while it serves the next. */
    if (IdleSessionTimeout > 0)
        disable_timeout(IDLE_SESSION_TIMEOUT, false);
    if (linger()) {
        if (serve(false))
            return;
    } else {
        put_at_rest();
    }
    attend();
}

/* ReadyForQuery with status I is out. */
void
attend_flushed(void)
{
    switch ((Phase) phase) {
        case PHASE_OFF:
            if (compat_has_input())
                break;
            if (guarded(begin, NULL, "this backend cannot serve Weir's clients"))
                begin_to_attend();
            else
                report_set_flush(report_flush);
            break;
        case PHASE_ORDINARY:
            if (!compat_has_input() && control_read() == CONTROL_ENLIST)
                begin_to_attend();
            break;
        case PHASE_CLEARING:
            set_phase(PHASE_SERVING);
            unnamed_note_read();
            attach_use(lobby.base + (int) place);
            break;
        case PHASE_SERVING:
            transaction_over();
            break;
        case PHASE_LEAVING:
            leave_with_guest();
            break;
        case PHASE_WAITING:
            /* Core has raised an ERROR while no guest was attached, and has told Weir. */
            if (owned)
                put_at_rest();
            attend();
            break;
    }
}
