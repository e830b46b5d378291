package sinksdk.benchmarks;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Collection;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * All partitions but one are slow from some offset on, and a journal has what was handed over. It does what the
 * class of the same purpose in kip275/paced.py does.
 */
public class PacedS3SinkTask extends LeanS3SinkTask {
    private Path journal;
    private int fast;
    private long slowFrom;
    private long rate;

    @Override
    public void start(Map<String, String> given) {
        super.start(given);
        journal = Path.of(given.get("journal"));
        fast = Integer.parseInt(given.get("pace.fast.partition"));
        slowFrom = Long.parseLong(given.get("pace.slow.from"));
        rate = Long.parseLong(given.get("pace.records.per.second"));
    }

    @Override
    public void open(Collection<TopicPartition> partitions) {
        super.open(partitions);
        StringBuilder lines = new StringBuilder();
        partitions.forEach(partition -> lines.append("open " + partition.partition() + "\n"));
        tell(lines);
    }

    @Override
    public void put(Collection<SinkRecord> records) {
        Map<Integer, long[]> ranges = new TreeMap<>();
        long slow = 0;
        for (SinkRecord record : records) {
            long offset = record.kafkaOffset();
            ranges.computeIfAbsent(record.kafkaPartition(), partition -> new long[] {offset, 0})[1] = offset + 1;
            slow += record.kafkaPartition() != fast && offset >= slowFrom ? 1 : 0;
        }
        StringBuilder lines = new StringBuilder();
        ranges.forEach((partition, range) -> lines.append("put " + partition + " " + range[0] + " " + range[1] + "\n"));
        tell(lines);
        pause(slow * 1000 / rate);
        super.put(records);
    }

    /** One write to a file opened for appending: lines of several tasks do not mix. */
    private void tell(CharSequence lines) {
        try {
            Files.writeString(journal, lines, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static void pause(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException error) {
            throw new ConnectException(error);
        }
    }
}
