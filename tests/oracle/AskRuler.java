import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import software.amazon.event.ruler.JsonRuleCompiler;
import software.amazon.event.ruler.Machine;

/**
 * Asks Event Ruler. Each line of standard input is {"rule": TEXT, "events": [TEXT, ...]}; each line of standard output
 * decides it: one character per event - 1 matches, 0 does not, ! fails - or "refused: " and why, if the rule is refused.
 * Every rule has a Machine of its own, because Event Ruler's results change with the other rules of a Machine.
 */
public final class AskRuler {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode question = json.readTree(line);
            out.println(results(question.get("rule").asText(), question.get("events")));
        }
        out.flush();
    }

    private static String results(String rule, JsonNode events) {
        // addRule tries a refused rule again in an older language, in which $or is a field: the check comes first.
        String refusal = JsonRuleCompiler.check(rule);
        if (refusal != null) {
            return "refused: " + refusal.replaceAll("\\s+", " ");
        }
        Machine machine = Machine.builder().build();
        try {
            machine.addRule("rule", rule);
        } catch (Exception failure) {
            return "refused: " + String.valueOf(failure.getMessage()).replaceAll("\\s+", " ");
        }
        StringBuilder results = new StringBuilder();
        for (JsonNode event : events) {
            try {
                results.append(machine.rulesForJSONEvent(event.asText()).isEmpty() ? '0' : '1');
            } catch (Exception failure) {
                results.append('!');
            }
        }
        return results.toString();
    }
}
