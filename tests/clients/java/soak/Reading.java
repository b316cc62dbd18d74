import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.node.ArrayNode;

import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A member of a group of either kind, and lookups by time. */
final class Reading {

    private static final int SESSION_MS = 8000;
    private static final Duration POLL = Duration.ofMillis(300);

    private static KafkaConsumer<byte[], byte[]> consumer(Work work, Map<String, Object> more) {
        return new KafkaConsumer<>(work.config(more), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Commits what it has read before it reads on. */
    static void member(Work work) {
        String group = work.text("group");
        boolean committed = work.role.get("committed").asBoolean();
        Map<String, Object> config = new HashMap<>(Map.of(
            "group.id", group, "auto.offset.reset", "earliest", "enable.auto.commit", false, "fetch.max.wait.ms", 250,
            "isolation.level", committed ? "read_committed" : "read_uncommitted", "max.poll.records", 50));
        if (work.text("protocol").equals("consumer")) {
            config.put("group.protocol", "consumer");
        } else {
            config.putAll(Map.of("session.timeout.ms", SESSION_MS, "heartbeat.interval.ms", 1000,
                "partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor"));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(work, config)) {
            consumer.subscribe(List.of(work.text("topic")), new Beginnings(work, consumer));
            while (!Work.isOver()) {
                try {
                    take(work, consumer, consumer.poll(POLL), group, committed);
                } catch (KafkaException thrown) {
                    work.notes.failed("poll failed", thrown);
                    Work.pause(100);
                }
            }
        }
    }

    private static void take(
        Work work, KafkaConsumer<byte[], byte[]> consumer, ConsumerRecords<byte[], byte[]> read, String group, boolean committed
    ) {
        Map<TopicPartition, Long> offsets = new HashMap<>();
        for (TopicPartition of : read.partitions()) {
            ArrayNode found = Notes.JSON.createArrayNode();
            for (ConsumerRecord<byte[], byte[]> each : read.records(of)) {
                found.addArray().add(each.offset()).add(Work.id(each.value())).add(each.timestamp());
                offsets.put(of, each.offset() + 1);
            }
            work.notes.polled(of, found, committed, group);
        }
        if (offsets.isEmpty()) {
            return;
        }
        work.notes.commits(group, offsets);
        Map<TopicPartition, OffsetAndMetadata> asked = new HashMap<>();
        offsets.forEach((of, offset) -> asked.put(of, new OffsetAndMetadata(offset)));
        try {
            consumer.commitSync(asked, Duration.ofSeconds(20));
            work.notes.committed(group, offsets);
        } catch (KafkaException thrown) {
            work.notes.failed("commit failed", thrown);
        }
    }

    /** Notes from where reading goes on, as the group has it. */
    private record Beginnings(Work work, KafkaConsumer<byte[], byte[]> consumer) implements ConsumerRebalanceListener {

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> given) {
            given.forEach(each -> work.notes.moved(each, null));
            if (given.isEmpty()) {
                return;
            }
            try {
                long begun = System.nanoTime();
                Map<TopicPartition, OffsetAndMetadata> known =
                    consumer.committed(new HashSet<>(given), Duration.ofSeconds(5));
                given.forEach(each -> work.notes.fetched(
                    work.text("group"), each, known.get(each) == null ? -1 : known.get(each).offset(), begun));
            } catch (KafkaException thrown) {
                work.notes.failed("asks in vain", thrown);
            }
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> taken) { }
    }

    static void look(Work work) {
        long[] ago = {0, 500, 5000, 60_000, 600_000};
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(work, Map.of())) {
            while (!Work.isQuiet()) {
                TopicPartition of = work.partition(work.random.nextBoolean() ? "plain" : "copied");
                long timestamp = System.currentTimeMillis() - ago[work.random.nextInt(ago.length)];
                long begun = System.nanoTime();
                try {
                    OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(of, timestamp)).get(of);
                    work.notes.lookedUp(of, timestamp, begun, found == null ? -1 : found.offset(), found == null ? null : found.timestamp());
                } catch (KafkaException thrown) {
                    Work.pause(200);
                }
                Work.pause(work.random.nextInt(2000));
            }
        }
    }

    private Reading() { }
}
