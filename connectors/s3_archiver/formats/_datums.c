/* Columns of an Arrow record batch into Avro datums, one pass over the rows: no Python object per record.
   Likewise a column of values into lines, or into the datums that a schema registry's framing holds.

   encoder.py and formats/values.py hold the same without a compiler, which says what is meant; both give the
   same bytes. They also bring unusual types into those that are known here: integers and offsets of 32 and 64
   bits.

   Datums go into a buffer of the most that they can take, of which the end stays unused: to measure them
   first would cost more. Arrow's offsets are checked as they are met, so that nothing outside of a buffer is
   read or written whatever they are. While it writes, other threads of Python run. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { OFFSET, TIMESTAMP, TIMESTAMP_TYPE, KEY, VALUE, HEADERS, HEADER, HEADER_KEY, HEADER_VALUE, COLUMNS };
enum { INTEGERS, BYTES, LISTS, STRUCTS };
static const int kinds[COLUMNS] = {
    [KEY] = BYTES, [VALUE] = BYTES, [HEADERS] = LISTS,
    [HEADER] = STRUCTS, [HEADER_KEY] = BYTES, [HEADER_VALUE] = BYTES,
};

enum { VALID, VALUES, DATA }; /* buffers of a column; values are the offsets of bytes and lists */

typedef struct { /* all zero: null in all rows */
    int64_t rows, start; /* the first row's place in the buffers */
    int width;           /* bytes of an integer, or of an offset of bytes and lists */
    int64_t first, last; /* its bytes, or items, are between these */
    int64_t left;        /* of them that are not written: the buffer has room for each once */
    Py_buffer views[3];
} column;

enum { LONGEST = 10, BRANCH = 1, END = 1 }; /* bytes */
enum { MOST_SAME = 1 << 16 };
static const int64_t MOST_ROWS = INT64_MAX >> 20; /* so that no sum overflows */
enum { DONE = -1, OUT_OF_ORDER = -2 }; /* else the row of a header without a key */

typedef struct {
    const char *same; /* fields that are the same in all rows */
    Py_ssize_t same_size;
    int64_t rows;
    column columns[COLUMNS];
    Py_buffer data, borders;
} batch;

static inline int64_t at(const column *c, int64_t row)
{
    const char *from = (const char *)c->views[VALUES].buf + (c->start + row) * c->width;
    int64_t large;
    int32_t small;
    memcpy(&small, from, 4); /* not every buffer is aligned */
    if (c->width == 4) return small;
    memcpy(&large, from, 8);
    return large;
}

static inline int is_valid(const column *c, int64_t row)
{
    const uint8_t *bits = c->views[VALID].buf;
    row += c->start;
    return c->rows && (!bits || bits[row / 8] >> (row % 8) & 1);
}

/* Where a row's bytes or items begin and end; 0 where offsets are out of order, also by what nulls hide. */
static inline int span(column *c, int64_t row, int64_t *begin, int64_t *end)
{
    *begin = at(c, row), *end = at(c, row + 1);
    if (*begin < c->first || *end < *begin || *end > c->last) return 0;
    c->left -= *end - *begin;
    return c->left >= 0;
}

static inline uint8_t *put_long(uint8_t *to, int64_t value)
{
    uint64_t rest = (uint64_t)value << 1 ^ -(uint64_t)(value < 0);
    for (; rest >= 0x80; rest >>= 7) *to++ = (uint8_t)(rest | 0x80);
    *to++ = (uint8_t)rest;
    return to;
}

/* NULL where offsets are out of order. */
static inline uint8_t *put_bytes(uint8_t *to, column *c, int64_t row)
{
    int64_t begin, end;
    if (!span(c, row, &begin, &end)) return NULL;
    to = put_long(to, end - begin);
    if (end > begin) memcpy(to, (const char *)c->views[DATA].buf + begin, (size_t)(end - begin));
    return to + (end - begin);
}

static inline uint8_t *put_nullable_bytes(uint8_t *to, column *c, int64_t row)
{
    *to++ = is_valid(c, row) ? 2 : 0; /* the branch: 1, or 0 for null */
    return to[-1] ? put_bytes(to, c, row) : to;
}

static int64_t write_all(batch *b)
{
    column *c = b->columns, *key = c + HEADER_KEY;
    uint8_t *data = b->data.buf, *to = data;
    int64_t *borders = b->borders.buf, begin, end;
    borders[0] = 0;
    for (int64_t row = 0; row < b->rows; row++) {
        memcpy(to, b->same, (size_t)b->same_size);
        to = put_long(to + b->same_size, is_valid(c + OFFSET, row) ? at(c + OFFSET, row) : 0);
        *to++ = is_valid(c + TIMESTAMP, row) ? 2 : 0;
        if (to[-1]) to = put_long(to, at(c + TIMESTAMP, row));
        to = put_long(to, is_valid(c + TIMESTAMP_TYPE, row) ? at(c + TIMESTAMP_TYPE, row) : 0);
        if (!(to = put_nullable_bytes(to, c + KEY, row))) return OUT_OF_ORDER;
        if (!(to = put_nullable_bytes(to, c + VALUE, row))) return OUT_OF_ORDER;
        if (is_valid(c + HEADERS, row)) {
            if (!span(c + HEADERS, row, &begin, &end)) return OUT_OF_ORDER;
            if (end > begin) to = put_long(to, end - begin);
            for (int64_t item = begin; item < end; item++) {
                if (!is_valid(c + HEADER, item) || !is_valid(key, item)) return row;
                if (!(to = put_bytes(to, key, item))) return OUT_OF_ORDER;
                if (!(to = put_nullable_bytes(to, c + HEADER_VALUE, item))) return OUT_OF_ORDER;
            }
        }
        *to++ = 0; /* the end of the array */
        borders[row + 1] = to - data;
    }
    return DONE;
}

/* Whether a column has these rows, and its buffers what it says; finds what its offsets are between. */
static int is_sane(column *c, int kind, int64_t rows)
{
    int has_offsets = kind == BYTES || kind == LISTS;
    if (c->rows < rows || c->rows > MOST_ROWS || c->start < 0 || c->start > MOST_ROWS) return 0;
    if (c->views[VALID].obj && c->views[VALID].len < (c->start + c->rows + 7) / 8) return 0;
    if (kind == STRUCTS || !c->rows) return 1; /* without rows there may be no buffers */
    if (c->width != 4 && c->width != 8) return 0;
    if (c->views[VALUES].len / c->width < c->start + c->rows + has_offsets) return 0;
    if (!has_offsets) return 1;
    c->first = at(c, 0), c->last = at(c, c->rows);
    if (c->first < 0 || c->first > c->last) return 0;
    c->left = c->last - c->first;
    return c->last <= (kind == LISTS ? MOST_ROWS : c->views[DATA].len);
}

/* Takes hold of a column's buffers. Returns 0, with an exception set, if they are smaller than it says. */
static int read_column(column *c, int kind, int64_t rows, PyObject *given)
{
    PyObject *parts[3];
    long long length, start;
    if (given == Py_None) return 1;
    if (!PyArg_ParseTuple(given, "LLiOOO", &length, &start, &c->width, parts, parts + 1, parts + 2)) return 0;
    for (int i = 0; i < 3; i++)
        if (parts[i] != Py_None && PyObject_GetBuffer(parts[i], &c->views[i], PyBUF_SIMPLE) < 0) return 0;
    c->rows = length, c->start = start;
    if (!is_sane(c, kind, rows)) PyErr_SetString(PyExc_ValueError, "a column's buffers do not hold its rows");
    return !PyErr_Occurred();
}

/* Bytes that datums have at most. */
static int64_t bound(const batch *b)
{
    const column *c = b->columns;
    int64_t row = b->same_size + LONGEST + BRANCH + LONGEST + LONGEST + 2 * (BRANCH + LONGEST) + LONGEST + END;
    int64_t items = c[HEADERS].last - c[HEADERS].first, sum = b->rows * row + items * (LONGEST + BRANCH + LONGEST);
    for (int i = 0; i < COLUMNS; i++)
        if (kinds[i] == BYTES) sum += c[i].last - c[i].first;
    return sum;
}

static int allocate(Py_buffer *view, PyObject *allocator, int64_t size, PyObject **buffer)
{
    *buffer = PyObject_CallFunction(allocator, "L", (long long)size);
    if (!*buffer || PyObject_GetBuffer(*buffer, view, PyBUF_WRITABLE) < 0) return 0;
    if (view->len < size) PyErr_SetString(PyExc_ValueError, "a buffer is smaller than was asked for");
    return view->len >= size;
}

static PyObject *encode(PyObject *module, PyObject *order)
{
    PyObject *columns, *allocator, *data = NULL, *borders = NULL, *result = NULL;
    long long rows;
    batch b;
    memset(&b, 0, sizeof b);
    (void)module;
    if (!PyTuple_Check(order)) return PyErr_Format(PyExc_TypeError, "an order is a tuple");
    if (!PyArg_ParseTuple(order, "y#LOO!", &b.same, &b.same_size, &rows, &allocator, &PyTuple_Type, &columns))
        return NULL;
    b.rows = rows;
    int is_ready = PyTuple_Size(columns) == COLUMNS && rows >= 0 && rows <= MOST_ROWS && b.same_size <= MOST_SAME;
    if (!is_ready) PyErr_SetString(PyExc_ValueError, "an order has nine columns, and rows and a topic of sane size");
    for (int i = 0; is_ready && i < COLUMNS; i++) {
        int64_t expected = i <= HEADERS ? rows : b.columns[HEADERS].last;
        is_ready = read_column(&b.columns[i], kinds[i], expected, PyTuple_GetItem(columns, i));
    }
    if (is_ready && allocate(&b.data, allocator, bound(&b), &data) &&
        allocate(&b.borders, allocator, (rows + 1) * 8, &borders)) {
        int64_t code;
        Py_BEGIN_ALLOW_THREADS
        code = write_all(&b);
        Py_END_ALLOW_THREADS
        if (code == DONE) result = Py_BuildValue("(OO)", data, borders);
        else if (code == OUT_OF_ORDER) PyErr_SetString(PyExc_ValueError, "a column's offsets are not in order");
        else result = PyLong_FromLongLong(code);
    }
    for (int i = 0; i < COLUMNS; i++)
        for (int part = VALID; part <= DATA; part++)
            if (b.columns[i].views[part].obj) PyBuffer_Release(&b.columns[i].views[part]);
    if (b.data.obj) PyBuffer_Release(&b.data);
    if (b.borders.obj) PyBuffer_Release(&b.borders);
    Py_XDECREF(data);
    Py_XDECREF(borders);
    return result;
}

/* -- values, one behind the other ------------------------------------------------------------------------ */

enum { PLAIN, FRAMED, JSON, KINDS };            /* what values are */
enum { IS_TAKEN, IS_NULL, IS_SHORT, IS_OTHER }; /* what becomes of a row: the last three have no bytes */

typedef struct {
    int kind;
    const char *before, *after; /* of FRAMED, as many bytes as are cut off; what is put behind each value */
    Py_ssize_t before_size, after_size;
    int64_t rows;
    column values;
    Py_buffer data, borders, fates;
} value_order;

static inline int is_space(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static inline int is_line_end(uint8_t c)
{
    return c == '\n' || c == '\r';
}

static inline int is_mark(uint8_t c)
{
    return c == '{' || c == '}' || c == '[' || c == ']' || c == ',' || c == ':' || c == '"';
}

/* One JSON value without the space between its parts. NULL where it is not one whole value, where a text holds
   a line's end, or where two parts would become one: nothing that is no JSON becomes JSON. */
static uint8_t *put_minified(uint8_t *to, const uint8_t *from, const uint8_t *end)
{
    int64_t depth = 0;
    int is_first = 1, had_space = 0;
    uint8_t last = '{';
    for (; from < end; from++) {
        uint8_t c = *from;
        if (is_space(c)) {
            had_space = 1;
            continue;
        }
        if ((!depth && !is_first) || (had_space && !is_mark(c) && !is_mark(last))) return NULL;
        is_first = had_space = 0;
        last = *to++ = c;
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        while (c == '"') {
            if (++from == end || is_line_end(*from)) return NULL;
            *to++ = *from;
            if (*from == '"') break;
            if (*from != '\\') continue;
            if (++from == end || is_line_end(*from)) return NULL;
            *to++ = *from;
        }
    }
    return depth ? NULL : to;
}

/* JSON that was checked, in one line. */
static uint8_t *put_json(uint8_t *to, const uint8_t *from, const uint8_t *end)
{
    size_t size = (size_t)(end - from);
    if (memchr(from, '\n', size) || memchr(from, '\r', size)) return put_minified(to, from, end);
    memcpy(to, from, size);
    return to + size;
}

static int64_t write_values(value_order *o)
{
    uint8_t *data = o->data.buf, *to = data, *fates = o->fates.buf;
    int64_t *borders = o->borders.buf, begin, end;
    for (int64_t row = 0; row < o->rows; row++) {
        borders[row] = to - data, fates[row] = IS_NULL;
        if (!is_valid(&o->values, row)) continue;
        if (!span(&o->values, row, &begin, &end)) return OUT_OF_ORDER;
        const uint8_t *from = (const uint8_t *)o->values.views[DATA].buf + begin;
        uint8_t *made = to;
        fates[row] = IS_SHORT;
        if (end - begin < o->before_size) continue;
        fates[row] = IS_OTHER;
        if (o->kind == FRAMED && *from) continue;
        from += o->before_size;
        int64_t size = end - begin - o->before_size;
        if (o->kind == JSON && size) {
            if (!(made = put_json(to, from, from + size))) continue;
        } else if (size) {
            memcpy(made, from, (size_t)size);
            made += size;
        }
        fates[row] = IS_TAKEN;
        memcpy(made, o->after, (size_t)o->after_size);
        to = made + o->after_size;
    }
    borders[o->rows] = to - data;
    return DONE;
}

static PyObject *values(PyObject *module, PyObject *order)
{
    PyObject *allocator, *given, *data = NULL, *borders = NULL, *fates = NULL, *result = NULL;
    long long rows;
    value_order o;
    memset(&o, 0, sizeof o);
    (void)module;
    if (!PyTuple_Check(order)) return PyErr_Format(PyExc_TypeError, "an order is a tuple");
    if (!PyArg_ParseTuple(order, "iy#y#LOO", &o.kind, &o.before, &o.before_size, &o.after, &o.after_size, &rows,
                          &allocator, &given))
        return NULL;
    o.rows = rows;
    int is_ready = o.kind >= PLAIN && o.kind < KINDS && rows >= 0 && rows <= MOST_ROWS && o.after_size <= MOST_SAME &&
                   (o.kind == FRAMED) == (o.before_size > 0);
    if (!is_ready) PyErr_SetString(PyExc_ValueError, "an order has a kind of values, and rows of sane size");
    is_ready = is_ready && read_column(&o.values, BYTES, rows, given);
    if (is_ready && allocate(&o.data, allocator, o.values.last - o.values.first + rows * o.after_size, &data) &&
        allocate(&o.borders, allocator, (rows + 1) * 8, &borders) && allocate(&o.fates, allocator, rows, &fates)) {
        int64_t code;
        Py_BEGIN_ALLOW_THREADS
        code = write_values(&o);
        Py_END_ALLOW_THREADS
        if (code == DONE) result = Py_BuildValue("(OOO)", data, borders, fates);
        else PyErr_SetString(PyExc_ValueError, "a column's offsets are not in order");
    }
    Py_buffer *held[] = {o.values.views, o.values.views + 1, o.values.views + 2, &o.data, &o.borders, &o.fates};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        if (held[i]->obj) PyBuffer_Release(held[i]);
    Py_XDECREF(data);
    Py_XDECREF(borders);
    Py_XDECREF(fates);
    return result;
}

static PyMethodDef methods[] = {
    {"encode", encode, METH_O, "See sinksdk.connectors.s3_archiver.formats.encoder."},
    {"values", values, METH_O, "See sinksdk.connectors.s3_archiver.formats.values."},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef_Slot slots[] = {{0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_datums", "Arrow's columns into datums and lines.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__datums(void)
{
    return PyModuleDef_Init(&definition);
}
