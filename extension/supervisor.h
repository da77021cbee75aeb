/*
 * supervisor.h: declarations for the files that start the pooler and keep it running.
 *
 * They run in one background worker, the supervisor, which has one thread. No line of them runs in
 * a client's backend.
 */
#ifndef WEIR_SUPERVISOR_H
#define WEIR_SUPERVISOR_H

#include "postgres.h"

#include "lib/stringinfo.h"
#include "libpq/hba.h"

/*
 * The socket of the console. The data folder is the working folder of every server process, and
 * pg_basebackup leaves out what is in this folder of it.
 */
#define WEIR_CONSOLE_SOCKET "pg_stat_tmp/weir.sock"
/* The socket by which the next supervisor finds a pooler that runs. */
#define WEIR_DOOR_SOCKET "pg_stat_tmp/weir.door"
/*
 * The socket at which backends fetch the clients of direct pools (docs/direct.md). The pooler makes
 * it: its working folder is the data folder, too. crates/config/src/data_path.rs has this path.
 */
#define WEIR_DIRECT_SOCKET "pg_stat_tmp/weir.direct"

/* parameters.c */

typedef enum Schedule {
    SCHEDULE_RANDOM,
    SCHEDULE_ROUND_ROBIN,
    SCHEDULE_LOAD_BALANCING
} Schedule;

typedef enum DataPath {
    DATA_PATH_PROXY,
    DATA_PATH_DIRECT,
    DATA_PATH_AUTO
} DataPath;

extern int weir_connection_proxies;
extern int weir_session_pool_size;
extern int weir_proxy_port;
extern int weir_max_sessions;
extern int weir_session_schedule;
extern int weir_idle_pool_worker_timeout;
extern int weir_spare_connections;
extern bool weir_restart_pooler_on_reload;
extern char *weir_pool_mode;
extern int weir_data_path;
extern char *weir_config_file;
extern char *weir_program;
extern bool weir_create_extension;

extern void parameters_define(void);

/* supervisor.c */
extern void supervisor_register(void);

/* complain.c: a problem gets one line in the log, and no second one until it changes. */
extern void complain(const char *format, ...) pg_attribute_printf(1, 2);
extern void complain_no_more(void);
extern const char *complaint(void);

/* refuse.c: clients that come while the pooler cannot be started. */
extern void refuse_callers(const char *why);
extern int refuse_watch(int control);
extern void refuse_end(void);

/*
 * sockets.c: the listening sockets. They stay open while the pooler is started again. A pooler that
 * is adopted brings them along.
 */
#define WEIR_SOCKETS_MAX 64

extern bool sockets_open(void);
extern void sockets_adopt(const int *fds, int count);
extern int sockets_list(int *fds);
extern void sockets_leave(void);

/* access.c: the roles that may log in, and pg_hba.conf in the words of Weir's auth_hba_file. */
extern void access_watch(void);
extern void access_read_rules(void);
extern bool access_refresh(void);
extern bool access_can_write(const char *name);
extern const char *access_users(void);
extern const char *access_rules(void);
extern const char *access_maps(void);
extern const char *access_limits(void);
extern const char *access_server_host(void);
extern bool access_needs_tls(void);

/* hba.c: the lines of pg_hba.conf; ident.c: those of pg_ident.conf. */

typedef struct Role {
    Oid oid;
    char *name;
    char *verifier; /* empty: none that is valid */
    int limit;      /* of connections; -1: none */
    bool can_login;
    bool is_super;
} Role;

typedef struct Database {
    char *name;
    Oid owner;
    struct ArrayType *privileges; /* NULL: the default ones, with which every role may connect */
} Database;

typedef struct Catalog {
    List *roles;     /* of Role */
    List *databases; /* of Database */
} Catalog;

/* The lines of the two files, as the server's parser has read them. */
typedef struct Rules {
    List *lines; /* of HbaLine */
    List *maps;  /* of IdentLine */
} Rules;

extern bool hba_load(List **lines);
extern void hba_write(StringInfo out, const Rules *rules, const Catalog *catalog);
extern char *hba_interfaces(const List *lines);
extern bool hba_local_needs_peer(const List *lines);
extern bool hba_asks_for_tls(const List *lines);
extern void text_quoted(StringInfo out, const char *text, char quote);
extern bool role_matches(const AuthToken *token, const Role *role);
extern bool ident_load(List **maps);
extern int ident_number(const List *maps, const char *name);
extern void ident_write(StringInfo out, const List *maps, const Catalog *catalog);

/* config_files.c: the files that the pooler's configuration names. */
extern bool config_files_check(void);

/* child.c: the process of the pooler. */

/* What the pooler says when it serves, up to its version. */
#define WEIR_HELLO "weir 2 "

/* The files of the pooler's configuration, in the order of their descriptors there. */
typedef enum PoolerFile {
    FILE_CONFIG,
    FILE_USERS,
    FILE_RULES,
    FILE_MAPS
} PoolerFile;

#define WEIR_FILES 4

typedef struct Child {
    pid_t pid;    /* 0: there is none */
    pid_t keeper; /* its parent, which is our child; 0: it is our child itself */
    int control;  /* our end of the connection; -1: closed */
    bool ready;   /* it has said that it serves */
    bool failed;  /* it is ended, since it did not behave as a pooler */
    bool adopted; /* it is no child of ours, so the system does not tell of its end */
} Child;

extern bool child_start(Child *child, const char *binary, const int *files);
extern char *child_path_of(PoolerFile file);
extern bool child_give(Child *child, const int *files);
extern void child_listen(Child *child);
extern void child_signal(Child *child, int signal);
extern void child_signal_stopped(pid_t pid, int signal);
extern bool child_reap(Child *child, int *status);
extern void child_end(Child *child);
extern void close_from(int fd);

/* watchdog.c: a pooler that serves, but does not answer. */
#define WATCHDOG_MS 10000

extern bool watchdog_expires(const Child *child);

/* keeper.c: the parent of the pooler in a container. */
extern bool keeper_is_needed(void);
extern pid_t keeper_fork(int door, pid_t *keeper);
extern int keeper_status(int status);

/* adopt.c: a pooler that has outlived its supervisor. */
extern void adopt_make_cookie(void);
extern int adopt_open_door(void);
extern void adopt_tell_cookie(int control);
extern bool adopt_pooler(Child *child);
extern void adopt_leave_door(void);

/* console.c */
extern bool console_order(const char *text, int timeout_ms);

#endif /* WEIR_SUPERVISOR_H */
