"""Streams groups, driven by hand: topologies, a log of what was decided, internal topics that are made when missing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs
from triolog.protocol.coordinator.streams_group_records import (
    STREAMS_GROUP_RECORDS,
    StreamsGroupCopartitionGroup,
    StreamsGroupSubtopology,
    StreamsGroupTopicInfo,
    StreamsGroupTopologyValue,
)
from triolog.server.groups.streams import values
from triolog.server.groups.streams.group import StreamsGroup
from triolog.server.groups.streams.groups import StreamsGroups

from tests.support.consumer_groups import DrivenGroups

GROUP: Final = "app"
REBALANCE_TIMEOUT_MS: Final = 60_000


def internal(name: str, partitions: int = 0) -> StreamsGroupTopicInfo:
    return StreamsGroupTopicInfo(name=name, partitions=partitions, replication_factor=0, topic_configs=[])


def subtopology(
    name: str,
    *sources: str,
    sinks: Iterable[str] = (),
    repartition: Iterable[StreamsGroupTopicInfo] = (),
    changelogs: Iterable[str] = (),
    copartitioned: Iterable[StreamsGroupCopartitionGroup] = (),
) -> StreamsGroupSubtopology:
    return StreamsGroupSubtopology(
        subtopology_id=name,
        source_topics=list(sources),
        source_topic_regex=[],
        state_changelog_topics=[internal(each) for each in changelogs],
        repartition_sink_topics=list(sinks),
        repartition_source_topics=list(repartition),
        copartition_groups=list(copartitioned),
    )


def topology(*parts: StreamsGroupSubtopology, epoch: int = 0) -> StreamsGroupTopologyValue:
    return StreamsGroupTopologyValue(epoch=epoch, subtopologies=list(parts))


WORD_COUNT: Final = topology(
    subtopology("0", "words", sinks=["app-repartition"]),
    subtopology("1", repartition=[internal("app-repartition")], changelogs=["app-changelog"]),
)
"""Words are read, partitioned anew and counted."""


def joining(group_id: str, member_id: str, topic: str, **more: Any) -> values.StreamsHeartbeat:
    """A member joins an application that does nothing but read a topic."""
    return values.StreamsHeartbeat(
        group_id=group_id,
        member_id=member_id,
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        topology=topology(subtopology("0", topic)),
        process_id=f"process-of-{member_id}",
        active=values.NO_TASK_IDS,
        standby=values.NO_TASK_IDS,
        warmup=values.NO_TASK_IDS,
        **more,
    )


@attrs.define(eq=False)
class DrivenStreamsGroups(DrivenGroups):
    RECORDS = STREAMS_GROUP_RECORDS
    GROUP = GROUP

    times: values.StreamsTimes = attrs.field(default=values.StreamsTimes(initial_rebalance_delay_ms=0))
    makes_topics: bool = attrs.field(default=True)
    """Whether internal topics are made when they are missing."""

    def new_groups(self) -> StreamsGroups:
        return StreamsGroups(self.settings, self.topics, lambda _: self.times)

    @property
    def group(self) -> StreamsGroup:
        found: StreamsGroup = self.groups.known(GROUP)
        return found

    def heartbeat(
        self, member_id: str, epoch: int, owned: values.Tasks | None = None, **more: Any
    ) -> values.StreamsHeartbeatAnswer:
        tasks = (None, None, None) if owned is None else (owned.active, owned.standby, owned.warmup)
        request = values.StreamsHeartbeat(
            group_id=more.pop("group_id", GROUP),
            member_id=member_id,
            member_epoch=epoch,
            active=tasks[0],
            standby=tasks[1],
            warmup=tasks[2],
            **more,
        )
        answer: values.StreamsHeartbeatAnswer = self.answer(request)
        if self.makes_topics:
            self.make(answer.missing_topics)
        return answer

    def join(
        self, member_id: str, said: StreamsGroupTopologyValue = WORD_COUNT, *, process_id: str | None = None, **more: Any
    ) -> values.StreamsHeartbeatAnswer:
        return self.heartbeat(
            member_id,
            0,
            values.NO_TASKS,
            topology=said,
            process_id=process_id or f"process-of-{member_id}",
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            **more,
        )

    def make(self, missing: Iterable[values.InternalTopic]) -> None:
        for topic in missing:
            if self.topics.find(topic.name) is None:
                self.topics.create(topic.name, topic.partitions)
