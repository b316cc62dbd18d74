"""Topics and records that a broker has from the beginning of a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

import attrs

from ...protocol.types import TopicPartition
from ..broker import Broker, PlainRecord
from .views.log_view import Text, as_bytes

Topics = Sequence[str] | Mapping[str, int]
"""Names, or names with numbers of partitions."""


@attrs.frozen
class Seed:
    """Topics, and the records that they begin with."""

    topics: Mapping[str, int] = attrs.field(factory=dict)
    records: Mapping[str, Sequence[PlainRecord | Text]] = attrs.field(factory=dict)
    """By topic, for its partition 0: values, or (timestamp in ms or None, key, value, headers)."""

    @classmethod
    def of(cls, topics: Topics, records: Mapping[str, Sequence[PlainRecord | Text]]) -> Self:
        """Raises TypeError for one text in place of a list, whose characters would be names or records."""
        if isinstance(topics, str | bytes):
            raise TypeError(f"topics is {topics!r}, expected a list of names or a mapping: topics=[{topics!r}]")
        for name, given in records.items():
            if isinstance(given, str | bytes):
                raise TypeError(f"records of {name} are {given!r}, expected a list of them: records={{{name!r}: [{given!r}]}}")
        counts = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)
        return cls({**dict.fromkeys(records, 1), **counts}, records)

    async def put(self, core: Broker) -> None:
        """Make the topics that are not there, and append their records. Raises RequestError."""
        there = set(core.topics.names())
        for name, partitions in self.topics.items():
            if name in there:
                continue
            await core.topics.create(name, partitions)
            if plain := [_plain(record) for record in self.records.get(name, ())]:
                await core.writer.append(TopicPartition(name, 0), plain)


def _plain(record: PlainRecord | Text) -> PlainRecord:
    return record if isinstance(record, tuple) else (None, None, as_bytes(record), ())
