package sinksdk.benchmarks;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Map;
import java.util.UUID;
import org.apache.kafka.clients.consumer.ConsumerInterceptor;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/**
 * Counts the records a consumer hands to its task. Three numbers in a file of the folder {@code count.folder}: how
 * many, and when the first and the last ones came (milliseconds). The file is mapped: counting costs no system call.
 */
public class CountingInterceptor implements ConsumerInterceptor<byte[], byte[]> {
    private MappedByteBuffer told;
    private long records;

    @Override
    public void configure(Map<String, ?> configs) {
        Path file = Path.of((String) configs.get("count.folder"), UUID.randomUUID().toString());
        try (FileChannel channel = FileChannel.open(
                file, StandardOpenOption.CREATE_NEW, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            told = channel.map(FileChannel.MapMode.READ_WRITE, 0, 3 * Long.BYTES);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Override
    public ConsumerRecords<byte[], byte[]> onConsume(ConsumerRecords<byte[], byte[]> polled) {
        long now = System.currentTimeMillis();
        if (records == 0) {
            told.putLong(Long.BYTES, now);
        }
        records += polled.count();
        told.putLong(0, records);
        told.putLong(2 * Long.BYTES, now);
        return polled;
    }

    @Override
    public void onCommit(Map<TopicPartition, OffsetAndMetadata> offsets) {}

    @Override
    public void close() {}
}
