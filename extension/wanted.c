/*
 * wanted.c: reads a window's text of statements, which names.c has written. Its form is checked:
 * another process may have written every byte.
 */
#include "attend.h"

static uint64
read_number(const char **at, const char *end, char stop)
{
    uint64 value = 0;

    while (*at < end && **at >= '0' && **at <= '9')
        value = value * 10 + (*(*at)++ - '0');
    if (*at == end || **at != stop)
        elog(ERROR, "the statements of a guest cannot be read");
    (*at)++;
    return value;
}

/* The end of the item at `at`, which has this letter. NULL: it has another one. */
static const char *
item_end(const char *at, const char *end, char letter)
{
    const char *stop;

    if (end - at < 4 || at[0] != ';' || at[1] != letter || at[2] != ':')
        return NULL;
    stop = memchr(at + 1, ';', end - at - 1);
    return stop != NULL ? stop : end;
}

/* The labels come first: `;c:LABEL`. Returns how many there are. */
int
wanted_labels(const char **at, const char *end, char ***labels)
{
    const char *stop;
    int count = 0;

    for (const char *one = *at; (stop = item_end(one, end, 'c')) != NULL; one = stop)
        count++;
    *labels = palloc((count + 1) * sizeof(char *));
    for (int i = 0; i < count; i++) {
        stop = item_end(*at, end, 'c');
        (*labels)[i] = pnstrdup(*at + 3, stop - *at - 3);
        *at = stop;
    }
    return count;
}

/* `;n:NAME=NUMBER OF LABEL,COLUMNS,COUNT,TYPE,…TEXT` */
void
wanted_read(const char **at, const char *end, char **labels, int labels_count, Wanted *wanted)
{
    const char *stop = item_end(*at, end, 'n');
    const char *equals;
    uint64 label;

    if (stop == NULL)
        elog(ERROR, "the statements of a guest cannot be read");
    *at += 3;
    equals = memchr(*at, '=', stop - *at);
    if (equals == NULL || !text_unescape(*at, equals, wanted->name, sizeof(wanted->name)))
        elog(ERROR, "the name of a statement cannot be read");
    *at = equals + 1;
    label = read_number(at, stop, ',');
    if (label >= labels_count)
        elog(ERROR, "the parse context of a statement cannot be read");
    wanted->label = labels[label];
    wanted->columns = read_number(at, stop, ',');
    wanted->types_count = (int) read_number(at, stop, ',');
    if (wanted->types_count < 0 || wanted->types_count > 65535)
        elog(ERROR, "the types of a statement cannot be read");
    wanted->types = palloc((wanted->types_count + 1) * sizeof(Oid));
    for (int i = 0; i < wanted->types_count; i++)
        wanted->types[i] = (Oid) read_number(at, stop, ',');
    wanted->query = palloc(stop - *at + 1);
    if (!text_unescape(*at, stop, wanted->query, stop - *at + 1))
        elog(ERROR, "the text of a statement cannot be read");
    *at = stop;
}
