"""What is said of a broker beside a failed test."""

from __future__ import annotations

from typing import Final

from ...server.control.life import NotRunningError
from ...server.embedded import BlockingBroker

REQUESTS: Final = 20
TOPICS: Final = 20


def report_of(broker: BlockingBroker) -> str:
    """Topics with their offsets, rules with their counts, the last requests."""
    lines = [f"listening on {broker.kafka}, data in {broker.path}", *_topics(broker)]
    for kind, faults in (("fault", broker.faults), ("disk fault", broker.faults.of_disk())):
        lines += [
            f"{kind} #{each.number} fired {each.fired} times of {each.matched} matches: {each.rule.as_json()}"
            for each in faults
        ]
    lines.append(f"the last of {broker.requests.last} requests:")
    lines.append(broker.requests.tail(REQUESTS) or "there was none")
    return "\n".join(lines)


def _topics(broker: BlockingBroker) -> list[str]:
    lines = []
    try:
        topics = broker.topics()
    except NotRunningError as exc:
        return [str(exc)]
    for topic in topics[:TOPICS]:
        ends, starts = broker.log(topic).end_offsets(), broker.log(topic).start_offsets()
        partitions = ", ".join(f"{number}: {starts[number]}-{ends[number]}" for number in ends)
        lines.append(f"topic {topic} (partition: first offset-next offset) {partitions}")
    if len(topics) > TOPICS:
        lines.append(f"and {len(topics) - TOPICS} more topics")
    return lines
