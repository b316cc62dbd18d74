"""A script: as many requests as wanted, drawn by a seed. The same seed and the same answers of Kafka give the same requests."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.messages.groups import JoinGroupRequest
from triolog.protocol.kafka.messages.offsets import OffsetCommitRequest
from triolog.protocol.kafka.messages.records import FetchRequest, ListOffsetsRequest, ProduceRequest
from triolog.protocol.kafka.messages.streams_groups import StreamsGroupDescribeRequest, StreamsGroupHeartbeatRequest
from triolog.protocol.kafka.messages.transactions import EndTxnRequest, TxnOffsetCommitRequest
from triolog.protocol.records.batch import COMPRESSION_MASK

from tests.kafka.differential import admin_steps, data_steps, group_steps, quota_steps, streams_steps, transaction_steps
from tests.kafka.differential.answers import differences
from tests.kafka.differential.sides import Late, Side
from tests.kafka.differential.world import GROUPS, TOPICS, Step, World

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


FIRST_WITH_ZSTD: Final = 10
MAX_TIMESTAMP: Final = -3
REFUSALS: Final = (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_REQUIRED_ACKS)
FIRST_WITH_NEXT_EPOCH: Final = 5


def excuse(step: Step, ours: Any, theirs: Any) -> None:
    if isinstance(step.body, FetchRequest) and step.version < FIRST_WITH_ZSTD:
        _excuse_refused_zstd(ours, theirs)
    if isinstance(step.body, FetchRequest):
        _excuse_sizes(step, ours, theirs)
    if isinstance(step.body, EndTxnRequest) and step.version < FIRST_WITH_NEXT_EPOCH and not ours["error_code"]:
        _excuse_end_of_nothing(theirs)
    if isinstance(step.body, OffsetCommitRequest | TxnOffsetCommitRequest):
        _excuse_generation_of_no_member(ours, theirs)
    if isinstance(step.body, ListOffsetsRequest):
        _excuse_times_below_the_start(step, ours, theirs)
    if isinstance(step.body, EndTxnRequest) and ours["error_code"] == ErrorCode.PRODUCER_FENCED:
        _excuse_end_again(ours, theirs)
    if isinstance(step.body, JoinGroupRequest) and ours["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID:
        _excuse_protocol_of_no_member(theirs)
    if isinstance(step.body, StreamsGroupDescribeRequest):
        for answer in (ours, theirs):
            _excuse_order_of_members(answer)
        _excuse_partitions_not_told(ours, theirs)
    if isinstance(step.body, StreamsGroupHeartbeatRequest):
        for answer in (ours, theirs):
            _excuse_order_in_application(answer)
    if isinstance(step.body, ProduceRequest):
        _excuse_unknown_codec(ours, theirs)


def _excuse_end_of_nothing(theirs: Any) -> None:
    """To end what nothing has joined is fine here."""
    if theirs["error_code"] == ErrorCode.INVALID_TXN_STATE:
        theirs["error_code"] = 0


def _excuse_end_again(ours: Any, theirs: Any) -> None:
    """The epoch before the current one: for Kafka this may be an end that is asked for again, of the same kind or the other."""
    if theirs["error_code"] in (ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE):
        theirs.update(ours)


def _excuse_order_of_members(answer: Any) -> None:
    """They come in the order of Kafka's hash maps."""
    for group in answer["groups"]:
        group["members"].sort(key=lambda member: member["member_id"])


def _excuse_partitions_not_told(ours: Any, theirs: Any) -> None:
    """Kafka tells how many partitions internal topics have from the second heartbeat of a group on."""
    for mine, other in zip(ours["groups"], theirs["groups"], strict=True):
        parts = ((group["topology"] or {}).get("subtopologies", ()) for group in (mine, other))
        for one, two in zip(*parts, strict=False):
            for kind in ("state_changelog_topics", "repartition_source_topics"):
                for topic, same in zip(one[kind], two[kind], strict=False):
                    if same["partitions"] == 0:
                        topic["partitions"] = 0


def _excuse_order_in_application(answer: Any) -> None:
    """So do the names of missing topics, and who has an endpoint."""
    for status in answer["status"]:
        status["status_detail"] = sorted(status["status_detail"].replace(", ", " ").split())
    if answer["partitions_by_user_endpoint"]:
        answer["partitions_by_user_endpoint"].sort(key=lambda each: each["user_endpoint"]["host"])


def _each(ours: Any, theirs: Any, topics: str = "topics", partitions: str = "partitions") -> Iterator[tuple[Any, Any]]:
    """Both answers for a partition."""
    for mine, other in zip(ours.get(topics, ()), theirs.get(topics, ()), strict=False):
        yield from zip(mine[partitions], other[partitions], strict=False)


def _excuse_unknown_codec(ours: Any, theirs: Any) -> None:
    """Kafka fails at a codec that there is not, and at records that cannot be unpacked; here they are refused."""
    for one, two in _each(ours, theirs, "responses", "partition_responses"):
        if two["error_code"] == ErrorCode.UNKNOWN_SERVER_ERROR and one["error_code"] in REFUSALS:
            two.update(one)


def _excuse_times_below_the_start(step: Step, ours: Any, theirs: Any) -> None:
    """Kafka looks into the first segment whose largest time is late enough, and finds nothing when that record is below the log
    start offset or behind the last stable offset; here the search goes on. So it is with the largest time of all."""
    asked = {(topic.name, each.partition_index): each.timestamp for topic in step.body.topics for each in topic.partitions}
    for mine, other in zip(ours["topics"], theirs["topics"], strict=True):
        for one, two in zip(mine["partitions"], other["partitions"], strict=True):
            timestamp = asked[mine["name"], one["partition_index"]]
            looks = not isinstance(timestamp, int) or timestamp >= 0
            has_larger = one["offset"] == -1 or two["offset"] < one["offset"]  # -1: all records are below the start
            is_below = has_larger if timestamp == MAX_TIMESTAMP else looks and two["offset"] == -1
            if is_below and two["error_code"] == one["error_code"] == 0:
                two.update(one)


def _excuse_generation_of_no_member(ours: Any, theirs: Any) -> None:
    """A group that has offsets and never had members is none here when somebody names a generation of it."""
    for one, two in _each(ours, theirs):
        if (one["error_code"], two["error_code"]) == (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID):
            two.update(one)


def _excuse_protocol_of_no_member(theirs: Any) -> None:
    """Of an unknown member without a protocol type, Kafka says that the protocol does not fit."""
    if theirs["error_code"] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
        theirs["error_code"] = ErrorCode.UNKNOWN_MEMBER_ID


def _excuse_sizes(step: Step, ours: Any, theirs: Any) -> None:
    """A batch that a broker compresses has not the same size in both, so that more or fewer fit into the bytes asked for; and
    an answer ends with a segment, which Kafka may have begun for a batch that it refused."""
    for mine, other in zip(ours.get("responses", ()), theirs.get("responses", ()), strict=False):
        has_rolled = not step.rolled.isdisjoint([mine["topic"], mine["topic_id"]])
        for one, two in zip(mine["partitions"], other["partitions"], strict=False):
            count = min(len(one["records"] or ()), len(two["records"] or ()))
            is_compressed = count and any(batch["attributes"] & COMPRESSION_MASK for batch in one["records"] + two["records"])
            if is_compressed or (count and has_rolled):
                if len(one["records"]) != len(two["records"]):
                    one["aborted_transactions"] = two["aborted_transactions"]
                del one["records"][count:], two["records"][count:]


def _excuse_refused_zstd(ours: Any, theirs: Any) -> None:
    """Kafka gives batches of zstd to a client whose version does not know them, unless the topic is configured so."""
    for one, two in _each(ours, theirs, "responses"):
        if one["error_code"] == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:
            two.update(one)
