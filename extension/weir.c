/*
 * weir.c: the library's entry and its parameters.
 *
 * A session that does not ask for reports gets the parameters and nothing else: no hook, no
 * callback, no memory.
 */
#include "attend.h"
#include "compat.h"
#include "supervisor.h"

#include <limits.h>

#include "access/parallel.h"
#include "libpq/libpq-be.h"
#include "miscadmin.h"
#include "replication/walsender.h"
#include "tcop/dest.h"
#include "tcop/tcopprot.h"

WEIR_MODULE_MAGIC;

extern WEIR_EXPORT void _PG_init(void);

int weir_unsupported = UNSUPPORTED_PIN;
char *weir_key = NULL;
bool weir_client_address = true;

char *weir_ticket = NULL;
char *weir_control_socket = NULL;

static int report_form = 0;
static char *route = NULL;
static char *token = NULL;
static char *client = NULL;

static const struct config_enum_entry unsupported_words[] = {
    {"pin", UNSUPPORTED_PIN, false},
    {"warn", UNSUPPORTED_WARN, false},
    {"error", UNSUPPORTED_ERROR, false},
    {NULL, 0, false}
};

/* Only a startup packet can ask: no file, no ALTER ROLE, no ALTER DATABASE. */
static inline bool
may_come_from(GucSource source)
{
    return source <= PGC_S_DYNAMIC_DEFAULT || source == PGC_S_CLIENT;
}

static bool
check_report(int *newval, void **extra, GucSource source)
{
    if (*newval == 0 || may_come_from(source))
        return true;
    GUC_check_errdetail("\"weir.report\" can be set in the startup packet only.");
    return false;
}

static bool
check_unsupported(int *newval, void **extra, GucSource source)
{
    if (may_come_from(source))
        return true;
    GUC_check_errdetail("\"weir.unsupported\" can be set in the startup packet only.");
    return false;
}

static bool
check_secret(char **newval, void **extra, GucSource source)
{
    if (may_come_from(source))
        return true;
    GUC_check_errdetail("This parameter can be set in the startup packet only.");
    return false;
}

/*
 * The first ticket comes with the startup packet, and another one with a text of Weir's own. That
 * one does not become the parameter's value, which parallel workers would get: it is `extra`.
 */
static bool
check_ticket(char **newval, void **extra, GucSource source)
{
    char *nothing;

    if (**newval == '\0')
        return true;
    if (source != PGC_S_SESSION || !apply_is_marked())
        return check_secret(newval, extra, source);
    nothing = compat_guc_strdup("");
    if (nothing == NULL)
        return false;
    *extra = *newval;
    *newval = nothing;
    return true;
}

/* A rollback assigns former values again. So a ticket counts only while Weir's text runs. */
static void
assign_ticket(const char *newval, void *extra)
{
    if (extra != NULL && apply_is_marked() && report_is_on())
        attend_with(extra);
}

/* A session of a client's, and not a parallel worker that has been given its leader's settings. */
static bool
is_client_session(void)
{
    return MyProcPort != NULL && !am_walsender && !IsParallelWorker() &&
           whereToSendOutput == DestRemote;
}

static void
assign_report(int newval, void *extra)
{
    if (newval > 0 && is_client_session())
        report_install();
}

static const char *
show_nothing(void)
{
    return "";
}

void
_PG_init(void)
{
    DefineCustomStringVariable("weir.route",
                               "Where Weir sends this session's queries.",
                               "PostgreSQL itself makes no use of it.",
                               &route, "", PGC_USERSET, 0, NULL, NULL, NULL);
    DefineCustomStringVariable("weir.token",
                               "What this session has to have seen before it reads.",
                               "PostgreSQL itself makes no use of it.",
                               &token, "", PGC_USERSET, 0, NULL, NULL, NULL);
    DefineCustomBoolVariable("weir.client_address",
                             "Whether pg_stat_activity shows the address that Weir names.",
                             "If it is off, weir.client has no effect.",
                             &weir_client_address, true, PGC_SIGHUP, 0, NULL, NULL, NULL);
    DefineCustomStringVariable("weir.key",
                               "What a value of weir.client has to begin with.",
                               "Without it, weir.client has no effect.",
                               &weir_key, "", PGC_BACKEND,
                               GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE |
                                   GUC_SUPERUSER_ONLY,
                               check_secret, NULL, show_nothing);
    DefineCustomStringVariable("weir.ticket",
                               "By which Weir knows this backend on its control socket.",
                               "A backend with a ticket serves the sockets of Weir's clients.",
                               &weir_ticket, "", PGC_USERSET,
                               GUC_NO_SHOW_ALL | GUC_NO_RESET_ALL | GUC_NOT_IN_SAMPLE |
                                   GUC_DISALLOW_IN_FILE,
                               check_ticket, assign_ticket, show_nothing);
    DefineCustomStringVariable("weir.control_socket",
                               "The socket on which Weir awaits backends that serve its clients.",
                               "Empty: weir/control in the data folder. The pooler in the server "
                               "has a socket of its own.",
                               &weir_control_socket, "", PGC_SUSET, GUC_SUPERUSER_ONLY,
                               NULL, NULL, NULL);
    DefineCustomEnumVariable("weir.unsupported",
                             "What becomes of statements that need a session of their own.",
                             "With \"error\" they are refused, in functions and triggers, too.",
                             &weir_unsupported, UNSUPPORTED_PIN, unsupported_words, PGC_BACKEND,
                             GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
                             check_unsupported, NULL, NULL);
    /* The last one, since it is what installs the rest. */
    DefineCustomIntVariable("weir.report",
                            "The form of the reports of this session's state.",
                            "0 is none; else the highest form that Weir can read.",
                            &report_form, 0, 0, INT_MAX, PGC_BACKEND,
                            GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
                            check_report, assign_report, NULL);
    /* Behind it: its values count only where reports are on. */
    DefineCustomStringVariable("weir.client",
                               "The address that pg_stat_activity shows for this session.",
                               "A key, an address and a port, as Weir sets them.",
                               &client, "", PGC_USERSET, GUC_NO_RESET_ALL | GUC_NOT_IN_SAMPLE,
                               client_check, client_assign, NULL);
    if (process_shared_preload_libraries_in_progress)
        parameters_define();
    MarkGUCPrefixReserved("weir");
    if (process_shared_preload_libraries_in_progress)
        supervisor_register();
}
