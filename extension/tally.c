/*
 * tally.c: what the guests of this backend have done, in numbers, for SHOW STATS. No clock is read
 * for it: core measures how long a client is idle in its transactions.
 */
#include "attend.h"

#include <signal.h>

#include "access/xact.h"
#include "pgstat.h"

/* Core's sum of idle time when the transaction began, and when its last statement ended. */
static PgStat_Counter idle_before = 0;
static PgStat_Counter idle_seen = 0;

/* When the query began whose first reply has been written; 0: none has. A signal handler reads it
 * and the next. */
static volatile TimestampTz query_began = 0;

/* The guest sends COPY data. */
static volatile sig_atomic_t copies = false;

void
tally_begin(void)
{
    idle_before = pgStatTransactionIdleTime;
    idle_seen = idle_before;
    query_began = 0;
    copies = false;
}

/* When did the query begin, whose present message core has begun to run at `since`? */
TimestampTz
tally_query_began(TimestampTz since)
{
    TimestampTz began = query_began;

    return began != 0 && began < since ? began : since;
}

bool
tally_copies(void)
{
    return copies;
}

/* A pinned guest begins something. */
void
tally_resume(LobbyPlace *at)
{
    uint64 began = attach_monotonic_us(GetCurrentStatementStartTimestamp());

    /* A Sync by itself begins no statement. */
    at->request_us = Max(began, at->transaction_us);
    tally_begin();
}

/* A message goes out. Behind the last statement, core may set its sum to 0. */
void
tally_note(LobbyBackend *line, char type)
{
    switch (type) {
        case 'C':
        case 'E':
        case 'I':
            idle_seen = pgStatTransactionIdleTime;
            copies = false;
            break;
        case 'Z':
            line->queries++;
            query_began = 0;
            copies = false;
            return;
        case 'G':
            copies = true;
            break;
        case 'A':
        case 'N':
        case 'S':
            return;
        default:
            break;
    }
    if (query_began == 0)
        query_began = GetCurrentStatementStartTimestamp();
}

/* A transaction that took this time is over. */
void
tally_end(LobbyBackend *line, uint64 us)
{
    PgStat_Counter idle = idle_seen - idle_before;

    line->transaction_us += us;
    line->query_us += idle > 0 && (uint64) idle < us ? us - idle : us;
}
