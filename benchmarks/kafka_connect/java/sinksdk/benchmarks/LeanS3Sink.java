package sinksdk.benchmarks;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.sink.SinkConnector;

/** Whole Kafka records as Avro container files on S3: the least that a sink on Connect's API has to do. */
public class LeanS3Sink extends SinkConnector {
    private Map<String, String> props;

    @Override
    public void start(Map<String, String> given) {
        props = given;
    }

    @Override
    public Class<? extends Task> taskClass() {
        return LeanS3SinkTask.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int maxTasks) {
        List<Map<String, String>> configs = new ArrayList<>();
        for (int task = 0; task < maxTasks; task++) {
            configs.add(props);
        }
        return configs;
    }

    @Override
    public void stop() {}

    @Override
    public ConfigDef config() {
        return new ConfigDef();
    }

    @Override
    public String version() {
        return "1";
    }
}
