/*
 * guest.c: what a guest's session holds, taken out of this backend and put into the next.
 *
 * The window of a place has two texts: settings, as the report writes them (`;s:NAME=VALUE`) behind
 * those of the startup packet (`;d:NAME=VALUE`, which Weir writes), and statements (names.c). The
 * unnamed statement follows (unnamed.c).
 * Whatever else a session holds pins the guest to its backend.
 */
#include "attend.h"
#include "compat.h"

#include "commands/sequence.h"
#include "common/string.h"
#include "libpq/libpq.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/memutils.h"

#define SETTINGS_MAX (60 * 1024)
#define VALUE_MAX 8192

/* One setting within a text. */
typedef struct Setting {
    char letter; /* 'd' or 's' */
    const char *name;
    const char *name_end;
    const char *value;
    const char *value_end;
} Setting;

typedef struct Settings {
    char text[SETTINGS_MAX];
    uint32 len;
} Settings;

/* What is in force in this backend, and room for another text. */
static Settings current;
static Settings other;

/* A copy of the guest's window, which no other process can change. */
static char *copy = NULL;

/* Settings are being set, so some of them may be those of another guest. */
static bool mixed = false;

/* Pinned until the backend ends: the session has state that it cannot lose. */
static bool stuck = false;

/* A setting that the user may not set: by a function with the rights of another role. */
static bool has_forbidden = false;

/* Its state does not fit into its window. */
static bool too_large = false;

/* The guest's window is out of date: settings or statements; the unnamed statement. */
static bool unsaved = false;
static bool unsaved_unnamed = false;

/* A reported parameter may have another value than when `digest` was made. */
static bool stale = true;
static uint64 digest;

/* Core itself tells the guest what has changed. */
static bool core_tells = false;

static void digest_values(void);

/* Reads the item at `*at`; false: there is none, or the text is not valid. */
static bool
next_item(const char **at, const char *end, Setting *item)
{
    const char *stop;

    if (end - *at < 4 || (*at)[0] != ';' || (*at)[2] != ':')
        return false;
    item->letter = (*at)[1];
    item->name = *at + 3;
    stop = memchr(item->name, ';', end - item->name);
    if (stop == NULL)
        stop = end;
    item->name_end = memchr(item->name, '=', stop - item->name);
    if (item->name_end == NULL)
        return false;
    item->value = item->name_end + 1;
    item->value_end = stop;
    *at = stop;
    return true;
}

static bool
is_same(const char *a, const char *a_end, const char *b, const char *b_end)
{
    return a_end - a == b_end - b && memcmp(a, b, a_end - a) == 0;
}

/* The last item of that letter and name: a startup packet may name one twice. False: none. */
static bool
find_item(const Settings *in, const Setting *wanted, Setting *found)
{
    const char *at = in->text;
    Setting item;
    bool any = false;

    while (next_item(&at, in->text + in->len, &item)) {
        if (item.letter != wanted->letter ||
            !is_same(item.name, item.name_end, wanted->name, wanted->name_end))
            continue;
        *found = item;
        any = true;
        if (item.letter == 's')
            return true;
    }
    return any;
}

/* The values of Weir's startup packet, which the packet of the guest in force has replaced. */
#define REPLACED_MAX 256

typedef struct Replaced {
    char *name;
    char *value;
} Replaced;

static Replaced replaced[REPLACED_MAX];
static int replaced_count = 0;

/* NULL: the guest's packet has not replaced it. */
static Replaced *
find_replaced(const char *name)
{
    for (int i = 0; i < replaced_count; i++)
        if (strcmp(replaced[i].name, name) == 0)
            return &replaced[i];
    return NULL;
}

/* A parameter of an application that this backend has never had counts as empty. */
static void
keep_replaced(const char *name)
{
    const char *value = NULL;

    if (find_replaced(name) != NULL)
        return;
    if (replaced_count == REPLACED_MAX)
        elog(ERROR, "too many startup parameters");
    if (GetConfigOption(name, true, false) != NULL)
        value = GetConfigOptionResetString(name);
    replaced[replaced_count].name = MemoryContextStrdup(TopMemoryContext, name);
    replaced[replaced_count].value = MemoryContextStrdup(TopMemoryContext, value ? value : "");
    replaced_count++;
}

static void
forget_replaced(Replaced *one)
{
    pfree(one->name);
    pfree(one->value);
    *one = replaced[--replaced_count];
}

/* Whether a value is set, or only checked. */
typedef enum Deed {
    DEED_CHECK,
    DEED_SET
} Deed;

static void
deal_with(const char *name, const char *value, char letter, Deed deed)
{
    (void) set_config_option(name, value, superuser() ? PGC_SUSET : PGC_USERSET,
                             letter == 'd' ? PGC_S_CLIENT : PGC_S_SESSION, GUC_ACTION_SET,
                             deed == DEED_SET, ERROR, false);
}

static void
read_name(const Setting *item, char *name)
{
    if (!text_unescape(item->name, item->name_end, name, VALUE_MAX))
        elog(ERROR, "the name of a setting cannot be read");
}

/* Sets it back to what it was at the session's begin. */
static void
unset(const Setting *item)
{
    char name[VALUE_MAX];
    Replaced *before;

    read_name(item, name);
    if (item->letter != 'd') {
        deal_with(name, NULL, item->letter, DEED_SET);
        return;
    }
    before = find_replaced(name);
    if (before == NULL)
        return; /* named twice */
    deal_with(name, before->value, item->letter, DEED_SET);
    forget_replaced(before);
}

static void
set_to(const Setting *item, Deed deed)
{
    size_t size = item->value_end - item->value + 1;
    char *value = palloc(size);
    char name[VALUE_MAX];

    read_name(item, name);
    if (!text_unescape(item->value, item->value_end, value, size))
        elog(ERROR, "the value of a setting cannot be read");
    if (deed == DEED_SET && item->letter == 'd')
        keep_replaced(name);
    deal_with(name, value, item->letter, deed);
}

/* Whether `to` has another value than `from`, which is in force. */
static bool
differs(const Setting *item, const Settings *from, const Settings *to)
{
    Setting found;

    if (item->letter == 'd' && find_item(to, item, &found) && found.value != item->value)
        return false; /* a later one of the same name counts */
    return !find_item(from, item, &found) ||
           !is_same(item->value, item->value_end, found.value, found.value_end);
}

/*
 * Raises an ERROR if one of the values cannot be set. Startup values that were set would stay if
 * the transaction failed, for all guests that come later.
 */
static void
check(const Settings *from, const Settings *to)
{
    const char *at = to->text;
    Setting item;
    int startup = 0;

    while (next_item(&at, to->text + to->len, &item)) {
        if (item.letter == 'd' && ++startup > REPLACED_MAX)
            elog(ERROR, "too many startup parameters");
        if (differs(&item, from, to))
            set_to(&item, DEED_CHECK);
    }
    if (at != to->text + to->len)
        elog(ERROR, "its settings in the lobby cannot be read");
}

/*
 * Sets those of `letter` that differ. The values of the startup packet come first: RESET goes back
 * to them. A value that the next guest's packet does not have becomes what Weir's packet had.
 */
static void
change(char letter, const Settings *from, const Settings *to)
{
    const char *at = from->text;
    Setting item;
    Setting found;

    while (next_item(&at, from->text + from->len, &item))
        if (item.letter == letter && !find_item(to, &item, &found))
            unset(&item);
    at = to->text;
    while (next_item(&at, to->text + to->len, &item))
        if (item.letter == letter && differs(&item, from, to))
            set_to(&item, DEED_SET);
}

static void
restore_settings(const char *text, uint32 len)
{
    if (len == current.len && memcmp(text, current.text, len) == 0)
        return;
    if (len > SETTINGS_MAX)
        elog(ERROR, "it has too many settings");
    memcpy(other.text, text, len);
    other.len = len;
    context_note_set(NULL);
    own_transaction_begin();
    check(&current, &other);
    mixed = true;
    change('d', &current, &other);
    change('s', &current, &other);
    own_transaction_end();
    mixed = false;
    memcpy(current.text, text, len);
    current.len = len;
    has_forbidden = false;
    stale = true;
}

/* Has a restore failed after its check? Then the state of this session is unknown. */
bool
guest_is_mixed(void)
{
    return mixed;
}

/*
 * Makes the session that of the guest with this window. `goes_on`: no other session has served the
 * guest since this one did, and this one has served no other guest. Raises an ERROR if that is not
 * possible.
 */
bool
guest_restore(bool goes_on, const unsigned char *window, uint32 len)
{
    LobbyWindowHeader header = {0};

    if (len > LOBBY_STATE || (len != 0 && len < sizeof(header)))
        return false;
    if (copy == NULL)
        copy = MemoryContextAlloc(TopMemoryContext, LOBBY_WINDOW);
    if (len != 0) {
        memcpy(&header, window, sizeof(header));
        if ((uint64) header.settings_len + header.names_len + header.unnamed_len !=
            len - sizeof(header))
            return false;
        memcpy(copy, window + sizeof(header), len - sizeof(header));
    }
    /* currval and lastval fail then, and do not tell an older number, or one of another guest. */
    if (!goes_on)
        ResetSequenceCaches();
    restore_settings(copy, header.settings_len);
    if (stale) {
        /* Nobody gets these reports. What core reports from now on, the guest has changed. */
        ReportChangedGUCOptions();
        digest_values();
    }
    names_restore(copy + header.settings_len, header.names_len);
    unsaved = false;
    unsaved_unnamed = false;
    return unnamed_restore(copy + header.settings_len + header.names_len, header.unnamed_len);
}

static bool
is_in(const Settings *settings, const char *name)
{
    Setting wanted = {.letter = 's', .name = name, .name_end = name + strlen(name)};
    Setting found;

    return find_item(settings, &wanted, &found);
}

/* The startup values stay; only Weir knows them. */
static uint32
copy_startup(Settings *to)
{
    const char *at = current.text;
    const char *begin = at;
    Setting item;

    to->len = 0;
    while (next_item(&at, current.text + current.len, &item)) {
        if (item.letter == 'd') {
            memcpy(to->text + to->len, begin, at - begin);
            to->len += at - begin;
        }
        begin = at;
    }
    return to->len;
}

/* Would another backend refuse one of the settings? */
static bool
find_forbidden(const Settings *in)
{
    const char *at = in->text;
    Setting item;
    bool found = false;

    if (!settings_are_privileged() || GetSessionUserIsSuperuser())
        return false;
    own_transaction_begin();
    fault_point("forbidden");
    while (!found && next_item(&at, in->text + in->len, &item)) {
        char name[VALUE_MAX];

        read_name(&item, name);
        found = item.letter == 's' && compat_setting(name)->context == PGC_SUSET &&
                pg_parameter_aclcheck(name, GetUserId(), ACL_SET) != ACLCHECK_OK;
    }
    own_transaction_end();
    return found;
}

/* Called when a transaction is over. */
Tie
guest_capture(Numbers *numbers)
{
    Text out = {.start = other.text, .end = other.text, .limit = other.text + SETTINGS_MAX};
    bool is_whole;
    Tie tie;

    out.end += copy_startup(&other);
    is_whole = settings_write(&out);
    tie = depart_find_tie(); /* it may note an event: a slot */
    if (events_take(numbers))
        stuck = true;
    too_large = out.full;
    if (out.full)
        return TIE_OTHER;
    other.len = out.end - out.start;
    if (other.len != current.len || memcmp(other.text, current.text, other.len) != 0) {
        has_forbidden = find_forbidden(&other);
        memcpy(current.text, other.text, other.len);
        current.len = other.len;
        unsaved = true;
        context_note_set(NULL);
    }
    if (is_in(&current, "role") || is_in(&current, "session_authorization"))
        tie = TIE_OTHER;
    if (names_capture())
        unsaved = true;
    if (unnamed_settle(names_has_unnamed()))
        unsaved_unnamed = true;
    return !is_whole || stuck || has_forbidden ? TIE_OTHER : tie;
}

/* Writes the changes into the window; false: they do not fit, so the guest is pinned. */
bool
guest_save(unsigned char *window, uint32 *len)
{
    LobbyWindowHeader header = {.settings_len = current.len};
    const char *names = names_text(&header.names_len);
    const char *unnamed = unnamed_body(&header.unnamed_len);
    unsigned char *at = window + sizeof(header);

    if (!unsaved && !unsaved_unnamed)
        return true;
    if (names == NULL ||
        header.names_len + header.unnamed_len >
            LOBBY_STATE - sizeof(header) - header.settings_len) {
        too_large = true;
        return false;
    }
    if (unsaved)
        memcpy(at, current.text, current.len);
    at += current.len;
    if (unsaved)
        memcpy(at, names, header.names_len);
    at += header.names_len;
    memcpy(at, unnamed, header.unnamed_len);
    at += header.unnamed_len;
    memcpy(window, &header, sizeof(header));
    *len = at - window;
    unsaved = false;
    unsaved_unnamed = false;
    return true;
}

bool
guest_is_too_large(void)
{
    return too_large;
}

/*
 * Core reports a parameter that has changed. True: the guest is to get this message, because it
 * knows all other values. Otherwise it is told all of them. `told`: NULL while no guest is served.
 */
bool
guest_note_parameter(const uint64 *told)
{
    if (!stale || told == NULL)
        core_tells = told != NULL && *told == digest;
    stale = true;
    return core_tells;
}

static uint64
mix(uint64 hash, const char *text)
{
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char) *text) * UINT64CONST(0x100000001b3);
    return (hash ^ 0xff) * UINT64CONST(0x100000001b3);
}

typedef void (*Each)(const char *name, const char *value, void *argument);

static void
each_reported(Each each, void *argument)
{
    int count;
    struct config_generic **all = compat_all_settings(&count);

    for (int i = 0; i < count; i++)
        if (all[i]->flags & GUC_REPORT)
            each(all[i]->name, GetConfigOptionByName(all[i]->name, NULL, false), argument);
}

/* In any order, as Weir does for what it has told a client at login (`Welcome::digest`). */
static void
add_to_digest(const char *name, const char *value, void *argument)
{
    uint64 hash = mix(mix(UINT64CONST(0xcbf29ce484222325), name), value);

    /* Spreads the bits: otherwise the changes of two parameters could cancel out in the sum. */
    hash = (hash ^ (hash >> 32)) * UINT64CONST(0xd6e8feb86659fd93);
    *(uint64 *) argument += hash ^ (hash >> 32);
}

static void
send_one(const char *name, const char *value, void *argument)
{
    const char *sent = pg_is_ascii(value) ? value : pg_server_to_client(value, strlen(value));
    size_t name_len = strlen(name) + 1;
    size_t value_len = strlen(sent) + 1;
    char *body = palloc(name_len + value_len);

    memcpy(body, name, name_len);
    memcpy(body + name_len, sent, value_len);
    report_put('S', body, name_len + value_len);
    pfree(body);
}

static void
digest_values(void)
{
    uint64 fresh = 0;

    each_reported(add_to_digest, &fresh);
    digest = fresh;
    stale = false;
    core_tells = false;
}

/* Sends the reported parameters, if the guest was told other values. */
void
guest_tell(uint64 *told)
{
    bool is_told = core_tells;

    if (stale)
        digest_values();
    if (*told == digest)
        return;
    if (!is_told)
        each_reported(send_one, NULL);
    *told = digest;
}

static void
find_to_convert(const char *name, const char *value, void *argument)
{
    bool *found = argument;

    *found = *found || !pg_is_ascii(value);
}

/*
 * The same within a transaction. A value that has to be converted waits until the transaction is
 * over. Its conversion may fail, and only a rollback could undo what it has done until then.
 */
void
guest_tell_within(uint64 *told)
{
    bool waits = false;

    if (!stale && *told == digest)
        return;
    if (!core_tells && pg_get_client_encoding() != GetDatabaseEncoding())
        each_reported(find_to_convert, &waits);
    if (!waits)
        guest_tell(told);
}
