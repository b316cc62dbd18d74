import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Producers by name, and transactions. */
final class Producers {

    private static final Map<String, KafkaProducer<byte[], byte[]>> OPEN = new HashMap<>();

    static final Map<String, Clients.Operation> OPERATIONS = Map.of(
        "open", Producers::open,
        "send", asked -> send(named(asked), asked),
        "begin", asked -> {
            named(asked).beginTransaction();
            return null;
        },
        "end", asked -> {
            end(named(asked), asked);
            return null;
        },
        "close", asked -> {
            OPEN.remove(asked.get("name").asText()).close();
            return null;
        },
        "transform", Producers::transform);

    private static KafkaProducer<byte[], byte[]> named(JsonNode asked) {
        return OPEN.get(asked.get("name").asText());
    }

    private static Object open(JsonNode asked) {
        Map<String, Object> config = Access.config(asked);
        config.putAll(Map.of(
            "acks", asked.get("acks").asText(),
            "compression.type", asked.get("codec").asText(),
            "enable.idempotence", asked.get("idempotent").asBoolean(),
            "linger.ms", 0, "reconnect.backoff.ms", 10, "retry.backoff.ms", 20));
        if (asked.get("max_bytes").asInt() > 0) {
            config.put("max.request.size", asked.get("max_bytes").asInt());
        }
        if (!asked.get("transactional_id").asText().isEmpty()) {
            config.put("enable.idempotence", true);
            config.put("transactional.id", asked.get("transactional_id").asText());
        }
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        OPEN.put(asked.get("name").asText(), producer);
        if (config.containsKey("transactional.id")) {
            producer.initTransactions();
        }
        return null;
    }

    private static byte[] bytes(JsonNode text) throws IOException {
        return text.isNull() ? null : text.binaryValue();
    }

    private static List<Long> send(KafkaProducer<byte[], byte[]> producer, JsonNode asked) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode given : asked.get("records")) {
            Long timestamp = given.get("timestamp").asLong() < 0 ? null : given.get("timestamp").asLong();
            ProducerRecord<byte[], byte[]> one = new ProducerRecord<>(asked.get("topic").asText(),
                given.get("partition").asInt(), timestamp, bytes(given.get("key")), bytes(given.get("value")));
            for (JsonNode header : given.get("headers")) {
                one.headers().add(header.get("key").asText(), bytes(header.get("value")));
            }
            sent.add(producer.send(one));
        }
        List<Long> offsets = new ArrayList<>();
        producer.flush();
        for (Future<RecordMetadata> each : sent) {
            offsets.add(each.get().offset());
        }
        return offsets;
    }

    private static void end(KafkaProducer<byte[], byte[]> producer, JsonNode asked) {
        if (asked.get("committed").asBoolean()) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
    }

    /** Reads records of a partition and writes them to another topic, with the offset behind them, in one transaction. */
    private static Object transform(JsonNode asked) throws Exception {
        List<Map<String, Object>> read;
        ConsumerGroupMetadata group;
        try (KafkaConsumer<byte[], byte[]> consumer = Consumers.consumer(asked, Map.of())) {
            read = Consumers.read(consumer, asked);
            group = new ConsumerGroupMetadata(asked.get("group").asText());
        }
        Map<String, Object> config = Access.config(asked);
        config.putAll(Map.of("transactional.id", asked.get("transactional_id").asText(), "linger.ms", 0));
        try (KafkaProducer<byte[], byte[]> producer =
                 new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            for (Map<String, Object> one : read) {
                producer.send(new ProducerRecord<>(asked.get("target").asText(), (byte[]) one.get("key"), (byte[]) one.get("value")));
            }
            long next = (Long) read.get(read.size() - 1).get("offset") + 1;
            TopicPartition partition = new TopicPartition(asked.get("topic").asText(), 0);
            producer.flush(); // aborting drops what was not sent
            producer.sendOffsetsToTransaction(Map.of(partition, new OffsetAndMetadata(next)), group);
            end(producer, asked);
        }
        return read;
    }

    private Producers() { }
}
