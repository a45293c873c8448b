import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * One instance of consume-transform-produce: a member of a group whose offsets are committed in the transactions of its
 * output. An error that leaves the producer usable aborts and reads again from what is committed; any other starts both
 * clients anew, as an application would. Prints RUNNING, and STOPPED with its counts when its input has ended.
 */
public final class ConsumeTransformProduce {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final int COMMIT_TRIES = 5;

    private final Map<String, Object> common;
    private final String source;
    private final String target;
    private final String name;
    private final String protocol;
    private final AtomicBoolean ended = new AtomicBoolean();
    private int committed;
    private int aborted;
    private int lives;

    private ConsumeTransformProduce(String bootstrap, String source, String target, String name, String protocol) {
        this.common = Map.of("bootstrap.servers", bootstrap, "reconnect.backoff.ms", "20", "reconnect.backoff.max.ms",
            "200", "retry.backoff.ms", "50", "default.api.timeout.ms", "20000");
        this.source = source;
        this.target = target;
        this.name = name;
        this.protocol = protocol;
    }

    private void run() {
        while (!ended.get()) {
            lives++;
            try (KafkaConsumer<String, String> reader = reader(); KafkaProducer<String, String> sender = sender()) {
                sender.initTransactions();
                reader.subscribe(List.of(source));
                System.out.println("RUNNING");
                while (!ended.get()) {
                    turn(reader, sender);
                }
            } catch (KafkaException error) {
                System.err.println("a new life: " + error + " because of " + error.getCause());
            }
        }
        System.out.println("STOPPED committed=" + committed + " aborted=" + aborted + " lives=" + lives);
    }

    private void turn(KafkaConsumer<String, String> reader, KafkaProducer<String, String> sender) {
        ConsumerRecords<String, String> records = reader.poll(POLL);
        if (records.isEmpty()) {
            return;
        }
        sender.beginTransaction();
        try {
            Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
            for (ConsumerRecord<String, String> each : records) {
                sender.send(new ProducerRecord<>(target, each.partition(), null, each.value()));
                positions.put(new TopicPartition(each.topic(), each.partition()),
                    new OffsetAndMetadata(each.offset() + 1));
            }
            sender.sendOffsetsToTransaction(positions, reader.groupMetadata());
        } catch (KafkaException error) {
            abort(reader, sender, error);
            return;
        }
        commit(reader, sender);
    }

    /** A commit whose outcome is unknown may only be asked for again. */
    private void commit(KafkaConsumer<String, String> reader, KafkaProducer<String, String> sender) {
        for (int tries = 1;; tries++) {
            try {
                sender.commitTransaction();
                committed++;
                return;
            } catch (TimeoutException error) {
                if (tries == COMMIT_TRIES) {
                    throw error;
                }
            } catch (KafkaException error) {
                abort(reader, sender, error);
                return;
            }
        }
    }

    /** Throws where the producer is done for (fenced, or a fatal error): then both clients begin again. */
    private void abort(KafkaConsumer<String, String> reader, KafkaProducer<String, String> sender,
            KafkaException error) {
        System.err.println("aborting: " + error);
        sender.abortTransaction();
        aborted++;
        Set<TopicPartition> owned = reader.assignment();
        Map<TopicPartition, OffsetAndMetadata> known = reader.committed(owned);
        for (TopicPartition each : owned) {
            OffsetAndMetadata at = known.get(each);
            if (at == null) {
                reader.seekToBeginning(List.of(each));
            } else {
                reader.seek(each, at);
            }
        }
    }

    private KafkaConsumer<String, String> reader() {
        Properties settings = new Properties();
        settings.putAll(common);
        settings.put("group.id", source + "-group");
        settings.put("group.protocol", protocol);
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        if (protocol.equals("classic")) {
            settings.put("session.timeout.ms", "2000");
            settings.put("heartbeat.interval.ms", "500");
        }
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private KafkaProducer<String, String> sender() {
        Properties settings = new Properties();
        settings.putAll(common);
        settings.put("transactional.id", name);
        settings.put("transaction.timeout.ms", "10000");
        settings.put("max.block.ms", "20000");
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    public static void main(String[] arguments) {
        ConsumeTransformProduce instance = new ConsumeTransformProduce(
            arguments[0], arguments[1], arguments[2], arguments[3], arguments[4]);
        Input.whenEnded(() -> instance.ended.set(true));
        instance.run();
    }
}
