"""What requests are about: names of what is there and of what is not, ids learned from answers, numbers at their ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

import attrs
from triolog.protocol.limits import INT16_MAX, INT32_MAX, INT64_MAX
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import CompressionType

from tests.support.logs import START_MS
from tests.support.record_batches import patched

FURNISHED: Final[dict[str, dict[str, str]]] = {
    "plain": {},
    "compact": {"cleanup.policy": "compact"},
    "small": {"segment.bytes": "1000", "retention.bytes": "2000"},
    "packed": {"compression.type": "zstd"},
    "timed": {"message.timestamp.type": "LogAppendTime"},
    "unlooked": {"record.validation": "header"},
    "synced": {"durability": "fsync"},
}
"""Topics that are there, with their configuration. They are made again when a request has deleted them."""
MADE: Final = tuple(f"made-{number}" for number in range(6))
"""Topics that requests make and delete."""
INTERNAL: Final = ("__consumer_offsets", "__transaction_state", "__stage_commits")
NO_NAMES: Final = ("", ".", "..", "bad name", "größe", "x" * 249, "x" * 250, "missing", "\0", "a_b", "a.b")
MANY: Final = (100, 700, 3000)
GROUPS: Final = tuple(f"group-{number}" for number in range(6))
SERVED_GROUPS: Final = tuple(f"served-{number}" for number in range(3))
SHARE_GROUPS: Final = tuple(f"share-{number}" for number in range(3))
STREAMS_GROUPS: Final = tuple(f"streams-{number}" for number in range(3))
TRANSACTIONAL_IDS: Final = tuple(f"mover-{number}" for number in range(4))
TEXTS: Final = ("", "t", "*", "größe", "x" * 255, "x" * 256, "z" * 5000, "\0\n\x1b[0m", "a,b", "-1")
PATTERNS: Final = (".*", "p.*", "(", "[a-z]+", "a{1000}", "x" * 1000, "(a*)*b", "\\", "")
CONFIGS: Final[dict[str, tuple[str, ...]]] = {
    "cleanup.policy": ("compact", "delete", "compact,delete", "bogus", ""),
    "retention.ms": ("-1", "0", "1", "x", str(INT64_MAX), "-9"),
    "retention.bytes": ("-1", "0", "100", "1e3"),
    "segment.bytes": ("14", "1000", "-1", "1073741824"),
    "segment.ms": ("1", "0"),
    "max.message.bytes": ("0", "100", "1048588", str(INT32_MAX)),
    "compression.type": ("producer", "gzip", "zstd", "none", "bogus"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime", "bogus"),
    "durability": ("os", "fsync", "group:1", "group:-1", ""),
    "min.insync.replicas": ("1", "2"),
    "fetch.check.crcs": ("true", "false"),
    "gap.policy": ("refuse", "skip"),
    "index.interval.bytes": ("0", "4096"),
    "share.session.timeout.ms": ("20", "45000", "x", "-1"),
    "streams.num.standby.replicas": ("0", "2", "3", "-1"),
    "errors.deadletterqueue.topic.name": ("dlq.plain", "plain", "", "__internal"),
    "errors.deadletterqueue.copy.record.enable": ("true", "false", "x"),
    "errors.deadletterqueue.group.enable": ("true", "false"),
    "share.auto.offset.reset": ("earliest", "by_duration:PT1H", "by_duration:P1M", ""),
    "no.such.key": ("1",),
    "": ("", "1"),
    "remote.storage.enable": ("true",),
    "message.format.version": ("2.8",),
    "leader.replication.throttled.replicas": ("0:1", "*"),
    "k" * 3000: ("v" * 20_000,),
}


@attrs.define(eq=False)
class Persona:
    """Who somebody is in a group and to the coordinator of transactions, as far as answers have told it."""

    group: str
    member: str = ""
    generation: int = -1
    instance: str | None = None
    transactional_id: str | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = 0
    session_id: int = 0
    session_epoch: int = -1
    sharer: str = "sharer"
    """As a member of a share group, of a Streams group, or as the second one of another group."""
    consumer_epoch: int = 0
    streams_epoch: int = 0
    share_epoch: int = 0


@attrs.define(eq=False)
class World:
    """A source of values of which a seed repeats everything. Owner of its randomness."""

    random: Random
    topic_ids: Callable[[], dict[str, bytes]]
    """Of the topics that are there now."""
    personas: list[Persona] = attrs.field(factory=list)
    me: Persona = attrs.field(init=False)
    many: float = 0.002
    """How often an array has many elements: one in a request, else little would be below what a message may have."""
    _has_many: bool = False
    _config: str = "retention.ms"

    def __attrs_post_init__(self) -> None:
        self.personas = [
            Persona(
                group,
                instance=self.one_of((None, None, f"static-{number}")),
                transactional_id=self.one_of((None, *TRANSACTIONAL_IDS)),
                sharer=f"sharer-{number}",
            )
            for number, group in enumerate((*GROUPS, *SERVED_GROUPS, *SHARE_GROUPS, *STREAMS_GROUPS))
        ]
        self.me = self.personas[0]

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def one_of(self, values: Sequence[Any]) -> Any:
        return values[int(self.random.random() * len(values))]

    def mostly(self, usual: Any, *others: Any, usually: float = 0.8) -> Any:
        """`usual` as often as that, else one of the others."""
        return usual if self.random.random() < usually else self.one_of(others)

    def begin(self) -> None:
        """Somebody else may speak next."""
        self.me = self.one_of(self.personas)
        self._has_many = False

    def count(self) -> int:
        """Of the elements of an array. Rarely many."""
        if not self._has_many and self.chance(self.many):
            self._has_many = True
            return self.one_of(MANY)
        drawn = self.random.random()
        return 0 if drawn < 0.1 else 1 if drawn < 0.65 else 2 if drawn < 0.85 else 3

    def topic(self) -> str:
        drawn = self.random.random()
        if drawn < 0.6:
            return self.one_of(tuple(FURNISHED))
        if drawn < 0.85:
            return self.one_of(MADE)
        return self.one_of(NO_NAMES) if drawn < 0.96 else self.one_of(INTERNAL)

    def topic_id(self) -> bytes:
        drawn = self.random.random()
        if drawn < 0.85 and (ids := self.topic_ids()):
            return self.one_of(list(ids.values()))
        return bytes(16) if drawn < 0.95 else self.random.randbytes(16)

    def partition(self) -> int:
        return self.mostly(int(self.random.random() * 3), 3, -1, 10_000, INT32_MAX, -INT32_MAX - 1, usually=0.9)

    def group(self) -> str:
        return self.mostly(self.me.group, "", "unknown", "x" * 255, "x" * 300, self.one_of(GROUPS))

    def config(self) -> str:
        self._config = self.one_of(tuple(CONFIGS))
        return self._config

    def config_value(self) -> str:
        """Mostly one for the key that was drawn last."""
        return self.one_of(CONFIGS[self._config if self.chance(0.8) else self.config()])

    def text(self) -> str:
        return self.one_of(TEXTS)

    def number(self, bits: int, *, signed: bool = True) -> int:
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        return self.one_of((low, high, max(low, -1), 0, 1, int(self.random.random() * 100), self.random.randint(low, high)))

    def offset(self) -> int:
        return self.mostly(int(self.random.random() * 40), -1, -2, 0, INT64_MAX, -INT64_MAX - 1, usually=0.85)

    def timestamp(self) -> int:
        return self.mostly(START_MS, -1, -2, -3, -4, -5, -6, 0, INT64_MAX, -INT64_MAX - 1, usually=0.4)

    def epoch(self, right: int) -> int:
        return self.mostly(right, -1, 0, right + 1, right - 1, INT16_MAX, -INT16_MAX - 1)

    def wait_ms(self) -> int:
        return self.mostly(0, 1, 20, -1, INT32_MAX, -INT32_MAX - 1, usually=0.9)

    def blob(self) -> bytes:
        return self.mostly(b"", b"\0", b"\0\1", b"x" * 300, self.random.randbytes(40), usually=0.2)

    def records(self) -> bytes:
        """A batch, mostly one that is taken."""
        drawn = self.random.random()
        if drawn < 0.05:
            return b""
        if drawn < 0.6:
            return self._batch()
        if drawn < 0.75:
            return self._batch(compression_type=self.one_of(list(CompressionType)))
        me = self.me
        if drawn < 0.9 and me.producer_id >= 0:
            me.sequence += 1
            return self._batch(
                producer_id=me.producer_id,
                producer_epoch=self.epoch(me.producer_epoch) & INT16_MAX,
                base_sequence=self.mostly(me.sequence - 1, 0, 7),
                is_transactional=me.transactional_id is not None,
            )
        return self._odd_batch()

    def _batch(self, **options: Any) -> bytes:
        key = self.mostly(b"k", None, b"", b"k" * 200)
        value = self.mostly(b"value", None, b"", b"v" * 3000)
        when = self.mostly(START_MS, -1, 0, START_MS + 10**10)
        return build_batch([(when, key, value, ())] * self.one_of((1, 1, 2, 5)), **options)

    def _odd_batch(self) -> bytes:
        batch = self._batch()
        odd = self.one_of(
            (
                {"magic": self.one_of((0, 1, 3, -1))},
                {"attributes": self.random.randrange(2**15)},
                {"last_offset_delta": self.number(32)},
                {"records_count": self.number(32)},
                {"base_timestamp": self.number(64)},
                {"max_timestamp": self.number(64)},
                {"producer_id": self.number(64)},
                {"producer_epoch": self.number(16)},
                {"base_sequence": self.number(32)},
                {"base_offset": self.number(64)},
                {"batch_length": self.number(32)},
            )
        )
        drawn = self.random.random()
        if drawn < 0.7:
            return patched(batch, **odd)
        if drawn < 0.8:
            return batch + batch
        if drawn < 0.9:
            return batch[: int(self.random.random() * len(batch))]
        return self.random.randbytes(int(self.random.random() * 200))
