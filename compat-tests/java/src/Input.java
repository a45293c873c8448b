import java.io.IOException;

/** Standard input as a life line: a test that goes away takes the programs that it started with it. */
final class Input {
    private Input() {}

    static void whenEnded(Runnable action) {
        Thread watcher = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (IOException broken) {
                System.err.println(broken);
            }
            action.run();
        });
        watcher.setDaemon(true);
        watcher.start();
    }
}
