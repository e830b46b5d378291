/* Walks Avro data by their schema without decoding them: where each datum ends, and whether it is valid.

   avro_walk.py creates the program of a schema, and contains the same walk in Python, which is the reference.
   Programs and offsets are checked before use, so that nothing outside a buffer is ever read. Other Python
   threads run while rows are walked. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { NOTHING, BOOLEAN, INT, LONG, FIXED, BYTES, STRING, ENUM, ARRAY, MAP, UNION, RECORD, RAW, ABSENT, OPS };
enum {
    FITS, LONGER, ODD, IS_NULL, NOT_FRAMED, UNKNOWN,
    ENDS_EARLY, BAD_NUMBER, BAD_LENGTH, BAD_BRANCH, BAD_SYMBOL, TOO_DEEP,
};
enum { MOST_DEPTH = 2000, FRAMING = 5, OF_INT = 5, OF_LONG = 10 };
static const int64_t MOST_ITEMS = INT32_MAX - 8, MOST_EMPTY = 1 << 20, MOST_ROWS = INT64_MAX >> 20;

typedef struct {
    const int32_t *code;
    const uint8_t *end, *trouble;
    int is_odd, why;
} walk;

static const uint8_t *fail(walk *w, int why, const uint8_t *at)
{
    w->why = why, w->trouble = at;
    return NULL;
}

/* Returns the bits of a number of at most so many bytes; excess bits are dropped, as in Java. */
static inline const uint8_t *number(walk *w, const uint8_t *at, int longest, uint64_t *bits)
{
    const uint8_t *first = at;
    if (at < w->end && *at < 0x80) {
        *bits = *at;
        return at + 1;
    }
    *bits = 0;
    for (int place = 0; place < longest; place++) {
        if (at == w->end) return fail(w, ENDS_EARLY, first);
        *bits |= (uint64_t)(*at & 0x7F) << (7 * place);
        if (*at++ < 0x80) {
            if (place == longest - 1 && at[-1] > (longest == OF_INT ? 0x0F : 1)) w->is_odd = 1;
            if (longest == OF_INT) *bits &= UINT32_MAX;
            return at;
        }
    }
    return fail(w, BAD_NUMBER, first);
}

static inline int64_t signed_of(uint64_t bits)
{
    return (int64_t)(bits >> 1) ^ -(int64_t)(bits & 1);
}

static inline const uint8_t *skip(walk *w, const uint8_t *at, int64_t size)
{
    return size <= w->end - at ? at + size : fail(w, ENDS_EARLY, at);
}

/* Reads the length of bytes or text, and returns the position after them. */
static inline const uint8_t *lengthy(walk *w, const uint8_t *at, int64_t *size)
{
    const uint8_t *first = at;
    uint64_t bits;
    if (!(at = number(w, at, OF_LONG, &bits))) return NULL;
    *size = signed_of(bits);
    if (*size < 0) return fail(w, BAD_LENGTH, first);
    return *size <= w->end - at ? at + *size : fail(w, ENDS_EARLY, first);
}

static int is_utf8(const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        uint64_t part;
        if (end - at >= 8) {
            memcpy(&part, at, 8);
            if (!(part & 0x8080808080808080)) {
                at += 8;
                continue;
            }
        }
        uint8_t c = *at;
        int size = c < 0x80 ? 1 : c < 0xC2 ? 0 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : c < 0xF5 ? 4 : 0;
        if (!size || end - at < size) return 0;
        for (int i = 1; i < size; i++)
            if ((at[i] & 0xC0) != 0x80) return 0;
        if ((c == 0xE0 && at[1] < 0xA0) || (c == 0xED && at[1] > 0x9F)) return 0;
        if ((c == 0xF0 && at[1] < 0x90) || (c == 0xF4 && at[1] > 0x8F)) return 0;
        at += size;
    }
    return 1;
}

static inline const uint8_t *text(walk *w, const uint8_t *at)
{
    int64_t size;
    if (!(at = lengthy(w, at, &size))) return NULL;
    if (!w->is_odd && !is_utf8(at - size, at)) w->is_odd = 1;
    return at;
}

static const uint8_t *value(walk *w, int32_t node, const uint8_t *at, int depth);

/* Reads blocks of items, each after its number of items, until that is 0. */
static const uint8_t *items(walk *w, const int32_t *code, const uint8_t *at, int depth)
{
    int64_t sum = 0;
    int is_empty = *code == ARRAY && w->code[code[1]] == NOTHING;
    for (;;) {
        const uint8_t *first = at, *block = NULL;
        uint64_t bits, size = 0;
        if (!(at = number(w, at, OF_LONG, &bits))) return NULL;
        int64_t count = signed_of(bits);
        if (count < 0) {
            if (!(at = number(w, at, OF_LONG, &size))) return NULL;
            count = count == INT64_MIN ? MOST_ITEMS + 1 : -count;
            block = at;
        }
        if (!count) return at;
        int64_t most = is_empty ? MOST_EMPTY : MOST_ITEMS;
        if (count > most || (sum += count) > most) return fail(w, BAD_LENGTH, first);
        for (int64_t i = 0; i < count && !is_empty; i++) {
            if (*code == MAP && !(at = text(w, at))) return NULL;
            if (!(at = value(w, code[1], at, depth + 1))) return NULL;
        }
        if (block && signed_of(size) != at - block) w->is_odd = 1; /* Java reads on; other readers fail */
    }
}

static const uint8_t *value(walk *w, int32_t node, const uint8_t *at, int depth)
{
    const int32_t *code = w->code + node;
    const uint8_t *first = at;
    uint64_t bits;
    int64_t size;
    if (depth > MOST_DEPTH) return fail(w, TOO_DEEP, at);
    switch (*code) {
    case NOTHING: return at;
    case BOOLEAN:
        if (at < w->end && *at > 1) w->is_odd = 1;
        return skip(w, at, 1);
    case INT: return number(w, at, OF_INT, &bits);
    case LONG: return number(w, at, OF_LONG, &bits);
    case FIXED: return skip(w, at, code[1]);
    case BYTES: return lengthy(w, at, &size);
    case STRING: return text(w, at);
    case ENUM:
    case UNION:
        if (!(at = number(w, at, OF_INT, &bits))) return NULL;
        size = signed_of(bits);
        if (size < 0 || size >= code[1]) return fail(w, *code == ENUM ? BAD_SYMBOL : BAD_BRANCH, first);
        return *code == ENUM ? at : value(w, code[2 + size], at, depth + 1);
    case RECORD:
        for (int32_t i = 0; i < code[1]; i++)
            if (!(at = value(w, code[2 + i], at, depth + 1))) return NULL;
        return at;
    case RAW: w->is_odd = 1; return w->end;
    case ABSENT: w->is_odd = 1; return at; /* a null that is read as a default */
    default: return items(w, code, at, depth);
    }
}

/* -- programs ---------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t id;
    const int32_t *code; /* position of the first value, then value after value */
    Py_buffer view;
} program;

static int64_t length_of(const int32_t *code, int64_t left)
{
    int64_t children = *code == UNION || *code == RECORD;
    if (*code < 0 || *code >= OPS) return 0;
    int has_number = *code == FIXED || *code == ENUM || *code == ABSENT;
    if (!has_number && *code != ARRAY && *code != MAP && !children) return 1;
    if (left < 2 || code[1] < 0) return 0;
    return children ? 2 + (int64_t)code[1] : 2;
}

/* Whether all positions in it are positions of values. */
static int is_sound(const int32_t *code, int64_t size)
{
    int is_good = size > 1;
    uint8_t *begins = calloc(1, (size_t)size + 1);
    if (!begins) return 0;
    for (int64_t at = 1, length; is_good && at < size; at += length) {
        length = length_of(code + at, size - at);
        is_good = length && length <= size - at;
        begins[at] = 1;
    }
    is_good = is_good && *code > 0 && *code < size && begins[*code];
    for (int64_t at = 1; is_good && at < size; at += length_of(code + at, size - at)) {
        int64_t first = code[at] == UNION || code[at] == RECORD ? 2 : code[at] == ARRAY || code[at] == MAP ? 1 : 3;
        int64_t last = first == 2 ? 2 + (int64_t)code[at + 1] : 2;
        for (int64_t i = first; is_good && i < last; i++)
            is_good = code[at + i] > 0 && code[at + i] < size && begins[code[at + i]];
    }
    free(begins);
    return is_good;
}

static int read_program(program *p, PyObject *given)
{
    PyObject *code;
    long long id;
    if (!PyArg_ParseTuple(given, "LO", &id, &code)) return 0;
    if (PyObject_GetBuffer(code, &p->view, PyBUF_SIMPLE) < 0) return 0;
    p->id = id, p->code = p->view.buf;
    if (p->view.len % 4 || !is_sound(p->code, p->view.len / 4))
        PyErr_SetString(PyExc_ValueError, "a program is not sound");
    return !PyErr_Occurred();
}

static const program *program_of(const program *some, Py_ssize_t count, int64_t id)
{
    Py_ssize_t low = 0, high = count;
    while (low < high) {
        Py_ssize_t middle = (low + high) / 2;
        if (some[middle].id < id) low = middle + 1;
        else high = middle;
    }
    return low < count && some[low].id == id ? some + low : NULL;
}

/* -- rows -------------------------------------------------------------------------------------------------- */

typedef struct {
    long long rows, start; /* position of the first row in the buffers */
    int width;             /* bytes of an offset */
    int is_framed;         /* rows begin with a zero byte and an id; else all use the first program */
    program *programs;
    Py_ssize_t count;
    Py_buffer valid, offsets, data, ends, fates;
} walk_order;

static inline int64_t offset_at(const walk_order *o, int64_t row)
{
    const char *from = (const char *)o->offsets.buf + (o->start + row) * o->width;
    int64_t large;
    int32_t small;
    memcpy(&small, from, 4);
    if (o->width == 4) return small;
    memcpy(&large, from, 8);
    return large;
}

static inline int has_value(const walk_order *o, int64_t row)
{
    const uint8_t *bits = o->valid.buf;
    row += o->start;
    return !bits || bits[row / 8] >> (row % 8) & 1;
}

/* Returns 0 if offsets are not ascending. */
static int walk_rows(walk_order *o)
{
    const program *last = o->programs;
    int64_t *ends = o->ends.buf, before = 0;
    uint8_t *fates = o->fates.buf;
    for (int64_t row = 0; row < o->rows; row++) {
        int64_t begin = offset_at(o, row), stop = offset_at(o, row + 1);
        if (begin < before || stop < begin || stop > o->data.len) return 0;
        before = begin;
        const uint8_t *from = (const uint8_t *)o->data.buf + begin, *at = from;
        ends[row] = 0, fates[row] = IS_NULL;
        if (!has_value(o, row)) continue;
        if (o->is_framed) {
            fates[row] = NOT_FRAMED;
            if (stop - begin < FRAMING || *from) continue;
            int64_t id = (int64_t)from[1] << 24 | from[2] << 16 | from[3] << 8 | from[4];
            if (!last || last->id != id) last = program_of(o->programs, o->count, id);
            fates[row] = UNKNOWN;
            if (!last) continue;
            at += FRAMING;
        }
        walk w = {last->code, from + (stop - begin), NULL, 0, FITS};
        at = value(&w, *last->code, at, 1);
        ends[row] = (at ? at : w.trouble) - from;
        fates[row] = (uint8_t)(!at ? w.why : w.is_odd ? ODD : at < w.end ? LONGER : FITS);
    }
    return 1;
}

static int take(PyObject *given, Py_buffer *view)
{
    return given == Py_None || PyObject_GetBuffer(given, view, PyBUF_SIMPLE) >= 0;
}

static int make(PyObject *allocator, int64_t size, PyObject **buffer, Py_buffer *view)
{
    *buffer = PyObject_CallFunction(allocator, "L", (long long)size);
    if (!*buffer || PyObject_GetBuffer(*buffer, view, PyBUF_WRITABLE) < 0) return 0;
    if (view->len < size) PyErr_SetString(PyExc_ValueError, "a buffer is smaller than was asked for");
    return view->len >= size;
}

static int is_sane(const walk_order *o)
{
    if (o->rows < 0 || o->rows > MOST_ROWS || o->start < 0 || o->start > MOST_ROWS) return 0;
    if (o->width != 4 && o->width != 8) return 0;
    if (!o->is_framed && o->count != 1) return 0;
    if (o->rows && o->offsets.len / o->width < o->start + o->rows + 1) return 0;
    if (o->valid.obj && o->valid.len < (o->start + o->rows + 7) / 8) return 0;
    for (Py_ssize_t i = 1; i < o->count; i++)
        if (o->programs[i - 1].id >= o->programs[i].id) return 0;
    return 1;
}

static int read_programs(walk_order *o, PyObject *given)
{
    Py_ssize_t size = PyTuple_Size(given);
    o->programs = calloc((size_t)size + 1, sizeof *o->programs);
    if (!o->programs) return PyErr_NoMemory() != NULL;
    for (; o->count < size; o->count++)
        if (!read_program(o->programs + o->count, PyTuple_GetItem(given, o->count))) {
            o->count++; /* free its buffer, too */
            return 0;
        }
    return 1;
}

static void release(walk_order *o)
{
    Py_buffer *held[] = {&o->valid, &o->offsets, &o->data, &o->ends, &o->fates};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        if (held[i]->obj) PyBuffer_Release(held[i]);
    for (Py_ssize_t i = 0; i < o->count; i++)
        if (o->programs[i].view.obj) PyBuffer_Release(&o->programs[i].view);
    free(o->programs);
}

static PyObject *rows(PyObject *module, PyObject *order)
{
    PyObject *programs, *allocator, *valid, *offsets, *data, *ends = NULL, *fates = NULL, *result = NULL;
    walk_order o;
    memset(&o, 0, sizeof o);
    (void)module;
    if (!PyTuple_Check(order)) return PyErr_Format(PyExc_TypeError, "an order is a tuple");
    if (!PyArg_ParseTuple(order, "O!pOLLiOOO", &PyTuple_Type, &programs, &o.is_framed, &allocator, &o.rows, &o.start,
                          &o.width, &valid, &offsets, &data))
        return NULL;
    if (read_programs(&o, programs) && take(valid, &o.valid) && take(offsets, &o.offsets) && take(data, &o.data)) {
        if (!is_sane(&o)) PyErr_SetString(PyExc_ValueError, "a column's buffers do not hold its rows");
        else if (make(allocator, o.rows * 8, &ends, &o.ends) && make(allocator, o.rows, &fates, &o.fates)) {
            int is_good;
            Py_BEGIN_ALLOW_THREADS
            is_good = walk_rows(&o);
            Py_END_ALLOW_THREADS
            if (is_good) result = Py_BuildValue("(OO)", ends, fates);
            else PyErr_SetString(PyExc_ValueError, "a column's offsets are not in order");
        }
    }
    release(&o);
    Py_XDECREF(ends);
    Py_XDECREF(fates);
    return result;
}

/* Returns the ends of consecutive data that fit, and what is wrong with the next one. */
static PyObject *block(PyObject *module, PyObject *order)
{
    PyObject *code, *allocator, *data, *ends = NULL, *fates = NULL, *result = NULL;
    walk_order o;
    memset(&o, 0, sizeof o);
    (void)module;
    if (!PyTuple_Check(order)) return PyErr_Format(PyExc_TypeError, "an order is a tuple");
    if (!PyArg_ParseTuple(order, "O!OLO", &PyTuple_Type, &code, &allocator, &o.rows, &data)) return NULL;
    if (o.rows < 0 || o.rows > MOST_ROWS) PyErr_SetString(PyExc_ValueError, "a block has rows of sane number");
    else if (read_programs(&o, code) && o.count == 1 && take(data, &o.data) &&
             make(allocator, o.rows * 8, &ends, &o.ends)) {
        const uint8_t *begin = o.data.buf, *at = begin;
        int64_t *to = o.ends.buf, done = 0;
        walk w = {o.programs->code, begin + o.data.len, NULL, 0, FITS};
        Py_BEGIN_ALLOW_THREADS
        for (; done < o.rows && (at = value(&w, *w.code, at, 1)); done++) to[done] = at - begin;
        Py_END_ALLOW_THREADS
        int fate = !at ? w.why : w.is_odd ? ODD : at < w.end ? LONGER : FITS;
        result = Py_BuildValue("(OLi)", ends, (long long)done, fate);
    }
    release(&o);
    Py_XDECREF(ends);
    Py_XDECREF(fates);
    return result;
}

static PyMethodDef methods[] = {
    {"rows", rows, METH_O, "See sinksdk.values.avro_walk."},
    {"block", block, METH_O, "See sinksdk.values.avro_walk."},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef_Slot slots[] = {{0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_avro", "Walks Avro datums by their schema.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__avro(void)
{
    return PyModuleDef_Init(&definition);
}
