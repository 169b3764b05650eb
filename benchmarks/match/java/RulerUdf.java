import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.api.java.UDF2;
import software.amazon.event.ruler.Machine;

/** Event Ruler as a function of Spark SQL: the numbers of the rules, the lines of a file, that an event matches. */
public final class RulerUdf implements UDF2<String, String, List<Integer>> {
    private static final Map<String, Machine> MACHINES = new ConcurrentHashMap<>();

    @Override
    public List<Integer> call(String event, String rules) throws Exception {
        return MACHINES.computeIfAbsent(rules, RulerUdf::makeMachine).rulesForJSONEvent(event).stream()
                .map(Integer::valueOf)
                .toList();
    }

    private static Machine makeMachine(String file) {
        try {
            Machine machine = Machine.builder().build();
            List<String> rules = Files.readAllLines(Path.of(file));
            for (int number = 0; number < rules.size(); number++) {
                machine.addRule(Integer.toString(number), rules.get(number));
            }
            return machine;
        } catch (IOException failure) {
            throw new IllegalStateException(failure);
        }
    }
}
