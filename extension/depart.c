/*
 * depart.c: a guest that listens leaves the lobby together with its backend. Weir gets both, and
 * hands the channels over to the connection that listens for the whole pool, as it does for clients
 * that have never been in a lobby.
 *
 * The backend goes on listening meanwhile. It reads no notification between the return of its guest
 * and Weir's answer: they would reach Weir before Weir knows for which client they are.
 */
#include "attend.h"
#include "compat.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/timeout.h"
#include "utils/wait_event.h"

/* The guest's channels as the report tells them. A guest with more keeps this backend. */
#define CHANNELS_MAX 8192

static char channels[CHANNELS_MAX];
static uint32 channels_len = 0;

/* What the session holds beyond settings and statements of the protocol. */
Tie
depart_find_tie(void)
{
    Text out = {.start = channels, .end = channels, .limit = channels + sizeof(channels)};

    channels_len = 0;
    if (!statements_write(&out) || !objects_write(&out) || out.full)
        return TIE_OTHER;
    if (out.end == out.start)
        return TIE_NONE;
    for (const char *at = out.start; at != NULL; at = memchr(at + 1, ';', out.end - at - 1))
        if (out.end - at < 3 || memcmp(at, ";l:", 3) != 0)
            return TIE_OTHER;
    channels_len = out.end - out.start;
    return TIE_CHANNELS;
}

/* May a guest leave, whose only tie to this backend are its channels? */
bool
depart_may(const Lobby *lobby, const LobbyPlace *at)
{
    const LobbyHeader *header = (const LobbyHeader *) lobby->memory;

    /* The pool's connection gets the texts in the encoding of the database. */
    return __atomic_load_n(&header->gives_up, __ATOMIC_SEQ_CST) != 0 &&
           pg_get_client_encoding() == GetDatabaseEncoding() && at->stray == 0;
}

/*
 * Writes the channels behind the guest's state, before the guest is returned. False: there is no
 * room.
 */
bool
depart_prepare(const Lobby *lobby, uint32 me, uint32 place)
{
    return lobby_prepare_leave(lobby, me, place, channels, channels_len);
}

/* Returns the guest. False: it is not this backend's. */
bool
depart_return(Lobby *lobby, uint32 me, uint32 place, uint32 generation)
{
    if (IdleSessionTimeout > 0)
        disable_timeout(IDLE_SESSION_TIMEOUT, false);
    if (lobby_return(lobby, me, place, generation) != RELEASE_RETURNED)
        return false;
    lobby_idle_leaving(lobby, me);
    control_returned(place, generation, REASON_LISTENS);
    return true;
}

/* Waits until Weir has the guest. False: Weir has ended. */
bool
depart_wait(void)
{
    for (;;) {
        ControlCommand command = control_read();

        if (command == CONTROL_CLOSED)
            return false;
        if (command == CONTROL_GO)
            return true;
        attach_ignore_cancel();
        IdleSessionTimeoutPending = false;
        CHECK_FOR_INTERRUPTS();
        /* A message of Weir's sets the latch (orders.c). */
        (void) WaitLatch(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH, 0, PG_WAIT_EXTENSION);
        ResetLatch(MyLatch);
    }
}

/*
 * This backend is an ordinary one from now on, and keeps nothing of the lobby. With another ticket
 * it may come back (attend_with).
 */
void
depart_end(Lobby *lobby, uint32 me)
{
    size_t size = lobby_size(lobby->backends, lobby->places);

    lobby_leave(lobby, me);
    close(lobby->set);
    munmap(lobby->memory, size);
    free(lobby->held);
    unnamed_close();
    report_set_flush(report_flush);
    report_renew();
    control_left();
    control_close();
}
