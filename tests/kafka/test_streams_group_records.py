"""Apache Kafka decodes what is kept of Streams groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from triolog.server.groups.streams.values import Endpoint, StreamsHeartbeat

from tests.kafka.tools import decoded
from tests.kafka.written_logs import files_of
from tests.support.brokers import TOPIC, one_partition
from tests.support.kafka_jars import KafkaCalls
from tests.support.streams_groups import GROUP, subtopology, topology

PARTS = topology(subtopology("0", TOPIC))
NOTHING: dict[str, Any] = {"active": frozenset(), "standby": frozenset(), "warmup": frozenset()}


async def test_every_kind_of_record_is_understood(tmp_path: Path, kafka: KafkaCalls) -> None:
    async with one_partition(tmp_path, group_streams_initial_rebalance_delay_ms=0) as broker:
        streams = broker.groups.streams
        for member_id in "ab":
            join = StreamsHeartbeat(
                group_id=GROUP,
                member_id=member_id,
                rack_id="rack",
                rebalance_timeout_ms=1000,
                topology=PARTS,
                process_id=f"process-{member_id}",
                endpoint=Endpoint("host", 65_535),
                client_tags={"zone": "z"},
                client_id="client",
                client_host="/127.0.0.1",
                **NOTHING,
            )
            await streams.heartbeat(join)
        await streams.heartbeat(StreamsHeartbeat(group_id=GROUP, member_id="b", member_epoch=-1))
    outcome = kafka.dump(files_of(tmp_path / "__consumer_offsets-0", ".log"), "--offsets-decoder")
    records = decoded(outcome.ok())
    assert outcome.stderr == ""
    assert {key["type"] for key, _ in records} == {"17", "19", "20", "21", "22", "23"}
    said = {(key["type"], key["data"].get("memberId")): value and value["data"] for key, value in records}
    assert (said["17", None]["epoch"], said["20", None]["assignmentEpoch"]) == (4, 3)
    assert said["19", "b"] is said["21", "b"] is said["22", "b"] is None
    member = said["19", "a"]
    assert (member["rackId"], member["clientId"], member["processId"]) == ("rack", "client", "process-a")
    assert (member["userEndpoint"], member["clientTags"]) == (
        {"host": "host", "port": 65_535},
        [{"key": "zone", "value": "z"}],
    )
    assert [(each["subtopologyId"], each["partitions"]) for each in said["21", "a"]["activeTasks"]] == [("0", [0])]
    assert (said["22", "a"]["memberEpoch"], said["22", "a"]["state"]) == (2, 1)
    (part,) = said["23", None]["subtopologies"]
    assert (part["subtopologyId"], part["sourceTopics"]) == ("0", [TOPIC])
