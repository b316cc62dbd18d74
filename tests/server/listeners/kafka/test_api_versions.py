"""What a client learns first, in versions that we speak and in ones that we do not."""

from __future__ import annotations

import struct

import attrs
import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.apis import APIS, ApiKey
from triolog.protocol.kafka.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from triolog.protocol.schema import codec
from triolog.server.fake.kafka.kafka_versions import apis_of
from triolog.server.listeners.kafka.door import TELEMETRY

from tests.support.kafka_server import KafkaServer
from tests.support.kafka_stream import KafkaStream

UNSUPPORTED_VERSION = 35
REQUEST = ApiVersionsRequest(client_software_name="wire", client_software_version="1.0")


@pytest.mark.parametrize("version", range(6))
async def test_every_version_lists_what_is_served(client: KafkaStream, version: int) -> None:
    answer = await client.call(REQUEST, version)
    assert answer.error_code == 0
    assert {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys} == {
        key: (api.lowest, api.highest) for key, api in APIS.items() if key not in TELEMETRY
    }
    assert APIS[ApiKey.PRODUCE].lowest == 0, "librdkafka concludes that it may send gzip, snappy and lz4 (KAFKA-18659)"


@pytest.mark.parametrize("version", [6, 99, -1])
async def test_a_version_that_is_not_spoken_is_answered_in_version_0_with_an_error(client: KafkaStream, version: int) -> None:
    """The body may be anything: only the header is read. A client asks again with what it learns (KIP-511)."""
    header = struct.pack(">hhih", ApiKey.API_VERSIONS, version, 77, -1)
    await client.send_raw(struct.pack(">i", len(header) + 3) + header + b"\xff\xff\xff")
    frame = await client.receive_frame()
    assert struct.unpack_from(">i", frame) == (77,)
    answer, end = codec.read(ApiVersionsResponse, 0, memoryview(frame), 4, flexible=False)
    assert end == len(frame)
    assert answer.error_code == UNSUPPORTED_VERSION
    api = APIS[ApiKey.API_VERSIONS]
    assert [(each.api_key, each.min_version, each.max_version) for each in answer.api_keys] == [
        (ApiKey.API_VERSIONS, api.lowest, api.highest)
    ]
    assert (await client.call(REQUEST, 0)).error_code == 0


async def test_features_whose_lowest_level_is_0_are_not_told_below_version_4(client: KafkaStream) -> None:
    """Java clients of before 3.9 fail when they meet one (KAFKA-17492)."""
    before, since = [await client.call(REQUEST, version) for version in (3, 4)]
    assert before.supported_features == []
    assert {each.name for each in since.supported_features} == {each.name for each in before.finalized_features}
    assert all(each.min_version == 0 for each in since.supported_features)
    levels = {each.name: each.max_version_level for each in since.finalized_features}
    assert (levels["share.version"], levels["streams.version"]) == (1, 1)


@pytest.mark.parametrize(
    ("release", "features"),
    [
        ("2.0", {}),
        ("2.8", {}),
        ("3.9", {}),
        ("4.0", {"group.version": 1, "transaction.version": 2}),
        ("4.1", {"group.version": 1, "transaction.version": 2}),
        ("4.2", {"group.version": 1, "share.version": 1, "streams.version": 1, "transaction.version": 2}),
        ("4.4", {"group.version": 1, "share.version": 1, "streams.version": 1, "transaction.version": 2}),
    ],
)
async def test_features_belong_to_the_release_that_is_emulated(
    kafka: KafkaServer, release: str, features: dict[str, int]
) -> None:
    """A Java producer joins transactions by producing where transaction.version is 2: Produce v11 does not let it."""
    kafka.door.apis = apis = apis_of(release)  # a connection has those that there are when it is accepted
    async with kafka.connected() as client:
        answer = await client.call(REQUEST, min(3, apis[ApiKey.API_VERSIONS].highest))
    assert {each.name: each.max_version_level for each in answer.finalized_features} == features


async def test_a_client_may_have_any_name(client: KafkaStream) -> None:
    """Kafka answers INVALID_REQUEST when the name has other characters than it likes."""
    odd = ApiVersionsRequest(client_software_name="my client! ", client_software_version="")
    assert (await client.call(odd, 3)).error_code == 0


@pytest.mark.parametrize(
    ("says_cluster", "node", "error"),
    [
        (None, 0, 0),
        ("ours", 0, 0),
        ("ours", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("another", 0, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("ours", None, ErrorCode.INVALID_REQUEST),
        (None, 1, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_client_that_means_another_node_is_told_to_look_for_it_again(
    kafka: KafkaServer, client: KafkaStream, says_cluster: str | None, node: int | None, error: int
) -> None:
    """`node` is how far it is from this one; a client says both or neither (KIP-1242)."""
    cluster_id = kafka.broker.cluster_id if says_cluster == "ours" else says_cluster
    is_silent = node is None or (cluster_id, node) == (None, 0)
    node_id = -1 if is_silent else kafka.broker.node_id + (node or 0)
    answer = await client.call(attrs.evolve(REQUEST, cluster_id=cluster_id, node_id=node_id), 5)
    assert answer.error_code == error
    assert bool(answer.api_keys) == (error == 0)
    assert (await client.call(attrs.evolve(REQUEST, cluster_id=cluster_id, node_id=node_id), 4)).error_code == 0


def test_streams_groups_came_with_kafka_4_2() -> None:
    keys = {ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_DESCRIBE}
    assert keys <= apis_of("4.2").keys()
    assert not keys & apis_of("4.1").keys()
