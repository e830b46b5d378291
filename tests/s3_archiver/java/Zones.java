import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import org.joda.time.DateTimeZone;

/** Reads names of time zones, writes what Joda-Time calls each and its offsets in January and July 2026, or "!". */
public final class Zones {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        List<String> answers = new ArrayList<>();
        for (JsonNode name : JSON.readTree(System.in)) {
            try {
                DateTimeZone zone = DateTimeZone.forID(name.asText());
                answers.add(zone.getID() + " " + zone.getOffset(1768000000000L) + " " + zone.getOffset(1784000000000L));
            } catch (IllegalArgumentException error) {
                answers.add("!");
            }
        }
        System.out.println(JSON.writeValueAsString(answers));
    }
}
