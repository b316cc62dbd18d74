import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

/**
 * Drives Apache Kafka's Java client for tests: a request is a line of JSON on standard input, its answer a line on standard
 * output. Requests run one after the other, members of groups beside them. End of input ends the process.
 */
public final class Clients {

    /** One kind of request. What it answers becomes JSON. */
    interface Operation {
        Object run(JsonNode asked) throws Exception;
    }

    static final ObjectMapper JSON = new ObjectMapper();
    static final int PATIENCE_MS = 30_000;

    public static void main(String[] ignored) throws IOException {
        PrintStream answers = System.out;
        System.setOut(System.err);
        Map<String, Operation> operations = new TreeMap<>();
        operations.putAll(Producers.OPERATIONS);
        operations.putAll(Consumers.OPERATIONS);
        operations.putAll(Shares.OPERATIONS);
        operations.putAll(Administration.OPERATIONS);
        operations.put("version", asked -> version());
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode asked = JSON.readTree(line);
            ObjectNode told = JSON.createObjectNode().put("id", asked.get("id").asInt());
            try {
                told.set("result", JSON.valueToTree(operations.get(asked.get("op").asText()).run(asked)));
            } catch (Exception thrown) {
                Throwable cause = thrown instanceof ExecutionException ? thrown.getCause() : thrown;
                told.put("error", cause.getClass().getSimpleName() + ": " + cause.getMessage());
            }
            answers.println(JSON.writeValueAsString(told));
            answers.flush();
        }
        System.exit(0);
    }

    /** As the jar says it: the class that reads this is not in the same package in all versions. */
    private static String version() throws IOException {
        Properties told = new Properties();
        try (InputStream file = Clients.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            told.load(file);
        }
        return told.getProperty("version");
    }

    private Clients() { }
}
