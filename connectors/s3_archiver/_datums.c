/* Columns of an Arrow record batch into Avro datums, one pass over the rows: no Python object per record.

   encoder.py holds the same with Arrow and numpy, which says what is meant; both give the same bytes. It also
   brings unusual types into those that are known here: integers and offsets of 32 and 64 bits.

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

static PyMethodDef methods[] = {
    {"encode", encode, METH_O, "See sinksdk.connectors.s3_archiver.encoder."},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef_Slot slots[] = {{0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_datums", "Arrow's columns into Avro datums.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__datums(void)
{
    return PyModuleDef_Init(&definition);
}
