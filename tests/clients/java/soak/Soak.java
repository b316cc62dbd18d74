import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;

/**
 * Kafka's Java client in a soak run: it does what its only argument says, in JSON, and notes what it did and was told. On
 * standard input it is told "quiet" (send nothing more) and "over" (end). At the end of the input its driver is gone.
 */
public final class Soak {

    private interface Part {
        void play(Work work) throws Exception;
    }

    private static final Map<String, Part> PARTS =
        Map.of("feed", Producing::feed, "move", Producing::move, "member", Reading::member, "look", Reading::look);

    public static void main(String[] arguments) throws Exception {
        JsonNode task = Notes.JSON.readTree(arguments[0]);
        Notes notes = new Notes(task.get("history").asText());
        Thread orders = new Thread(Soak::listen);
        orders.setDaemon(true);
        orders.start();
        List<Thread> parts = new ArrayList<>();
        for (JsonNode role : task.get("roles")) {
            String kind = role.get("role").asText();
            String who = String.format("%s/%d/%s%d", task.get("name").asText(), task.get("life").asInt(), kind, parts.size());
            Work work = new Work(task, role, new Notes.Book(notes, who));
            parts.add(new Thread(() -> play(PARTS.get(kind), work)));
        }
        for (Thread each : parts) {
            each.start();
        }
        for (Thread each : parts) {
            each.join();
        }
        System.exit(0);
    }

    private static void play(Part part, Work work) {
        try {
            work.notes.write("begins");
            part.play(work);
            work.notes.write("is done");
        } catch (Throwable thrown) {
            work.notes.write("failed", Notes.JSON.createObjectNode().put("error", thrown.toString()));
            thrown.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void listen() {
        try (BufferedReader orders = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = orders.readLine(); line != null; line = orders.readLine()) {
                if (line.equals("quiet")) {
                    Work.QUIET.countDown();
                } else if (line.equals("over")) {
                    Work.QUIET.countDown();
                    Work.OVER.countDown();
                    return;
                }
            }
        } catch (java.io.IOException thrown) {
            thrown.printStackTrace();
        }
        Runtime.getRuntime().halt(1);
    }

    private Soak() { }
}
