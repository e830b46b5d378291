/* Finds values that are JSON, as Kafka Connect's JsonConverter reads it. json_text.plain_scan does the same in
   Python. Values are not parsed, only scanned once, at about the speed of a copy. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { IS_JSON, IS_MAYBE_ENVELOPE, IS_NULL, IS_ODD, IS_BAD }; /* a verdict on a value; see json_text.Verdict */
enum { MOST_DEPTH = 1000, MOST_DIGITS = 1000 };              /* Jackson's limits, StreamReadConstraints */

typedef const uint8_t *bytes;

static inline int is_space(uint8_t c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static inline int is_digit(uint8_t c)
{
    return (uint8_t)(c - '0') < 10;
}

static inline int is_hex(uint8_t c)
{
    return is_digit(c) || (uint8_t)((c | 32) - 'a') < 6;
}

static inline bytes after_space(bytes at, bytes end)
{
    while (at < end && *at <= ' ' && is_space(*at)) at++; /* one comparison if there is no space */
    return at;
}

/* Returns the length of the character beyond ASCII that begins here; 0 if it is not UTF-8. */
static inline int character(bytes from, bytes end)
{
    uint8_t first = *from;
    int size = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
    if (!size || end - from < size) return 0;
    for (int i = 1; i < size; i++)
        if ((from[i] & 0xC0) != 0x80) return 0;
    if ((first == 0xE0 && from[1] < 0xA0) || (first == 0xED && from[1] > 0x9F)) return 0; /* too long; halves */
    if ((first == 0xF0 && from[1] < 0x90) || (first == 0xF4 && from[1] > 0x8F)) return 0; /* too long; too high */
    return size;
}

/* Finds the next quote, backslash, control character or byte beyond ASCII, 16 bytes at a time, then eight. */
static inline bytes next_special(bytes at, bytes end)
{
#ifdef __SSE2__
    for (; end - at >= 16; at += 16) {
        __m128i part = _mm_loadu_si128((const __m128i *)at);
        __m128i marks = _mm_or_si128(_mm_cmpeq_epi8(part, _mm_set1_epi8('"')), _mm_cmpeq_epi8(part, _mm_set1_epi8('\\')));
        /* Bytes beyond ASCII are negative, so they are below space, too. */
        int found = _mm_movemask_epi8(_mm_or_si128(marks, _mm_cmplt_epi8(part, _mm_set1_epi8(' '))));
        if (found) return at + __builtin_ctz((unsigned)found);
    }
#endif
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const uint64_t ones = 0x0101010101010101, highs = ones << 7;
    for (uint64_t part; end - at >= 8; at += 8) {
        memcpy(&part, at, 8);
        uint64_t quote = part ^ ones * '"', slash = part ^ ones * '\\';
        uint64_t found = ((quote - ones) | (slash - ones) | (part - ones * 0x20) | part) & highs;
        /* Bytes beyond ASCII can cause a false match only after themselves, and the first match counts. */
        if (found) return at + (__builtin_ctzll(found) >> 3);
    }
#endif
    while (at < end && *at >= 0x20 && *at < 0x80 && *at != '"' && *at != '\\') at++;
    return at;
}

/* Returns the position after a text whose opening quote has been read; NULL if it is invalid. */
static inline bytes after_text(bytes at, bytes end)
{
    for (;;) {
        at = next_special(at, end);
        if (at == end) return NULL;
        if (*at == '"') return at + 1;
        if (*at == '\\') {
            if (end - at < 2) return NULL;
            if (at[1] == 'u') {
                if (end - at < 6 || !is_hex(at[2]) || !is_hex(at[3]) || !is_hex(at[4]) || !is_hex(at[5])) return NULL;
                at += 6;
            } else {
                if (!memchr("\"\\/bfnrt", at[1], 8)) return NULL;
                at += 2;
            }
        } else if (*at >= 0x80) {
            int size = character(at, end);
            if (!size) return NULL;
            at += size;
        } else {
            return NULL;
        }
    }
}

static inline bytes after_digits(bytes at, bytes end)
{
    while (at < end && is_digit(*at)) at++;
    return at;
}

/* Returns the position after a number; NULL if it is invalid. A leading zero, which Kafka accepts, is odd. */
static inline bytes after_number(bytes at, bytes end, int *is_odd)
{
    if (*at == '-') at++;
    bytes first = at;
    at = after_digits(at, end);
    int64_t digits = at - first;
    if (!digits) return NULL;
    if (digits > 1 && *first == '0') *is_odd = 1;
    if (at < end && *at == '.') {
        first = ++at;
        at = after_digits(at, end);
        if (at == first) return NULL;
        digits += at - first;
    }
    if (at < end && (*at | 32) == 'e') {
        at++;
        if (at < end && (*at == '+' || *at == '-')) at++;
        first = at;
        at = after_digits(at, end);
        if (at == first) return NULL;
        if (at - first > 9) *is_odd = 1; /* it may be more than 32 bits */
        digits += at - first;
    }
    if (digits > MOST_DIGITS) *is_odd = 1; /* leading zeros, which do not count, may be among them */
    return at;
}

static inline bytes after_word(bytes at, bytes end, const char *word, int size)
{
    return end - at < size || memcmp(at, word, (size_t)size) ? NULL : at + size;
}

/* Whether an object whose first name begins here may be Connect's envelope. */
static inline int may_be_envelope(bytes name, bytes end)
{
    int64_t size = end - name; /* with the closing quote */
    return (size == 7 && !memcmp(name, "schema", 6)) || (size == 8 && !memcmp(name, "payload", 7)) ||
           memchr(name, '\\', (size_t)size) != NULL;
}

/* Whether text has another encoding than UTF-8, or a byte order mark: Jackson checks the first four bytes. */
static inline int is_encoded_otherwise(bytes at, bytes end)
{
    size_t size = (size_t)(end - at);
    if (size < 2) return 0;
    return memchr(at, 0, size < 4 ? size : 4) || *at == 0xEF || *at == 0xFE || *at == 0xFF;
}

static int verdict(bytes at, bytes end)
{
    uint64_t objects[(MOST_DEPTH >> 6) + 1]; /* a bit per level: whether it is an object */
    int depth = 0, is_odd = 0, is_envelope = 0;
    if (is_encoded_otherwise(at, end)) return IS_ODD;
    at = after_space(at, end);
    if (at == end) return IS_NULL;
    if (*at == 'n') {
        at = after_word(at, end, "null", 4);
        return at && after_space(at, end) == end ? IS_NULL : IS_BAD;
    }
value:
    if (at == end) return IS_BAD;
    switch (*at) {
    case '{':
    case '[':
        if (++depth > MOST_DEPTH) return IS_BAD;
        if (*at == '{') objects[depth >> 6] |= (uint64_t)1 << (depth & 63);
        else objects[depth >> 6] &= ~((uint64_t)1 << (depth & 63));
        int is_object = *at == '{';
        at = after_space(at + 1, end);
        if (at == end) return IS_BAD;
        if (*at == (is_object ? '}' : ']')) goto close;
        if (!is_object) goto value;
        if (depth == 1 && *at == '"') {
            bytes name = at + 1;
            if (!(at = after_text(name, end))) return IS_BAD;
            is_envelope = may_be_envelope(name, at);
            goto colon;
        }
        goto name;
    case '"':
        at = after_text(at + 1, end);
        break;
    case 't':
        at = after_word(at, end, "true", 4);
        break;
    case 'f':
        at = after_word(at, end, "false", 5);
        break;
    case 'n':
        at = after_word(at, end, "null", 4);
        break;
    default:
        at = *at == '-' || is_digit(*at) ? after_number(at, end, &is_odd) : NULL;
    }
    if (!at) return IS_BAD;
after:
    at = after_space(at, end);
    if (!depth) return at < end ? IS_BAD : is_odd ? IS_ODD : is_envelope ? IS_MAYBE_ENVELOPE : IS_JSON;
    if (at == end) return IS_BAD;
    int in_object = (int)(objects[depth >> 6] >> (depth & 63)) & 1;
    if (*at == ',') {
        at = after_space(at + 1, end);
        if (in_object) goto name;
        goto value;
    }
    if (*at != (in_object ? '}' : ']')) return IS_BAD;
close:
    depth--;
    at++;
    goto after;
name:
    if (at == end || *at != '"' || !(at = after_text(at + 1, end))) return IS_BAD;
colon:
    at = after_space(at, end);
    if (at == end || *at != ':') return IS_BAD;
    at = after_space(at + 1, end);
    goto value;
}

static inline int64_t offset(const Py_buffer *offsets, int width, int64_t row)
{
    int32_t narrow;
    int64_t wide;
    const char *from = (const char *)offsets->buf + row * width;
    if (width == 4) return memcpy(&narrow, from, 4), narrow;
    return memcpy(&wide, from, 8), wide;
}

/* Writes verdicts on rows first to first + rows of a column: its offsets, their width, and its data. */
static PyObject *scan(PyObject *module, PyObject *order)
{
    Py_buffer offsets, data;
    long long first, rows;
    int width, is_sane;
    PyObject *made = NULL;
    (void)module;
    if (!PyTuple_Check(order)) return PyErr_Format(PyExc_TypeError, "an order is a tuple");
    if (!PyArg_ParseTuple(order, "LLiy*y*", &first, &rows, &width, &offsets, &data)) return NULL;
    is_sane = first >= 0 && rows >= 0 && (width == 4 || width == 8) && offsets.len / width > first &&
              offsets.len / width - 1 - first >= rows;
    if (is_sane && (made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)rows))) {
        uint8_t *verdicts = (uint8_t *)PyBytes_AsString(made);
        Py_BEGIN_ALLOW_THREADS
        for (int64_t row = 0; is_sane && row < rows; row++) {
            int64_t begin = offset(&offsets, width, first + row), end = offset(&offsets, width, first + row + 1);
            is_sane = 0 <= begin && begin <= end && end <= data.len;
            if (is_sane) verdicts[row] = (uint8_t)verdict((bytes)data.buf + begin, (bytes)data.buf + end);
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&data);
    if (!is_sane) {
        Py_XDECREF(made);
        PyErr_SetString(PyExc_ValueError, "a column's buffers do not hold its rows");
        return NULL;
    }
    return made;
}

static PyMethodDef methods[] = {
    {"scan", scan, METH_O, "See sinksdk.values.json_text."},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef_Slot slots[] = {{0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_json", "Which values are JSON.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__json(void)
{
    return PyModuleDef_Init(&definition);
}
