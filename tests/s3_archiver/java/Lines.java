import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.storage.Converter;

/**
 * Reads values from standard input, writes the lines that they become by Kafka's own converters.
 *
 * A structure is written by the JsonConverter without schemas, any other value by Jackson, as JsonFormat of the S3
 * sink does it.
 */
public final class Lines {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String TOPIC = "orders";

    public static void main(String[] arguments) throws Exception {
        JsonConverter writer = new JsonConverter();
        writer.configure(Map.of("schemas.enable", "false"), false);
        List<String> answers = new ArrayList<>();
        for (JsonNode one : JSON.readTree(System.in)) {
            Converter reader = (Converter) Class.forName(one.get(0).asText()).getDeclaredConstructor().newInstance();
            reader.configure(Map.of("schemas.enable", one.get(1).asText()), false);
            byte[] value = one.get(2).isNull() ? null : Base64.getDecoder().decode(one.get(2).asText());
            answers.add(answer(reader, writer, value));
        }
        System.out.println(JSON.writeValueAsString(answers));
    }

    private static String answer(Converter reader, JsonConverter writer, byte[] value) throws Exception {
        try {
            SchemaAndValue read = reader.toConnectData(TOPIC, value);
            if (read.value() == null) {
                return "!null";
            }
            if (read.value() instanceof Struct) {
                byte[] line = writer.fromConnectData(TOPIC, read.schema(), read.value());
                return new String(line, StandardCharsets.UTF_8);
            }
            return JSON.writeValueAsString(read.value());
        } catch (RuntimeException | java.io.IOException error) {
            return "!" + error.getClass().getSimpleName();
        }
    }
}
