"""What a replay of `__consumer_offsets` gives: committed and pending offsets, groups, what has expired."""

from __future__ import annotations

import pytest
from triolog.protocol.coordinator.classic_group_records import GroupMetadataValue, MemberMetadata
from triolog.protocol.coordinator.offsets import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from triolog.protocol.errors import InvalidRecordError
from triolog.protocol.records.batch import end_txn_marker, iter_batches
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.offsets.group_offsets import GroupOffsets

from tests.support.logs import START_MS

PLACE = TopicPartition("topic", 0)
KEY = OffsetCommitKey("group", PLACE)
PRODUCER = 9
MEMBERS = GroupMetadataValue(
    protocol_type="consumer",
    generation=3,
    protocol="range",
    leader="m",
    current_state_timestamp=START_MS,
    members=[
        MemberMetadata(member_id="m", client_id="c", client_host="/h", session_timeout=1, subscription=b"", assignment=b"")
    ],
)


def gone_at(timestamp: int) -> GroupMetadataValue:
    """A group since its last member was gone."""
    return GroupMetadataValue(protocol_type="consumer", generation=4, current_state_timestamp=timestamp, members=[])


def anybody(group: str) -> bool:
    """Whatever the group: nobody is about to join it."""
    return True


def commit(offset: int, *, at: int = START_MS) -> tuple[bytes, bytes]:
    return KEY.encode(), OffsetCommitValue(offset, "", at).encode()


def replayed(*batches: bytes) -> GroupOffsets:
    """The batches, one after the other in a log."""
    offsets, base_offset = GroupOffsets(), 0
    for data in batches:
        stamped = base_offset.to_bytes(8, "big") + data[8:]
        for header, batch in iter_batches(stamped):
            offsets.replay(header, batch)
            base_offset = header.next_offset
    return offsets


def plain(*records: tuple[bytes, bytes | None]) -> bytes:
    return build_batch([(START_MS, key, value, ()) for key, value in records])


def in_transaction(*records: tuple[bytes, bytes | None]) -> bytes:
    return build_batch(
        [(START_MS, key, value, ()) for key, value in records],
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def marker(*, commits: bool) -> bytes:
    return end_txn_marker(producer_id=PRODUCER, producer_epoch=0, commit=commits, timestamp=START_MS, coordinator_epoch=0)


@pytest.mark.parametrize(
    ("batches", "expected", "pending"),
    [
        ([plain(commit(1)), plain(commit(2))], 2, False),
        ([plain(commit(1), commit(2))], 2, False),
        ([plain(commit(1)), plain((KEY.encode(), None))], None, False),
        ([plain(commit(1)), in_transaction(commit(2))], 1, True),
        ([plain(commit(1)), in_transaction(commit(2)), marker(commits=True)], 2, False),
        ([plain(commit(1)), in_transaction(commit(2)), marker(commits=False)], 1, False),
        ([in_transaction(commit(2)), plain(commit(1)), marker(commits=True)], 1, False),
        ([in_transaction(commit(2)), marker(commits=True), marker(commits=False)], 2, False),
        ([in_transaction(commit(2)), marker(commits=False), marker(commits=True)], None, False),
        ([in_transaction(commit(2)), in_transaction(commit(3)), marker(commits=True)], 3, False),
        ([marker(commits=True)], None, False),
    ],
)
def test_the_last_record_that_counts_is_the_groups_offset(batches: list[bytes], expected: int | None, pending: bool) -> None:
    offsets = replayed(*batches)
    found = offsets.offsets("group").get(PLACE)
    assert (found and found.value.offset) == expected
    assert offsets.pending("group") == ({PLACE} if pending else set())
    assert offsets.groups() == (set() if expected is None and not pending else {"group"})


def test_a_group_with_members_is_known_until_it_is_taken_away() -> None:
    key = GroupMetadataKey("members")
    offsets = replayed(plain((key.encode(), MEMBERS.encode())))
    assert (offsets.groups(), offsets.keys("members")) == ({"members"}, [key])
    assert offsets.take_restorable() == {"members": MEMBERS}
    assert offsets.take_restorable() == {}
    gone = replayed(plain((key.encode(), MEMBERS.encode()), (key.encode(), None)))
    assert (gone.groups(), gone.take_restorable()) == (set(), {})


@pytest.mark.parametrize(
    "record",
    [
        (KEY.encode(), b"\0\x63"),
        (KEY.encode(), b""),
        (b"", b""),
        (KEY.encode()[:-1], b""),
        (GroupMetadataKey("g").encode(), b"x"),
    ],
)
def test_a_record_that_cannot_be_read_is_refused(record: tuple[bytes, bytes]) -> None:
    with pytest.raises(InvalidRecordError):
        replayed(plain(record))


@pytest.mark.parametrize(("gone_ms", "expected_ms"), [(None, 100), (50, 150), (-1_000, 100)])
def test_an_offset_expires_at_the_retention_of_its_commit_or_of_the_last_member(gone_ms: int | None, expected_ms: int) -> None:
    """[KIP-211] Of the later one: Kafka would let an offset go that an administrator has just set for an empty group."""
    gone = [] if gone_ms is None else [(GroupMetadataKey("group").encode(), gone_at(START_MS + gone_ms).encode())]
    offsets = replayed(plain(commit(1, at=START_MS), *gone))
    assert list(offsets.expired(START_MS + expected_ms - 1, 100, anybody)) == []
    assert list(offsets.expired(START_MS + expected_ms, 100, anybody)) == [KEY]


def test_a_group_goes_when_it_has_neither_members_nor_offsets() -> None:
    key = GroupMetadataKey("group")
    assert list(replayed(plain((key.encode(), gone_at(START_MS).encode()))).without_offsets(anybody)) == [key]
    assert list(replayed(plain((key.encode(), MEMBERS.encode()))).without_offsets(anybody)) == []
    for batch in (plain(commit(1)), in_transaction(commit(1))):
        offsets = replayed(plain((key.encode(), gone_at(START_MS).encode())), batch)
        assert list(offsets.without_offsets(anybody)) == []
    offsets = replayed(plain((key.encode(), gone_at(START_MS).encode())))
    assert list(offsets.without_offsets(lambda group: group != "group")) == [], "somebody is about to join it"
    offsets.begin_commit("group")
    assert list(offsets.without_offsets(anybody)) == []


def test_an_offset_of_a_busy_group_does_not_expire() -> None:
    offsets = replayed(plain(commit(1)))
    assert (list(offsets.stale(lambda key, _: key == KEY)), list(offsets.stale(lambda key, _: key != KEY))) == ([KEY], [])
    assert list(offsets.expired(START_MS + 1000, 1, lambda group: group != "group")) == [], "somebody is about to join it"
    offsets.begin_commit("group")
    offsets.begin_commit("group")
    offsets.end_commit("group")
    assert list(offsets.expired(START_MS + 1000, 1, anybody)) == []
    offsets.end_commit("group")
    assert list(offsets.expired(START_MS + 1000, 1, anybody)) == [KEY]
    assert not offsets.commits_under_way


@pytest.mark.parametrize("batch", [in_transaction(commit(2)), plain((GroupMetadataKey("group").encode(), MEMBERS.encode()))])
def test_an_offset_below_a_transaction_or_of_a_group_with_members_does_not_expire(batch: bytes) -> None:
    assert list(replayed(plain(commit(1)), batch).expired(START_MS + 1000, 1, anybody)) == []
