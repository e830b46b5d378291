/* A consumer of librdkafka that reads each partition from its own queue, straight into the buffers of an Arrow
   record batch: no Python object per record.

   The functions of librdkafka are passed in as addresses, taken from the library that confluent-kafka has
   loaded; nothing is linked or bundled. librdkafka never calls Python: messages and errors wait in queues.

   compiled_client.py wraps this module; plain_client.py does the same through confluent-kafka's public consumer.
   consumer.py calls one method at a time and none after a fork, which is why there is no lock here.

   Messages are taken first and summed up, then written into buffers of exactly that size. Other threads of
   Python run meanwhile. */

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

typedef struct { /* the beginning of rd_kafka_topic_partition_t */
    char *topic;
    int32_t partition;
    int64_t offset;
} topic_partition;

/* What is used of librdkafka: F(name without rd_kafka_, result, parameters). */
#define FUNCTIONS(F)                                                                                              \
    F(conf_new, void *, (void))                                                                                   \
    F(conf_set, int, (void *conf, const char *name, const char *value, char *error, size_t size))                 \
    F(conf_set_events, void, (void *conf, int events))                                                            \
    F(conf_destroy, void, (void *conf))                                                                           \
    F(new, void *, (int type, void *conf, char *error, size_t size))                                              \
    F(destroy_flags, void, (void *client, int flags))                                                             \
    F(poll_set_consumer, int, (void *client))                                                                     \
    F(fatal_error, int, (void *client, char *error, size_t size))                                                 \
    F(queue_get_consumer, void *, (void *client))                                                                 \
    F(queue_get_partition, void *, (void *client, const char *topic, int32_t partition))                          \
    F(queue_forward, void, (void *queue, void *to))                                                               \
    F(queue_poll, void *, (void *queue, int timeout_ms))                                                          \
    F(queue_destroy, void, (void *queue))                                                                         \
    F(topic_partition_list_new, void *, (int size))                                                               \
    F(topic_partition_list_add, topic_partition *, (void *list, const char *topic, int32_t partition))            \
    F(topic_partition_list_destroy, void, (void *list))                                                           \
    F(incremental_assign, void *, (void *client, const void *partitions))                                         \
    F(incremental_unassign, void *, (void *client, const void *partitions))                                       \
    F(position, int, (void *client, void *partitions))                                                            \
    F(error_string, const char *, (const void *error))                                                            \
    F(error_is_retriable, int, (const void *error))                                                               \
    F(error_destroy, void, (void *error))                                                                         \
    F(event_type, int, (const void *event))                                                                       \
    F(event_error, int, (void *event))                                                                            \
    F(event_error_string, const char *, (void *event))                                                            \
    F(event_error_is_fatal, int, (void *event))                                                                   \
    F(event_destroy, void, (void *event))                                                                         \
    F(consume_batch_queue, Py_ssize_t, (void *queue, int timeout_ms, message **messages, size_t count))           \
    F(message_destroy, void, (message *))                                                                         \
    F(message_timestamp, int64_t, (const message *, int *type))                                                   \
    F(message_headers, int, (const message *, void **headers))                                                    \
    F(header_get_all, int,                                                                                        \
      (const void *headers, size_t index, const char **name, const void **value, size_t *size))

#define MEMBER(name, result, parameters) result(*name) parameters;
#define NAME_OF(name, result, parameters) "rd_kafka_" #name,
typedef struct {
    FUNCTIONS(MEMBER)
} functions;
static const char *const names[] = {FUNCTIONS(NAME_OF)};
enum { COUNT = sizeof names / sizeof *names, ERROR_SIZE = 512 };
enum { CONSUMER = 1, FETCH_EVENT = 0x2, ERROR_EVENT = 0x8, NO_CONSUMER_CLOSE = 0x8 };

typedef struct partition_queue {
    struct partition_queue *next;
    void *queue;
    int32_t partition, first, last; /* of the messages that were taken out of the queue and are not read yet */
    message *messages[HELD];
    char topic[];
} partition_queue;

typedef struct {
    PyObject_HEAD
    functions call;
    void *client, *common; /* the common queue has the errors of the client as a whole */
    partition_queue *queues;
} consumer;

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
    const functions *call;
    partition_queue *queue;
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
    int code = b->call->message_headers(m, &headers);
    if (code) return code == NO_HEADERS ? 0 : code;
    for (size_t i = 0; !(code = b->call->header_get_all(headers, i, &name, &value, &size)); i++) {
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
    b->queue->first++;
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
    partition_queue *h = b->queue;
    int is_empty = 0; /* the queue had fewer messages than were asked for */
    while (b->rows < b->max_rows && (!b->rows || b->bytes < b->max_bytes)) {
        if (h->first == h->last) {
            if (is_empty) return 1;
            size_t count = portion(b);
            Py_ssize_t n = b->call->consume_batch_queue(h->queue, b->rows ? 0 : b->timeout_ms, h->messages, count);
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
    if (!b->call->message_headers(m, &headers))
        for (size_t i = 0; item < b->sum.items && !b->call->header_get_all(headers, i, &name, &value, &size); i++) {
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
            int64_t timestamp = b->call->message_timestamp(m, &type);
            if (b->columns & WANT_TIMESTAMP)
                ((int64_t *)b->views[TIMESTAMP].buf)[row] = type ? timestamp : NO_TIMESTAMP;
            if (b->columns & WANT_TYPE) ((int32_t *)b->views[TYPE].buf)[row] = type - 1;
        }
        if (b->columns & WANT_KEY) put(b, KEY_VALID, row, m->key, m->key_len);
        if (b->columns & WANT_VALUE) put(b, VALUE_VALID, row, m->payload, m->len);
        if (b->columns & WANT_HEADERS) put_headers(b, row, m);
        b->call->message_destroy(m);
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

static partition_queue *find(const consumer *self, const char *topic, int32_t partition)
{
    partition_queue *q = self->queues;
    while (q && (q->partition != partition || strcmp(q->topic, topic))) q = q->next;
    return q;
}

static PyObject *fill(PyObject *object, PyObject *arguments)
{
    consumer *self = (consumer *)object;
    const char *topic;
    int partition;
    long long end, max_rows, max_bytes, limit;
    PyObject *allocator, *filled = NULL;
    batch b;
    memset(&b, 0, sizeof b);
    if (!PyArg_ParseTuple(arguments, "siiLLLiLO", &topic, &partition, &b.timeout_ms, &end, &max_rows, &max_bytes,
                          &b.columns, &limit, &allocator))
        return NULL;
    b.call = &self->call;
    b.queue = find(self, topic, partition);
    if (!b.queue) return PyErr_Format(PyExc_KeyError, "%s-%d", topic, partition);
    b.end = end, b.max_rows = max_rows, b.max_bytes = max_bytes, b.limit = limit;
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
        if (b.taken[row]) b.call->message_destroy(b.taken[row]);
    if (b.event) b.call->message_destroy(b.event);
    PyErr_Restore(type, value, trace);
    free(b.taken);
    Py_DECREF(buffers);
    return filled;
}

/* Destroys all messages of a queue, those left in librdkafka's would stay in memory, and the queue. */
static void close_queue(consumer *self, partition_queue *q)
{
    do {
        while (q->first < q->last) self->call.message_destroy(q->messages[q->first++]);
        Py_ssize_t n = self->call.consume_batch_queue(q->queue, 0, q->messages, HELD);
        q->first = 0;
        q->last = n > 0 ? (int32_t)n : 0;
    } while (q->last);
    self->call.queue_destroy(q->queue);
    free(q);
}

/* Adds an empty queue. Returns 0 where there is no memory. */
static int open_queue(consumer *self, const char *topic, int32_t partition)
{
    size_t size = strlen(topic) + 1;
    partition_queue *q = malloc(sizeof *q + size);
    if (!q) return 0;
    memcpy(q->topic, topic, size);
    q->partition = partition;
    q->first = q->last = 0;
    q->queue = self->call.queue_get_partition(self->client, topic, partition);
    /* Before the partition is assigned, or librdkafka sends its messages to the common queue. */
    self->call.queue_forward(q->queue, NULL);
    q->next = self->queues;
    self->queues = q;
    return 1;
}

static void close_queues_until(consumer *self, const partition_queue *end)
{
    while (self->queues != end) {
        partition_queue *q = self->queues;
        self->queues = q->next;
        close_queue(self, q);
    }
}

/* Returns (text, is_retriable) or None. */
static PyObject *refusal(const functions *call, void *error)
{
    if (!error) return Py_BuildValue("");
    const char *text = call->error_string(error);
    PyObject *found = Py_BuildValue("(yN)", text ? text : "", PyBool_FromLong(call->error_is_retriable(error)));
    call->error_destroy(error);
    return found;
}

/* Reads [(topic, partition, offset), ...]; the list is the caller's. */
static void *as_list(const functions *call, PyObject *rows)
{
    Py_ssize_t count = PyList_Size(rows);
    if (count < 0) return NULL;
    void *list = call->topic_partition_list_new((int)count);
    for (Py_ssize_t i = 0; i < count; i++) {
        const char *topic;
        int partition;
        long long offset;
        if (!PyArg_ParseTuple(PyList_GetItem(rows, i), "siL", &topic, &partition, &offset)) {
            call->topic_partition_list_destroy(list);
            return NULL;
        }
        call->topic_partition_list_add(list, topic, partition)->offset = offset;
    }
    return list;
}

static PyObject *add(PyObject *object, PyObject *rows)
{
    consumer *self = (consumer *)object;
    void *list = as_list(&self->call, rows), *error;
    if (!list) return NULL;
    const partition_queue *before = self->queues;
    for (Py_ssize_t i = 0; i < PyList_Size(rows); i++) {
        const char *topic;
        int partition;
        long long offset;
        if (!PyArg_ParseTuple(PyList_GetItem(rows, i), "siL", &topic, &partition, &offset)) return NULL;
        if (!find(self, topic, partition) && !open_queue(self, topic, partition)) {
            close_queues_until(self, before);
            self->call.topic_partition_list_destroy(list);
            return PyErr_NoMemory();
        }
    }
    Py_BEGIN_ALLOW_THREADS
    error = self->call.incremental_assign(self->client, list);
    self->call.topic_partition_list_destroy(list);
    if (error) close_queues_until(self, before);
    Py_END_ALLOW_THREADS
    return refusal(&self->call, error);
}

static PyObject *discard(PyObject *object, PyObject *rows)
{
    consumer *self = (consumer *)object;
    void *list = as_list(&self->call, rows), *error;
    if (!list) return NULL;
    Py_BEGIN_ALLOW_THREADS
    error = self->call.incremental_unassign(self->client, list);
    self->call.topic_partition_list_destroy(list);
    Py_END_ALLOW_THREADS
    if (error) return refusal(&self->call, error);
    for (Py_ssize_t i = 0; i < PyList_Size(rows); i++) {
        const char *topic;
        int partition;
        long long offset;
        if (!PyArg_ParseTuple(PyList_GetItem(rows, i), "siL", &topic, &partition, &offset)) return NULL;
        partition_queue *q = find(self, topic, partition), **at = &self->queues;
        if (!q) continue;
        while (*at != q) at = &(*at)->next;
        *at = q->next;
        Py_BEGIN_ALLOW_THREADS
        close_queue(self, q);
        Py_END_ALLOW_THREADS
    }
    return Py_BuildValue("");
}

static PyObject *position(PyObject *object, PyObject *arguments)
{
    consumer *self = (consumer *)object;
    const char *topic;
    int partition;
    if (!PyArg_ParseTuple(arguments, "si", &topic, &partition)) return NULL;
    void *list = self->call.topic_partition_list_new(1);
    topic_partition *row = self->call.topic_partition_list_add(list, topic, partition);
    self->call.position(self->client, list);
    long long offset = row->offset;
    self->call.topic_partition_list_destroy(list);
    return PyLong_FromLongLong(offset);
}

static PyObject *errors(PyObject *object, PyObject *unused)
{
    consumer *self = (consumer *)object;
    const functions *call = &self->call;
    PyObject *found = PyList_New(0);
    void *event;
    (void)unused;
    while (found && (event = call->queue_poll(self->common, 0))) {
        int type = call->event_type(event), is_added = 0;
        if (type == ERROR_EVENT) {
            char reason[ERROR_SIZE] = "";
            int is_fatal = call->event_error_is_fatal(event), code = call->event_error(event);
            const char *text = call->event_error_string(event);
            if (is_fatal) {
                int cause = call->fatal_error(self->client, reason, sizeof reason);
                if (cause) code = cause;
                if (*reason) text = reason;
            }
            PyObject *error = Py_BuildValue("(iyN)", code, text ? text : "", PyBool_FromLong(is_fatal));
            is_added = error && !PyList_Append(found, error);
            Py_XDECREF(error);
        } else if (type == FETCH_EVENT) {
            PyErr_SetString(PyExc_RuntimeError, "a message of Kafka did not come on its partition's own queue");
        } else {
            is_added = 1;
        }
        call->event_destroy(event);
        if (!is_added) Py_CLEAR(found);
    }
    return found;
}

/* Closes queues before their client, which would wait for their messages for ever. */
static PyObject *close_consumer(PyObject *object, PyObject *unused)
{
    consumer *self = (consumer *)object;
    void *client = self->client;
    (void)unused;
    self->client = NULL;
    if (!client) return Py_BuildValue("");
    Py_BEGIN_ALLOW_THREADS
    close_queues_until(self, NULL);
    self->call.queue_destroy(self->common);
    self->call.destroy_flags(client, NO_CONSUMER_CLOSE); /* it is in no group that it had to leave */
    Py_END_ALLOW_THREADS
    return Py_BuildValue("");
}

/* Raises ValueError with the property, or an empty text, and librdkafka's reason. */
static int open_client(consumer *self, PyObject *properties)
{
    const functions *call = &self->call;
    char reason[ERROR_SIZE] = "";
    PyObject *key, *value;
    Py_ssize_t at = 0;
    const char *name = "";
    void *conf = call->conf_new();
    while (PyDict_Next(properties, &at, &key, &value)) {
        const char *text = PyUnicode_AsUTF8AndSize(value, NULL);
        name = PyUnicode_AsUTF8AndSize(key, NULL);
        if (!name || !text || call->conf_set(conf, name, text, reason, sizeof reason)) goto refused;
    }
    name = "";
    call->conf_set_events(conf, ERROR_EVENT);
    Py_BEGIN_ALLOW_THREADS
    self->client = call->new(CONSUMER, conf, reason, sizeof reason);
    Py_END_ALLOW_THREADS
    if (self->client) { /* which owns the configuration from now on */
        call->poll_set_consumer(self->client);
        self->common = call->queue_get_consumer(self->client);
        return 1;
    }
refused:
    call->conf_destroy(conf);
    if (!PyErr_Occurred()) {
        PyObject *arguments = Py_BuildValue("(sy)", name, reason);
        if (arguments) PyErr_SetObject(PyExc_ValueError, arguments);
        Py_XDECREF(arguments);
    }
    return 0;
}

static PyObject *open_consumer(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    PyObject *addresses, *properties;
    (void)keywords;
    if (!PyArg_ParseTuple(arguments, "O!O!", &PyTuple_Type, &addresses, &PyDict_Type, &properties)) return NULL;
    if (PyTuple_Size(addresses) != COUNT) return PyErr_Format(PyExc_ValueError, "%d functions are wanted", COUNT);
    uintptr_t found[COUNT];
    for (int i = 0; i < COUNT; i++) found[i] = (uintptr_t)PyLong_AsVoidPtr(PyTuple_GetItem(addresses, i));
    if (PyErr_Occurred()) return NULL;
    consumer *self = (consumer *)PyType_GenericAlloc(type, 0);
    if (!self) return NULL;
    _Static_assert(sizeof found == sizeof(functions), "a pointer to a function is as large as one to an object");
    memcpy(&self->call, found, sizeof found);
    if (open_client(self, properties)) return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

/* A consumer that was not closed leaks its client: in a forked child, that is its parent's. */
static void forget(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"add", add, METH_O, NULL},
    {"remove", discard, METH_O, NULL},
    {"fill", fill, METH_VARARGS, NULL},
    {"position", position, METH_VARARGS, NULL},
    {"errors", errors, METH_NOARGS, NULL},
    {"close", close_consumer, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot type_slots[] = {
    {Py_tp_new, open_consumer}, {Py_tp_dealloc, forget}, {Py_tp_methods, methods}, {0, NULL}};
static PyType_Spec type_spec = {
    "sinksdk.topics.kafka._messages.Consumer", sizeof(consumer), 0, Py_TPFLAGS_DEFAULT, type_slots};

static int fill_module(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&type_spec), *wanted = PyTuple_New(COUNT);
    for (int i = 0; wanted && i < COUNT; i++)
        if (PyTuple_SetItem(wanted, i, PyUnicode_FromString(names[i])) < 0) Py_CLEAR(wanted);
    int is_filled = type && wanted && !PyModule_AddObjectRef(module, "Consumer", type) &&
                    !PyModule_AddObjectRef(module, "FUNCTIONS", wanted);
    Py_XDECREF(type);
    Py_XDECREF(wanted);
    return is_filled ? 0 : -1;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_messages", "A consumer of librdkafka that fills Arrow's buffers.", 0, NULL, slots,
    NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__messages(void)
{
    return PyModuleDef_Init(&definition);
}
