/*
 * peek.h: what the first bytes of a client's request say, before PostgreSQL reads them.
 *
 * No header of PostgreSQL's is used here, so that test/fuzz can compile peek.c by itself.
 */
#ifndef WEIR_PEEK_H
#define WEIR_PEEK_H

#include <stddef.h>
#include <stdint.h>

/* As PostgreSQL cuts names: NAMEDATALEN - 1. */
#define PEEK_NAME_MAX 63

/* Names that are kept. With more of them, or with a message that is not whole, `names` is MANY. */
#define PEEK_NAMES_MAX 64

typedef enum PeekFirst {
    PEEK_NOTHING, /* no byte */
    PEEK_PARTIAL, /* the first message is not whole */
    PEEK_WHOLE,
    PEEK_END,     /* the first message is Terminate */
    PEEK_BAD      /* a message of these bytes would end the session: Weir answers it */
} PeekFirst;

/* What follows the first message. */
typedef enum PeekRest {
    PEEK_REST_WHOLE,
    PEEK_REST_CUT, /* the last message is not whole: more names may come */
    PEEK_REST_END  /* a Terminate comes behind */
} PeekRest;

typedef enum PeekNames {
    PEEK_NAMES_ALL,
    PEEK_NAMES_MANY /* unknown: all statements of the client may be meant */
} PeekNames;

/* Which message named a statement. */
typedef enum PeekVerb {
    PEEK_PARSE,
    PEEK_BIND,
    PEEK_DESCRIBE,
    PEEK_CLOSE
} PeekVerb;

typedef struct PeekName {
    PeekVerb verb;
    uint8_t len; /* 0: the unnamed statement */
    const unsigned char *name; /* in the bytes that were walked; not ended by a NUL */
} PeekName;

struct Peek {
    PeekFirst first;
    PeekRest rest;
    PeekNames names;
    size_t first_len;  /* bytes that the first message has, if it says so; else 0 */
    size_t walked;     /* bytes of whole messages, without a Terminate */
    uint32_t messages; /* whole ones, without a Terminate */
    uint32_t parses;
    uint32_t executes;
    uint32_t syncs;    /* Sync, Query and FunctionCall: each ends in ReadyForQuery */
    unsigned char last; /* code of the last whole message; 0: none */
    uint32_t count;    /* of `found` */
    PeekName found[PEEK_NAMES_MAX];
};

typedef struct Peek Peek;

extern void peek_walk(const unsigned char *bytes, size_t len, Peek *peek);

#endif /* WEIR_PEEK_H */
