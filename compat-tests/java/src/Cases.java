import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Every kafka-clients case in one JVM: starting one costs more than most cases do. One JSON line per case. */
public final class Cases {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long DEADLINE_MS = 60_000;
    private static final int MANY = 200_000;

    private final String bootstrap;
    private final Admin admin;

    private Cases(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    private Map<String, Case> cases() {
        Map<String, Case> cases = new LinkedHashMap<>();
        cases.put("create_list_and_describe", this::createListAndDescribe);
        cases.put("create_what_is_wrong", this::createWhatIsWrong);
        cases.put("validate_only_creates_nothing", this::validateOnlyCreatesNothing);
        cases.put("partitions_are_added", this::partitionsAreAdded);
        cases.put("topic_config_is_altered", this::topicConfigIsAltered);
        cases.put("broker_config_and_cluster_are_described", this::brokerConfigAndClusterAreDescribed);
        cases.put("delete_by_name_and_by_id", this::deleteByNameAndById);
        cases.put("records_are_deleted", this::recordsAreDeleted);
        cases.put("offsets_are_listed", this::offsetsAreListed);
        cases.put("log_dirs_are_described", this::logDirsAreDescribed);
        cases.put("producers_are_described", this::producersAreDescribed);
        for (String acks : List.of("0", "1", "all")) {
            cases.put("acks_" + acks, () -> roundTrip(Map.of("acks", acks, "enable.idempotence", "false")));
        }
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            cases.put("codec_" + codec, () -> roundTrip(Map.of("compression.type", codec)));
        }
        cases.put("idempotent_producer", this::idempotentProducer);
        cases.put("keys_headers_timestamps_and_nulls", this::keysHeadersTimestampsAndNulls);
        cases.put("tombstones_and_compaction", this::tombstonesAndCompaction);
        cases.put("records_of_one_megabyte", this::recordsOfOneMegabyte);
        cases.put("record_too_large", this::recordTooLarge);
        cases.put("seek_earliest_latest_and_offset", this::seekEarliestLatestAndOffset);
        cases.put("offsets_for_times", this::offsetsForTimes);
        cases.put("offset_out_of_range", this::offsetOutOfRange);
        cases.put("empty_topic", this::emptyTopic);
        cases.put("unknown_topic", this::unknownTopic);
        cases.put("large_topic", this::largeTopic);
        return cases;
    }

    public static void main(String[] arguments) throws Exception {
        Cases cases = new Cases(arguments[0]);
        Case.runAll(cases.cases());
        cases.admin.close();
    }

    // Small tools.

    static void check(boolean condition, Object... what) {
        if (!condition) {
            throw new AssertionError(Arrays.deepToString(what));
        }
    }

    static void same(Object expected, Object actual) {
        check(expected.equals(actual), "expected", expected, "but got", actual);
    }

    static <E extends Throwable> void refused(Class<E> kind, Future<?> future) throws Exception {
        try {
            future.get();
        } catch (ExecutionException error) {
            check(kind.isInstance(error.getCause()), "expected", kind.getSimpleName(), "but got", error.getCause());
            return;
        }
        throw new AssertionError("expected " + kind.getSimpleName());
    }

    static void eventually(Callable<Boolean> probe) throws Exception {
        long deadline = System.currentTimeMillis() + DEADLINE_MS;
        while (!probe.call()) {
            check(System.currentTimeMillis() < deadline, "not in time");
            Thread.sleep(20);
        }
    }

    static byte[] bytes(Object value) {
        return value.toString().getBytes(StandardCharsets.UTF_8);
    }

    private String newTopic(int partitions, Map<String, String> configs) throws Exception {
        String name = "java-" + UUID.randomUUID().toString().substring(0, 12);
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(configs))).all().get();
        eventually(() -> exists(name));
        return name;
    }

    private String newTopic() throws Exception {
        return newTopic(1, Map.of());
    }

    private boolean exists(String topic) throws Exception {
        try {
            describeTopic(topic);
            return true;
        } catch (ExecutionException error) {
            check(error.getCause() instanceof UnknownTopicOrPartitionException, error.getCause());
            return false;
        }
    }

    private TopicDescription describeTopic(String topic) throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
    }

    private Config config(ConfigResource resource) throws Exception {
        return admin.describeConfigs(List.of(resource)).all().get().get(resource);
    }

    private KafkaProducer<byte[], byte[]> producer(Map<String, String> settings) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.putAll(settings);
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private KafkaConsumer<byte[], byte[]> consumer(Map<String, String> settings) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "none");
        properties.putAll(settings);
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private void send(String topic, int count, Map<String, String> settings) throws Exception {
        try (KafkaProducer<byte[], byte[]> sender = producer(settings)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                sent.add(sender.send(new ProducerRecord<>(topic, 0, null, bytes(number))));
            }
            for (Future<RecordMetadata> future : sent) {
                future.get();
            }
        }
    }

    static List<ConsumerRecord<byte[], byte[]>> read(KafkaConsumer<byte[], byte[]> reader, int count) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        long deadline = System.currentTimeMillis() + DEADLINE_MS;
        while (records.size() < count) {
            reader.poll(POLL).forEach(records::add);
            check(System.currentTimeMillis() < deadline, records.size(), "of", count, "in time");
        }
        same(count, records.size());
        return records;
    }

    private List<ConsumerRecord<byte[], byte[]>> readFrom(String topic, long offset, int count) {
        try (KafkaConsumer<byte[], byte[]> reader = consumer(Map.of())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            reader.assign(List.of(partition));
            reader.seek(partition, offset);
            return read(reader, count);
        }
    }

    static String text(byte[] value) {
        return value == null ? "null" : new String(value, StandardCharsets.UTF_8);
    }

    // Topics and configurations.

    private void createListAndDescribe() throws Exception {
        String topic = newTopic(3, Map.of());
        check(admin.listTopics().names().get().contains(topic), "listed");
        TopicDescription told = describeTopic(topic);
        same(3, told.partitions().size());
        told.partitions().forEach(partition -> same(0, partition.leader().id()));
        told.partitions().forEach(partition -> same(1, partition.isr().size()));
        Uuid id = told.topicId();
        same(topic, admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id).name());
    }

    private void createWhatIsWrong() throws Exception {
        String topic = newTopic();
        String other = topic + "-other";
        refused(TopicExistsException.class, admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all());
        refused(InvalidReplicationFactorException.class,
            admin.createTopics(List.of(new NewTopic(other, 1, (short) 3))).all());
        refused(InvalidPartitionsException.class, admin.createTopics(List.of(new NewTopic(other, 0, (short) 1))).all());
        refused(InvalidTopicException.class,
            admin.createTopics(List.of(new NewTopic("bad name", 1, (short) 1))).all());
        refused(InvalidConfigurationException.class,
            admin.createTopics(List.of(new NewTopic(other, 1, (short) 1).configs(Map.of("retention.ms", "x")))).all());
        check(!exists(other), "not created");
    }

    private void validateOnlyCreatesNothing() throws Exception {
        String topic = "java-" + UUID.randomUUID();
        admin.createTopics(List.of(new NewTopic(topic, Optional.of(2), Optional.empty())),
            new CreateTopicsOptions().validateOnly(true)).all().get();
        check(!exists(topic), "not created");
    }

    private void partitionsAreAdded() throws Exception {
        String topic = newTopic();
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
        eventually(() -> describeTopic(topic).partitions().size() == 4);
        refused(InvalidPartitionsException.class,
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(2))).all());
    }

    private void topicConfigIsAltered() throws Exception {
        String topic = newTopic(1, Map.of("retention.ms", "100000"));
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        ConfigEntry before = config(resource).get("retention.ms");
        same("100000", before.value());
        same(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, before.source());
        Collection<AlterConfigOp> changes = List.of(
            new AlterConfigOp(new ConfigEntry("segment.bytes", "2000000"), AlterConfigOp.OpType.SET),
            new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND),
            new AlterConfigOp(new ConfigEntry("retention.ms", ""), AlterConfigOp.OpType.DELETE));
        admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
        eventually(() -> "2000000".equals(config(resource).get("segment.bytes").value()));
        same("delete,compact", config(resource).get("cleanup.policy").value());
        ConfigEntry after = config(resource).get("retention.ms");
        same("604800000", after.value());
        check(after.isDefault() && !after.isReadOnly() && !after.isSensitive(), after);
        same(ConfigEntry.ConfigType.LONG, after.type());
        refused(InvalidConfigurationException.class, admin.incrementalAlterConfigs(Map.of(resource,
            List.of(new AlterConfigOp(new ConfigEntry("segment.bytes", "x"), AlterConfigOp.OpType.SET)))).all());
    }

    private void brokerConfigAndClusterAreDescribed() throws Exception {
        Config config = config(new ConfigResource(ConfigResource.Type.BROKER, "0"));
        same("1", config.get("num.partitions").value());
        same(1, admin.describeCluster().nodes().get().size());
        check(!admin.describeCluster().clusterId().get().isEmpty(), "a cluster id");
        same(0, admin.describeCluster().controller().get().id());
    }

    private void deleteByNameAndById() throws Exception {
        String byName = newTopic();
        String byId = newTopic();
        Uuid id = describeTopic(byId).topicId();
        admin.deleteTopics(List.of(byName)).all().get();
        admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
        eventually(() -> !exists(byName) && !exists(byId));
        refused(UnknownTopicOrPartitionException.class, admin.deleteTopics(List.of(byName)).all());
    }

    private void recordsAreDeleted() throws Exception {
        String topic = newTopic();
        send(topic, 10, Map.of());
        TopicPartition partition = new TopicPartition(topic, 0);
        same(4L, admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(4)))
            .lowWatermarks().get(partition).get().lowWatermark());
        same(4L, offset(partition, OffsetSpec.earliest()).offset());
        same("4", text(readFrom(topic, 4, 6).get(0).value()));
    }

    private ListOffsetsResultInfo offset(TopicPartition partition, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get();
    }

    private void offsetsAreListed() throws Exception {
        String topic = newTopic();
        TopicPartition partition = new TopicPartition(topic, 0);
        long base = 1_700_000_000_000L;
        try (KafkaProducer<byte[], byte[]> sender = producer(Map.of())) {
            for (int number : new int[] {0, 1, 5, 2}) {
                sender.send(new ProducerRecord<>(topic, 0, base + number, null, bytes(number))).get();
            }
        }
        same(0L, offset(partition, OffsetSpec.earliest()).offset());
        same(4L, offset(partition, OffsetSpec.latest()).offset());
        same(2L, offset(partition, OffsetSpec.maxTimestamp()).offset());
        same(base + 5, offset(partition, OffsetSpec.maxTimestamp()).timestamp());
        same(1L, offset(partition, OffsetSpec.forTimestamp(base + 1)).offset());
        same(0L, offset(partition, OffsetSpec.earliestLocal()).offset());
        same(-1L, offset(partition, OffsetSpec.forTimestamp(base + 6)).offset());
    }

    private void logDirsAreDescribed() throws Exception {
        String topic = newTopic(2, Map.of());
        send(topic, 100, Map.of());
        var directories = admin.describeLogDirs(List.of(0)).allDescriptions().get().get(0);
        same(1, directories.size());
        var replicas = directories.values().iterator().next().replicaInfos();
        check(replicas.get(new TopicPartition(topic, 0)).size() > 100, "has a size");
        same(0L, replicas.get(new TopicPartition(topic, 1)).size());
    }

    private void producersAreDescribed() throws Exception {
        String topic = newTopic();
        send(topic, 10, Map.of());
        TopicPartition partition = new TopicPartition(topic, 0);
        var producers = admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers();
        same(1, producers.size());
        same(9, producers.get(0).lastSequence());
    }

    // Producing and consuming.

    private void roundTrip(Map<String, String> settings) throws Exception {
        String topic = newTopic();
        int count = 3000;
        send(topic, count, settings);
        List<ConsumerRecord<byte[], byte[]>> got = readFrom(topic, 0, count);
        for (int number = 0; number < count; number++) {
            same(String.valueOf(number), text(got.get(number).value()));
            same((long) number, got.get(number).offset());
        }
    }

    private void idempotentProducer() throws Exception {
        String topic = newTopic();
        int count = 20_000;
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> sender = producer(Map.of("enable.idempotence", "true", "linger.ms", "0"))) {
            for (int number = 0; number < count; number++) {
                sent.add(sender.send(new ProducerRecord<>(topic, 0, null, bytes(number))));
            }
            for (int number = 0; number < count; number++) {
                same((long) number, sent.get(number).get().offset());
            }
        }
    }

    private void keysHeadersTimestampsAndNulls() throws Exception {
        String topic = newTopic();
        List<Header> headers = List.of(new RecordHeader("a", bytes("1")), new RecordHeader("a", bytes("2")),
            new RecordHeader("empty", new byte[0]), new RecordHeader("null", (byte[]) null));
        byte[][] parts = {bytes("k"), null, new byte[0]};
        long sentAt = 1_700_000_000_123L;
        try (KafkaProducer<byte[], byte[]> sender = producer(Map.of())) {
            for (byte[] key : parts) {
                for (byte[] value : parts) {
                    sender.send(new ProducerRecord<>(topic, 0, sentAt, key, value, headers)).get();
                }
            }
        }
        List<ConsumerRecord<byte[], byte[]>> got = readFrom(topic, 0, 9);
        for (int index = 0; index < 9; index++) {
            ConsumerRecord<byte[], byte[]> record = got.get(index);
            check(Arrays.equals(parts[index / 3], record.key()), "key", index);
            check(Arrays.equals(parts[index % 3], record.value()), "value", index);
            same(sentAt, record.timestamp());
            same(headers, Arrays.asList(record.headers().toArray()));
        }
    }

    private void tombstonesAndCompaction() throws Exception {
        String topic = newTopic(1, Map.of("cleanup.policy", "compact"));
        try (KafkaProducer<byte[], byte[]> sender = producer(Map.of())) {
            sender.send(new ProducerRecord<>(topic, 0, bytes("k"), bytes("v"))).get();
            sender.send(new ProducerRecord<>(topic, 0, bytes("k"), null)).get();
            refused(org.apache.kafka.common.InvalidRecordException.class,
                sender.send(new ProducerRecord<>(topic, 0, null, bytes("no key"))));
        }
        check(readFrom(topic, 0, 2).get(1).value() == null, "a tombstone");
    }

    private void recordsOfOneMegabyte() throws Exception {
        String topic = newTopic(1, Map.of("max.message.bytes", "4000000"));
        try (KafkaProducer<byte[], byte[]> sender = producer(Map.of("max.request.size", "4000000"))) {
            for (int number = 0; number < 8; number++) {
                byte[] value = new byte[1 << 20];
                Arrays.fill(value, (byte) number);
                same((long) number, sender.send(new ProducerRecord<>(topic, 0, null, value)).get().offset());
            }
        }
        List<ConsumerRecord<byte[], byte[]>> got = readFrom(topic, 0, 8);
        for (int number = 0; number < 8; number++) {
            same(1 << 20, got.get(number).value().length);
            same((byte) number, got.get(number).value()[12345]);
        }
    }

    private void recordTooLarge() throws Exception {
        String topic = newTopic();
        try (KafkaProducer<byte[], byte[]> sender = producer(Map.of("max.request.size", "4000000"))) {
            refused(RecordTooLargeException.class,
                sender.send(new ProducerRecord<>(topic, 0, null, new byte[1_500_000])));
            same(0L, sender.send(new ProducerRecord<>(topic, 0, null, bytes("fits"))).get().offset());
        }
    }

    private void seekEarliestLatestAndOffset() throws Exception {
        String topic = newTopic();
        send(topic, 100, Map.of());
        same("42", text(readFrom(topic, 42, 58).get(0).value()));
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> reader = consumer(Map.of())) {
            reader.assign(List.of(partition));
            reader.seekToBeginning(List.of(partition));
            same("0", text(read(reader, 100).get(0).value()));
            reader.seekToEnd(List.of(partition));
            same(100L, reader.position(partition));
            send(topic, 1, Map.of());
            same(100L, read(reader, 1).get(0).offset());
        }
    }

    private void offsetsForTimes() throws Exception {
        String topic = newTopic();
        TopicPartition partition = new TopicPartition(topic, 0);
        long base = 1_700_000_000_000L;
        try (KafkaProducer<byte[], byte[]> sender = producer(Map.of())) {
            for (int number = 0; number < 100; number++) {
                sender.send(new ProducerRecord<>(topic, 0, base + number * 10, null, bytes(number)));
            }
        }
        try (KafkaConsumer<byte[], byte[]> reader = consumer(Map.of())) {
            OffsetAndTimestamp found = reader.offsetsForTimes(Map.of(partition, base + 495)).get(partition);
            same(50L, found.offset());
            same(base + 500, found.timestamp());
            check(reader.offsetsForTimes(Map.of(partition, base + 991)).get(partition) == null, "beyond the end");
            reader.assign(List.of(partition));
            reader.seek(partition, found.offset());
            same("50", text(read(reader, 50).get(0).value()));
        }
    }

    private void offsetOutOfRange() throws Exception {
        String topic = newTopic();
        send(topic, 1, Map.of());
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> reader = consumer(Map.of())) {
            reader.assign(List.of(partition));
            reader.seek(partition, 1000);
            try {
                read(reader, 1);
                throw new AssertionError("expected OffsetOutOfRangeException");
            } catch (OffsetOutOfRangeException expected) {
                same(Set.of(partition), expected.partitions());
            }
        }
        try (KafkaConsumer<byte[], byte[]> reader = consumer(Map.of("auto.offset.reset", "earliest"))) {
            reader.assign(List.of(partition));
            reader.seek(partition, 1000);
            same(0L, read(reader, 1).get(0).offset());
        }
    }

    private void emptyTopic() throws Exception {
        TopicPartition partition = new TopicPartition(newTopic(), 0);
        try (KafkaConsumer<byte[], byte[]> reader = consumer(Map.of())) {
            same(Map.of(partition, 0L), reader.beginningOffsets(List.of(partition)));
            same(Map.of(partition, 0L), reader.endOffsets(List.of(partition)));
            reader.assign(List.of(partition));
            reader.seekToBeginning(List.of(partition));
            check(reader.poll(Duration.ofMillis(300)).isEmpty(), "nothing to read");
        }
    }

    private void unknownTopic() throws Exception {
        String topic = "java-" + UUID.randomUUID();
        refused(UnknownTopicOrPartitionException.class, admin.describeTopics(List.of(topic)).allTopicNames());
        try (KafkaConsumer<byte[], byte[]> reader = consumer(Map.of("allow.auto.create.topics", "false"))) {
            try {
                reader.endOffsets(List.of(new TopicPartition(topic, 0)), Duration.ofMillis(500));
                throw new AssertionError("expected an exception");
            } catch (TimeoutException | UnknownTopicOrPartitionException expected) {
                check(!exists(topic), "not created");
            }
        }
    }

    private void largeTopic() throws Exception {
        String topic = newTopic(4, Map.of());
        try (KafkaProducer<byte[], byte[]> sender = producer(Map.of("linger.ms", "5"))) {
            for (int number = 0; number < MANY; number++) {
                sender.send(new ProducerRecord<>(topic, number % 4, null, bytes(number)));
            }
        }
        Map<Integer, Integer> next = new HashMap<>(Map.of(0, 0, 1, 1, 2, 2, 3, 3));
        try (KafkaConsumer<byte[], byte[]> reader = consumer(Map.of())) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (int index = 0; index < 4; index++) {
                partitions.add(new TopicPartition(topic, index));
            }
            reader.assign(partitions);
            reader.seekToBeginning(partitions);
            for (ConsumerRecord<byte[], byte[]> record : read(reader, MANY)) {
                int expected = next.get(record.partition());
                same(String.valueOf(expected), text(record.value()));
                next.put(record.partition(), expected + 4);
            }
        }
    }
}
