/*
 * supervisor.c: the background worker that starts the pooler and keeps it running.
 *
 *      +---------+   sockets, configuration,    +---------+
 *      | waiting | --- program: all there ----> | serving |
 *      +---------+                              +---------+
 *           ^                                        |
 *           +------- the pooler has ended -----------+
 *
 * Clients that come while it waits get an error if the last start has failed (refuse.c). At its
 * start, it looks for a pooler that has outlived another supervisor (adopt.c). While it
 * waits, it tries again after a pause, which doubles from 0.1 s to 10 s. If the pooler has served,
 * the pause is at most 0.5 s. If it has served for ten seconds, there is no pause.
 */
#include "weir.h"
#include "supervisor.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "access/xact.h"
#include "executor/spi.h"
#include "libpq/libpq.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "postmaster/postmaster.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/pmsignal.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/pidfile.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "compat.h"

/* The interval of checks of the catalogs and postmaster.pid. */
#define TICK_MS 300
#define PAUSE_MIN_MS 100
#define PAUSE_MAX_MS 10000
/* A pooler that has served for this time has started successfully. */
#define STABLE_MS 10000
/* The longest pause after a pooler that has served, even for a short time. */
#define PAUSE_SERVED_MS 500
/* The maximum time of a start. */
#define READY_PATIENCE_MS 10000
#define RECONNECT_PATIENCE_MS 1000
#define POOL_SIZE_MAX 1000000

extern WEIR_EXPORT void weir_supervise(Datum argument);
extern WEIR_EXPORT void weir_create(Datum argument);

static Child child = {.control = -1};
static TimestampTz started_at;
static TimestampTz next_at = 0;
static int pause_ms = 0;
static bool is_stopping = false; /* a smart shutdown has begun */
static bool is_untold = false;    /* something has changed, and the pooler was not told */
static bool is_failing = false;   /* the last start has failed, so clients get an error */
static bool is_published = false; /* the current users and rules can be read */

/* Files in memory. The pooler gets descriptors of them, and opens them by child_path_of(). */
static int files[WEIR_FILES] = {-1, -1, -1, -1};

/* Makes a new file, which takes the place of the one before. */
static bool
publish(PoolerFile file, const char *name, const char *text)
{
    int fresh = memfd_create(name, MFD_CLOEXEC);
    size_t len = strlen(text);

    if (fresh < 0 || write(fresh, text, len) != (ssize_t) len) {
        complain("cannot write the configuration of the pooler: %s", strerror(errno));
        if (fresh >= 0)
            close(fresh);
        return false;
    }
    if (files[file] >= 0)
        close(files[file]);
    files[file] = fresh;
    return true;
}

static bool
is_on(const char *setting)
{
    const char *value = GetConfigOption(setting, true, false);

    return value != NULL && value[0] != '\0' && strcmp(value, "off") != 0;
}

static int
number(const char *setting)
{
    const char *value = GetConfigOption(setting, true, false);

    return value == NULL ? 0 : atoi(value);
}

static void
write_config(StringInfo out)
{
    static const char *const schedules[] = {"random", "round-robin", "load-balancing"};
    static const char *const data_paths[] = {"proxy", "direct", "auto"};
    int64 pool = (int64) weir_connection_proxies * weir_session_pool_size;
    int64 clients = (int64) weir_connection_proxies * weir_max_sessions;
    int all = number("max_connections");
    int spare = weir_spare_connections >= 0 ? weir_spare_connections : Max(all / 10, 5);
    int servers = all - number("superuser_reserved_connections") - number("reserved_connections") -
                  spare;

    /* The lines of weir.config_file come last, so they take precedence. */
    appendStringInfoString(out, "; made by the library weir\n[databases]\n* = host=");
    text_quoted(out, access_server_host(), '\'');
    appendStringInfo(out, " port=%d\n", PostPortNumber);
    appendStringInfo(out, "[users]\n%s[pgbouncer]\n", access_limits());
    appendStringInfo(out, "listen_port = %d\nlisten_addr =\nunix_socket_dir =\n", weir_proxy_port);
    appendStringInfo(out, "workers = %d\nsession_schedule = %s\n", weir_connection_proxies,
                     schedules[weir_session_schedule]);
    appendStringInfo(out, "pool_mode = %s\n", weir_pool_mode);
    appendStringInfo(out, "data_path = %s\ndirect_socket = %s\n", data_paths[weir_data_path],
                     WEIR_DIRECT_SOCKET);
    appendStringInfo(out, "default_pool_size = %d\n", (int) Min(pool, POOL_SIZE_MAX));
    appendStringInfo(out, "max_client_conn = %d\n", (int) Min(clients, INT_MAX / 2));
    appendStringInfo(out, "max_server_connections = %d\n", Max(servers, 1));
    appendStringInfo(out, "server_idle_timeout = %.3f\n", weir_idle_pool_worker_timeout / 1000.0);
    appendStringInfoString(out, "server_lifetime = 86400\nerror_codes = weir\n"
                           "console_columns = weir\nlog_stats = 0\n");
    appendStringInfo(out, "log_connections = %d\nlog_disconnections = %d\n",
                     is_on("log_connections"), is_on("log_disconnections"));
    appendStringInfo(out, "auth_type = hba\nauth_file = %s\nauth_hba_file = %s\n",
                     child_path_of(FILE_USERS), child_path_of(FILE_RULES));
    appendStringInfo(out, "auth_ident_file = %s\n", child_path_of(FILE_MAPS));
    appendStringInfo(out, "server_tls_sslmode = %s\n",
                     EnableSSL && access_needs_tls() ? "prefer" : "disable");
    if (EnableSSL) {
        appendStringInfo(out, "client_tls_sslmode = prefer\nclient_tls_cert_file = %s\n"
                         "client_tls_key_file = %s\n", ssl_cert_file, ssl_key_file);
        if (ssl_ca_file != NULL && ssl_ca_file[0] != '\0')
            appendStringInfo(out, "client_tls_ca_file = %s\n", ssl_ca_file);
    }
    if (weir_config_file[0] != '\0')
        appendStringInfo(out, "%%include %s\n", weir_config_file);
}

/*
 * Writes the files of the pooler. Logins do not depend on weir.config_file: with a mistake there,
 * a running pooler keeps its other settings. False: no pooler may be started.
 */
static bool
publish_all(void)
{
    StringInfoData config;
    bool done;

    if (!publish(FILE_USERS, "weir-users", access_users()) ||
        !publish(FILE_RULES, "weir-rules", access_rules()) ||
        !publish(FILE_MAPS, "weir-maps", access_maps()))
        return false;
    is_published = true;
    if (!config_files_check())
        return false;
    initStringInfo(&config);
    write_config(&config);
    done = publish(FILE_CONFIG, "weir.ini", config.data);
    pfree(config.data);
    return done;
}

/* The program of the pooler, or NULL. */
static char *
find_binary(void)
{
    char *beside = pstrdup(my_exec_path);
    char *slash = strrchr(beside, '/');
    const char *const folders[] = {beside, "/usr/bin", "/usr/local/bin"};

    if (weir_program[0] != '\0') {
        if (access(weir_program, X_OK) == 0)
            return pstrdup(weir_program);
        complain("cannot start the pooler: weir.program \"%s\": %s", weir_program, strerror(errno));
        return NULL;
    }
    if (slash != NULL)
        *slash = '\0';
    for (size_t i = 0; i < lengthof(folders); i++) {
        char *path = psprintf("%s/weir", folders[i]);

        if (access(path, X_OK) == 0)
            return path;
    }
    complain("cannot start the pooler: there is no program weir in %s, %s or %s, and weir.program "
             "is not set", folders[0], folders[1], folders[2]);
    return NULL;
}

static void
plan_next(int ms)
{
    next_at = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), ms);
}

static void
back_off(void)
{
    plan_next(pause_ms);
    pause_ms = pause_ms == 0 ? PAUSE_MIN_MS : Min(pause_ms * 2, PAUSE_MAX_MS);
}

/* Whether there is a pooler already. It gets its files anew, since it had them from another one. */
static bool
try_to_adopt(void)
{
    static bool has_tried = false;

    if (has_tried)
        return false;
    has_tried = true;
    if (!adopt_pooler(&child))
        return false;
    started_at = GetCurrentTimestamp();
    is_untold = true;
    return true;
}

static void
try_to_start(void)
{
    char *binary;

    if (try_to_adopt())
        return;
    if (!sockets_open() || !publish_all() || (binary = find_binary()) == NULL) {
        /* The pooler has not failed, so the pause stays short. */
        is_failing = true;
        plan_next(1000);
        return;
    }
    started_at = GetCurrentTimestamp();
    is_untold = false;
    if (!child_start(&child, binary, files)) {
        is_failing = true;
        back_off();
    }
}

/* Deals with the end of the pooler. */
static void
note_end(int status)
{
    const char *how = status == -1 ? "its parent has ended before it, so its status is not known"
                                   : wait_result_to_str(status);
    bool was_ready = child.ready;
    bool was_stable = was_ready &&
                      TimestampDifferenceExceeds(started_at, GetCurrentTimestamp(), STABLE_MS);

    if (is_stopping)
        return;
    if (was_stable)
        pause_ms = 0;
    else if (was_ready)
        pause_ms = Min(pause_ms, PAUSE_SERVED_MS);
    if (was_ready)
        ereport(LOG, (errmsg("weir: the pooler has ended: %s", how),
                      errdetail("It is started again in %d ms.", pause_ms)));
    else if (!child.failed)
        complain("the pooler has ended before it served: %s", how);
    is_failing = !was_ready;
    back_off();
}

/* Returns whether the server waits for its last clients (pg_ctl stop -m smart). */
static bool
server_is_stopping(void)
{
    char text[1024];
    int fd = open("postmaster.pid", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    char *line = text;

    if (fd >= 0)
        close(fd);
    if (len <= 0)
        return false;
    text[len] = '\0';
    for (int i = 1; line != NULL && i < LOCK_FILE_LINE_PM_STATUS; i++) {
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
    return line != NULL && strncmp(line, PM_STATUS_STOPPING, strlen("stopping")) == 0;
}

/* A pooler that is starting does not read its files again. It is told as soon as it serves. */
static void
tell_of_changes(void)
{
    if (child.pid <= 0 || !child.ready)
        return;
    is_published = false;
    publish_all();
    if (is_published && child_give(&child, files))
        is_untold = false;
}

static void
reload(void)
{
    ConfigReloadPending = false;
    ProcessConfigFile(PGC_SIGHUP);
    access_read_rules();
    access_refresh();
    is_untold = true;
    tell_of_changes();
    if (weir_restart_pooler_on_reload && child.ready)
        console_order("RECONNECT", RECONNECT_PATIENCE_MS);
    /* The reason why it does not start may have been corrected. */
    if (child.pid == 0) {
        is_failing = false;
        pause_ms = 0;
        plan_next(0);
    }
}

static void
look_around(void)
{
    int status;

    child_listen(&child);
    if (child_reap(&child, &status))
        note_end(status);
    if (child.pid > 0 && !child.ready && !child.failed &&
        TimestampDifferenceExceeds(started_at, GetCurrentTimestamp(), READY_PATIENCE_MS)) {
        child.failed = true;
        complain("the pooler has not served within %d s of its start and is ended",
                 READY_PATIENCE_MS / 1000);
        child_signal(&child, SIGKILL);
    }
    if (watchdog_expires(&child)) {
        child.failed = true;
        complain("the pooler has not answered for %d s and is ended", WATCHDOG_MS / 1000);
        child_signal(&child, SIGKILL);
    }
    if (!is_stopping && server_is_stopping()) {
        is_stopping = true;
        ereport(LOG, (errmsg("weir: the pooler closes its idle connections"),
                      errdetail("The server waits for its clients to leave.")));
        child_signal(&child, SIGINT);
    }
    if (child.pid == 0 && !is_stopping && GetCurrentTimestamp() >= next_at)
        try_to_start();
    if (child.pid > 0 && child.ready)
        is_failing = false;
    if (is_failing)
        refuse_callers(complaint());
    else
        refuse_end();
}

/*
 * At the end of the supervisor. The pooler ends with it if it was told to, or if the server has
 * ended. After an error, the pooler stays for the next supervisor.
 */
static void
end_child(int code, Datum argument)
{
    bool is_serving = child.pid > 0 && child.ready && !child.failed;

    if (!is_own_process())
        return;
    if (is_serving && !ShutdownRequestPending && PostmasterIsAlive()) {
        sockets_leave();
        adopt_leave_door();
    }
    else
        child_end(&child);
}

static void
wake(SIGNAL_ARGS)
{
    int saved = errno;

    SetLatch(MyLatch);
    errno = saved;
}

static void
wait_for_something(void)
{
    long ms = TICK_MS;
    int events = WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH;
    int socket = refuse_watch(child.control);

    if (child.pid == 0 && !is_stopping)
        ms = Max(Min(ms, TimestampDifferenceMilliseconds(GetCurrentTimestamp(), next_at)), 1);
    if (socket >= 0)
        WaitLatchOrSocket(MyLatch, events | WL_SOCKET_READABLE, socket, ms, PG_WAIT_EXTENSION);
    else
        WaitLatch(MyLatch, events, ms, PG_WAIT_EXTENSION);
    ResetLatch(MyLatch);
    CHECK_FOR_INTERRUPTS();
}

void
weir_supervise(Datum argument)
{
    MemoryContext own;

    pqsignal(SIGHUP, SignalHandlerForConfigReload);
    pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
    pqsignal(SIGCHLD, wake);
    BackgroundWorkerUnblockSignals();
    BackgroundWorkerInitializeConnection(NULL, NULL, 0);
    before_shmem_exit(end_child, (Datum) 0);
    access_watch();
    access_read_rules();
    own = AllocSetContextCreate(TopMemoryContext, "weir supervisor", ALLOCSET_DEFAULT_SIZES);
    access_refresh();
    while (!ShutdownRequestPending) {
        MemoryContextSwitchTo(own);
        MemoryContextReset(own);
        if (ConfigReloadPending)
            reload();
        else {
            is_untold |= access_refresh();
            if (is_untold)
                tell_of_changes();
        }
        MemoryContextSwitchTo(own);
        look_around();
        wait_for_something();
    }
    /* 1: the server starts this worker again, unless the server shuts down. */
    proc_exit(1);
}

static bool
finds(const char *query)
{
    return SPI_execute(query, true, 1) == SPI_OK_SELECT && SPI_processed > 0;
}

static void
create_extension(void)
{
    if (!finds("SELECT FROM pg_catalog.pg_available_extensions() WHERE name = 'weir'"))
        ereport(LOG, (errmsg("weir: there is no pg_pooler_state(), because the files of the "
                             "extension weir are not installed")));
    else if (SPI_execute("CREATE EXTENSION weir SCHEMA public", false, 0) == SPI_OK_UTILITY)
        ereport(LOG, (errmsg("weir: created the extension weir in the database postgres")));
}

/* Creates the extension in the database postgres, for pg_pooler_state() and its like. */
void
weir_create(Datum argument)
{
    /* The usual handler of workers raises its error at once, also while WAL is written. */
    pqsignal(SIGTERM, die);
    BackgroundWorkerUnblockSignals();
    BackgroundWorkerInitializeConnection("postgres", NULL, 0);
    /* The owner of the database may have given it another one. */
    SetConfigOption("search_path", "pg_catalog", PGC_USERSET, PGC_S_OVERRIDE);
    StartTransactionCommand();
    XactIsoLevel = XACT_READ_COMMITTED;
    SPI_connect();
    PushActiveSnapshot(GetTransactionSnapshot());
    if (!finds("SELECT FROM pg_catalog.pg_extension WHERE extname = 'weir'"))
        create_extension();
    SPI_finish();
    PopActiveSnapshot();
    CommitTransactionCommand();
    proc_exit(0);
}

/* The path from which this library was loaded; "weir" if it is too long for a worker's record. */
static void
name_library(char *into, size_t size)
{
    Dl_info info;

    if (dladdr((void *) weir_supervise, &info) == 0 || info.dli_fname == NULL ||
        strlcpy(into, info.dli_fname, size) >= size)
        strlcpy(into, "weir", size);
}

/*
 * Whether the server is there for clients. pg_upgrade starts the old and the new server for itself
 * alone, and discards what anyone else writes. A single user's server has no workers: so works
 * `postgres --single`, as initdb and pg_rewind start it.
 */
static bool
is_for_clients(void)
{
    return IsPostmasterEnvironment && !IsBinaryUpgrade;
}

void
supervisor_register(void)
{
    BackgroundWorker worker = {0};

    if (weir_connection_proxies == 0 || !is_for_clients())
        return;
    adopt_make_cookie();
    worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
    name_library(worker.bgw_library_name, sizeof(worker.bgw_library_name));
    strlcpy(worker.bgw_name, "weir supervisor", sizeof(worker.bgw_name));
    strlcpy(worker.bgw_type, "weir supervisor", sizeof(worker.bgw_type));
    strlcpy(worker.bgw_function_name, "weir_supervise", sizeof(worker.bgw_function_name));
    worker.bgw_start_time = BgWorkerStart_ConsistentState;
    worker.bgw_restart_time = 1;
    RegisterBackgroundWorker(&worker);
    if (!weir_create_extension)
        return;
    strlcpy(worker.bgw_name, "weir extension", sizeof(worker.bgw_name));
    strlcpy(worker.bgw_type, "weir extension", sizeof(worker.bgw_type));
    strlcpy(worker.bgw_function_name, "weir_create", sizeof(worker.bgw_function_name));
    worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
    worker.bgw_restart_time = BGW_NEVER_RESTART;
    RegisterBackgroundWorker(&worker);
}
