"""A deleted topic: no response says that it exists, and nothing sent to it afterwards is stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..history import Acknowledged, Event, Seen
from .facts import Anomaly, Facts


def check_topic_lives(events: Sequence[Event], facts: Facts) -> Iterator[Anomaly]:
    for event in events:
        match event:
            case Seen() if event.topic in facts.deleted and event.begun_ms > facts.deleted[event.topic][1]:
                yield Anomaly("not deleted", f"{event.who} has found {event.topic}, and asked after its deletion")
            case Acknowledged() if event.partition.topic in facts.deleted:
                deleted = facts.deleted[event.partition.topic][0]
                if any(facts.sent[record].index > deleted for record in event.ids):
                    yield Anomaly("not deleted", f"{event.ids} were sent to {event.partition} after its deletion")
