"""The options of a read with `format("triolog")`, as values.

`option_table.reading` says which options are accepted. Names are compared without case, because Spark passes them in lower
case. Every message names the option, its value and the valid values. The options of writing are in `write_options`.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import attrs

from ....protocol.limits import INT32_MAX, INT64_MAX, KIB, MAX_CLIENT_ID_CHARS, MAX_FRAME_BYTES, MAX_GROUP_ID_CHARS, MIB
from ....protocol.types import Isolation, TopicPartition
from ....server.storage.disk.paths import is_internal
from ..option_table.option import OptionError
from ..option_table.reading import BATCH_ONLY, CHECK_CRCS, GROUP, READING, REQUEST_TIMEOUT, STREAM_ONLY
from ..sink.server_access import NOBODY, ServerAccess, Servers, read_access, read_servers
from ..sink.write_options import BOOLEANS, choice, number, read_choice, read_number, simple_values, words
from .bounds import (
    EARLIEST_OFFSET,
    LATEST,
    LATEST_OFFSET,
    AtOffsets,
    AtTime,
    AtTimes,
    Bound,
    Earliest,
    check_order,
    is_moving,
)
from .java_pattern import PatternError, compile_java
from .schema import COLUMNS, DEFAULT_COLUMNS

ISOLATION: Final = "isolationLevel"
KAFKA_ISOLATION: Final = "kafka.isolation.level"
ISOLATIONS: Final = (ISOLATION, KAFKA_ISOLATION)
_CRCS: Final = ("checkCrcs", CHECK_CRCS)

SELECTIONS: Final = ("assign", "subscribe", "subscribePattern")
_UNITS_MS: Final = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNITS_BYTES: Final = {"": 1, "b": 1, "k": KIB, "kb": KIB, "m": MIB, "mb": MIB, "g": KIB * MIB, "gb": KIB * MIB}
_QUANTITY: Final = re.compile(r"(\d+)\s*([a-z]*)")


@attrs.frozen
class Assigned:
    """These partitions."""

    partitions: tuple[TopicPartition, ...]


@attrs.frozen
class Subscribed:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@attrs.frozen
class Matching:
    """All partitions of the topics in whose names Java finds the pattern; the server's own topics are never selected."""

    pattern: str

    def matches(self, topic: str) -> bool:
        """Return whether this topic is selected."""
        return not is_internal(topic) and compile_java(self.pattern).search(topic) is not None


Selection = Assigned | Subscribed | Matching


@attrs.frozen(kw_only=True)
class ReadOptions:
    """The options of one read, checked; docs/spark.md has the table. Durations are in ms, sizes in bytes."""

    servers: Servers
    access: ServerAccess = NOBODY
    selection: Selection
    starting: Bound
    ending: Bound = LATEST
    starting_strategy: str = "error"
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    client_id: str = "spark-kafka-source"
    group: str | None = None
    poll_timeout_ms: int = 120_000
    request_timeout_ms: int = 30_000
    metadata_retries: int = 3
    metadata_retry_ms: int = 10
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    split_bytes: int = 64 * MIB
    arrow_max_records: int = 20_000
    fetch_max_bytes: int = 4 * MIB
    check_crcs: bool = False
    columns: tuple[str, ...] = DEFAULT_COLUMNS

    @property
    def server(self) -> str:
        """The addresses as they are written."""
        return str(self.servers)

    @property
    def is_start_moving(self) -> bool:
        """Return whether a restarted query would begin elsewhere than this one did."""
        return is_moving(self.starting)

    @classmethod
    def from_options(cls, options: Mapping[str, str], *, streaming: bool | None = None) -> ReadOptions:
        """Read Spark's options; OptionError. `streaming` None: it is not known yet, so both kinds' options pass."""
        given = {name.lower(): str(value).strip() for name, value in options.items()}
        READING.check(given)
        if streaming is True:
            _refuse_ending(given)
        values: dict[str, Any] = {
            "servers": read_servers(given),
            "access": read_access(given),
            "selection": _selection(given),
            "starting": _bound(given, "starting", LATEST if streaming else Earliest(), streaming),
            "ending": _bound(given, "ending", LATEST, streaming),
        }
        values |= simple_values(given, _FIELDS) | _isolation(given) | _crcs(given)
        values["columns"] = _columns(given, values.get("include_headers", False))
        found = cls(**values)
        _check_together(found)
        if streaming is False and (unused := [name for name in STREAM_ONLY if name.lower() in given]):
            warnings.warn(f"these options have an effect in streaming queries only: {', '.join(unused)}", stacklevel=3)
        return found


def _isolation(given: Mapping[str, str]) -> dict[str, Isolation]:
    levels = {level.value: level for level in Isolation}
    found = {read_choice(option, given[option.lower()], levels) for option in ISOLATIONS if option.lower() in given}
    if len(found) > 1:
        raise OptionError(f"options {ISOLATION} and {KAFKA_ISOLATION} contradict each other. Give one of them")
    return {"isolation": found.pop()} if found else {}


def _crcs(given: Mapping[str, str]) -> dict[str, bool]:
    found = {read_choice(option, given[option.lower()], BOOLEANS) for option in _CRCS if option.lower() in given}
    if len(found) > 1:
        raise OptionError(f"options {' and '.join(_CRCS)} contradict each other. Give one of them")
    return {"check_crcs": found.pop()} if found else {}


def _check_together(found: ReadOptions) -> None:
    least, most = found.min_offsets_per_trigger, found.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise OptionError(f"option minOffsetsPerTrigger is {least}, above maxOffsetsPerTrigger, which is {most}. Lower it")
    if most is not None and found.max_bytes_per_trigger is not None:
        raise OptionError("options maxOffsetsPerTrigger and maxBytesPerTrigger: Spark accepts one limit. Give one of them")
    check_order(found.starting, found.ending)
    if isinstance(found.selection, Assigned):
        for bound in (found.starting, found.ending):
            named = {AtOffsets: "offsets", AtTimes: "timestamps"}.get(type(bound))
            if named is not None and (surplus := getattr(bound, named).keys() - set(found.selection.partitions)):
                assert isinstance(bound, AtOffsets | AtTimes)
                raise OptionError(
                    f"option {bound.option} names {min(surplus)}, which assign does not. Name the same partitions"
                )


def _refuse_ending(given: Mapping[str, str]) -> None:
    for name in BATCH_ONLY:
        if name.lower() in given:
            raise OptionError(
                f"option {name} is refused in a streaming query, which has no end. Read with spark.read, or use a trigger"
            )


def _selection(given: Mapping[str, str]) -> Selection:
    named = [name for name in SELECTIONS if name.lower() in given]
    if len(named) != 1:
        said = f"{' and '.join(named)} are given" if named else "none is given"
        raise OptionError(f"exactly one of assign, subscribe and subscribePattern is required, and {said}")
    option = named[0]
    text = given[option.lower()]
    if option == "assign":
        return Assigned(tuple(sorted(_assigned(text))))
    if option == "subscribe":
        topics = tuple(dict.fromkeys(topic for part in text.split(",") if (topic := part.strip())))
        if not topics:
            raise OptionError(f"option subscribe is {text!r}, expected names of topics separated by commas")
        return Subscribed(topics)
    if not text:
        raise OptionError("option subscribePattern is empty, expected a regular expression that names of topics contain")
    try:
        compile_java(text)
    except PatternError as exc:
        raise OptionError(f"option subscribePattern is {text!r}: {exc}") from exc
    return Matching(text)


def _assigned(text: str) -> set[TopicPartition]:
    expected = 'expected partitions of topics, as in {"events": [0, 1]}'
    partitions = set()
    for topic, numbers in _json_object("assign", text, expected).items():
        if type(numbers) is not list or not numbers or any(not _is_between(number, 0, INT32_MAX) for number in numbers):
            raise OptionError(f"option assign gives {topic} the partitions {numbers!r}, {expected}")
        partitions |= {TopicPartition(topic, number) for number in numbers}
    return partitions


def _bound(given: Mapping[str, str], side: str, default: Bound, streaming: bool | None) -> Bound:
    """Return the bound that the options of one side give; `side` is `starting` or `ending`."""
    by_time, by_times, by_offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    if (text := given.get(by_time.lower())) is not None:
        return AtTime(read_number(by_time, text, 0, INT64_MAX), by_time)
    if (text := given.get(by_times.lower())) is not None:
        expected = 'expected a time in ms for each partition, as in {"events": {"0": 1700000000000}}'
        return AtTimes(_by_partition(by_times, text, 0, expected), by_times)
    text = given.get(by_offsets.lower())
    if text is None:
        return default
    is_start = side == "starting"
    if text.lower() == "earliest" and is_start:
        return Earliest()
    if text.lower() == "latest" and (not is_start or streaming is not False):
        return LATEST
    places = ("earliest" if streaming is False else "earliest, latest") if is_start else "latest"
    expected = f'expected {places}, or an offset for each partition, as in {{"events": {{"0": 23, "1": 42}}}}'
    offsets = _by_partition(by_offsets, text, EARLIEST_OFFSET, expected)
    impossible = {"starting": LATEST_OFFSET if streaming is False else None, "ending": EARLIEST_OFFSET}[side]
    for partition, offset in offsets.items():
        if offset == impossible:
            meaning = (
                "the latest offset, and a batch ends there" if is_start else "the earliest offset, and a batch begins there"
            )
            raise OptionError(f"option {by_offsets} has {offset} for {partition}, which stands for {meaning}; {expected}")
    return AtOffsets(offsets, by_offsets)


def _by_partition(option: str, text: str, least: int, expected: str) -> dict[TopicPartition, int]:
    values: dict[TopicPartition, int] = {}
    for topic, partitions in _json_object(option, text, expected).items():
        if type(partitions) is not dict:
            raise OptionError(f"option {option} has {partitions!r} for topic {topic}, {expected}")
        for named, value in partitions.items():
            if not (named.isascii() and named.isdigit() and int(named) <= INT32_MAX):
                raise OptionError(f"option {option} names partition {named!r} of {topic}, {expected}")
            if not _is_between(value, least, INT64_MAX):
                raise OptionError(f"option {option} has {value!r} for {topic}-{named}, {expected}")
            values[TopicPartition(topic, int(named))] = value
    return values


def _json_object(option: str, text: str, expected: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if type(value) is not dict or not value:
        raise OptionError(f"option {option} is {text!r}, {expected}")
    return value


def _is_between(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _columns(given: Mapping[str, str], include_headers: bool) -> tuple[str, ...]:
    text = given.get("columns")
    if text is None:
        return COLUMNS if include_headers else DEFAULT_COLUMNS
    by_name = {name.lower(): name for name in COLUMNS}
    columns = tuple(by_name.get(part.strip().lower(), part.strip()) for part in text.split(","))
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown or len(set(columns)) != len(columns):
        raise OptionError(f"option columns is {text!r}, expected names out of {', '.join(COLUMNS)}, each once")
    return columns


def _duration_ms(option: str, text: str) -> int:
    """Of a time; without a unit it is in ms. OptionError."""
    match = _QUANTITY.fullmatch(text.lower())
    unit = match and _UNITS_MS.get(match[2] or "ms")
    if match is None or unit is None:
        raise OptionError(f"option {option} is {text!r}, expected a time such as 500ms, 10s, 15m or 1h")
    return int(int(match[1]) * unit)


def _size(option: str, text: str, least: int, most: int) -> int:
    """Of bytes, in these bounds, both inclusive. OptionError."""
    match = _QUANTITY.fullmatch(text.lower())
    unit = match and _UNITS_BYTES.get(match[2])
    if match is None or unit is None or not least <= int(match[1]) * unit <= most:
        raise OptionError(f"option {option} is {text!r}, expected bytes from {least} to {most}, such as 64m or 4194304")
    return int(match[1]) * unit


_FIELDS: Final = (
    ("maxOffsetsPerTrigger", "max_offsets_per_trigger", number(1, INT64_MAX)),
    ("minOffsetsPerTrigger", "min_offsets_per_trigger", number(1, INT64_MAX)),
    ("minPartitions", "min_partitions", number(1, INT64_MAX)),
    ("maxRecordsPerPartition", "max_records_per_partition", number(1, INT64_MAX)),
    ("kafkaConsumer.pollTimeoutMs", "poll_timeout_ms", number(1, INT32_MAX)),
    (REQUEST_TIMEOUT, "request_timeout_ms", number(1, INT32_MAX)),
    ("fetchOffset.numRetries", "metadata_retries", number(0, 1000)),
    ("fetchOffset.retryIntervalMs", "metadata_retry_ms", number(0, INT32_MAX)),
    ("arrowMaxRecords", "arrow_max_records", number(1, 1_000_000)),
    ("maxBytesPerTrigger", "max_bytes_per_trigger", partial(_size, least=1, most=INT64_MAX)),
    ("splitBytes", "split_bytes", partial(_size, least=64 * KIB, most=INT64_MAX)),
    ("fetchMaxBytes", "fetch_max_bytes", partial(_size, least=KIB, most=MAX_FRAME_BYTES - MIB)),
    ("failOnDataLoss", "fail_on_data_loss", choice(BOOLEANS)),
    ("includeHeaders", "include_headers", choice(BOOLEANS)),
    ("maxTriggerDelay", "max_trigger_delay_ms", _duration_ms),
    ("startingOffsetsByTimestampStrategy", "starting_strategy", choice({name: name for name in ("error", "latest")})),
    ("groupIdPrefix", "client_id", words(MAX_CLIENT_ID_CHARS)),
    (GROUP, "group", words(MAX_GROUP_ID_CHARS)),
)
