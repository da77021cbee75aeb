/*
 * hold.c: a backend stays with a guest that may need it for its next transactions.
 *
 * A guest has prepared the unnamed statement and not bound it. It will probably do so next, and
 * another backend would have to prepare the statement again.
 *
 * A guest has drawn a number from a sequence. Only this session can tell the number (currval,
 * lastval), and drivers ask for it some transactions later.
 *
 *   a draw ──► held ──► a question ──► held ──► other transactions, a pause, a second ──► over
 *               └─────────────────────────────► the same, without a question ──► over, silent
 *
 * Other guests may wait meanwhile, so each hold is short. A load of INSERTs never asks. So after
 * some silent holds in a row, no backend holds a guest that did not ask about its last number.
 *
 * At the end of the file: are the session's numbers still the guest's last?
 */
#include "attend.h"

/* A question is one of so many transactions behind that of the draw, or of another question. */
#define TRANSACTIONS 5
/* The guest sends nothing for so long. The second is before the question of one that has asked
 * about its last number. */
#define PATIENCE_US 200000
#define PATIENCE_ASKS_US 1000000
/* A guest that sends without a pause is held for so long. */
#define LONGEST_US 1000000

/* Transactions that may still ask; 0: there is no hold. */
static int left = 0;

/* There was a question since the last draw. */
static bool asked;

static uint64 began;

/* The hold ends then if the guest has sent nothing. */
static uint64 until;

/* The guest is expected to bind its statement until then; 0: it is not. */
static uint64 bind_until = 0;

void
hold_end(Lobby *lobby)
{
    if (left > 0 && !asked)
        lobby_note_silence(lobby);
    left = 0;
    bind_until = 0;
}

/* The guest is another one. */
void
hold_forget(void)
{
    left = 0;
    bind_until = 0;
}

/*
 * A transaction of the guest's is over. A guest that prepares again and again without a Bind is not
 * held twice in a row.
 */
void
hold_note_bind(bool is_likely)
{
    bind_until = is_likely && bind_until == 0 ? attach_now_us() + PATIENCE_US : 0;
}

static void
begin(bool by_question, uint64 now)
{
    if (left == 0)
        began = now;
    left = TRANSACTIONS;
    asked = by_question;
}

/* A transaction of the guest's is over. `asks`: did the guest ask about its last number? */
void
hold_note(Lobby *lobby, Numbers numbers, uint32 *asks)
{
    uint64 now;
    bool may_end = true;

    if (left == 0 && numbers == NUMBERS_NONE)
        return;
    now = attach_now_us();
    switch (numbers) {
        case NUMBERS_ASKED:
            *asks = 1;
            lobby_note_question(lobby);
            if (left > 0)
                begin(true, now);
            break;
        case NUMBERS_DRAWN:
            if (left > 0 && !asked) {
                lobby_note_silence(lobby);
                *asks = 0;
            }
            may_end = *asks == 0;
            if (may_end && lobby_is_silent(lobby))
                left = 0;
            else
                begin(false, now);
            break;
        case NUMBERS_NONE:
            if (left == 1)
                hold_end(lobby);
            else
                left--;
            break;
    }
    if (may_end && now >= began + LONGEST_US)
        hold_end(lobby);
    until = now + (*asks != 0 && !asked ? PATIENCE_ASKS_US : PATIENCE_US);
}

/* How long the backend may wait for the guest. */
int
hold_left_ms(Lobby *lobby)
{
    bool is_held = left > 0 || bind_until > 0;
    uint64 now = is_held ? attach_now_us() : 0;
    uint64 last = Max(left > 0 ? until : 0, bind_until);

    if (is_held && now >= last)
        hold_end(lobby);
    return is_held && now < last ? (int) ((last - now + 999) / 1000) : -1;
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
