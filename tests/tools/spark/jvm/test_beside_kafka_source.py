"""triolog's source and sink beside Spark's own Kafka source and sink, on the same topics of one server.

The cases come from the table of options: every option that is accepted has a case, and Kafka's classes name the options that
the table must have. A case runs once with `format("kafka")` and once with `format("triolog")`, and the two outcomes are
equal, or differ as the table says.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.tools.client.blocking import BlockingClient
from triolog.tools.spark.bench import kafka_source
from triolog.tools.spark.lag import query_lag
from triolog.tools.spark.option_table.option import Meaning
from triolog.tools.spark.option_table.reading import READING
from triolog.tools.spark.option_table.writing import WRITING
from triolog.tools.spark.source.java_pattern import PatternError, compile_java

from tests.support.counts import LONG, is_at_least
from tests.support.kafka_jars import unavailable
from tests.support.server_process import ServerFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMS: Final = ("kafka", "triolog")
TOPICS: Final = {"opt": 2, "opt.b": 1, "other": 1}
EACH: Final = 40


@attrs.frozen
class Doors:
    """The addresses of one server, and a client of it."""

    kafka: str
    triolog: str
    client: BlockingClient

    def of(self, form: str) -> str:
        return self.kafka if form == "kafka" else self.triolog


@pytest.fixture(scope="module")
def doors(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    """A server with records in three topics: every second has headers, one a minute since 1970."""
    if not spark.conf.get("spark.jars", ""):
        unavailable(kafka_source.MISSING)
    with ServerFolder(tmp_path_factory.mktemp("doors"), ("--durability", "os", "--kafka", "127.0.0.1:0")) as folder:
        process = folder.start()
        with BlockingClient(process.address) as client:
            for topic, partitions in TOPICS.items():
                client.create_topic(topic, partitions, {"retention.ms": "-1"})
                for partition in range(partitions):
                    records = [
                        (number * 60_000, b"k%d" % number, b"v%d" % number, (("h", b"x"),) if number % 2 else ())
                        for number in range(EACH)
                    ]
                    client.append(topic, records, partition=partition)
            yield Doors("{}:{}".format(*process.address_of("kafka")), "{}:{}".format(*process.address), client)


def read(spark: SparkSession, doors: Doors, form: str, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": doors.of(form)} | options
    return spark.read.format(form).options(**given).load()


def outcome(spark: SparkSession, doors: Doors, form: str, options: dict[str, str]) -> Any:
    """All rows, and the number of Spark partitions with `minPartitions`; or that the read was refused."""
    try:
        rows = read(spark, doors, form, **options)
        found = sorted(map(str, rows.collect()))
        return found, rows.rdd.getNumPartitions() if "minPartitions" in options else None
    except Exception as exc:
        return f"refused: {type(exc).__name__}" if form == "kafka" else f"refused: {exc}"


OPT: Final = {"subscribe": "opt"}
START: Final = json.dumps({"opt": {"0": 7, "1": -2}})
END: Final = json.dumps({"opt": {"0": 20, "1": -1}})
TIMES: Final = json.dumps({"opt": {"0": 600_000, "1": 0}})

BATCH: Final[list[dict[str, str]]] = [
    {"assign": '{"opt": [1]}'},
    {"subscribe": " opt, opt.b ,"},
    {"subscribePattern": "pt"},
    {"subscribePattern": "^opt"},
    {"subscribePattern": "[a-z&&[^x]]pt$"},
    OPT | {"startingOffsets": "earliest", "endingOffsets": "latest"},
    OPT | {"startingOffsets": START, "endingOffsets": END},
    OPT | {"startingTimestamp": "600000", "endingTimestamp": "1200000"},
    OPT | {"startingTimestamp": "600001", "startingOffsets": START},
    OPT | {"startingOffsetsByTimestamp": TIMES, "endingOffsetsByTimestamp": TIMES.replace("0}", "900000}")},
    OPT | {"startingTimestamp": "99999999", "startingOffsetsByTimestampStrategy": "latest"},
    OPT | {"includeHeaders": "true"},
    OPT | {"minPartitions": "5"},
    OPT | {"maxRecordsPerPartition": "15"},
    OPT | {"failOnDataLoss": "false"},
    OPT | {"groupIdPrefix": "mine"},
    OPT | {"kafka.group.id": "mine"},
    OPT | {"kafkaConsumer.pollTimeoutMs": "30000", "fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "5"},
    OPT | {"kafka.isolation.level": "read_committed", "kafka.check.crcs": "false", "kafka.request.timeout.ms": "20000"},
    OPT | {"kafka.security.protocol": "PLAINTEXT"},
    OPT | {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "5", "maxTriggerDelay": "1s"},
]
"""Batch reads that both sources answer with the same rows."""

REFUSED: Final[list[dict[str, str]]] = [
    {},
    {"subscribe": "opt", "assign": '{"opt": [0]}'},
    {"subscribe": ","},
    {"subscribePattern": ""},
    {"subscribePattern": "(opt"},
    {"subscribePattern": "*"},
    {"subscribe": "nowhere"},
    OPT | {"startingOffsets": "latest"},
    OPT | {"endingOffsets": "earliest"},
    OPT | {"startingOffsets": '{"opt": {"0": 1}}'},
    OPT | {"startingTimestamp": "99999999"},
    OPT | {"startingTimestamp": "soon"},
    OPT | {"minPartitions": "0"},
    OPT | {"maxRecordsPerPartition": "0"},
    OPT | {"failOnDataLoss": "maybe"},
    OPT | {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"},
    OPT | {"kafka.auto.offset.reset": "earliest"},
    OPT | {"kafka.key.deserializer": "x"},
    OPT | {"kafka.value.deserializer": "x"},
    OPT | {"kafka.enable.auto.commit": "true"},
    OPT | {"kafka.interceptor.classes": "x"},
    OPT | {"kafka.isolation.level": "chaos"},
    OPT | {"kafka.request.timeout.ms": "x"},
    OPT | {"kafka.security.protocol": "TLS"},
    OPT | {"kafka.security.protocol": "SASL_PLAINTEXT"},
    OPT | {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/nonexistent"},
]
"""Batch reads that both sources refuse."""

OPTION_NAME: Final = re.compile(r"\w*[a-zA-Z](\.[a-zA-Z]+)?")
SHORT: Final = 6
"""Cases of each kind in the merge tier."""


def tiered(cases: Sequence[dict[str, str]]) -> Sequence[dict[str, str]]:
    """All cases in the long tier; before that some, from all parts of the list."""
    return cases if is_at_least(LONG) else cases[:: -(-len(cases) // SHORT)]


def test_both_sources_read_the_same_rows(spark: SparkSession, doors: Doors) -> None:
    differences = []
    for options in tiered(BATCH):
        kafkas, ours = (outcome(spark, doors, form, options) for form in FORMS)
        if isinstance(kafkas, str) or ours != kafkas:
            differences.append((options, str(kafkas)[-200:], str(ours)[-200:]))
    assert differences == []


def test_both_sources_refuse_the_same_options_and_ours_in_one_line_of_its_own(spark: SparkSession, doors: Doors) -> None:
    differences = []
    for options in tiered(REFUSED):
        kafkas, ours = (outcome(spark, doors, form, options) for form in FORMS)
        lines = [line for line in str(ours).splitlines() if line.strip() and "SQLSTATE" not in line]
        if not isinstance(kafkas, str) or not isinstance(ours, str) or len(lines) != 1:
            differences.append((options, str(kafkas)[:200], str(ours)[:400]))
    assert differences == []


def test_the_tables_have_every_option_of_sparks_kafka_source_and_of_its_clients(spark: SparkSession, doors: Doors) -> None:
    jvm: Any = spark._jvm  # type: ignore[attr-defined]
    clients = jvm.org.apache.kafka.clients
    for table, config in ((READING, clients.consumer.ConsumerConfig), (WRITING, clients.producer.ProducerConfig)):
        names = {f"kafka.{name}" for name in config.configNames()}
        assert names - table.options.keys() == set(), table.what
        assert len(names) > 60
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    provider = loader.loadClass("org.apache.spark.sql.kafka010.KafkaSourceProvider$")
    module = provider.getField("MODULE$").get(None)
    found = set()
    for field in provider.getDeclaredFields():
        field.setAccessible(True)
        value = field.get(module)
        if isinstance(value, str) and OPTION_NAME.fullmatch(value):
            found.add(value.lower())
    assert {"startingoffsets", "minpartitions", "fetchoffset.numretries"} <= found
    known = READING.options.keys() | WRITING.options.keys() | {"_mocksystemtime", "15m"}  # of Spark's tests; a default
    assert found - known == set()


def test_every_accepted_option_is_in_a_case() -> None:
    used = {name for options in itertools.chain(BATCH, STREAMS) for name in options} | {"kafka.bootstrap.servers"}
    secured = {option.name for option in READING.options.values() if option.name.startswith(("kafka.ssl.", "kafka.sasl."))}
    wanted = {
        option.name for option in READING.options.values() if option.meaning in (Meaning.SAME, Meaning.DIFFERENT)
    } - secured
    assert wanted - used == set()


def test_unused_options_change_no_row_if_strict_options_is_false(spark: SparkSession, doors: Doors) -> None:
    unused = {option.name: "1" for option in READING.options.values() if option.meaning is Meaning.UNUSED}
    lenient = outcome(spark, doors, "triolog", OPT | unused | {"strictOptions": "false"})
    assert lenient == outcome(spark, doors, "kafka", OPT | {"kafka.max.poll.records": "7", "kafka.fetch.min.bytes": "1"})
    name = min(unused)
    assert f"option {name} is refused" in outcome(spark, doors, "triolog", OPT | {name: "1"})


PIECES: Final = (
    *("opt", "o", ".", "\\.", "[a-z]", "[^o]", "[a-p&&[^o]]", "[o&&p]", "(?i)O", "(?:b|t)", "^", "$", "\\w+", "\\d"),
    *("\\p{Lower}", "*", "+?", "{2}", "(", ")", "[]o]", "|", "\\Qt.b\\E", "[[:alpha:]]", "&&", "]", "(?=b)", "-"),
)
PATTERNS: Final = st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map("".join)
NAMES: Final = ("opt", "opt.b", "other", "OPT-2", "b_t", "o", "pt.b.t")


@given(st.lists(PATTERNS, min_size=10, max_size=10))
def test_a_pattern_is_found_where_java_finds_it_or_refused(spark: SparkSession, patterns: list[str]) -> None:
    java: Any = spark._jvm.java.util.regex.Pattern  # type: ignore[attr-defined]
    for pattern in patterns:
        try:
            compiled = compile_java(pattern)
        except PatternError:
            continue
        matched = java.compile(pattern)
        assert [name for name in NAMES if compiled.search(name)] == [name for name in NAMES if matched.matcher(name).find()], (
            pattern
        )


@attrs.frozen
class Run:
    """A run of a query: the rows of each of its batches by number, and the state of its counts by partition."""

    batches: dict[int, int]
    counts: dict[int, int]


def stream(
    spark: SparkSession, doors: Doors, form: str, folder: Path, options: dict[str, str], trigger: str = "availableNow"
) -> Run:
    """Run a query to its end."""
    given = {"kafka.bootstrap.servers": doors.of(form)} | options
    counts = spark.readStream.format(form).options(**given).load().groupBy("partition").count()
    before = committed(folder)
    writer = counts.writeStream.format("memory").queryName("counts").outputMode("complete")
    query = writer.option("checkpointLocation", str(folder)).trigger(**{trigger: True}).start()  # type: ignore[arg-type]
    query.awaitTermination(120)
    assert not query.isActive
    if (error := query.exception()) is not None:
        raise error
    rows = dict.fromkeys(sorted(committed(folder) - before), 0)
    for progress in query.recentProgress:
        if progress.batchId in rows:
            rows[progress.batchId] += progress.numInputRows
    return Run(rows, {row["partition"]: row["count"] for row in spark.table("counts").collect()})


def committed(folder: Path) -> set[int]:
    """The numbers of the batches that a checkpoint has as committed."""
    return {int(path.name) for path in (folder / "commits").glob("[0-9]*")}


EARLY: Final = OPT | {"startingOffsets": "earliest"}
STREAMS: Final[list[dict[str, str]]] = [
    EARLY,
    EARLY | {"maxOffsetsPerTrigger": "50"},
    EARLY | {"maxOffsetsPerTrigger": "30", "minOffsetsPerTrigger": "30", "maxTriggerDelay": "15m"},
    EARLY | {"minOffsetsPerTrigger": "10"},
    OPT | {"startingTimestamp": "600000", "maxOffsetsPerTrigger": "50"},
    OPT | {"startingOffsets": START},
    OPT,
]


@pytest.mark.parametrize("trigger", ["availableNow", "once"])
def test_both_sources_make_the_same_batches(spark: SparkSession, doors: Doors, tmp_path: Path, trigger: str) -> None:
    cases = STREAMS if is_at_least(LONG) else STREAMS[:3] if trigger == "availableNow" else STREAMS[:1]
    differences = []
    for number, options in enumerate(cases):
        folders = {form: tmp_path / f"{number}-{form}" for form in FORMS}
        kafkas, ours = (stream(spark, doors, form, folders[form], options, trigger) for form in FORMS)
        if ours != kafkas:
            differences.append((options, kafkas, ours))
        again = stream(spark, doors, "triolog", folders["triolog"], options, trigger)
        if again.batches and "minOffsetsPerTrigger" not in options:
            differences.append((options, "nothing new", again))
    assert differences == []


def test_a_query_moves_from_kafkas_source_and_back_with_its_state(spark: SparkSession, doors: Doors, tmp_path: Path) -> None:
    doors.client.create_topic("moved", 1, {"retention.ms": "-1"})
    options = {"subscribe": "moved", "startingOffsets": "earliest"}
    for number, form in enumerate(("kafka", "triolog", "kafka", "triolog")):
        doors.client.append("moved", [b"x"] * 5)
        assert stream(spark, doors, form, tmp_path, options) == Run({number: 5}, {0: 5 * (number + 1)})


def test_a_wrong_option_of_a_stream_is_named_before_sparks_error(spark: SparkSession, doors: Doors, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="option endingOffsets is refused in a streaming query") as caught:
        stream(spark, doors, "triolog", tmp_path, EARLY | {"endingOffsets": "latest"})
    assert "UnboundLocalError" not in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_the_lag_of_a_query_is_in_its_progress(spark: SparkSession, doors: Doors, tmp_path: Path) -> None:
    given = {"kafka.bootstrap.servers": doors.triolog, "maxOffsetsPerTrigger": "30"} | EARLY
    rows = spark.readStream.format("triolog").options(**given).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination(120)
    lags = [lag for progress in query.recentProgress if (lag := query_lag(progress)) is not None]
    assert [lag.total for lag in lags][:3] == [50, 20, 0]
    assert lags[-1].offsets == {("opt", 0): 0, ("opt", 1): 0}


KEYED: Final = ("cast(id as string) key", "cast(id as string) value")
HEADED: Final = ("cast(id as string) value", "array(struct('h' as key, cast('x' as binary) as value)) headers", "1 partition")
WRITES: Final[list[tuple[dict[str, str], tuple[str, ...]]]] = [
    ({"kafka.acks": "all"}, KEYED),
    ({"includeHeaders": "true"}, HEADED),
    ({"kafka.compression.type": "gzip"}, ("cast(cast(id as string) as binary) key", "cast(null as string) value")),
    ({"kafka.enable.idempotence": "true", "kafka.request.timeout.ms": "20000"}, KEYED),
    ({"kafka.delivery.timeout.ms": "60000", "failOnDataLoss": "false"}, KEYED),
]
"""Options and columns of writes that leave the same records, each in the same partition."""


def test_both_sinks_write_the_same_records(spark: SparkSession, doors: Doors) -> None:
    used = {name for options, _ in WRITES for name in options} | {"topic", "kafka.bootstrap.servers"}
    wanted = {option.name for option in WRITING.options.values() if option.meaning in (Meaning.SAME, Meaning.DIFFERENT)}
    assert {name for name in wanted - used if not name.startswith(("kafka.ssl.", "kafka.sasl.", "kafka.security."))} == set()
    for number, (options, columns) in enumerate(WRITES if is_at_least(LONG) else WRITES[:2]):
        written = []
        for form in FORMS:
            topic = f"sink-{form}-{number}"
            doors.client.create_topic(topic, 3, {})
            given = {"kafka.bootstrap.servers": doors.of(form), "topic": topic} | options
            spark.range(20).selectExpr(*columns).write.format(form).mode("append").options(**given).save()
            found = read(spark, doors, "kafka", subscribe=topic, includeHeaders="true")
            written.append(sorted(map(str, found.select("key", "value", "headers", "partition").collect())))
        assert written[0] == written[1], options
        assert len(written[0]) == 20
