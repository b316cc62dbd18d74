import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** An idempotent feeder, and transactions. */
final class Producing {

    private static final int MOST_PENDING = 400;
    private static final int TRANSACTION_MS = 15_000;

    private static KafkaProducer<byte[], byte[]> producer(Work work, Map<String, Object> more) {
        Map<String, Object> config = work.config(more);
        config.put("delivery.timeout.ms", Work.PATIENCE_MS);
        config.put("max.block.ms", Work.PATIENCE_MS);
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /** How many of a producer are under way, and whether one was given up. */
    private static final class Sending {
        final AtomicInteger pending = new AtomicInteger();
        final AtomicBoolean failed = new AtomicBoolean();

        void send(Work work, KafkaProducer<byte[], byte[]> producer, TopicPartition to, Work.Made made) {
            pending.incrementAndGet();
            byte[] key = made.key() == null ? null : made.key().getBytes();
            producer.send(new ProducerRecord<>(to.topic(), to.partition(), made.timestamp(), key, made.value()), (told, thrown) -> {
                work.notes.delivered(to, made.id(), thrown == null ? told.offset() : -1, thrown);
                pending.decrementAndGet();
                if (thrown != null) {
                    failed.set(true);
                }
            });
        }
    }

    /** A record that is given up ends the order of its producer: another one begins. */
    static void feed(Work work) {
        String[] topics = {"plain", "plain", "plain", "expiring", "compacted"};
        int[] counts = {1, 1, 2, 5};
        while (!Work.isQuiet()) {
            Sending sending = new Sending();
            String name = work.producerName();
            KafkaProducer<byte[], byte[]> producer = producer(work, Map.of("linger.ms", 5));
            while (!Work.isQuiet() && !sending.failed.get()) {
                String topic = topics[work.random.nextInt(topics.length)];
                TopicPartition to = work.partition(topic);
                List<Work.Made> records = work.records(counts[work.random.nextInt(counts.length)], topic.equals("compacted"));
                work.notes.sends(to, name, records, "");
                records.forEach(each -> sending.send(work, producer, to, each));
                work.pauseAfter(records.size(), 1);
                while (sending.pending.get() > MOST_PENDING && !Work.isQuiet() && !sending.failed.get()) {
                    Work.pause(100);
                }
            }
            producer.flush();
            producer.close(Duration.ofSeconds(5));
        }
    }

    /** Transactions, with another producer when one is of no use any more. */
    static void move(Work work) {
        String transactionalId = work.text("transactional_id");
        while (!Work.isQuiet()) {
            String name = work.producerName();
            KafkaProducer<byte[], byte[]> producer = producer(work,
                Map.of("linger.ms", 0, "transactional.id", transactionalId, "transaction.timeout.ms", TRANSACTION_MS));
            try {
                work.notes.introduction("introduces", transactionalId, name);
                insist(producer::initTransactions);
                work.notes.introduction("introduced", transactionalId, name);
                while (!Work.isQuiet()) {
                    transact(work, producer, name);
                }
            } catch (KafkaException | IllegalStateException thrown) { // the latter where a call that timed out has to be repeated
                work.notes.failed("loses its producer", thrown);
            }
            producer.close(Duration.ofSeconds(5));
        }
    }

    private static void transact(Work work, KafkaProducer<byte[], byte[]> producer, String name) {
        String transaction = work.transactionName();
        boolean commit = work.random.nextDouble() < 0.75;
        Sending sending = new Sending();
        int count = 0;
        Boolean outcome = null;
        producer.beginTransaction();
        try {
            for (int part = 0; part <= work.random.nextInt(3); part++) {
                TopicPartition to = work.partition("plain");
                List<Work.Made> records = work.records(1 + work.random.nextInt(3), false);
                work.notes.sends(to, name, records, transaction);
                count += records.size();
                records.forEach(each -> sending.send(work, producer, to, each));
            }
            producer.flush();
            if (commit) {
                work.notes.ends(transaction, true);
                insist(producer::commitTransaction);
            } else {
                work.notes.ends(transaction, false);
                insist(producer::abortTransaction);
            }
            outcome = commit;
        } catch (ProducerFencedException | InvalidProducerEpochException thrown) {
            throw thrown;
        } catch (KafkaException thrown) {
            work.notes.failed("aborts", thrown);
            insist(producer::abortTransaction);
            outcome = false;
        } finally {
            work.notes.ended(transaction, outcome);
        }
        work.pauseAfter(count, 0.5);
    }

    /** What timed out may be called again, and ends what it began. */
    private static void insist(Runnable call) {
        long deadline = System.currentTimeMillis() + Work.PATIENCE_MS;
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException thrown) {
                if (System.currentTimeMillis() > deadline) {
                    throw thrown;
                }
            }
        }
    }

    private Producing() { }
}
