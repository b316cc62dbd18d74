"""What a client learns first, in versions that we speak and in ones that we do not. Requests that are answered with one error
as a whole, in every API and version. Every field of a request is read by the code that serves it, or
docs/kafka-compatibility.md says why it is not. What docs/kafka-compatibility.md says of versions and limits is what is
advertised and enforced."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol import limits
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.apis import APIS, Api, ApiKey
from triolog.protocol.kafka.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from triolog.protocol.schema import codec
from triolog.protocol.schema.fields import fields_of
from triolog.server.fake.kafka.kafka_versions import apis_of
from triolog.server.listeners.connections import session as sessions
from triolog.server.listeners.connections import transport
from triolog.server.listeners.kafka import fetch, fetch_sessions, session
from triolog.server.listeners.kafka.door import TELEMETRY
from triolog.server.listeners.kafka.error_answers import SHAPES, error_codes, error_codes_steps, error_response

from tests.support.in_steps import finished
from tests.support.kafka_server import KafkaServer
from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_values import SIDES, random_value
from tests.support.read_fields import Source, analyze

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
    assert (levels["share.version"], levels["streams.version"]) == (2, 1)


@pytest.mark.parametrize(
    ("release", "features"),
    [
        ("2.0", {}),
        ("2.8", {}),
        ("3.9", {}),
        ("4.0", {"group.version": 1, "transaction.version": 2}),
        ("4.1", {"group.version": 1, "transaction.version": 2}),
        ("4.2", {"group.version": 1, "share.version": 1, "streams.version": 1, "transaction.version": 2}),
        ("4.4", {"group.version": 1, "share.version": 2, "streams.version": 1, "transaction.version": 2}),
    ],
)
async def test_features_are_those_of_the_emulated_release(kafka: KafkaServer, release: str, features: dict[str, int]) -> None:
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


CODE: Final = ErrorCode.UNKNOWN_SERVER_ERROR


def test_every_api_has_its_shape() -> None:
    assert SHAPES.keys() == APIS.keys()


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_error_can_be_written_and_is_found_in_every_version(api: Any, seed: int) -> None:
    for message in SIDES[f"{api.name}Request"]:
        version = message.version
        request = random_value(message.cls, version, Random(seed))
        answer = error_response(api, version, request, CODE, "why")
        data = b"".join(codec.write(answer, version, flexible=api.is_flexible(version)))
        read, stop = codec.read(api.response, version, memoryview(data), flexible=api.is_flexible(version))
        assert stop == len(data)
        assert set(error_codes(read)) == ({int(CODE)} if _has_room(api, version, answer) else set()), (version, read)


def _has_room(api: Api, version: int, answer: Any) -> bool:
    """Whether the version has a code on top, or the request named something that one stands beside."""
    has_top = any(field.name == "error_code" for field in fields_of(api.response, version)) and SHAPES[api.key].has_top
    lists = [each.answer for each in SHAPES[api.key].lists if version in each.versions]
    return has_top or any(error_codes(element) for name in lists for element in getattr(answer, name))


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_codes_of_any_answer_are_found_at_once_and_in_steps(api: Any, seed: int) -> None:
    message = SIDES[f"{api.name}Response"][-1]
    answer = random_value(message.cls, message.version, Random(seed))
    assert error_codes(answer) == finished(error_codes_steps(answer))
    assert len(set(error_codes(answer))) == len(error_codes(answer))


@pytest.mark.parametrize(
    ("key", "version", "is_on_top"),
    [
        (ApiKey.FETCH, 12, True),
        (ApiKey.OFFSET_FETCH, 1, False),
        (ApiKey.OFFSET_FETCH, 2, True),
        (ApiKey.OFFSET_FETCH, 8, False),
        (ApiKey.FIND_COORDINATOR, 3, True),
        (ApiKey.FIND_COORDINATOR, 4, False),
        (ApiKey.HEARTBEAT, 4, True),
    ],
)
def test_where_the_error_stands_depends_on_the_version(key: ApiKey, version: int, is_on_top: bool) -> None:
    api = APIS[key]
    answer = error_response(api, version, api.request(), CODE)
    data = b"".join(codec.write(answer, version, flexible=api.is_flexible(version)))
    read, _ = codec.read(api.response, version, memoryview(data), flexible=api.is_flexible(version))
    assert bool(getattr(read, "error_code", 0)) is is_on_top


ROOT: Final = Path(__file__).resolve().parents[4]
HANDLERS: Final = ROOT / "server" / "listeners" / "kafka"
SECTION: Final = "## Fields of requests that are not read"
ROW: Final = re.compile(r"^\| (\w+) \| (`.*?) \| (\S.*?) \|$", re.MULTILINE)


@pytest.fixture(scope="module")
def source() -> Source:
    return analyze(HANDLERS)


def documented() -> Iterator[tuple[str, str]]:
    """(API, field) of each row."""
    page = (ROOT / "docs" / "kafka-compatibility.md").read_text(encoding="utf-8")
    section = page.partition(SECTION)[2].partition("\n## ")[0]
    for api, fields, _ in ROW.findall(section):
        for field in fields.split(", "):
            yield api, field.strip("`")


def test_every_field_of_every_request_is_read_or_has_a_reason(source: Source) -> None:
    unread = {(api.name, field) for api in APIS.values() for field in source.unread(api)}
    told = list(documented())
    assert len(told) == len(set(told))
    assert unread - set(told) == set(), "write the code that reads it, or the reason why none does"
    assert set(told) - unread == set(), "it is read"


@pytest.mark.merge
@pytest.mark.parametrize(
    ("key", "module", "line", "field"),
    [
        (
            ApiKey.WRITE_TXN_MARKERS,
            "transactions",
            "transaction_version=marker.transaction_version,",
            "WriteTxnMarkersWritableTxnMarker.transaction_version",
        ),
        (ApiKey.OFFSET_COMMIT, "offsets", ", body.retention_time_ms", "OffsetCommitRequest.retention_time_ms"),
        (ApiKey.FETCH, "fetch", "body.replica_state.replica_id", "FetchReplicaState.replica_id"),
    ],
)
def test_field_that_is_read_no_more_is_reported(tmp_path: Path, key: ApiKey, module: str, line: str, field: str) -> None:
    for path in HANDLERS.glob("*.py"):
        text = path.read_text()
        if path.stem == module:
            assert line in text
            text = text.replace(line, "" if "," in line else "0")
        (tmp_path / path.name).write_text(text)
    assert field in set(analyze(tmp_path).unread(APIS[key]))


PAGE = (Path(__file__).resolve().parents[4] / "docs" / "kafka-compatibility.md").read_text(encoding="utf-8")
API_ROW = re.compile(r"^\| (\d+) \| (\w+) \| (\d+)-(\d+) \|", re.MULTILINE)


def test_every_api_on_the_page_is_served_in_these_versions() -> None:
    rows = API_ROW.findall(PAGE)
    assert len(rows) >= 8
    for key, name, lowest, highest in rows:
        api = APIS[int(key)]
        assert (api.name, api.lowest, api.highest) == (name, int(lowest), int(highest))


def test_the_limits_on_the_page_are_the_ones_that_hold() -> None:
    assert f"more than {limits.MAX_REQUEST_BYTES // limits.MIB} MiB" in PAGE
    assert f"once {transport.MAX_UNSENT_BYTES // limits.MIB} MiB of answers wait" in PAGE
    assert f"nothing for {transport.SEND_TIMEOUT_S:.0f} s" in PAGE
    assert f"up to {session.MAX_PRODUCES_IN_FLIGHT} wait" in PAGE
    assert f"for {sessions.IDLE_TIMEOUT_S / 60:.0f} minutes" in PAGE
    assert f"| {fetch.MAX_FETCH_BYTES // limits.MIB} MiB |" in PAGE
    assert f"| {limits.MAX_DECOMPRESSED_BYTES // limits.MIB} MiB |" in PAGE
    assert f"| {limits.MAX_RECORDS_PER_BATCH:,}; twice as many |" in PAGE
    assert f"| headers of a record | {limits.MAX_HEADERS_PER_RECORD:,} |" in PAGE
    assert f"| {fetch_sessions.MAX_SESSIONS:,} |" in PAGE
    assert f"| {fetch_sessions.MAX_SESSION_PARTITIONS:,}, {fetch_sessions.MAX_PARTITIONS:,} |" in PAGE
