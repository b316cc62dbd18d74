"""A small whole broker on two log directories in memory, to be started with one of its files damaged.

`Store` is what was left by a stop in order: two partitions of a topic with transactions, a trimmed one, a compacted one,
committed offsets, a configured group, users, ACLs, quotas, subscriptions to metrics, and a creation that came to nothing.
`Store.start` opens a copy with one file changed, and says what became of it.
"""

from __future__ import annotations

import contextlib
import enum
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
from triolog.protocol.errors import RequestError, TriologError
from triolog.protocol.kafka.authorization import AclOperation, AclPermission, PatternType, ResourceType
from triolog.protocol.kafka.scram import ScramCredential, ScramMechanism
from triolog.protocol.types import TopicPartition
from triolog.server.access.acls import Acl
from triolog.server.broker import Broker
from triolog.server.storage.directory.topics_file import CREATIONS_FILE, Creation, encode_creations

from tests.support.broker_image import aborted_from
from tests.support.brokers import records_from, running_broker, value
from tests.support.crash_fs import CrashFileSystem, put
from tests.support.logs import START_MS
from tests.support.transactions import TransactionalProducer

PLAIN: Final = [TopicPartition("plain", 0), TopicPartition("plain", 1)]
TRIMMED: Final = TopicPartition("trimmed", 0)
TABLE: Final = TopicPartition("table", 0)
SERVED: Final = (*PLAIN, TRIMMED, TABLE)
GROUP: Final = "readers"
TRANSACTIONAL_ID: Final = "mover"
SETTINGS: Final = {
    "segment.bytes": "700",
    "index.interval.bytes": "100",
    "segment.index.bytes": "240",
    "min.cleanable.dirty.ratio": "1",
}
APPENDS: Final = 12
TRIMMED_TO: Final = 5
ACL: Final = Acl(ResourceType.TOPIC, "plain", PatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermission.ALLOW)
USER: Final = ("alice", ScramMechanism.SCRAM_SHA_256)
QUOTA: Final = {(("user", "alice"),): {"producer_byte_rate": 1000.0}}
_CREDENTIAL: Final = ScramCredential.from_password(ScramMechanism.SCRAM_SHA_256, 4096, b"salt", "secret")


class Outcome(enum.Enum):
    """What became of a start."""

    WHOLE = enum.auto()
    """Everything is served as it was."""
    PART = enum.auto()
    """Something is not."""
    REFUSED = enum.auto()
    """There was an error instead."""


@attrs.frozen
class Content:
    """What a broker answers of everything."""

    records: Mapping[TopicPartition, object]
    """By partition: offsets, keys and values, what was aborted, where it starts and ends; or the error that it answers."""
    others: Mapping[str, object]
    """Committed offsets, users, ACLs, quotas, configurations."""


@attrs.frozen
class Store:
    """What was left, and what it holds. `paths` are there in the real file system too, where their locks are."""

    fs: CrashFileSystem
    paths: tuple[Path, ...]
    content: Content

    @classmethod
    async def make(cls, folder: Path) -> Store:
        paths = (folder / "one", folder / "two")
        for path in paths:
            path.mkdir()
        fs = CrashFileSystem()
        async with _broker(fs, paths) as broker:
            await _fill(broker)
        fs.end_process()
        for path in paths:
            creation = Creation(name="never", topic_id=uuid.UUID(int=2**99), first_partition=0, partitions=1)
            put(fs, f"{path}/{CREATIONS_FILE}", encode_creations(0, [creation]))
        fs.sync_all()
        copy = fs.copy()
        async with _broker(copy, paths) as broker:
            content = await content_of(broker)
        return cls(fs, paths, content)

    async def start(self, fs: CrashFileSystem) -> tuple[Outcome, Content | str]:
        """Start on `fs` and stop again: what became of it, and what was served or said."""
        try:
            async with _broker(fs, self.paths) as broker:
                found = await content_of(broker)
        except (TriologError, OSError) as exc:
            return Outcome.REFUSED, str(exc)
        finally:
            fs.end_process()
        return (Outcome.WHOLE if found == self.content else Outcome.PART), found


@contextlib.asynccontextmanager
async def _broker(fs: CrashFileSystem, paths: tuple[Path, ...]) -> AsyncIterator[Broker]:
    async with running_broker(*paths, fs=fs, topic=SETTINGS, cleaner_backoff_ms=10**6) as broker:
        yield broker


async def _fill(broker: Broker) -> None:
    await broker.topics.create("plain", 2)
    await broker.topics.create("trimmed", 1, {"retention.ms": "-1"})
    await broker.topics.create("table", 1, {"cleanup.policy": "compact"})
    producer = await TransactionalProducer.start(broker, TRANSACTIONAL_ID)
    for number in range(APPENDS):
        for partition in SERVED:
            [(timestamp, _, content, headers)] = value(f"{partition} {number}", START_MS + 1000 * number)
            await broker.writer.append(partition, [(timestamp, b"key %d" % (number % 5), content, headers)])
        if number % 4 == 1:
            for partition in PLAIN:
                await producer.produce(partition, f"transaction {number}")
            await (producer.abort() if number % 8 == 1 else producer.commit())
    await broker.offsets.commit(GROUP, [(partition, 7, "note") for partition in SERVED])
    await broker.logs.delete_records(TRIMMED, TRIMMED_TO)
    await broker.security.alter_scram_users({USER: _CREDENTIAL}, ())
    await broker.security.create_acls([ACL])
    await broker.security.alter_client_quotas(QUOTA)
    await broker.group_configs.change(GROUP, lambda _: {"share.auto.offset.reset": "earliest"})
    await broker.client_metrics.change("all", lambda _: {"interval.ms": "1000"})
    await broker.broker_configs.change("", lambda _: {"log.segment.delete.delay.ms": "50000"})


async def content_of(broker: Broker) -> Content:
    """Everything that can be asked."""
    records: dict[TopicPartition, object] = {}
    for partition in SERVED:
        try:
            snapshot = broker.reader.snapshot(partition)
            found = await records_from(broker, partition, snapshot.log_start_offset)
            records[partition] = (
                snapshot.log_start_offset,
                snapshot.log_end_offset,
                [(record.offset, record.key, record.value, record.timestamp) for record in found],
                await aborted_from(broker, partition, snapshot.log_start_offset),
            )
        except RequestError as exc:
            records[partition] = str(exc)
    return Content(records, await _others(broker))


async def _others(broker: Broker) -> dict[str, object]:
    try:
        committed: Any = sorted(await broker.offsets.fetch(GROUP))
    except RequestError as exc:
        committed = str(exc)
    return {
        "topics": {name: broker.topics.describe_config(name) for name in broker.topics.names()},
        "committed": committed,
        "users": dict(broker.security.scram_users()),
        "acls": broker.security._copies.state.acls,
        "quotas": dict(broker.security.client_quotas()),
        "groups": dict(broker.group_configs.overrides()),
        "metrics": dict(broker.client_metrics.overrides()),
        "brokers": dict(broker.broker_configs.overrides()),
    }


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def damages(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Each bit flipped, each byte inverted, each length that it can be cut to; with a name."""
    yield from ((f"bit {bit} flipped", flipped(content, bit)) for bit in range(8 * len(content)))
    for at in range(len(content)):
        yield f"byte {at} inverted", content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]
    yield from ((f"cut to {size}", content[:size]) for size in range(len(content)))


def with_file(fs: CrashFileSystem, path: str, content: bytes) -> CrashFileSystem:
    copy = fs.copy()
    put(copy, path, content)
    return copy
