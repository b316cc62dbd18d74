import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ScheduledFuture;

import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Apache Kafka's own classes, called from tests: one JVM for many calls, since its start costs more than most of them.
 *
 * A line of standard input is a command and its arguments, separated by tabs:
 *
 *   dump ARGUMENT...    DumpLogSegments (kafka-dump-log.sh)
 *   format ARGUMENT...  StorageTool (kafka-storage.sh)
 *   topics ARGUMENT...  TopicCommand (kafka-topics.sh)
 *   tool CLASS ARGUMENT...
 *                       the main method of any class, such as org.apache.kafka.tools.GetOffsetShell (kafka-get-offsets.sh)
 *   typed BASE64 CLASS ARGUMENT...
 *                       the same, with that text as its standard input
 *   load DIRECTORY CLEAN RECOVERY_POINT LOG_START KEY=VALUE...
 *                       opens the partition as a starting broker does (LogLoader recovers it when CLEAN is false), reads all
 *                       of it, and prints "log start offset, log end offset, records, control batches"
 *   salvage ...         the same arguments, for a log that is damaged and whose values begin with their offset in ten digits:
 *                       what a reader can get who goes past every error; prints "log start offset, log end offset, records",
 *                       counting what has a valid CRC and is where it was written
 *
 * Each is answered with one line: exit code, standard output and standard error in Base64, separated by spaces ("-" for
 * nothing). End of input ends the process.
 */
public final class KafkaCalls {

    /** Where System.out or System.err go while a command runs. Scala keeps the first System.out it sees, so it is never replaced. */
    private static final class Captured extends OutputStream {
        private final ByteArrayOutputStream buffer = new ByteArrayOutputStream();

        @Override
        public synchronized void write(int b) {
            buffer.write(b);
        }

        @Override
        public synchronized void write(byte[] bytes, int start, int length) {
            buffer.write(bytes, start, length);
        }

        synchronized String take() {
            String text = Base64.getEncoder().encodeToString(buffer.toByteArray());
            buffer.reset();
            return text.isEmpty() ? "-" : text;
        }
    }

    /** Thrown where a tool would end the process. Some tools catch it and exit once more: the first code counts. */
    private static final class Exited extends RuntimeException {
        Exited() {
            super("exited", null, false, false);
        }
    }

    /** Background work of a log is not wanted: it is read once. */
    private static final class NoBackground implements Scheduler {
        @Override
        public void startup() { }

        @Override
        public void shutdown() { }

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            return null;
        }

        @Override
        public void resizeThreadPool(int size) { }
    }

    private static final int READ_BYTES = 1 << 20;

    private static Integer exitCode;

    /** What a tool wants to be done at the end of its process, such as to send what waits. */
    private static final List<Runnable> atExit = new ArrayList<>();

    public static void main(String[] ignored) throws IOException {
        PrintStream answers = System.out;
        Captured out = new Captured();
        Captured err = new Captured();
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((code, message) -> {
            exitCode = exitCode == null ? Integer.valueOf(code) : exitCode;
            throw new Exited();
        });
        Exit.setShutdownHookAdder((name, runnable) -> atExit.add(runnable));
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            int code = run(line.split("\t", -1));
            atExit.forEach(Runnable::run);
            atExit.clear();
            System.out.flush();
            System.err.flush();
            answers.println(code + " " + out.take() + " " + err.take());
            answers.flush();
        }
    }

    private static int run(String[] words) {
        String[] arguments = Arrays.copyOfRange(words, 1, words.length);
        exitCode = null;
        try {
            switch (words[0]) {
                case "dump":
                    org.apache.kafka.tools.DumpLogSegments.main(arguments);
                    return 0;
                case "format":
                    return kafka.tools.StorageTool.execute(arguments, System.out);
                case "topics":
                    org.apache.kafka.tools.TopicCommand.main(arguments);
                    return 0;
                case "tool":
                    runMain(arguments);
                    return 0;
                case "typed":
                    InputStream own = System.in;
                    System.setIn(new ByteArrayInputStream(Base64.getDecoder().decode(arguments[0])));
                    try {
                        runMain(Arrays.copyOfRange(arguments, 1, arguments.length));
                    } finally {
                        System.setIn(own);
                    }
                    return 0;
                case "load":
                    load(arguments, KafkaCalls::readAll);
                    return 0;
                case "salvage":
                    load(arguments, KafkaCalls::readWhatIsRight);
                    return 0;
                default:
                    throw new IllegalArgumentException("no command " + words[0]);
            }
        } catch (Throwable thrown) {
            if (exitCode != null) {
                return exitCode;
            }
            thrown.printStackTrace();
            return 1;
        }
    }

    private static void runMain(String[] words) throws Throwable {
        String[] arguments = Arrays.copyOfRange(words, 1, words.length);
        try {
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException wrapped) {
            throw wrapped.getCause();
        }
    }

    private interface Reader {
        String read(UnifiedLog log) throws IOException;
    }

    private static void load(String[] arguments, Reader reader) throws IOException {
        Properties config = new Properties();
        for (String pair : Arrays.copyOfRange(arguments, 4, arguments.length)) {
            config.setProperty(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
        }
        BrokerTopicStats statistics = new BrokerTopicStats();
        UnifiedLog log = UnifiedLog.create(
            new File(arguments[0]), new LogConfig(config), Long.parseLong(arguments[3]), Long.parseLong(arguments[2]),
            new NoBackground(), statistics, Time.SYSTEM, 900_000, new ProducerStateManagerConfig(86_400_000, false), 600_000,
            new LogDirFailureChannel(1), Boolean.parseBoolean(arguments[1]), Optional.empty());
        try {
            System.out.println(reader.read(log));
        } finally {
            log.closeHandlers();
            statistics.close();
        }
    }

    private static String readAll(UnifiedLog log) throws IOException {
        long offset = log.logStartOffset();
        long records = 0;
        long controlBatches = 0;
        while (offset < log.logEndOffset()) {
            long before = offset;
            for (RecordBatch batch : log.read(offset, READ_BYTES, FetchIsolation.LOG_END, true).records.batches()) {
                batch.ensureValid();
                controlBatches += batch.isControlBatch() ? 1 : 0;
                for (Record record : batch) {
                    records += !batch.isControlBatch() && record.offset() >= log.logStartOffset() ? 1 : 0;
                }
                offset = batch.nextOffset();
            }
            if (offset == before) {
                break;
            }
        }
        return log.logStartOffset() + " " + log.logEndOffset() + " " + records + " " + controlBatches;
    }

    private static String readWhatIsRight(UnifiedLog log) {
        long offset = log.logStartOffset();
        long records = 0;
        while (offset < log.logEndOffset()) {
            long next = offset + 1;
            try {
                for (RecordBatch batch : log.read(offset, READ_BYTES, FetchIsolation.LOG_END, true).records.batches()) {
                    for (Record record : batch.isValid() ? batch : List.<Record>of()) {
                        if (record.offset() >= offset && numberOf(record) == record.offset()) {
                            records++;
                            next = Math.max(next, record.offset() + 1);
                        }
                    }
                }
            } catch (IOException | RuntimeException damaged) {
                // What was right before it is counted; the next read begins behind that, or one offset further on.
            }
            offset = next;
        }
        return log.logStartOffset() + " " + log.logEndOffset() + " " + records;
    }

    private static long numberOf(Record record) {
        byte[] digits = new byte[10];
        record.value().get(digits);
        return Long.parseLong(new String(digits, StandardCharsets.US_ASCII));
    }
}
