package sinksdk.benchmarks;

import java.io.IOException;
import java.net.URI;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.s3.S3Client;

/** Streams each partition's records into one file, commits complete files, drops open ones when closed. */
public class LeanS3SinkTask extends SinkTask {
    private final Map<TopicPartition, AvroFile> open = new HashMap<>();
    private final Map<TopicPartition, OffsetAndMetadata> complete = new HashMap<>();
    private Map<String, String> props;
    private int flushSize;
    private S3Client s3;

    @Override
    public void start(Map<String, String> given) {
        props = given;
        flushSize = Integer.parseInt(given.get("flush.size"));
        s3 = S3Client.builder()
                .endpointOverride(URI.create(given.get("store.url")))
                .region(Region.US_EAST_1)
                .forcePathStyle(true)
                .credentialsProvider(StaticCredentialsProvider.create(AwsBasicCredentials.create("key", "secret")))
                .build();
    }

    @Override
    public void put(Collection<SinkRecord> records) {
        try {
            for (SinkRecord record : records) {
                write(record);
            }
        } catch (IOException error) {
            throw new ConnectException(error);
        }
    }

    private void write(SinkRecord record) throws IOException {
        TopicPartition partition = new TopicPartition(record.topic(), record.kafkaPartition());
        AvroFile file = open.get(partition);
        if (file == null) {
            String key = String.format("%s/partition=%d/%s+%d+%010d.avro", props.get("topics.dir") + "/" + record.topic(),
                    record.kafkaPartition(), record.topic(), record.kafkaPartition(), record.kafkaOffset());
            file = new AvroFile(new S3Upload(s3, props.get("s3.bucket.name"), key), props.get("avro.codec"));
            open.put(partition, file);
        }
        file.append(record);
        if (file.records() == flushSize) {
            file.complete();
            open.remove(partition);
            complete.put(partition, new OffsetAndMetadata(record.kafkaOffset() + 1));
        }
    }

    @Override
    public Map<TopicPartition, OffsetAndMetadata> preCommit(Map<TopicPartition, OffsetAndMetadata> current) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>(complete);
        complete.clear();
        return offsets;
    }

    @Override
    public void close(Collection<TopicPartition> partitions) {
        partitions.forEach(open::remove);
        partitions.forEach(complete::remove);
    }

    @Override
    public void stop() {
        if (s3 != null) {
            s3.close();
        }
    }

    @Override
    public String version() {
        return "1";
    }
}
