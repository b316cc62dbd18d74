"""A real server whose memory has a limit below what its peers send: the connections that ask too much end, and no other."""

from __future__ import annotations

import contextlib
import resource
import struct
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from triolog.protocol.limits import MIB
from triolog.protocol.native import messages
from triolog.protocol.types import CompressionType

from tests.support.attackers import unfinished_frame
from tests.support.failing_device import mounted_device
from tests.support.forked_servers import ServerForker
from tests.support.kafka_admin import BROKER_TYPE
from tests.support.kafka_server import TOPIC, batch, fetch_partition, fetch_request, produce_request
from tests.support.kafka_wire import KafkaWire
from tests.support.memory_cgroup import memory_cgroup
from tests.support.record_batches import zeros
from tests.support.server_process import ServerFolder
from tests.support.wire_client import WireClient

SPARE_BYTES: Final = 48 * MIB
"""What the server may take beside what it has when it is started."""
FRAME_BYTES: Final = 60 * MIB

pytestmark = pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits another process")


def send_what_is_taken(peer: KafkaWire | WireClient, data: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        peer.send_raw(data)


@pytest.mark.merge
def test_a_frame_for_which_there_is_no_memory_ends_its_connection_and_no_other(server_folder: ServerFolder) -> None:
    """A frame of many MB under a small memory limit ended the whole server."""
    server = server_folder.start("--kafka", "127.0.0.1:0", "--durability", "os")
    address = server.address_of("kafka")
    with ExitStack() as stack:
        kafka = stack.enter_context(KafkaWire.connect(address))
        native = stack.enter_context(WireClient.connect(server.address))
        native.call(messages.CreateTopicsRequest((messages.NewTopic(TOPIC, 1),)))
        produced_and_fetched(kafka)
        limit = server.memory_bytes("VmSize") + SPARE_BYTES
        resource.prlimit(server.pid, resource.RLIMIT_AS, (limit, limit))
        for _ in range(4):
            attacker = stack.enter_context(KafkaWire.connect(address))
            send_what_is_taken(attacker, unfinished_frame(FRAME_BYTES + 100, FRAME_BYTES))
            produced_and_fetched(kafka)
            greeted = stack.enter_context(WireClient.connect(server.address))
            send_what_is_taken(greeted, struct.pack(">I", FRAME_BYTES + 100) + bytes(FRAME_BYTES))
            assert native.call(messages.MetadataRequest(())).topics == ()
        produced_and_fetched(kafka)
        assert "there was no memory" in server.stderr()
        assert "unhandled exception" not in server.stderr()
    assert server.stop() == 0


def produced_and_fetched(client: KafkaWire) -> None:
    answer = client.call(produce_request(batch("x" * 100)), 9)
    [partition] = answer.responses[0].partition_responses
    assert partition.error_code == 0, partition
    fetched = client.call(fetch_request(fetch_partition(partition.base_offset)), 11)
    assert fetched.responses[0].partitions[0].records


CAP_BYTES: Final = 192 * MIB
DEVICE_BYTES: Final = 64 * MIB
PRODUCERS: Final = 8
BATCH_BYTES: Final = 500_000


def test_a_server_with_a_cap_stays_below_it_whatever_its_peers_do(server_folder: ServerFolder) -> None:
    """Readers that never read, requests that never end, batches that unpack to much: all at once, in a control group of that
    size where there may be one."""
    with memory_cgroup(CAP_BYTES) as cgroup, ExitStack() as stack:
        server = server_folder.start(
            "--kafka", "127.0.0.1:0", "--durability", "os",
            extra_environment={"TRIOLOG_MAX_MEMORY_BYTES": str(CAP_BYTES)},
        )  # fmt: skip
        cgroup.add(server.pid)
        address = server.address_of("kafka")
        kafka = stack.enter_context(KafkaWire.connect(address))
        native = stack.enter_context(WireClient.connect(server.address))
        native.call(messages.CreateTopicsRequest((messages.NewTopic(TOPIC, 2),)))
        for _ in range(60):
            kafka.call(produce_request(batch(bytes(900_000)), partition=1), 9)
        for _ in range(25):
            reader = stack.enter_context(KafkaWire.connect(address))
            for _ in range(20):
                reader.send(fetch_request(fetch_partition(partition=1, max_bytes=50 * MIB), max_bytes=50 * MIB), 11)
        for _ in range(12):
            writer = stack.enter_context(KafkaWire.connect(address, timeout_s=0.05))
            with contextlib.suppress(TimeoutError):
                send_what_is_taken(writer, unfinished_frame(11 * MIB, 10 * MIB))
        for size, error in ((10 * MIB, ErrorCode.NONE), (60 * MIB, ErrorCode.MESSAGE_TOO_LARGE)):
            answer = kafka.call(produce_request(zeros(size, CompressionType.ZSTD)), 9)
            assert answer.responses[0].partition_responses[0].error_code == error
        produced_and_fetched(kafka)
        peak = server.memory_bytes("VmHWM")
        stack.close()
        assert server.stop() == 0
        print(f"{peak} bytes resident at most, control group: {cgroup.kind}")  # noqa: T201 - shown with a failure only
        assert peak <= CAP_BYTES
        assert cgroup.killed() == 0


@pytest.mark.merge
def test_a_cap_holds_while_the_disk_is_full_and_gives_up_its_oldest(tmp_path: Path, server_forker: ServerForker) -> None:
    """Producers of four times what fits, and readers that never read: nobody is refused, and nothing takes more."""
    (tmp_path / "server").mkdir()
    config = {"segment.bytes": str(MIB), "disk.full.policy": "drop-oldest", "retention.ms": "-1"}
    with ExitStack() as stack:
        device = stack.enter_context(mounted_device(tmp_path, "ext4", DEVICE_BYTES))  # a tmpfs would be memory itself
        cgroup = stack.enter_context(memory_cgroup(CAP_BYTES))
        folder = stack.enter_context(
            ServerFolder(tmp_path / "server", command=server_forker, data_dirs=(str(device / "data"),))
        )
        server = folder.start("--kafka", "127.0.0.1:0", extra_environment={"TRIOLOG_MAX_MEMORY_BYTES": str(CAP_BYTES)})
        cgroup.add(server.pid)
        peers = stack.enter_context(ExitStack())
        native = peers.enter_context(WireClient.connect(server.address))
        native.call(messages.CreateTopicsRequest((messages.NewTopic(TOPIC, PRODUCERS, config),)))
        producers = [peers.enter_context(KafkaWire.connect(server.address_of("kafka"))) for _ in range(PRODUCERS)]
        for number in range(4 * DEVICE_BYTES // (PRODUCERS * BATCH_BYTES)):
            for partition, producer in enumerate(producers):
                producer.send(produce_request(batch(bytes(BATCH_BYTES)), partition=partition), 9)
            for producer in producers:
                [answered] = producer.receive().responses[0].partition_responses
                assert answered.error_code == ErrorCode.NONE, answered
            if number % 4 == 0:
                reader = peers.enter_context(KafkaWire.connect(server.address_of("kafka")))
                for partition in range(PRODUCERS):
                    asked = fetch_partition(answered.base_offset, partition=partition, max_bytes=50 * MIB)
                    reader.send(fetch_request(asked, max_bytes=50 * MIB), 11)
        [directory] = native.call(messages.StatisticsRequest()).statistics["directories"]
        peak = server.memory_bytes("VmHWM")
        peers.close()
        assert server.stop() == 0
        print(f"{peak} bytes resident at most, control group: {cgroup.kind}")  # noqa: T201 - shown with a failure only
        assert directory["given_up_segments"] > 2 * DEVICE_BYTES // MIB
        assert not directory["is_refusing"]
        assert peak <= CAP_BYTES
        assert cgroup.killed() == 0
        assert "No space left" not in server.stderr()


def test_a_request_above_the_cap_ends_its_connection_and_the_client_is_told_of_the_limit(server_folder: ServerFolder) -> None:
    server = server_folder.start("--kafka", "127.0.0.1:0", extra_environment={"TRIOLOG_MAX_MEMORY_BYTES": str(CAP_BYTES)})
    with KafkaWire.connect(server.address_of("kafka")) as client:
        broker = DescribeConfigsResource(
            resource_type=BROKER_TYPE, resource_name="1", configuration_keys=["socket.request.max.bytes"]
        )
        [described] = client.call(DescribeConfigsRequest(resources=[broker]), 4).results
        assert [entry.value for entry in described.configs] == [str(12 * MIB)]
        send_what_is_taken(client, struct.pack(">i", 12 * MIB + 1))
        assert client.socket.recv(1) == b""
    assert server.stop() == 0
