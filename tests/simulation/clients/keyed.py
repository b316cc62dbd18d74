"""Who writes to compacted topics: records with few keys, some of which delete."""

from __future__ import annotations

import random
from typing import Final

import attrs
from triolog.protocol.types import TopicPartition
from triolog.tools.client.producer import Producer

from ..history import KEY_MARK, TOMBSTONE_MARK
from ..script import Step
from .producers import KafkaProducer
from .transactions import Transactional

KEYS: Final = 5
TOMBSTONES: Final = 0.15


def with_key(name: str, rng: random.Random) -> str:
    """The id of a record that has a key."""
    tombstone = TOMBSTONE_MARK if rng.random() < TOMBSTONES else ""
    return f"{name}{KEY_MARK}k{rng.randrange(KEYS)}{tombstone}"


@attrs.define(eq=False)
class KeyedProducer(KafkaProducer):
    def name(self, number: int) -> str:
        return with_key(super().name(number), self.rng)


@attrs.define(eq=False)
class Keeper(Transactional):
    """Changes some keys at once, or takes that back."""

    async def one(self, producer: Producer, step: Step) -> bool:
        where = TopicPartition(step.args["topic"], step.args["partition"])
        names = [with_key(f"{self.who}:{self._sent + number}", self.rng) for number in range(step.args["count"])]
        self._sent += len(names)
        return await self.transact(producer, [(where, name) for name in names], end=step.args["end"])
