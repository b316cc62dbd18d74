"""Apache Kafka decodes what is kept of consumer and Streams groups; `test_internal_topics.py` has the other kinds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from triolog.protocol.types import TopicPartition
from triolog.server.broker import ConsumerHeartbeat
from triolog.server.groups.streams.values import Endpoint, StreamsHeartbeat

from tests.kafka.tools import decoded
from tests.kafka.written_logs import files_of
from tests.support import streams_groups
from tests.support.brokers import TOPIC, one_partition
from tests.support.kafka_jars import KafkaCalls

CLIENT = {"client_id": "client", "client_host": "/127.0.0.1"}
NOTHING: dict[str, Any] = {"active": frozenset(), "standby": frozenset(), "warmup": frozenset()}


def kept(kafka: KafkaCalls, directory: Path, group: str, types: set[str]) -> dict[tuple[str, str | None], Any]:
    """The last value of each record of a group, by its type and member. All records have these types."""
    outcome = kafka.dump(files_of(directory / "__consumer_offsets-0", ".log"), "--offsets-decoder")
    records = decoded(outcome.ok())
    assert outcome.stderr == ""
    assert {key["type"] for key, _ in records} == types
    of_group = [(key, value) for key, value in records if key["data"]["groupId"] == group]
    return {(key["type"], key["data"].get("memberId")): value and value["data"] for key, value in of_group}


async def test_every_kind_of_record_of_a_consumer_group_is_understood(tmp_path: Path, kafka: KafkaCalls) -> None:
    pytest.importorskip("re2")
    async with one_partition(tmp_path) as broker:
        join = {"rebalance_timeout_ms": 60_000, "owned": frozenset[TopicPartition]()}
        await broker.groups.consumers.heartbeat(
            ConsumerHeartbeat(group_id="group", member_id="first", topic_names=(TOPIC,), **join, **CLIENT)  # type: ignore[arg-type]
        )
        named = {"instance_id": "instance", "rack_id": "rack", "topic_regex": "top.*", "server_assignor": "range"}
        await broker.groups.consumers.heartbeat(
            ConsumerHeartbeat(group_id="group", member_id="second", topic_names=(), **join, **named)  # type: ignore[arg-type]
        )
        await broker.groups.consumers.heartbeat(ConsumerHeartbeat(group_id="group", member_id="first", member_epoch=-1))
    said = kept(kafka, tmp_path, "group", {"3", "5", "6", "7", "8", "16"})
    assert (said["3", None]["epoch"], said["6", None]["assignmentEpoch"]) == (4, 3)
    assert said["5", "first"] is said["7", "first"] is said["8", "first"] is None
    assert said["16", None]["topics"] == [TOPIC]
    member = said["5", "second"]
    assert (member["instanceId"], member["subscribedTopicRegex"], member["serverAssignor"]) == ("instance", "top.*", "range")
    assert (said["8", "second"]["memberEpoch"], said["8", "second"]["state"]) == (3, 2)


async def test_every_kind_of_record_of_a_streams_group_is_understood(tmp_path: Path, kafka: KafkaCalls) -> None:
    group = streams_groups.GROUP
    parts = streams_groups.topology(streams_groups.subtopology("0", TOPIC))
    async with one_partition(tmp_path, group_streams_initial_rebalance_delay_ms=0) as broker:
        streams = broker.groups.streams
        for member_id in "ab":
            join = StreamsHeartbeat(
                group_id=group,
                member_id=member_id,
                rack_id="rack",
                rebalance_timeout_ms=1000,
                topology=parts,
                process_id=f"process-{member_id}",
                endpoint=Endpoint("host", 65_535),
                client_tags={"zone": "z"},
                **CLIENT,
                **NOTHING,
            )
            await streams.heartbeat(join)
        await streams.heartbeat(StreamsHeartbeat(group_id=group, member_id="b", member_epoch=-1))
    said = kept(kafka, tmp_path, group, {"17", "19", "20", "21", "22", "23"})
    assert (said["17", None]["epoch"], said["20", None]["assignmentEpoch"]) == (4, 3)
    assert said["19", "b"] is said["21", "b"] is said["22", "b"] is None
    member = said["19", "a"]
    assert (member["rackId"], member["clientId"], member["processId"]) == ("rack", "client", "process-a")
    assert member["userEndpoint"] == {"host": "host", "port": 65_535}
    assert member["clientTags"] == [{"key": "zone", "value": "z"}]
    assert [(each["subtopologyId"], each["partitions"]) for each in said["21", "a"]["activeTasks"]] == [("0", [0])]
    assert (said["22", "a"]["memberEpoch"], said["22", "a"]["state"]) == (2, 1)
    (part,) = said["23", None]["subtopologies"]
    assert (part["subtopologyId"], part["sourceTopics"]) == ("0", [TOPIC])
