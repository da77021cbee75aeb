/*
 * ident.c: pg_ident.conf for the pooler. The server's own parser reads the file. The maps are then
 * written in the language of Weir's auth_ident_file, under numbers, since their names may be of a
 * form that Weir does not read.
 *
 * Weir's maps have no regular expressions for the names of system users. A map with one cannot be
 * used, and rules that name it refuse their clients.
 */
#include "weir.h"
#include "compat.h"
#include "supervisor.h"

#include "libpq/hba.h"

/* Reads the file into lines of the current memory context. False: it has mistakes. */
bool
ident_load(List **maps)
{
    List *tokens = NIL;
    FILE *file = compat_hba_open(IdentFileName, &tokens);
    ListCell *cell;
    bool fits = file != NULL;

    *maps = NIL;
    if (file == NULL)
        return false;
    foreach (cell, tokens) {
        TokenizedAuthLine *line = (TokenizedAuthLine *) lfirst(cell);
        IdentLine *parsed = line->err_msg == NULL ? parse_ident_line(line, DEBUG1) : NULL;

        fits = fits && parsed != NULL;
        if (parsed != NULL)
            *maps = lappend(*maps, parsed);
    }
    compat_hba_close(file);
    return fits;
}

/* Where a map is first mentioned: its number. A map that is nowhere has the number behind all. */
static int
place_of(const List *maps, const char *name)
{
    int at = 0;
    ListCell *cell;

    foreach (cell, maps) {
        if (strcmp(((const IdentLine *) lfirst(cell))->usermap, name) == 0)
            break;
        at++;
    }
    return at;
}

/* The number of a map that Weir can use; -1: it cannot. */
int
ident_number(const List *maps, const char *name)
{
    ListCell *cell;

    foreach (cell, maps) {
        const IdentLine *line = lfirst(cell);

        if (strcmp(line->usermap, name) == 0 &&
            (compat_system_user_is_regex(line) ||
             !access_can_write(compat_system_user(line))))
            return -1;
    }
    return place_of(maps, name);
}

static void
pair(StringInfo out, int number, const char *system_user, const char *role)
{
    appendStringInfo(out, "%d ", number);
    text_quoted(out, system_user, '"');
    appendStringInfoChar(out, ' ');
    text_quoted(out, role, '"');
    appendStringInfoChar(out, '\n');
}

void
ident_write(StringInfo out, const List *maps, const Catalog *catalog)
{
    ListCell *cell;
    ListCell *at;

    /* Each map has a line, so that no rule names an unknown one. No user has an empty name. */
    for (int number = 0; number <= list_length(maps); number++)
        pair(out, number, "", "");
    foreach (cell, maps) {
        const IdentLine *line = lfirst(cell);
        AuthToken wanted = compat_ident_role(line);

        if (ident_number(maps, line->usermap) < 0)
            continue;
        foreach (at, catalog->roles) {
            const Role *role = lfirst(at);

            if (role->can_login && role_matches(&wanted, role))
                pair(out, place_of(maps, line->usermap), compat_system_user(line), role->name);
        }
    }
}
