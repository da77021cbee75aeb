/*
 * parameters.c: the parameters of the pooler in the server. They exist only if the library is in
 * shared_preload_libraries.
 */
#include "weir.h"
#include "supervisor.h"

#include <limits.h>
#include <unistd.h>

int weir_connection_proxies;
int weir_session_pool_size;
int weir_proxy_port;
int weir_max_sessions;
int weir_session_schedule = SCHEDULE_LOAD_BALANCING;
int weir_idle_pool_worker_timeout;
int weir_spare_connections = -1;
bool weir_restart_pooler_on_reload = false;
char *weir_pool_mode = NULL;
int weir_data_path = DATA_PATH_PROXY;
char *weir_config_file = NULL;
char *weir_program = NULL;
bool weir_create_extension = true;

static bool proxying_gucs = false;
static bool multitenant_proxy = false;

static const struct config_enum_entry schedules[] = {
    {"random", SCHEDULE_RANDOM, false},
    {"round-robin", SCHEDULE_ROUND_ROBIN, false},
    {"load-balancing", SCHEDULE_LOAD_BALANCING, false},
    {NULL, 0, false}
};

static const struct config_enum_entry data_paths[] = {
    {"proxy", DATA_PATH_PROXY, false},
    {"direct", DATA_PATH_DIRECT, false},
    {"auto", DATA_PATH_AUTO, false},
    {NULL, 0, false}
};

static bool
check_pool_mode(char **newval, void **extra, GucSource source)
{
    static const char *const modes[] = {"auto", "session", "transaction", "statement"};

    for (int i = 0; i < lengthof(modes); i++)
        if (strcmp(*newval, modes[i]) == 0)
            return true;
    GUC_check_errdetail("The modes are auto, session, transaction and statement.");
    return false;
}

/* A line break would begin another line of the pooler's configuration. */
static bool
check_path(char **newval, void **extra, GucSource source)
{
    if (strpbrk(*newval, "\r\n") == NULL)
        return true;
    GUC_check_errdetail("The path contains a line break.");
    return false;
}

static bool
check_multitenant(bool *newval, void **extra, GucSource source)
{
    if (!*newval)
        return true;
    GUC_check_errdetail("Weir does not share server connections between roles.");
    return false;
}

static int
default_proxies(void)
{
    return sysconf(_SC_NPROCESSORS_ONLN) > 1 ? 2 : 1;
}

void
parameters_define(void)
{
    DefineCustomIntVariable("weir.connection_proxies",
                            "The number of worker threads of the pooler.",
                            "0: the server starts no pooler.",
                            &weir_connection_proxies, default_proxies(), 0, 1024,
                            PGC_POSTMASTER, 0, NULL, NULL, NULL);
    DefineCustomIntVariable("weir.session_pool_size",
                            "Server connections of each database and role, for each worker thread.",
                            "The worker threads share the connections of a pool.",
                            &weir_session_pool_size, 10, 1, 100000,
                            PGC_SIGHUP, 0, NULL, NULL, NULL);
    DefineCustomIntVariable("weir.proxy_port",
                            "The port on which the pooler listens.",
                            NULL,
                            &weir_proxy_port, 6543, 1, 65535,
                            PGC_POSTMASTER, 0, NULL, NULL, NULL);
    DefineCustomIntVariable("weir.max_sessions",
                            "The limit of clients of the pooler, for each worker thread.",
                            NULL,
                            &weir_max_sessions, 1000, 1, 1000000,
                            PGC_SIGHUP, 0, NULL, NULL, NULL);
    DefineCustomEnumVariable("weir.session_schedule",
                             "How the pooler chooses the worker thread of a new client.",
                             NULL,
                             &weir_session_schedule, SCHEDULE_LOAD_BALANCING, schedules,
                             PGC_POSTMASTER, 0, NULL, NULL, NULL);
    DefineCustomIntVariable("weir.idle_pool_worker_timeout",
                            "Idle time after which the pooler closes a server connection.",
                            "0: never.",
                            &weir_idle_pool_worker_timeout, 0, 0, INT_MAX,
                            PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
    DefineCustomIntVariable("weir.spare_connections",
                            "Connections that the pooler leaves to clients of the server itself.",
                            "-1: a tenth of max_connections, at least 5. The reserved ones come "
                            "on top.",
                            &weir_spare_connections, -1, -1, 262143,
                            PGC_SIGHUP, 0, NULL, NULL, NULL);
    DefineCustomBoolVariable("weir.restart_pooler_on_reload",
                             "Whether a reload of the server replaces the server connections.",
                             "A connection that is in use is closed when its client releases it.",
                             &weir_restart_pooler_on_reload, false, PGC_SIGHUP, 0,
                             NULL, NULL, NULL);
    DefineCustomBoolVariable("weir.proxying_gucs",
                             "Has no effect: in auto mode, each client keeps its SET.",
                             NULL,
                             &proxying_gucs, false, PGC_SIGHUP, 0, NULL, NULL, NULL);
    DefineCustomBoolVariable("weir.multitenant_proxy",
                             "Must be off: roles do not share server connections.",
                             NULL,
                             &multitenant_proxy, false, PGC_SIGHUP, 0,
                             check_multitenant, NULL, NULL);
    DefineCustomStringVariable("weir.pool_mode",
                               "When a server connection is released.",
                               "auto, session, transaction or statement.",
                               &weir_pool_mode, "auto", PGC_SIGHUP, 0,
                               check_pool_mode, NULL, NULL);
    DefineCustomEnumVariable("weir.data_path",
                             "Whether the pooler or the backends handle the queries of clients.",
                             "proxy: the pooler. direct, auto: the backends, where they can.",
                             &weir_data_path, DATA_PATH_PROXY, data_paths,
                             PGC_SIGHUP, 0, NULL, NULL, NULL);
    DefineCustomStringVariable("weir.config_file",
                               "A file with further settings of the pooler.",
                               "Its lines have the form of pgbouncer.ini.",
                               &weir_config_file, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY,
                               check_path, NULL, NULL);
    DefineCustomStringVariable("weir.program",
                               "The program of the pooler.",
                               "Empty: weir in the folder of postgres, /usr/bin or /usr/local/bin.",
                               &weir_program, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY,
                               check_path, NULL, NULL);
    DefineCustomBoolVariable("weir.create_extension",
                             "Whether the database postgres gets the extension weir.",
                             NULL,
                             &weir_create_extension, true, PGC_POSTMASTER, 0, NULL, NULL, NULL);
}
