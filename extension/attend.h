/*
 * attend.h: a backend that serves the sockets of many clients, one transaction after the other.
 *
 * Weir opens a connection with `weir.ticket` in its startup packet. When the login is over, the
 * backend connects to Weir's control socket, sends the ticket, and gets the lobby (lobby.h). From
 * then on it takes guests from the lobby whenever no transaction is open.
 *
 * In all these files, *core* is PostgreSQL's own code. The *own connection* of a backend is that to
 * Weir, as opposed to the sockets of guests.
 *
 * Rule for all these files: no error leaves them. A failure returns the guest to Weir, or ends
 * this backend by FATAL while no guest is attached.
 */
#ifndef WEIR_ATTEND_H
#define WEIR_ATTEND_H

#include "weir.h"

#include "lobby.h"

#include "datatype/timestamp.h"
#include "libpq/pqcomm.h"

/* weir.c: the parameters. */
extern char *weir_ticket;
extern char *weir_control_socket;

/* Why a guest is returned to Weir. The numbers are part of the layout. */
typedef enum Reason {
    REASON_NONE,
    REASON_ENDED,     /* Terminate, or the connection's end */
    REASON_PARTIAL,   /* the first message is not whole yet */
    REASON_BAD,       /* bytes that are no message */
    REASON_STATE,     /* its settings or statements cannot be restored */
    REASON_RECALLED,
    REASON_LISTENS    /* it leaves the lobby with its backend */
} Reason;

/* attend.c */
typedef enum Put {
    PUT_PASS,
    PUT_SWALLOW
} Put;

extern void attend_with(const char *ticket);
extern bool attend_has_guest(void);
extern bool attend_passes_rows(void);
extern Put attend_put(char type, bool ends_transaction);
extern void attend_note_put(bool ends_transaction);
extern void attend_flushed(void);
extern void attend_note_work(void);
extern LobbyBackend *attend_line(void);
extern uint64 attend_transaction(void); /* 0: no guest's runs */
extern bool attend_close_others(void); /* true: the guest is pinned and runs nothing */
extern const Lobby *attend_lobby(uint32 *at); /* NULL: no guest is attached */

/* orders.c: what Weir orders by SIGINT. */
extern bool orders_install(void);
extern bool orders_pooler_is_gone(void);
extern void orders_look_again(void);
extern bool orders_put_last_words(const char *body, size_t len);

/* notify.c: a guest's own notifications. */
extern bool notify_put(const char *body, size_t len);

/* What keeps a guest at this backend. */
typedef enum Tie {
    TIE_NONE,
    TIE_CHANNELS, /* it listens */
    TIE_OTHER
} Tie;

/* depart.c: a guest that leaves with this backend. */
extern Tie depart_find_tie(void);
extern bool depart_may(const Lobby *lobby, const LobbyPlace *at);
extern bool depart_prepare(const Lobby *lobby, uint32 me, uint32 place);
extern bool depart_return(Lobby *lobby, uint32 me, uint32 place, uint32 generation);
extern bool depart_wait(void);
extern void depart_end(Lobby *lobby, uint32 me);

/* meter.c */
extern bool meter_feed(int socket, uint32 place, uint32 generation, bool is_within);

/* tally.c */
extern void tally_begin(void);
extern void tally_resume(LobbyPlace *at);
extern void tally_note(LobbyBackend *line, char type);
extern void tally_end(LobbyBackend *line, uint64 us);
extern TimestampTz tally_query_began(TimestampTz since);
extern bool tally_copies(void);

/*
 * waits.c: the wait sets of guests. With the usual max_files_per_process, core allows about twice
 * as many descriptors of this kind.
 */
#define WAITS_MAX 160
extern void waits_use(int socket, uint32 place, uint32 generation);
extern void waits_forget(void);

/* attach.c: the socket of a guest, which core uses in place of the backend's own. */
struct Peek;
struct epoll_event;
extern void attach_note_own(void); /* a guest is attached later */
extern void attach_use_own(void);
extern void attach_use(int socket);
extern void attach_show_own(void);
extern void attach_show_peer(int socket);
extern Reason attach_look(int socket, struct Peek *peek);
extern int attach_first_code(void); /* of the bytes that attach_look has seen */
extern bool attach_forgets_unnamed(const struct Peek *peek);
extern bool attach_uses_unnamed(const struct Peek *peek);
extern bool attach_has_ended(void);
extern void attach_discard_input(void);
extern void attach_wake(const Lobby *lobby, int backend);
extern void attach_close(const Lobby *lobby, uint32 from, uint32 to);
extern void attach_forget(Lobby *lobby);
extern void attach_ignore_cancel(void);
extern void attach_serve_interrupts(void);
extern uint64 attach_now_us(void);
extern uint64 attach_monotonic_us(TimestampTz at);
extern int attach_sleep(const Lobby *lobby, uint32 place, struct epoll_event *event,
                        int timeout_ms);

/* stray.c: COPY data that comes too late. `left`: of the last such message. */
extern Reason stray_look(int socket, uint32 *left, struct Peek *peek);
extern void stray_drop(uint32 *left);

/* control.c: the socket to Weir. */
typedef struct Welcome {
    int set;
    int memory;
    uint32 line;
    uint32 base;
} Welcome;

typedef enum ControlCommand {
    CONTROL_NONE,
    CONTROL_ENLIST, /* serve the lobby */
    CONTROL_LEAVE,  /* leave the lobby */
    CONTROL_GO,     /* Weir has the guest with which this backend leaves */
    CONTROL_CLOSED  /* Weir has closed the control socket */
} ControlCommand;

extern bool attach_connect(Lobby *lobby, uint32 *me); /* attach.c */
extern void control_note_ticket(const char *value);
extern bool control_connect(Welcome *welcome);
extern ControlCommand control_read(void);
extern bool control_fetch(Lobby *lobby, uint32 place, uint32 generation);
extern void control_returned(uint32 place, uint32 generation, Reason reason);
extern void control_left(void);
extern bool control_has_ended(void);
extern void control_close(void);

/* guest.c: settings, and what a guest was told. */
extern bool guest_restore(bool goes_on, const unsigned char *window, uint32 len);
extern Tie guest_capture(Numbers *numbers);
extern bool guest_save(unsigned char *window, uint32 *len);
extern bool guest_is_too_large(void); /* asked behind guest_save */
extern bool guest_is_mixed(void);
extern bool guest_note_parameter(const uint64 *told);
extern void guest_tell(uint64 *told);
extern void guest_tell_within(uint64 *told); /* a transaction is open */

/* hold.c: a guest that may need this very backend for its next transactions. */
extern void hold_note_bind(bool is_likely);
extern void hold_note(Lobby *lobby, Numbers numbers, uint32 *asks);
extern int hold_left_ms(Lobby *lobby); /* -1: there is no hold */
extern void hold_end(Lobby *lobby);
extern void hold_forget(void);
extern void hold_note_end(uint32 place, uint32 generation, uint64 transactions);
extern bool hold_goes_on(uint32 place, uint32 generation, uint64 transactions);

/* names.c: prepared statements. */

/* What the guest's unnamed statement, which was not bound yet, asks of this backend. */
typedef enum Bind {
    BIND_NONE,
    BIND_LIKELY, /* another backend can prepare the statement again */
    BIND_NEEDED  /* no other backend can */
} Bind;

extern void names_note_reply(char type);
extern void names_note_change(void);
extern Bind names_await_bind(bool is_known); /* asked behind names_capture */
extern bool names_has_unnamed(void); /* likewise: the unnamed statement was prepared */
extern bool names_capture(void); /* true: they have changed */
extern void names_restore(const char *text, uint32 len);
extern bool names_are_outdated(void); /* does a restored statement have other columns? */
extern const char *names_text(uint32 *len);

/* context.c: what gave a statement its meaning, as a *label*. */
extern bool context_rest(void); /* no transaction is open; true: the settings are others */
extern const char *context_at_rest(void);
extern bool context_is_touched(void);
extern bool context_has_strayed(void);
extern void context_note_parse(void);
extern TimestampTz context_moment(const char *label); /* 0: of no moment */
extern int context_enter(const char *label);

/* unnamed.c: the unnamed statement. */

typedef enum Switch {
    SWITCH_DONE,
    SWITCH_RUNS, /* core has to read messages of ours first */
    SWITCH_FAILED
} Switch;

extern bool unnamed_open(void);
extern void unnamed_close(void);
extern pgsocket unnamed_socket(void);
extern bool unnamed_feed(const char *bytes, size_t len);
extern size_t unnamed_waiting(void);
extern bool unnamed_was_read(void);
extern void unnamed_note_read(void);
extern void unnamed_note_request(const struct Peek *peek);
extern void unnamed_note_query(void);
extern void unnamed_note_error(void);
extern Switch unnamed_switch(const struct Peek *peek, bool is_new);
extern void unnamed_note_parse(void);
extern void unnamed_note_bind(void);
extern bool unnamed_settle(bool prepared); /* true: it is to be saved */
extern bool unnamed_is_doubtful(void); /* core has prepared one that is not known */
extern bool unnamed_is_foreign(void); /* core may have that of another guest */
extern bool unnamed_restore(const char *from, uint32 len);
extern const char *unnamed_body(uint32 *len);

/* remake.c: statements that no backend has kept. */

/* One statement as a window's text tells it. */
typedef struct Wanted {
    char name[NAMEDATALEN];
    const char *label; /* of its parse context */
    uint64 columns;
    int types_count;
    Oid *types;
    char *query;
} Wanted;

/* wanted.c: these raise an ERROR if the text cannot be read. */
extern int wanted_labels(const char **at, const char *end, char ***labels);
extern void wanted_read(const char **at, const char *end, char **labels, int labels_count,
                        Wanted *wanted);

/* The wait for a lock on a table; the waits of the guest's other statements are shorter then. */
#define REMAKE_PATIENCE_MS 50

struct CachedPlanSource;
struct TupleDescData;
extern uint64 remake_columns(struct TupleDescData *columns); /* a number for them */
typedef enum Remade {
    REMADE_WHOLE,
    REMADE_LATER,   /* postponed: it cannot be prepared now */
    REMADE_OUTDATED /* postponed: it has other columns now */
} Remade;

extern struct CachedPlanSource *remake(const Wanted *wanted, int *patience_ms, Remade *how);

/* rows.c: rows of a large result, in larger pieces than core's. */
extern bool rows_are_busy(void);
extern bool rows_put(char type, const char *body, size_t len);
extern int rows_end(void);

/* guard.c: runs something that may raise an ERROR. */
extern bool guarded(bool (*work)(void *argument), void *argument, const char *what);
extern bool guard_is_up(void);
extern void own_transaction_begin(void);
extern void own_transaction_end(void);

#endif /* WEIR_ATTEND_H */
