/* What reading costs at least: messages are taken out of librdkafka's queue, counted, and thrown away. */

#include <stdint.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct { /* rd_kafka_message_t, as far as it is looked at */
    int err;
    void *topic;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
} message;

enum { AT_ONCE = 1024, PATIENCE = 100 /* ms */, LOOKS = 600 };

/* How many messages there are before an offset; -1 if nothing came for a minute. */
int64_t count(ssize_t (*consume)(void *, int, message **, size_t), void (*destroy)(message *), void *queue,
              int64_t end)
{
    message *found[AT_ONCE];
    int64_t counted = 0, at = 0;
    for (int looks = 0; at < end && looks < LOOKS; looks++) {
        ssize_t n = consume(queue, PATIENCE, found, AT_ONCE);
        for (ssize_t i = 0; i < n; i++) {
            if (!found[i]->err && found[i]->offset < end) {
                at = found[i]->offset + 1;
                counted++;
                looks = 0;
            }
            destroy(found[i]);
        }
    }
    return at < end ? -1 : counted;
}
