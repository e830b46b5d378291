/* Messages of librdkafka into the buffers of an Arrow record batch: no Python object per record.

   The functions of librdkafka come as addresses from the library that is loaded; nothing is linked.
   messages.py holds the same in Python, which says what is meant; both give the same bytes.

   Messages are taken first and summed up, then written into buffers of exactly that size. While that goes
   on, and while it waits, other threads of Python run. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct { /* rd_kafka_message_t */
    int err;
    void *topic;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *private_;
} message;

enum { HELD = 128, NO_TIMESTAMP = -1 };
enum { END_OF_PARTITION = -191, NO_HEADERS = -156, BAD_MESSAGE = -199 };
enum { WANT_TIMESTAMP = 1, WANT_TYPE = 2, WANT_KEY = 4, WANT_VALUE = 8, WANT_HEADERS = 16 };

typedef struct { /* messages that were taken out of the queue and are not written yet */
    int32_t first, last;
    message *messages[HELD];
} held;

typedef struct {
    Py_ssize_t (*consume)(void *queue, int timeout_ms, message **messages, size_t count);
    void (*destroy)(message *);
    int64_t (*timestamp)(const message *, int *type);
    int (*headers)(const message *, void **headers);
    int (*header)(const void *headers, size_t index, const char **name, const void **value, size_t *size);
} calls;

enum {
    OFFSET, TIMESTAMP, TYPE, KEY_VALID, KEY_ENDS, KEY, VALUE_VALID, VALUE_ENDS, VALUE,
    LIST_VALID, LIST_ENDS, NAME_ENDS, NAME, ITEM_VALID, ITEM_ENDS, ITEM, BUFFERS
};

enum { BYTES, INTEGERS, VALID, ENDS };

static const struct {
    int want, kind, width;
} plan[BUFFERS] = {
    [OFFSET] = {0, INTEGERS, 8},
   
    [TIMESTAMP] = {WANT_TIMESTAMP, INTEGERS, 8},
    [TYPE] = {WANT_TYPE, INTEGERS, 4},
    [KEY_VALID] = {WANT_KEY, VALID, 0}, [KEY_ENDS] = {WANT_KEY, ENDS, 0}, [KEY] = {WANT_KEY, BYTES, 0},
    [VALUE_VALID] = {WANT_VALUE, VALID, 0}, [VALUE_ENDS] = {WANT_VALUE, ENDS, 0}, [VALUE] = {WANT_VALUE, BYTES, 0},
    [LIST_VALID] = {WANT_HEADERS, VALID, 0}, [LIST_ENDS] = {WANT_HEADERS, ENDS, 0},
    [NAME_ENDS] = {WANT_HEADERS, ENDS, 0}, [NAME] = {WANT_HEADERS, BYTES, 0},
    [ITEM_VALID] = {WANT_HEADERS, VALID, 0}, [ITEM_ENDS] = {WANT_HEADERS, ENDS, 0}, [ITEM] = {WANT_HEADERS, BYTES, 0},
};

typedef struct {
    int64_t key, value, name, item, items; /* bytes; items are counted */
} sums;

typedef struct {
    calls call;
    void *queue;
    held *held;
    int timeout_ms;
    int64_t end, max_rows, max_bytes, limit;
    int columns;
    message **taken;
    int64_t rows, room, bytes;
    sums sum;
    int64_t nulls[BUFFERS]; /* by the buffer that says which */
    int64_t next, event_offset;
    int has_next, is_end, event_code;
    message *event;
    Py_buffer views[BUFFERS];
} batch;

/* More bytes of a column; beyond what it may hold they are only too many, not counted. */
static void grow(const batch *b, int64_t *sum, size_t size)
{
    *sum += size > (size_t)b->limit ? b->limit + 1 : (int64_t)size;
}

/* Adds a message to the sums. Returns 0, or why its headers cannot be read. */
static int measure(batch *b, const message *m, sums *s)
{
    void *headers = NULL;
    const char *name;
    const void *value;
    size_t size;
    if (m->key) grow(b, &s->key, m->key_len);
    if (m->payload) grow(b, &s->value, m->len);
    if (!(b->columns & WANT_HEADERS)) return 0;
    int code = b->call.headers(m, &headers);
    if (code) return code == NO_HEADERS ? 0 : code;
    for (size_t i = 0; !(code = b->call.header(headers, i, &name, &value, &size)); i++) {
        grow(b, &s->name, strlen(name));
        if (value) grow(b, &s->item, size);
        s->items++;
    }
    return code == NO_HEADERS ? 0 : code;
}

static int fits(const batch *b, const sums *s)
{
    return s->key <= b->limit && s->value <= b->limit && s->name <= b->limit && s->item <= b->limit &&
           s->items <= b->limit;
}

/* How many messages to ask for: of the size of those before, no more than may be taken. */
static size_t portion(const batch *b)
{
    if (!b->rows) return 1; /* or the queue waits until it has them all */
    int64_t size = b->bytes / b->rows, count = HELD;
    if (size && (b->max_bytes - b->bytes) / size + 1 < count) count = (b->max_bytes - b->bytes) / size + 1;
    return (size_t)(b->max_rows - b->rows < count ? b->max_rows - b->rows : count);
}

static void report(batch *b, message *m, int code)
{
    b->held->first++;
    b->event = m;
    b->event_code = code;
    b->event_offset = m->offset;
    if (code != END_OF_PARTITION) return;
    b->next = m->offset;
    b->has_next = 1;
    b->is_end = m->offset >= b->end;
}

/* Takes messages; returns 0 where there is no memory. What is not taken stays among those held. */
static int take(batch *b)
{
    held *h = b->held;
    int is_empty = 0; /* the queue had fewer messages than were asked for */
    while (b->rows < b->max_rows && (!b->rows || b->bytes < b->max_bytes)) {
        if (h->first == h->last) {
            if (is_empty) return 1;
            size_t count = portion(b);
            Py_ssize_t n = b->call.consume(b->queue, b->rows ? 0 : b->timeout_ms, h->messages, count);
            h->first = 0;
            h->last = n > 0 ? (int32_t)n : 0;
            if (n <= 0) return 1;
            is_empty = (size_t)n < count;
        }
        message *m = h->messages[h->first];
        sums s = b->sum;
        if (m->err) {
            report(b, m, m->err);
            return 1;
        }
        if (m->offset >= b->end) {
            b->next = b->end;
            b->has_next = b->is_end = 1;
            return 1;
        }
        int code = measure(b, m, &s);
        if (code || !fits(b, &s)) {
            if (code || !b->rows) report(b, m, code ? code : BAD_MESSAGE);
            return 1;
        }
        if (b->rows == b->room) {
            int64_t room = b->room ? b->room * 2 : 256;
            message **more = realloc(b->taken, (size_t)room * sizeof(message *));
            if (!more) return 0;
            b->taken = more;
            b->room = room;
        }
        h->first++;
        b->taken[b->rows++] = m;
        b->sum = s;
        b->bytes = s.key + s.value + s.name + s.item;
        b->next = m->offset + 1;
        b->has_next = 1;
        if (b->next >= b->end) {
            b->is_end = 1;
            return 1;
        }
    }
    return 1;
}

static void mark(batch *b, int which, int64_t row, int is_valid)
{
    if (is_valid)
        ((uint8_t *)b->views[which].buf)[row / 8] |= (uint8_t)(1u << (row % 8));
    else
        b->nulls[which]++;
}

/* One value of a column of bytes: which is followed by the buffers of its ends and its bytes. */
static void put(batch *b, int which, int64_t row, const void *from, size_t size)
{
    int32_t *ends = b->views[which + 1].buf;
    mark(b, which, row, from != NULL);
    if (!from) size = 0;
    if (size) memcpy((uint8_t *)b->views[which + 2].buf + ends[row], from, size);
    ends[row + 1] = ends[row] + (int32_t)size;
}

static void put_headers(batch *b, int64_t row, const message *m)
{
    int32_t *ends = b->views[LIST_ENDS].buf, *names = b->views[NAME_ENDS].buf, item = ends[row];
    void *headers = NULL;
    const char *name;
    const void *value;
    size_t size;
    if (!b->call.headers(m, &headers))
        for (size_t i = 0; item < b->sum.items && !b->call.header(headers, i, &name, &value, &size); i++) {
            int32_t length = (int32_t)strlen(name);
            memcpy((uint8_t *)b->views[NAME].buf + names[item], name, (size_t)length);
            names[item + 1] = names[item] + length;
            put(b, ITEM_VALID, item++, value, size);
        }
    mark(b, LIST_VALID, row, item > ends[row]);
    ends[row + 1] = item;
}

/* Writes all messages, and destroys each. */
static void write_all(batch *b)
{
    for (int64_t row = 0; row < b->rows; row++) {
        message *m = b->taken[row];
        ((int64_t *)b->views[OFFSET].buf)[row] = m->offset;
        if (b->columns & (WANT_TIMESTAMP | WANT_TYPE)) {
            int type = 0; /* 0 none, 1 create time, 2 log append time */
            int64_t timestamp = b->call.timestamp(m, &type);
            if (b->columns & WANT_TIMESTAMP)
                ((int64_t *)b->views[TIMESTAMP].buf)[row] = type ? timestamp : NO_TIMESTAMP;
            if (b->columns & WANT_TYPE) ((int32_t *)b->views[TYPE].buf)[row] = type - 1;
        }
        if (b->columns & WANT_KEY) put(b, KEY_VALID, row, m->key, m->key_len);
        if (b->columns & WANT_VALUE) put(b, VALUE_VALID, row, m->payload, m->len);
        if (b->columns & WANT_HEADERS) put_headers(b, row, m);
        b->call.destroy(m);
        b->taken[row] = NULL;
    }
}

/* Asks for the buffers, which the tuple owns. Returns 0 with an exception set. */
static int allocate(batch *b, PyObject *allocator, PyObject *buffers)
{
    const int64_t bytes[BUFFERS] = {
        [KEY] = b->sum.key, [VALUE] = b->sum.value, [NAME] = b->sum.name, [ITEM] = b->sum.item};
    for (int i = 0; i < BUFFERS; i++) {
        if (plan[i].want && !(b->columns & plan[i].want)) continue;
        int64_t values = i < NAME_ENDS ? b->rows : b->sum.items, size = bytes[i];
        if (plan[i].kind == INTEGERS) size = values * plan[i].width;
        if (plan[i].kind == VALID) size = (values + 7) / 8;
        if (plan[i].kind == ENDS) size = (values + 1) * 4;
        PyObject *buffer = PyObject_CallFunction(allocator, "L", (long long)size);
        if (!buffer || PyTuple_SetItem(buffers, i, buffer) < 0) return 0;
        if (PyObject_GetBuffer(buffer, &b->views[i], PyBUF_WRITABLE) < 0) return 0;
        if (b->views[i].len != size) {
            PyErr_SetString(PyExc_ValueError, "a buffer is not of the size that was asked for");
            return 0;
        }
        if (plan[i].kind == VALID && size) memset(b->views[i].buf, 0, (size_t)size);
        if (plan[i].kind == ENDS) *(int32_t *)b->views[i].buf = 0;
    }
    return 1;
}

static PyObject *result(batch *b, PyObject *buffers)
{
    const message *m = b->event;
    const char *text = m && m->err ? m->payload : NULL;
    PyObject *event = m ? Py_BuildValue("(iLy#)", b->event_code, (long long)b->event_offset, text,
                                        (Py_ssize_t)(text ? m->len : 0))
                        : Py_BuildValue("");
    PyObject *next = b->has_next ? PyLong_FromLongLong(b->next) : Py_BuildValue("");
    return Py_BuildValue("(LLNNN(LLLL)O)", (long long)b->rows, (long long)b->sum.items, next,
                         PyBool_FromLong(b->is_end), event, (long long)b->nulls[KEY_VALID],
                         (long long)b->nulls[VALUE_VALID], (long long)b->nulls[LIST_VALID],
                         (long long)b->nulls[ITEM_VALID], buffers);
}

static PyObject *fill(PyObject *module, PyObject *order)
{
    unsigned long long f[5], queue, held_at;
    long long end, max_rows, max_bytes, limit;
    PyObject *allocator, *filled = NULL;
    batch b;
    memset(&b, 0, sizeof b);
    if (!PyTuple_Check(order)) return PyErr_Format(PyExc_TypeError, "an order is a tuple");
    if (!PyArg_ParseTuple(order, "(KKKKK)KKiLLLiLO", &f[0], &f[1], &f[2], &f[3], &f[4], &queue, &held_at,
                          &b.timeout_ms, &end, &max_rows, &max_bytes, &b.columns, &limit, &allocator))
        return NULL;
    b.call.consume = (Py_ssize_t(*)(void *, int, message **, size_t))(uintptr_t)f[0];
    b.call.destroy = (void (*)(message *))(uintptr_t)f[1];
    b.call.timestamp = (int64_t(*)(const message *, int *))(uintptr_t)f[2];
    b.call.headers = (int (*)(const message *, void **))(uintptr_t)f[3];
    b.call.header = (int (*)(const void *, size_t, const char **, const void **, size_t *))(uintptr_t)f[4];
    b.queue = (void *)(uintptr_t)queue;
    b.held = (held *)(uintptr_t)held_at;
    b.end = end, b.max_rows = max_rows, b.max_bytes = max_bytes, b.limit = limit;
    (void)module;
    PyObject *buffers = PyTuple_New(BUFFERS);
    if (!buffers) return NULL;
    for (int i = 0; i < BUFFERS; i++) Py_INCREF(Py_None), PyTuple_SetItem(buffers, i, Py_None);

    int is_taken;
    Py_BEGIN_ALLOW_THREADS
    is_taken = take(&b);
    Py_END_ALLOW_THREADS
    if (!is_taken) {
        PyErr_NoMemory();
    } else if (!b.rows || allocate(&b, allocator, buffers)) {
        Py_BEGIN_ALLOW_THREADS
        if (b.rows) write_all(&b);
        Py_END_ALLOW_THREADS
        filled = result(&b, buffers);
    }
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace); /* or functions that are Python's, as in tests, fail by it */
    for (int i = 0; i < BUFFERS; i++)
        if (b.views[i].obj) PyBuffer_Release(&b.views[i]);
    for (int64_t row = 0; row < b.rows; row++)
        if (b.taken[row]) b.call.destroy(b.taken[row]);
    if (b.event) b.call.destroy(b.event);
    PyErr_Restore(type, value, trace);
    free(b.taken);
    Py_DECREF(buffers);
    return filled;
}

static PyMethodDef methods[] = {
    {"fill", fill, METH_O, "See sinksdk.topics.kafka.messages."},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef_Slot slots[] = {{0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_messages", "Messages of librdkafka into Arrow's buffers.", 0, methods, slots,
    NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__messages(void)
{
    return PyModuleDef_Init(&definition);
}
