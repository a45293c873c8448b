import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Transactions with kafka-clients, all cases in one JVM. One JSON line per case. */
public final class Transactions {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long DEADLINE_MS = 60_000;

    private final String bootstrap;
    private final Admin admin;

    private Transactions(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    private Map<String, Case> cases() {
        Map<String, Case> cases = new LinkedHashMap<>();
        cases.put("commit_and_abort", this::commitAndAbort);
        cases.put("fencing", this::fencing);
        cases.put("fencing_by_an_administrator", this::fencingByAnAdministrator);
        cases.put("time_out", this::timeOut);
        cases.put("offsets_classic", () -> offsets("classic"));
        cases.put("offsets_consumer", () -> offsets("consumer"));
        cases.put("many_small_ones", this::manySmallOnes);
        cases.put("a_large_one", this::aLargeOne);
        cases.put("listed_and_described", this::listedAndDescribed);
        cases.put("transactions_version_2_is_found", this::version2IsFound);
        return cases;
    }

    private void commitAndAbort() throws Exception {
        String topic = newTopic(2);
        try (KafkaProducer<byte[], byte[]> producer = producer(name("t"))) {
            producer.initTransactions();
            for (int round = 0; round < 6; round++) {
                producer.beginTransaction();
                for (int partition = 0; partition < 2; partition++) {
                    producer.send(record(topic, partition, round + "-" + partition));
                }
                if (round % 2 == 0) {
                    producer.commitTransaction();
                } else {
                    producer.flush();
                    producer.abortTransaction();
                }
            }
        }
        check(read(topic, 2, "read_committed", 6).size() == 6, "committed records");
        check(read(topic, 2, "read_uncommitted", 12).size() == 12, "all records");
    }

    private void fencing() throws Exception {
        String topic = newTopic(1);
        String id = name("fence");
        try (KafkaProducer<byte[], byte[]> first = producer(id); KafkaProducer<byte[], byte[]> second = producer(id)) {
            first.initTransactions();
            first.beginTransaction();
            first.send(record(topic, 0, "lost")).get();
            second.initTransactions();
            expect(ProducerFencedException.class, InvalidProducerEpochException.class, () -> {
                first.send(record(topic, 0, "late"));
                first.commitTransaction();
            });
            second.beginTransaction();
            second.send(record(topic, 0, "kept"));
            second.commitTransaction();
        }
        check(read(topic, 1, "read_committed", 1).equals(List.of("kept")), "only what was committed");
    }

    private void fencingByAnAdministrator() throws Exception {
        String topic = newTopic(1);
        String id = name("admin");
        try (KafkaProducer<byte[], byte[]> producer = producer(id)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(record(topic, 0, "lost")).get();
            admin.fenceProducers(List.of(id)).all().get();
            expect(ProducerFencedException.class, InvalidProducerEpochException.class, producer::commitTransaction);
        }
        check(read(topic, 1, "read_committed", 0).isEmpty(), "nothing was committed");
    }

    private void timeOut() throws Exception {
        String topic = newTopic(1);
        try (KafkaProducer<byte[], byte[]> producer = producer(name("slow"), "transaction.timeout.ms", "1000")) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(record(topic, 0, "late")).get();
            try (KafkaProducer<byte[], byte[]> plain = plainProducer()) {
                plain.send(record(topic, 0, "behind")).get();
            }
            check(read(topic, 1, "read_committed", 1).equals(List.of("behind")), "the way is free again");
            boolean failed = false;
            try {
                producer.commitTransaction();
            } catch (KafkaException expected) {
                failed = true;
            }
            check(failed, "the commit must fail");
        }
    }

    private void offsets(String protocol) throws Exception {
        String source = newTopic(2);
        String target = newTopic(1);
        try (KafkaProducer<byte[], byte[]> plain = plainProducer()) {
            for (int each = 0; each < 200; each++) {
                plain.send(record(source, each % 2, Integer.toString(each)));
            }
        }
        String group = name("g");
        Properties settings = consumerSettings("read_committed");
        settings.put("group.id", group);
        settings.put("group.protocol", protocol);
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", "30");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings);
                KafkaProducer<byte[], byte[]> producer = producer(name("ctp"))) {
            producer.initTransactions();
            consumer.subscribe(List.of(source));
            long deadline = System.currentTimeMillis() + DEADLINE_MS;
            int done = 0;
            int round = 0;
            while (done < 200) {
                check(System.currentTimeMillis() < deadline, "done with " + done);
                ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new LinkedHashMap<>();
                for (ConsumerRecord<byte[], byte[]> each : records) {
                    producer.send(new ProducerRecord<>(target, 0, null, each.value()));
                    offsets.put(new TopicPartition(each.topic(), each.partition()),
                            new OffsetAndMetadata(each.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (round++ % 2 == 0) {
                    producer.abortTransaction();
                    Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
                    for (TopicPartition each : consumer.assignment()) {
                        OffsetAndMetadata at = committed.get(each);
                        consumer.seek(each, at == null ? 0 : at.offset());
                    }
                } else {
                    producer.commitTransaction();
                    done += records.count();
                }
            }
        }
        List<String> seen = read(target, 1, "read_committed", 200);
        check(Set.copyOf(seen).size() == 200, "each input once: " + seen.size());
    }

    private void manySmallOnes() throws Exception {
        String topic = newTopic(4);
        try (KafkaProducer<byte[], byte[]> producer = producer(name("small"))) {
            producer.initTransactions();
            for (int round = 0; round < 200; round++) {
                producer.beginTransaction();
                for (int partition = 0; partition < 4; partition++) {
                    producer.send(record(topic, partition, round + "-" + partition));
                }
                producer.commitTransaction();
            }
        }
        check(read(topic, 4, "read_committed", 800).size() == 800, "all of them");
    }

    private void aLargeOne() throws Exception {
        String topic = newTopic(2);
        int count = 200_000;
        try (KafkaProducer<byte[], byte[]> producer = producer(name("large"))) {
            producer.initTransactions();
            producer.beginTransaction();
            for (int each = 0; each < count; each++) {
                producer.send(record(topic, each & 1, Integer.toString(each)));
            }
            producer.commitTransaction();
        }
        check(read(topic, 2, "read_committed", count).size() == count, "all of it");
    }

    private void listedAndDescribed() throws Exception {
        String topic = newTopic(1);
        String id = name("listed");
        try (KafkaProducer<byte[], byte[]> producer = producer(id)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(record(topic, 0, "open")).get();
            TransactionDescription told = admin.describeTransactions(List.of(id)).description(id).get();
            check(told.state() == TransactionState.ONGOING, "it is open: " + told);
            check(told.topicPartitions().equals(Set.of(new TopicPartition(topic, 0))), "in its partition: " + told);
            ListTransactionsOptions filters = new ListTransactionsOptions()
                    .filterStates(List.of(TransactionState.ONGOING)).filterOnTransactionalIdPattern(id);
            check(admin.listTransactions(filters).all().get().size() == 1, "it is listed");
            producer.commitTransaction();
        }
    }

    private void version2IsFound() throws Exception {
        var features = admin.describeFeatures().featureMetadata().get().finalizedFeatures();
        check(features.get("transaction.version").maxVersionLevel() == 2, "finalized features: " + features);
    }

    // What the cases share.

    private KafkaProducer<byte[], byte[]> producer(String id, String... settings) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("transactional.id", id);
        properties.put("linger.ms", "1");
        for (int each = 0; each < settings.length; each += 2) {
            properties.put(settings[each], settings[each + 1]);
        }
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private KafkaProducer<byte[], byte[]> plainProducer() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private Properties consumerSettings(String isolation) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("isolation.level", isolation);
        properties.put("enable.auto.commit", "false");
        properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
        return properties;
    }

    /** Exactly so many records, and no more in the moment after. */
    private List<String> read(String topic, int partitions, String isolation, int count) {
        Properties settings = consumerSettings(isolation);
        settings.put("max.poll.records", "10000");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            List<TopicPartition> all = new ArrayList<>();
            for (int each = 0; each < partitions; each++) {
                all.add(new TopicPartition(topic, each));
            }
            consumer.assign(all);
            consumer.seekToBeginning(all);
            List<String> values = new ArrayList<>();
            long deadline = System.currentTimeMillis() + DEADLINE_MS;
            while (values.size() < count && System.currentTimeMillis() < deadline) {
                consumer.poll(POLL).forEach(each -> values.add(new String(each.value(), StandardCharsets.UTF_8)));
            }
            consumer.poll(POLL).forEach(each -> values.add(new String(each.value(), StandardCharsets.UTF_8)));
            check(values.size() == count, values.size() + " records, expected " + count);
            return values;
        }
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, int partition, String value) {
        return new ProducerRecord<>(topic, partition, null, value.getBytes(StandardCharsets.UTF_8));
    }

    private String newTopic(int partitions) throws Exception {
        String topic = name("txn");
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
        return topic;
    }

    private static String name(String stem) {
        return stem + "-" + UUID.randomUUID().toString().substring(0, 8);
    }

    private static void check(boolean condition, String what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }

    private static void expect(Class<?> one, Class<?> other, Case action) throws Exception {
        try {
            action.run();
        } catch (ExecutionException | KafkaException error) {
            for (Throwable each = error; each != null; each = each.getCause()) {
                if (one.isInstance(each) || other.isInstance(each)) {
                    return;
                }
            }
            throw error;
        }
        throw new AssertionError("expected " + one.getSimpleName());
    }

    public static void main(String[] arguments) throws Exception {
        Transactions program = new Transactions(arguments[0]);
        Case.runAll(program.cases());
        program.admin.close(Duration.ofSeconds(5));
    }
}
