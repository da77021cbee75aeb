/*
 * settings.c: the settings that were set in the session.
 *
 * These are the settings whose source is PGC_S_SESSION at the end of a transaction: by SET,
 * set_config, UPDATE of pg_settings and calls from C alike. A setting that was reset has another
 * source, and so has one whose transaction was rolled back.
 *
 * Values are written as current_setting() shows them, so that they are equal to what a query of
 * pg_settings tells. Real numbers are written with all their digits.
 */
#include "weir.h"
#include "compat.h"

#include <math.h>

/* Of a transaction and not of a session; and what other items tell of. */
static const char *const left_out[] = {
    "transaction_isolation",
    "transaction_read_only",
    "transaction_deferrable",
    "seed",
    "weir.client",
    "weir.ticket",
};

typedef struct Unit {
    const char *name;
    int64 size;
} Unit;

/* In bytes, and in milliseconds. The largest one that divides the value is used. */
static const Unit memory_units[] = {
    {"TB", INT64CONST(1) << 40}, {"GB", 1 << 30}, {"MB", 1 << 20}, {"kB", 1 << 10}, {"B", 1},
};
static const Unit time_units[] = {
    {"d", 86400000}, {"h", 3600000}, {"min", 60000}, {"s", 1000}, {"ms", 1},
};

static bool
is_left_out(const char *name)
{
    for (int i = 0; i < lengthof(left_out); i++)
        if (strcmp(name, left_out[i]) == 0)
            return true;
    return false;
}

/* Returns the bytes or milliseconds in one of the setting's own units; 0: it has no unit. */
static int64
unit_size(const struct config_generic *setting)
{
    switch (setting->flags & GUC_UNIT_MEMORY) {
        case GUC_UNIT_BYTE:
            return 1;
        case GUC_UNIT_KB:
            return 1024;
        case GUC_UNIT_BLOCKS:
            return BLCKSZ;
        case GUC_UNIT_XBLOCKS:
            return XLOG_BLCKSZ;
        case GUC_UNIT_MB:
            return 1024 * 1024;
        default:
            break;
    }
    switch (setting->flags & GUC_UNIT_TIME) {
        case GUC_UNIT_MS:
            return 1;
        case GUC_UNIT_S:
            return 1000;
        case GUC_UNIT_MIN:
            return 60000;
        default:
            return 0;
    }
}

static void
write_int(Text *out, const struct config_generic *setting, int64 value)
{
    int64 size = value > 0 ? unit_size(setting) : 0;
    const Unit *unit = (setting->flags & GUC_UNIT_MEMORY) ? memory_units : time_units;
    char digits[40];

    if (size == 0) {
        snprintf(digits, sizeof(digits), INT64_FORMAT, value);
    } else {
        value *= size;
        while (value % unit->size != 0)
            unit++;
        snprintf(digits, sizeof(digits), INT64_FORMAT "%s", value / unit->size, unit->name);
    }
    text_literal(out, digits);
}

/* In the setting's own unit, without which a number is read in that very unit. */
static void
write_real(Text *out, const struct config_generic *setting, double value)
{
    char digits[40];

    if (value > 0 && value < 1e9 && value == floor(value) && unit_size(setting) != 0) {
        write_int(out, setting, (int64) value);
        return;
    }
    for (int precision = 6; precision <= 17; precision++) {
        snprintf(digits, sizeof(digits), "%.*g", precision, value);
        if (strtod(digits, NULL) == value)
            break;
    }
    text_literal(out, digits);
}

/* Ignores the hook of a library's setting: its text may not be a valid value of the setting. */
static const char *
string_of(const struct config_string *setting)
{
    if (setting->show_hook != NULL && strchr(setting->gen.name, GUC_QUALIFIER_SEPARATOR) == NULL)
        return setting->show_hook();
    return *setting->variable != NULL ? *setting->variable : "";
}

void
settings_write_value(Text *out, struct config_generic *setting)
{
    const char *word;

    switch (setting->vartype) {
        case PGC_BOOL:
            text_literal(out, *((struct config_bool *) setting)->variable ? "on" : "off");
            break;
        case PGC_INT:
            write_int(out, setting, *((struct config_int *) setting)->variable);
            break;
        case PGC_REAL:
            write_real(out, setting, *((struct config_real *) setting)->variable);
            break;
        case PGC_STRING:
            word = string_of((struct config_string *) setting);
            text_escaped(out, word, strlen(word));
            break;
        case PGC_ENUM:
            word = config_enum_lookup_by_value((struct config_enum *) setting,
                                               *((struct config_enum *) setting)->variable);
            text_escaped(out, word, strlen(word));
            break;
    }
}

/* One of the settings that were written may be set by superusers only. */
static bool are_privileged = false;

bool
settings_are_privileged(void)
{
    return are_privileged;
}

/* False: the settings cannot be found. */
bool
settings_write(Text *out)
{
    static SettingsList list;
    static bool found = false;
    SettingsWalk walk;
    struct config_generic *setting;

    if (!found) {
        compat_settings_find(&list);
        found = true;
    }
    fault_point("settings");
    if (!compat_settings_begin(&list, &walk))
        return false;
    are_privileged = false;
    while ((setting = compat_settings_next(&list, &walk)) != NULL) {
        if (setting->source != PGC_S_SESSION || is_left_out(setting->name))
            continue;
        if (setting->context == PGC_SUSET)
            are_privileged = true;
        text_item(out, "s:");
        text_escaped(out, setting->name, strlen(setting->name));
        text_literal(out, "=");
        settings_write_value(out, setting);
        if (out->full)
            return true;
    }
    return true;
}
