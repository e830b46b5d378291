import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.joda.time.DateTimeZone;
import org.joda.time.format.DateTimeFormat;

/** Reads patterns, milliseconds of a folder, zones and timestamps, writes the folders that Joda-Time makes of them. */
public final class Folders {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        List<String> answers = new ArrayList<>();
        for (JsonNode one : JSON.readTree(System.in)) {
            DateTimeZone zone = DateTimeZone.forID(one.get(2).asText());
            long length = one.get(1).asLong();
            long begin = zone.convertUTCToLocal(one.get(3).asLong()) / length * length;
            answers.add(DateTimeFormat.forPattern(one.get(0).asText())
                .withLocale(Locale.US)
                .withZone(zone)
                .print(zone.convertLocalToUTC(begin, false)));
        }
        System.out.println(JSON.writeValueAsString(answers));
    }
}
