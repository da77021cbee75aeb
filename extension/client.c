/*
 * client.c: the address that pg_stat_activity shows.
 *
 * Weir sets `weir.client` to `KEY ADDRESS PORT`, where KEY is the value of `weir.key` in its
 * startup packet. The clients that it serves do not know the key. The address and the port are
 * kept and shown. Any other value counts as empty: the connection's own address is shown then.
 * Neither logins nor inet_client_addr() nor the log make use of it.
 */
#include "weir.h"
#include "compat.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "libpq/libpq-be.h"
#include "miscadmin.h"
#include "utils/backend_status.h"

/* `unix`, or an address as inet_pton reads it, then a space and the port. */
#define SHOWN_MAX 64

/* The one in force; NULL: the connection's own. It belongs to the setting. */
static const SockAddr *shown = NULL;

/* Takes the key and the space behind it off; NULL if the value does not begin with them. */
static const char *
behind_key(const char *value)
{
    size_t len = weir_key != NULL ? strlen(weir_key) : 0;
    unsigned char differs = 0;

    if (len == 0 || strlen(value) <= len || value[len] != ' ')
        return NULL;
    for (size_t i = 0; i < len; i++)
        differs |= (unsigned char) value[i] ^ (unsigned char) weir_key[i];
    return differs == 0 ? value + len + 1 : NULL;
}

static bool
parse_port(const char *digits, uint16 *port)
{
    unsigned long value = 0;
    const char *at = digits;

    for (; *at >= '0' && *at <= '9' && at - digits < 6; at++)
        value = value * 10 + (*at - '0');
    if (at == digits || *at != '\0' || value > 65535)
        return false;
    *port = (uint16) value;
    return true;
}

static bool
parse(const char *value, SockAddr *address)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *) &address->addr;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *) &address->addr;
    const char *space = strchr(value, ' ');
    char host[SHOWN_MAX];
    uint16 port;

    memset(address, 0, sizeof(*address));
    if (strcmp(value, "unix") == 0) {
        address->addr.ss_family = AF_UNIX;
        address->salen = sizeof(sa_family_t);
        return true;
    }
    if (space == NULL || space - value >= sizeof(host) || !parse_port(space + 1, &port))
        return false;
    memcpy(host, value, space - value);
    host[space - value] = '\0';
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        address->salen = sizeof(*v4);
        return true;
    }
    if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        address->salen = sizeof(*v6);
        return true;
    }
    return false;
}

static void apply(void);

/* Keeps the address and the port of a value that Weir has made, and nothing of any other. */
bool
client_check(char **newval, void **extra, GucSource source)
{
    const char *value = source == PGC_S_SESSION && report_is_on() ? behind_key(*newval) : NULL;
    SockAddr address;
    char *kept;

    *extra = NULL;
    if (value != NULL && !parse(value, &address))
        value = NULL;
    kept = compat_guc_strdup(value != NULL ? value : "");
    if (kept == NULL)
        return false;
    if (value != NULL) {
        *extra = compat_guc_malloc(sizeof(address));
        if (*extra == NULL) {
            compat_guc_free(kept);
            return false;
        }
        memcpy(*extra, &address, sizeof(address));
    }
    compat_guc_free(*newval);
    *newval = kept;
    return true;
}

void
client_assign(const char *newval, void *extra)
{
    const SockAddr *before = shown;

    shown = extra;
    if (shown != before && report_is_on())
        apply();
}

/* Writes the address into this backend's entry of pg_stat_activity. */
static void
apply(void)
{
    volatile PgBackendStatus *entry = MyBEEntry;
    const SockAddr *address = shown != NULL && weir_client_address ? shown : &MyProcPort->raddr;
    const char *name = address != shown ? MyProcPort->remote_hostname : NULL;

    if (entry == NULL || entry->st_procpid != MyProcPid)
        return;
    PGSTAT_BEGIN_WRITE_ACTIVITY(entry);
    memcpy((char *) &entry->st_clientaddr, address, sizeof(SockAddr));
    strlcpy((char *) entry->st_clienthostname, name != NULL ? name : "", NAMEDATALEN);
    PGSTAT_END_WRITE_ACTIVITY(entry);
}
