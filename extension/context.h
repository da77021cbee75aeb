/*
 * context.h: what gives a text its meaning. These lists are one rule with those of
 * crates/engine/src/relay/parse_context.rs, whose test reads this file.
 *
 * No header of PostgreSQL's is used here.
 */
#ifndef WEIR_CONTEXT_H
#define WEIR_CONTEXT_H

/*
 * Settings by which PostgreSQL reads a text: how it finds names, and how it reads literals. The
 * order is part of the layout of lobby.h: a window has the values in this order.
 */
#define CONTEXT_SETTINGS \
    "search_path", "DateStyle", "IntervalStyle", "TimeZone", "timezone_abbreviations", \
    "lc_monetary", "array_nulls", "xmloption", "standard_conforming_strings", \
    "backslash_quote", "transform_null_equals"

/* Literals with one of these words are read as the time of the Parse. */
#define CONTEXT_MOMENTS "now", "today", "tomorrow", "yesterday"

#endif /* WEIR_CONTEXT_H */
