"""Appends over HTTP to a real server: formats, offsets, errors in Confluent's shape, keys, streams, logins, rights, quotas.
What a request holds in memory is charged to its client, and given back."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from triolog.protocol.native import messages
from triolog.protocol.records.partitioners import partition_for_key
from triolog.server.config.broker_config import Address
from triolog.server.listeners.addresses import Addresses
from triolog.server.listeners.connections.budget import Share
from triolog.server.listeners.http.produce import HELD_PER_RECORD, MAX_RECORDS
from triolog.server.listeners.http.session import MAX_BODY_BYTES
from triolog.server.listeners.opening import Listeners

from tests.support.brokers import PARTITION, TOPIC, actor_of, one_partition, until, values_from
from tests.support.certificates import Certificates
from tests.support.forked_servers import ServerForker
from tests.support.http_producer import BINARY_V2, JSON_V2, NDJSON, HttpProducer, RawStream
from tests.support.server_process import ServerFolder, ServerProcess
from tests.support.tokens import unsecured
from tests.support.wire_client import WireClient

ANY_PORT: Final = {"TRIOLOG_HTTP": "127.0.0.1:0"}
PASSWORD: Final = "secret of alice"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, server_forker: ServerForker) -> Iterator[ServerProcess]:
    with ServerFolder(tmp_path_factory.mktemp("http"), command=server_forker) as folder:
        started = folder.start(extra_environment=ANY_PORT)
        yield started
        assert started.stop() == 0, started.stderr()
        assert "Traceback" not in started.stderr(), started.stderr()


@pytest.fixture
def client(server: ServerProcess) -> Iterator[WireClient]:
    with WireClient.connect(server.address) as connected:
        yield connected


@pytest.fixture
def producer(server: ServerProcess) -> Iterator[HttpProducer]:
    with HttpProducer(server.address_of("http")) as connected:
        yield connected


_NUMBERS: Final = itertools.count()


@pytest.fixture
def topic(client: WireClient) -> str:
    """A new topic of one partition."""
    name = f"topic-{next(_NUMBERS)}"
    client.create_topic(name)
    return name


def records_of(client: WireClient, topic: str, partition: int = 0) -> list[tuple[bytes | None, bytes | None]]:
    records, _ = client.read_all(topic, partition)
    return [(record.key, record.value) for record in records]


def values_of(client: WireClient, topic: str, partition: int = 0) -> list[bytes | None]:
    return [value for _, value in records_of(client, topic, partition)]


# ---- formats ---------------------------------------------------------------------------------------------------------


def test_json_is_stored_as_it_was_written(producer: HttpProducer, client: WireClient, topic: str) -> None:
    records = b'{"value": {"a": 1.10, "b":12345678901234567890.123}}, {"key": "k", "value": null}, {"value": "\\u00e4"}'
    reply = producer.post(f"/topics/{topic}", b'{"records": [%b]}' % records)
    assert (reply.status, reply.offsets) == (200, [(0, 0), (0, 1), (0, 2)])
    assert set(reply.body) == {"offsets", "key_schema_id", "value_schema_id"}
    assert records_of(client, topic) == [
        (None, b'{"a": 1.10, "b":12345678901234567890.123}'),
        (b'"k"', None),
        (None, b'"\\u00e4"'),
    ]


def test_binary_is_base64(producer: HttpProducer, client: WireClient, topic: str) -> None:
    key, value = (base64.b64encode(data).decode() for data in (b"\0key", bytes(range(256))))
    body = json.dumps({"records": [{"key": key, "value": value}, {"value": None}]}).encode()
    assert producer.post(f"/topics/{topic}", body, BINARY_V2).offsets == [(0, 0), (0, 1)]
    assert records_of(client, topic) == [(b"\0key", bytes(range(256))), (None, None)]


def test_records_go_where_the_record_the_path_or_the_key_says(producer: HttpProducer, client: WireClient, topic: str) -> None:
    client.create_topic(f"{topic}-3", 3)
    records = [{"value": 1, "partition": 2}, *({"key": str(number), "value": number} for number in range(20))]
    reply = producer.post(f"/topics/{topic}-3", json.dumps({"records": records}).encode())
    assert [partition for partition, _ in reply.offsets] == [2, *(partition_for_key(f'"{n}"'.encode(), 3) for n in range(20))]
    assert {each for each, _ in producer.values(f"/topics/{topic}-3/partitions/1", 1, 2).offsets} == {1}
    rotating = {producer.values(f"/topics/{topic}-3", 1).offsets[0][0] for _ in range(3)}
    assert rotating == {0, 1, 2}


# ---- bad input -------------------------------------------------------------------------------------------------------

OK: Final = b'{"records": [{"value": 1}]}'
BAD: Final[dict[str, tuple[str, bytes, str, tuple[int, int]]]] = {
    "broken json": ("", b'{"records": [{"value": 1}', JSON_V2, (422, 42201)),
    "no json number": ("", b'{"records": [{"value": NaN}]}', JSON_V2, (422, 42201)),
    "not utf-8": ("", b'{"records": [{"value": "\xff"}]}', JSON_V2, (422, 42201)),
    "nested too deeply": ("", b'{"records": [{"value": ' + b"[" * 100_000 + b"}]}", JSON_V2, (422, 42201)),
    "no records": ("", b"{}", JSON_V2, (422, 42201)),
    "empty records": ("", b'{"records": []}', JSON_V2, (422, 42201)),
    "records twice": ("", b'{"records": [{}], "records": [{}]}', JSON_V2, (422, 42201)),
    "more after it": ("", OK + b"x", JSON_V2, (422, 42201)),
    "unknown member": ("", b'{"records": [{"headers": []}]}', JSON_V2, (422, 42201)),
    "empty": ("", b"", JSON_V2, (422, 42201)),
    "wrong base64": ("", b'{"records": [{"value": "YQ"}]}', BINARY_V2, (422, 42201)),
    "no base64": ("", b'{"records": [{"value": 7}]}', BINARY_V2, (422, 42201)),
    "odd partition": ("", b'{"records": [{"value": 1, "partition": -1}]}', JSON_V2, (422, 42201)),
    "partition twice": ("/partitions/0", b'{"records": [{"value": 1, "partition": 0}]}', JSON_V2, (422, 42201)),
    "unknown topic": ("x", OK, JSON_V2, (404, 40401)),
    "unknown partition": ("/partitions/1", OK, JSON_V2, (404, 40402)),
    "unknown partition of a record": ("", b'{"records": [{"value": 1, "partition": 9}]}', JSON_V2, (404, 40402)),
    "unknown path": ("/records", OK, JSON_V2, (404, 404)),
    "content type": ("", OK, "application/json", (415, 415)),
    "large body": ("", b" " * (MAX_BODY_BYTES + 1), JSON_V2, (413, 413)),
    "many records": ("", b'{"records": [' + b"{}," * MAX_RECORDS + b"{}]}", JSON_V2, (413, 413)),
    "large record": ("", json.dumps({"records": [{"value": "x" * 5000}]}).encode(), JSON_V2, (413, 413)),
    "line that is not json": ("", b"{]\n", NDJSON, (422, 42201)),
    "two values in a line": ("", b"1 2\n", NDJSON, (422, 42201)),
    "large line": ("", b'"' + b"x" * 5000 + b'"\n', NDJSON, (413, 413)),
    "large line without an end": ("", b'"' + b"x" * 5000, NDJSON, (413, 413)),
    "line to an unknown topic": ("x", b"1\n", NDJSON, (404, 40401)),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_a_code_and_appends_nothing(producer: HttpProducer, client: WireClient, case: str, topic: str) -> None:
    client.create_topic(f"{topic}-small", 1, {"max.message.bytes": "4096"})
    path, body, content_type, error = BAD[case]
    reply = producer.post(f"/topics/{topic}-small{path}", body, content_type)
    assert reply.error == error, reply
    assert values_of(client, f"{topic}-small") == []
    assert producer.values(f"/topics/{topic}-small", 1).status == 200


def test_other_methods_and_compressed_bodies_are_refused(producer: HttpProducer, topic: str) -> None:
    assert producer.request("GET", f"/topics/{topic}", None, {}).error == (405, 405)
    assert producer.post(f"/topics/{topic}", OK, Content_Encoding="gzip").error == (415, 415)


def test_pages_of_other_sites_append_nothing(producer: HttpProducer, client: WireClient, topic: str) -> None:
    assert producer.post(f"/topics/{topic}", OK, Origin="http://example.com").status == 403
    assert producer.post(f"/topics/{topic}", OK, Host="example.com").status == 403
    assert values_of(client, topic) == []


def test_topics_of_the_server_take_no_records(producer: HttpProducer, client: WireClient) -> None:
    client.call(messages.CreateTopicsRequest((messages.NewTopic("__transaction_state", 1),)))
    assert producer.values("/topics/__transaction_state", 1).error == (422, 42201)


def test_records_that_a_partition_refuses_are_in_the_response(producer: HttpProducer, client: WireClient, topic: str) -> None:
    client.create_topic(f"{topic}-2", 2, {"max.message.bytes": "1000"})
    body = {"records": [{"value": "x" * 2000, "partition": 0}, {"value": 1, "partition": 1}]}
    reply = producer.post(f"/topics/{topic}-2", json.dumps(body).encode())
    refused, stored = reply.body["offsets"]
    assert (reply.status, refused["error_code"], refused["offset"]) == (200, 1, None)
    assert "max.message.bytes" in refused["error"] or "at most 1000" in refused["error"]
    assert (stored["partition"], stored["offset"], stored["error_code"]) == (1, 0, None)


# ---- streams ---------------------------------------------------------------------------------------------------------


def test_a_stream_is_appended_line_by_line(producer: HttpProducer, client: WireClient, topic: str) -> None:
    reply = producer.stream(f"/topics/{topic}", [b'{"a": 1}\n\n', b"  \n2\r\n", b'"no ', b'newline"'])
    assert (reply.status, reply.body["records"], reply.ranges) == (200, 3, [(0, 0, 2)])
    assert values_of(client, topic) == [b'{"a": 1}', b"2", b'"no newline"']
    reply = producer.post(f"/topics/{topic}", b"", NDJSON)
    assert (reply.status, reply.body) == (200, {"records": 0, "already_appended": 0, "offsets": []})


def test_records_of_a_stream_are_appended_while_it_arrives(server: ServerProcess, client: WireClient, topic: str) -> None:
    with RawStream(server.address_of("http"), f"/topics/{topic}") as stream:
        stream.send(b"1\n2\n3")
        read = client.fetch(topic, 0, 0, max_wait_ms=60_000, min_bytes=1)
        assert read.high_watermark == 2
        stream.send(b"3\n")
        client.fetch(topic, 0, 2, max_wait_ms=60_000, min_bytes=1)
        assert values_of(client, topic) == [b"1", b"2", b"33"]


def test_a_stream_that_breaks_says_which_offsets_it_has(server: ServerProcess, client: WireClient, topic: str) -> None:
    with RawStream(server.address_of("http"), f"/topics/{topic}") as stream:
        stream.send(b"1\n2\n")
        client.fetch(topic, 0, 0, max_wait_ms=60_000, min_bytes=1)
        client.produce(topic, 0, (messages.PlainRecord(None, None, b"of another", ()),))
        stream.send(b"3\n4")
        reply = stream.break_off()
    assert reply.error == (400, 400)
    assert (reply.body["records"], reply.ranges) == (3, [(0, 0, 1), (0, 3, 3)])
    assert values_of(client, topic) == [b"1", b"2", b"of another", b"3"]


def test_lines_before_a_bad_one_are_appended_and_no_others(producer: HttpProducer, client: WireClient, topic: str) -> None:
    reply = producer.post(f"/topics/{topic}", b"1\n2\nbad\n4\n", NDJSON)
    assert (reply.error, reply.body["records"], reply.ranges) == ((422, 42201), 2, [(0, 0, 1)])
    assert reply.body["message"].startswith("line 3 is not JSON")
    assert values_of(client, topic) == [b"1", b"2"]


def test_a_long_stream_keeps_its_order_across_batches(producer: HttpProducer, client: WireClient, topic: str) -> None:
    lines = [b'{"n": %d, "pad": "%b"}' % (number, b"x" * 150) for number in range(20_000)]
    data = b"\n".join(lines)
    pieces = [data[start : start + 100_001] for start in range(0, len(data), 100_001)]
    assert producer.stream(f"/topics/{topic}", pieces).ranges == [(0, 0, 19_999)]
    assert values_of(client, topic) == lines


def test_a_server_that_stops_says_what_it_has_of_a_stream(server_folder: ServerFolder) -> None:
    server = server_folder.start(extra_environment=ANY_PORT)
    with WireClient.connect(server.address) as client, RawStream(server.address_of("http"), "/topics/t") as stream:
        client.create_topic("t")
    with WireClient.connect(server.address) as client, RawStream(server.address_of("http"), "/topics/t") as stream:
        stream.send(b"1\n2\n3")
        client.fetch("t", 0, 0, max_wait_ms=60_000, min_bytes=1)
        server.terminate()
        reply = stream.reply()
    assert (reply.error, reply.ranges) == ((503, 503), [(0, 0, 1)])
    assert server.wait_exit() == 0


# ---- idempotency keys ------------------------------------------------------------------------------------------------


def test_a_body_with_a_key_is_appended_once(producer: HttpProducer, client: WireClient, topic: str) -> None:
    client.create_topic(f"{topic}-3", 3)
    first = producer.values(f"/topics/{topic}-3", 1, 2, Idempotency_Key="a")
    assert producer.values(f"/topics/{topic}-3", 1, 2, Idempotency_Key="a") == first
    other = producer.values(f"/topics/{topic}-3", 1, 3, Idempotency_Key="a")
    assert other.error == (422, 42201)
    assert "another body" in other.body["message"]
    assert producer.values(f"/topics/{topic}-3", 1, 3, Idempotency_Key="b").status == 200
    assert sorted(itertools.chain(*(values_of(client, f"{topic}-3", each) for each in range(3)))) == [b"1", b"1", b"2", b"3"]


def test_a_stream_with_a_key_continues_where_it_broke(server: ServerProcess, client: WireClient, topic: str) -> None:
    with RawStream(server.address_of("http"), f"/topics/{topic}", Idempotency_Key="s") as stream:
        stream.send(b"1\n\n2\n3")
        assert stream.break_off().body["records"] == 2
    with HttpProducer(server.address_of("http")) as producer:
        reply = producer.stream(f"/topics/{topic}", [b"1\n\n2\n3\n4\n"], Idempotency_Key="s")
        assert (reply.body["records"], reply.body["already_appended"], reply.ranges) == (2, 2, [(0, 2, 3)])
        again = producer.stream(f"/topics/{topic}", [b"1\n\n2\n3\n4\n"], Idempotency_Key="s")
        assert (again.status, again.body["records"], again.body["already_appended"]) == (200, 0, 4)
    assert values_of(client, topic) == [b"1", b"2", b"3", b"4"]


def test_keys_are_remembered_across_a_kill(server_folder: ServerFolder) -> None:
    server = server_folder.start(extra_environment=ANY_PORT)
    with WireClient.connect(server.address) as client, HttpProducer(server.address_of("http")) as producer:
        client.create_topic("t")
        first = producer.values("/topics/t", 1, Idempotency_Key="a")
        producer.stream("/topics/t", [b"2\n3\n"], Idempotency_Key="a")
    server.kill()
    server = server_folder.start(extra_environment=ANY_PORT)
    with WireClient.connect(server.address) as client, HttpProducer(server.address_of("http")) as producer:
        assert producer.values("/topics/t", 1, Idempotency_Key="a") == first
        assert producer.stream("/topics/t", [b"2\n3\n4\n"], Idempotency_Key="a").body["already_appended"] == 2
        assert values_of(client, "t") == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("key", ["", "x" * 256, "\x01"])
def test_a_key_is_1_to_255_printable_characters(producer: HttpProducer, topic: str, key: str) -> None:
    assert producer.values(f"/topics/{topic}", 1, Idempotency_Key=key).status in (400, 422)


# ---- logins, rights, quotas ------------------------------------------------------------------------------------------


def secured(folder: ServerFolder, **keys: Any) -> ServerProcess:
    """A server with alice, whose file has her password, and ACLs."""
    users, config = folder.path / "users.toml", folder.path / "server.toml"
    users.write_text(f'[alice]\npassword = "{PASSWORD}"\n[bob]\npassword = "secret of bob"\n')
    values = {
        "http": "127.0.0.1:0",
        "http_security": "sasl_plaintext",
        "sasl_users_file": str(users),
        "connection_failed_authentication_delay_ms": 1,
        "acl_enable": True,
        "super_users": "User:alice;User:ANONYMOUS",
        **keys,
    }
    config.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()))
    server = folder.start("--config", str(config))
    with WireClient.connect(server.address) as client:
        client.create_topic("t")
    return server


def basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def test_users_log_in_with_basic_and_need_the_right_to_write(server_folder: ServerFolder) -> None:
    server = secured(server_folder)
    with HttpProducer(server.address_of("http")) as producer:

        def says(path: str, authorization: str | None) -> tuple[int, int]:
            headers = {} if authorization is None else {"Authorization": authorization}
            reply = producer.values(path, 1, **headers)
            return (200, 0) if reply.status == 200 else reply.error

        for wrong in (None, "Basic", "Basic !", basic("alice", "guess"), basic("eve", PASSWORD), "Digest x", "Bearer x"):
            assert says("/topics/t", wrong) == (401, 40101)
        assert says("/topics/t", basic("alice", PASSWORD)) == (200, 0)
        assert says("/topics/t", basic("bob", "secret of bob")) == (403, 40301)
        assert says("/topics/missing", basic("bob", "secret of bob")) == (403, 40301)
        assert says("/topics/missing", basic("alice", PASSWORD)) == (404, 40401)
    with WireClient.connect(server.address) as client:
        assert values_of(client, "t") == [b"1"]
        acl = messages.AclEntry("TOPIC", "t", "LITERAL", "User:bob", "*", "WRITE", "ALLOW")
        client.call(messages.CreateAclsRequest((acl,)))
    with HttpProducer(server.address_of("http")) as producer:
        assert producer.values("/topics/t", 2, Authorization=basic("bob", "secret of bob")).status == 200
        lines = producer.stream("/topics/t", [b"3\n"], Authorization=basic("bob", "secret of bob"))
        assert lines.status == 200


def test_nothing_of_a_body_is_received_before_the_login(server_folder: ServerFolder) -> None:
    server = secured(server_folder)
    with socket.create_connection(server.address_of("http"), 60) as peer:
        head = ["POST /topics/t HTTP/1.1", "Host: localhost", f"Content-Type: {NDJSON}", "Content-Length: 9"]
        peer.sendall("\r\n".join([*head, "Expect: 100-continue", "", ""]).encode())
        assert peer.recv(1000).startswith(b"HTTP/1.1 401 ")


def test_bearer_tokens_log_in(server_folder: ServerFolder) -> None:
    server = secured(server_folder, sasl_enabled_mechanisms="OAUTHBEARER", sasl_oauthbearer_unsecured_tokens=True)
    token = unsecured({"sub": "alice", "iat": 0, "exp": 2**33})
    with HttpProducer(server.address_of("http")) as producer:
        assert producer.values("/topics/t", 1, Authorization=f"Bearer {token}").status == 200
        expired = unsecured({"sub": "alice", "iat": 0, "exp": 1})
        assert producer.values("/topics/t", 1, Authorization=f"Bearer {expired}").error == (401, 40101)
        assert producer.values("/topics/t", 1, Authorization=basic("alice", PASSWORD)).error == (401, 40101)


def test_users_whom_a_client_has_added_log_in_with_their_password(server_folder: ServerFolder) -> None:
    server = secured(server_folder, sasl_enabled_mechanisms="SCRAM-SHA-256")
    salt, password = b"s" * 16, "secret of carol"
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, 4096)
    with WireClient.connect(server.address) as client:
        client.call(messages.AlterUsersRequest((messages.UserChange("carol", "SCRAM-SHA-256", 4096, salt, salted),)))
    with HttpProducer(server.address_of("http")) as producer:
        assert producer.values("/topics/t", 1, Authorization=basic("carol", "secret of carol")).error == (403, 40301)
        assert producer.values("/topics/t", 1, Authorization=basic("carol", "guess")).error == (401, 40101)


def test_appends_over_tls(server_folder: ServerFolder, certificates: Certificates) -> None:
    server = secured(server_folder, http_security="sasl_ssl", ssl_certificate_file=certificates.server)
    with HttpProducer(server.address_of("http"), certificates.client_context()) as producer:
        big = b'"%b"\n' % (b"x" * 100_000)
        assert producer.stream("/topics/t", [big, big, b"3\n"], Authorization=basic("alice", PASSWORD)).ranges == [(0, 0, 2)]
        assert producer.values("/topics/t", 1, Authorization=basic("alice", PASSWORD)).offsets == [(0, 3)]


def test_another_address_than_loopback_needs_a_login(server_folder: ServerFolder) -> None:
    server = server_folder.spawn(extra_environment={"TRIOLOG_HTTP": "0.0.0.0:0"})
    assert server.wait_exit() == 2
    assert "http_security" in server.stderr()


def test_without_the_key_nothing_listens(server_folder: ServerFolder) -> None:
    server = server_folder.start()
    assert "http" not in json.loads(server.ready_file.read_text())


LOCALHOST = Address("127.0.0.1", 0)
PIECE = b"x" * 60_000


async def test_streams_hold_memory_that_their_client_is_charged_for(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker, trio.open_nursery() as nursery:
        listeners = Listeners(broker)
        addresses = await listeners.start(nursery, Addresses(http=LOCALHOST))
        assert addresses.http is not None
        budget = listeners.admission.budget
        head = f"POST /topics/{TOPIC} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Type: "
        for content_type, held in ((NDJSON, 3), (JSON_V2, 6)):
            async with await trio.open_tcp_stream(*addresses.http) as stream:
                await stream.send_all(f"{head}{content_type}\r\n\r\n".encode())
                for number in range(1, 6):
                    await stream.send_all(b"%x\r\n%b\r\n" % (len(PIECE), PIECE))
                    await until(lambda: budget.held == held * number * len(PIECE))  # noqa: B023 - it is awaited here
                assert budget.used > 0
            await until(lambda: budget.held == 0 and not budget.shares)
        nursery.cancel_scope.cancel()


async def test_the_objects_of_small_records_are_charged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held, charge = [], Share.charge

    async def noted(share: Share) -> None:
        held.append(share.held)
        await charge(share)

    monkeypatch.setattr(Share, "charge", noted)
    body = b'{"records": [%b{}]}' % (b"{}," * 999)
    async with one_partition(tmp_path) as broker, trio.open_nursery() as nursery:
        listeners = Listeners(broker)
        addresses = await listeners.start(nursery, Addresses(http=LOCALHOST))
        assert addresses.http is not None
        async with await trio.open_tcp_stream(*addresses.http) as stream:
            head = f"POST /topics/{TOPIC} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\nContent-Type: {JSON_V2}"
            await stream.send_all(f"{head}\r\n\r\n".encode() + body)
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 ")
        assert max(held) >= 1000 * HELD_PER_RECORD
        await until(lambda: listeners.admission.budget.held == 0)
        nursery.cancel_scope.cancel()


async def test_appended_lines_hold_nothing(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker, trio.open_nursery() as nursery:
        listeners = Listeners(broker)
        addresses = await listeners.start(nursery, Addresses(http=LOCALHOST))
        assert addresses.http is not None
        async with await trio.open_tcp_stream(*addresses.http) as stream:
            head = f"POST /topics/{TOPIC} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Type: {NDJSON}"
            await stream.send_all(f"{head}\r\n\r\n".encode())
            for number in range(1, 4):
                await stream.send_all(b"%x\r\n%b\r\n" % (len(PIECE) + 3, b'"%b"\n' % PIECE))
                await until(lambda: actor_of(broker).log.high_watermark == number)  # noqa: B023 - it is awaited here
            await until(lambda: listeners.admission.budget.held == 0)
        assert len(await values_from(broker, PARTITION)) == number
        nursery.cancel_scope.cancel()


async def test_a_client_above_its_quota_waits_before_its_records_are_appended(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker, trio.open_nursery() as nursery:
        await broker.security.alter_client_quotas({(("client-id", "http"),): {"producer_byte_rate": 1.0}})
        throttled = broker.security.quotas.statistics.throttled
        listeners = Listeners(broker)
        addresses = await listeners.start(nursery, Addresses(http=LOCALHOST))
        assert addresses.http is not None
        body = b'{"records": [{"value": "%b"}]}' % PIECE
        async with await trio.open_tcp_stream(*addresses.http) as stream:
            head = f"POST /topics/{TOPIC} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\nContent-Type: {JSON_V2}"
            await stream.send_all(f"{head}\r\n\r\n".encode() + body)
            await until(lambda: throttled.get("producer_byte_rate") == 1)
            assert await values_from(broker, PARTITION) == []
            listeners.stop(60)
            reply = b"".join([piece async for piece in stream])
        assert reply.startswith(b"HTTP/1.1 200 ")
        assert await values_from(broker, PARTITION) == [b'"%b"' % PIECE]
