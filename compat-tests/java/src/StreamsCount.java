import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts words exactly once: a repartition topic, a RocksDB store with its changelog, and every new count to the target.
 * Prints RUNNING whenever it is; goes on until its input ends, and prints STOPPED after a clean end.
 */
public final class StreamsCount {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String source = arguments[1];
        String target = arguments[2];
        String state = arguments[3];
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(source, Consumed.with(Serdes.String(), Serdes.String()))
            .groupBy((key, word) -> word, Grouped.with("word", Serdes.String(), Serdes.String()))
            .count()
            .toStream()
            .to(target, Produced.with(Serdes.String(), Serdes.Long()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings(bootstrap, source, state));
        CountDownLatch ended = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(error -> {
            System.err.println("a thread is replaced: " + error);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.setStateListener((now, before) -> {
            System.out.println(now);
            if (now == KafkaStreams.State.ERROR) {
                ended.countDown();
            }
        });
        streams.start();
        Input.whenEnded(ended::countDown);
        ended.await();
        boolean clean = streams.close(Duration.ofSeconds(30));
        System.out.println(clean ? "STOPPED" : "DID NOT STOP");
    }

    private static Properties settings(String bootstrap, String source, String state) {
        Properties settings = new Properties();
        settings.putAll(Map.of(
            StreamsConfig.APPLICATION_ID_CONFIG, source + "-count",
            StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap,
            StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2,
            StreamsConfig.STATE_DIR_CONFIG, state,
            // Every count is sent on, so that one that is left out or repeated shows.
            StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0,
            StreamsConfig.REPLICATION_FACTOR_CONFIG, 1,
            "reconnect.backoff.max.ms", 200,
            StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest",
            // The least that brokers allow by default: a killed instance is missed only after it.
            StreamsConfig.consumerPrefix("session.timeout.ms"), 6000,
            StreamsConfig.consumerPrefix("heartbeat.interval.ms"), 1000));
        return settings;
    }
}
