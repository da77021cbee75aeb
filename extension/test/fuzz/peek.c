/*
 * peek.c: ../../peek.c on tables of bytes, and on random bytes. It is built with AddressSanitizer.
 * Each input lies at the end of a block of its own, so reading beyond it is found.
 *
 *   fuzz/run peek SECONDS [SEED]
 */
#include "../../peek.h"

#include "fuzz.h"

#define INPUT_MAX 4096

static unsigned char input[INPUT_MAX];
static size_t input_len;

static void
fail(const char *what)
{
    printf("peek: seed %llu: %s; the input is", (unsigned long long) seed, what);
    for (size_t i = 0; i < input_len && i < 256; i++)
        printf(" %02x", input[i]);
    printf("\n");
    exit(1);
}

static void
walk(size_t len, Peek *peek, unsigned char **block)
{
    *block = malloc(len > 0 ? len : 1);
    if (*block == NULL)
        abort();
    memcpy(*block, input, len);
    peek_walk(*block, len, peek);
}

/* Tables. */

static void
put(unsigned char byte)
{
    check(input_len < INPUT_MAX);
    input[input_len++] = byte;
}

static void
put_header(unsigned char code, uint32_t len)
{
    put(code);
    for (int shift = 24; shift >= 0; shift -= 8)
        put((unsigned char) (len >> shift));
}

static void
put_message(unsigned char code, const char *body, size_t len)
{
    put_header(code, (uint32_t) len + 4);
    for (size_t i = 0; i < len; i++)
        put((unsigned char) body[i]);
}

static void
expect_lengths(void)
{
    static const struct {
        unsigned char code;
        uint32_t len;
        PeekFirst first;
    } rows[] = {
        {'Q', 0, PEEK_BAD}, {'Q', 3, PEEK_BAD}, {'Q', 4, PEEK_WHOLE}, {'Q', 5, PEEK_PARTIAL},
        {'Q', 0x3ffffffe, PEEK_PARTIAL}, {'Q', 0x3fffffff, PEEK_BAD}, {'Q', 0x80000000, PEEK_BAD},
        {'Q', 0xffffffff, PEEK_BAD}, {'X', 4, PEEK_END}, {'X', 0, PEEK_BAD}, {'X', 5, PEEK_PARTIAL},
        {'S', 4, PEEK_WHOLE}, {'S', 10000, PEEK_PARTIAL}, {'S', 10001, PEEK_BAD},
        {'C', 10001, PEEK_BAD}, {'B', 10001, PEEK_PARTIAL}, {'p', 4, PEEK_BAD}, {0, 4, PEEK_BAD},
        {'R', 8, PEEK_BAD}, {0xff, 0xffffffff, PEEK_BAD},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        Peek peek;
        unsigned char *block;

        input_len = 0;
        put_header(rows[i].code, rows[i].len);
        walk(input_len, &peek, &block);
        check(peek.first == rows[i].first);
        free(block);
        /* Behind a whole message it is found as well. */
        input_len = 0;
        put_message('S', "", 0);
        put_header(rows[i].code, rows[i].len);
        walk(input_len, &peek, &block);
        check((peek.first == PEEK_BAD) == (rows[i].first == PEEK_BAD));
        check((peek.rest == PEEK_REST_END) == (rows[i].first == PEEK_END));
        check((peek.rest == PEEK_REST_CUT) == (rows[i].first == PEEK_PARTIAL));
        free(block);
    }
}

static void
expect_name(size_t len, size_t kept)
{
    char body[512] = {0};
    Peek peek;
    unsigned char *block;

    memset(body, 'n', len);
    input_len = 0;
    put_message('P', body, len + 1 + 1 + 2);
    walk(input_len, &peek, &block);
    check(peek.count == 1 && peek.found[0].verb == PEEK_PARSE && peek.found[0].len == kept);
    check(memcmp(peek.found[0].name, body, kept) == 0);
    free(block);
}

static void
expect_names(void)
{
    Peek peek;
    unsigned char *block;

    expect_name(0, 0);
    expect_name(1, 1);
    expect_name(62, 62);
    expect_name(63, 63);
    expect_name(64, 63);
    expect_name(400, 63);
    input_len = 0;
    put_message('B', "portal\0name\0\0\0\0\0\0\0", 18);
    put_message('D', "Sname", 6);
    put_message('D', "Pname", 6);
    put_message('E', "portal\0\0\0\0\0", 11);
    put_message('C', "Pname", 6);
    put_message('C', "Sgone", 6);
    put_message('P', "no end", 6);
    put_message('S', "", 0);
    walk(input_len, &peek, &block);
    check(peek.first == PEEK_WHOLE && peek.rest == PEEK_REST_WHOLE);
    check(peek.names == PEEK_NAMES_ALL && peek.count == 3);
    check(peek.found[0].verb == PEEK_BIND && memcmp(peek.found[0].name, "name", 5) == 0);
    check(peek.found[1].verb == PEEK_DESCRIBE && peek.found[2].verb == PEEK_CLOSE);
    check(peek.messages == 8 && peek.executes == 1 && peek.parses == 1 && peek.syncs == 1);
    check(peek.last == 'S' && peek.walked == input_len);
    free(block);
    input_len = 0;
    for (int i = 0; i <= PEEK_NAMES_MAX; i++)
        put_message('D', "Sn", 3);
    walk(input_len, &peek, &block);
    check(peek.names == PEEK_NAMES_MANY && peek.count == PEEK_NAMES_MAX);
    free(block);
}

/* Random bytes. */

static void
draw_input(void)
{
    static const unsigned char codes[] = "QPBDCESHFXdcfpR";
    uint32_t messages = draw(12);

    input_len = 0;
    for (uint32_t i = 0; i < messages; i++) {
        unsigned char code = draw(20) == 0 ? (unsigned char) draw(256) : codes[draw(15)];
        uint32_t len = draw(40) == 0 ? draw(3000) : draw(24);
        uint32_t told = len + 4;

        if (input_len + len + 8 > INPUT_MAX)
            break;
        switch (draw(60)) {
            case 0:
                told = draw(5);
                break;
            case 1:
                told = 0x80000000u - draw(3);
                break;
            case 2:
                told = 0xffffffffu - draw(3);
                break;
            case 3:
                told += draw(20);
                break;
            default:
                break;
        }
        put_header(code, told);
        for (uint32_t at = 0; at < len; at++)
            put((unsigned char) (draw(3) == 0 ? 0 : draw(2) == 0 ? 'S' : draw(256)));
    }
    if (input_len > 0 && draw(2) == 0)
        input_len -= draw((uint32_t) input_len);
}

static void
check_input(void)
{
    Peek all;
    Peek part;
    unsigned char *block;
    unsigned char *part_block;
    size_t cut = draw((uint32_t) input_len + 1);

    walk(input_len, &all, &block);
    check(all.walked <= input_len && all.count <= PEEK_NAMES_MAX);
    check((all.first == PEEK_NOTHING) == (input_len == 0));
    for (uint32_t i = 0; i < all.count; i++) {
        const PeekName *name = &all.found[i];

        check(name->len <= PEEK_NAME_MAX);
        check(name->name >= block && name->name + name->len < block + all.walked);
        check(memchr(name->name, '\0', name->len) == NULL);
    }
    /* What was seen of the first part is seen of the whole, too. */
    walk(cut, &part, &part_block);
    check(part.walked <= all.walked && part.messages <= all.messages && part.count <= all.count);
    check(part.first != PEEK_BAD || all.first == PEEK_BAD);
    check(part.first != PEEK_END || all.first == PEEK_END);
    for (uint32_t i = 0; i < part.count; i++) {
        check(part.found[i].verb == all.found[i].verb && part.found[i].len == all.found[i].len);
        check(part.found[i].name - part_block == all.found[i].name - block);
    }
    free(block);
    free(part_block);
}

static void
try_one(void)
{
    draw_input();
    check_input();
}

int
main(int count, char **words)
{
    uint64_t done;

    expect_lengths();
    expect_names();
    done = try_seeds(count, words, 1024, try_one);
    printf("peek: %llu inputs\n", (unsigned long long) done);
    return 0;
}
