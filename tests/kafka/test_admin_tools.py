from __future__ import annotations

import json
from pathlib import Path

from triolog.server.embedded import BlockingBroker

from tests.kafka.tools import Tools, lines


def test_kafka_topics_makes_describes_grows_and_deletes(tools: Tools, broker: BlockingBroker) -> None:
    made = tools(
        "topics", "--create", "--topic", "t", "--partitions", 2, "--replication-factor", 1, "--config", "retention.ms=7"
    )
    assert lines(made) == ["Created topic t."]
    assert broker.describe_topic("t").config == {"retention.ms": "7"}
    assert lines(tools("topics", "--list")) == ["t"]
    summary, first, second = lines(tools("topics", "--describe", "--topic", "t"))
    assert summary.startswith("Topic: t\t")
    assert "PartitionCount: 2\tReplicationFactor: 1\tConfigs: " in summary
    assert "retention.ms=7" in summary
    for number, line in enumerate((first, second)):
        assert f"Partition: {number}\tLeader: 1\tReplicas: 1\tIsr: 1" in line
    tools("topics", "--alter", "--topic", "t", "--partitions", 5)
    assert len(broker.describe_topic("t").partitions) == 5
    assert lines(tools("topics", "--describe", "--under-replicated-partitions")) == []
    assert lines(tools("topics", "--describe", "--unavailable-partitions")) == []
    tools("topics", "--delete", "--topic", "t")
    assert broker.topics() == []


def test_kafka_configs_describes_and_alters(tools: Tools, broker: BlockingBroker) -> None:
    broker.create_topic("t")
    topic = ("--entity-type", "topics", "--entity-name", "t")
    tools("configs", *topic, "--alter", "--add-config", "retention.ms=7,cleanup.policy=[delete,compact]")
    assert broker.describe_topic("t").config == {"retention.ms": "7", "cleanup.policy": "delete,compact"}
    tools("configs", *topic, "--alter", "--delete-config", "retention.ms")
    told = lines(tools("configs", *topic, "--describe"))
    assert told[0] == "Dynamic configs for topic t are:"
    assert [line.split()[0] for line in told[1:]] == ["cleanup.policy=delete,compact"]
    everything = tools("configs", *topic, "--describe", "--all")
    assert "retention.ms=604800000 sensitive=false synonyms={DEFAULT_CONFIG:log.retention.ms=604800000}" in everything
    of_broker = tools("configs", "--entity-type", "brokers", "--entity-name", 1, "--describe", "--all")
    assert "num.partitions=1 sensitive=false synonyms={DEFAULT_CONFIG:num.partitions=1}" in of_broker
    node = ("--entity-type", "brokers", "--entity-name", 1)
    tools("configs", *node, "--alter", "--add-config", "log.retention.ms=5")
    told = tools("configs", *node, "--describe")
    assert "log.retention.ms=5 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.retention.ms=5" in told
    assert "retention.ms=5 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.retention.ms=5" in tools(
        "configs", *topic, "--describe", "--all"
    )
    refused = tools.call("configs", *node, "--alter", "--add-config", "num.partitions=2")
    assert refused.exit_code == 1
    assert "num.partitions: cannot be set" in refused.stderr


def test_kafka_configs_sets_and_tells_client_quotas(tools: Tools, broker: BlockingBroker) -> None:
    of_client = ("--entity-type", "users", "--entity-default", "--entity-type", "clients", "--entity-name", "sensor")
    of_address = ("--entity-type", "ips", "--entity-name", "127.0.0.9")
    tools("configs", *of_client, "--alter", "--add-config", "producer_byte_rate=1024,request_percentage=12.5")
    tools("configs", *of_address, "--alter", "--add-config", "connection_creation_rate=5")
    [told] = lines(tools("configs", *of_client, "--describe"))
    assert told.startswith("Quota configs for ")
    assert {"producer_byte_rate=1024.0", "request_percentage=12.5"} <= {word.strip(",") for word in told.split()}
    assert "connection_creation_rate=5.0" in tools("configs", *of_address, "--describe")
    tools("configs", *of_client, "--alter", "--delete-config", "producer_byte_rate")
    assert "producer_byte_rate" not in tools("configs", *of_client, "--describe")
    refused = tools.call("configs", *of_client, "--alter", "--add-config", "producer_byte_rate=-1")
    assert refused.exit_code == 1
    assert "must be greater than 0" in refused.stderr


def test_kafka_get_offsets_and_delete_records(tools: Tools, broker: BlockingBroker, tmp_path: Path) -> None:
    broker.create_topic("t", 2)
    broker.append("t", [b"a", b"b", b"c"])
    assert lines(tools("get-offsets", "--topic", "t")) == ["t:0:3", "t:1:0"]
    wanted = tmp_path / "records.json"
    wanted.write_text(json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "offset": 2}]}))
    assert "partition: t-0\tlow_watermark: 2" in tools("delete-records", "--offset-json-file", wanted)
    assert lines(tools("get-offsets", "--topic", "t", "--time", "earliest")) == ["t:0:2", "t:1:0"]
    assert lines(tools("get-offsets", "--topic", "t", "--time", "max-timestamp", "--partitions", "0")) == ["t:0:2"]


def test_kafka_log_dirs_tells_sizes(tools: Tools, broker: BlockingBroker) -> None:
    broker.create_topic("t", 2)
    broker.append("t", [b"a"], partition=1)
    told = json.loads(lines(tools("log-dirs", "--describe", "--topic-list", "t"))[-1])
    [node] = told["brokers"]
    [directory] = node["logDirs"]
    assert (node["broker"], directory["logDir"], directory["error"]) == (1, broker.path, None)
    sizes = {each["partition"]: each["size"] for each in directory["partitions"]}
    assert sizes == {f"t-{each.partition}": each.size_bytes for each in broker.describe_topic("t").partitions}
    assert sizes["t-1"] > 0


def test_cluster_quorum_and_features_are_told(tools: Tools, broker: BlockingBroker) -> None:
    assert lines(tools.cluster("cluster-id"))[0].startswith("Cluster ID: ")
    assert tools.address.rpartition(":")[2] in tools.cluster("list-endpoints").split()
    status = dict(line.split(":", 1) for line in lines(tools("metadata-quorum", "describe", "--status")))
    assert (status["LeaderId"].strip(), status["CurrentObservers"].strip()) == ("1", "[]")
    assert '"id": 1' in status["CurrentVoters"]
    _, replica = lines(tools("metadata-quorum", "describe", "--replication"))
    assert replica.split()[0] == "1"
    assert "Leader" in replica
    told = " ".join(tools("features", "describe").split())
    assert "Feature: group.version SupportedMinVersion: 0 SupportedMaxVersion: 1 FinalizedVersionLevel: 1 " in told
    versions = tools("broker-api-versions")
    assert "CreateTopics(19): 2 to 7 [usable: 7]" in versions
    assert "DescribeTopicPartitions(75): 0 [usable: 0]" in versions


def test_nothing_is_elected_or_moved(tools: Tools, broker: BlockingBroker, tmp_path: Path) -> None:
    broker.create_topic("t", 2)
    elected = tools("leader-election", "--election-type", "preferred", "--topic", "t", "--partition", 0)
    assert "Valid replica already elected for partitions t-0" in elected
    plan = tmp_path / "plan.json"
    moves = [{"topic": "t", "partition": number, "replicas": [1]} for number in (0, 1)]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    assert "Successfully started partition reassignments for t-0,t-1" in tools(
        "reassign-partitions", "--reassignment-json-file", plan, "--execute"
    )
    assert "Reassignment of partition t-1 is completed." in tools(
        "reassign-partitions", "--reassignment-json-file", plan, "--verify"
    )
    assert "No partition reassignments found." in tools("reassign-partitions", "--list")
