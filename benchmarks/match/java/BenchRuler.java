import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import software.amazon.event.ruler.Machine;

/**
 * Measures Event Ruler in one thread. Each line of standard input is a command, each gets one line as its response:
 *
 * <pre>
 * events NAME FILE             keeps the lines of a file
 * rules NAME FILE              makes one Machine of the lines of a file; responds with CPU seconds
 * measure RULES EVENTS SECONDS responds with events, CPU seconds of this process, matches
 * count RULES EVENTS NUMBER    responds with how many of the first NUMBER events each rule matches
 * forget RULES                 drops a Machine
 * </pre>
 */
public final class BenchRuler {
    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static final Map<String, List<String>> EVENTS = new HashMap<>();
    private static final Map<String, Machine> MACHINES = new HashMap<>();
    private static final Map<String, Integer> SIZES = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(respond(line.split(" ")));
            System.out.flush();
        }
    }

    private static String respond(String[] command) throws Exception {
        switch (command[0]) {
            case "events":
                EVENTS.put(command[1], Files.readAllLines(Path.of(command[2])));
                return "ok";
            case "rules":
                return "" + makeMachine(command[1], Files.readAllLines(Path.of(command[2])));
            case "measure":
                return measure(MACHINES.get(command[1]), EVENTS.get(command[2]), Double.parseDouble(command[3]));
            case "count":
                return count(command[1], EVENTS.get(command[2]), Integer.parseInt(command[3]));
            case "forget":
                MACHINES.remove(command[1]);
                System.gc();
                return "ok";
            default:
                throw new IllegalArgumentException(command[0]);
        }
    }

    private static double makeMachine(String name, List<String> rules) throws IOException {
        double before = cpuSeconds();
        Machine machine = Machine.builder().build();
        for (int number = 0; number < rules.size(); number++) {
            machine.addRule(Integer.toString(number), rules.get(number));
        }
        MACHINES.put(name, machine);
        SIZES.put(name, rules.size());
        return cpuSeconds() - before;
    }

    private static String measure(Machine machine, List<String> events, double seconds) throws Exception {
        long done = 0;
        long matches = 0;
        double before = cpuSeconds();
        double spent = 0;
        while (spent < seconds) {
            // The clock is read every 16 events: at 100 ns a look it does not show.
            for (int step = 0; step < 16; step++, done++) {
                matches += machine.rulesForJSONEvent(events.get((int) (done % events.size()))).size();
            }
            spent = cpuSeconds() - before;
        }
        return done + " " + spent + " " + matches;
    }

    private static String count(String rules, List<String> events, int number) throws Exception {
        int[] counts = new int[SIZES.get(rules)];
        for (String event : events.subList(0, number)) {
            for (String name : MACHINES.get(rules).rulesForJSONEvent(event)) {
                counts[Integer.parseInt(name)]++;
            }
        }
        StringBuilder text = new StringBuilder();
        for (int each : counts) {
            text.append(each).append(' ');
        }
        return text.toString().trim();
    }

    private static double cpuSeconds() {
        return SYSTEM.getProcessCpuTime() / 1e9;
    }
}
