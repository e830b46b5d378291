import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.avro.*;
import org.apache.avro.generic.*;
import org.apache.avro.io.*;

/** Reads lines "schema TAB hexadecimal datum" and writes what Java's Avro makes of each: "bytes read TAB the datum written
 * again", or the exception's class. Without a datum: the schema as it is resolved. */
public class Datums {
    static Schema parse(String text) {
        Schema.Parser parser = new Schema.Parser();
        parser.setValidateDefaults(false); // as Confluent's AvroSchema
        return parser.parse(text);
    }

    static String show(Schema s, Set<Schema> seen) {
        String logical = s.getLogicalType() == null ? "" : "~" + s.getLogicalType().getName();
        switch (s.getType()) {
            case RECORD: case ENUM: case FIXED:
                String name = s.getType() + ":" + s.getFullName() + logical;
                if (s.getType() != Schema.Type.RECORD || !seen.add(s)) return name;
                StringBuilder b = new StringBuilder(name + "{");
                for (Schema.Field f : s.getFields()) b.append(f.name()).append("=").append(show(f.schema(), seen)).append(";");
                return b + "}";
            case ARRAY: return "[" + show(s.getElementType(), seen) + "]";
            case MAP: return "<" + show(s.getValueType(), seen) + ">";
            case UNION:
                StringBuilder u = new StringBuilder("(");
                for (Schema t : s.getTypes()) u.append(show(t, seen)).append("|");
                return u + ")";
            default: return s.getType() + logical;
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
        Map<String, Schema> known = new HashMap<>();
        for (String line; (line = in.readLine()) != null;) {
            String[] parts = line.split("\t", -1);
            String said;
            try {
                Schema schema = known.get(parts[0]);
                if (schema == null) known.put(parts[0], schema = parse(parts[0]));
                if (parts.length == 1) said = show(schema, Collections.newSetFromMap(new IdentityHashMap<>()));
                else {
                    byte[] bytes = HexFormat.of().parseHex(parts[1]);
                    BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(bytes, null);
                    Object value = new GenericDatumReader<Object>(schema).read(null, decoder);
                    int left = 0;
                    InputStream rest = decoder.inputStream();
                    while (rest.read() >= 0) left++;
                    ByteArrayOutputStream made = new ByteArrayOutputStream();
                    Encoder encoder = EncoderFactory.get().binaryEncoder(made, null);
                    new GenericDatumWriter<Object>(schema).write(value, encoder);
                    encoder.flush();
                    said = (bytes.length - left) + "\t" + HexFormat.of().formatHex(made.toByteArray());
                }
            } catch (Throwable e) {
                said = "!" + e.getClass().getSimpleName();
            }
            out.println(said);
        }
        out.flush();
    }
}
