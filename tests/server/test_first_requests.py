"""Whatever is asked for the first time when the process may open nothing more is answered: everything that a request needs was
loaded before the server listened. What needs a file is refused, and done when there are descriptors again."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from triolog.protocol.kafka.apis import APIS
from triolog.protocol.kafka.messages.api_versions import ApiVersionsRequest
from triolog.protocol.kafka.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from triolog.protocol.kafka.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from triolog.protocol.kafka.messages.transactions import ListTransactionsRequest
from triolog.protocol.native import messages
from triolog.protocol.types import CompressionType

from tests.support.certificates import Certificates
from tests.support.descriptor_limits import (
    TELLS_IMPORTS,
    exhaust,
    imports_of,
    kafka_address,
    limited_to,
    metrics_address,
    relieve,
)
from tests.support.kafka_requests import NAME, requests_of
from tests.support.kafka_server import produce_request
from tests.support.kafka_wire import KafkaWire, api_of
from tests.support.logs import START_MS, batch
from tests.support.scram_client import ScramClient
from tests.support.server_process import ServerFolder, ServerProcess, python_command
from tests.support.wire_client import WireClient

Client = TypeVar("Client", WireClient, KafkaWire, socket.socket)
TELLING: Final = python_command(f"{TELLS_IMPORTS}{limited_to(1024)}")
REQUESTS: Final = [request for api in APIS.values() for request in requests_of(api)]
PARTITION: Final = messages.OffsetsPartition(NAME, 0)
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
    messages.DescribeProducersRequest((messages.DescribeProducersPartition(NAME, 0),)),
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
    messages.ListGapsRequest((NAME,)),
    messages.AcceptGapsRequest((messages.AcceptGapsPartition(NAME, 0, 0),)),
    messages.DescribeSegmentsRequest((messages.DescribeSegmentsPartition(NAME, 0),)),
    messages.SplitPointsRequest((messages.SplitPointsPartition(NAME, 0, 0, 1, 1),)),
    messages.LeaseSegmentsRequest((messages.LeasePartition(NAME, 0),), 1000),
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
    loaded = imports_of(folder)
    exhaust(server)
    yield
    assert imports_of(folder)[len(loaded) :] == []
    assert "Traceback" not in server.stderr()
    relieve(server)
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


def test_every_api_of_kafka_is_answered_that_is_first_asked_for_at_the_limit(tmp_path: Path) -> None:
    with ServerFolder(tmp_path, command=TELLING) as folder:
        server = folder.start("--kafka", "127.0.0.1:0", extra_environment={"TRIOLOG_TELEMETRY_ENABLE": "true"})
        with WireClient.connect(server.address) as beside:
            beside.create_topic(NAME)
            client = accepted(server, partial(KafkaWire.connect, kafka_address(server)))
            with exhausted(server, beside):
                answered = ask_kafka(kafka_address(server), client, REQUESTS)
        assert answered == {api.name for api in APIS.values()}
        assert server.stop() == 0


def test_every_api_of_kafka_that_is_asked_for_before_a_login_at_the_limit_ends_its_connection_alone(tmp_path: Path) -> None:
    newest = {api_of(body).name: (body, version) for body, version in REQUESTS}
    with ServerFolder(tmp_path, command=TELLING) as folder:
        security = {"TRIOLOG_KAFKA_SECURITY": "sasl_plaintext"}
        server = folder.start("--kafka", "127.0.0.1:0", extra_environment=security)
        answered = set()
        with WireClient.connect(server.address) as beside, ExitStack() as clients:
            connect = partial(KafkaWire.connect, kafka_address(server))
            asking = {name: clients.enter_context(accepted(server, connect)) for name in newest}
            with exhausted(server, beside):
                for name, client in asking.items():
                    with suppress(ConnectionError):
                        client.call(*newest[name])
                        answered.add(name)
        assert answered == {"ApiVersions", "SaslHandshake"}
        assert server.stop() == 0


def test_every_native_call_is_answered_that_is_first_asked_for_at_the_limit(tmp_path: Path) -> None:
    assert {message.api for message in NATIVE} == set(messages.REQUESTS) - {"hello"}
    with ServerFolder(tmp_path, command=TELLING) as folder:
        server = folder.start()
        with WireClient.connect(server.address) as beside:
            beside.create_topic(NAME)
            with (
                accepted(server, partial(WireClient.connect, server.address, say_hello=False)) as client,
                exhausted(server, beside),
            ):
                client.say_hello()
                answered = {client.receive_answer(client.send(message)).api for message in NATIVE}
        assert answered == {message.api for message in NATIVE}
        assert server.stop() == 0


def test_a_batch_of_every_codec_is_checked_that_first_comes_at_the_limit(tmp_path: Path) -> None:
    batches = [batch(START_MS, value=b"x" * 1000, compression_type=compression) for compression in CompressionType]
    with ServerFolder(tmp_path, command=TELLING) as folder:
        server = folder.start("--kafka", "127.0.0.1:0")
        with WireClient.connect(server.address) as beside, KafkaWire.connect(kafka_address(server)) as client:
            beside.create_topic(NAME)
            assert beside.produce(NAME, 0, batch()) == 0  # its file is open
            client.call(ApiVersionsRequest(), 0)
            with exhausted(server, beside):
                for records in batches:
                    [answer] = client.call(produce_request(records, topic=NAME), 9).responses
                    assert [each.error_code for each in answer.partition_responses] == [0]
                assert beside.produce(NAME, 0, batches[-1]) == 1 + len(batches)
        assert server.stop() == 0


def test_a_login_over_tls_and_a_pattern_are_first_met_at_the_limit(tmp_path: Path, certificates: Certificates) -> None:
    users = tmp_path / "users.toml"
    users.write_text('[user]\npassword = "password"\n')
    users.chmod(0o600)
    security = {
        "TRIOLOG_KAFKA_SECURITY": "sasl_ssl",
        "TRIOLOG_SASL_USERS_FILE": str(users),
        "TRIOLOG_SSL_CERTIFICATE_FILE": certificates.server,
    }
    with ServerFolder(tmp_path, command=TELLING) as folder:
        server = folder.start("--kafka", "127.0.0.1:0", extra_environment=security)
        with WireClient.connect(server.address) as beside:
            plain = accepted(server, partial(socket.create_connection, kafka_address(server), 60))
            with exhausted(server, beside):
                encrypted = certificates.client_context().wrap_socket(plain, server_hostname="127.0.0.1")
                with KafkaWire(encrypted) as client:
                    log_in(client)
                    heartbeat = ConsumerGroupHeartbeatRequest(
                        group_id=NAME, member_id=NAME, rebalance_timeout_ms=1000, subscribed_topic_regex="f.*"
                    )
                    client.call(heartbeat, 1)
                    listing = client.call(ListTransactionsRequest(transactional_id_pattern="f.*"), 2)
                    assert listing.error_code == 0
        assert server.stop() == 0


def log_in(client: KafkaWire) -> None:
    scram = ScramClient("sha256", "user", "password")
    assert client.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1).error_code == 0
    first = client.call(SaslAuthenticateRequest(auth_bytes=scram.first()), 2)
    last = client.call(SaslAuthenticateRequest(auth_bytes=scram.final(first.auth_bytes)), 2)
    assert scram.check(last.auth_bytes)


def test_health_and_metrics_are_first_asked_for_at_the_limit(tmp_path: Path) -> None:
    with ServerFolder(tmp_path, command=TELLING) as folder:
        server = folder.start("--metrics", "127.0.0.1:0")
        with WireClient.connect(server.address) as beside:
            asking = accepted(server, partial(socket.create_connection, metrics_address(server), 60))
            with asking, exhausted(server, beside):
                for path in ("/livez", "/readyz", "/nothing", "/metrics"):
                    end = "close" if path == "/metrics" else "keep-alive"
                    asking.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: {end}\r\n\r\n".encode())
                answers = b"".join(iter(partial(asking.recv, 65536), b""))
            assert [line.split()[1] for line in answers.splitlines() if line.startswith(b"HTTP/")] == [
                b"200",
                b"200",
                b"404",
                b"200",
            ]
            assert b"triolog_bugs_total" in answers
        assert server.stop() == 0
