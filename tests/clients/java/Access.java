import java.util.HashMap;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;

/** How a client gets to the broker and in, as configuration. Files are PEM; the certificate's has the key too. */
final class Access {

    static Map<String, Object> config(JsonNode asked) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", asked.get("servers").asText()));
        JsonNode access = asked.get("access");
        if (access.hasNonNull("ca")) {
            config.put("security.protocol", "SSL");
            config.put("ssl.truststore.type", "PEM");
            config.put("ssl.truststore.location", access.get("ca").asText());
        }
        if (access.hasNonNull("certificate")) {
            config.put("ssl.keystore.type", "PEM");
            config.put("ssl.keystore.location", access.get("certificate").asText());
        }
        if (access.hasNonNull("mechanism")) {
            String mechanism = access.get("mechanism").asText();
            config.put("security.protocol", "SASL_PLAINTEXT");
            config.put("sasl.mechanism", mechanism);
            if (mechanism.equals("OAUTHBEARER")) {
                config.put("sasl.jaas.config", String.format(
                    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=\"%s\";",
                    access.get("user").asText()));
                return config;
            }
            String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
            config.put("sasl.jaas.config", String.format(
                "org.apache.kafka.common.security.%s required username=\"%s\" password=\"%s\";",
                module, access.get("user").asText(), access.get("password").asText()));
        }
        return config;
    }

    private Access() { }
}
