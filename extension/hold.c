/*
 * hold.c: a backend stays with a guest that has drawn a number from a sequence. Only this session
 * can tell the number (currval, lastval), and drivers ask for it some transactions later.
 *
 *   a draw ──► held ──┬── a question ──► pinned, as is every guest of the lobby that draws later
 *                     └── another draw, too many other transactions, a pause, the end ──► over
 *
 * A load of INSERTs never asks. So no backend holds a guest after some holds without a question.
 *
 * At the end of the file: are the session's numbers still the guest's last?
 */
#include "attend.h"

/* The question is one of so many transactions behind that of the draw. */
#define TRANSACTIONS 5
/* Other guests may wait for this backend. */
#define PATIENCE_US 200000

/* Transactions that may still ask; 0: there is no hold. */
static int left = 0;

/* The hold ends then if the guest has sent nothing. */
static uint64 until;

/* Ends a hold without a question. */
void
hold_end(Lobby *lobby)
{
    if (left > 0)
        lobby_note_silence(lobby);
    left = 0;
}

/* The guest is another one. */
void
hold_forget(void)
{
    left = 0;
}

/* A transaction of the guest's is over. */
bool
hold_note(Lobby *lobby, Numbers numbers)
{
    switch (numbers) {
        case NUMBERS_ASKED:
            left = 0;
            lobby_note_asks(lobby);
            return false; /* the question pins the guest by itself */
        case NUMBERS_DRAWN:
            hold_end(lobby);
            if (lobby_asks(lobby))
                return true;
            left = lobby_is_silent(lobby) ? 0 : TRANSACTIONS;
            break;
        case NUMBERS_NONE:
            if (left == 1)
                hold_end(lobby);
            else if (left > 0)
                left--;
            break;
    }
    if (left > 0)
        until = attach_now_us() + PATIENCE_US;
    return false;
}

/* How long the backend may wait for the guest. */
int
hold_left_ms(Lobby *lobby)
{
    uint64 now = left > 0 ? attach_now_us() : 0;

    if (left > 0 && now >= until)
        hold_end(lobby);
    return left > 0 ? (int) ((until - now + 999) / 1000) : -1;
}

/* The guest that this session served last, and its transactions then; generation 0: none. */
static struct {
    uint32 place;
    uint32 generation;
    uint64 transactions;
} last;

/* A transaction of the guest's is over. All 0: this session serves no guest. */
void
hold_note_end(uint32 place, uint32 generation, uint64 transactions)
{
    last.place = place;
    last.generation = generation;
    last.transactions = transactions;
}

/*
 * A guest is taken up. Are the session's numbers the last that it has drawn? Only if this session
 * has served no other guest since, and no other session has served this one.
 */
bool
hold_goes_on(uint32 place, uint32 generation, uint64 transactions)
{
    bool goes_on = last.generation == generation && last.place == place &&
                   last.transactions == transactions;

    last.generation = 0;
    return goes_on;
}
