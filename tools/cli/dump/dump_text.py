"""The small files beside the data for `triolog dump`: checkpoints, identities, topics. Each is read the way the server does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from ....server.storage.directory.state_files import BROKERS, CLIENT_METRICS, GROUPS, SECURITY_FILE, decode_security
from ....server.storage.directory.topics_file import CREATIONS_FILE, TOPICS_FILE, decode_creations, decode_topics
from ....server.storage.disk.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    PRODUCER_ID_BLOCK_FILE,
    RECOVERY_POINT_FILE,
    decode_checkpoint,
    decode_clean_shutdown,
    decode_meta_properties,
    decode_offsets,
    decode_partition_metadata,
    decode_producer_id_block,
    encode_uuid,
    read_small,
)
from ....server.storage.disk.filesystem import FileSystem
from ....server.storage.errors import CheckpointError
from ....server.storage.log.gaps import FILE_NAME as QUARANTINE_FILE
from ....server.storage.log.gaps import NO_FILE, decode_gaps
from ....server.storage.log.leader_epochs import FILE_NAME as LEADER_EPOCH_FILE
from .dump_report import Report


def dump_text(fs: FileSystem, path: str, report: Report) -> None:
    """Report what the file says, and whether it can be read and be true. Raises OSError."""
    name = Path(path).name
    try:
        data = read_small(fs, path)
        lines = list(TEXT_FILES[name](path, data))
    except (CheckpointError, ValueError) as exc:
        report.check("readable", str(exc))
        return
    for line in lines if report.with_rows else ():
        report.row("line", {"text": line})
    report.check("readable", None)
    if name == LEADER_EPOCH_FILE:
        report.check("order", _epoch_order(path, data))


def _offsets(path: str, data: bytes) -> Iterator[str]:
    for partition, offset in decode_offsets(path, data).items():
        yield f"{partition} {offset}"


def _leader_epochs(path: str, data: bytes) -> Iterator[str]:
    for epoch, start_offset in decode_checkpoint(path, data, fields=2):
        yield f"epoch {epoch} from offset {start_offset}"


def _epoch_order(path: str, data: bytes) -> str | None:
    entries = decode_checkpoint(path, data, fields=2)
    for before, after in pairwise(entries):
        if after[0] <= before[0] or after[1] < before[1]:
            return f"epoch {after[0]} from offset {after[1]} follows epoch {before[0]} from offset {before[1]}"
    return None


def _clean_shutdown(path: str, data: bytes) -> Iterator[str]:
    epoch = decode_clean_shutdown(data)
    yield "the server stopped cleanly" + ("" if epoch is None else f", broker epoch {epoch}")


def _gaps(path: str, data: bytes) -> Iterator[str]:
    for gap in decode_gaps(path, data):
        kept = "nothing was left of them" if gap.file == NO_FILE else f"the damaged bytes are in {gap.file}"
        accepted = "; accepted: readers skip them" if gap.is_accepted else ""
        yield f"offsets {gap.start_offset} to {gap.end_offset - 1} are missing; {kept}{accepted}"


def _topics(path: str, data: bytes) -> Iterator[str]:
    generation, topics = decode_topics(path, data)
    yield f"generation {generation}"
    for topic in topics:
        config = "".join(f" {key}={value}" for key, value in topic.configs.items())
        yield f"{topic.name}: id {encode_uuid(topic.topic_id)}, partitions {topic.partitions}{config}"


def _creations(path: str, data: bytes) -> Iterator[str]:
    generation, creations = decode_creations(path, data)
    yield f"generation {generation}"
    for creation in creations:
        numbers = f"partitions {creation.first_partition} to {creation.partitions - 1}"
        yield f"{creation.name}: id {encode_uuid(creation.topic_id)}, {numbers} were being created"


def _security(path: str, data: bytes) -> Iterator[str]:
    """Without what a password could be guessed from."""
    state = decode_security(path, data)
    yield f"generation {state.generation}"
    for (user, mechanism), credential in sorted(state.credentials.items()):
        yield f"user {user}: {mechanism.sasl_name}, {credential.iterations} iterations"
    for acl in sorted(state.acls):
        resource = f"{acl.pattern_type.name} {acl.resource_type.name} {acl.resource_name}"
        yield f"{acl.permission.name} {acl.principal} at {acl.host}: {acl.operation.name} on {resource}"
    for entity, values in state.quotas.items():
        whose = ", ".join(f"{kind} {'of all others' if name is None else name}" for kind, name in entity)
        yield f"quota of {whose}: {', '.join(f'{key}={value:g}' for key, value in values.items())}"


def _producer_ids(path: str, data: bytes) -> Iterator[str]:
    block = decode_producer_id_block(path, data)
    yield f"producer ids from {block.first_free} on were never given out"
    if block.first_own:
        yield f"those below {block.first_own} come from another server"


def _overrides(state: Any, kind: str) -> Iterator[str]:
    yield f"generation {state.generation}"
    for name, values in sorted(state.overrides.items()):
        whose = f"{kind} {name}" if name else f"all {kind}s"
        yield f"{whose}:{''.join(f' {key}={value}' for key, value in sorted(values.items()))}"


TEXT_FILES: Final[Mapping[str, Callable[[str, bytes], Iterator[str]]]] = {
    RECOVERY_POINT_FILE: _offsets,
    HIGH_WATERMARK_FILE: _offsets,
    LOG_START_FILE: _offsets,
    "cleaner-offset-checkpoint": _offsets,
    LEADER_EPOCH_FILE: _leader_epochs,
    QUARANTINE_FILE: _gaps,
    PARTITION_METADATA_FILE: lambda path, data: iter([f"topic id {encode_uuid(decode_partition_metadata(path, data))}"]),
    META_PROPERTIES_FILE: lambda path, data: (f"{key} = {value}" for key, value in decode_meta_properties(path, data).items()),
    CLEAN_SHUTDOWN_FILE: _clean_shutdown,
    TOPICS_FILE: _topics,
    CREATIONS_FILE: _creations,
    PRODUCER_ID_BLOCK_FILE: _producer_ids,
    SECURITY_FILE: _security,
    GROUPS.name: lambda path, data: _overrides(GROUPS.decode(path, data), "group"),
    CLIENT_METRICS.name: lambda path, data: _overrides(CLIENT_METRICS.decode(path, data), "subscription"),
    BROKERS.name: lambda path, data: _overrides(BROKERS.decode(path, data), "broker"),
}
"""How each file is read, by its name."""
