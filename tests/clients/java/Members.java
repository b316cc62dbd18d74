import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.function.BooleanSupplier;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/** Consumers of groups by name, each with a thread that polls: a consumer belongs to one thread. */
final class Members implements ConsumerRebalanceListener {

    private static final Map<String, Members> NAMED = new HashMap<>();

    static final Map<String, Clients.Operation> OPERATIONS = Map.of(
        "join", asked -> {
            NAMED.put(asked.get("name").asText(), new Members(asked));
            return null;
        },
        "assigned", asked -> named(asked).assigned(asked.get("count").asInt()),
        "received", asked -> named(asked).received(asked.get("count").asInt()),
        "commit", asked -> {
            Members member = named(asked);
            member.onItsThread(() -> {
                member.consumer.commitSync();
                return null;
            });
            return null;
        },
        "leave", asked -> {
            Members member = NAMED.remove(asked.get("name").asText());
            member.leaving = true;
            member.thread.join();
            return null;
        });

    private static Members named(JsonNode asked) {
        return NAMED.get(asked.get("name").asText());
    }

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final String topic;
    private final Thread thread = new Thread(this::poll);
    private final LinkedBlockingQueue<FutureTask<Object>> work = new LinkedBlockingQueue<>();
    private final TreeSet<Integer> held = new TreeSet<>();
    private final List<Map<String, Object>> records = new ArrayList<>();
    private int revoked;
    private RuntimeException failure;
    private volatile boolean leaving;

    private Members(JsonNode asked) {
        String assignor = asked.get("assignor").asText();
        Map<String, Object> config = new HashMap<>(Map.of(
            "group.id", asked.get("group").asText(), "auto.offset.reset", "earliest"));
        if (assignor.equals("server")) {
            config.put("group.protocol", "consumer");
        } else {
            String named = assignor.equals("cooperative") ? "CooperativeStickyAssignor" : "RangeAssignor";
            config.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + named);
            config.put("heartbeat.interval.ms", 50);
            config.put("session.timeout.ms", 10_000);
        }
        if (!asked.get("instance").asText().isEmpty()) {
            config.put("group.instance.id", asked.get("instance").asText());
        }
        topic = asked.get("topic").asText();
        consumer = Consumers.consumer(asked, config);
        thread.setDaemon(true);
        thread.start();
    }

    private void poll() {
        try (consumer) {
            consumer.subscribe(List.of(topic), this);
            while (!leaving) {
                for (FutureTask<Object> task = work.poll(); task != null; task = work.poll()) {
                    task.run();
                }
                consumer.poll(Duration.ofMillis(50)).forEach(one -> {
                    synchronized (this) {
                        records.add(Consumers.plain(one));
                        notifyAll();
                    }
                });
            }
        } catch (RuntimeException thrown) {
            synchronized (this) {
                failure = thrown;
                notifyAll();
            }
        }
    }

    private void onItsThread(Callable<Object> done) throws Exception {
        FutureTask<Object> task = new FutureTask<>(done);
        work.add(task);
        task.get();
    }

    @Override
    public synchronized void onPartitionsAssigned(Collection<TopicPartition> given) {
        given.forEach(each -> held.add(each.partition()));
        notifyAll();
    }

    @Override
    public synchronized void onPartitionsRevoked(Collection<TopicPartition> taken) {
        taken.forEach(each -> held.remove(each.partition()));
        revoked += taken.size();
        notifyAll();
    }

    private synchronized Object assigned(int count) throws InterruptedException {
        until(() -> held.size() == count);
        return Map.of("partitions", List.copyOf(held), "revoked", revoked);
    }

    private synchronized Object received(int count) throws InterruptedException {
        until(() -> records.size() >= count);
        return List.copyOf(records);
    }

    private void until(BooleanSupplier reached) throws InterruptedException {
        long deadline = System.currentTimeMillis() + Clients.PATIENCE_MS;
        while (!reached.getAsBoolean()) {
            if (failure != null) {
                throw failure;
            }
            long left = deadline - System.currentTimeMillis();
            if (left <= 0) {
                throw new IllegalStateException(
                    "not in time; " + held.size() + " partitions held, " + records.size() + " records received");
            }
            wait(left);
        }
    }
}
