import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.apicurio.registry.serde.avro.NonRecordContainer;
import io.apicurio.registry.utils.converter.avro.AvroData;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.avro.file.DataFileWriter;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.DecoderFactory;
import org.apache.kafka.common.Configurable;
import org.apache.kafka.common.errors.SerializationException;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.converters.ByteArrayConverter;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.parquet.avro.AvroParquetWriter;
import org.apache.parquet.avro.AvroWriteSupport;
import org.apache.parquet.hadoop.ParquetWriter;
import org.apache.parquet.io.LocalOutputFile;

/**
 * Reads configurations and records from standard input; writes what each format's file holds of each record.
 *
 * Converters and transforms are Kafka's own. The formats call the classes that the record writers of Confluent's S3
 * sink call (kafka-connect-storage-cloud, package format): JsonConverter and Jackson, ByteArrayConverter, AvroData with
 * Avro's DataFileWriter, AvroData with AvroParquetWriter. Each record has a file of its own.
 */
public final class Values {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String TOPIC = "orders";
    private static final long TIMESTAMP = 1_700_000_000_123L;

    private AvroData avroData;
    private final ByteArrayConverter bytesWriter = new ByteArrayConverter();
    private final JsonConverter jsonWriter = new JsonConverter();
    private final List<Transformation<SinkRecord>> transforms = new ArrayList<>();
    private final Converter reader;
    private final boolean readsKeys;
    private final boolean writesKeys;

    private Values(JsonNode setup) throws Exception {
        readsKeys = setup.get("reads").asText().equals("key");
        writesKeys = setup.get("writes").asText().equals("key");
        String name = setup.get("converter").asText();
        reader = name.equals("avro")
            ? new FramedAvro(setup.get("schemas"))
            : (Converter) Class.forName(name).getDeclaredConstructor().newInstance();
        reader.configure(JSON.convertValue(setup.get("config"), Map.class), readsKeys);
        jsonWriter.configure(Map.of("schemas.enable", "false", "decimal.format", setup.get("decimals").asText()), false);
        for (JsonNode one : setup.get("transforms")) {
            transforms.add(transform(one));
        }
    }

    public static void main(String[] arguments) throws Exception {
        List<Object> answers = new ArrayList<>();
        for (JsonNode setup : JSON.readTree(System.in)) {
            Values values = new Values(setup);
            List<Object> ofSetup = new ArrayList<>();
            for (JsonNode input : setup.get("inputs")) {
                byte[] given = input.isNull() ? null : Base64.getDecoder().decode(input.asText());
                ofSetup.add(values.answer(ofSetup.size(), given));
            }
            answers.add(ofSetup);
        }
        System.out.println(JSON.writeValueAsString(answers));
    }

    @SuppressWarnings("unchecked")
    private static Transformation<SinkRecord> transform(JsonNode one) throws Exception {
        Object plugin = Class.forName("org.apache.kafka.connect.transforms." + one.get(0).asText())
            .getDeclaredConstructor().newInstance();
        ((Configurable) plugin).configure(JSON.convertValue(one.get(1), Map.class));
        return (Transformation<SinkRecord>) plugin;
    }

    private Object answer(int offset, byte[] given) {
        avroData = new AvroData(1_000); // this copy's cache takes schemas of one name for the same
        SchemaAndValue read;
        try {
            read = reader.toConnectData(TOPIC, given);
        } catch (Throwable error) {
            return failed("convert", error);
        }
        SinkRecord record = readsKeys
            ? new SinkRecord(TOPIC, 0, read.schema(), read.value(), null, Map.of(), offset, TIMESTAMP,
                TimestampType.CREATE_TIME)
            : new SinkRecord(TOPIC, 0, null, "k", read.schema(), read.value(), offset, TIMESTAMP,
                TimestampType.CREATE_TIME);
        try {
            for (Transformation<SinkRecord> transform : transforms) {
                record = record == null ? null : transform.apply(record);
            }
        } catch (Throwable error) {
            return failed("transform", error);
        }
        if (record == null) {
            return "dropped";
        }
        Schema schema = writesKeys ? record.keySchema() : record.valueSchema();
        Object value = writesKeys ? record.key() : record.value();
        if (value == null) {
            return "null";
        }
        Map<String, Object> answers = new LinkedHashMap<>();
        answers.put("JsonFormat", written(() -> Map.of("text", json(schema, value))));
        answers.put("AvroFormat", written(() -> Map.of("avro", encoded(avro(schema, value)))));
        answers.put("ParquetFormat", written(() -> Map.of("parquet", encoded(parquet(schema, value)))));
        answers.put("ByteArrayFormat", written(() -> // the last one: it empties a ByteBuffer
            Map.of("bytes", encoded(bytesWriter.fromConnectData(TOPIC, schema, value)))));
        return answers;
    }

    private interface Write {
        Object write() throws Exception;
    }

    private static Object written(Write write) {
        try {
            return write.write();
        } catch (Throwable error) {
            return failed("write", error);
        }
    }

    private static Object failed(String stage, Throwable error) {
        return Map.of(stage, error.getClass().getSimpleName());
    }

    private static String encoded(byte[] data) {
        return Base64.getEncoder().encodeToString(data);
    }

    /** As JsonRecordWriterProvider does it: a structure by the JsonConverter, any other value by Jackson. */
    private String json(Schema schema, Object value) throws Exception {
        if (value instanceof Struct) {
            return new String(jsonWriter.fromConnectData(TOPIC, schema, value), StandardCharsets.UTF_8);
        }
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        try (JsonGenerator generator = JSON.getFactory().createGenerator(out)) {
            generator.writeObject(value);
        }
        return out.toString(StandardCharsets.UTF_8);
    }

    /** As AvroRecordWriterProvider does it. */
    private byte[] avro(Schema schema, Object value) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        try (DataFileWriter<Object> writer = new DataFileWriter<>(new GenericDatumWriter<>())) {
            writer.create(avroData.fromConnectSchema(schema), out);
            Object datum = avroData.fromConnectData(schema, value);
            writer.append(datum instanceof NonRecordContainer container ? container.getValue() : datum);
        }
        return out.toByteArray();
    }

    /** As ParquetRecordWriterProvider does it; it wraps keys into a structure of one field (RecordViews). */
    private byte[] parquet(Schema given, Object content) throws Exception {
        Schema schema = given;
        Object value = content;
        if (writesKeys) {
            schema = SchemaBuilder.struct().name("RecordKey").field("key", given).build();
            value = new Struct(schema).put("key", content);
        }
        Path file = Files.createTempDirectory("values").resolve("value.parquet");
        try {
            AvroParquetWriter.Builder<GenericRecord> builder = AvroParquetWriter
                .<GenericRecord>builder(new LocalOutputFile(file))
                .withSchema(avroData.fromConnectSchema(schema));
            if (hasOptionalItems(schema, new HashSet<>())) {
                builder.config(AvroWriteSupport.WRITE_OLD_LIST_STRUCTURE, "false");
            }
            try (ParquetWriter<GenericRecord> writer = builder.build()) {
                writer.write((GenericRecord) avroData.fromConnectData(schema, value));
            }
            return Files.readAllBytes(file);
        } finally {
            Files.deleteIfExists(file);
            Files.deleteIfExists(file.getParent());
        }
    }

    private static boolean hasOptionalItems(Schema schema, Set<Schema> seen) {
        if (!seen.add(schema)) {
            return false;
        }
        return switch (schema.type()) {
            case STRUCT -> schema.fields().stream().map(Field::schema).anyMatch(one -> hasOptionalItems(one, seen));
            case MAP -> hasOptionalItems(schema.valueSchema(), seen);
            case ARRAY -> schema.valueSchema().isOptional() || hasOptionalItems(schema.valueSchema(), seen);
            default -> false;
        };
    }

    /**
     * Confluent's AvroConverter, whose deserializer Maven Central does not have either (schema-registry,
     * AbstractKafkaAvroDeserializer): a zero byte, a schema's id, a datum. Bytes behind the datum are not looked at,
     * and a value of the schema "bytes" is all bytes behind the id.
     */
    private static final class FramedAvro implements Converter {
        private final Map<Integer, org.apache.avro.Schema> schemas = new HashMap<>();

        FramedAvro(JsonNode schemas) {
            schemas.fields().forEachRemaining(entry -> this.schemas.put(Integer.valueOf(entry.getKey()),
                new org.apache.avro.Schema.Parser().setValidateDefaults(false).parse(entry.getValue().asText())));
        }

        @Override
        public void configure(Map<String, ?> configs, boolean isKey) {
        }

        @Override
        public byte[] fromConnectData(String topic, Schema schema, Object value) {
            throw new UnsupportedOperationException();
        }

        @Override
        public SchemaAndValue toConnectData(String topic, byte[] given) {
            if (given == null) {
                return SchemaAndValue.NULL;
            }
            org.apache.avro.Schema schema;
            Object datum;
            try {
                ByteBuffer buffer = ByteBuffer.wrap(given);
                if (buffer.get() != 0) {
                    throw new SerializationException("Unknown magic byte!");
                }
                schema = schemas.get(buffer.getInt());
                if (schema == null) {
                    throw new SerializationException("Schema not found");
                }
                if (schema.getType() == org.apache.avro.Schema.Type.BYTES) {
                    byte[] bytes = new byte[buffer.remaining()];
                    buffer.get(bytes);
                    datum = ByteBuffer.wrap(bytes);
                } else {
                    datum = new GenericDatumReader<>(schema).read(null, DecoderFactory.get()
                        .binaryDecoder(given, buffer.position(), buffer.remaining(), null));
                    if (schema.getType() == org.apache.avro.Schema.Type.STRING) {
                        datum = datum.toString();
                    }
                }
            } catch (Exception error) {
                throw new DataException("Failed to deserialize data for topic " + topic + " to Avro: ", error);
            }
            SchemaAndValue read = new AvroData(1_000).toConnectData(schema, datum);
            return read == null ? SchemaAndValue.NULL : read; // of a datum that is null
        }
    }
}
