"""Records of the server's own topics in words, for `triolog dump --records`; control records too."""

from __future__ import annotations

import uuid
from typing import Any, Final

from ....protocol.coordinator.classic_group_records import decode_group_metadata_value
from ....protocol.coordinator.consumer_group_records import CONSUMER_GROUP_RECORDS
from ....protocol.coordinator.offsets import (
    NO_TOPIC_ID,
    OFFSETS_TOPIC,
    GroupMetadataKey,
    OffsetCommitKey,
    decode_offset_commit_value,
    decode_offsets_key,
)
from ....protocol.coordinator.share_group_records import SHARE_GROUP_RECORDS
from ....protocol.coordinator.stage_commits import STAGE_COMMITS_TOPIC, decode_stage_commit_key, decode_stage_commit_value
from ....protocol.coordinator.streams_group_records import STREAMS_GROUP_RECORDS
from ....protocol.coordinator.transactions import TRANSACTIONS_TOPIC, decode_transaction_key, decode_transaction_value
from ....protocol.errors import RequestError
from ....protocol.records.batch import BatchHeader
from ....protocol.records.control import ControlRecordType, control_record_type, coordinator_epoch
from ....protocol.types import Bytes, Record
from ....server.storage.disk.checkpoints import encode_uuid
from .group_records import classic_group, managed_group

INTERNAL_TOPICS: Final = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC, STAGE_COMMITS_TOPIC)


def topic_of(partition_directory: str) -> str | None:
    """The internal topic whose records lie in a directory of that name, None for others."""
    topic = partition_directory.rpartition("-")[0]
    return topic if topic in INTERNAL_TOPICS else None


def record_in_words(topic: str | None, header: BatchHeader, record: Record) -> str | None:
    """Describe a record of an internal topic; None for records of producers."""
    try:
        if header.is_control:
            return _control(header, record)
        if topic == OFFSETS_TOPIC:
            return _of_group(record)
        if topic == TRANSACTIONS_TOPIC:
            return _transaction(record)
        if topic == STAGE_COMMITS_TOPIC:
            return _stage_commit(record)
    except RequestError as exc:
        return f"cannot be read: {exc.message}"
    return None


def _control(header: BatchHeader, record: Record) -> str:
    kind = control_record_type(record.key)
    if kind in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
        who = f"producer {header.producer_id} epoch {header.producer_epoch}"
        return f"{kind.name} marker of {who}, coordinator epoch {coordinator_epoch(record.value)}"
    return f"control record, type {kind}"


def _of_group(record: Record) -> str:
    key = decode_offsets_key(_key(record))
    if isinstance(key, GroupMetadataKey):
        return classic_group(key.group, None if record.value is None else decode_group_metadata_value(record.value))
    if not isinstance(key, OffsetCommitKey):
        return _managed_group(record)
    if record.value is None:
        return f"group {key.group}: the offset of {key.topic_partition} is taken back"
    value = decode_offset_commit_value(record.value)
    metadata = f" {value.metadata!r}" if value.metadata else ""
    topic_id = "" if value.topic_id == NO_TOPIC_ID else f" of the topic with id {encode_uuid(uuid.UUID(bytes=value.topic_id))}"
    return f"group {key.group}: {key.topic_partition} at offset {value.offset}{metadata}{topic_id}"


def _managed_group(record: Record) -> str:
    """Of a group whose assignments the server makes."""
    kinds: tuple[Any, ...] = (CONSUMER_GROUP_RECORDS, SHARE_GROUP_RECORDS, STREAMS_GROUP_RECORDS)
    for records in kinds:
        if (key := records.decode_key(_key(record))) is not None:
            return managed_group(key, None if record.value is None else records.decode_value(key, record.value))
    return "a record of a newer kind of group"


def _transaction(record: Record) -> str:
    transactional_id = decode_transaction_key(_key(record))
    if transactional_id is None:
        return "a record of a newer kind"
    if record.value is None:
        return f"transactional id {transactional_id}: gone"
    value = decode_transaction_value(record.value)
    who = f"producer {value.producer_id} epoch {value.producer_epoch}"
    partitions = ", ".join(map(str, sorted(value.partitions)))
    touched = f", partitions {partitions}" if partitions else ""
    return f"transactional id {transactional_id}: {value.state.name.lower()}, {who}, timeout {value.timeout_ms} ms{touched}"


def _stage_commit(record: Record) -> str:
    application = decode_stage_commit_key(_key(record))
    if application is None:
        return "a record of a newer kind"
    if record.value is None:
        return f"application {application}: gone"
    value = decode_stage_commit_value(record.value)
    partitions = ", ".join(
        f"{each.topic_partition} {each.base_offset} to {each.end_offset - 1}"
        if value.is_done
        else f"{each.topic_partition} from {each.start_offset} on, {each.records_count} records"
        for each in value.partitions
    )
    what = f"version {value.version} {value.state.name.lower()}, producer {value.producer_id} epoch {value.producer_epoch}"
    return f"application {application}: {what}{f', {partitions}' if partitions else ''}"


def _key(record: Record) -> Bytes:
    return b"" if record.key is None else record.key
