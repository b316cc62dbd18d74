"""The server's own configuration: from a TOML file, `TRIOLOG_*` variables and the command line, in rising precedence.

Unknown keys are refused by name. Topic keys that hold for all topics stand in the table `topic_defaults`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import attrs

from ..protocol.errors import InvalidConfigError
from ..protocol.limits import (
    INT16_MAX,
    INT32_MAX,
    MAX_FRAME_BYTES,
    MAX_IN_FLIGHT,
    MAX_IN_FLIGHT_BYTES,
    MAX_PARTITIONS_PER_TOPIC,
    MAX_PRODUCERS_PER_PARTITION,
    MIB,
)
from .config import TOPIC_KEYS, Durability, LogConfig

VARIABLE_PREFIX: Final = "TRIOLOG_"
OTHER_VARIABLES: Final = frozenset({"TRIOLOG_TEST", "TRIOLOG_SERVER"})
"""Variables of that prefix that are not the server's: the test suite's size, and the address that clients use."""


class Address(NamedTuple):
    """Where to listen or connect; port 0 lets the system choose."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """`HOST:PORT` or `[IPV6]:PORT`. Raises ValueError."""
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise ValueError(f"{text!r} is not HOST:PORT with a port of 0 to 65535")
        return cls(host=host, port=int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@attrs.frozen(kw_only=True)
class BrokerConfig:
    """Everything a server needs to know before it starts."""

    data_dirs: tuple[str, ...]
    native: Address | None = None
    node_id: int | None = None
    cluster_id: str | None = None
    topic_defaults: LogConfig = attrs.field(factory=LogConfig)
    adopted_topics: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    """Topic configuration for partition directories that have no entry in topics.json."""
    max_connections: int = 1000
    max_frame_bytes: int = MAX_FRAME_BYTES
    max_in_flight: int = MAX_IN_FLIGHT
    max_in_flight_bytes: int = MAX_IN_FLIGHT_BYTES
    max_broker_in_flight_bytes: int = 256 * MIB
    checkpoint_interval_ms: int = 60_000
    retention_check_interval_ms: int = 300_000
    producer_id_expiration_ms: int = 86_400_000
    max_producers_per_partition: int = MAX_PRODUCERS_PER_PARTITION
    disk_reserve_bytes: int = 0
    cleaner_enable: bool = True
    cleaner_dedupe_buffer_bytes: int = 128 * MIB
    cleaner_io_max_bytes_per_second: int = 0
    cleaner_backoff_ms: int = 15_000
    scrub_bytes_per_second: int = 0
    scrub_interval_ms: int = 7 * 86_400_000
    offsets_topic_num_partitions: int = 1
    offsets_retention_ms: int = 7 * 86_400_000
    offset_metadata_max_bytes: int = 4096
    transaction_state_log_num_partitions: int = 1
    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 86_400_000
    stage_retention_ms: int = 86_400_000
    max_staged_bytes: int = 2**34
    stage_commit_expiration_ms: int = 30 * 86_400_000
    max_lease_ms: int = 3_600_000
    stop_grace_ms: int = 5_000
    stop_timeout_ms: int = 30_000
    durable: bool = True
    """False for a directory that goes with the process: its small files are not synced."""


@attrs.frozen(kw_only=True)
class BrokerKey:
    """One key of the server: its name in the file (and, upper-cased after TRIOLOG_, in the environment)."""

    name: str
    type: str
    read: Callable[[Any], Any]
    doc: str
    default: str
    unit: str = ""


def _number(low: int, high: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError(f"{value!r} is not a whole number")
        try:
            number = int(value)
        except ValueError:
            raise ValueError(f"{value!r} is not a whole number") from None
        if not low <= number <= high:
            raise ValueError(f"{number} is not in {low}..{high}")
        return number

    return read


def _switch(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() not in ("true", "false"):
        raise ValueError(f"{value!r} is neither true nor false")
    return str(value).lower() == "true"


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is not a text")
    return value


def _paths(value: Any) -> tuple[str, ...]:
    paths = value.split(",") if isinstance(value, str) else value
    if not isinstance(paths, list | tuple) or not paths or not all(isinstance(path, str) and path for path in paths):
        raise ValueError(f"{value!r} is not a list of directories")
    return tuple(paths)


_LARGE = 2**40
BROKER_KEYS: Final[dict[str, BrokerKey]] = {
    key.name: key
    for key in (
        BrokerKey(
            name="data_dirs", type="list", read=_paths, default="-", doc="Log directories; comma-separated in a variable."
        ),
        BrokerKey(
            name="native",
            type="address",
            read=lambda value: Address.parse(_text(value)),
            default="127.0.0.1:9095",
            doc="Where the native protocol listens; port 0 lets the system choose.",
        ),
        BrokerKey(
            name="durability",
            type="string",
            read=lambda value: Durability.parse(_text(value)),
            default="fsync",
            doc="Default of the topic key of that name: fsync, group:<ms> or os.",
        ),
        BrokerKey(name="node_id", type="int", read=_number(0, 2**31 - 1), default="1", doc="Identity in meta.properties."),
        BrokerKey(name="cluster_id", type="string", read=_text, default="random", doc="Identity in meta.properties."),
        BrokerKey(
            name="max_connections",
            type="int",
            read=_number(1, 100_000),
            default="1000",
            doc="Further ones wait to be accepted.",
        ),
        BrokerKey(
            name="max_frame_bytes",
            type="int",
            read=_number(1024, 2**31 - 1),
            default=str(MAX_FRAME_BYTES),
            unit="bytes",
            doc="Largest frame of the native protocol, in both directions.",
        ),
        BrokerKey(
            name="max_in_flight",
            type="int",
            read=_number(1, 10_000),
            default=str(MAX_IN_FLIGHT),
            doc="Unanswered requests of a connection; past it the server stops reading from it.",
        ),
        BrokerKey(
            name="max_in_flight_bytes",
            type="int",
            read=_number(1024, _LARGE),
            default=str(MAX_IN_FLIGHT_BYTES),
            unit="bytes",
            doc="Bytes of unanswered requests of a connection.",
        ),
        BrokerKey(
            name="max_broker_in_flight_bytes",
            type="int",
            read=_number(1024, _LARGE),
            default=str(256 * MIB),
            unit="bytes",
            doc="Bytes of unanswered requests of all connections.",
        ),
        BrokerKey(
            name="checkpoint_interval_ms",
            type="int",
            read=_number(100, 86_400_000),
            default="60000",
            unit="ms",
            doc="How often recovery points, high watermarks and log start offsets are written, if they changed.",
        ),
        BrokerKey(
            name="retention_check_interval_ms",
            type="int",
            read=_number(100, 86_400_000),
            default="300000",
            unit="ms",
            doc="How often it is looked which segments retention lets go.",
        ),
        BrokerKey(
            name="producer_id_expiration_ms",
            type="int",
            read=_number(1, 2**53),
            default="86400000",
            unit="ms",
            doc="How long a producer's sequence numbers are remembered after its last append.",
        ),
        BrokerKey(
            name="max_producers_per_partition",
            type="int",
            read=_number(1, 1_000_000),
            default=str(MAX_PRODUCERS_PER_PARTITION),
            doc="Producer ids that a partition remembers at a time; another one is refused until older ones have expired.",
        ),
        BrokerKey(
            name="disk_reserve_bytes",
            type="int",
            read=_number(0, 2**50),
            default="0",
            unit="bytes",
            doc="Free space of a log directory's device below which `disk.full.policy` acts; 0: never.",
        ),
        BrokerKey(
            name="cleaner_enable",
            type="bool",
            read=_switch,
            default="true",
            doc="Whether topics with cleanup.policy=compact are compacted.",
        ),
        BrokerKey(
            name="cleaner_dedupe_buffer_bytes",
            type="int",
            read=_number(MIB, 2**40),
            default=str(128 * MIB),
            unit="bytes",
            doc="Memory of a compaction for keys, 24 bytes each. What does not fit is compacted in the next round.",
        ),
        BrokerKey(
            name="cleaner_io_max_bytes_per_second",
            type="int",
            read=_number(0, 2**50),
            default="0",
            unit="bytes/s",
            doc="Limit on what compaction reads and writes; 0: none.",
        ),
        BrokerKey(
            name="cleaner_backoff_ms",
            type="int",
            read=_number(1, 86_400_000),
            default="15000",
            unit="ms",
            doc="How long compaction rests when nothing is due.",
        ),
        BrokerKey(
            name="scrub_bytes_per_second",
            type="int",
            read=_number(0, 2**50),
            default="0",
            unit="bytes/s",
            doc="How fast closed segments are read and checked for damage; 0: never.",
        ),
        BrokerKey(
            name="scrub_interval_ms",
            type="int",
            read=_number(1, 2**53),
            default="604800000",
            unit="ms",
            doc="How long scrubbing rests between two passes over all segments.",
        ),
        BrokerKey(
            name="offsets_topic_num_partitions",
            type="int",
            read=_number(1, MAX_PARTITIONS_PER_TOPIC),
            default="1",
            doc="Partitions of `__consumer_offsets` when it is made; one groups all commits into one write and sync.",
        ),
        BrokerKey(
            name="offsets_retention_ms",
            type="int",
            read=_number(1, 2**53),
            default="604800000",
            unit="ms",
            doc="How long a committed offset is kept after its last commit.",
        ),
        BrokerKey(
            name="offset_metadata_max_bytes",
            type="int",
            read=_number(0, INT16_MAX),
            default="4096",
            unit="bytes",
            doc="Largest note that can be committed with an offset.",
        ),
        BrokerKey(
            name="transaction_state_log_num_partitions",
            type="int",
            read=_number(1, MAX_PARTITIONS_PER_TOPIC),
            default="1",
            doc="Partitions of `__transaction_state` when it is made.",
        ),
        BrokerKey(
            name="transaction_max_timeout_ms",
            type="int",
            read=_number(1, INT32_MAX),
            default="900000",
            unit="ms",
            doc="Largest timeout that a transactional producer may ask for.",
        ),
        BrokerKey(
            name="transactional_id_expiration_ms",
            type="int",
            read=_number(1, 2**53),
            default="604800000",
            unit="ms",
            doc="How long a transactional id is remembered after its last transaction.",
        ),
        BrokerKey(
            name="stage_retention_ms",
            type="int",
            read=_number(1000, 2**53),
            default="86400000",
            unit="ms",
            doc="How long staged records are kept that nobody commits, aborts or adds to; a start of the server begins anew.",
        ),
        BrokerKey(
            name="max_staged_bytes",
            type="int",
            read=_number(MIB, 2**50),
            default=str(2**34),
            unit="bytes",
            doc="Staged records of all applications together; a file counts for 4 KiB at least. Past it staging is refused.",
        ),
        BrokerKey(
            name="stage_commit_expiration_ms",
            type="int",
            read=_number(1000, 2**53),
            default="2592000000",
            unit="ms",
            doc="How long it is remembered which version an application has committed last.",
        ),
        BrokerKey(
            name="max_lease_ms",
            type="int",
            read=_number(1000, 2**53),
            default="3600000",
            unit="ms",
            doc="Longest lease of segment files that a reader may ask for; it can be renewed.",
        ),
        BrokerKey(
            name="stop_grace_ms",
            type="int",
            read=_number(0, 600_000),
            default="5000",
            unit="ms",
            doc="How long open connections may finish their requests when the server stops.",
        ),
        BrokerKey(
            name="stop_timeout_ms",
            type="int",
            read=_number(0, 3_600_000),
            default="30000",
            unit="ms",
            doc="How long enqueued appends and the final flush may take; after that the stop is not clean.",
        ),
    )
}


def read_settings(file: str | None, environment: Mapping[str, str], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments for BrokerConfig from a TOML file, variables and arguments; later ones win.

    Raises InvalidConfigError naming the source, the key and what would be valid; OSError when the file cannot be read.
    """
    values: dict[str, Any] = {}
    topic_defaults: dict[str, str] = {}
    if file is not None:
        document = _load_toml(file)
        topic_defaults = _topic_table(f"{file} [topic_defaults]", document.pop("topic_defaults", {}))
        values |= _read_all(file, document)
    variables = {
        name: text
        for name, text in environment.items()
        if name.startswith(VARIABLE_PREFIX) and name not in OTHER_VARIABLES and not name.startswith("TRIOLOG_TEST_")
    }
    named = {name.removeprefix(VARIABLE_PREFIX).lower(): text for name, text in variables.items()}
    values |= _read_all("the environment", named)
    values |= _read_all("the command line", {key: value for key, value in arguments.items() if value is not None})
    durability = values.pop("durability", Durability.parse("fsync"))
    defaults = attrs.evolve(LogConfig(), durability=durability).overlay(topic_defaults)
    return {**values, "topic_defaults": defaults}


def read_topic_configs(file: str) -> dict[str, dict[str, str]]:
    """The tables `[topic.NAME]` of a TOML file: configuration of partition directories that are adopted."""
    document = _load_toml(file)
    tables = document.pop("topic", {})
    if document or not isinstance(tables, dict):
        raise InvalidConfigError(f"{file} holds {', '.join(document) or 'topic'}; only tables [topic.NAME] were expected")
    configs = {str(name): _topic_table(f"{file} [topic.{name}]", table) for name, table in tables.items()}
    for config in configs.values():
        LogConfig().overlay(config)
    return configs


def _load_toml(file: str) -> dict[str, Any]:
    try:
        with open(file, "rb") as stream:
            return tomllib.load(stream)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise InvalidConfigError(f"{file} is not TOML: {exc}") from exc


def _topic_table(source: str, table: Any) -> dict[str, str]:
    if not isinstance(table, dict):
        raise InvalidConfigError(f'{source}: topic configuration is a table of keys, such as "retention.ms" = -1')
    flat = dict(_flatten("", table))
    unknown = sorted(set(flat) - set(TOPIC_KEYS))
    if unknown:
        raise InvalidConfigError(f"{source}: unknown topic configuration key {unknown[0]!r}")
    return flat


def _flatten(prefix: str, table: Mapping[str, Any]) -> list[tuple[str, str]]:
    """TOML reads `retention.ms = -1` as nested tables: put the names together again."""
    pairs: list[tuple[str, str]] = []
    for key, value in table.items():
        if isinstance(value, dict):
            pairs += _flatten(f"{prefix}{key}.", value)
        else:
            pairs.append((f"{prefix}{key}", str(value).lower() if isinstance(value, bool) else str(value)))
    return pairs


def _read_all(source: str, values: Mapping[str, Any]) -> dict[str, Any]:
    read = {}
    for name, value in values.items():
        key = BROKER_KEYS.get(name)
        if key is None:
            raise InvalidConfigError(f"{source}: unknown key {name!r}; known are {', '.join(BROKER_KEYS)} and topic_defaults")
        try:
            read[name] = key.read(value)
        except ValueError as exc:
            raise InvalidConfigError(f"{source}: {name}: {exc}") from exc
    return read
