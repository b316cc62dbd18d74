import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;

/**
 * Applications of Kafka Streams: Streams KEY=VALUE... (TOPOLOGY KEY=VALUE...)..., where the first pairs are the configuration of
 * all of them, and those behind a topology that of one. Each writes into the topic that has its application.id. They run until
 * standard input ends, and end with 1 when a thread of theirs dies.
 */
public final class Streams {

    private static final Duration WINDOW = Duration.ofSeconds(2);
    /** Longer than anything that a test does: no record comes too late. */
    private static final Duration GRACE = Duration.ofHours(3);

    public static void main(String[] words) throws IOException {
        Properties common = new Properties();
        common.put("processing.guarantee", "exactly_once_v2");
        common.put("default.key.serde", Serdes.StringSerde.class.getName());
        common.put("default.value.serde", Serdes.StringSerde.class.getName());
        common.put("statestore.cache.max.bytes", "0"); // every count is written
        int at = put(common, words, 0);
        List<KafkaStreams> applications = new ArrayList<>();
        while (at < words.length) {
            String topology = words[at];
            Properties config = new Properties();
            config.putAll(common);
            at = put(config, words, at + 1);
            applications.add(started(topology, config));
        }
        while (System.in.read() >= 0) {
            // waits for the end
        }
        long left = applications.parallelStream().filter(application -> !application.close(Duration.ofSeconds(30))).count();
        System.exit(left == 0 ? 0 : 2);
    }

    /** Takes pairs from a place on; answers the next word that is none. */
    private static int put(Properties config, String[] words, int at) {
        while (at < words.length && words[at].contains("=")) {
            String[] pair = words[at++].split("=", 2);
            config.put(pair[0], pair[1]);
        }
        return at;
    }

    private static KafkaStreams started(String topology, Properties config) {
        StreamsBuilder builder = new StreamsBuilder();
        String output = config.getProperty("application.id");
        switch (topology) {
            case "count":
                count(builder, output);
                break;
            case "join":
                join(builder, output);
                break;
            default:
                throw new IllegalArgumentException(topology);
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setUncaughtExceptionHandler(thrown -> {
            thrown.printStackTrace();
            Runtime.getRuntime().halt(1);
            return null;
        });
        streams.start();
        return streams;
    }

    /** Words of `lines`, each with how often it has come so far. */
    private static void count(StreamsBuilder builder, String output) {
        KStream<String, String> lines = builder.stream("lines");
        lines.flatMapValues(line -> List.of(line.split(" "))).groupBy((key, word) -> word).count().toStream()
            .mapValues(number -> number.toString()).to(output);
    }

    /** Pairs of `left` and `right` whose keys are the same and whose times are close. */
    private static void join(StreamsBuilder builder, String output) {
        KStream<String, String> left = builder.stream("left");
        KStream<String, String> right = builder.stream("right");
        left.join(right, (one, other) -> one + " " + other, JoinWindows.ofTimeDifferenceAndGrace(WINDOW, GRACE)).to(output);
    }

    private Streams() { }
}
