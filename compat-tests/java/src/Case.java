import java.util.Map;

/** One thing that must hold. All cases of a program run in one JVM, whose start they share: one JSON line for each. */
interface Case {
    void run() throws Exception;

    static void runAll(Map<String, Case> cases) {
        for (Map.Entry<String, Case> each : cases.entrySet()) {
            long started = System.nanoTime();
            String error = "";
            try {
                each.getValue().run();
            } catch (Throwable failure) {
                error = describe(failure);
            }
            long tookMs = (System.nanoTime() - started) / 1_000_000;
            System.out.printf("{\"case\": \"%s\", \"ms\": %d, \"error\": \"%s\"}%n", each.getKey(), tookMs, error);
            System.out.flush();
        }
    }

    private static String describe(Throwable failure) {
        StringBuilder text = new StringBuilder(failure.toString());
        for (StackTraceElement frame : failure.getStackTrace()) {
            // Our programs are in no package.
            if (!frame.getClassName().contains(".")) {
                text.append(" at ").append(frame.getClassName()).append(':').append(frame.getLineNumber());
                break;
            }
        }
        if (failure.getCause() != null) {
            text.append("; cause ").append(failure.getCause());
        }
        return text.toString().replace("\\", "/").replace("\"", "'").replace("\n", " ").replace("\r", " ");
    }
}
