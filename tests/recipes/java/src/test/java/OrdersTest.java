import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

class OrdersTest {
    @RegisterExtension
    static final Triolog triolog = new Triolog();

    @Test
    void anOrderArrivesAlthoughTheLeaderMoves() throws Exception {
        triolog.call("POST", "/topics", "{\"name\": \"orders\"}");
        triolog.call("POST", "/faults", "{\"api\": \"Produce\", \"error\": \"NOT_LEADER_OR_FOLLOWER\", \"once\": true}");

        Map<String, Object> producing = Map.of("bootstrap.servers", triolog.bootstrapServers());
        try (var producer = new KafkaProducer<>(producing, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>("orders", "espresso")).get();
        }
        Map<String, Object> consuming = Map.of(
                "bootstrap.servers", triolog.bootstrapServers(), "group.id", "baristas", "auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<>(consuming, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("orders"));
            ConsumerRecords<String, String> orders = consumer.poll(Duration.ofMinutes(1));
            assertEquals("espresso", orders.iterator().next().value());
        }
        assertTrue(triolog.call("GET", "/faults", "").contains("\"fired\": 1"));
    }
}
