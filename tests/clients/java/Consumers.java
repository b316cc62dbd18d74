import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reading of assigned partitions, and what a consumer says about offsets. */
final class Consumers {

    static final Map<String, Clients.Operation> OPERATIONS = new HashMap<>(Map.of(
        "consume", asked -> {
            try (KafkaConsumer<byte[], byte[]> consumer = consumer(asked, Map.of())) {
                return read(consumer, asked);
            }
        },
        "bounds", asked -> {
            try (KafkaConsumer<byte[], byte[]> consumer = consumer(asked, Map.of())) {
                Collection<TopicPartition> one = List.of(partition(asked));
                return List.of(consumer.beginningOffsets(one).get(partition(asked)), consumer.endOffsets(one).get(partition(asked)));
            }
        },
        "offset_at", asked -> {
            try (KafkaConsumer<byte[], byte[]> consumer = consumer(asked, Map.of())) {
                OffsetAndTimestamp found =
                    consumer.offsetsForTimes(Map.of(partition(asked), asked.get("timestamp").asLong())).get(partition(asked));
                return found == null ? null : found.offset();
            }
        }));

    static {
        OPERATIONS.putAll(Members.OPERATIONS);
    }

    private static TopicPartition partition(JsonNode asked) {
        return new TopicPartition(asked.get("topic").asText(), asked.get("partition").asInt());
    }

    static KafkaConsumer<byte[], byte[]> consumer(JsonNode asked, Map<String, Object> more) {
        boolean committed = asked.has("committed") && asked.get("committed").asBoolean();
        Map<String, Object> config = Access.config(asked);
        config.putAll(Map.of(
            "isolation.level", committed ? "read_committed" : "read_uncommitted",
            "enable.auto.commit", false, "auto.offset.reset", "none", "fetch.max.wait.ms", 50, "reconnect.backoff.ms", 10));
        config.putAll(more);
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static List<Map<String, Object>> read(KafkaConsumer<byte[], byte[]> consumer, JsonNode asked) {
        Map<TopicPartition, Long> from = new HashMap<>();
        asked.get("offsets").fields().forEachRemaining(each -> from.put(
            new TopicPartition(asked.get("topic").asText(), Integer.parseInt(each.getKey())), each.getValue().asLong()));
        consumer.assign(from.keySet());
        from.forEach(consumer::seek);
        List<Map<String, Object>> found = new ArrayList<>();
        long deadline = System.currentTimeMillis() + Clients.PATIENCE_MS;
        while (found.size() < asked.get("count").asInt()) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException(found.size() + " records read in time");
            }
            consumer.poll(Duration.ofMillis(200)).forEach(one -> found.add(plain(one)));
        }
        return found;
    }

    static Map<String, Object> plain(ConsumerRecord<byte[], byte[]> one) {
        List<Map<String, Object>> headers = new ArrayList<>();
        for (Header header : one.headers()) {
            Map<String, Object> pair = new HashMap<>();
            pair.put("key", header.key());
            pair.put("value", header.value());
            headers.add(pair);
        }
        Map<String, Object> record = new HashMap<>(Map.of(
            "partition", one.partition(), "offset", one.offset(), "timestamp", one.timestamp(), "headers", headers));
        record.put("key", one.key());
        record.put("value", one.value());
        return record;
    }

    private Consumers() { }
}
