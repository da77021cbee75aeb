/*
 * tally.c: what the guests of this backend have done, in numbers, for SHOW STATS. No clock is read
 * for it: core measures how long a client is idle in its transactions.
 */
#include "attend.h"

#include "access/xact.h"
#include "pgstat.h"

/* Core's sum of idle time when the transaction began, and when its last statement ended. */
static PgStat_Counter idle_before = 0;
static PgStat_Counter idle_seen = 0;

void
tally_begin(void)
{
    idle_before = pgStatTransactionIdleTime;
    idle_seen = idle_before;
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
            break;
        case 'Z':
            line->queries++;
            break;
        default:
            break;
    }
}

/* A transaction that took this time is over. */
void
tally_end(LobbyBackend *line, uint64 us)
{
    PgStat_Counter idle = idle_seen - idle_before;

    line->transaction_us += us;
    line->query_us += idle > 0 && (uint64) idle < us ? us - idle : us;
}
