/*
 * peek.c: walks over the bytes that a client has sent and that nobody has read yet.
 *
 * It finds out whether the first message is whole, and which named statements the messages use.
 * It never reads beyond `len`, and holds no state.
 */
#include "peek.h"

#include <stdbool.h>
#include <string.h>

#define HEADER_LEN 5

/* PostgreSQL's PQ_SMALL_MESSAGE_LIMIT and PQ_LARGE_MESSAGE_LIMIT: longer messages end a session. */
#define SMALL_MAX 10000
#define LARGE_MAX 0x3ffffffeU

/* The longest length that PostgreSQL takes for a message of this kind; 0: there is no such kind. */
static uint32_t
longest(unsigned char code)
{
    switch (code) {
        case 'Q':
        case 'P':
        case 'B':
        case 'F':
        case 'd':
            return LARGE_MAX;
        case 'C':
        case 'D':
        case 'E':
        case 'H':
        case 'S':
        case 'X':
        case 'c':
        case 'f':
            return SMALL_MAX;
        default:
            return 0;
    }
}

static uint32_t
length_at(const unsigned char *bytes)
{
    return (uint32_t) bytes[0] << 24 | (uint32_t) bytes[1] << 16 | (uint32_t) bytes[2] << 8 |
           (uint32_t) bytes[3];
}

/* The NUL that ends the text at `from`; NULL: there is none before `end`. */
static const unsigned char *
end_of_text(const unsigned char *from, const unsigned char *end)
{
    return from < end ? memchr(from, '\0', (size_t) (end - from)) : NULL;
}

/* A text without its NUL is an error that PostgreSQL reports, and names no statement. */
static void
keep(Peek *peek, PeekVerb verb, const unsigned char *from, const unsigned char *end)
{
    const unsigned char *nul = end_of_text(from, end);
    PeekName *name;
    size_t len;

    if (nul == NULL)
        return;
    if (peek->count == PEEK_NAMES_MAX) {
        peek->names = PEEK_NAMES_MANY;
        return;
    }
    len = (size_t) (nul - from);
    name = &peek->found[peek->count++];
    name->verb = verb;
    name->len = (uint8_t) (len > PEEK_NAME_MAX ? PEEK_NAME_MAX : len);
    name->name = from;
}

static void
keep_names(Peek *peek, unsigned char code, const unsigned char *body, const unsigned char *end)
{
    const unsigned char *nul;

    switch (code) {
        case 'P':
            keep(peek, PEEK_PARSE, body, end);
            break;
        case 'B':
            /* The portal's name comes first. */
            nul = end_of_text(body, end);
            if (nul != NULL)
                keep(peek, PEEK_BIND, nul + 1, end);
            break;
        case 'D':
            if (body < end && *body == 'S')
                keep(peek, PEEK_DESCRIBE, body + 1, end);
            break;
        case 'C':
            if (body < end && *body == 'S')
                keep(peek, PEEK_CLOSE, body + 1, end);
            break;
        default:
            break;
    }
}

static void
count(Peek *peek, unsigned char code)
{
    peek->messages++;
    peek->last = code;
    switch (code) {
        case 'P':
            peek->parses++;
            break;
        case 'E':
            peek->executes++;
            break;
        case 'Q':
        case 'S':
        case 'F':
            peek->syncs++;
            break;
        default:
            break;
    }
}

typedef enum Step {
    STEP_WHOLE,
    STEP_CUT,
    STEP_END,
    STEP_BAD
} Step;

/* Looks at the message at `from`; `message_len` is 0 if its header is not whole. */
static Step
step(const unsigned char *from, size_t left, size_t *message_len)
{
    uint32_t max = longest(from[0]);
    uint32_t len;

    *message_len = 0;
    if (max == 0)
        return STEP_BAD;
    if (left < HEADER_LEN)
        return STEP_CUT;
    len = length_at(from + 1);
    if (len < 4 || len > max)
        return STEP_BAD;
    *message_len = (size_t) len + 1;
    if (left < *message_len)
        return STEP_CUT;
    return from[0] == 'X' ? STEP_END : STEP_WHOLE;
}

/* True: go on behind this message. */
static bool
note(Peek *peek, Step found, size_t message_len)
{
    bool is_first = peek->messages == 0;

    if (is_first)
        peek->first_len = message_len;
    switch (found) {
        case STEP_WHOLE:
            peek->first = PEEK_WHOLE;
            return true;
        case STEP_CUT:
            if (is_first)
                peek->first = PEEK_PARTIAL;
            peek->rest = PEEK_REST_CUT;
            peek->names = PEEK_NAMES_MANY;
            return false;
        case STEP_END:
            if (is_first)
                peek->first = PEEK_END;
            else
                peek->rest = PEEK_REST_END;
            return false;
        case STEP_BAD:
            peek->first = PEEK_BAD;
            return false;
    }
    return false;
}

void
peek_walk(const unsigned char *bytes, size_t len, Peek *peek)
{
    size_t at = 0;

    peek->first = PEEK_NOTHING;
    peek->rest = PEEK_REST_WHOLE;
    peek->names = PEEK_NAMES_ALL;
    peek->first_len = 0;
    peek->walked = 0;
    peek->messages = 0;
    peek->parses = 0;
    peek->executes = 0;
    peek->syncs = 0;
    peek->last = 0;
    peek->count = 0;
    while (at < len) {
        size_t message_len;
        Step found = step(bytes + at, len - at, &message_len);

        if (!note(peek, found, message_len))
            return;
        keep_names(peek, bytes[at], bytes + at + HEADER_LEN, bytes + at + message_len);
        count(peek, bytes[at]);
        at += message_len;
        peek->walked = at;
    }
}
