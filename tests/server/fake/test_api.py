"""The control port over the wire: a server process, HTTP from the standard library, a real client beside it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from triolog.protocol.kafka.messages.streams_groups import StreamsGroupEndpoint
from triolog.server.fake.faults.rules import RuleError
from triolog.server.fake.serving import check_rules

from tests.support.control_port import PATIENCE_S, Control, started
from tests.support.forked_servers import ServerForker
from tests.support.kafka_wire import CLIENT_ID, KafkaWire
from tests.support.server_process import ServerFolder
from tests.support.streams_members import CHANGELOG, GROUP, MEMBER, REPARTITION, SOURCE, StreamsMember

QUICK_GROUPS = {"TRIOLOG_GROUP_SHARE_HEARTBEAT_INTERVAL_MS": "100"}
CHANGES = {"partitions": 2, "config": {"cleanup.policy": "compact"}}


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory, server_forker: ServerForker) -> Iterator[Control]:
    with ServerFolder(tmp_path_factory.mktemp("control"), command=server_forker) as folder:
        server, control = started(folder, "--control", "127.0.0.1:0", extra_environment=QUICK_GROUPS)
        yield control
        assert server.stop() == 0, server.stderr()
        assert "Traceback" not in server.stderr()


@pytest.fixture(autouse=True)
def _fresh(control: Control) -> None:
    control.do("POST", "/reset")


def sent(producer: Producer, topic: str, value: bytes) -> bool:
    """Whether it was delivered."""
    errors: list[Any] = []
    producer.produce(topic, value, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    return errors[0] is None


def test_without_being_asked_for_there_is_no_control_port(server_folder: ServerFolder) -> None:
    server = server_folder.start()
    assert "control" not in json.loads(server.ready_file.read_text())


def test_a_page_of_another_site_can_change_nothing(control: Control) -> None:
    control.do("POST", "/topics", {"name": "kept"})
    host, _, port = control.ready["control"].rpartition(":")
    json_type = {"Content-Type": "application/json"}
    foreign: list[tuple[dict[str, str], int]] = [
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Origin": "http://evil.example"}, 403),
        ({**json_type, "Origin": "http://evil.example"}, 403),
        ({**json_type, "Host": "evil.example"}, 403),
    ]
    for headers, status in foreign:
        connection = HTTPConnection(host, int(port), timeout=PATIENCE_S)
        connection.request("POST", "/reset", None, headers)
        answer = connection.getresponse()
        assert (answer.status, "message" in json.loads(answer.read())) == (status, True)
        connection.close()
    assert control.do("GET", "/topics")


@pytest.mark.parametrize("body", [None, b'{"name": "made"}'])
def test_a_program_that_sends_no_content_type_is_answered(control: Control, body: bytes | None) -> None:
    """As `curl -X POST`, and the samples in Java and Go of docs/testing-with-triolog.md."""
    host, _, port = control.ready["control"].rpartition(":")
    with closing(HTTPConnection(host, int(port), timeout=PATIENCE_S)) as connection:
        connection.request("POST", "/topics" if body else "/reset", body)
        assert connection.getresponse().status == 200
    assert set(control.do("GET", "/topics")) == ({"made"} if body else set())


def test_other_machines_reach_a_control_port_with_a_token_only(server_folder: ServerFolder) -> None:
    refused = server_folder.spawn("--control", "0.0.0.0:0")
    assert refused.wait_exit() == 2
    assert "--control-token-file" in refused.stderr()
    token = server_folder.path / "token"
    token.write_text("0123456789abcdef")
    server = server_folder.start("--control", "0.0.0.0:0", "--control-token-file", str(token))
    port = server.address_of("control").port
    shown = {"Authorization": "Bearer 0123456789abcdef"}
    for headers, status in (({}, 401), (shown, 200)):
        connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        connection.request("POST", "/reset", None, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status
        connection.close()
    assert server.stop() == 0


def test_rules_fire_and_are_counted(control: Control) -> None:
    fault = control.do("POST", "/faults", {"api": "Produce", "topic": "t", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2})
    assert sent(control.producer(), "t", b"v")
    assert control.do("POST", f"/faults/{fault['number']}/wait", {"times": 2})["fired"] == 2
    assert [each["errors"] for each in control.do("GET", "/requests?api=Produce&topic=t")] == [
        ["NOT_LEADER_OR_FOLLOWER"],
        ["NOT_LEADER_OR_FOLLOWER"],
        [],
    ]
    control.do("DELETE", f"/faults/{fault['number']}")
    assert control.do("GET", "/faults") == []


def test_a_request_is_held_and_released(control: Control) -> None:
    fault = control.do("POST", "/faults", {"api": "Produce", "hold": True})
    producer = control.producer()
    producer.produce("t", b"v")
    producer.flush(0)
    control.do("POST", f"/faults/{fault['number']}/wait")
    assert control.do("GET", "/requests?api=Produce")[0]["is_answered"] is False
    assert control.do("POST", f"/faults/{fault['number']}/release")["is_released"]
    assert producer.flush(PATIENCE_S) == 0
    control.do("POST", "/requests/wait", {"api": "Produce", "answered": True})


def test_topics_and_records(control: Control) -> None:
    control.do("POST", "/topics", {"name": "orders", "partitions": 2, "config": {"retention.ms": -1}})
    blob = base64.b64encode(b"\xff\xfe").decode()
    record = {"key": "k", "value_base64": blob, "timestamp_ms": 5, "headers": {"h": "x"}}
    assert control.do("POST", "/topics/orders/records", {"partition": 1, "records": ["plain", record]})["base_offset"] == 0
    first, second = control.do("POST", "/topics/orders/wait", {"count": 2, "partition": 1})
    assert (first["value"], first["partition"], first["offset"]) == ("plain", 1, 0)
    assert (second["value_base64"], second["key"], second["timestamp_ms"]) == (blob, "k", 5)
    assert second["headers"] == [{"name": "h", "value": "x"}]
    assert control.do("GET", "/topics") == {"orders": {"0": 0, "1": 2}}
    assert control.do("GET", "/topics/orders/records?partition=1&offset=1") == [second]
    control.do("DELETE", "/topics/orders")
    assert control.do("GET", "/topics") == {}


def test_a_crash_and_a_restart_on_the_same_ports_and_connections_are_counted_over_it(control: Control) -> None:
    producer = control.producer()
    assert sent(producer, "t", b"before")
    before = control.do("GET", "/")
    assert control.do("POST", "/crash")["is_running"] is False
    assert control.ask("GET", "/topics")[0] == 409
    after = control.do("POST", "/restart")
    assert (after["kafka"], after["native"], after["starts"]) == (before["kafka"], before["native"], before["starts"] + 1)
    counted = after["connections"]["kafka"]
    assert counted["accepted"] >= 1
    assert counted["received_bytes"] > counted["sent_bytes"] / 1000 > 0
    assert sent(producer, "t", b"after")
    assert control.values("t") == ["before", "after"]


def test_the_clock_is_moved(control: Control) -> None:
    before = control.do("GET", "/clock")["now_ms"]
    assert control.do("POST", "/clock/advance", {"seconds": 3600})["now_ms"] >= before + 3_600_000
    assert control.do("POST", "/clock/freeze")["is_frozen"] is True
    assert control.do("GET", "/clock") == control.do("GET", "/clock")
    assert control.do("POST", "/clock/unfreeze")["is_frozen"] is False


def test_retention_and_compaction_are_applied_at_once(control: Control) -> None:
    control.do("POST", "/topics", {"name": "aged", "config": {"retention.ms": 60_000, "segment.ms": 60_000}})
    control.do("POST", "/topics/aged/records", {"records": ["old"]})
    control.do("POST", "/clock/advance", {"seconds": 3600})
    assert control.do("POST", "/retention")["segments"] in (0, 1)  # the clock has woken the server's own look, too
    assert control.values("aged") == []
    control.do("POST", "/topics", {"name": "table", "config": {"cleanup.policy": "compact"}})
    control.do("POST", "/topics/table/records", {"records": [{"key": "k", "value": "old"}, {"key": "k", "value": "new"}]})
    assert control.do("POST", "/topics/table/compact", {"partition": 0}) == {"rounds": 1}
    assert control.values("table") == ["new"]


def test_a_snapshot_is_a_directory_that_another_server_serves(control: Control, server_folder: ServerFolder) -> None:
    control.do("POST", "/topics", {"name": "t"})
    control.do("POST", "/topics/t/records", {"records": ["v"]})
    control.do("POST", "/snapshot", {"path": str(server_folder.data_dir)})
    _, copy = started(server_folder, "--control", "127.0.0.1:0")
    assert copy.values("t") == ["v"]


def test_a_disk_fault_is_waited_for_let_go_and_taken_away(control: Control) -> None:
    """The device would take an hour."""
    rule = {"effect": "delay", "operation": "write", "path": "t-0/*.log", "delay_ms": 3_600_000}
    place = f"/disk-faults/{control.do('POST', '/disk-faults', rule)['number']}"
    assert control.ask("POST", f"{place}/wait", {"timeout_ms": 1})[0] == 408
    producer = control.producer()
    producer.produce("t", b"v")
    assert control.do("POST", f"{place}/wait", {"times": 1, "timeout_ms": 30_000})["fired"] == 1
    assert (control.do("GET", place)["is_released"], control.values("t")) == (False, [])
    assert control.do("POST", f"{place}/release")["is_released"]
    assert producer.flush(PATIENCE_S) == 0
    assert control.values("t") == ["v"]
    control.do("DELETE", place)
    assert (control.do("GET", "/disk-faults"), control.ask("GET", place)[0]) == ([], 404)
    control.do("POST", "/disk-faults", {"effect": "error", "operation": "write", "path": "t-0/*.log"})
    assert not sent(control.producer(retries=0), "t", b"v")
    control.do("DELETE", "/disk-faults")
    assert control.do("GET", "/disk-faults") == []


def test_nodes_go_and_leaders_move(server_folder: ServerFolder) -> None:
    _, control = started(server_folder, "--control", "127.0.0.1:0", "--nodes", "2")
    control.do("POST", "/topics", {"name": "t"})
    epochs = [control.do("POST", "/leaders", {"topic": "t", "partition": 0, "node": node})["leader_epoch"] for node in (2, 1)]
    assert epochs == [1, 2]
    control.do("POST", "/coordinators", {"name": "g", "node": 2})
    control.do("POST", "/nodes/2/down")
    assert [(each["node"], each["is_up"]) for each in control.do("GET", "/")["nodes"]] == [(1, True), (2, False)]
    control.do("POST", "/nodes/2/up")
    assert control.ask("POST", "/nodes/9/down")[0] == 404


def brokers(control: Control) -> dict[int, str]:
    """By node, the addresses that Metadata has."""
    listed = AdminClient({"bootstrap.servers": control.ready["kafka"], "log_level": 0}).list_topics(timeout=PATIENCE_S).brokers
    return {number: f"{each.host}:{each.port}" for number, each in listed.items()}


def test_clients_are_sent_to_the_advertised_address_in_this_life_and_the_next(server_folder: ServerFolder) -> None:
    _, control = started(server_folder, "--control", "127.0.0.1:0")
    advertised = f"localhost:{control.ready['kafka'].rpartition(':')[2]}"
    assert brokers(control) == {1: control.ready["kafka"]}
    control.do("POST", "/advertised", {"address": advertised})
    assert brokers(control) == {1: advertised}
    control.do("POST", "/crash")
    control.do("POST", "/advertised", {"address": "proxy.example:4000"})
    control.do("POST", "/restart")
    assert brokers(control) == {1: "proxy.example:4000"}
    control.do("POST", "/advertised", {"address": advertised})
    control.do("POST", "/reset")
    assert sent(control.producer(), "t", b"v")


def test_each_of_several_nodes_has_its_advertised_address(server_folder: ServerFolder) -> None:
    _, control = started(server_folder, "--control", "127.0.0.1:0", "--nodes", "2")
    before = brokers(control)
    state = control.do("POST", "/advertised", {"address": "proxy.example:4000", "node": 2})
    assert brokers(control) == {1: before[1], 2: "proxy.example:4000"}
    assert [each["address"] for each in state["nodes"]] == [before[1], "proxy.example:4000"]
    control.do("POST", "/restart")
    assert brokers(control) == {1: before[1], 2: "proxy.example:4000"}
    assert control.ask("POST", "/advertised", {"address": "proxy.example:4000"})[0] == 400
    assert control.ask("POST", "/advertised", {"address": "proxy.example:4000", "node": 3})[0] == 404


RULES = """
faults:
  - {api: Produce, topic: t, error: INVALID_RECORD, once: true}
disk_faults:
  - {effect: delay, operation: sync, delay_ms: 1}
"""


def test_rules_from_a_file_stand_from_the_start(server_folder: ServerFolder, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    _, control = started(server_folder, "--control", "127.0.0.1:0", "--faults", str(file))
    producer = control.producer()
    assert not sent(producer, "t", b"refused")
    assert sent(producer, "t", b"taken")
    assert [fault["fired"] for fault in control.do("GET", "/faults")] == [1]


def test_a_file_that_cannot_be_used_ends_the_start(server_folder: ServerFolder, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    for rules, complaint in (
        ("faults: [{api: Produce}]", "rule 1 of faults: a rule without an effect"),
        ("faults: [", "is not YAML"),
        ("rules: []", "expected faults and disk_faults"),
        ("faults: {a: 1}", "not a list of rules"),
        ("disk_faults: [{effect: torn}, {effect: melted}]", "rule 2 of disk_faults"),
    ):
        file.write_text(rules)
        with pytest.raises(RuleError, match=complaint):
            check_rules(str(file))
    server = server_folder.spawn("--faults", str(file))
    assert server.wait_exit() == 2
    assert complaint in server.stderr()


@pytest.mark.merge
def test_a_share_group_is_told_with_its_locks_and_waited_for(control: Control) -> None:
    control.do("POST", "/topics", {"name": "orders"})
    servers = {"bootstrap.servers": control.ready["kafka"], "log_level": 0}
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ResourceType.GROUP, "g", incremental_configs=[earliest])
    admin = AdminClient(servers)
    admin.incremental_alter_configs([group])[group].result(PATIENCE_S)
    control.do("POST", "/topics/orders/records", {"records": ["espresso"]})
    consumer = ShareConsumer({**servers, "group.id": "g", "client.id": "barista", "share.acknowledgement.mode": "explicit"})
    try:
        consumer.subscribe(["orders"])
        (message,) = consumer.poll(PATIENCE_S)
        told = control.do("GET", "/share-groups/g")
        assert control.do("GET", "/share-groups") == {"g": "Stable"}
        (member,) = told["members"]
        assert (told["state"], member["client_id"]) == ("Stable", "barista")
        assert member["partitions"] == [{"topic": "orders", "partition": 0}]
        (partition,) = control.do("GET", "/share-groups/g?topic=orders")["partitions"]
        (lock,) = partition.pop("records")
        assert partition == {"topic": "orders", "partition": 0, "start_offset": 0, "end_offset": 1, "lag": 1}
        assert (lock["state"], lock["delivery_count"], lock["member_id"]) == ("acquired", 1, member["member_id"])
        assert lock["lock_ends_ms"] > control.do("GET", "/clock")["now_ms"]
        assert control.ask("POST", "/share-groups/g/wait", {"topic": "orders", "timeout_ms": 1})[0] == 408
        consumer.acknowledge(message)
        assert set(consumer.commit_sync(PATIENCE_S).values()) == {None}
        told = control.do("POST", "/share-groups/g/wait", {"topic": "orders"})
        assert [(each["start_offset"], each["records"]) for each in told["partitions"]] == [(1, [])]
    finally:
        consumer.close()
    status, told = control.ask("GET", "/share-groups/nobody")
    assert (status, told["error"]) == (422, "GROUP_ID_NOT_FOUND")


def test_a_streams_group_is_told_with_topology_and_tasks_and_waited_for(control: Control) -> None:
    host, _, port = control.ready["kafka"].rpartition(":")
    with KafkaWire.connect((host, int(port))) as client:
        member = StreamsMember(client)
        member.beat(user_endpoint=StreamsGroupEndpoint(host="a", port=1))
        missing = control.do("POST", f"/streams-groups/{GROUP}/wait-status", {"status": "MISSING_SOURCE_TOPICS"})
        assert (missing["state"], missing["topology_epoch"], missing["lag"]) == ("NotReady", 0, {SOURCE: 0, REPARTITION: 0})
        assert missing["statuses"]["MISSING_SOURCE_TOPICS"] == f"Source topics {SOURCE} are missing."
        assert control.ask("POST", f"/streams-groups/{GROUP}/wait-stable", {"timeout_ms": 1})[0] == 408
        status, told = control.ask("POST", f"/streams-groups/{GROUP}/wait-status", {"status": "WRONG"})
        assert (status, "expected one of MISSING_SOURCE_TOPICS" in told["message"]) == (400, True)
        control.do("POST", "/topics", {"name": SOURCE, "partitions": 2})
        member.settle()
        assert "ASSIGNMENT_DELAYED" in control.do("GET", f"/streams-groups/{GROUP}")["statuses"]
        control.do("POST", "/clock/advance", {"seconds": 4})
        while not member.active:
            member.beat()
        member.settle()
        told = control.do("POST", f"/streams-groups/{GROUP}/wait-stable", {"members": 1})
        assert control.do("GET", "/streams-groups") == {GROUP: "Stable"}
        assert (told["statuses"], told["shutdown_member_id"], told["group_epoch"]) == ({}, None, told["assignment_epoch"])
        first, second = told["subtopologies"]
        assert (first["source_topics"], first["repartition_sink_topics"]) == ([SOURCE], [REPARTITION])
        assert second["repartition_source_topics"] == [{**CHANGES, "name": REPARTITION}]
        assert second["state_changelog_topics"] == [{**CHANGES, "name": CHANGELOG}]
        (seen,) = told["members"]
        assert (seen["member_id"], seen["client_id"], seen["endpoint"]) == (MEMBER, CLIENT_ID, {"host": "a", "port": 1})
        tasks = {"active": {"0": [0, 1], "1": [0, 1]}, "standby": {}, "warmup": {}}
        assert (seen["assignment"], seen["target"], set(map(str, seen["revoking"].values()))) == (tasks, tasks, {"{}"})
        member.leave()
        assert control.do("POST", f"/streams-groups/{GROUP}/wait-stable", {"members": 0})["members"] == []
    control.do("POST", f"/topics/{SOURCE}/records", {"records": ["a word"]})
    assert control.ask("POST", f"/streams-groups/{GROUP}/wait", {"timeout_ms": 1})[0] == 408
    status, told = control.ask("GET", "/streams-groups/nobody")
    assert (status, told["error"]) == (422, "GROUP_ID_NOT_FOUND")
