"""The small files that a server reads when it starts, and the files that a person writes for it.

The first byte says which file it is; its eighth bit asks for a true checksum, which no search finds. A content is read, and
written as one that is read as the same; or it is refused by the documented error, which names the file. What is read lies
within the limits that the rest of the server counts on.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs
from triolog.protocol.errors import InvalidConfigError, TriologError
from triolog.protocol.kafka.authorization import AclOperation, AclPermission, PatternType, ResourceType
from triolog.protocol.kafka.scram import ScramCredential, ScramMechanism
from triolog.protocol.limits import INT32_MAX, INT64_MAX, MAX_STORED_PARTITIONS
from triolog.protocol.records.batch import crc32c
from triolog.protocol.types import TopicPartition
from triolog.server.access.acls import Acl
from triolog.server.access.users import decode_users
from triolog.server.config.broker_settings import read_settings, read_topic_configs
from triolog.server.storage.directory import state_files, topics_file
from triolog.server.storage.directory.state_files import BROKERS, Overrides
from triolog.server.storage.disk import checkpoints, paths
from triolog.server.storage.errors import CheckpointError, CorruptIndexError, CorruptSnapshotError
from triolog.server.storage.indexes.transaction_index import AbortedTxn, decode_entries, encode_entry
from triolog.server.storage.log import derived_files, gaps, leader_epochs
from triolog.server.storage.producers import producer_snapshots
from triolog.server.storage.producers.producer_cursor import BatchMetadata, ProducerEntry

from tests.fuzzing.target import BrokenInvariantError, Target, check_repeatable, require

WITH_CHECKSUM: Final = 0x80
PATH: Final = "/data/the-file"
PARTITIONS: Final = [TopicPartition("a-topic", 0), TopicPartition("a-topic", 1), TopicPartition("__consumer_offsets", 49)]
TOPIC_ID: Final = uuid.UUID(int=2**100 + 7)


@attrs.frozen(kw_only=True)
class Kind:
    """One sort of file."""

    decode: Callable[[bytes], Any]
    encode: Callable[[Any], bytes] | None
    """None: a person writes it."""
    seeds: tuple[bytes, ...]
    refusals: tuple[type[TriologError], ...] = (CheckpointError,)
    check: Callable[[Any], None] = lambda found: None
    sign: Callable[[bytes], bytes] = lambda data: data
    """The same content with a true checksum."""


def feed(data: bytes) -> bool:
    if not data:
        return False
    kind = KINDS[(data[0] & ~WITH_CHECKSUM) % len(KINDS)]
    content = data[1:]
    if data[0] & WITH_CHECKSUM:
        content = kind.sign(content)
    try:
        found = kind.decode(content)
    except kind.refusals as exc:
        require(PATH in str(exc), f"the refusal does not name the file: {exc}: {data.hex()}")
        return False
    except Exception as exc:
        raise BrokenInvariantError(f"{exc!r} is not documented: {data.hex()}") from exc
    kind.check(found)
    if kind.encode is not None:
        check_repeatable(kind.decode, kind.encode, found, data)
    return True


def _signed_json(indent: int | None) -> Callable[[bytes], bytes]:
    def sign(data: bytes) -> bytes:
        try:
            document = json.loads(data)
            document.pop("crc32c", None)
            document["crc32c"] = crc32c(json.dumps(document, indent=indent).encode())
            return json.dumps(document, indent=indent).encode()
        except (ValueError, TypeError, AttributeError, RecursionError):
            return data

    return sign


def _sealed(data: bytes) -> bytes:
    return data[:2] + crc32c(data[6:]).to_bytes(4, "big") + data[6:] if len(data) >= 6 else data


def _check_offset(offset: int) -> None:
    require(-1 <= offset <= INT64_MAX, f"{offset} is no offset")


def _check_offsets(found: dict[TopicPartition, int]) -> None:
    for partition, offset in found.items():
        require(0 <= partition.partition <= INT32_MAX, f"{partition} is no partition")
        _check_offset(offset)


def _check_epochs(found: tuple[leader_epochs.EpochEntry, ...]) -> None:
    for epoch, start_offset in found:
        require(0 <= epoch <= INT32_MAX, f"{epoch} is no leader epoch")
        _check_offset(start_offset)


def _check_gaps(found: tuple[gaps.OffsetGap, ...]) -> None:
    for gap in found:
        _check_offset(gap.end_offset)


def _check_topics(found: tuple[int, list[topics_file.Topic], set[uuid.UUID]]) -> None:
    _, topics, _ = found
    require(len({topic.name for topic in topics}) == len(topics), "a topic stands twice")
    for topic in topics:
        paths.check_topic_name(topic.name)
        require(0 < topic.partitions <= MAX_STORED_PARTITIONS, f"{topic.partitions} partitions")


def _check_creations(found: tuple[int, list[topics_file.Creation]]) -> None:
    for creation in found[1]:
        paths.check_topic_name(creation.name)
        require(0 <= creation.first_partition < creation.partitions <= MAX_STORED_PARTITIONS, f"{creation}")


def _check_facts(found: derived_files.Facts) -> None:
    _check_offset(found.log_start_offset)


def _topics(data: bytes) -> tuple[int, list[topics_file.Topic], set[uuid.UUID]]:
    generation, topics = topics_file.decode_topics(PATH, data)
    return generation, sorted(topics, key=lambda topic: topic.name), topics_file.decode_deleted_topic_ids(PATH, data)


def _encode_earlier(found: tuple[int, dict[int, list[BatchMetadata]]]) -> bytes:
    newest = BatchMetadata(0, 0, 0, 0)
    return producer_snapshots.encode_earlier(
        [ProducerEntry(each, 0, 0, 0, None, (*batches, newest)) for each, batches in found[1].items()], found[0]
    )


def _through_file(read: Callable[[str], Any]) -> Callable[[bytes], Any]:
    """What reads a file by its path, which lies in memory; in its refusals PATH stands for it."""

    def decode(data: bytes) -> Any:
        fd = os.memfd_create("fuzz")
        try:
            os.write(fd, data)
            return read(f"/proc/self/fd/{fd}")
        except InvalidConfigError as exc:
            raise InvalidConfigError(str(exc).replace(f"/proc/self/fd/{fd}", PATH)) from exc
        finally:
            os.close(fd)

    return decode


_SNAPSHOT: Final = [
    ProducerEntry(7, 1, 0, 1_700_000_000_000, 5, (BatchMetadata(3, 9, 2, 1_700_000_000_000),)),
    ProducerEntry(8, 0, -1, -1, None, ()),
]
_CREDENTIAL: Final = ScramCredential.from_password(ScramMechanism.SCRAM_SHA_256, 4096, b"salt", "secret")
_SECURITY: Final = state_files.SecurityState(
    3,
    {("alice", ScramMechanism.SCRAM_SHA_256): _CREDENTIAL},
    frozenset([Acl(ResourceType.TOPIC, "a", PatternType.LITERAL, "User:alice", "*", AclOperation.READ, AclPermission.ALLOW)]),
    {(("user", "alice"),): {"producer_byte_rate": 1000.0}},
)
_TOPICS: Final = [topics_file.Topic(name="a-topic", topic_id=TOPIC_ID, partitions=2, configs={"retention.ms": "-1"})]
_CREATION: Final = topics_file.Creation(name="a-topic", topic_id=TOPIC_ID, first_partition=1, partitions=3)
_USERS: Final = f'[alice]\npassword = "secret"\n["bob.x"]\n"scram-sha-256" = "{_CREDENTIAL.as_text()}"\n'.encode()
_SETTINGS: Final = b'native = "127.0.0.1:9095"\ndurability = "group:20"\n[topic_defaults]\nretention.ms = -1\n'
_FACTS: Final = derived_files.Facts(5, {0: derived_files.IndexFacts(500, 34, 9)}, derived_files.Dropped(1, 2, 3, 4))

KINDS: Final[tuple[Kind, ...]] = (
    Kind(
        decode=lambda data: checkpoints.decode_offsets(PATH, data),
        encode=checkpoints.encode_offsets,
        seeds=(checkpoints.encode_offsets(dict.fromkeys(PARTITIONS, 12)), b"", b"0\n", b"0\n0\n"),
        check=_check_offsets,
    ),
    Kind(
        decode=lambda data: leader_epochs.decode_leader_epochs(PATH, data).entries,
        encode=lambda found: leader_epochs.LeaderEpochs(list(found)).encode(),
        seeds=(leader_epochs.LeaderEpochs([leader_epochs.EpochEntry(0, 0), leader_epochs.EpochEntry(3, 17)]).encode(),),
        check=_check_epochs,
    ),
    Kind(
        decode=lambda data: gaps.decode_gaps(PATH, data),
        encode=gaps.encode_gaps,
        seeds=(gaps.encode_gaps([gaps.OffsetGap(0, 4, "0.log.corrupt-0"), gaps.OffsetGap(7, 9, "-")]),),
        check=_check_gaps,
    ),
    Kind(
        decode=lambda data: checkpoints.decode_producer_id_block(PATH, data),
        encode=checkpoints.ProducerIdBlock.encode,
        seeds=(b"0\n1\n1000\n", b"0\n2\n1000\n700\n"),
        check=lambda found: _check_offset(found.first_free - found.first_own),
    ),
    Kind(
        decode=lambda data: checkpoints.decode_partition_metadata(PATH, data),
        encode=checkpoints.encode_partition_metadata,
        seeds=(checkpoints.encode_partition_metadata(TOPIC_ID),),
    ),
    Kind(
        decode=lambda data: checkpoints.decode_meta_properties(PATH, data),
        encode=None,
        seeds=(
            checkpoints.encode_meta_properties(cluster_id="cluster", node_id=0, directory_id=TOPIC_ID),
            b"#\nbroker.id=1\nversion=0\n",
        ),
    ),
    Kind(decode=checkpoints.decode_clean_shutdown, encode=None, seeds=(checkpoints.encode_clean_shutdown(5), b"")),
    Kind(
        decode=_topics,
        encode=lambda found: topics_file.encode_topics(*found),
        seeds=(topics_file.encode_topics(4, _TOPICS, [TOPIC_ID]), topics_file.encode_topics(0, [])),
        check=_check_topics,
        sign=_signed_json(1),
    ),
    Kind(
        decode=lambda data: topics_file.decode_creations(PATH, data),
        encode=lambda found: topics_file.encode_creations(*found),
        seeds=(topics_file.encode_creations(3, [_CREATION]),),
        check=_check_creations,
        sign=_signed_json(1),
    ),
    Kind(
        decode=lambda data: derived_files.decode_facts(PATH, data),
        encode=derived_files.encode_facts,
        seeds=(derived_files.encode_facts(_FACTS), derived_files.encode_facts(derived_files.Facts(0, {}))),
        check=_check_facts,
        sign=_signed_json(None),
    ),
    Kind(
        decode=lambda data: state_files.decode_security(PATH, data),
        encode=state_files.encode_security,
        seeds=(state_files.encode_security(_SECURITY), state_files.encode_security(state_files.SecurityState())),
        sign=_signed_json(1),
    ),
    Kind(
        decode=lambda data: state_files.GROUPS.decode(PATH, data),
        encode=state_files.GROUPS.encode,
        seeds=(state_files.GROUPS.encode(state_files.Overrides(2, {"readers": {"share.auto.offset.reset": "earliest"}})),),
        sign=_signed_json(1),
    ),
    Kind(
        decode=lambda data: BROKERS.decode(PATH, data),
        encode=BROKERS.encode,
        seeds=(BROKERS.encode(Overrides(2, {"": {"log.retention.ms": "1000"}})),),
        sign=_signed_json(1),
    ),
    Kind(
        decode=lambda data: state_files.CLIENT_METRICS.decode(PATH, data),
        encode=state_files.CLIENT_METRICS.encode,
        seeds=(state_files.CLIENT_METRICS.encode(state_files.Overrides(2, {"all": {"interval.ms": "1000"}})),),
        sign=_signed_json(1),
    ),
    Kind(
        decode=lambda data: producer_snapshots.decode_snapshot(PATH, data),
        encode=producer_snapshots.encode_snapshot,
        seeds=(producer_snapshots.encode_snapshot(_SNAPSHOT), producer_snapshots.encode_snapshot([])),
        refusals=(CorruptSnapshotError,),
        sign=_sealed,
    ),
    Kind(
        decode=lambda data: producer_snapshots.decode_earlier(PATH, data),
        encode=_encode_earlier,
        seeds=(_encode_earlier((9, {7: [BatchMetadata(1, 2, 0, 5), BatchMetadata(2, 4, 1, 6)]})),),
        refusals=(CorruptSnapshotError,),
        sign=_sealed,
    ),
    Kind(
        decode=lambda data: decode_entries(PATH, data),
        encode=lambda found: b"".join(map(encode_entry, found)),
        seeds=(encode_entry(AbortedTxn(7, 3, 9, 3)) + encode_entry(AbortedTxn(8, 11, 19, 11)),),
        refusals=(CorruptIndexError,),
    ),
    Kind(decode=lambda data: decode_users(PATH, data), encode=None, seeds=(_USERS,), refusals=(InvalidConfigError,)),
    Kind(
        decode=_through_file(lambda path: read_settings(path, {}, {})),
        encode=None,
        seeds=(_SETTINGS,),
        refusals=(InvalidConfigError,),
    ),
    Kind(
        decode=_through_file(read_topic_configs),
        encode=None,
        seeds=(b'[topic.a-topic]\nretention.ms = -1\n"cleanup.policy" = "compact"\n',),
        refusals=(InvalidConfigError,),
    ),
)


def seeds() -> Iterator[bytes]:
    for number, kind in enumerate(KINDS):
        for content in kind.seeds:
            yield bytes([number]) + content
            yield bytes([number | WITH_CHECKSUM]) + content


TARGET: Final = Target(
    name="stored-files",
    feed=feed,
    seeds=seeds,
    modules=(
        "triolog.server.storage.directory",
        "triolog.server.storage.disk.checkpoints",
        "triolog.server.storage.indexes.transaction_index",
        "triolog.server.storage.log",
        "triolog.server.storage.producers",
        "triolog.server.access",
        "triolog.server.config",
        "triolog.protocol.kafka.scram",
    ),
    max_bytes=1024,
)
