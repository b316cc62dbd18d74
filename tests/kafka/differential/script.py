"""A script: as many requests as wanted, drawn by a seed. The same seed and the same answers of Kafka give the same requests."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs
from triolog.protocol.kafka.messages.records import ProduceRequest

from . import admin_steps, data_steps, group_steps, quota_steps, streams_steps, transaction_steps
from .answers import differences
from .deviations import excuse
from .sides import Late, Side
from .world import GROUPS, TOPICS, Step, World

Weights = Mapping[Callable[[World], Step], int]
WEIGHTS: Final[Weights] = {
    data_steps.produce: 14,
    data_steps.produce_idempotent: 9,
    data_steps.produce_in_transaction: 9,
    data_steps.fetch: 12,
    data_steps.fetch_in_session: 6,
    data_steps.list_offsets: 9,
    data_steps.epoch_ends: 2,
    data_steps.cut_off: 2,
    admin_steps.create: 2,
    admin_steps.delete: 1,
    admin_steps.grow: 1,
    admin_steps.describe_configs: 2,
    admin_steps.alter_configs: 1,
    admin_steps.alter_some: 2,
    admin_steps.metadata: 4,
    admin_steps.describe_partitions: 1,
    admin_steps.cluster: 1,
    admin_steps.coordinator: 2,
    admin_steps.describe_producers: 3,
    admin_steps.broker_configs: 1,
    admin_steps.log_dirs: 2,
    group_steps.join: 6,
    group_steps.sync: 4,
    group_steps.heartbeat: 3,
    group_steps.leave: 3,
    group_steps.describe_groups: 3,
    group_steps.list_groups: 2,
    group_steps.delete_groups: 2,
    group_steps.commit: 6,
    group_steps.fetch_offsets: 6,
    group_steps.delete_offsets: 2,
    streams_steps.heartbeat: 14,
    streams_steps.odd_heartbeat: 2,
    streams_steps.describe: 4,
    streams_steps.commit: 3,
    streams_steps.fetch_offsets: 2,
    streams_steps.configure: 1,
    streams_steps.delete_group: 1,
    streams_steps.delete_internal_topics: 1,
    streams_steps.other_kind: 2,
    transaction_steps.new_producer: 2,
    transaction_steps.init_transactions: 4,
    transaction_steps.add_partitions: 4,
    transaction_steps.add_offsets: 2,
    transaction_steps.commit_offsets: 3,
    transaction_steps.end: 6,
    transaction_steps.describe_transactions: 3,
    transaction_steps.list_transactions: 2,
    transaction_steps.write_markers: 2,
}
QUOTAS: Final[Weights] = {quota_steps.alter: 3, quota_steps.describe: 2}
LAST: Final = 5
"""So many requests are shown before the one whose answers differ."""


@attrs.frozen(kw_only=True)
class Difference:
    """Where the two brokers have answered a request differently."""

    seed: int
    number: int
    step: Step
    places: tuple[tuple[str, Any, Any], ...]
    ours: Any
    theirs: Any
    before: tuple[Step, ...]

    def __str__(self) -> str:
        lines = [f"seed {self.seed}, request {self.number}: version {self.step.version} of {self.step.body}"]
        lines += [f"  {place}: triolog {ours!r}, Kafka {theirs!r}" for place, ours, theirs in self.places[:12]]
        lines += [f"triolog: {self.ours}", f"Kafka:   {self.theirs}", "the requests before:"]
        lines += [f"  version {step.version} of {step.body}" for step in self.before]
        return "\n".join(lines)


@attrs.define(eq=False)
class Script:
    """One run against both. Owner: who runs it."""

    seed: int
    ours: Side
    kafka: Side
    world: World
    weights: Weights = attrs.field(factory=lambda: WEIGHTS)
    _done: list[Step] = attrs.field(factory=list)

    @classmethod
    def of(cls, seed: int, ours: Side, kafka: Side, weights: Weights = WEIGHTS) -> Script:
        mine, theirs = ours.versions(), kafka.versions()
        shared = {key: (max(mine[key][0], theirs[key][0]), min(mine[key][1], theirs[key][1])) for key in mine if key in theirs}
        return cls(seed, ours, kafka, World(random.Random(seed), shared), weights)

    def run(self, count: int) -> Iterator[Difference]:
        """So many requests, beside those that make the first topics."""
        for side in (self.ours, self.kafka):
            side.prepare()
        if self.weights is WEIGHTS:
            self.world.due += [group_steps.anchor(self.world, name) for name in GROUPS]
            for _ in TOPICS[:4]:
                yield from self._take(admin_steps.create(self.world))
        for make in self.world.rng.choices(list(self.weights), list(self.weights.values()), k=count):
            yield from self._take(make(self.world))

    def clear(self) -> None:
        """Leave both as empty as they were, for another script."""
        world = self.world
        last = [transaction_steps.restart(world, name) for name in transaction_steps.TRANSACTIONAL_IDS]
        last += [group_steps.leave_now(world, group) for group in world.groups.values() if group.member]
        last += streams_steps.end_all(world)
        last += [group_steps.delete_now(world), admin_steps.delete_all(world)]
        for step in last:
            found = list(self._take(step))
            assert not found, found[0]

    def _take(self, step: Step) -> Iterator[Difference]:
        self._done.append(step)
        theirs = self.kafka.ask(step.body, step.version)
        if isinstance(theirs, Late):
            yield self._difference(step, "not asked", theirs, (("the answer", "not asked", theirs),))
            return
        if step.changes_metadata:
            self.kafka.settle_metadata()
        if step.transactional_id:
            self.kafka.settle_transaction(step.transactional_id)
        if streams_steps.misses_internal_topics(theirs):
            self.kafka.settle_topics(step.internal_topics)
        ours = self.ours.ask(step.body, step.version)
        if isinstance(step.body, ProduceRequest) and step.body.acks == 0:
            self.ours.settle_ends(step.body, self.kafka.ends(step.body))
        if not isinstance(ours, Late):
            excuse(step, ours, theirs)
        places = tuple(differences(ours, theirs))
        if places:
            yield self._difference(step, ours, theirs, places)
        step.learn(theirs)
        if self.world.due:
            yield from self._take(self.world.due.pop())

    def _difference(self, step: Step, ours: Any, theirs: Any, places: tuple[tuple[str, Any, Any], ...]) -> Difference:
        before = tuple(self._done[-LAST - 1 : -1])
        number = len(self._done) - 1
        return Difference(seed=self.seed, number=number, step=step, places=places, ours=ours, theirs=theirs, before=before)
