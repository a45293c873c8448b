import java.io.BufferedReader;
import java.io.FileReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateDelegationTokenOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.SaslAuthenticationException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.security.token.delegation.DelegationToken;

/** Logins of kafka-clients. Each line of standard input is a case: its name, a tab, and a client's properties file. */
public final class Sasl {
    private static final long DEADLINE_MS = 30_000;

    private static Properties read(String path) throws Exception {
        Properties properties = new Properties();
        try (FileReader reader = new FileReader(path, StandardCharsets.UTF_8)) {
            properties.load(reader);
        }
        return properties;
    }

    private static void writeAndRead(Properties client) throws Exception {
        String topic = "java-" + UUID.randomUUID();
        Properties writing = copy(client);
        writing.put("delivery.timeout.ms", 20_000);
        writing.put("request.timeout.ms", 10_000);
        writing.put("max.block.ms", 20_000);
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, "hello")).get();
        }
        Properties reading = copy(client);
        reading.put("group.id", topic);
        reading.put("auto.offset.reset", "earliest");
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            long end = System.currentTimeMillis() + DEADLINE_MS;
            while (System.currentTimeMillis() < end) {
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(200))) {
                    if (each.value().equals("hello")) {
                        return;
                    }
                }
            }
        }
        throw new AssertionError("nothing was read");
    }

    private static void isRefused(Properties client) throws Exception {
        try (Admin admin = Admin.create(client)) {
            admin.describeCluster().clusterId().get();
        } catch (Exception failure) {
            if (failure.getCause() instanceof SaslAuthenticationException) {
                return;
            }
            throw failure;
        }
        throw new AssertionError("it got in");
    }

    private static void byToken(Properties client) throws Exception {
        try (Admin admin = Admin.create(client)) {
            CreateDelegationTokenOptions options = new CreateDelegationTokenOptions().maxLifetimeMs(60_000);
            DelegationToken token = admin.createDelegationToken(options).delegationToken().get();
            Properties byToken = copy(client);
            byToken.put("sasl.mechanism", "SCRAM-SHA-256");
            byToken.put("sasl.jaas.config", String.format(
                "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"%s\" password=\"%s\" "
                    + "tokenauth=\"true\";", token.tokenInfo().tokenId(), token.hmacAsBase64String()));
            awaitKnown(byToken);
            writeAndRead(byToken);
            admin.expireDelegationToken(token.hmac()).expiryTimestamp().get();
            isRefused(byToken);
        }
    }

    /** Apache Kafka's broker may hear of a token after its controller has answered. */
    private static void awaitKnown(Properties byToken) throws Exception {
        long end = System.currentTimeMillis() + DEADLINE_MS;
        while (true) {
            try (Admin admin = Admin.create(byToken)) {
                admin.describeCluster().clusterId().get();
                return;
            } catch (ExecutionException failure) {
                if (System.currentTimeMillis() > end) {
                    throw failure;
                }
            }
        }
    }

    private static Properties copy(Properties properties) {
        Properties copied = new Properties();
        copied.putAll(properties);
        return copied;
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", arguments[1]);
        Map<String, Case> cases = new LinkedHashMap<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            Properties client = read(words[1]);
            client.put("bootstrap.servers", arguments[0]);
            if (words[0].startsWith("refused")) {
                cases.put(words[0], () -> isRefused(client));
            } else if (words[0].startsWith("token")) {
                cases.put(words[0], () -> byToken(client));
            } else {
                cases.put(words[0], () -> writeAndRead(client));
            }
        }
        Case.runAll(cases);
    }
}
