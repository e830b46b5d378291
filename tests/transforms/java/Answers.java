import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.Configurable;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

/** Reads cases from standard input, writes what Kafka's own transforms and predicates make of them. */
public final class Answers {
    private static final String PACKAGE = "org.apache.kafka.connect.transforms.";
    private static final ObjectMapper JSON =
        new ObjectMapper().enable(SerializationFeature.ORDER_MAP_ENTRIES_BY_KEYS);

    public static void main(String[] arguments) throws Exception {
        JsonNode cases = JSON.readTree(System.in);
        List<Object> answers = new ArrayList<>();
        Map<String, Object> keys = new TreeMap<>();
        for (JsonNode one : cases) {
            String name = one.get("class").asText();
            Object plugin = Class.forName(PACKAGE + name).getDeclaredConstructor().newInstance();
            keys.computeIfAbsent(name, ignored -> keysOf(plugin));
            answers.add(answer(one, plugin));
        }
        System.out.println(JSON.writeValueAsString(Map.of("answers", answers, "keys", keys)));
    }

    private static Map<String, Object> keysOf(Object plugin) {
        ConfigDef definition = plugin instanceof Transformation<?> transform
            ? transform.config()
            : ((Predicate<?>) plugin).config();
        Map<String, Object> keys = new TreeMap<>();
        definition.configKeys().forEach((key, description) ->
            keys.put(key, description.hasDefault() ? String.valueOf(description.defaultValue) : "REQUIRED"));
        return keys;
    }

    @SuppressWarnings("unchecked")
    private static Object answer(JsonNode one, Object plugin) throws Exception {
        try {
            ((Configurable) plugin).configure(JSON.convertValue(one.get("config"), Map.class));
        } catch (Exception error) {
            return Map.of("refused", String.valueOf(error.getMessage()));
        }
        List<Object> outputs = new ArrayList<>();
        for (JsonNode record : one.get("records")) {
            outputs.add(output(plugin, record));
        }
        return Map.of("outputs", outputs);
    }

    @SuppressWarnings("unchecked")
    private static Object output(Object plugin, JsonNode record) throws Exception {
        SinkRecord given = given(record);
        try {
            if (plugin instanceof Predicate<?> predicate) {
                return ((Predicate<SinkRecord>) predicate).test(given);
            }
            SinkRecord made = ((Transformation<SinkRecord>) plugin).apply(given);
            return made == null ? "DROPPED" : shown(made);
        } catch (RuntimeException error) {
            return Map.of("error", error.getClass().getSimpleName() + ": " + error.getMessage());
        }
    }

    private static SinkRecord given(JsonNode record) throws Exception {
        SchemaAndValue key = part(record, "key", true);
        SchemaAndValue value = part(record, "value", false);
        ConnectHeaders headers = new ConnectHeaders();
        for (JsonNode header : record.path("headers")) {
            headers.addString(header.get(0).asText(), header.get(1).asText());
        }
        Long timestamp = record.hasNonNull("timestamp") ? record.get("timestamp").asLong() : null;
        return new SinkRecord(record.path("topic").asText("t"), 3, key.schema(), key.value(), value.schema(),
            value.value(), record.path("offset").asLong(7), timestamp, TimestampType.CREATE_TIME, headers);
    }

    private static SchemaAndValue part(JsonNode record, String name, boolean isKey) throws Exception {
        JsonConverter converter = new JsonConverter();
        boolean hasSchema = record.hasNonNull(name + "Schema");
        converter.configure(Map.of("schemas.enable", String.valueOf(hasSchema)), isKey);
        JsonNode content = record.get(name);
        if (hasSchema) {
            Map<String, Object> envelope = new HashMap<>();
            envelope.put("schema", record.get(name + "Schema"));
            envelope.put("payload", content);
            return converter.toConnectData("t", JSON.writeValueAsBytes(envelope));
        }
        boolean isNull = content == null || content.isNull();
        return converter.toConnectData("t", isNull ? null : JSON.writeValueAsBytes(content));
    }

    static Map<String, Object> shown(SinkRecord record) {
        Map<String, Object> shown = new LinkedHashMap<>();
        if (!"t".equals(record.topic())) {
            shown.put("topic", record.topic());
        }
        shown.put("key", plain(record.key()));
        shown.put("value", plain(record.value()));
        if (record.keySchema() != null) {
            shown.put("keyType", type(record.keySchema()));
        }
        if (record.valueSchema() != null) {
            shown.put("valueType", type(record.valueSchema()));
        }
        List<Object> headers = new ArrayList<>();
        SimpleHeaderConverter converter = new SimpleHeaderConverter();
        for (Header header : record.headers()) {
            byte[] bytes = converter.fromConnectHeader("t", header.key(), header.schema(), header.value());
            headers.add(java.util.Arrays.asList(header.key(), bytes == null ? null : new String(bytes)));
        }
        if (!headers.isEmpty()) {
            shown.put("headers", headers);
        }
        return shown;
    }

    private static Object type(Schema schema) {
        if (schema.type() == Schema.Type.STRUCT) {
            List<Object> fields = new ArrayList<>();
            for (Field field : schema.fields()) {
                fields.add(List.of(field.name(), type(field.schema())));
            }
            return fields;
        }
        if (schema.type() == Schema.Type.ARRAY) {
            return Map.of("array", type(schema.valueSchema()));
        }
        if (schema.type() == Schema.Type.MAP) {
            return Map.of("map", List.of(type(schema.keySchema()), type(schema.valueSchema())));
        }
        String name = schema.name() == null ? "" : schema.name();
        return name.startsWith("org.apache.kafka.connect.data.")
            ? name.substring(name.lastIndexOf('.') + 1)
            : schema.type().getName();
    }

    private static Object plain(Object value) {
        if (value instanceof Struct struct) {
            Map<String, Object> fields = new LinkedHashMap<>();
            for (Field field : struct.schema().fields()) {
                fields.put(field.name(), plain(struct.get(field)));
            }
            return fields;
        }
        if (value instanceof Map<?, ?> map) {
            Map<String, Object> entries = new TreeMap<>();
            map.forEach((name, content) -> entries.put(String.valueOf(name), plain(content)));
            return entries;
        }
        if (value instanceof List<?> list) {
            List<Object> items = new ArrayList<>();
            list.forEach(item -> items.add(plain(item)));
            return items;
        }
        if (value instanceof java.util.Date date) {
            return Map.of("$date", date.getTime());
        }
        if (value instanceof java.math.BigDecimal decimal) {
            return Map.of("$decimal", decimal.stripTrailingZeros().toPlainString());
        }
        if (value instanceof byte[] bytes) {
            return Map.of("$bytes", Base64.getEncoder().encodeToString(bytes));
        }
        if (value instanceof ByteBuffer buffer) {
            return Map.of("$bytes", Base64.getEncoder().encodeToString(buffer.array()));
        }
        return value instanceof Float single ? (Object) single.doubleValue() : value;
    }
}
