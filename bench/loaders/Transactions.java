import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The load of transactions.py with Kafka's own client, which knows transactions version 2. Run from its source by
 * transactions_java.py: says ready, waits for a line, works, reports one JSON object.
 */
public final class Transactions {
    private final KafkaProducer<byte[], byte[]> producer;
    private final String topic;
    private final int records;
    private final int partitions;
    private final byte[] value;
    private final boolean flushFirst;
    private final List<Double> latencies = new ArrayList<>();

    private Transactions(String id, Map<String, String> options) {
        this.topic = options.get("topic");
        this.records = Integer.parseInt(options.get("records"));
        this.partitions = Integer.parseInt(options.get("partitions"));
        this.value = new byte[Integer.parseInt(options.get("size"))];
        this.flushFirst = options.get("flush_first").equals("1");
        new Random().nextBytes(value);
        this.producer = new KafkaProducer<>(
            Map.of("bootstrap.servers", options.get("bootstrap"), "transactional.id", id, "linger.ms", "0"),
            new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
    }

    private void one() {
        producer.beginTransaction();
        for (int number = 0; number < records; number++) {
            producer.send(new ProducerRecord<>(topic, number % partitions, null, value));
        }
        if (flushFirst) {
            producer.flush();
        }
        long started = System.nanoTime();
        producer.commitTransaction();
        latencies.add((System.nanoTime() - started) / 1e6);
    }

    private List<Double> run(BooleanSupplier more) {
        latencies.clear();
        while (more.getAsBoolean()) {
            one();
        }
        return latencies;
    }

    private static BooleanSupplier times(int count) {
        int[] left = {count};
        return () -> left[0]-- > 0;
    }

    private static BooleanSupplier during(double seconds) {
        long deadline = System.nanoTime() + (long) (seconds * 1e9);
        return () -> System.nanoTime() < deadline;
    }

    private static List<Double> together(List<Transactions> workers, Callable<BooleanSupplier> turns) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(workers.size());
        List<Future<List<Double>>> running = new ArrayList<>();
        for (Transactions worker : workers) {
            BooleanSupplier more = turns.call();
            running.add(pool.submit(() -> worker.run(more)));
        }
        List<Double> all = new ArrayList<>();
        for (Future<List<Double>> each : running) {
            all.addAll(each.get());
        }
        pool.shutdown();
        return all;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new java.util.HashMap<>();
        for (String each : arguments) {
            options.put(each.substring(0, each.indexOf('=')), each.substring(each.indexOf('=') + 1));
        }
        List<Transactions> workers = new ArrayList<>();
        for (String id : Arrays.asList(options.get("ids").split(","))) {
            workers.add(new Transactions(id, options));
        }
        int warmUp = Integer.parseInt(options.get("warm_up"));
        together(workers, () -> times(warmUp));
        System.out.println("ready");
        System.in.read();
        String seconds = options.get("seconds");
        List<Double> all = together(workers, () -> seconds != null
            ? during(Double.parseDouble(seconds)) : times(Integer.parseInt(options.get("transactions"))));
        Collections.sort(all);
        System.out.printf(Locale.ROOT, "{\"transactions\": %d, \"p50_ms\": %f, \"p99_ms\": %f}%n", all.size(),
            all.get(all.size() / 2), all.get(all.size() * 99 / 100));
        System.exit(0); // not closed one by one: the load is over
    }
}
