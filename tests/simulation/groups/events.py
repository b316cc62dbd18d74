"""What members of groups and writers of stages did and were told.

A member's name is the instance id of a static member, otherwise the id that it has in its group. Its epoch is the generation
where the group is a classic one.
`begun_ms` says when it asked for what an event is the answer to. `until_ms`: before then nobody may say that it is no member,
whatever else happens, because it has been heard of and has nothing to do in time that it does not know of.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import attrs
from triolog.protocol.types import TopicPartition

from ..history import Event

CLASSIC: Final = "classic"
CONSUMERS: Final = "consumers"
SHARERS: Final = "sharers"
MIXED: Final = "mixed"
MIGRATING: Final = "migrating"
STREAMS: Final = "streams"
"""Names of the groups: by the classic protocol, by that of KIP-848, a share group, one without members,
one whose members use either protocol, and a Streams group."""
CONSUMING: Final = (CLASSIC, CONSUMERS, MIGRATING, STREAMS)
"""Whose members read partitions and commit offsets."""


@attrs.frozen(kw_only=True)
class MemberEvent(Event):
    group: str
    member: str
    epoch: int


@attrs.frozen(kw_only=True)
class Heard(MemberEvent):
    """A heartbeat was answered without an error."""

    begun_ms: int
    until_ms: int


@attrs.frozen(kw_only=True)
class Dismissed(MemberEvent):
    """The member was told that it is none, or not of this epoch. It has nothing any more. `is_explained`: the answer to a
    heartbeat was lost, after which that may be."""

    error: str
    is_explained: bool = False


@attrs.frozen(kw_only=True)
class TakesPlace(MemberEvent):
    """A client is about to join with an instance id, which is its `member` in all events. Another client with that id may be
    fenced from now on."""


@attrs.frozen(kw_only=True)
class Returned(MemberEvent):
    """A static member was away for less than its session, and nothing else happened to the group. Partitions of the member,
    and epochs of all members, before and after."""

    had: tuple[TopicPartition, ...]
    has: tuple[TopicPartition, ...]
    epochs: tuple[int, ...]
    epochs_after: tuple[int, ...]


@attrs.frozen(kw_only=True)
class Described(Event):
    """The epoch of a group, as it is shown to whoever asks."""

    group: str
    epoch: int
    begun_ms: int


@attrs.frozen(kw_only=True)
class Assigns(MemberEvent):
    """The leader of a classic group says who gets what, by member."""

    assignment: tuple[tuple[str, tuple[TopicPartition, ...]], ...]


@attrs.frozen(kw_only=True)
class Told(MemberEvent):
    """These, and no others, are the member's from now on."""

    partitions: tuple[TopicPartition, ...]
    until_ms: int


@attrs.frozen(kw_only=True)
class LetsGo(MemberEvent):
    """The member reads these no more, which it is about to say, or to leave without a word."""

    partitions: tuple[TopicPartition, ...]


@attrs.frozen(kw_only=True)
class Commits(MemberEvent):
    """`number`: of this commit, which no other one has."""

    number: int
    partition: TopicPartition
    offset: int


@attrs.frozen(kw_only=True)
class Committed(MemberEvent):
    """The answer to a commit; `is_kept` None: there was none, or one that leaves it open."""

    number: int
    partition: TopicPartition
    offset: int
    is_kept: bool | None
    error: str = ""


@attrs.frozen(kw_only=True)
class Resumes(Event):
    """What the group has committed, -1 for nothing."""

    group: str
    partition: TopicPartition
    offset: int
    begun_ms: int


@attrs.frozen(kw_only=True)
class MixedCommit(Event):
    """Who commits offsets of a group without members, one after the other, was answered; `is_kept` None: there was no answer,
    or one that leaves it open."""

    offset: int
    transaction: int | None
    is_kept: bool | None


@attrs.frozen(kw_only=True)
class MixedEnd(Event):
    """One of his transactions is over; `is_committed` None: nobody knows how."""

    transaction: int
    is_committed: bool | None


@attrs.frozen(kw_only=True)
class Settled(Event):
    """What became of a group when nothing went wrong any more; `lacks` is empty where it has read to the end."""

    group: str
    lacks: str = ""


@attrs.frozen(kw_only=True)
class ShareGroupIs(Event):
    """How a share group behaves. It reads these topics from the beginning."""

    group: str
    topics: tuple[str, ...]
    is_committed: bool
    lock_ms: int
    delivery_limit: int


class DeadLetter(NamedTuple):
    """Of the record at an offset of a partition. `id`: of the copied record; empty: it was not copied."""

    partition: TopicPartition
    offset: int
    is_rejected: bool
    id: str


@attrs.frozen(kw_only=True)
class DeadLetters(Event):
    """All that is in the queue of a share group at the end. `failed`: how many more the server says that it could not write."""

    letters: tuple[DeadLetter, ...]
    failed: int


@attrs.frozen(kw_only=True)
class StandsAt(Event):
    """Where a share group has come to when nothing goes wrong any more: its members are told that this offset is damaged."""

    group: str
    partition: TopicPartition
    offset: int


@attrs.frozen(kw_only=True)
class Acquired(MemberEvent):
    """Offsets that the member was given, both ends included; by offset the ids of the records among them."""

    partition: TopicPartition
    first: int
    last: int
    delivery_count: int
    begun_ms: int
    ids: tuple[tuple[int, str], ...]


@attrs.frozen(kw_only=True)
class Unanswered(MemberEvent):
    """A share fetch was not answered: nobody knows what it has acquired."""


@attrs.frozen(kw_only=True)
class Acknowledges(MemberEvent):
    """Types by offset."""

    number: int
    partition: TopicPartition
    said: tuple[tuple[int, int], ...]


@attrs.frozen(kw_only=True)
class Accepted(MemberEvent):
    """The answer to an acknowledgement; `is_kept` None: there was none, or one that leaves it open."""

    number: int
    is_kept: bool | None
    error: str = ""


@attrs.frozen(kw_only=True)
class SessionEnded(MemberEvent):
    """The member's connection, and with it its share session, is no more."""


@attrs.frozen(kw_only=True)
class CommitsStage(Event):
    """A driver has a version committed as this attempt has staged it; `ids` by partition, in the order of the tasks."""

    application: str
    version: int
    attempt: str
    ids: tuple[tuple[TopicPartition, tuple[str, ...]], ...]


@attrs.frozen(kw_only=True)
class StageCommitted(Event):
    """A version is committed. `is_mine`: as this attempt has staged it. `places`: first offset and the one behind the last."""

    application: str
    version: int
    attempt: str
    is_mine: bool
    places: tuple[tuple[TopicPartition, int, int], ...]


@attrs.frozen(kw_only=True)
class Staged(Event):
    """Records that an attempt is about to stage."""

    application: str
    version: int
    attempt: str
    ids: tuple[str, ...]


@attrs.frozen(kw_only=True)
class LastCommit(Event):
    """The version that was committed last; -1 for none."""

    application: str
    version: int
    begun_ms: int
