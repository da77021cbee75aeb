/*
 * text.c: a report's text. It is ASCII: other bytes, control characters and the bytes that the
 * report's form uses are written as a backslash and three octal digits.
 */
#include "weir.h"

static inline bool
is_plain(unsigned char byte)
{
    return byte >= ' ' && byte < 0x7f && byte != '\\' && byte != ';' && byte != '=';
}

/* Room for `len` more bytes, or none for anything from now on. */
static inline bool
has_room(Text *out, size_t len)
{
    if (out->full || len > (size_t) (out->limit - out->end)) {
        out->full = true;
        return false;
    }
    return true;
}

void
text_literal(Text *out, const char *literal)
{
    size_t len = strlen(literal);

    if (has_room(out, len)) {
        memcpy(out->end, literal, len);
        out->end += len;
    }
}

/* Begins an item: the separator, and the letters that say what it is. */
void
text_item(Text *out, const char *letters)
{
    text_literal(out, ";");
    text_literal(out, letters);
}

void
text_escaped(Text *out, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char byte = (unsigned char) bytes[i];

        if (is_plain(byte)) {
            if (!has_room(out, 1))
                return;
            *out->end++ = byte;
        } else {
            if (!has_room(out, 4))
                return;
            *out->end++ = '\\';
            *out->end++ = '0' + (byte >> 6);
            *out->end++ = '0' + ((byte >> 3) & 7);
            *out->end++ = '0' + (byte & 7);
        }
    }
}

/* Reads what text_escaped has written. False: it is not that, or it does not fit with its NUL. */
bool
text_unescape(const char *from, const char *end, char *to, size_t size)
{
    size_t len = 0;

    for (; from < end; from++) {
        unsigned char byte = (unsigned char) *from;

        if (byte == '\\') {
            if (end - from < 4)
                return false;
            byte = 0;
            for (int i = 1; i <= 3; i++) {
                if (from[i] < '0' || from[i] > '7')
                    return false;
                byte = byte * 8 + (from[i] - '0');
            }
            from += 3;
        }
        if (byte == '\0' || len + 1 >= size)
            return false;
        to[len++] = (char) byte;
    }
    to[len] = '\0';
    return true;
}
