"""The options of a write with `format("triolog")`, each beside the option of Spark's Kafka sink."""

from __future__ import annotations

from typing import Final

from . import kafka_clients
from .option import Meaning, Option, OptionTable
from .reading import ACCEPTED as READ_OPTIONS
from .reading import DIFFERENT, OWN, REFUSED, SAME, SERVER_OPTIONS

COMPRESSION: Final = "kafka.compression.type"
ACKS: Final = "kafka.acks"
DELIVERY_TIMEOUT: Final = "kafka.delivery.timeout.ms"
IDEMPOTENCE: Final = "kafka.enable.idempotence"

_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname", "failondataloss"})
"""Options that Spark passes to a sink for itself; `failOnDataLoss`, so that one map serves source and sink."""

ACCEPTED: Final = (
    *SERVER_OPTIONS,
    Option("topic", SAME, "The topic of all rows; overrides the column."),
    Option(
        "deliveryGuarantee",
        OWN,
        "Or `at-least-once`: tasks produce the rows at once, and a task that runs again writes its rows again.",
        "`exactly-once`",
    ),
    Option(
        "txnAppId",
        OWN,
        "The id of the writer, for exactly-once. A batch write with this and `txnVersion` writes nothing when it runs again.",
        "stream: the query's id",
    ),
    Option("txnVersion", OWN, "A whole number that grows; batch writes only.", "stream: the number of the batch"),
    Option(COMPRESSION, SAME, "`none`, `gzip`, `snappy`, `lz4`, `zstd`.", "`none`"),
    Option(
        ACKS,
        DIFFERENT,
        "`all`; with `at-least-once` also `1` and `0`.",
        "`all`",
        "`1` and `0` are refused with exactly-once",
    ),
    Option(
        IDEMPOTENCE,
        DIFFERENT,
        "Retries of a task write nothing twice with exactly-once, whatever this is.",
        "`true`",
        "`true` is refused with `at-least-once`",
    ),
    Option(
        DELIVERY_TIMEOUT,
        SAME,
        "Ms during which failed calls are retried: the longest tolerable restart of the server.",
        "`120000`",
    ),
    Option("batchBytes", OWN, "Bytes of a record batch; not above the topic's `max.message.bytes`.", "1 MiB"),
    Option("batchRecords", OWN, "Records of a record batch.", "`1000`"),
    Option("includeHeaders", SAME, "Has no effect: the sink writes headers when the column exists.", "`false`"),
)

_OF_READING: Final = "it selects topics to read. To write, set the option topic. A view for reading accepts no INSERT"
_REFUSED: Final = (
    *(Option(name, REFUSED, _OF_READING) for name in ("assign", "subscribe", "subscribePattern")),
    Option("path", REFUSED, "the option topic selects the target. Call save() or start() without a path"),
)
_OWN_NAMES: Final = frozenset(option.name for option in (*ACCEPTED, *_REFUSED)) | {"failOnDataLoss"}

WRITING: Final = OptionTable.of(
    "a write",
    (
        *ACCEPTED,
        *_REFUSED,
        *(
            Option(option.name, Meaning.UNUSED, "it is an option of reading")
            for option in READ_OPTIONS
            if option.name not in _OWN_NAMES
        ),
        *kafka_clients.unused_and_refused(producer=True),
    ),
    _OF_SPARK,
)
"""Every option that a write accepts or that Spark's Kafka sink accepts."""
