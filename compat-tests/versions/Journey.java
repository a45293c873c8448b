// What an application does in its first minute, in words that every kafka-clients since 0.11 understands:
// create a topic, produce idempotently, in a transaction and in an aborted one, consume as a group, commit.

import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

public class Journey {
    static final int RECORDS = 100;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], topic = arguments[1];
        try (AdminClient admin = AdminClient.create(settings(bootstrap))) {
            admin.createTopics(Collections.singleton(new NewTopic(topic, 3, (short) 1))).all().get();
            admin.describeTopics(Collections.singleton(topic));
            System.out.println("nodes " + admin.describeCluster().nodes().get().size());
        }
        Properties idempotent = settings(bootstrap);
        idempotent.put("enable.idempotence", "true");
        idempotent.put("acks", "all");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(idempotent)) {
            for (int i = 0; i < RECORDS; i++) producer.send(new ProducerRecord<>(topic, "k" + i, "plain-" + i)).get();
        }
        Properties transactional = settings(bootstrap);
        transactional.put("transactional.id", topic);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(transactional)) {
            producer.initTransactions();
            for (String outcome : new String[] {"committed", "aborted", "committed"}) {
                producer.beginTransaction();
                for (int i = 0; i < RECORDS; i++) producer.send(new ProducerRecord<>(topic, "k" + i, outcome + "-" + i));
                if (outcome.equals("committed")) producer.commitTransaction();
                else producer.abortTransaction();
            }
        }
        System.out.println("read " + read(bootstrap, topic, 3 * RECORDS));
    }

    static int read(String bootstrap, String topic, int wanted) throws Exception {
        Properties settings = settings(bootstrap);
        settings.put("group.id", topic);
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(Collections.singleton(topic));
            long deadline = System.currentTimeMillis() + 30_000;
            while (values.size() < wanted && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> each : poll(consumer)) {
                    if (each.value().startsWith("aborted")) throw new IllegalStateException("shown: " + each);
                    values.add(each.value());
                }
            }
            consumer.commitSync();
        }
        return values.size();
    }

    @SuppressWarnings("unchecked")
    static ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer) throws Exception {
        Method poll;
        try {
            poll = KafkaConsumer.class.getMethod("poll", Duration.class);
        } catch (NoSuchMethodException before20) {
            return (ConsumerRecords<String, String>) KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, 500L);
        }
        return (ConsumerRecords<String, String>) poll.invoke(consumer, Duration.ofMillis(500));
    }

    static Properties settings(String bootstrap) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        for (String side : new String[] {"key", "value"}) {
            settings.put(side + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
            settings.put(side + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        }
        return settings;
    }
}
