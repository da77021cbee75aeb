/*
 * sockets.c: the sockets on which the pooler listens. The supervisor opens them once and keeps
 * them, so clients that connect while the pooler is started again wait in the kernel's queue.
 *
 * The addresses are those of the server (listen_addresses, unix_socket_directories) with the port
 * weir.proxy_port, and a unix socket in the data folder for the console.
 */
#include "weir.h"
#include "supervisor.h"

#include <fcntl.h>
#include <grp.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "libpq/libpq.h"
#include "postmaster/postmaster.h"
#include "storage/ipc.h"
#include "utils/varlena.h"

#define BACKLOG 1024

static int listening[WEIR_SOCKETS_MAX];
static int count = 0;
static char *files[WEIR_SOCKETS_MAX]; /* of the unix sockets */
static int file_count = 0;

static void
close_all(void)
{
    for (int i = 0; i < count; i++)
        close(listening[i]);
    for (int i = 0; i < file_count; i++) {
        unlink(files[i]);
        free(files[i]);
    }
    count = file_count = 0;
}

static void
close_at_exit(int code, Datum argument)
{
    if (is_own_process())
        close_all();
}

/* Takes the socket if it listens. */
static bool
listen_on(int fd, const struct sockaddr *address, socklen_t len, const char *shown)
{
    if (count < WEIR_SOCKETS_MAX && bind(fd, address, len) == 0 && listen(fd, BACKLOG) == 0) {
        listening[count++] = fd;
        return true;
    }
    complain("cannot listen on %s: %s", shown, strerror(errno));
    close(fd);
    return false;
}

static bool
open_inet(const char *host)
{
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    char port[16];
    char shown[NI_MAXHOST + 32];
    int error;
    bool any = false;

    snprintf(port, sizeof(port), "%d", weir_proxy_port);
    snprintf(shown, sizeof(shown), "%s port %s", host, port);
    error = getaddrinfo(strcmp(host, "*") == 0 ? NULL : host, port, &hints, &found);
    if (error != 0) {
        complain("cannot listen on %s: %s", shown, gai_strerror(error));
        return false;
    }
    for (struct addrinfo *at = found; at != NULL; at = at->ai_next) {
        int on = 1;
        int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        /* A kernel without IPv6 is no problem, as it is none for the server. */
        if (fd < 0)
            continue;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (at->ai_family == AF_INET6)
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
        any |= listen_on(fd, at->ai_addr, at->ai_addrlen, shown);
    }
    freeaddrinfo(found);
    return any;
}

/* Returns whether a process listens at the address. */
static bool
is_answered(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool answered;

    if (fd < 0)
        return false;
    answered = connect(fd, (const struct sockaddr *) address, sizeof(*address)) == 0 ||
               errno == EAGAIN;
    close(fd);
    return answered;
}

/* The group of the sockets' files, as for those of the server. -1: it is not known. */
static gid_t
group_of_files(void)
{
    char *end;
    unsigned long number = strtoul(Unix_socket_group, &end, 10);
    struct group *group;

    if (*end == '\0')
        return (gid_t) number;
    group = getgrnam(Unix_socket_group);
    return group == NULL ? (gid_t) -1 : group->gr_gid;
}

/* A client may only use a socket that it may use at the server. */
static bool
give_file(const char *path, mode_t mode, bool to_group)
{
    gid_t group = to_group && Unix_socket_group[0] != '\0' ? group_of_files() : getegid();

    if (group == (gid_t) -1) {
        complain("cannot listen on %s: the group \"%s\" of unix_socket_group does not exist", path,
                 Unix_socket_group);
        return false;
    }
    /* Not before the group has the file: the mode may be for the group. */
    if ((group != getegid() && chown(path, (uid_t) -1, group) != 0) || chmod(path, mode) != 0) {
        complain("cannot set group and permissions of %s: %s", path, strerror(errno));
        return false;
    }
    return true;
}

/* The address of a unix socket, whose file is removed if it is left over from a crash. */
static bool
claim_path(const char *path, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address->sun_path)) {
        complain("cannot listen on %s: the path is too long", path);
        return false;
    }
    strcpy(address->sun_path, path);
    if (is_answered(address)) {
        complain("cannot listen on %s: another process listens there", path);
        return false;
    }
    if (path[0] == '@')
        address->sun_path[0] = '\0';
    else
        unlink(path);
    return true;
}

static bool
open_unix(const char *path, mode_t mode, bool to_group)
{
    struct sockaddr_un address;
    bool is_file = path[0] != '@';
    socklen_t len = offsetof(struct sockaddr_un, sun_path) + strlen(path) + (is_file ? 1 : 0);
    int fd;

    if (!claim_path(path, &address))
        return false;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || !listen_on(fd, (struct sockaddr *) &address, len, path))
        return false;
    if (!is_file)
        return true;
    files[file_count++] = strdup(path);
    return give_file(path, mode, to_group);
}

static void
close_all_at_exit(void)
{
    static bool will_close = false;

    if (!will_close)
        on_proc_exit(close_at_exit, 0);
    will_close = true;
}

/* Takes the sockets of a pooler that runs. */
void
sockets_adopt(const int *fds, int number)
{
    close_all_at_exit();
    for (int i = 0; i < number; i++) {
        struct sockaddr_un address = {.sun_family = AF_UNSPEC};
        socklen_t len = sizeof(address);

        listening[count++] = fds[i];
        if (getsockname(fds[i], (struct sockaddr *) &address, &len) == 0 &&
            address.sun_family == AF_UNIX && address.sun_path[0] != '\0')
            files[file_count++] = strdup(address.sun_path);
    }
}

/* Opens the sockets, if they are not open. All or none: the reason of a failure is in the log. */
bool
sockets_open(void)
{
    char *addresses = pstrdup(ListenAddresses);
    char *folders = pstrdup(Unix_socket_directories);
    List *hosts = NIL;
    List *paths = NIL;
    ListCell *cell;
    bool complete;

    if (count > 0)
        return true;
    close_all_at_exit();
    complete = open_unix(WEIR_CONSOLE_SOCKET, 0600, false) &&
               SplitGUCList(addresses, ',', &hosts) &&
               SplitDirectoriesString(folders, ',', &paths);
    foreach (cell, hosts)
        complete = complete && open_inet((char *) lfirst(cell));
    foreach (cell, paths) {
        char *path = psprintf("%s/.s.PGSQL.%d", (char *) lfirst(cell), weir_proxy_port);

        complete = complete && open_unix(path, Unix_socket_permissions, true);
        pfree(path);
    }
    if (!complete)
        close_all();
    list_free(hosts);
    list_free_deep(paths);
    pfree(addresses);
    pfree(folders);
    return complete;
}

int
sockets_list(int *fds)
{
    memcpy(fds, listening, count * sizeof(int));
    return count;
}

/* Leaves the sockets and their files to the pooler, which goes on without this process. */
void
sockets_leave(void)
{
    count = file_count = 0;
}
