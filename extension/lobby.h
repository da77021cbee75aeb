/*
 * lobby.h: what the backends of one pool and Weir share: a file in memory and an epoll set.
 *
 * No header of PostgreSQL's is used here, so that test/model can compile lobby.c by itself. Both
 * sides use the same functions: a backend those of "A backend's side", and Weir those of "Weir's
 * side" (crates/room).
 *
 * The file has a header, a line for each backend and for each place, and a window for each place. A
 * place is the record of one client, a *guest*. Its state word says which process may use the
 * client's socket. An event of the epoll set is only a hint.
 *
 *   FREE ──take──► TAKEN(0) ──admit──► ARMED ──claim──► OWNED(b)
 *     ▲               │ ▲  ▲             │ ▲              │  │
 *     └────vacate─────┘ │  └───recall────┘ └───release────┘  │
 *                       └─acknowledge── TAKEN(b) ◄──return───┘
 *
 * Another process may have written every byte of the file. A value is copied before it is checked,
 * and an index is compared with the counts of `Lobby`, which are copies.
 */
#ifndef WEIR_LOBBY_H
#define WEIR_LOBBY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOBBY_MAGIC UINT64_C(0x79626f4c72696557) /* "WeirLoby" */
#define LOBBY_LAYOUT 10
#define LOBBY_SIGNAL 0x52696557 /* the value of SIGINT that announces an order */
#define LOBBY_LINE 64          /* of a place */
#define LOBBY_BACKEND_LINE 128 /* its second half is written by the backend alone */
#ifndef LOBBY_WINDOW /* the model has small ones */
#define LOBBY_WINDOW (256 * 1024)
#endif
#define LOBBY_WORDS 1024                          /* the end of a window: the last words */
#define LOBBY_STATE (LOBBY_WINDOW - LOBBY_WORDS) /* the rest of it: the guest's state */
#define LOBBY_BACKENDS_MAX 1024
#define LOBBY_PLACES_MAX (128 * 1024)
#define LOBBY_SILENT_MAX 16 /* the larger one where clients have asked */
#define LOBBY_SILENT_ASKS_MAX 64

typedef struct LobbyHeader {
    uint64_t magic;
    uint32_t layout;
    uint32_t backends;
    uint32_t places;
    uint32_t window;
    uint32_t asks; /* clients of this lobby ask which numbers they have drawn */
    uint32_t lines; /* of backends that have been in use; Weir writes it */
    uint32_t silent; /* holds in a row that ended without a question (hold.c) */
    uint32_t gives_up; /* a guest that listens leaves with its backend (depart.c); Weir writes it */
} LobbyHeader;

/* What a backend does. Only that backend writes it, and Weir when the backend is dead. */
typedef enum LobbyActivity {
    LOBBY_ABSENT,
    LOBBY_SERVING,
    LOBBY_SLEEPING, /* waits for any guest */
    LOBBY_LINGERING, /* waits for the guest that it has, since another backend sleeps */
    LOBBY_PINNED_IDLE, /* no transaction is open, but the guest needs this backend */
    LOBBY_HOLDING, /* waits for the guest that it has, which may ask for a number */
    LOBBY_LEAVING /* has returned its guest, and goes to Weir with it */
} LobbyActivity;

/*
 * What a guest does, as its backend answers when Weir asks. The answer has this in its two lowest
 * bits, and above them since when, by the system's monotonic clock in microseconds.
 */
typedef enum LobbyDoing {
    LOBBY_UNKNOWN,
    LOBBY_AT_REST,
    LOBBY_RUNS,
    LOBBY_IDLES /* in a transaction */
} LobbyDoing;

/*
 * Weir writes an order and sends SIGINT with the value LOBBY_SIGNAL. The order is the number of the
 * transaction it is for.
 */
typedef struct LobbyBackend {
    uint32_t process;
    uint32_t activity;
    uint32_t place; /* of the guest, + 1; 0: none */
    uint32_t latch; /* by which others wake it; a number of the server's */
    uint64_t transaction; /* number of the transaction that runs */
    uint64_t cancel;      /* order: cancel the query */
    uint64_t end;         /* order: say the last words to the guest, and end */
    uint64_t ask;         /* order: answer */
    uint32_t called;      /* Weir has sent a message */
    uint32_t too_large; /* the state of the guest is: this keeps it at the backend */
    uint64_t answer; /* see LobbyDoing */
    /* Sums over all guests that it has served. */
    uint64_t queries;
    uint64_t query_us;
    uint64_t transaction_us; /* with the time in which the guests were idle */
    uint64_t spare[5];
} LobbyBackend;

typedef enum LobbyState {
    LOBBY_FREE,
    LOBBY_TAKEN, /* Weir has the guest; with an owner: a backend has just returned it */
    LOBBY_ARMED, /* at rest, and in the epoll set */
    LOBBY_OWNED  /* a backend has the guest */
} LobbyState;

typedef struct LobbyPlace {
    uint64_t word;
    uint64_t request_us;     /* when the request came that began the transaction */
    uint64_t transaction_us; /* when the last transaction ended */
    uint64_t transactions;
    uint64_t told;         /* digest of the parameters that the guest was told */
    uint32_t window_len;   /* bytes of the window that are in use */
    uint32_t stray;        /* bytes to skip: the rest of a message that is no request */
    uint32_t asks;         /* the guest has asked for the last number that it drew */
    uint32_t process;      /* the process id that its login has told it; 0: unknown */
    uint32_t leaver;       /* the backend that leaves with the guest, + 1; 0: none */
    uint32_t channels_len; /* bytes behind the window: the channels of a guest that leaves */
} LobbyPlace;

/* A window begins with this, unless it is empty. Then come the bytes, in this order. */
typedef struct LobbyWindowHeader {
    uint32_t settings_len;
    uint32_t names_len;   /* prepared statements */
    uint32_t unnamed_len; /* the unnamed statement */
} LobbyWindowHeader;

/* One process's view. */
typedef struct Lobby {
    unsigned char *memory;
    uint32_t backends;
    uint32_t places;
    int set;  /* the epoll set */
    int base; /* a guest's socket has the number `base` + place, in every process */
    uint32_t *held; /* generation of the descriptor that this process has for a place; 0: none */
    int file;  /* Weir's: the file in memory */
    int blank; /* Weir's: what the number of a place without a guest refers to */
} Lobby;

/* The size of the file; 0: too many backends or places. */
extern size_t lobby_size(uint32_t backends, uint32_t places);

/* Writes the header into a file of zeros. False: `size` is not lobby_size(backends, places). */
extern bool lobby_format(void *memory, size_t size, uint32_t backends, uint32_t places);

/* NULL, or why this is not a lobby. `held` has room for `room` places, all 0. */
extern const char *lobby_open(Lobby *lobby, void *memory, size_t size, int set, int base,
                              uint32_t *held, uint32_t room);

/* NULL: there is none of that number. */
extern LobbyBackend *lobby_backend(const Lobby *lobby, uint32_t backend);
extern LobbyPlace *lobby_place(const Lobby *lobby, uint32_t place);
extern unsigned char *lobby_window(const Lobby *lobby, uint32_t place);

/*
 * Where Weir leaves the words that a backend says to its guest instead of its own error when it
 * ends: a length in four bytes, and the body of an ErrorResponse.
 */
extern unsigned char *lobby_words(const Lobby *lobby, uint32_t place);

/* A client has asked for a number that it drew from a sequence. */
extern void lobby_note_question(Lobby *lobby);

/* A hold has ended without such a question: have so many in a row that none is worthwhile? */
extern void lobby_note_silence(Lobby *lobby);
extern bool lobby_is_silent(const Lobby *lobby);

/* Of a state word. The owner's number + 1; 0: none. */
extern LobbyState lobby_state_of(uint64_t word);
extern uint32_t lobby_generation_of(uint64_t word);
extern uint32_t lobby_owner_of(uint64_t word);
extern uint64_t lobby_word(const Lobby *lobby, uint32_t place);

/* A descriptor that was received for a place counts for one generation only. */
extern bool lobby_holds(const Lobby *lobby, uint32_t place, uint32_t generation);
extern void lobby_note_held(Lobby *lobby, uint32_t place, uint32_t generation);

/* A backend's side. */

typedef enum LobbyClaim {
    CLAIM_DONE,
    CLAIM_LOST /* the guest is at rest no more: forget the event */
} LobbyClaim;

typedef enum LobbyRelease {
    RELEASE_ARMED,
    RELEASE_RETURNED, /* Weir wants it back: tell it so, over the control socket */
    RELEASE_BROKEN    /* the place is not this backend's: leave the lobby */
} LobbyRelease;

extern LobbyClaim lobby_claim(Lobby *lobby, uint32_t me, uint64_t event, uint32_t *place,
                              uint32_t *generation);
extern LobbyRelease lobby_release(Lobby *lobby, uint32_t me, uint32_t place, uint32_t generation);
extern LobbyRelease lobby_return(Lobby *lobby, uint32_t me, uint32_t place, uint32_t generation);

/*
 * The guest will leave the lobby with this backend (depart.c). Writes its channels behind its
 * state. Call this before lobby_return. False: there is no room.
 */
extern bool lobby_prepare_leave(const Lobby *lobby, uint32_t me, uint32_t place,
                                const void *channels, uint32_t len);

/* The backend has returned its guest, and waits until Weir has it. */
extern void lobby_idle_leaving(Lobby *lobby, uint32_t me);

/* Enters or leaves: the line's activity and process. */
extern void lobby_enter(Lobby *lobby, uint32_t me, uint32_t process, uint32_t latch);
extern void lobby_leave(const Lobby *lobby, uint32_t me);

extern void lobby_sleep(Lobby *lobby, uint32_t me);

/*
 * The guest is pinned, and core waits for its next message. Weir may end the guest's connection
 * then, and the backend ends with it. The line tells of a request when core begins to run it.
 */
extern void lobby_idle_pinned(Lobby *lobby, uint32_t me);
extern void lobby_work_pinned(Lobby *lobby, uint32_t me);

/*
 * Begins to serve a guest, which it has claimed or for which it has lingered. Returns the backend
 * that has to be woken, since it lingers and no other sleeps; -1: none.
 */
extern int lobby_serve(Lobby *lobby, uint32_t me);

/* Whether Weir has sent a message since this was asked before. */
extern bool lobby_called(Lobby *lobby, uint32_t me);

typedef enum LobbyLinger {
    LINGER_STAY, /* wait for the guest that one has */
    LINGER_RELEASE
} LobbyLinger;

/*
 * May this backend wait for its guest? It may while another one sleeps, or while it `holds`, which
 * ends by time. It asks this again whenever it is woken.
 */
extern LobbyLinger lobby_linger(Lobby *lobby, uint32_t me, uint32_t place, bool holds);

/* Weir's side. crates/room calls these functions. One thread of Weir has a lobby. */

/* The size of a `Lobby`, for a caller that does not know the structure. */
extern size_t lobby_view_size(void);

/*
 * As lobby_open, for Weir: the file has lobby_size(backends, places) bytes. False: this is no lobby
 * of this layout and of these counts.
 */
extern bool lobby_open_as_weir(Lobby *lobby, void *memory, uint32_t backends, uint32_t places);

/* Weir's descriptors. Without these, only lobby_strand may be called. */
extern void lobby_use(Lobby *lobby, int set, int base, int file, int blank);

/* The number of a place refers to this socket from now on, or to no client. False: it fails. */
extern bool lobby_put(const Lobby *lobby, uint32_t place, int socket);
extern void lobby_clear(const Lobby *lobby, uint32_t place);

/* Prepares a line for a new backend. */
extern void lobby_clear_line(const Lobby *lobby, uint32_t backend);

/* Sets the number of lines in which backends look for each other. */
extern void lobby_use_lines(const Lobby *lobby, uint32_t lines);

/* Tells the backends whether guests that listen leave the lobby. */
extern void lobby_set_gives_up(const Lobby *lobby, bool gives_up);

/*
 * FREE → TAKEN, for a guest that was told the parameters of this digest, and this process id. The
 * new generation; 0: the place is not free. lobby_write_login, lobby_put and lobby_admit follow.
 */
extern uint32_t lobby_take(const Lobby *lobby, uint32_t place, uint64_t told, uint32_t process);

/* Writes the settings of a startup packet. Without any, the window takes no memory. */
extern bool lobby_has_room_for(size_t settings_len);
extern bool lobby_write_login(const Lobby *lobby, uint32_t place, const void *settings, size_t len);

/* Makes a place free again that could not be filled after lobby_take. Is it free? */
extern bool lobby_untake(const Lobby *lobby, uint32_t place);

/* TAKEN → ARMED. False: nothing has changed, or the set does not take it and it is TAKEN again. */
extern bool lobby_admit(const Lobby *lobby, uint32_t place);

typedef enum LobbyParting {
    PARTING_ENDS,   /* the guest's connection ends */
    PARTING_GOES_ON /* another part of Weir has a copy of its descriptor */
} LobbyParting;

/* TAKEN → FREE. The socket leaves the set before its number does. */
extern bool lobby_vacate(const Lobby *lobby, uint32_t place, LobbyParting parting);

typedef enum LobbyRecall {
    RECALL_TAKEN, /* the guest is Weir's */
    RECALL_ASKED, /* its backend will return it, if all that linger are woken now */
    RECALL_NONE   /* there is no guest, or Weir has it already */
} LobbyRecall;

extern LobbyRecall lobby_recall(const Lobby *lobby, uint32_t place);

/*
 * Weir was told that a backend returns the guest of this generation: TAKEN(b) → TAKEN(0). False: it
 * does not.
 */
extern bool lobby_acknowledge(const Lobby *lobby, uint32_t place, uint32_t backend,
                              uint32_t generation);

/* Has this backend the guest of this generation? */
extern bool lobby_is_owner(const Lobby *lobby, uint32_t place, uint32_t backend,
                           uint32_t generation);

typedef enum LobbyLoss {
    LOSS_NONE,
    LOSS_CLOSE,   /* the backend died with the guest: close its connection. The place is TAKEN. */
    LOSS_RETURNED /* the backend had returned the guest, or lingered: the guest runs nothing */
} LobbyLoss;

/*
 * Takes a place from a dead backend. Returns the consequence for its guest. Call it for every
 * place, then call lobby_arm_again, and then wake all backends for which lobby_lingers is true.
 */
extern LobbyLoss lobby_reclaim(const Lobby *lobby, uint32_t backend, uint32_t place);

/* Arms every guest at rest: the dead backend may have had an event and not have claimed yet. */
extern void lobby_arm_again(const Lobby *lobby, uint32_t backend);

/* Called before a message is sent to a backend: one that serves without a pause looks at this. */
extern void lobby_call(const Lobby *lobby, uint32_t backend);

/* The backend that has returned this guest to leave with it. False: there is none. */
extern bool lobby_leaver(const Lobby *lobby, uint32_t place, uint32_t *backend);

/* The lengths of a guest's state, and of its channels behind it if it leaves. Then the bytes. */
extern void lobby_lengths(const Lobby *lobby, uint32_t place, uint32_t *state, uint32_t *channels);
extern bool lobby_read_window(const Lobby *lobby, uint32_t place, uint32_t from, void *into,
                              uint32_t len);

/* Of a lobby whose Weir was killed. */

/*
 * Arms a guest at rest, or one that a backend has: it may not be in the set, or may have lost its
 * event. Then the backend could not arm it, and it would be forgotten.
 */
extern void lobby_arm_anew(const Lobby *lobby, uint32_t place);

/*
 * Frees a place whose guest nobody knows, whatever its state is. Its socket is closed, unless the
 * number is another lobby's.
 */
extern void lobby_free(const Lobby *lobby, uint32_t place, bool has_number);

/*
 * Takes a guest that no backend serves, in a lobby that no process takes over: no backend will
 * claim it. False: a backend has it, or there is none.
 */
extern bool lobby_strand(const Lobby *lobby, uint32_t place);

/* What a backend does. */

extern LobbyActivity lobby_activity(const Lobby *lobby, uint32_t backend);

/* Does it wait for the guest that it has? It may hold it. */
extern bool lobby_lingers(const Lobby *lobby, uint32_t backend);

/* Has the backend of this line ever been in the lobby? It may have left again. */
extern bool lobby_has_come(const Lobby *lobby, uint32_t backend);

/* Is the state of the guest that it keeps too large for its place? */
extern bool lobby_is_too_large(const Lobby *lobby, uint32_t backend);

/* The number of its transaction: the running one or the last one. */
extern uint64_t lobby_transaction(const Lobby *lobby, uint32_t backend);

/* Its sums over all guests. */
extern void lobby_sums(const Lobby *lobby, uint32_t backend, uint64_t *queries, uint64_t *query_us,
                       uint64_t *transaction_us);

/*
 * How many backends there are, how many of them keep a guest between its transactions, and how many
 * of these do so because the guest's state is too large.
 */
extern void lobby_kept(const Lobby *lobby, uint32_t *all, uint32_t *keeping, uint32_t *large);

/* What a guest does. */

/*
 * The backend that serves this guest, the number of its transaction, and whether the guest is
 * pinned and no transaction was running. False: none serves it.
 */
extern bool lobby_serving(const Lobby *lobby, uint32_t place, uint32_t *backend,
                          uint64_t *transaction, bool *is_pinned_idle);

/* Does the guest run nothing? Its backend may linger with it. */
extern bool lobby_is_idle(const Lobby *lobby, uint32_t place);

/* When the last request came, and when the last transaction ended; 0: never. Monotonic clock. */
extern void lobby_times(const Lobby *lobby, uint32_t place, uint64_t *request_us,
                        uint64_t *transaction_us);
extern uint64_t lobby_transactions(const Lobby *lobby, uint32_t place);

typedef enum LobbyOrder {
    LOBBY_CANCEL, /* cancel the query */
    LOBBY_END,    /* say the last words to the guest, and end */
    LOBBY_ASK     /* answer what the guest does */
} LobbyOrder;

/* Writes an order for a transaction. The backend is to be interrupted then. */
extern void lobby_order(const Lobby *lobby, uint32_t backend, LobbyOrder order,
                        uint64_t transaction);

/* The answer to LOBBY_ASK, and since when; LOBBY_UNKNOWN: there is none yet. */
extern LobbyDoing lobby_answer(const Lobby *lobby, uint32_t backend, uint64_t *since_us);

/*
 * Leaves the body of an ErrorResponse for the backend that ends a guest. Words that are too long
 * are left out, and the guest gets the backend's own.
 */
extern void lobby_leave_words(const Lobby *lobby, uint32_t place, const void *body, size_t len);

#endif /* WEIR_LOBBY_H */
