/*
 * orders.c: Weir's orders while a guest is attached: to cancel its query, to end it, to tell what
 * it does. So Weir keeps time limits, and a transaction that stays within them costs no more.
 *
 * An order is a transaction's number in this backend's line, followed by SIGINT with a value
 * (LOBBY_SIGNAL). A late order finds another number and has no effect. Of several orders, the first
 * signal takes all. SIGINT without the value, as of pg_cancel_backend or a timeout of this process,
 * means whatever runs. The value tells them apart, and not the sender's process: in an online
 * restart another process takes over.
 */
#include "attend.h"
#include "compat.h"

#include <signal.h>
#include <sys/resource.h>

#include "access/xact.h"
#include "commands/progress.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "tcop/tcopprot.h"
#include "utils/backend_status.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

/* A look at a copy takes less time than this, in microseconds. */
#define LOOK_WORK 2000

/* The longest error text of Weir's that is sent. */
#define WORDS_MAX (LOBBY_WORDS - sizeof(uint32))

/* The next FATAL is Weir's doing, and Weir has left the words for it. */
static volatile sig_atomic_t ends = false;

static volatile sig_atomic_t gone = false;

/* What grows with the COPY data that the guest sends. */
typedef struct Copied {
    /* Bytes, which core counts if it tracks activities. */
    int64 bytes;
    /* If not: the waits of this backend that have ended, and its work in microseconds. */
    int64 waits;
    int64 work;
} Copied;

static Copied
copied(volatile PgBackendStatus *entry)
{
    Copied now = {0};
    struct rusage used;

    if (entry->st_progress_command == PROGRESS_COMMAND_COPY)
        now.bytes = entry->st_progress_param[PROGRESS_COPY_BYTES_PROCESSED];
    else if (getrusage(RUSAGE_SELF, &used) == 0) {
        now.waits = used.ru_nvcsw;
        now.work = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * INT64CONST(1000000) +
                   used.ru_utime.tv_usec + used.ru_stime.tv_usec;
    }
    return now;
}

/* Has the guest sent data between two looks? A look ends a wait, too, and is some work. */
static bool
has_copied(const Copied *before, const Copied *now)
{
    return now->bytes != before->bytes || now->waits > before->waits + 1 ||
           now->work > before->work + LOOK_WORK;
}

/* When did the guest last send COPY data? This is known from one look to the next: after a look
 * that finds more, the time counts from that look. */
static TimestampTz
copied_at(volatile PgBackendStatus *entry, TimestampTz began)
{
    static TimestampTz at = 0;
    static Copied seen = {0};
    Copied now = copied(entry);

    if (at < began || has_copied(&seen, &now))
        at = GetCurrentTimestamp();
    seen = now;
    return Max(at, began);
}

/* When did the query begin that runs? In a copy: when did the guest last send data? */
static TimestampTz
runs_since(volatile PgBackendStatus *entry, TimestampTz since)
{
    since = tally_query_began(since);
    return tally_copies() ? copied_at(entry, since) : since;
}

/* What core knows of this backend, or the best guess if it does not track activities. */
static LobbyDoing
look(TimestampTz *since)
{
    volatile PgBackendStatus *entry = MyBEEntry;

    /* Core is just writing: Weir asks again. */
    if (entry == NULL || (entry->st_changecount & 1) != 0)
        return LOBBY_UNKNOWN;
    *since = entry->st_state_start_timestamp;
    switch (entry->st_state) {
        case STATE_IDLE:
            return LOBBY_AT_REST;
        case STATE_RUNNING:
        case STATE_FASTPATH:
            *since = runs_since(entry, *since);
            return LOBBY_RUNS;
        case STATE_IDLEINTRANSACTION:
        case STATE_IDLEINTRANSACTION_ABORTED:
            return LOBBY_IDLES;
        default:
            break;
    }
    *since = GetCurrentStatementStartTimestamp();
    if (tally_copies() || MyProc->wait_event_info != WAIT_EVENT_CLIENT_READ) {
        *since = runs_since(entry, *since);
        return LOBBY_RUNS;
    }
    return IsTransactionOrTransactionBlock() ? LOBBY_IDLES : LOBBY_AT_REST;
}

static void
answer(LobbyBackend *line)
{
    TimestampTz since = 0;
    LobbyDoing doing = look(&since);

    /* It waits for the rest of a message, and serves no other guest meanwhile. */
    if (doing == LOBBY_AT_REST && line->activity == LOBBY_SERVING)
        doing = LOBBY_IDLES;
    if (doing != LOBBY_UNKNOWN)
        __atomic_store_n(&line->answer, attach_monotonic_us(since) << 2 | doing, __ATOMIC_SEQ_CST);
}

/* Takes the order. True: it is for the transaction that runs. */
static bool
is_meant(uint64 *order)
{
    uint64 wanted = __atomic_exchange_n(order, 0, __ATOMIC_SEQ_CST);

    return wanted != 0 && wanted == attend_transaction();
}

static bool
is_order(const siginfo_t *about)
{
    return about->si_code == SI_QUEUE && about->si_value.sival_int == LOBBY_SIGNAL;
}

/*
 * Has a child that was forked here got the signal? Then it has the effect that it has on other
 * programs. From 17 on, core does the same with its own handlers.
 */
static bool
is_of_child(int number)
{
    if (is_own_process())
        return false;
    signal(number, SIG_DFL);
    raise(number);
    return true;
}

static void
obey(int signal, siginfo_t *about, void *context)
{
    LobbyBackend *line = attend_line();
    int error = errno;

    if (is_of_child(signal))
        return;
    if (line == NULL || !is_order(about)) {
        StatementCancelHandler(signal);
    } else {
        if (is_meant(&line->ask))
            answer(line);
        if (is_meant(&line->cancel))
            StatementCancelHandler(signal);
        if (is_meant(&line->end)) {
            ends = true;
            die(signal);
        }
    }
    errno = error;
}

/*
 * Weir has sent a message, or has ended. Without Weir the guest's transaction goes on to its end.
 * A guest that runs nothing is disconnected. The other guests are, too: no process may keep them.
 */
static void
hear(int signal, siginfo_t *about, void *context)
{
    int error = errno;

    if (is_of_child(signal))
        return;
    if (!gone && control_has_ended()) {
        gone = true;
        if (attend_close_others())
            die(signal);
    }
    SetLatch(MyLatch);
    errno = error;
}

/* Has Weir ended? */
bool
orders_pooler_is_gone(void)
{
    return gone;
}

/* A guest is attached now. While there was none, `hear` could not tell which sockets to close. */
void
orders_look_again(void)
{
    if (gone)
        (void) attend_close_others();
}

static bool
handle(int signal, void (*handler)(int, siginfo_t *, void *))
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};

    sigemptyset(&action.sa_mask);
    return sigaction(signal, &action, NULL) == 0;
}

static void
nothing(SIGNAL_ARGS)
{
}

/* SIGURG is the latch's; a sleep of ours must end by it. */
bool
orders_install(void)
{
    gone = false;
    pqsignal(SIGURG, nothing);
    return handle(SIGINT, obey) && handle(SIGIO, hear);
}

/* Of an ErrorResponse, whose second field is the severity in English. */
static bool
is_fatal(const char *body, size_t len)
{
    static const char severity[] = "VFATAL";
    const char *second = len > 0 ? memchr(body, '\0', len) : NULL;

    return second != NULL && body + len - second > sizeof(severity) &&
           memcmp(second + 1, severity, sizeof(severity)) == 0;
}

/* Sends Weir's words for the guest in place of core's error. False: core's is to be sent. */
bool
orders_put_last_words(const char *body, size_t len)
{
    static char words[WORDS_MAX];
    uint32 place;
    const Lobby *lobby = ends && is_fatal(body, len) ? attend_lobby(&place) : NULL;
    const unsigned char *left;
    uint32 words_len;

    if (lobby == NULL)
        return false;
    left = lobby_words(lobby, place);
    memcpy(&words_len, left, sizeof(words_len));
    if (words_len == 0 || words_len > WORDS_MAX)
        return false;
    memcpy(words, left + sizeof(words_len), words_len);
    (void) report_put('E', words, words_len);
    return true;
}
