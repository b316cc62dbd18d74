import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.TopicPartition;

/** What a process notes: a line of JSON for each call and each answer. Its parts share the file; the lines ascend by time. */
final class Notes {

    static final ObjectMapper JSON = new ObjectMapper();
    private final OutputStream file;

    Notes(String path) throws IOException {
        file = new FileOutputStream(path, true);
    }

    /** One line by one system call. System.nanoTime is CLOCK_MONOTONIC on Linux, which all processes of a machine share. */
    synchronized void write(String who, String what, ObjectNode told) {
        told.put("who", who).put("do", what).put("at", System.nanoTime());
        try {
            file.write((JSON.writeValueAsString(told) + "\n").getBytes(java.nio.charset.StandardCharsets.UTF_8));
        } catch (JsonProcessingException thrown) {
            throw new IllegalStateException(thrown);
        } catch (IOException thrown) {
            throw new UncheckedIOException(thrown);
        }
    }

    static ArrayNode place(TopicPartition of) {
        return JSON.createArrayNode().add(of.topic()).add(of.partition());
    }

    /** What one part of the process notes, under its name. */
    record Book(Notes notes, String who) {

        void write(String what, ObjectNode told) {
            notes.write(who, what, told);
        }

        void write(String what) {
            write(what, JSON.createObjectNode());
        }

        void failed(String what, Exception thrown) {
            write(what, JSON.createObjectNode().put("error", thrown.toString()));
        }

        void sends(TopicPartition to, String producer, List<Work.Made> records, String transaction) {
            ArrayNode noted = JSON.createArrayNode();
            for (Work.Made each : records) {
                ArrayNode about = noted.addArray().add(each.id()).add(each.timestamp());
                if (each.key() != null) {
                    about.add(each.key());
                }
            }
            ObjectNode told = JSON.createObjectNode().put("producer", producer).put("transaction", transaction);
            told.set("to", place(to));
            told.set("records", noted);
            write("sends", told);
        }

        void delivered(TopicPartition to, String id, long offset, Exception thrown) {
            ObjectNode told = JSON.createObjectNode();
            told.putArray("ids").add(id);
            if (thrown != null) {
                write("given up", told.put("error", thrown.toString()));
            } else {
                told.set("to", place(to));
                write("acknowledged", told.put("offset", offset));
            }
        }

        void introduction(String what, String transactionalId, String producer) {
            write(what, JSON.createObjectNode().put("transactional_id", transactionalId).put("producer", producer));
        }

        void ends(String transaction, boolean commit) {
            write("ends", JSON.createObjectNode().put("transaction", transaction).put("commit", commit));
        }

        /** `committed` null: nobody knows. */
        void ended(String transaction, Boolean committed) {
            write("ended", JSON.createObjectNode().put("transaction", transaction).put("committed", committed));
        }

        /** `position` null: wherever the next record is. */
        void moved(TopicPartition of, Long position) {
            ObjectNode told = JSON.createObjectNode().put("position", position);
            told.set("of", place(of));
            write("moved", told);
        }

        void polled(TopicPartition of, ArrayNode records, boolean committed, String group) {
            ObjectNode told = JSON.createObjectNode().put("committed", committed).put("group", group).put("transaction", "");
            told.set("of", place(of));
            told.set("records", records);
            told.putNull("next");
            write("polled", told);
        }

        void commits(String group, Map<TopicPartition, Long> offsets) {
            offsets.forEach((of, offset) -> write("commits", ofGroup(group, of, offset).put("transaction", "")));
        }

        void committed(String group, Map<TopicPartition, Long> offsets) {
            offsets.forEach((of, offset) -> write("offset committed", ofGroup(group, of, offset).put("kept", true)));
        }

        void fetched(String group, TopicPartition of, long offset, long begun) {
            write("offset fetched", ofGroup(group, of, offset).put("begun", begun));
        }

        void lookedUp(TopicPartition of, long timestamp, long begun, long offset, Long found) {
            ObjectNode told = JSON.createObjectNode().put("timestamp", timestamp).put("begun", begun);
            told.set("of", place(of));
            write("looked up", told.put("offset", offset).put("found", found));
        }

        private static ObjectNode ofGroup(String group, TopicPartition of, long offset) {
            ObjectNode told = JSON.createObjectNode().put("group", group).put("offset", offset);
            told.set("of", place(of));
            return told;
        }
    }
}
