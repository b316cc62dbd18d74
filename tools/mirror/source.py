"""Kafka's protocol to a source: a triolog, or the brokers of an Apache Kafka cluster. Record batches stay as they came.

Owns the connections, one to each broker. A connection has one request at a time. Every failure of a connection is a
`SourceError`, and the caller connects again. Source: KIP-35 (versions), KIP-43 (SASL), KIP-320 (leader epochs).
"""

from __future__ import annotations

import ssl
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self, cast

import attrs
import trio

from ...protocol.errors import ErrorCode, RemoteProtocolError, RequestError, SaslAuthenticationError
from ...protocol.kafka.apis import APIS, ApiKey
from ...protocol.kafka.messages.cluster import ApiVersionsRequest
from ...protocol.kafka.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from ...protocol.kafka.messages.groups import FindCoordinatorRequest, ListGroupsRequest
from ...protocol.kafka.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from ...protocol.kafka.messages.records import (
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ...protocol.kafka.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from ...protocol.kafka.messages.topics import MetadataRequest
from ...protocol.limits import MIB
from ...protocol.native.messages import AuthenticateResponse, HelloResponse
from ...protocol.schema import codec
from ...protocol.types import TopicPartition
from ..client.login import LoginConfig, login_steps

CLIENT_ID: Final = b"triolog-mirror"
CONNECT_S: Final = 10.0
CALL_S: Final = 30.0
MAX_RESPONSE_BYTES: Final = 128 * MIB
"""The largest response. A batch above `fetch_bytes` comes whole."""
RECEIVE_BYTES: Final = 256 * 1024
HIGHEST: Final = {
    ApiKey.FETCH: 13,
    ApiKey.METADATA: 12,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.LIST_OFFSETS: 7,
}
"""Later versions say nothing more. A fetch names topics by id since 13, so a topic that was created again is another one."""
LOWEST: Final = {ApiKey.METADATA: 10, ApiKey.OFFSET_FETCH: 8, ApiKey.FIND_COORDINATOR: 4}
"""Earlier versions have no topic ids, or one group in a request. Kafka has these since 2.8 and 3.0."""
CONSUMER: Final = -1
"""Replica id of whoever is no replica."""
TOPIC_RESOURCE: Final = 2
TOPIC_CONFIG_SOURCE: Final = 1
"""Of a key that the topic overrides (Kafka: DYNAMIC_TOPIC_CONFIG)."""
READ_UNCOMMITTED: Final = 0
LATEST: Final = -1
TRIOLOG_KEY: Final = "durability"
EARLIEST: Final = -2
NO_ID: Final = bytes(16)
THROTTLED_S: Final = 0.1


class SourceError(Exception):
    """The source cannot be reached, or returned something else than was requested."""


class SourceTopic(NamedTuple):
    """A topic of the source, with the leader's node by partition, and the largest leader epoch."""

    name: str
    topic_id: bytes
    leaders: tuple[int, ...]
    epoch: int


class EpochEnd(NamedTuple):
    """The largest leader epoch that is not above the requested one, and the offset where it ends; both -1: unknown."""

    epoch: int
    end_offset: int


@attrs.define(eq=False, repr=False)
class Connection:
    """A connection to one broker. Owner: the task that calls."""

    _stream: trio.abc.Stream
    _address: str
    _versions: Mapping[int, tuple[int, int]] = attrs.field(factory=dict)
    _buffer: bytearray = attrs.field(factory=bytearray)
    _count: int = 0
    _turn: trio.Lock = attrs.field(factory=trio.Lock)

    @classmethod
    async def open(cls, host: str, port: int, tls: ssl.SSLContext | None, login: LoginConfig | None) -> Self:
        """Raises SourceError."""
        address = f"{host}:{port}"
        try:
            with trio.fail_after(CONNECT_S):
                stream = await _open_stream(host, port, tls)
        except (OSError, trio.BrokenResourceError) as exc:
            raise SourceError(f"cannot connect to {address}: {_why(exc)}") from exc
        except trio.TooSlowError:
            raise SourceError(f"cannot connect to {address}: no response within {CONNECT_S:g} s") from None
        found = cls(stream, address)
        try:
            answer = await found.call(_new(ApiVersionsRequest), version=0)
            found._versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
            if login is not None:
                await found._log_in(login, is_encrypted=tls is not None)
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        return found

    async def _log_in(self, login: LoginConfig, *, is_encrypted: bool) -> None:
        mechanism = login.mechanisms[0]
        answer = await self.call(_new(SaslHandshakeRequest, mechanism=mechanism), version=1)
        if answer.error_code:
            others = ", ".join(answer.mechanisms)
            raise SourceError(f"{self._address} does not have {mechanism}, but {others or 'no logins'}. Set sasl_mechanism")
        hello = cast(HelloResponse, _Offered((mechanism,)))
        try:
            steps = login_steps(login, hello, is_encrypted=is_encrypted)
            request = next(steps)
            while True:
                reply = await self.call(_new(SaslAuthenticateRequest, auth_bytes=bytes(request.data)), version=1)
                if reply.error_code:
                    raise SourceError(f"{self._address} refused the login of {login.name}: {reply.error_message}")
                answered = AuthenticateResponse(done=True, data=reply.auth_bytes, session_lifetime_ms=reply.session_lifetime_ms)
                request = steps.send(answered)
        except StopIteration:
            return
        except SaslAuthenticationError as exc:
            raise SourceError(f"cannot log in to {self._address}: {exc.message}") from exc

    def version_of(self, key: ApiKey) -> int:
        """Return the version in which an API is called. Raises SourceError."""
        api = APIS[key]
        lowest, highest = self._versions.get(key, (0, -1))
        version = min(HIGHEST.get(key, api.highest), highest)
        if version < max(lowest, LOWEST.get(key, api.lowest_read)):
            raise SourceError(f"{self._address} has {api.name} v{lowest} to v{highest}, too old or too new for a mirror")
        return version

    async def call(self, body: object, *, version: int | None = None, timeout_s: float = CALL_S) -> Any:
        """Send a request and return the response. Raises SourceError; the connection is of no use then."""
        api = next(each for each in APIS.values() if each.request is type(body))
        version = self.version_of(api.key) if version is None else version
        flexible = api.is_flexible(version)
        async with self._turn:
            self._count += 1
            head = struct.pack(">hhih", api.key, version, self._count, len(CLIENT_ID)) + CLIENT_ID
            data = head + (b"\0" if flexible else b"") + b"".join(codec.write(body, version, flexible=flexible))
            try:
                with trio.fail_after(timeout_s):
                    await self._stream.send_all(struct.pack(">i", len(data)) + data)
                    frame = await self._receive()
                at = 5 if flexible and api.key is not ApiKey.API_VERSIONS else 4
                if struct.unpack_from(">i", frame) != (self._count,):
                    raise SourceError(f"{self._address}: the response is that of another request")
                return codec.read(api.response, version, memoryview(frame), at, flexible=flexible)[0]
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError, RemoteProtocolError) as exc:
                raise SourceError(f"{self._address}: {_why(exc)}") from exc
            except trio.TooSlowError:
                raise SourceError(f"{self._address}: no response to {api.name} within {timeout_s:g} s") from None

    async def _receive(self) -> bytes:
        while len(self._buffer) < 4:
            await self._more()
        (size,) = struct.unpack_from(">i", self._buffer)
        if not 4 <= size <= MAX_RESPONSE_BYTES:
            raise SourceError(f"{self._address}: a response claims {size} bytes, at most {MAX_RESPONSE_BYTES} are read")
        while len(self._buffer) < 4 + size:
            await self._more()
        frame = bytes(memoryview(self._buffer)[4 : 4 + size])
        del self._buffer[: 4 + size]
        return frame

    async def _more(self) -> None:
        data = await self._stream.receive_some(RECEIVE_BYTES)
        if not data:
            raise SourceError(f"{self._address} ended the connection")
        self._buffer += data

    async def aclose(self) -> None:
        """Close it without waiting."""
        await trio.aclose_forcefully(self._stream)


@attrs.frozen
class _Offered:
    sasl_mechanisms: tuple[str, ...]


@attrs.define(eq=False, repr=False)
class Source:
    """The brokers of a source. Owner: the link. Use it with `aclosing`."""

    _bootstrap: Sequence[tuple[str, int]]
    _tls: ssl.SSLContext | None
    _login: LoginConfig | None
    nodes: dict[int, tuple[str, int]] = attrs.field(factory=dict)
    _connections: dict[tuple[str, int], Connection] = attrs.field(factory=dict)
    _first: Connection | None = None
    ids: dict[str, bytes] = attrs.field(factory=dict)
    """Of the topics that are fetched, by name."""
    is_triolog: bool = False
    """Whether a topic has a key that Kafka does not have; known after `configs`."""

    async def aclose(self) -> None:
        """Close all connections."""
        for each in [*self._connections.values(), *filter(None, [self._first])]:
            await each.aclose()
        self._connections.clear()

    async def _any(self) -> Connection:
        if self._first is None:
            failure: SourceError | None = None
            for host, port in self._bootstrap:
                try:
                    self._first = await Connection.open(host, port, self._tls, self._login)
                    break
                except SourceError as exc:
                    failure = exc
            if self._first is None:
                assert failure is not None
                raise failure
        return self._first

    async def _node(self, node: int) -> Connection:
        """The connection to a broker. A source with one broker keeps the one by which it was found: its advertised address
        need not be reachable from here."""
        if len(self.nodes) == 1:
            return await self._any()
        if node not in self.nodes:
            raise SourceError(f"broker {node} is not in the cluster's metadata")
        address = self.nodes[node]
        if address not in self._connections:
            self._connections[address] = await Connection.open(*address, self._tls, self._login)
        return self._connections[address]

    def _led(self, partitions: Mapping[TopicPartition, int]) -> dict[int, list[TopicPartition]]:
        """Return the partitions by leader, without those whose leader is not in the cluster now."""
        by_node = _by_node(partitions)
        return by_node if len(self.nodes) == 1 else {node: each for node, each in by_node.items() if node in self.nodes}

    async def topics(self) -> list[SourceTopic]:
        """Return all topics that can be read now. Raises SourceError."""
        answer = await (await self._any()).call(_new(MetadataRequest, topics=None, allow_auto_topic_creation=False))
        self.nodes = {each.node_id: (each.host, each.port) for each in answer.brokers}
        found = []
        for topic in answer.topics:
            leaders = {each.partition_index: each.leader_id for each in topic.partitions}
            if not topic.error_code and topic.name and sorted(leaders) == list(range(len(leaders))) and leaders:
                epoch = max(each.leader_epoch for each in topic.partitions)
                found.append(SourceTopic(topic.name, topic.topic_id, tuple(leaders[each] for each in sorted(leaders)), epoch))
        return found

    async def configs(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return the keys that each topic overrides, with their values. Raises SourceError."""
        resources = [
            _new(DescribeConfigsResource, resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
            for name in names
        ]
        if not resources:
            return {}
        answer = await (await self._any()).call(_new(DescribeConfigsRequest, resources=resources))
        found = {}
        for each in answer.results:
            if each.error_code:
                raise SourceError(f"configuration of topic {each.resource_name!r}: {named(each.error_code)}")
            self.is_triolog = self.is_triolog or any(entry.name == TRIOLOG_KEY for entry in each.configs)
            found[each.resource_name] = {
                entry.name: entry.value
                for entry in each.configs
                if entry.config_source == TOPIC_CONFIG_SOURCE and entry.value is not None
            }
        return found

    async def ends(self, partitions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return where partitions end, given with their leaders, without those that cannot be read. A triolog reads up to 1,024
        of them at one moment. Raises SourceError."""
        return await self._offsets(partitions, LATEST)

    async def starts(self, partitions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return where partitions start, given with their leaders, without those that cannot be read. Raises SourceError."""
        return await self._offsets(partitions, EARLIEST)

    async def _offsets(self, partitions: Mapping[TopicPartition, int], timestamp: int) -> dict[TopicPartition, int]:
        found = {}
        for node, of_node in self._led(partitions).items():
            request = _new(
                ListOffsetsRequest,
                replica_id=CONSUMER,
                isolation_level=READ_UNCOMMITTED,
                topics=[
                    _new(
                        ListOffsetsTopic,
                        name=name,
                        partitions=[_new(ListOffsetsPartition, partition_index=each, timestamp=timestamp) for each in numbers],
                    )
                    for name, numbers in _by_topic(of_node)
                ],
            )
            answer = await (await self._node(node)).call(request)
            for topic in answer.topics:
                for each in topic.partitions:
                    if not each.error_code:
                        found[TopicPartition(topic.name, each.partition_index)] = each.offset
        return found

    async def fetch(
        self,
        positions: Mapping[TopicPartition, int],
        leaders: Mapping[TopicPartition, int],
        *,
        max_wait_ms: int,
        max_bytes: int,
    ) -> list[tuple[TopicPartition, FetchPartitionData]]:
        """Read from these offsets on, at all brokers beside each other. Raises SourceError."""
        found: list[tuple[TopicPartition, FetchPartitionData]] = []
        by_node = self._led({each: leaders[each] for each in positions})
        names = {topic_id: name for name, topic_id in self.ids.items()}

        async def fetch(node: int, partitions: list[TopicPartition]) -> None:
            request = _new(
                FetchRequest,
                max_wait_ms=max_wait_ms,
                min_bytes=1,
                max_bytes=max_bytes // len(by_node),
                isolation_level=READ_UNCOMMITTED,
                topics=[
                    _new(
                        FetchTopic,
                        topic=name,
                        topic_id=self.ids.get(name, NO_ID),
                        partitions=[
                            _new(
                                FetchPartition,
                                partition=each,
                                fetch_offset=positions[TopicPartition(name, each)],
                                partition_max_bytes=min(MIB, max_bytes),
                            )
                            for each in numbers
                        ],
                    )
                    for name, numbers in _by_topic(partitions)
                ],
            )
            answer = await (await self._node(node)).call(request, timeout_s=CALL_S + max_wait_ms / 1000)
            if answer.error_code:
                raise SourceError(f"fetch: {named(answer.error_code)}")
            if not answer.responses:  # Kafka throttles so
                await trio.sleep(max(answer.throttle_time_ms / 1000, THROTTLED_S))
            for topic in answer.responses:
                name = topic.topic or names.get(topic.topic_id, "")
                found.extend((TopicPartition(name, each.partition_index), each) for each in topic.partitions)

        errors: list[SourceError] = []

        async def one(node: int, partitions: list[TopicPartition]) -> None:
            try:
                await fetch(node, partitions)
            except SourceError as exc:
                errors.append(exc)

        async with trio.open_nursery() as nursery:
            for node, partitions in by_node.items():
                nursery.start_soon(one, node, partitions)
        if errors:
            raise errors[0]
        return found

    async def epoch_end(self, topic_partition: TopicPartition, leader: int, epoch: int) -> EpochEnd:
        """Return where a leader epoch ends at the source. Raises SourceError; RequestError: the source cannot say it now."""
        partition = _new(OffsetForLeaderPartition, partition=topic_partition.partition, leader_epoch=epoch)
        request = _new(
            OffsetForLeaderEpochRequest,
            replica_id=CONSUMER,
            topics=[_new(OffsetForLeaderTopic, topic=topic_partition.topic, partitions=[partition])],
        )
        answer = await (await self._node(leader)).call(request)
        (found,) = answer.topics[0].partitions
        if found.error_code:
            raise RequestError(f"leader epoch {epoch}: {named(found.error_code)}", ErrorCode.UNKNOWN_SERVER_ERROR)
        return EpochEnd(found.leader_epoch, found.end_offset)

    async def groups(self) -> list[str]:
        """Return all groups of all brokers. Raises SourceError."""
        names = set()
        for node in list(self.nodes):
            answer = await (await self._node(node)).call(_new(ListGroupsRequest))
            if answer.error_code:
                raise SourceError(f"groups: {named(answer.error_code)}")
            names |= {each.group_id for each in answer.groups if each.protocol_type in ("consumer", "")}
        return sorted(names)

    async def committed(self, group: str) -> dict[TopicPartition, tuple[int, int, str | None]]:
        """Return what a group has committed: offset, leader epoch, note. Raises SourceError."""
        asked = await (await self._any()).call(_new(FindCoordinatorRequest, key_type=0, coordinator_keys=[group]))
        (coordinator,) = asked.coordinators
        if coordinator.error_code:
            raise SourceError(f"coordinator of group {group!r}: {named(coordinator.error_code)}")
        request = _new(OffsetFetchRequest, groups=[_new(OffsetFetchRequestGroup, group_id=group, topics=None)])
        answer = await (await self._node(coordinator.node_id)).call(request)
        (found,) = answer.groups
        if found.error_code:
            raise SourceError(f"committed offsets of group {group!r}: {named(found.error_code)}")
        return {
            TopicPartition(topic.name, each.partition_index): (
                each.committed_offset,
                each.committed_leader_epoch,
                each.metadata,
            )
            for topic in found.topics
            for each in topic.partitions
            if not each.error_code and each.committed_offset >= 0
        }


def _new(kind: Any, **fields: Any) -> Any:
    """Make a message. Omitted fields have their defaults."""
    return kind(**fields)


async def _open_stream(host: str, port: int, tls: ssl.SSLContext | None) -> trio.abc.Stream:
    stream = await trio.open_tcp_stream(host, port)
    if tls is None:
        return stream
    encrypted = trio.SSLStream(stream, tls, server_hostname=host, https_compatible=True)
    try:
        await encrypted.do_handshake()
    except BaseException:
        await trio.aclose_forcefully(encrypted)
        raise
    return encrypted


def _why(exc: BaseException) -> str:
    """Return the reason of a failure: trio's own errors have none, their cause has."""
    return str(exc) or str(exc.__cause__ or "") or type(exc).__name__


def _by_node(leaders: Mapping[TopicPartition, int]) -> dict[int, list[TopicPartition]]:
    found: dict[int, list[TopicPartition]] = {}
    for topic_partition, node in leaders.items():
        found.setdefault(node, []).append(topic_partition)
    return found


def _by_topic(partitions: Iterable[TopicPartition]) -> Iterator[tuple[str, list[int]]]:
    found: dict[str, list[int]] = {}
    for name, number in partitions:
        found.setdefault(name, []).append(number)
    return iter(found.items())


def named(code: int) -> str:
    """Return the name of an error code."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
