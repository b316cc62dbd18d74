import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** Topics, configurations, offsets and groups through the admin client. */
final class Administration {

    private interface Work {
        Object run(Admin admin, JsonNode asked) throws Exception;
    }

    static final Map<String, Clients.Operation> OPERATIONS = new HashMap<>();

    private static void operation(String name, Work work) {
        OPERATIONS.put(name, asked -> {
            try (Admin admin = Admin.create(Access.config(asked))) {
                return work.run(admin, asked);
            }
        });
    }

    static {
        operation("create_topic", (admin, asked) -> {
            NewTopic topic = new NewTopic(topic(asked), Optional.of(asked.get("partitions").asInt()), Optional.of((short) 1));
            return admin.createTopics(List.of(topic.configs(configs(asked)))).all().get();
        });
        operation("delete_topic", (admin, asked) -> admin.deleteTopics(List.of(topic(asked))).all().get());
        operation("partitions", (admin, asked) -> {
            List<Integer> found = new ArrayList<>();
            if (admin.listTopics().names().get().contains(topic(asked))) {
                admin.describeTopics(List.of(topic(asked))).allTopicNames().get().get(topic(asked)).partitions()
                    .forEach(each -> found.add(each.partition()));
            }
            return found;
        });
        operation("add_partitions", (admin, asked) -> admin.createPartitions(
            Map.of(topic(asked), NewPartitions.increaseTo(asked.get("partitions").asInt()))).all().get());
        operation("describe_configs", (admin, asked) -> {
            Map<String, String> values = new HashMap<>();
            admin.describeConfigs(List.of(resource(asked))).all().get().get(resource(asked)).entries()
                .forEach(each -> values.put(each.name(), each.value()));
            return values;
        });
        operation("alter_configs", (admin, asked) -> {
            List<AlterConfigOp> set = new ArrayList<>();
            configs(asked).forEach((key, value) -> set.add(new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET)));
            return admin.incrementalAlterConfigs(Map.of(resource(asked), set)).all().get();
        });
        operation("delete_records", (admin, asked) -> {
            Map<TopicPartition, RecordsToDelete> before = new HashMap<>();
            offsets(asked).forEach((partition, offset) -> before.put(partition, RecordsToDelete.beforeOffset(offset)));
            return admin.deleteRecords(before).all().get();
        });
        operation("committed", (admin, asked) -> {
            Map<Integer, Long> found = new HashMap<>();
            admin.listConsumerGroupOffsets(asked.get("group").asText()).partitionsToOffsetAndMetadata().get()
                .forEach((partition, at) -> found.put(partition.partition(), at.offset()));
            return found;
        });
        operation("reset", (admin, asked) -> {
            Map<TopicPartition, OffsetAndMetadata> to = new HashMap<>();
            offsets(asked).forEach((partition, offset) -> to.put(partition, new OffsetAndMetadata(offset)));
            return admin.alterConsumerGroupOffsets(asked.get("group").asText(), to).all().get();
        });
        operation("describe_group", (admin, asked) -> {
            String group = asked.get("group").asText();
            ConsumerGroupDescription found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            return Map.of("state", found.groupState().toString(), "members", found.members().size());
        });
        operation("delete_group", (admin, asked) ->
            admin.deleteConsumerGroups(List.of(asked.get("group").asText())).all().get());
    }

    private static String topic(JsonNode asked) {
        return asked.get("topic").asText();
    }

    private static ConfigResource resource(JsonNode asked) {
        return new ConfigResource(ConfigResource.Type.TOPIC, topic(asked));
    }

    private static Map<String, String> configs(JsonNode asked) {
        Map<String, String> found = new HashMap<>();
        asked.get("configs").fields().forEachRemaining(each -> found.put(each.getKey(), each.getValue().asText()));
        return found;
    }

    private static Map<TopicPartition, Long> offsets(JsonNode asked) {
        Map<TopicPartition, Long> found = new HashMap<>();
        asked.get("offsets").fields().forEachRemaining(each ->
            found.put(new TopicPartition(topic(asked), Integer.parseInt(each.getKey())), each.getValue().asLong()));
        return found;
    }

    private Administration() { }
}
