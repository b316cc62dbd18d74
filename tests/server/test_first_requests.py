"""Whatever is asked for the first time when the process may open nothing more is answered: everything that a request needs was
loaded before the server listened. What needs a file is refused, and done when there are descriptors again. Clients at work are
served beside peers that open connections to the limit.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from triolog.protocol.kafka.apis import APIS, Api
from triolog.protocol.kafka.messages import cluster, groups, security, transactions
from triolog.protocol.kafka.messages.records import ProduceRequest
from triolog.protocol.native import messages
from triolog.protocol.native.connection import NativeConnection, Role
from triolog.protocol.native.messages import AuthenticateRequest
from triolog.protocol.schema.fields import RECORDS, STRING, Element, Field, Primitive, fields_of
from triolog.protocol.types import CompressionType

from tests.support import descriptor_limits
from tests.support.certificates import HOST, Certificates
from tests.support.counts import counts
from tests.support.kafka_login import ScramClient
from tests.support.kafka_server import fetch_partition, fetch_request, produce_request
from tests.support.kafka_wire import KafkaWire, api_of, frame
from tests.support.logs import START_MS, batch
from tests.support.server_process import ServerFolder, ServerProcess, python_command
from tests.support.wire_client import WireClient

NAME: Final = "first"
"""Of every topic, group, transactional id, member and key."""


def filled(cls: type, version: int) -> Any:
    """An instance: strings are NAME, records a batch, numbers as a version has them where it lacks the field."""
    return cls(**{field.name: _value(field, version) for field in fields_of(cls, version) if field.tag is None})


def requests_of(api: Api) -> list[tuple[Any, int]]:
    """(body, version), an empty one and a filled one of each version."""
    cls = api.request
    versions = range(api.lowest_read, api.highest + 1)
    requests = [(body, version) for version in versions for body in (cls(), filled(cls, version))]
    for body, _ in requests:
        if isinstance(body, ProduceRequest):
            body.acks = -1  # with 0 there is no answer
    return requests


def _value(field: Field, version: int) -> Any:
    one = _element(field.element, version)
    return [one] if field.is_array else one


def _element(element: Element, version: int) -> Any:
    if not isinstance(element, Primitive):
        return filled(element, version)
    if element is RECORDS:
        return batch()
    return NAME if element is STRING else element.default


pytestmark = pytest.mark.merge  # each test starts servers at their descriptor limit

Client = TypeVar("Client", WireClient, KafkaWire, socket.socket)
TELLING: Final = python_command(f"{descriptor_limits.TELLS_IMPORTS}{descriptor_limits.limited_to(1024)}")
LIMITED: Final = python_command(f"{descriptor_limits.TELLS_IMPORTS}{descriptor_limits.limited_to(256)}")
REQUESTS: Final[list[tuple[Any, int]]] = [
    *(request for api in APIS.values() for request in requests_of(api)),
    (
        groups.ConsumerGroupHeartbeatRequest(
            group_id="of-a-pattern", member_id=NAME, rebalance_timeout_ms=1000, subscribed_topic_regex="f.*"
        ),
        1,
    ),
    (transactions.ListTransactionsRequest(transactional_id_pattern="f.*"), 2),
]
TOPIC: Final = "at-work"
"""Not what the attacks name: they may delete that."""
ROUNDS: Final = counts(60, merge=60)
PASSWORD: Final = "of alice"
DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
NEWEST: Final = {api.name: requests_of(api)[-1] for api in APIS.values()}
ATTACKS: Final = list(NEWEST.values())
PARTITION: Final = messages.Partition(NAME, 0)
NATIVE: Final[tuple[messages.RequestMessage, ...]] = (
    messages.AuthenticateRequest("SCRAM-SHA-256", b"n,,n=user,r=nonce"),
    messages.MetadataRequest(),
    messages.ListConnectionsRequest(),
    messages.StatisticsRequest(),
    messages.FetchRequest((messages.FetchPartition(NAME, 0, 0),), max_wait_ms=0),
    messages.OffsetsForTimesRequest((messages.OffsetsForTimesPartition(NAME, 0, 0),)),
    messages.ExplainRequest((messages.ExplainPartition(NAME, 0, offset=0),)),
    messages.DescribeConfigsRequest((NAME,)),
    messages.CreateTopicsRequest((messages.NewTopic("second", 1),)),
    messages.CreatePartitionsRequest((messages.NewPartitions(NAME, 2),)),
    messages.AlterConfigsRequest((messages.ConfigChange(NAME, {"retention.ms": "-1"}),)),
    messages.InitProducerRequest(),
    messages.InitProducerRequest(NAME),
    messages.EndTransactionRequest(messages.TransactionProducer(NAME, 1, 0), commit=True),
    messages.ListTransactionsRequest(),
    messages.DescribeTransactionsRequest((NAME,)),
    messages.DescribeProducersRequest((messages.Partition(NAME, 0),)),
    messages.AbortTransactionRequest(NAME),
    messages.AbortHangingTransactionsRequest((messages.HangingTransaction(NAME, 0, 1),)),
    messages.CommitOffsetsRequest(NAME, (messages.CommittedPartition(NAME, 0, 0),)),
    messages.FetchOffsetsRequest(NAME, (PARTITION,)),
    messages.ListGroupsRequest(),
    messages.DescribeGroupsRequest((NAME,)),
    messages.DeleteGroupsRequest((NAME,)),
    messages.AlterShareGroupOffsetsRequest(NAME, (messages.SharedStart(NAME, 0, 0),)),
    messages.AlterQuotasRequest((messages.Quota((messages.QuotaPart("user", NAME),), (messages.QuotaValue("k", 1.0),)),)),
    messages.DescribeQuotasRequest(),
    messages.AlterUsersRequest((messages.UserChange(NAME, "SCRAM-SHA-256"),)),
    messages.DescribeUsersRequest(),
    messages.DescribeAclsRequest(messages.AclEntry()),
    messages.CreateAclsRequest((messages.AclEntry(),)),
    messages.DeleteAclsRequest((messages.AclEntry(),)),
    messages.ListGapsRequest((NAME,)),
    messages.AcceptGapsRequest((messages.AcceptGapsPartition(NAME, 0, 0),)),
    messages.DescribeSegmentsRequest((messages.DescribeSegmentsPartition(NAME, 0),)),
    messages.SplitPointsRequest((messages.SplitPointsPartition(NAME, 0, 0, 1, 1),)),
    messages.LeaseSegmentsRequest((messages.Partition(NAME, 0),), 1000),
    messages.StageRequest("application", 1, "task", (messages.StagePartition(NAME, 0, batch()),)),
    messages.CommitStageRequest("application", 1, ()),
    messages.AbortStageRequest("application", 1),
    messages.LastCommitRequest("application"),
    messages.ProduceRequest((messages.ProducePartition(NAME, 0, batch()),)),
    messages.DeleteRecordsRequest((messages.DeleteRecordsPartition(NAME, 0, 0),)),
    messages.DeleteTopicsRequest((NAME,)),
)


@contextmanager
def exhausted(server: ServerProcess, client: WireClient) -> Iterator[None]:
    """It can open nothing more for the time of the block. Nothing may be loaded meanwhile, or break, and afterwards it does
    what it did before."""
    folder = server.ready_file.parent
    loaded = descriptor_limits.imports_of(folder)
    descriptor_limits.exhaust(server)
    yield
    assert descriptor_limits.imports_of(folder)[len(loaded) :] == []
    assert "Traceback" not in server.stderr()
    descriptor_limits.relieve(server)
    client.create_topic("afterwards")
    assert client.produce("afterwards", 0, batch()) == 0


def accepted(server: ServerProcess, connect: Callable[[], Client]) -> Client:
    """A connection that the server has taken."""
    sockets = server.open_sockets()
    client = connect()
    server.wait_sockets(sockets + 1)
    return client


def ask_kafka(address: tuple[str, int], client: KafkaWire, requests: Sequence[tuple[Any, int]]) -> set[str]:
    """The APIs that had an answer. What ends its connection has none: the next one is asked in another connection, which has
    the descriptor of the one before."""
    answered = set()
    try:
        for body, version in requests:
            try:
                client.call(body, version)
            except ConnectionError:
                client.close()
                client = KafkaWire.connect(address)
            else:
                answered.add(api_of(body).name)
    finally:
        client.close()
    return answered


def test_whatever_is_first_asked_for_at_the_limit_is_answered(tmp_path: Path) -> None:
    """Batches of every codec, health and metrics, every native call, every API of Kafka."""
    with ServerFolder(tmp_path, command=TELLING) as folder:
        listeners = ("--kafka", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
        server = folder.start(*listeners, extra_environment={"TRIOLOG_TELEMETRY_ENABLE": "true"})
        connect = partial(KafkaWire.connect, server.address_of("kafka"))
        with WireClient.connect(server.address) as beside:
            beside.create_topic(NAME)
            assert beside.produce(NAME, 0, batch()) == 0  # its file is open
            with (
                accepted(server, connect) as producer,
                accepted(server, partial(socket.create_connection, server.address_of("metrics"), 60)) as http,
                accepted(server, partial(WireClient.connect, server.address, say_hello=False)) as native,
                accepted(server, connect) as client,
                exhausted(server, beside),
            ):
                check_codecs(producer, beside)
                check_http(http)
                native.say_hello()
                called = {native.receive_answer(native.send(message)).api for message in NATIVE}
                answered = ask_kafka(server.address_of("kafka"), client, REQUESTS)
        assert called == {message.api for message in NATIVE} == set(messages.REQUESTS) - {"hello"}
        assert answered == {api.name for api in APIS.values()}
        assert server.stop() == 0


def check_codecs(client: KafkaWire, beside: WireClient) -> None:
    batches = [batch(START_MS, value=b"x" * 1000, compression_type=compression) for compression in CompressionType]
    for records in batches:
        [answer] = client.call(produce_request(records, topic=NAME), 9).responses
        assert [each.error_code for each in answer.partition_responses] == [0]
    assert beside.produce(NAME, 0, batches[-1]) == 1 + len(batches)


def check_http(asking: socket.socket) -> None:
    for path in ("/livez", "/readyz", "/nothing", "/metrics"):
        end = "close" if path == "/metrics" else "keep-alive"
        asking.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: {end}\r\n\r\n".encode())
    answers = b"".join(iter(partial(asking.recv, 65536), b""))
    statuses = [line.split()[1] for line in answers.splitlines() if line.startswith(b"HTTP/")]
    assert statuses == [b"200", b"200", b"404", b"200"]
    assert b"triolog_bugs_total" in answers


def test_every_api_of_kafka_that_is_asked_for_before_a_login_at_the_limit_ends_its_connection_alone(tmp_path: Path) -> None:
    with ServerFolder(tmp_path, command=TELLING) as folder:
        security = {"TRIOLOG_KAFKA_SECURITY": "sasl_plaintext"}
        server = folder.start("--kafka", "127.0.0.1:0", extra_environment=security)
        answered = set()
        with WireClient.connect(server.address) as beside, ExitStack() as clients:
            connect = partial(KafkaWire.connect, server.address_of("kafka"))
            asking = {name: clients.enter_context(accepted(server, connect)) for name in NEWEST}
            with exhausted(server, beside):
                for name, client in asking.items():
                    with suppress(ConnectionError):
                        client.call(*NEWEST[name])
                        answered.add(name)
        assert answered == {"ApiVersions", "SaslHandshake"}
        assert server.stop() == 0


def attack(server: ServerProcess, clients: ExitStack, number: int) -> None:
    """One more connection of each kind, which says something that was never said, and does not wait for what comes of it."""
    body, version = ATTACKS[number % len(ATTACKS)]
    said = {
        server.address: b"\x00\x00\x00\x03abc",
        server.address_of("kafka"): frame(body, version, 1),
        server.address_of("metrics"): b"GET /metrics HTTP/1.1\r\n",
    }
    for address, data in said.items():
        peer = clients.enter_context(socket.create_connection(address, 60))
        with suppress(ConnectionError):  # it was ended before it could say anything
            peer.sendall(data)


def work(native: WireClient, kafka: KafkaWire, number: int) -> None:
    """Two records, and two looks at them, whose answers are those that are due."""
    assert native.produce(TOPIC, 0, batch()) == 2 * number
    [produced] = kafka.call(produce_request(batch(), topic=TOPIC), 9).responses
    assert [each.base_offset for each in produced.partition_responses] == [2 * number + 1]
    assert native.high_watermark(TOPIC) == 2 * number + 2
    [fetched] = kafka.call(fetch_request(fetch_partition(2 * number), topic=TOPIC), 11).responses
    assert [each.high_watermark for each in fetched.partitions] == [2 * number + 2]


def test_clients_of_either_protocol_are_answered_while_others_take_all_connections_and_descriptors(tmp_path: Path) -> None:
    """Every answer is waited for before the next attack, so none can be missing, and none is late behind one."""
    with ServerFolder(tmp_path, command=LIMITED) as folder, ExitStack() as attackers:
        server = folder.start("--kafka", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--durability", "os")
        with WireClient.connect(server.address) as native, KafkaWire.connect(server.address_of("kafka")) as kafka:
            native.create_topic(TOPIC)
            kafka.call(cluster.ApiVersionsRequest(), 0)
            loaded = descriptor_limits.imports_of(tmp_path)
            for number in range(ROUNDS):
                attack(server, attackers, number)
                work(native, kafka, number)
            descriptor_limits.exhaust(server)
            for number in range(ROUNDS, 2 * ROUNDS):
                attack(server, attackers, number)
                work(native, kafka, number)
            assert descriptor_limits.imports_of(tmp_path)[len(loaded) :] == []
            attackers.close()
            descriptor_limits.relieve(server)
            with WireClient.connect(server.address) as late:
                assert late.high_watermark(TOPIC) == 4 * ROUNDS
        assert server.stop() == 0
        assert "unhandled exception" not in server.stderr()
        assert server.stderr().count("accepting on") <= 3


@pytest.mark.parametrize("security", ["sasl_plaintext", "sasl_ssl"])
def test_clients_of_both_protocols_log_in_with_no_descriptor_left(
    tmp_path: Path, certificates: Certificates, security: str
) -> None:
    """Their connections were accepted before; handshakes and logins, by every mechanism, come when nothing can be opened."""
    users, config = tmp_path / "users.toml", tmp_path / "server.toml"
    users.write_text(f'[alice]\npassword = "{PASSWORD}"\n')
    config.write_text(
        f'kafka_security = "{security}"\nnative_security = "{security}"\nsasl_users_file = "{users}"\n'
        f'ssl_certificate_file = "{certificates.server}"\nlog_level = "debug"\n'
    )
    context = certificates.client_context() if security == "sasl_ssl" else None
    with ServerFolder(tmp_path, command=LIMITED) as folder, ExitStack() as stack:
        server = folder.start("--config", str(config), "--kafka", "127.0.0.1:0")
        listening = server.open_sockets()
        by_native = ["PLAIN", *DIGESTS] if context is not None else list(DIGESTS)
        doors = {server.address: by_native, server.address_of("kafka"): ["PLAIN", *DIGESTS]}
        opened = {
            (address, mechanism): stack.enter_context(socket.create_connection(address, 60))
            for address, mechanisms in doors.items()
            for mechanism in mechanisms
        }
        server.wait_sockets(listening + len(opened))
        loaded = descriptor_limits.imports_of(tmp_path)
        descriptor_limits.exhaust(server)
        for (address, mechanism), plain in opened.items():
            connection = plain if context is None else stack.enter_context(context.wrap_socket(plain, server_hostname=HOST))
            log_in = native_login if address == server.address else kafka_login
            log_in(connection, mechanism)
        assert server.stderr().count("logged in as alice") == len(opened)
        assert descriptor_limits.imports_of(tmp_path)[len(loaded) :] == []
        descriptor_limits.relieve(server)
        assert server.stop() == 0
        assert "Traceback" not in server.stderr()


def native_login(connection: socket.socket, mechanism: str) -> None:
    client = WireClient(connection, NativeConnection(Role.CLIENT))
    client.say_hello()
    if mechanism == "PLAIN":
        assert client.call(AuthenticateRequest(mechanism, f"\0alice\0{PASSWORD}".encode())).done
        return
    exchange = ScramClient(DIGESTS[mechanism], "alice", PASSWORD)
    first = client.call(AuthenticateRequest(mechanism, exchange.first()))
    last = client.call(AuthenticateRequest(mechanism, exchange.final(first.data)))
    assert last.done
    assert exchange.check(last.data)


def kafka_login(connection: socket.socket, mechanism: str) -> None:
    client = KafkaWire(connection)
    assert client.call(security.SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
    if mechanism == "PLAIN":
        answer = client.call(security.SaslAuthenticateRequest(auth_bytes=f"\0alice\0{PASSWORD}".encode()), 2)
        assert answer.error_code == 0
        return
    exchange = ScramClient(DIGESTS[mechanism], "alice", PASSWORD)
    first = client.call(security.SaslAuthenticateRequest(auth_bytes=exchange.first()), 2)
    assert exchange.check(
        client.call(security.SaslAuthenticateRequest(auth_bytes=exchange.final(first.auth_bytes)), 2).auth_bytes
    )
