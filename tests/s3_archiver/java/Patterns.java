import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;

/** Reads names of topics, then patterns; writes for each pattern a 1 or 0 for each topic, or "!" if it is refused. */
public final class Patterns {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        JsonNode cases = JSON.readTree(System.in);
        List<String> answers = new ArrayList<>();
        for (JsonNode pattern : cases.get(1)) {
            try {
                Pattern compiled = Pattern.compile(pattern.asText());
                StringBuilder answer = new StringBuilder();
                for (JsonNode topic : cases.get(0)) {
                    answer.append(compiled.matcher(topic.asText()).matches() ? '1' : '0');
                }
                answers.add(answer.toString());
            } catch (RuntimeException | StackOverflowError error) { // some of what Java takes, it cannot match
                answers.add("!");
            }
        }
        System.out.println(JSON.writeValueAsString(answers));
    }
}
