import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/** Runs Kafka's own commands one after the other in one JVM: each line of the input is a class and its arguments, with
 * tabs between them; each line of the output says how it ended and what it printed. */
public class Tools {
    /** How the command that runs wants to end. Some catch what ends them, and then want to end otherwise. */
    private static Integer ended;

    private static final class Exited extends RuntimeException {
        Exited(int code) {
            super(null, null, false, false);
            ended = ended == null ? code : ended;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Exit.setExitProcedure((code, message) -> { throw new Exited(code); });
        Exit.setHaltProcedure((code, message) -> { throw new Exited(code); });
        PrintStream report = System.out;
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            report.println(run(line.split("\t")));
        }
    }

    private static String run(String[] words) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        PrintStream stdout = System.out;
        PrintStream stderr = System.err;
        System.setOut(new PrintStream(out, true));
        System.setErr(new PrintStream(err, true));
        int code;
        try {
            code = call(words[0], Arrays.copyOfRange(words, 1, words.length));
        } finally {
            System.setOut(stdout);
            System.setErr(stderr);
        }
        return new ObjectMapper().writeValueAsString(Map.of("code", code, "stdout", out.toString(), "stderr", err.toString()));
    }

    private static int call(String command, String[] arguments) throws Exception {
        try {
            ended = null;
            Class.forName(command).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return ended == null ? 0 : ended;
        } catch (InvocationTargetException failed) {
            if (failed.getCause() instanceof Exited) {
                return ended;
            }
            failed.getCause().printStackTrace();
            return 1;
        }
    }
}
