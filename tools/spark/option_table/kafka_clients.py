"""The settings of Kafka's consumer and producer, which Spark's Kafka source and sink accept as `kafka.*`, and their meaning
here.

Source of the names: ConsumerConfig and ProducerConfig of kafka-clients 3.9 to 4.3. A test compares this table with the classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .option import Meaning, Option

PREFIX: Final = "kafka."

_CONNECTIONS: Final = "triolog's client manages its connections itself"
_METRICS: Final = "triolog's client has no metrics. See the server's /metrics"
_FETCHES: Final = "fetchMaxBytes and arrowMaxRecords set the sizes of a read"
_GROUP: Final = "this source does not join a consumer group. Spark distributes the partitions"
_BATCHING: Final = "batchBytes and batchRecords set the sizes of a write"
_RETRIES: Final = "kafka.delivery.timeout.ms limits the retries"
_TLS: Final = "triolog's client does not have this setting of TLS. Use triolog.tlsCa and triolog.tlsCert"
_STORES: Final = "triolog's client reads PEM files only. Set the type to PEM and the location to a file"
_LOGIN: Final = (
    "triolog's client logs in with SCRAM, PLAIN or OAUTHBEARER only. Use kafka.sasl.jaas.config, triolog.user or "
    "triolog.tokenFile"
)
_ISSUER: Final = (
    "triolog's client requests no token from an issuer. Let another program keep a token in a file, and set "
    "kafka.sasl.oauthbearer.token.endpoint.url to file:///PATH"
)
_VERIFICATION: Final = "triolog's client does not verify tokens. The server does"
_RENEWAL: Final = "triolog's client renews a login when 85 % of its time has passed"
_OUR_TRANSACTION: Final = "the sink commits by itself. txnAppId and txnVersion name a write"

COMMON_UNUSED: Final = {
    _CONNECTIONS: (
        "client.dns.lookup",
        "connections.max.idle.ms",
        "metadata.max.age.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
    ),
    _METRICS: (
        "auto.include.jmx.reporter",
        "enable.metrics.push",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
    ),
}
"""Settings that consumers and producers have, by the reason why they have no effect."""

CONSUMER_UNUSED: Final = {
    _FETCHES: ("fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes", "max.partition.fetch.bytes", "max.poll.records"),
    _GROUP: (
        "auto.commit.interval.ms",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "internal.leave.group.on.close",
        "max.poll.interval.ms",
        "partition.assignment.strategy",
        "session.timeout.ms",
        "share.acknowledgement.mode",
        "share.acquire.mode",
    ),
    "kafkaConsumer.pollTimeoutMs limits the time of a call": ("default.api.timeout.ms",),
    "there is one server, so no rack is nearer": ("client.rack",),
    "a read does not create topics": ("allow.auto.create.topics",),
    "subscribePattern never selects the server's own topics": ("exclude.internal.topics",),
    "a read does not fetch committed offsets": ("internal.throw.on.fetch.stable.offset.unsupported",),
    "groupIdPrefix names the reader": ("client.id",),
}

PRODUCER_UNUSED: Final = {
    _BATCHING: ("batch.size", "buffer.memory", "linger.ms", "max.request.size"),
    _RETRIES: ("max.block.ms", "max.in.flight.requests.per.connection", "retries"),
    "each codec has one level": ("compression.gzip.level", "compression.lz4.level", "compression.zstd.level"),
    "rows without a key go to one partition for each task and batch": (
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
    ),
    "each record batch is numbered by the sink": ("internal.auto.downgrade.txn.commit",),
    "the server knows the sink as triolog-spark": ("client.id",),
    "topics are looked up once for each task": ("metadata.max.idle.ms",),
}

CONSUMER_REFUSED: Final = {
    "auto.offset.reset": "startingOffsets sets the start, and Spark keeps the progress",
    "key.deserializer": "keys are bytes. Cast the column",
    "value.deserializer": "values are bytes. Cast the column",
    "enable.auto.commit": "Spark keeps the progress. kafka.group.id publishes it",
    "interceptor.classes": "classes of Kafka's clients do not run here",
    "config.providers": "classes of Kafka's clients do not run here. triolog.passwordFile keeps a password out of the options",
}
"""Settings that a read refuses whatever `strictOptions` is. Spark's Kafka source refuses the first five, too."""

PRODUCER_REFUSED: Final = {
    "key.serializer": "keys are strings or bytes. Cast the column",
    "value.serializer": "values are strings or bytes. Cast the column",
    "interceptor.classes": "classes of Kafka's clients do not run here",
    "config.providers": "classes of Kafka's clients do not run here. triolog.passwordFile keeps a password out of the options",
    "partitioner.class": "the column partition or the key decides, as Kafka's default partitioner does",
    "partitioner.ignore.keys": "the key selects the partition. Leave out the column key, or set the column partition",
    "transactional.id": _OUR_TRANSACTION,
    "transaction.timeout.ms": _OUR_TRANSACTION,
    "transaction.two.phase.commit.enable": _OUR_TRANSACTION,
}

SECURITY_REFUSED: Final = {
    _TLS: (
        "security.providers",
        "ssl.cipher.suites",
        "ssl.enabled.protocols",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    ),
    _STORES: (
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.certificates",
        "ssl.truststore.password",
    ),
    _LOGIN: (
        "sasl.client.callback.handler.class",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.class",
    ),
    _RENEWAL: (
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
    ),
    _ISSUER: (
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.oauthbearer.assertion.algorithm",
        "sasl.oauthbearer.assertion.claim.aud",
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        "sasl.oauthbearer.assertion.claim.iss",
        "sasl.oauthbearer.assertion.claim.jti.include",
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        "sasl.oauthbearer.assertion.claim.sub",
        "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.private.key.file",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.template.file",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.header.urlencode",
        "sasl.oauthbearer.jwt.retriever.class",
        "sasl.oauthbearer.scope",
    ),
    _VERIFICATION: (
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.jwt.validator.class",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
    ),
}
"""Settings of security without a counterpart. They are refused whatever `strictOptions` is: without them a connection would be
less secure than the job requires."""

SECURITY_PROTOCOL: Final = "kafka.security.protocol"
TRUSTSTORE: Final = "kafka.ssl.truststore.location"
TRUSTSTORE_TYPE: Final = "kafka.ssl.truststore.type"
KEYSTORE: Final = "kafka.ssl.keystore.location"
KEYSTORE_TYPE: Final = "kafka.ssl.keystore.type"
ENDPOINT_IDENTIFICATION: Final = "kafka.ssl.endpoint.identification.algorithm"
SASL_MECHANISM: Final = "kafka.sasl.mechanism"
JAAS: Final = "kafka.sasl.jaas.config"
TOKEN_URL: Final = "kafka.sasl.oauthbearer.token.endpoint.url"
LOGIN_HANDLER: Final = "kafka.sasl.login.callback.handler.class"

SECURITY: Final = (
    Option(
        SECURITY_PROTOCOL,
        Meaning.SAME,
        "`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`: whether the connection is encrypted, and whether a user logs in.",
        "`PLAINTEXT`",
    ),
    Option(
        TRUSTSTORE,
        Meaning.DIFFERENT,
        "PEM with the CAs of the server's certificate.",
        difference="only with the type `PEM`; JKS and PKCS12 are refused",
    ),
    Option(TRUSTSTORE_TYPE, Meaning.DIFFERENT, "The format of the truststore.", difference="`PEM` only, any other is refused"),
    Option(
        KEYSTORE,
        Meaning.DIFFERENT,
        "PEM with a client certificate and its key.",
        difference="only with the type `PEM`; JKS and PKCS12 are refused",
    ),
    Option(KEYSTORE_TYPE, Meaning.DIFFERENT, "The format of the keystore.", difference="`PEM` only, any other is refused"),
    Option(
        ENDPOINT_IDENTIFICATION,
        Meaning.SAME,
        "`https` checks the server's name in its certificate; empty does not.",
        "`https`",
    ),
    Option(
        SASL_MECHANISM,
        Meaning.DIFFERENT,
        "`SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER`, or over TLS `PLAIN`.",
        difference="`GSSAPI`, the default of Kafka's clients, is refused",
    ),
    Option(
        JAAS,
        Meaning.DIFFERENT,
        "User and password, as in `org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="ann" password="...";`. With `OAUTHBEARER`, `OAuthBearerLoginModule` with extensions '
        '(`extension_logicalCluster="lkc-1"`).',
        difference="`ScramLoginModule`, `PlainLoginModule` and `OAuthBearerLoginModule` only; client ids, client secrets and "
        "unsecured tokens are refused",
    ),
    Option(
        TOKEN_URL,
        Meaning.DIFFERENT,
        "With `OAUTHBEARER`: `file:///PATH` of the file with the token, on the driver and on every executor. It is read at "
        "every login.",
        difference="`file:` only: the client requests no token from an issuer",
    ),
    Option(
        LOGIN_HANDLER,
        Meaning.DIFFERENT,
        "With `OAUTHBEARER`: `org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler`, which has no "
        "effect.",
        difference="any other class is refused",
    ),
)
"""Settings of security that are translated to the TLS and logins of triolog's listener."""


def unused_and_refused(*, producer: bool) -> Iterator[Option]:
    """Yield the settings of Kafka's producer, or of its consumer, that have no effect or are refused."""
    for reasons in (COMMON_UNUSED, PRODUCER_UNUSED if producer else CONSUMER_UNUSED):
        for reason, names in reasons.items():
            yield from (Option(PREFIX + name, Meaning.UNUSED, reason) for name in names)
    for name, reason in (PRODUCER_REFUSED if producer else CONSUMER_REFUSED).items():
        yield Option(PREFIX + name, Meaning.REFUSED, reason)
    for reason, names in SECURITY_REFUSED.items():
        yield from (Option(PREFIX + name, Meaning.REFUSED, reason) for name in names)
