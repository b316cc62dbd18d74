"""Apache Kafka decodes what is kept of share groups."""

from __future__ import annotations

from pathlib import Path

from triolog.protocol.types import TopicPartition
from triolog.server.broker import ShareHeartbeat

from tests.kafka.tools import decoded
from tests.kafka.written_logs import files_of
from tests.support.brokers import TOPIC, one_partition
from tests.support.kafka_jars import KafkaCalls
from tests.support.share_groups import KeptShareStates


async def test_every_kind_of_record_is_understood(tmp_path: Path, kafka: KafkaCalls) -> None:
    async with one_partition(tmp_path) as broker:
        share = broker.groups.share
        share.states = KeptShareStates()
        join = ShareHeartbeat(
            group_id="group", member_id="a", rack_id="rack", topic_names=(TOPIC,), client_id="client", client_host="/127.0.0.1"
        )
        await share.heartbeat(join)
        await share.heartbeat(ShareHeartbeat(group_id="group", member_id="a", member_epoch=2, client_id="client"))
        await share.heartbeat(ShareHeartbeat(group_id="group", member_id="b", topic_names=(TOPIC,)))
        await share.heartbeat(ShareHeartbeat(group_id="group", member_id="b", member_epoch=-1))
        await share.alter_offsets("other", [(TopicPartition(TOPIC, 0), 1)])
    outcome = kafka.dump(files_of(tmp_path / "__consumer_offsets-0", ".log"), "--offsets-decoder")
    records = decoded(outcome.ok())
    assert outcome.stderr == ""
    assert {key["type"] for key, _ in records} == {"10", "11", "12", "13", "14", "15"}
    of_group = [(key, value) for key, value in records if key["data"]["groupId"] == "group"]
    said = {(key["type"], key["data"].get("memberId")): value and value["data"] for key, value in of_group}
    assert (said["11", None]["epoch"], said["12", None]["assignmentEpoch"]) == (5, 4)
    assert said["10", "b"] is said["13", "b"] is said["14", "b"] is None
    member = said["10", "a"]
    assert (member["rackId"], member["clientId"], member["subscribedTopicNames"]) == ("rack", "client", [TOPIC])
    assert (said["14", "a"]["memberEpoch"], said["14", "a"]["previousMemberEpoch"], said["14", "a"]["state"]) == (3, 2, 0)
    assert [each["partitions"] for each in said["13", "a"]["topicPartitions"]] == [[0]]
    states = said["15", None]
    assert (states["initializingTopics"], states["deletingTopics"]) == ([], [])
    assert [(each["topicName"], each["partitions"]) for each in states["initializedTopics"]] == [(TOPIC, [0])]
