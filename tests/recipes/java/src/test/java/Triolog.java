import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/** A server for the tests of a class, on ports that the system chooses. It is empty before each test. */
class Triolog implements BeforeAllCallback, BeforeEachCallback, AfterAllCallback {
    private final HttpClient http = HttpClient.newHttpClient();
    private Path folder;
    private Process server;
    private String ready;

    @Override
    public void beforeAll(ExtensionContext context) throws IOException {
        folder = Files.createTempDirectory("triolog-");
        List<String> command = List.of("triolog", "serve", "--data-dir", folder + "/data", "--durability", "os",
                "--native", "127.0.0.1:0", "--kafka", "127.0.0.1:0", "--control", "127.0.0.1:0",
                "--ready-file", "-", "--log-level", "error");
        ProcessBuilder builder = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT);
        builder.environment().put("TRIOLOG_GROUP_INITIAL_REBALANCE_DELAY_MS", "0");
        server = builder.start();
        ready = server.inputReader().readLine();
        if (ready == null) throw new IllegalStateException("triolog did not start: standard error has the reason");
    }

    @Override
    public void beforeEach(ExtensionContext context) throws Exception {
        call("POST", "/reset", "{}");
    }

    @Override
    public void afterAll(ExtensionContext context) throws Exception {
        if (server == null) return;
        server.destroy();
        server.waitFor();
        try (var files = Files.walk(folder)) {
            files.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
        }
    }

    /** The address for Kafka clients. */
    String bootstrapServers() {
        return address("kafka");
    }

    /** Call the control port, and return the body of its response. */
    String call(String method, String path, String body) throws IOException, InterruptedException {
        var request = HttpRequest.newBuilder(URI.create("http://" + address("control") + path))
                .method(method, HttpRequest.BodyPublishers.ofString(body)).version(HttpClient.Version.HTTP_1_1).build();
        HttpResponse<String> response = http.send(request, HttpResponse.BodyHandlers.ofString());
        if (response.statusCode() != 200) throw new IllegalStateException(path + ": " + response.body());
        return response.body();
    }

    private String address(String name) {
        Matcher found = Pattern.compile("\"" + name + "\": \"([^\"]+)\"").matcher(ready);
        if (!found.find()) throw new IllegalStateException(ready);
        return found.group(1);
    }
}
