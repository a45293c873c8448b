import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * An idempotent producer and a consumer that run on while the broker is restarted under them. Prints RESTART at each of
 * the moments it wants one, and at last DONE or what is wrong.
 */
public final class Restarts {
    private static final int RECORDS = 20_000;
    private static final int PACE = 200;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String topic = arguments[1];
        Map<String, Object> common = Map.of("bootstrap.servers", bootstrap, "reconnect.backoff.ms", "20",
            "reconnect.backoff.max.ms", "200", "retry.backoff.ms", "50", "retry.backoff.max.ms", "200");
        try (Admin admin = Admin.create(common)) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        }
        CompletableFuture<Void> reading = CompletableFuture.runAsync(() -> readAll(common, topic));
        sendAll(common, topic);
        reading.get();
        readAll(common, topic);
        System.out.println("DONE");
    }

    private static void sendAll(Map<String, Object> common, String topic) throws Exception {
        Properties properties = new Properties();
        properties.putAll(common);
        properties.put("linger.ms", "1");
        try (KafkaProducer<String, String> sender =
                new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < RECORDS; number++) {
                sent.add(sender.send(new ProducerRecord<>(topic, 0, null, String.valueOf(number))));
                if (number == RECORDS / 4 || number == RECORDS / 2) {
                    System.out.println("RESTART");
                    System.out.flush();
                }
                if (number % PACE == 0) {
                    sent.get(number).get();
                }
            }
            for (int number = 0; number < RECORDS; number++) {
                check(sent.get(number).get().offset() == number, "record " + number + " has another offset");
            }
        }
    }

    private static void readAll(Map<String, Object> common, String topic) {
        Properties properties = new Properties();
        properties.putAll(common);
        properties.put("auto.offset.reset", "none");
        properties.put("fetch.max.wait.ms", "100");
        try (KafkaConsumer<String, String> reader =
                new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            reader.assign(List.of(partition));
            reader.seek(partition, 0);
            long deadline = System.currentTimeMillis() + 120_000;
            int expected = 0;
            while (expected < RECORDS) {
                for (ConsumerRecord<String, String> record : reader.poll(Duration.ofMillis(200))) {
                    check(record.offset() == expected, "offset " + record.offset() + " instead of " + expected);
                    check(record.value().equals(String.valueOf(expected)), "read " + record.value() + " at " + expected);
                    expected++;
                }
                check(System.currentTimeMillis() < deadline, expected + " read in time");
            }
            check(reader.endOffsets(List.of(partition)).get(partition) == RECORDS, "nothing doubled");
        }
    }

    private static void check(boolean condition, String what) {
        if (!condition) {
            System.out.println("WRONG " + what);
            System.out.flush();
            throw new AssertionError(what);
        }
    }
}
