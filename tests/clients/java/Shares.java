import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Consumers of share groups by name; each polls when it is told to. */
final class Shares {

    private static final Map<String, Shares> NAMED = new HashMap<>();

    static final Map<String, Clients.Operation> OPERATIONS = Map.of(
        "share_join", asked -> {
            NAMED.put(asked.get("name").asText(), new Shares(asked));
            return null;
        },
        "share_poll", asked -> named(asked).poll(),
        "share_acknowledge", asked -> named(asked).acknowledge(asked),
        "share_leave", asked -> {
            NAMED.remove(asked.get("name").asText()).consumer.close();
            return null;
        },
        "share_configure", asked -> {
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, asked.get("group").asText());
            List<AlterConfigOp> changes = new ArrayList<>();
            asked.get("configs").fields().forEachRemaining(each -> changes.add(
                new AlterConfigOp(new ConfigEntry(each.getKey(), each.getValue().asText()), AlterConfigOp.OpType.SET)));
            try (Admin admin = Admin.create(Access.config(asked))) {
                admin.incrementalAlterConfigs(Map.of(group, changes)).all().get();
            }
            return null;
        });

    private static Shares named(JsonNode asked) {
        return NAMED.get(asked.get("name").asText());
    }

    private final KafkaShareConsumer<byte[], byte[]> consumer;
    private final Map<String, ConsumerRecord<byte[], byte[]>> given = new HashMap<>();

    private Shares(JsonNode asked) {
        Map<String, Object> config = Access.config(asked);
        config.putAll(Map.of(
            "group.id", asked.get("group").asText(), "fetch.max.wait.ms", 50, "reconnect.backoff.ms", 10,
            "share.acknowledgement.mode", asked.get("explicit").asBoolean() ? "explicit" : "implicit"));
        consumer = new KafkaShareConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(asked.get("topic").asText()));
    }

    /** What the next poll that gives something gives. */
    private Object poll() {
        long deadline = System.currentTimeMillis() + Clients.PATIENCE_MS;
        List<Map<String, Object>> found = new ArrayList<>();
        while (found.isEmpty()) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("nothing was given in time");
            }
            consumer.poll(Duration.ofMillis(200)).forEach(one -> {
                given.put(place(one.partition(), one.offset()), one);
                Map<String, Object> plain = Consumers.plain(one);
                plain.put("deliveries", one.deliveryCount().orElseThrow());
                found.add(plain);
            });
        }
        return found;
    }

    /** Says what became of records, if of any, and waits until the broker has it. Answers what it does not take. */
    private Object acknowledge(JsonNode asked) {
        for (JsonNode said : asked.get("said")) {
            ConsumerRecord<byte[], byte[]> one = given.get(place(said.get(0).asInt(), said.get(1).asLong()));
            consumer.acknowledge(one, AcknowledgeType.valueOf(said.get(2).asText().toUpperCase(Locale.ROOT)));
        }
        List<String> refused = new ArrayList<>();
        Map<TopicIdPartition, Optional<KafkaException>> answers = consumer.commitSync();
        answers.values().forEach(each -> each.ifPresent(thrown -> refused.add(thrown.getClass().getSimpleName())));
        return refused;
    }

    private static String place(int partition, long offset) {
        return partition + "-" + offset;
    }
}
