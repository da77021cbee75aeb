/*
 * hba.c: pg_hba.conf for the pooler. The server's own parser reads the file. Each line is then
 * written in the language of Weir's auth_hba_file, with names in place of groups, regular
 * expressions and keywords.
 *
 * Rule: a line must never become wider or vanish. What Weir cannot judge becomes a rule that
 * refuses all clients for which the line might be meant, with a text that names the line.
 */
#include "weir.h"
#include "compat.h"
#include "supervisor.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "common/ip.h"
#include "libpq/hba.h"
#include "libpq/libpq.h"
#include "libpq/ifaddr.h"
#include "nodes/parsenodes.h"
#include "utils/acl.h"
#include "utils/memutils.h"

#define FILE_NAME "pg_hba.conf"

/* LDAP_SCOPE_SUBTREE of ldap.h, which not every server is built with. */
#define LDAP_SUBTREE 2

/* Reads the file into lines of the current memory context. False: it has mistakes. */
bool
hba_load(List **lines)
{
    List *tokens = NIL;
    FILE *file = compat_hba_open(HbaFileName, &tokens);
    ListCell *cell;

    *lines = NIL;
    if (file == NULL)
        return false;
    foreach (cell, tokens) {
        TokenizedAuthLine *line = (TokenizedAuthLine *) lfirst(cell);
        HbaLine *parsed = line->err_msg == NULL ? parse_hba_line(line, DEBUG1) : NULL;

        if (parsed == NULL) {
            *lines = NIL;
            break;
        }
        *lines = lappend(*lines, parsed);
    }
    compat_hba_close(file);
    return *lines != NIL;
}

/* The text between two quotes. A quote in it is doubled. */
void
text_quoted(StringInfo out, const char *text, char quote)
{
    appendStringInfoChar(out, quote);
    for (; *text != '\0'; text++) {
        if (*text == quote)
            appendStringInfoChar(out, quote);
        appendStringInfoChar(out, *text);
    }
    appendStringInfoChar(out, quote);
}

static bool
is_keyword(const AuthToken *token, const char *word)
{
    return !token->quoted && strcmp(token->string, word) == 0;
}

/* As the server's check_role(). */
bool
role_matches(const AuthToken *token, const Role *role)
{
    if (!token->quoted && token->string[0] == '+') {
        Oid group = get_role_oid(token->string + 1, true);

        return OidIsValid(group) && is_member_of_role_nosuper(role->oid, group);
    }
    if (is_keyword(token, "all"))
        return true;
    return compat_is_regex(token) ? compat_regex_matches(token, role->name)
                                  : strcmp(token->string, role->name) == 0;
}

static void
item(StringInfo list, const char *name)
{
    if (list->len > 0)
        appendStringInfoChar(list, ',');
    text_quoted(list, name, '"');
}

/*
 * The roles of a line, and of those only the members of `group` if it is valid. `by_name`: only
 * roles that may log in, each by its name.
 */
static char *
users_of(const HbaLine *line, const Catalog *catalog, Oid group, bool by_name)
{
    StringInfoData list;
    ListCell *cell;
    ListCell *at;

    initStringInfo(&list);
    foreach (at, line->roles) {
        if (is_keyword(lfirst(at), "all") && !OidIsValid(group) && !by_name)
            return pstrdup("all");
    }
    foreach (cell, catalog->roles) {
        const Role *role = lfirst(cell);

        if (OidIsValid(group) && !is_member_of_role_nosuper(role->oid, group))
            continue;
        if (by_name && !role->can_login)
            continue;
        foreach (at, line->roles) {
            if (role_matches(lfirst(at), role)) {
                item(&list, role->name);
                break;
            }
        }
    }
    return list.data;
}

/* The databases of a line, without those that depend on the role. */
static char *
databases_of(const HbaLine *line, const Catalog *catalog)
{
    StringInfoData list;
    ListCell *cell;
    ListCell *at;

    initStringInfo(&list);
    foreach (at, line->databases) {
        const AuthToken *token = lfirst(at);

        if (is_keyword(token, "all"))
            appendStringInfo(&list, "%sall", list.len > 0 ? "," : "");
        else if (is_keyword(token, "sameuser") || is_keyword(token, "replication"))
            appendStringInfo(&list, "%s%s", list.len > 0 ? "," : "", token->string);
        else if (is_keyword(token, "samerole") || is_keyword(token, "samegroup"))
            continue;
        else if (compat_is_regex(token)) {
            foreach (cell, catalog->databases) {
                const Database *database = lfirst(cell);

                if (compat_regex_matches(token, database->name))
                    item(&list, database->name);
            }
        }
        else
            item(&list, token->string);
    }
    return list.data;
}

static bool
depends_on_role(const HbaLine *line)
{
    ListCell *at;

    foreach (at, line->databases) {
        if (is_keyword(lfirst(at), "samerole") || is_keyword(lfirst(at), "samegroup"))
            return true;
    }
    return false;
}

/* A network in numbers, with the bits behind the mask cleared. */
static void
network(StringInfo out, const struct sockaddr *address, const struct sockaddr *mask, bool single)
{
    char shown[INET6_ADDRSTRLEN];
    char shown_mask[INET6_ADDRSTRLEN];
    unsigned char bytes[16];
    unsigned char mask_bytes[16];
    int family = address->sa_family;
    int len = family == AF_INET ? 4 : 16;
    const void *from = family == AF_INET
                           ? (const void *) &((const struct sockaddr_in *) address)->sin_addr
                           : (const void *) &((const struct sockaddr_in6 *) address)->sin6_addr;
    const void *mask_from = family == AF_INET
                                ? (const void *) &((const struct sockaddr_in *) mask)->sin_addr
                                : (const void *) &((const struct sockaddr_in6 *) mask)->sin6_addr;

    memcpy(bytes, from, len);
    if (single)
        memset(mask_bytes, 0xff, len);
    else
        memcpy(mask_bytes, mask_from, len);
    for (int i = 0; i < len; i++)
        bytes[i] &= mask_bytes[i];
    inet_ntop(family, bytes, shown, sizeof(shown));
    inet_ntop(family, mask_bytes, shown_mask, sizeof(shown_mask));
    appendStringInfo(out, "%s %s\n", shown, shown_mask);
}

typedef struct Networks {
    StringInfoData text; /* one a line */
    bool single;
} Networks;

static void
note_interface(struct sockaddr *address, struct sockaddr *mask, void *into)
{
    Networks *all = into;

    if (address->sa_family == AF_INET || address->sa_family == AF_INET6)
        network(&all->text, address, mask, all->single);
}

/* The networks of this machine if a line depends on them, which may change at any time. */
char *
hba_interfaces(const List *lines)
{
    Networks all = {.single = false};
    ListCell *cell;

    initStringInfo(&all.text);
    foreach (cell, lines) {
        const HbaLine *line = lfirst(cell);

        if (line->conntype == ctLocal || (line->ip_cmp_method != ipCmpSameHost &&
                                          line->ip_cmp_method != ipCmpSameNet))
            continue;
        if (pg_foreach_ifaddr(note_interface, &all) < 0)
            appendStringInfoString(&all.text, "unknown");
        break;
    }
    return all.text.data;
}

/* The addresses of a line, one a line. */
static char *
addresses_of(const HbaLine *line, bool *unknown)
{
    Networks all = {.single = line->ip_cmp_method == ipCmpSameHost};

    *unknown = false;
    initStringInfo(&all.text);
    if (line->conntype == ctLocal) {
        appendStringInfoString(&all.text, "\n");
        return all.text.data;
    }
    switch (line->ip_cmp_method) {
    case ipCmpAll:
        appendStringInfoString(&all.text, "all\n");
        break;
    case ipCmpSameHost:
    case ipCmpSameNet:
        /* On failure there is no network, so what comes next must not be reached. */
        if (pg_foreach_ifaddr(note_interface, &all) < 0) {
            *unknown = true;
            appendStringInfoString(&all.text, "all\n");
        }
        break;
    case ipCmpMask:
        if (line->hostname != NULL) {
            *unknown = true;
            appendStringInfoString(&all.text, "all\n");
        }
        else
            network(&all.text, (const struct sockaddr *) &line->addr,
                    (const struct sockaddr *) &line->mask, false);
        break;
    }
    return all.text.data;
}

static void
option(StringInfo out, const char *name, const char *value)
{
    if (value == NULL)
        return;
    appendStringInfo(out, " %s=", name);
    text_quoted(out, value, '"');
}

/* Only what Weir can judge as the server does; NULL otherwise. */
static char *
ldap_of(const HbaLine *line)
{
    StringInfoData out;
    char number[16];

    if (line->ldapserver == NULL || line->ldapserver[0] == '\0')
        return NULL;
    if (line->ldapbasedn != NULL && line->ldapscope != LDAP_SUBTREE)
        return NULL;
    if (line->ldapbasedn == NULL && line->ldapprefix == NULL && line->ldapsuffix == NULL)
        return NULL;
    initStringInfo(&out);
    appendStringInfoString(&out, "ldap");
    option(&out, "ldapscheme", line->ldapscheme);
    option(&out, "ldapserver", line->ldapserver);
    snprintf(number, sizeof(number), "%d", line->ldapport);
    if (line->ldapport != 0)
        option(&out, "ldapport", number);
    if (line->ldaptls)
        option(&out, "ldaptls", "1");
    option(&out, "ldapbinddn", line->ldapbinddn);
    option(&out, "ldapbindpasswd", line->ldapbindpasswd);
    option(&out, "ldapbasedn", line->ldapbasedn);
    option(&out, "ldapsearchattribute", line->ldapsearchattribute);
    option(&out, "ldapsearchfilter", line->ldapsearchfilter);
    option(&out, "ldapprefix", line->ldapprefix);
    option(&out, "ldapsuffix", line->ldapsuffix);
    return strpbrk(out.data, "\r\n") == NULL ? out.data : NULL;
}

/* By a certificate. Weir has no lists of revoked ones, and looks at the common name only. */
static char *
cert_of(const HbaLine *line)
{
    if (ssl_crl_file[0] != '\0' || ssl_crl_dir[0] != '\0' ||
        line->clientcertname != clientCertCN)
        return NULL;
    return "cert clientname=CN";
}

/* By the service that the server would ask. */
static char *
pam_of(const HbaLine *line)
{
    StringInfoData out;

    /* Weir gives the client's address to PAM, and no name for it. */
    if (line->pam_use_hostname)
        return NULL;
    initStringInfo(&out);
    appendStringInfoString(&out, "pam");
    option(&out, "pamservice", line->pamservice != NULL ? line->pamservice : "postgresql");
    return strpbrk(out.data, "\r\n") == NULL ? out.data : NULL;
}

/* The method in Weir's words, or NULL. */
static char *
known_method_of(const HbaLine *line)
{
    /* A certificate as a second proof is not known to Weir's rules. */
    if (line->clientcert != clientCertOff && line->auth_method != uaCert)
        return NULL;
    switch (line->auth_method) {
    case uaTrust:
        return "trust";
    case uaReject:
    case uaImplicitReject:
        return "reject";
    case uaPassword:
        return "password";
    case uaMD5:
        return "md5";
    case uaSCRAM:
        return "scram-sha-256";
    case uaPeer:
        return "peer";
    case uaCert:
        return cert_of(line);
    case uaLDAP:
        return ldap_of(line);
    case uaPAM:
        return pam_of(line);
    default:
        return NULL;
    }
}

/* The same with the map of the line. */
static char *
method_of(const HbaLine *line, const List *maps)
{
    char *method = known_method_of(line);
    int number;

    if (method == NULL || line->usermap == NULL)
        return method;
    number = ident_number(maps, line->usermap);
    return number < 0 ? NULL : psprintf("%s map=%d", method, number);
}

/* Whether the password is checked by a service that may know names which are no roles. */
static bool
is_judged_elsewhere(const HbaLine *line)
{
    return line->auth_method == uaLDAP || line->auth_method == uaPAM;
}

static const char *
connection_of(const HbaLine *line)
{
    switch (line->conntype) {
    case ctLocal:
        return "local";
    case ctHost:
    case ctHostNoGSS:
        return "host";
    case ctHostSSL:
        return "hostssl";
    case ctHostNoSSL:
        return "hostnossl";
    case ctHostGSS:
        /* Weir has no clients with GSSAPI encryption. */
        return NULL;
    }
    return NULL;
}

static void
rules(StringInfo out, const HbaLine *line, const char *databases, const char *users,
      const char *known_method)
{
    const char *connection = connection_of(line);
    bool unknown;
    char *addresses = addresses_of(line, &unknown);
    const char *method = unknown ? NULL : known_method;

    if (connection == NULL || databases[0] == '\0' || users[0] == '\0')
        return;
    for (char *at = addresses, *end; *at != '\0'; at = end + 1) {
        end = strchr(at, '\n');
        appendStringInfo(out, "%s %s %s %.*s ", connection, databases, users, (int) (end - at), at);
        if (method != NULL)
            appendStringInfoString(out, method);
        else if (unknown)
            appendStringInfo(out, "reject \"line %d of %s has a host name, which Weir does not "
                             "look up\"", line->linenumber, FILE_NAME);
        else
            appendStringInfo(out, "reject \"the method \"\"%s\"\" of line %d of %s, or one of its "
                             "options, does not work through Weir\"",
                             hba_authname(line->auth_method), line->linenumber, FILE_NAME);
        appendStringInfoChar(out, '\n');
    }
}

/* Weir asks LDAP servers and PAM about names that are no roles, too, so those are refused here. */
static void
rules_for(StringInfo out, const HbaLine *line, const List *maps, const Catalog *catalog,
          const char *databases, Oid group)
{
    char *method = method_of(line, maps);

    if (method != NULL && is_judged_elsewhere(line)) {
        rules(out, line, databases, users_of(line, catalog, group, true), method);
        method = "reject \"the role does not exist, or may not log in\"";
    }
    rules(out, line, databases, users_of(line, catalog, group, false), method);
}

static bool
all_may_connect(const Database *database)
{
    const AclItem *items;

    if (database->privileges == NULL)
        return true;
    items = ACL_DAT(database->privileges);
    for (int i = 0; i < ACL_NUM(database->privileges); i++) {
        if (items[i].ai_grantee == ACL_ID_PUBLIC &&
            (ACLITEM_GET_PRIVS(items[i]) & ACL_CONNECT) != 0)
            return true;
    }
    return false;
}

/*
 * The roles that may connect to a database, unless all may. The server looks at this after the
 * login, and so does Weir.
 */
static void
reservations(StringInfo out, const Catalog *catalog)
{
    ListCell *at;
    ListCell *cell;

    foreach (at, catalog->databases) {
        const Database *database = lfirst(at);
        StringInfoData list;

        if (all_may_connect(database))
            continue;
        initStringInfo(&list);
        foreach (cell, catalog->roles) {
            const Role *role = lfirst(cell);

            if (role->can_login &&
                (role->is_super || aclmask(database->privileges, role->oid, database->owner,
                                           ACL_CONNECT, ACLMASK_ANY) != 0))
                item(&list, role->name);
        }
        /* No role has an empty name. */
        if (list.len == 0)
            item(&list, "");
        appendStringInfoString(out, "only ");
        text_quoted(out, database->name, '"');
        appendStringInfo(out, " %s\n", list.data);
        pfree(list.data);
    }
}

/*
 * The OIDs of the roles. A role that gets the name of another one is not that role: the pooler
 * replaces its server connections.
 */
static void
role_numbers(StringInfo out, const Catalog *catalog)
{
    ListCell *cell;

    foreach (cell, catalog->roles) {
        const Role *role = lfirst(cell);

        if (!role->can_login)
            continue;
        appendStringInfoString(out, "role ");
        text_quoted(out, role->name, '"');
        appendStringInfo(out, " %u\n", role->oid);
    }
}

void
hba_write(StringInfo out, const Rules *rules, const Catalog *catalog)
{
    ListCell *cell;
    ListCell *at;

    appendStringInfo(out, "name_len_max %d\n", NAMEDATALEN - 1);
    role_numbers(out, catalog);
    reservations(out, catalog);
    foreach (cell, rules->lines) {
        const HbaLine *line = lfirst(cell);

        rules_for(out, line, rules->maps, catalog, databases_of(line, catalog), InvalidOid);
        if (!depends_on_role(line))
            continue;
        /* A database with the name of a role, for the members of that role. */
        foreach (at, catalog->databases) {
            const char *name = ((const Database *) lfirst(at))->name;
            Oid group = get_role_oid(name, true);
            StringInfoData database;

            if (!OidIsValid(group))
                continue;
            initStringInfo(&database);
            item(&database, name);
            rules_for(out, line, rules->maps, catalog, database.data, group);
        }
    }
}

static bool
is_for_all(const List *tokens)
{
    ListCell *at;

    foreach (at, tokens) {
        if (is_keyword(lfirst(at), "all"))
            return true;
    }
    return false;
}

/* Returns whether a rule applies to TLS connections only. Weir's own connection may be one. */
bool
hba_asks_for_tls(const List *lines)
{
    ListCell *cell;

    foreach (cell, lines) {
        if (((const HbaLine *) lfirst(cell))->conntype == ctHostSSL)
            return true;
    }
    return false;
}

/* Returns whether the unix socket needs peer authentication, as Debian's configuration does. */
bool
hba_local_needs_peer(const List *lines)
{
    ListCell *cell;

    foreach (cell, lines) {
        const HbaLine *line = lfirst(cell);

        if (line->conntype == ctLocal && is_for_all(line->databases) && is_for_all(line->roles))
            return line->auth_method == uaPeer && line->usermap == NULL;
    }
    return true;
}
