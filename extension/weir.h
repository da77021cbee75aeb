/*
 * weir.h: what the files of the library share.
 *
 * Order of calls: _PG_init (weir.c) defines the parameters. When the startup packet asks for
 * reports, report_install hooks into the backend. From then on report.c asks the other files to
 * write what the session holds, before each ReadyForQuery with status I.
 *
 * Rule for every function that report.c calls: it may raise an ERROR (report.c catches it and
 * reports `u`), it runs no query, and it never waits for a lock.
 */
#ifndef WEIR_H
#define WEIR_H

#include "postgres.h"

#include <unistd.h>

#include "miscadmin.h"
#include "utils/guc.h"

#define WEIR_VERSION "1.1"

/* The highest form of the report that this library can send. */
#define WEIR_REPORT_FORM 1

/* The places at which a test makes the library fail. */
#ifdef WEIR_TEST_FAULTS
#include "test/fault.h"
#else
#define fault_wanted(name) false
#define fault_point(name) ((void) 0)
#define fault_conflict(name) ((void) 0)
#endif

/*
 * Is this a process of the server? Code in it may fork, as functions of PL/Perl do. The child has
 * its signal handlers and callbacks, and shares its memory and its sockets.
 */
static inline bool
is_own_process(void)
{
    return MyProcPid == (int) getpid();
}

/* weir.c: the parameters. */

typedef enum Unsupported {
    UNSUPPORTED_PIN,
    UNSUPPORTED_WARN,
    UNSUPPORTED_ERROR
} Unsupported;

extern int weir_unsupported;
extern char *weir_key;
extern bool weir_client_address;

/* text.c: a report's text, of limited length. What does not fit sets `full`. */

typedef struct Text {
    char *start;
    char *end; /* behind what is written */
    char *limit;
    bool full;
} Text;

extern void text_literal(Text *out, const char *literal);
extern void text_escaped(Text *out, const char *bytes, size_t len);
extern void text_item(Text *out, const char *letter);
extern bool text_unescape(const char *from, const char *end, char *to, size_t size);

/* report.c */
extern void report_install(void);
extern bool report_is_on(void);
extern int report_put(char type, const char *body, size_t len);
extern void report_set_flush(int (*flush)(void));
extern int report_flush(void);
extern void report_renew(void);

/* settings.c */
struct config_generic;
extern bool settings_write(Text *out);
extern void settings_write_value(Text *out, struct config_generic *setting);
extern bool settings_are_privileged(void);

/* events.c */
extern void events_install(void);
extern bool events_pending(void);

/* What a client has done with numbers of sequences, of which the session keeps the last. */
typedef enum Numbers {
    NUMBERS_NONE,
    NUMBERS_DRAWN,
    NUMBERS_ASKED /* for a number of an earlier transaction */
} Numbers;

extern bool events_take(Numbers *numbers);
extern void events_write(Text *out);
extern void events_note_slot(void);

/* statements.c */
extern void statements_note(const char *name);
extern void statements_forget_all(void);
extern bool statements_write(Text *out);
extern void channels_note(void);
extern void channels_write(Text *out);

/* objects.c */
extern void objects_install(void);
extern bool objects_write(Text *out);
extern bool objects_are_near(void); /* temporary ones: they exist, or the transaction uses them */
extern void slots_note(void);
extern bool slots_held(void);

/* context.c, for the hooks of the other files */
extern void context_note_set(const char *name); /* before it is set; NULL: it may be any */
extern void context_note_analysis(void);

/* apply.c */
extern void apply_install(void);
extern bool apply_is_marked(void);
extern void apply_note_error(void);
extern void apply_check(void);

/* client.c */
extern bool client_check(char **newval, void **extra, GucSource source);
extern void client_assign(const char *newval, void *extra);

#endif /* WEIR_H */
