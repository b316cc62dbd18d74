"""Answers as plain values, in which only differences are left that count: what is not compared stands here with its reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs
from triolog.protocol.kafka.messages.records import FetchableTopicResponse
from triolog.protocol.records.batch import BatchHeader, iter_batches
from triolog.protocol.records.record import iter_records
from triolog.protocol.types import CompressionType, TimestampType

from tests.kafka.differential.symbols import CLUSTER, MEMBER, PRODUCER, SESSION, TOPIC, Names, Symbol, Times

IGNORED: Final[Mapping[str, str]] = {
    "error_message": "messages are our own words",
    "acknowledge_error_message": "the same",
    "batch_index_error_message": "the same",
    "documentation": "the documentation of a configuration is our own words",
    "finalized_features_epoch": "an offset in Kafka's own metadata log",
    "log_dir": "each has its own place",
    "total_bytes": "triolog keeps these logs in memory",
    "usable_bytes": "the same",
    "partition_size": "as codecs compress",
}
"""Fields of answers that are not compared."""

IGNORED_OF_CONFIGS: Final[Mapping[str, Mapping[str, str]]] = {
    "min.insync.replicas": {
        "config_source": "Kafka sets it for the whole cluster when it is formatted",
        "synonyms": "the same",
    },
    "flush.ms": {"synonyms": "Kafka leaves out the default, which it has in hours or not at all"},
    "segment.jitter.ms": {"synonyms": "Kafka leaves out the default, which it has in hours or not at all"},
    "segment.ms": {"synonyms": "Kafka leaves out the default, which it has in hours or not at all"},
    "retention.ms": {"synonyms": "Kafka leaves out the default, which it has in hours or not at all"},
}
"""Fields of single configurations."""

IGNORED_OF_BATCHES: Final[Mapping[str, str]] = {
    "crc": "follows from what is compared, and from how a codec compressed",
    "batch_length": "of a compressed batch that was compressed again; what is in it is compared",
}

SYMBOLS: Final[Mapping[str, str]] = {
    "topic_id": TOPIC,
    "producer_id": PRODUCER,
    "member_id": MEMBER,
    "leader": MEMBER,
    "session_id": SESSION,
    "cluster_id": CLUSTER,
}
"""Fields that a broker chooses, by the kind of what they hold."""

TRANSACTION_START: Final = "transaction_start_time_ms"
TIMES: Final = frozenset({"timestamp", "last_timestamp", TRANSACTION_START})
OUR_KEYS: Final = frozenset(
    {
        *("durability", "record.validation", "fetch.check.crcs", "disk.full.policy", "disk.full.priority"),
        *("retention.hold.groups", "retention.hold.max.bytes", "retention.hold.max.ms", "gap.policy"),
        *(f"errors.deadletterqueue.{name}" for name in ("group.enable", "topic.name", "copy.record.enable")),  # Kafka 4.4's
    }
)
"""Configurations that Kafka 4.3 does not have."""
SORTED_BY: Final = (
    *("name", "topic", "resource_type", "resource_name", "topic_name", "group_id", "key", "transactional_id", "api_key"),
    *("node_id", "broker_id", "partition_index", "partition", "index", "partition_id", "entity_type", "subtopology_id"),
)
"""The order of entries is that of Kafka's hash maps, and not compared."""
RECORDS: Final = "records"


def _without_ids(value: Any) -> list[Any]:
    """What tells entries apart whose ids have not appeared yet: each broker has chosen its own."""
    names = (field.name for field in attrs.fields(type(value)) if field.name not in SYMBOLS)
    return [getattr(value, name) for name in names]


@attrs.define(eq=False)
class Reading:
    """How the answers of one broker are read."""

    names: Names
    address: tuple[str, int]
    times: Times = attrs.field(factory=Times)

    def plain(self, answer: Any) -> Any:
        """Structures as dicts of what is compared."""
        if isinstance(answer, list):
            return self._list(answer)
        if not attrs.has(type(answer)):
            return bytes(answer) if isinstance(answer, memoryview | bytearray) else answer
        fields = {field.name: getattr(answer, field.name) for field in attrs.fields(type(answer)) if field.name not in IGNORED}
        if "config_source" in fields:
            fields = {name: fields[name] for name in fields if name not in IGNORED_OF_CONFIGS.get(fields["name"], ())}
        if fields.get("error_code") and fields.get("producer_id") == 0:
            fields["producer_id"] = "nothing, 0"  # and not the first id that was given
        plain = {name: self._field(name, value) for name, value in fields.items()}
        if "aborted_transactions" in plain:
            plain["aborted_transactions"] = _of_use(plain["aborted_transactions"], plain[RECORDS])
        return plain

    def _list(self, values: list[Any]) -> list[Any]:
        if values and attrs.has(type(values[0])):
            values = [value for value in values if getattr(value, "name", None) not in OUR_KEYS]
            values = sorted(values, key=self._sort_key)
        elif values and isinstance(values[0], int):
            values = sorted(values)
        plain = [self.plain(value) for value in values]
        return _joined(plain) if values and isinstance(values[0], FetchableTopicResponse) else plain

    def _sort_key(self, value: Any) -> list[str]:
        key = [repr(getattr(value, name)).rjust(12) for name in SORTED_BY if hasattr(value, name)]
        if hasattr(value, "entity"):
            key += sorted(repr((each.entity_type, each.entity_name)) for each in value.entity)
        for name in ("topic_id", "producer_id"):
            if hasattr(value, name):
                known = self.names.known(SYMBOLS[name], getattr(value, name))
                key.append(f"{known.number:06}" if known else f"new {_without_ids(value)}")
        return key

    def _field(self, name: str, value: Any) -> Any:
        if name == RECORDS:
            return None if value is None else [self._batch(*each) for each in _whole_batches(value)]
        if name in SYMBOLS and value != "nothing, 0":
            return self.names.symbol(SYMBOLS[name], value)
        if name == "log_append_time_ms":
            return self.times.tell(value)
        if name in TIMES:
            return self.times.name(value, is_of_append=name != TRANSACTION_START)
        if name == "host":
            return "the host" if value == self.address[0] else value
        if name == "port":
            return "the port" if value == self.address[1] else value
        return self.plain(value)

    def _batch(self, header: BatchHeader, batch: memoryview) -> dict[str, Any]:
        fields = {name: value for name, value in header._asdict().items() if name not in IGNORED_OF_BATCHES}
        fields["producer_id"] = self.names.symbol(PRODUCER, header.producer_id)
        for name in ("base_timestamp", "max_timestamp"):
            fields[name] = self.times.name(fields[name])
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            fields["base_timestamp"] = "not looked at"
        if header.compression_type is CompressionType.NONE:
            fields["batch_length"] = header.batch_length
        return {**fields, "records": [self._record(record) for record in iter_records(batch, header)]}

    def _record(self, record: Any) -> tuple[Any, ...]:
        key, value = (None if data is None else bytes(data) for data in (record.key, record.value))
        headers = [(name, None if data is None else bytes(data)) for name, data in record.headers]
        return record.offset, self.times.name(record.timestamp), key, value, headers


def _of_use(aborted: list[dict[str, Any]] | None, batches: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    """Kafka also tells those that begin behind the records, and where there are none now null and now an empty list."""
    if not batches:
        return []
    end = batches[-1]["base_offset"] + batches[-1]["last_offset_delta"]
    return None if aborted is None else [each for each in aborted if each["first_offset"] <= end]


def _joined(topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Kafka has a topic several times in the answer to a fetch when its partitions do not stand together."""
    joined: dict[Any, dict[str, Any]] = {}
    for topic in topics:
        joined.setdefault((topic["topic"], topic["topic_id"]), {**topic, "partitions": []})["partitions"] += topic["partitions"]
    for topic in joined.values():
        topic["partitions"].sort(key=lambda partition: partition["partition_index"])
    return list(joined.values())


def _whole_batches(records: Any) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Kafka cuts the last batch where the bytes that were asked for end; consumers pass over what is left of it, as we do."""
    data = bytes(records)
    end = 0
    while end + 12 <= len(data) and (size := 12 + int.from_bytes(data[end + 8 : end + 12], "big")) <= len(data) - end:
        end += size
    yield from iter_batches(data[:end])


def differences(ours: Any, theirs: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(place, ours, Kafka's) of everything that is not equal."""
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        for name in ours:
            yield from differences(ours[name], theirs[name], f"{place}.{name}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(one, other, f"{place}[{_label(other, number)}]")
    elif isinstance(ours, list) and isinstance(theirs, list):
        yield f"{place}.entries", *([_label(each, n) for n, each in enumerate(entries)] for entries in (ours, theirs))
    elif ours != theirs:
        yield place, ours, theirs


def _label(entry: Any, number: int) -> Any:
    if isinstance(entry, dict):
        if isinstance(entry.get("topic_id"), Symbol):
            return entry["topic_id"]
        return next((entry[name] for name in SORTED_BY if entry.get(name) not in (None, "")), number)
    return number
