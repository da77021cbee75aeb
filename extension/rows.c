/*
 * rows.c: the rows of a large result go to the guest in pieces of up to 64 KB, where core sends
 * 8 KB. Each piece wakes the guest's process, which takes longer than the rest.
 *
 * The first rows of a result go through core, as does everything else. So a small result costs
 * nothing. Rows that come slowly do not wait for a full piece.
 */
#include "attend.h"

#include "libpq/libpq.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"

/* The first rows of a result, which core has. */
#define FIRST_LEN 16384
#define PIECE_MAX 65536
/* After so much, the time is looked at. Core would send it. */
#define LOOK_LEN 8192
/* If this much more time has passed, rows come slowly. */
#define SLOW_US 1000
#define HEADER_LEN 5

static char *piece = NULL;
static size_t piece_len = 0;
static size_t look_at = LOOK_LEN;
static uint64 looked_us = 0;

/* Of this result. */
static size_t with_core = 0;
/* Core may have bytes that come before the piece. */
static bool core_is_first = true;
/* A piece is on its way: a message of core's would be in the middle of it. */
static bool busy = false;

bool
rows_are_busy(void)
{
    return busy;
}

/* Have the rows since the last look come slowly? */
static bool
are_slow(void)
{
    uint64 before = looked_us;

    looked_us = attach_now_us();
    return looked_us - before > SLOW_US;
}

/* As core does when it sends its buffer. */
static int
send_all(const char *at, size_t len)
{
    MyProcPort->noblock = false;
    while (len > 0) {
        ssize_t sent = secure_write(MyProcPort, (char *) at, len);

        if (sent > 0) {
            at += sent;
            len -= sent;
        } else if (errno != EINTR) {
            ereport(COMMERROR,
                    (errcode_for_socket_access(), errmsg("could not send data to client: %m")));
            ClientConnectionLost = 1;
            InterruptPending = 1;
            return EOF;
        }
    }
    return 0;
}

static int
send_piece(void)
{
    size_t len = piece_len;
    int result;

    if (len == 0)
        return 0;
    piece_len = 0;
    look_at = LOOK_LEN;
    if (core_is_first && report_flush() != 0)
        return EOF;
    core_is_first = false;
    busy = true;
    result = send_all(piece, len);
    busy = false;
    return result;
}

/* Takes a row. False: core is to have it. */
bool
rows_put(char type, const char *body, size_t len)
{
    uint32 told = pg_hton32((uint32) len + 4);
    bool fits = HEADER_LEN + len <= PIECE_MAX;

    if (piece == NULL && with_core >= FIRST_LEN)
        piece = malloc(PIECE_MAX);
    if (piece == NULL || with_core < FIRST_LEN) {
        with_core += HEADER_LEN + len;
        core_is_first = true;
        return false;
    }
    if (!fits || HEADER_LEN + len > PIECE_MAX - piece_len)
        (void) send_piece();
    if (!fits) {
        core_is_first = true;
        return false;
    }
    piece[piece_len] = type;
    memcpy(piece + piece_len + 1, &told, sizeof(told));
    memcpy(piece + piece_len + HEADER_LEN, body, len);
    piece_len += HEADER_LEN + len;
    if (piece_len < look_at)
        return true;
    look_at = piece_len + LOOK_LEN;
    if (are_slow())
        (void) send_piece();
    return true;
}

/* The rows of a result are over for now: something else is to be sent, or everything is. */
int
rows_end(void)
{
    with_core = 0;
    return send_piece();
}
