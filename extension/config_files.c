/*
 * config_files.c: the files that the pooler's configuration names. Checks what the pooler could not
 * see any more: a text that would change the lines before or behind it.
 */
#include "weir.h"
#include "supervisor.h"

#include <unistd.h>

#include "libpq/libpq.h"
#include "postmaster/postmaster.h"

/* The pooler reads included files up to this depth. */
#define INCLUDE_DEPTH_MAX 10
#define BLANKS " \t\r\n\f\v"

/* The file that a line includes, or NULL. A header may stand before it in the line. */
static char *
included_by(char *line)
{
    char *name = strstr(line, "%include");

    if (name == NULL)
        return NULL;
    name += strlen("%include");
    name += strspn(name, BLANKS);
    for (size_t len = strlen(name); len > 0 && strchr(BLANKS, name[len - 1]) != NULL; len--)
        name[len - 1] = '\0';
    return name;
}

/*
 * Whether a file, or one that it includes, has a header [pgbouncer]. The header would reset all
 * settings before it, those of the authentication among them. Files that cannot be read are
 * ignored here: the pooler reports them.
 */
static bool
has_header(const char *path, int depth, char **where)
{
    FILE *file = depth > INCLUDE_DEPTH_MAX ? NULL : fopen(path, "re");
    char *line = NULL;
    size_t room = 0;
    bool found = false;

    if (file == NULL)
        return false;
    while (!found && getline(&line, &room, file) >= 0) {
        char *start = line + strspn(line, BLANKS);
        char *name;

        if (*start == ';' || *start == '#')
            continue;
        if (strstr(start, "[pgbouncer]") != NULL) {
            *where = pstrdup(path);
            found = true;
        }
        else if ((name = included_by(start)) != NULL)
            found = has_header(name, depth + 1, where);
    }
    free(line);
    fclose(file);
    return found;
}

static bool
check_config_file(void)
{
    char *where;

    if (weir_config_file[0] == '\0')
        return true;
    if (access(weir_config_file, R_OK) != 0) {
        complain("cannot read weir.config_file \"%s\": %s", weir_config_file, strerror(errno));
        return false;
    }
    if (!has_header(weir_config_file, 0, &where))
        return true;
    complain("%s \"%s\" must not have the header [pgbouncer]: its lines follow the server's own in "
             "that section",
             strcmp(where, weir_config_file) == 0 ? "weir.config_file"
                                                  : "the file that weir.config_file includes,",
             where);
    return false;
}

/* Whether a path survives as the value of a line: no line break, no blank at an end. */
static bool
fits_in_line(const char *setting, const char *path)
{
    size_t len = strlen(path);

    if (len == 0 || (strpbrk(path, "\r\n") == NULL && strchr(BLANKS, path[0]) == NULL &&
                     strchr(BLANKS, path[len - 1]) == NULL))
        return true;
    complain("%s \"%s\" has a line break, or a blank at an end, which the pooler cannot read",
             setting, path);
    return false;
}

/* The paths of the server's parameters that the pooler's configuration contains. */
static bool
check_paths(void)
{
    return !EnableSSL ||
           (fits_in_line("ssl_cert_file", ssl_cert_file) &&
            fits_in_line("ssl_key_file", ssl_key_file) &&
            fits_in_line("ssl_ca_file", ssl_ca_file == NULL ? "" : ssl_ca_file));
}

/* Whether the pooler can be told of its files. If not, the log says why. */
bool
config_files_check(void)
{
    return check_config_file() && check_paths();
}
