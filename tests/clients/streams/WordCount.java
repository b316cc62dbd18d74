import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;

/** Counts the words of one topic into another, in a group of the protocol `streams`. Ends when its standard input does.
 * Arguments: bootstrap servers, application id, state directory, processing guarantee, endpoint, both topics. */
final class WordCount {

    public static void main(String[] asked) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", asked[0]);
        config.put("application.id", asked[1]);
        config.put("state.dir", asked[2]);
        config.put("processing.guarantee", asked[3]);
        config.put("application.server", asked[4]);
        config.put("group.protocol", "streams");
        config.put("default.key.serde", Serdes.StringSerde.class);
        config.put("default.value.serde", Serdes.StringSerde.class);
        config.put("dsl.store.suppliers.class",
            "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers");
        config.put("commit.interval.ms", "100");
        config.put("auto.offset.reset", "earliest");
        config.put("reconnect.backoff.max.ms", "100");
        config.put("retry.backoff.max.ms", "100");
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> words = builder.stream(asked[5]);
        words.flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.as("by-word"))
            .count(Named.as("count"), Materialized.as("counted"))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(asked[6]);
        KafkaStreams application = new KafkaStreams(builder.build(), config);
        application.setStateListener((now, before) -> {
            System.out.println(now);
            System.out.flush();
        });
        application.start();
        while (System.in.read() >= 0) {
            // until whoever started this closes its end
        }
        application.close(Duration.ofSeconds(30));
        System.exit(0);
    }
}
