"""The report on a broker that is added to a failed test."""

from __future__ import annotations

import os
from typing import Final

from ...server.embedded import BlockingBroker
from ...server.fake.life import NotRunningError

REQUESTS: Final = 20
STORY_LINES: Final = 40
TOPICS: Final = 20
LEAST_BYTES: Final = 2**20


def report_of(broker: BlockingBroker) -> str:
    """Topics with their offsets, Streams groups with what is wrong, rules with their counts, the story, the last requests."""
    lines = [f"listening on {broker.kafka}, data in {broker.path}", *_full_disk(broker.path)]
    try:
        lines += [*_topics(broker), *_streams_groups(broker)]
    except NotRunningError as exc:
        lines.append(str(exc))
    for kind, faults in (("fault", broker.faults), ("disk fault", broker.faults.of_disk())):
        lines += [
            f"{kind} #{each.number} fired {each.fired} times of {each.matched} matches: {each.rule.as_json()}"
            for each in faults
        ]
    if story := broker.story().tail(STORY_LINES):
        lines += ["the story of the clients:", story]
    lines.append(f"the last of {broker.requests.last} requests:")
    lines.append(broker.requests.tail(REQUESTS) or "there was none")
    return "\n".join(lines)


def _full_disk(path: str) -> list[str]:
    """A client says that its messages have timed out, and nothing of why."""
    space = os.statvfs(path)
    if space.f_bavail * space.f_frsize >= LEAST_BYTES:
        return []
    return [
        (f"{path} is full: all of its {space.f_blocks * space.f_frsize >> 20} MiB are used. docker run --shm-size gives more")
    ]


def _topics(broker: BlockingBroker) -> list[str]:
    lines = []
    topics = broker.topics()
    for topic in topics[:TOPICS]:
        ends, starts = broker.log(topic).end_offsets(), broker.log(topic).start_offsets()
        partitions = ", ".join(f"{number}: {starts[number]}-{ends[number]}" for number in ends)
        lines.append(f"topic {topic} (partition: first offset-next offset) {partitions}")
    if len(topics) > TOPICS:
        lines.append(f"and {len(topics) - TOPICS} more topics")
    return lines


def _streams_groups(broker: BlockingBroker) -> list[str]:
    """Why an application does not run is said to its members, not to the test."""
    lines = []
    for group, state in broker.streams_groups.groups().items():
        told = "".join(f"; {status}: {detail}" for status, detail in broker.streams_groups.statuses(group).items())
        lines.append(f"Streams group {group} is {state} with {len(broker.streams_groups.assignments(group))} members{told}")
    return lines
