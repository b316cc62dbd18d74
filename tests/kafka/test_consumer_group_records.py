"""Apache Kafka decodes what is kept of groups whose assignments the server makes."""

from __future__ import annotations

from pathlib import Path

import pytest
from triolog.server.broker import ConsumerHeartbeat

from tests.kafka.tools import decoded
from tests.kafka.written_logs import files_of
from tests.support.brokers import TOPIC, one_partition
from tests.support.kafka_jars import KafkaCalls

JOIN = ConsumerHeartbeat(
    group_id="group",
    member_id="first",
    rebalance_timeout_ms=60_000,
    topic_names=(TOPIC,),
    owned=frozenset(),
    client_id="client",
    client_host="/127.0.0.1",
)


async def test_every_kind_of_record_is_understood(tmp_path: Path, kafka: KafkaCalls) -> None:
    pytest.importorskip("re2")
    async with one_partition(tmp_path) as broker:
        await broker.groups.consumer_heartbeat(JOIN)
        second = ConsumerHeartbeat(
            group_id="group",
            member_id="second",
            instance_id="instance",
            rack_id="rack",
            rebalance_timeout_ms=30_000,
            topic_names=(),
            topic_regex="top.*",
            server_assignor="range",
            owned=frozenset(),
        )
        await broker.groups.consumer_heartbeat(second)
        await broker.groups.consumer_heartbeat(ConsumerHeartbeat(group_id="group", member_id="first", member_epoch=-1))
    outcome = kafka.dump(files_of(tmp_path / "__consumer_offsets-0", ".log"), "--offsets-decoder")
    records = decoded(outcome.ok())
    assert outcome.stderr == ""
    assert {key["type"] for key, _ in records} == {"3", "5", "6", "7", "8", "16"}
    said = {(key["type"], key["data"].get("memberId")): value and value["data"] for key, value in records}
    assert (said["3", None]["epoch"], said["6", None]["assignmentEpoch"]) == (3, 2)
    assert said["5", "first"] is said["7", "first"] is said["8", "first"] is None
    assert said["16", None]["topics"] == [TOPIC]
    member = said["5", "second"]
    assert (member["instanceId"], member["subscribedTopicRegex"], member["serverAssignor"]) == ("instance", "top.*", "range")
    assert (said["8", "second"]["memberEpoch"], said["8", "second"]["state"]) == (2, 2)
