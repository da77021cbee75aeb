/*
 * fuzz.h: random numbers from a seed, and what is done when a check of one fails.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t seed;
static uint64_t state;

static void fail(const char *what);

#define check(condition)      \
    do {                      \
        if (!(condition))     \
            fail(#condition); \
    } while (0)

static uint64_t
draw_word(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint32_t
draw(uint32_t below)
{
    return (uint32_t) ((draw_word() >> 11) % below);
}

/* Tries one seed after the other: SECONDS [SEED]. Returns their number. */
static uint64_t
try_seeds(int count, char **words, uint64_t at_once, void (*try)(void))
{
    time_t end = time(NULL) + (count > 1 ? strtol(words[1], NULL, 10) : 5);
    uint64_t first = count > 2 ? strtoull(words[2], NULL, 10) : (uint64_t) time(NULL) << 20;
    uint64_t done = 0;

    for (seed = first; done % at_once != 0 || time(NULL) < end; seed++, done++) {
        state = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
        try();
    }
    return done;
}

#endif
