"""`broker.streams_groups`: applications of Kafka Streams as their group knows them: topology, members, tasks, and what is wrong
(KIP-1071)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import attrs

from ....protocol.errors import ErrorCode, RequestError
from ...broker import (
    Broker,
    InternalTopic,
    StreamsGroupDescription,
    StreamsMemberDescription,
    StreamsStatusCode,
    SubtopologyDescription,
    Tasks,
    by_first,
)
from ..values import some
from .fault_views import PATIENCE_S, look_until
from .groups_view import uncommitted

STABLE, EMPTY, NOT_READY = "Stable", "Empty", "NotReady"
TOLD_TO_ALL: Final = [each.name for each in StreamsStatusCode if each is not StreamsStatusCode.STALE_TOPOLOGY]
"""A member whose topology is older than the group's is told that alone."""


@attrs.frozen(eq=False, repr=False)
class StreamsGroupsView:
    """Raises RequestError where the broker would answer one. What waits does so for a group that nobody knows yet, too."""

    core: Callable[[], Broker]

    def __repr__(self) -> str:
        return "StreamsGroupsView()"

    def groups(self) -> dict[str, str]:
        """The state of each Streams group that there is."""
        streams = self.core().groups.streams
        return {each: streams.state_of(each).value for each in streams.group_ids()}

    def describe(self, group: str) -> StreamsGroupDescription:
        """State, epochs, topology, members with what they run, give up and are to run, and what they are told beside that.
        Raises GROUP_ID_NOT_FOUND."""
        return self.core().groups.streams.describe(group)

    def assignments(self, group: str) -> dict[str, Tasks]:
        """Return the current tasks of each member. A task is (subtopology, partition). Raises GROUP_ID_NOT_FOUND."""
        return {each.member_id: each.assignment for each in self.describe(group).members}

    def statuses(self, group: str) -> dict[str, str]:
        """Return the statuses that members get with their tasks, by Kafka's names: MISSING_SOURCE_TOPICS,
        INCORRECTLY_PARTITIONED_TOPICS, MISSING_INTERNAL_TOPICS, SHUTDOWN_APPLICATION, ASSIGNMENT_DELAYED. Raises
        GROUP_ID_NOT_FOUND."""
        return {each.code.name: each.detail for each in self.describe(group).statuses}

    async def lag(self, group: str) -> dict[str, int]:
        """Records that the application has not committed, of each topic that it reads: sources, and those that it partitions
        anew. Raises GROUP_ID_NOT_FOUND."""
        return await self._lag(self.describe(group))

    async def _lag(self, told: StreamsGroupDescription) -> dict[str, int]:
        core, topics = self.core(), dict.fromkeys(sorted(told.source_topics()), 0)
        there = topics.keys() & set(core.topics.names())
        for place, count in (await uncommitted(core, told.group_id, there)).items():
            topics[place.topic] += count
        return topics

    # ---- waiting ---------------------------------------------------------------------------------------------------------

    async def wait_stable(self, group: str, members: int = 1, *, timeout_s: float = PATIENCE_S) -> StreamsGroupDescription:
        """Wait until a group has so many members, a thread each, and every one has the tasks that it is to have; with 0, until
        all have gone. Whether an instance has restored its state only that one knows. Raises TimeoutError."""
        wanted = STABLE if members else EMPTY

        async def look() -> StreamsGroupDescription | None:
            told = self._known(group)
            is_so = told is not None and told.state.value == wanted and len(told.members) == members
            return told if is_so else None

        return await look_until(look, timeout_s, lambda: f"{self._summary(group)}, not {wanted} with {members}")

    async def wait_status(self, group: str, status: str, *, timeout_s: float = PATIENCE_S) -> str:
        """Wait until members are told this (see `statuses`), and answer its detail. Raises TimeoutError, ValueError for what is
        none."""
        if status not in TOLD_TO_ALL:
            raise ValueError(f"status is {status!r}, expected one of {', '.join(TOLD_TO_ALL)}")

        async def look() -> str | None:
            return None if self._known(group) is None else self.statuses(group).get(status)

        return await look_until(look, timeout_s, lambda: f"{self._summary(group)}, and its status is not {status}")

    async def wait_done(self, group: str, *, timeout_s: float = PATIENCE_S) -> None:
        """Wait until an application has committed everything that is in the topics that it reads. Raises TimeoutError."""
        behind: dict[str, int] = {}

        async def look() -> bool | None:
            nonlocal behind
            told = self._known(group)
            if told is None or told.state.value == NOT_READY:
                return None
            behind = {topic: count for topic, count in (await self._lag(told)).items() if count}
            return None if behind else True

        await look_until(look, timeout_s, lambda: f"{self._summary(group)}, and has not done {behind} (topic: records)")

    def _known(self, group: str) -> StreamsGroupDescription | None:
        """None for a group that nobody knows yet."""
        try:
            return self.describe(group)
        except RequestError as exc:
            if exc.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            return None

    def _summary(self, group: str) -> str:
        told = self._known(group)
        if told is None:
            return f"there is no Streams group {group}"
        details = "".join(f" [{status.code.name}: {status.detail}]" for status in told.statuses)
        return f"group {group} is {told.state.value} with {len(told.members)} members{details}"

    # ---- as the control port answers it ----------------------------------------------------------------------------------

    async def as_json(self, group: str) -> dict[str, Any]:
        """Everything. Raises GROUP_ID_NOT_FOUND."""
        told = self.describe(group)
        return {
            "state": told.state.value,
            **some(told, "group_epoch assignment_epoch topology_epoch shutdown_member_id"),
            "statuses": self.statuses(group),
            "lag": await self._lag(told),
            "subtopologies": [_subtopology(each) for each in told.subtopologies],
            "members": [_member(each) for each in told.members],
        }


def _subtopology(part: SubtopologyDescription) -> dict[str, Any]:
    return {
        "subtopology_id": part.subtopology_id,
        "source_topics": list(part.source_topics),
        "repartition_source_topics": _topics(part.repartition_source_topics),
        "repartition_sink_topics": list(part.repartition_sink_topics),
        "state_changelog_topics": _topics(part.state_changelog_topics),
    }


def _topics(topics: Iterable[InternalTopic]) -> list[dict[str, Any]]:
    return [{"name": each.name, "partitions": each.partitions, "config": dict(each.configs)} for each in topics]


def _member(member: StreamsMemberDescription) -> dict[str, Any]:
    return {
        **some(member, "member_id process_id client_id client_host rack_id member_epoch topology_epoch"),
        "endpoint": None if member.endpoint is None else member.endpoint._asdict(),
        "client_tags": dict(member.client_tags),
        "assignment": _tasks(member.assignment),
        "revoking": _tasks(member.revoking),
        "target": _tasks(member.target_assignment),
    }


def _tasks(tasks: Tasks) -> dict[str, dict[str, list[int]]]:
    """Of each role the partitions by subtopology."""
    roles = {"active": tasks.active, "standby": tasks.standby, "warmup": tasks.warmup}
    return {role: by_first(each) for role, each in roles.items()}
