package sinksdk.benchmarks;

import org.apache.kafka.connect.connector.Task;

/** The lean sink, with tasks that are slowed down and tell what they are handed. */
public class PacedS3Sink extends LeanS3Sink {
    @Override
    public Class<? extends Task> taskClass() {
        return PacedS3SinkTask.class;
    }
}
