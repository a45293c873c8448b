import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * One transaction right after the other, commits and aborts in turn: the next begins while the markers of the last are
 * still on their way. A case fails if any transaction does; the number of failures is part of the error.
 */
public final class CommitAbort {
    private static final int ROUNDS = 150;
    private static final int PARTITIONS = 6;

    private final String bootstrap;
    private final short replicas;

    private CommitAbort(String bootstrap, short replicas) {
        this.bootstrap = bootstrap;
        this.replicas = replicas;
    }

    private interface Round {
        void run(KafkaProducer<byte[], byte[]> producer, String topic) throws Exception;
    }

    private Map<String, Case> cases() {
        Map<String, Case> cases = new LinkedHashMap<>();
        cases.put("an_empty_abort_after_a_commit", () -> hammer(this::emptyAbort));
        cases.put("an_abort_after_a_commit", () -> hammer(this::abortWithRecords));
        cases.put("offsets_after_an_abort", () -> hammer(this::offsets));
        return cases;
    }

    private void emptyAbort(KafkaProducer<byte[], byte[]> producer, String topic) {
        write(producer, topic);
        producer.commitTransaction();
        producer.beginTransaction();
        producer.abortTransaction();
    }

    private void abortWithRecords(KafkaProducer<byte[], byte[]> producer, String topic) {
        write(producer, topic);
        producer.commitTransaction();
        write(producer, topic);
        producer.abortTransaction();
    }

    private void offsets(KafkaProducer<byte[], byte[]> producer, String topic) {
        ConsumerGroupMetadata group = new ConsumerGroupMetadata("g-" + topic);
        Map<TopicPartition, OffsetAndMetadata> offset = Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1));
        write(producer, topic);
        producer.abortTransaction();
        producer.beginTransaction();
        producer.sendOffsetsToTransaction(offset, group);
        producer.commitTransaction();
    }

    private static void write(KafkaProducer<byte[], byte[]> producer, String topic) {
        producer.beginTransaction();
        for (int partition = 0; partition < PARTITIONS; partition++) {
            producer.send(new ProducerRecord<>(topic, partition, null, new byte[100]));
        }
    }

    private void hammer(Round round) throws Exception {
        String topic = "commit-abort-" + UUID.randomUUID();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, replicas))).all().get();
        }
        int failures = 0;
        String first = "";
        KafkaProducer<byte[], byte[]> producer = producer(topic);
        for (int number = 0; number < ROUNDS; number++) {
            try {
                round.run(producer, topic);
            } catch (KafkaException failure) {
                failures++;
                first = first.isEmpty() ? "round " + number + ": " + failure : first;
                producer.close();
                producer = producer(topic);
            }
        }
        producer.close();
        if (failures > 0) {
            throw new AssertionError(failures + " of " + ROUNDS + " rounds failed, " + first);
        }
    }

    private KafkaProducer<byte[], byte[]> producer(String name) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", name);
        KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        return producer;
    }

    public static void main(String[] arguments) {
        short replicas = arguments.length > 1 ? Short.parseShort(arguments[1]) : 3;
        Case.runAll(new CommitAbort(arguments[0], replicas).cases());
    }
}
