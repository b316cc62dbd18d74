"""The stored state of one share-partition in `__share_group_state`: a snapshot, and the updates since (Kafka:
ShareCoordinatorShard, ShareGroupOffset, PersisterStateBatchCombiner).

A writer plans a record and applies it when it is in the log; a replay applies the same records. So this state changes in one
way.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Final

import attrs

from ....protocol.coordinator.share_group_records import (
    NO_START_OFFSET,
    UNKNOWN_DELIVERY_COMPLETE_COUNT,
    ShareSnapshotValue,
    ShareStateBatch,
    ShareStateValue,
    ShareUpdateValue,
)
from ....protocol.errors import InvalidRecordError
from .values import RecordState, StateBatch

UPDATES_PER_SNAPSHOT: Final = 500
"""Kafka's share.coordinator.snapshot.update.records.per.snapshot."""

_STATES: Final = {int(state): state for state in RecordState if state is not RecordState.ACQUIRED}


@attrs.frozen(kw_only=True)
class StoredShare:
    """See the module."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    """NO_START_OFFSET: nobody has looked yet where the group begins."""
    delivery_complete_count: int
    created_ms: int
    written_ms: int
    batches: tuple[StateBatch, ...]
    """By offset; they do not overlap."""
    updates: int = 0
    """Since the snapshot."""


def plan_initial(before: StoredShare | None, *, state_epoch: int, start_offset: int, now_ms: int) -> ShareSnapshotValue:
    """Return the record that begins a share-partition, or lets it begin again. From a known offset on nothing is finished; else
    that is unknown."""
    done = UNKNOWN_DELIVERY_COMPLETE_COUNT if start_offset == NO_START_OFFSET else 0
    return ShareSnapshotValue(
        snapshot_epoch=0 if before is None else before.snapshot_epoch + 1,
        state_epoch=state_epoch,
        leader_epoch=0,
        start_offset=start_offset,
        delivery_complete_count=done,
        create_timestamp=now_ms,
        write_timestamp=now_ms,
        state_batches=[],
    )


def plan_write(
    before: StoredShare,
    *,
    start_offset: int,
    delivery_complete_count: int,
    batches: Sequence[StateBatch],
    leader_epoch: int,
    now_ms: int,
) -> ShareStateValue:
    """Return the record of new states: an update, or, after many updates, a snapshot."""
    if before.updates < UPDATES_PER_SNAPSHOT:
        return ShareUpdateValue(
            snapshot_epoch=before.snapshot_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=delivery_complete_count,
            state_batches=[_written(each) for each in overlaid((), batches, start_offset)],
        )
    return ShareSnapshotValue(
        snapshot_epoch=before.snapshot_epoch + 1,
        state_epoch=before.state_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=delivery_complete_count,
        create_timestamp=before.created_ms,
        write_timestamp=now_ms,
        state_batches=[_written(each) for each in overlaid(before.batches, batches, start_offset)],
    )


def plan_snapshot(before: StoredShare, *, now_ms: int) -> ShareSnapshotValue:
    """Return the same state once more: the records before this one are not needed any more."""
    return ShareSnapshotValue(
        snapshot_epoch=before.snapshot_epoch + 1,
        state_epoch=before.state_epoch,
        leader_epoch=before.leader_epoch,
        start_offset=before.start_offset,
        delivery_complete_count=before.delivery_complete_count,
        create_timestamp=before.created_ms,
        write_timestamp=now_ms,
        state_batches=[_written(each) for each in before.batches],
    )


def applied(before: StoredShare | None, value: ShareStateValue) -> StoredShare:
    """Return the state after a record. Raises InvalidRecordError for an update without a snapshot, and for unknown states."""
    batches = [_read(each) for each in value.state_batches]
    if isinstance(value, ShareSnapshotValue):
        return StoredShare(
            snapshot_epoch=value.snapshot_epoch,
            state_epoch=value.state_epoch,
            leader_epoch=value.leader_epoch,
            start_offset=value.start_offset,
            delivery_complete_count=value.delivery_complete_count,
            created_ms=value.create_timestamp,
            written_ms=value.write_timestamp,
            batches=overlaid((), batches, value.start_offset),
        )
    if before is None:
        raise InvalidRecordError("an update of a share-partition has no snapshot before it")
    start_offset = before.start_offset if value.start_offset == NO_START_OFFSET else value.start_offset
    return attrs.evolve(
        before,
        leader_epoch=max(before.leader_epoch, value.leader_epoch),
        start_offset=start_offset,
        delivery_complete_count=value.delivery_complete_count,
        batches=overlaid(before.batches, batches, start_offset),
        updates=before.updates + 1,
    )


def overlaid(old: Sequence[StateBatch], new: Sequence[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Return batches with others laid over them, from `start_offset` on; equal neighbours are joined."""
    batches = list(old)
    for each in new:
        _lay(batches, each)
    merged: list[StateBatch] = []
    for each in batches:
        if each.last_offset < start_offset:
            continue
        if each.first_offset < start_offset:
            each = each._replace(first_offset=start_offset)
        if merged and merged[-1].last_offset + 1 == each.first_offset and merged[-1][2:] == each[2:]:
            merged[-1] = merged[-1]._replace(last_offset=each.last_offset)
        else:
            merged.append(each)
    return tuple(merged)


def _lay(batches: list[StateBatch], new: StateBatch) -> None:
    first = bisect.bisect_left(batches, new.first_offset, key=_last)
    last = bisect.bisect_right(batches, new.last_offset, key=_first)
    kept = []
    if first < last:
        before, behind = batches[first], batches[last - 1]
        if before.first_offset < new.first_offset:
            kept.append(before._replace(last_offset=new.first_offset - 1))
        kept.append(new)
        if behind.last_offset > new.last_offset:
            kept.append(behind._replace(first_offset=new.last_offset + 1))
    batches[first:last] = kept or [new]


def _first(batch: StateBatch) -> int:
    return batch.first_offset


def _last(batch: StateBatch) -> int:
    return batch.last_offset


def _written(batch: StateBatch) -> ShareStateBatch:
    return ShareStateBatch(
        first_offset=batch.first_offset,
        last_offset=batch.last_offset,
        delivery_state=batch.state,
        delivery_count=batch.delivery_count,
    )


def _read(batch: ShareStateBatch) -> StateBatch:
    state = _STATES.get(batch.delivery_state)
    if state is None or not 0 <= batch.first_offset <= batch.last_offset or batch.delivery_count < 0:
        raise InvalidRecordError(
            f"the offsets {batch.first_offset} to {batch.last_offset} of a share-partition are in state "
            f"{batch.delivery_state} after {batch.delivery_count} deliveries. States are {sorted(_STATES)}"
        )
    return StateBatch(batch.first_offset, batch.last_offset, state, batch.delivery_count)
