"""What a group is to be next: records, and the group as it is once they are in the log. The group that is stays as it is until
then, so nothing has to be undone when they cannot be stored.
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, Self, TypeVar

import attrs

from ..consumer_values import TopicImage

K = TypeVar("K")
V = TypeVar("V")
K_contra = TypeVar("K_contra", contravariant=True)
V_contra = TypeVar("V_contra", contravariant=True)


class RecordedGroup(Protocol[K_contra, V_contra]):
    """A group that is what its records say, and changes in no other way."""

    def copy(self) -> Self:
        """One that can change without this one."""

    def put(self, key: K_contra, value: V_contra | None, /) -> None:
        """What a record says, None for what it takes away."""


G = TypeVar("G", bound=RecordedGroup[Any, Any])


@attrs.define(eq=False, repr=False)
class GroupDraft(Generic[G, K, V]):
    """See the module. Made for one command."""

    base: G
    topics: TopicImage
    wall_ms: int
    """By the wall clock, for records that have a time in them."""
    records: list[tuple[K, V | None]] = attrs.field(factory=list)
    _next: G | None = None

    @property
    def group(self) -> G:
        """As it is with the records so far. Only `put` changes it."""
        return self.base if self._next is None else self._next

    def put(self, key: K, value: V | None) -> None:
        if self._next is None:
            self._next = self.base.copy()
        self._next.put(key, value)
        self.records.append((key, value))
