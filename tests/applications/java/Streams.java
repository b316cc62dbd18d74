import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Properties;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;

/**
 * An application of Kafka Streams: Streams TOPOLOGY KEY=VALUE..., where the pairs are its configuration. It runs until its
 * standard input ends, and ends with 1 when its only thread dies.
 */
public final class Streams {

    private static final Duration WINDOW = Duration.ofSeconds(2);
    /** Longer than anything that a test does: no record comes too late. */
    private static final Duration GRACE = Duration.ofHours(3);

    public static void main(String[] words) throws IOException {
        Properties config = new Properties();
        config.put("processing.guarantee", "exactly_once_v2");
        config.put("default.key.serde", Serdes.StringSerde.class.getName());
        config.put("default.value.serde", Serdes.StringSerde.class.getName());
        config.put("statestore.cache.max.bytes", "0"); // every count is written
        for (int at = 1; at < words.length; at++) {
            String[] pair = words[at].split("=", 2);
            config.put(pair[0], pair[1]);
        }
        StreamsBuilder builder = new StreamsBuilder();
        switch (words[0]) {
            case "count":
                count(builder);
                break;
            case "join":
                join(builder);
                break;
            default:
                throw new IllegalArgumentException(words[0]);
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setUncaughtExceptionHandler(thrown -> {
            thrown.printStackTrace();
            Runtime.getRuntime().halt(1);
            return null;
        });
        streams.start();
        while (System.in.read() >= 0) {
            // waits for the end
        }
        System.exit(streams.close(Duration.ofSeconds(30)) ? 0 : 2);
    }

    /** Words of `lines`, each with how often it has come so far, to `counts`. */
    private static void count(StreamsBuilder builder) {
        KStream<String, String> lines = builder.stream("lines");
        lines.flatMapValues(line -> List.of(line.split(" "))).groupBy((key, word) -> word).count().toStream()
            .mapValues(number -> number.toString()).to("counts");
    }

    /** Pairs of `left` and `right` whose keys are the same and whose times are close, to `joined`. */
    private static void join(StreamsBuilder builder) {
        KStream<String, String> left = builder.stream("left");
        KStream<String, String> right = builder.stream("right");
        left.join(right, (one, other) -> one + " " + other, JoinWindows.ofTimeDifferenceAndGrace(WINDOW, GRACE)).to("joined");
    }

    private Streams() { }
}
