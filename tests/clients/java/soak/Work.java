import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.TopicPartition;

/** One role of a process: who notes what, and what is left to chance. */
final class Work {

    /** A record to send. `key` is null outside of compacted topics. */
    record Made(String id, long timestamp, String key, byte[] value) { }

    static final CountDownLatch QUIET = new CountDownLatch(1);
    static final CountDownLatch OVER = new CountDownLatch(1);
    static final int PATIENCE_MS = 240_000;

    final JsonNode task;
    final JsonNode role;
    final Notes.Book notes;
    final Random random;
    private int sent;
    private int transactions;
    private int producers;

    Work(JsonNode task, JsonNode role, Notes.Book notes) {
        this.task = task;
        this.role = role;
        this.notes = notes;
        random = new Random((task.get("seed").asText() + "/" + notes.who()).hashCode());
    }

    static boolean isQuiet() {
        return QUIET.getCount() == 0;
    }

    static boolean isOver() {
        return OVER.getCount() == 0;
    }

    /** Or less, when nothing more is to be sent. */
    static void pause(long millis) {
        try {
            QUIET.await(millis, TimeUnit.MILLISECONDS);
        } catch (InterruptedException thrown) {
            throw new IllegalStateException(thrown);
        }
    }

    void pauseAfter(int count, double share) {
        double seconds = -Math.log(1 - random.nextDouble()) * count / (task.get("rate").asDouble() * share);
        pause((long) (Math.min(5, seconds) * 1000));
    }

    String text(String name) {
        return role.get(name).asText();
    }

    String producerName() {
        return notes.who() + "/" + ++producers;
    }

    String transactionName() {
        return notes.who() + " transaction " + ++transactions;
    }

    TopicPartition partition(String topic) {
        return new TopicPartition(topic, random.nextInt(task.get("topics").get(topic).asInt()));
    }

    List<Made> records(int count, boolean keyed) {
        List<Made> made = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            String id = notes.who() + ":" + sent++;
            byte[] padding = new byte[random.nextInt(150)];
            random.nextBytes(padding);
            long timestamp = System.currentTimeMillis() - (random.nextDouble() < 0.3 ? random.nextInt(3000) : 0);
            String value = id + "\n" + HexFormat.of().formatHex(padding);
            made.add(new Made(id, timestamp, keyed ? "key-" + random.nextInt(40) : null, value.getBytes()));
        }
        return made;
    }

    Map<String, Object> config(Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(Map.of(
            "bootstrap.servers", task.get("kafka").asText(), "client.id", notes.who(),
            "reconnect.backoff.ms", 50, "reconnect.backoff.max.ms", 500, "retry.backoff.ms", 50,
            "request.timeout.ms", 10_000, "metadata.recovery.strategy", "none", "enable.metrics.push", false));
        config.putAll(more);
        return config;
    }

    static String id(byte[] value) {
        String text = new String(value);
        return text.substring(0, text.indexOf('\n'));
    }
}
