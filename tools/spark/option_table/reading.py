"""The options of a read with `format("triolog")`, each beside the option of Spark's Kafka source.

Source of names, defaults and meanings: Spark's KafkaSourceProvider and the Kafka integration guide, 4.0 to 4.3.
"""

from __future__ import annotations

from typing import Final

from . import kafka_clients
from .option import STRICT, Meaning, Option, OptionTable

SAME: Final = Meaning.SAME
DIFFERENT: Final = Meaning.DIFFERENT
OWN: Final = Meaning.OWN
REFUSED: Final = Meaning.REFUSED

SERVERS: Final = "kafka.bootstrap.servers"
SERVERS_ALIAS: Final = "triolog.servers"
REQUEST_TIMEOUT: Final = "kafka.request.timeout.ms"
USER: Final = "triolog.user"
PASSWORD: Final = "triolog.password"
PASSWORD_FILE: Final = "triolog.passwordFile"
PASSWORD_VARIABLE: Final = "TRIOLOG_PASSWORD"
TOKEN_FILE: Final = "triolog.tokenFile"
TLS_CA: Final = "triolog.tlsCa"
TLS_CERT: Final = "triolog.tlsCert"
GROUP: Final = "kafka.group.id"
CHECK_CRCS: Final = "kafka.check.crcs"

SERVER_OPTIONS: Final = (
    Option(
        SERVERS,
        DIFFERENT,
        "The server's address, `HOST:PORT`, or several with commas between them: each attempt to connect uses the next.",
        "required",
        "the port is that of the native listener, 9095 by default; all addresses lead to one server",
    ),
    Option(SERVERS_ALIAS, OWN, "The same under triolog's name."),
    Option(USER, OWN, "The user who logs in at a server with logins."),
    Option(
        PASSWORD_FILE,
        OWN,
        "File with the user's password, on the driver and on every executor. Without it, the variable "
        "`TRIOLOG_PASSWORD` has the password on the machine that starts the query.",
    ),
    Option(PASSWORD, OWN, "The password itself; Spark keeps it out of plans and event logs."),
    Option(
        TOKEN_FILE,
        OWN,
        "File with a bearer token (OAUTHBEARER), on the driver and on every executor, instead of a user. It is read at every "
        "login, and sent over TLS only.",
    ),
    Option(TLS_CA, OWN, "PEM with the CAs of the server's certificate; encrypts the connection."),
    Option(TLS_CERT, OWN, "PEM with a client certificate and its key."),
    *kafka_clients.SECURITY,
    Option(REQUEST_TIMEOUT, SAME, "Ms that one response may take.", "`30000`"),
    Option(
        STRICT,
        OWN,
        "`false`: options without an effect here, and unknown ones, cause one warning instead of an error.",
        "`true`",
    ),
)
"""Options of reads and writes."""

STREAM_ONLY: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger")
"""A batch read warns that these have no effect, as Spark's Kafka source does."""
BATCH_ONLY: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
"""A stream refuses these."""

_SELECTED: Final = 'subscribe selects the topics. Call load() without a path, or use format("triolog_segments")'

ACCEPTED: Final = (
    *SERVER_OPTIONS,
    Option(
        "assign",
        DIFFERENT,
        'Partitions, as in `{"events": [0, 1]}`.',
        difference="a partition that does not exist is an error; Spark's Kafka source leaves it out",
    ),
    Option("subscribe", SAME, "Topics, separated by commas. A stream picks up added partitions."),
    Option(
        "subscribePattern",
        DIFFERENT,
        "A regular expression of Java that is found anywhere in the name of a topic. The server's own topics "
        "(`__consumer_offsets` and the like) never match.",
        difference="back references, `\\G`, `\\X`, Unicode classes and the flags `d`, `m`, `u`, `x`, `U` are refused",
    ),
    Option(
        "startingTimestamp",
        SAME,
        "Ms since 1970, for all partitions: begin with the first record at or after it. Overrides the next two.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        SAME,
        'The same for each partition: `{"events": {"0": 1700000000000}}`. Overrides `startingOffsets`.',
    ),
    Option(
        "startingOffsets",
        SAME,
        '`earliest`, `latest` (streams only) or `{"events": {"0": 23, "1": -2}}`, where -2 is the earliest '
        "offset and -1 (streams "
        "only) the latest. Applies to new queries; a query with a checkpoint continues from it. Partitions "
        "that are found later "
        "begin at the earliest offset.",
        "batch `earliest`, stream `latest`",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        SAME,
        "When no record is at or after the time: `error`, or `latest` to begin at the end.",
        "`error`",
    ),
    Option(
        "endingTimestamp",
        DIFFERENT,
        "Batch only: end before the first record at or after it, or at the end of the log if none is.",
        difference="a stream refuses it; Spark's Kafka source ignores it there",
    ),
    Option("endingOffsetsByTimestamp", SAME, "Batch only: the same for each partition."),
    Option(
        "endingOffsets", SAME, "Batch only: `latest`, or an offset for each partition, exclusive; -1 is the latest.", "`latest`"
    ),
    Option(
        "maxOffsetsPerTrigger",
        SAME,
        "Streams only: about the largest number of offsets in a micro-batch, shared by backlog; at least one "
        "of each partition.",
    ),
    Option(
        "minOffsetsPerTrigger",
        SAME,
        "Streams only: wait for this number of offsets, or until `maxTriggerDelay` has passed. Under "
        "`availableNow` a smaller rest "
        "waits for the next run.",
    ),
    Option(
        "maxTriggerDelay",
        SAME,
        "Streams only: the longest wait for `minOffsetsPerTrigger`; `500ms`, `10s`, `15m`, `1h`.",
        "`15m`",
    ),
    Option(
        "maxBytesPerTrigger",
        OWN,
        "Streams only: about the largest number of bytes of log in a micro-batch, such as `64m`. Not together with "
        "`maxOffsetsPerTrigger`.",
    ),
    Option(
        "minPartitions",
        DIFFERENT,
        "The least number of Spark partitions: large ranges are cut. Without it, partitions with little to read share a task.",
        difference="Spark's Kafka source has at least one Spark partition for each topic partition",
    ),
    Option(
        "maxRecordsPerPartition",
        DIFFERENT,
        "The largest number of offsets in a Spark partition.",
        difference="a batch read of Spark's Kafka source 4.2 ignores it",
    ),
    Option(
        "failOnDataLoss",
        SAME,
        "`true`: missing offsets end the query. `false`: the source logs them and skips them.",
        "`true`",
    ),
    Option("includeHeaders", SAME, "Adds the column `headers`; with `columns`, name it there.", "`false`"),
    Option(
        "groupIdPrefix",
        DIFFERENT,
        "The name of this reader on the server.",
        "`spark-kafka-source`",
        "it names a client, because the source does not join a consumer group",
    ),
    Option(
        GROUP,
        DIFFERENT,
        "Has an effect in streams only: the source publishes committed progress as this group's offsets, so "
        "that `triolog groups` "
        "shows the lag. Spark's checkpoint decides the position of the query, never the group.",
        difference="Spark's Kafka source joins the group and commits nothing",
    ),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        SAME,
        "Ms within which the server has to answer a request, retries included: the longest tolerable restart of the server.",
        "`120000`",
    ),
    Option("fetchOffset.numRetries", SAME, "Number of retries of a request for offsets.", "`3`"),
    Option("fetchOffset.retryIntervalMs", SAME, "Ms before the first retry.", "`10`"),
    Option(
        "isolationLevel",
        OWN,
        "`read_committed` leaves out aborted records and ends at the last stable offset.",
        "`read_uncommitted`",
    ),
    Option("kafka.isolation.level", SAME, "The same under Kafka's name.", "`read_uncommitted`"),
    Option("splitBytes", OWN, "Bytes of log in a Spark partition of a batch read, about.", "`64m`"),
    Option("arrowMaxRecords", OWN, "Rows of an Arrow batch.", "`20000`"),
    Option("fetchMaxBytes", OWN, "Bytes of one fetch.", "`4m`"),
    Option(
        "checkCrcs",
        OWN,
        "Check every batch's CRC in the task as well; the server checked it at the write.",
        "`false`",
    ),
    Option(CHECK_CRCS, DIFFERENT, "The same under Kafka's name.", "`false`", "the default of Kafka's consumer is `true`"),
    Option("columns", OWN, "The columns to read, separated by commas.", "all"),
)

_REFUSED: Final = (
    Option("topic", REFUSED, "it is an option of writing. To read, name the topic with subscribe"),
    Option("path", REFUSED, _SELECTED),
    Option("paths", REFUSED, _SELECTED),
)

READING: Final = OptionTable.of("a read", (*ACCEPTED, *_REFUSED, *kafka_clients.unused_and_refused(producer=False)))
"""Every option that a read accepts or that Spark's Kafka source accepts."""
