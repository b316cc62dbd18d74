"""The topic `_schemas`: the bytes that other registries read, and the state that a start reads back."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, Final

import pytest
import triolog
from triolog.protocol.types import SCHEMAS_TOPIC
from triolog.server.embedded import LOCALHOST, MEMORY, BlockingBroker
from triolog.server.registry.opening import serve_registry

from tests.support.registry_client import RegistryClient, record, submission

pytestmark = pytest.mark.usefixtures("extra")

ORDER: Final = record("Order", "table: int")
WITH_DRINK: Final = record("Order", "table: int", {"name": "drink", "type": "string", "default": "espresso"})


def records(broker: BlockingBroker) -> list[tuple[str, Any]]:
    """Keys, and values as JSON, of the whole topic."""
    return [
        ((each.key or b"").decode(), None if each.value is None else json.loads(each.value))
        for each in broker.log(SCHEMAS_TOPIC).fetch()
    ]


def put(broker: BlockingBroker, key: str, value: Any) -> None:
    """Append a record as another registry does."""
    text = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
    broker.append(SCHEMAS_TOPIC, [(None, key.encode(), text, ())])


def test_records_are_those_of_confluent(broker: BlockingBroker, registry: RegistryClient) -> None:
    """Keys byte for byte, because compaction compares them."""
    assert SCHEMAS_TOPIC not in broker.topics()
    registry.register("s", ORDER)
    registry.register("größe", record("Sized", "o: Order"), references=[{"name": "Order", "subject": "s", "version": 1}])
    registry.value("PUT", "/config", {"compatibility": "FULL"})
    registry.value("PUT", "/config/s", {"compatibility": "NONE", "normalize": True})
    registry.value("PUT", "/mode/s", {"mode": "READWRITE"})
    registry.value("DELETE", "/subjects/gr%C3%B6%C3%9Fe/versions/1")
    registry.value("DELETE", "/subjects/gr%C3%B6%C3%9Fe/versions/1?permanent=true")
    registry.value("DELETE", "/subjects/s")
    registry.value("DELETE", "/subjects/s?permanent=true")
    sized = {
        "subject": "größe",
        "version": 1,
        "id": 2,
        "references": [{"name": "Order", "subject": "s", "version": 1}],
        "schema": '{"type":"record","name":"Sized","fields":[{"name":"o","type":"Order"}]}',
    }
    text = '{"type":"record","name":"Order","fields":[{"name":"table","type":"int"}]}'
    assert records(broker) == [
        (
            '{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            {"subject": "s", "version": 1, "id": 1, "schema": text, "deleted": False},
        ),
        ('{"keytype":"SCHEMA","subject":"größe","version":1,"magic":1}', {**sized, "deleted": False}),
        ('{"keytype":"CONFIG","subject":null,"magic":0}', {"compatibilityLevel": "FULL"}),
        ('{"keytype":"CONFIG","subject":"s","magic":0}', {"subject": "s", "compatibilityLevel": "NONE", "normalize": True}),
        ('{"keytype":"MODE","subject":"s","magic":0}', {"subject": "s", "mode": "READWRITE"}),
        ('{"keytype":"SCHEMA","subject":"größe","version":1,"magic":1}', {**sized, "deleted": True}),
        ('{"keytype":"SCHEMA","subject":"größe","version":1,"magic":1}', None),
        ('{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}', {"subject": "s", "version": 1}),
        ('{"keytype":"MODE","subject":"s","magic":0}', None),
        ('{"keytype":"CONFIG","subject":"s","magic":0}', None),
        ('{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', None),
        ('{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}', None),
    ]
    assert broker.describe_topic(SCHEMAS_TOPIC).config["cleanup.policy"] == "compact"
    assert len(broker.describe_topic(SCHEMAS_TOPIC).partitions) == 1


def test_records_of_another_registry_take_effect_at_once(broker: BlockingBroker, registry: RegistryClient) -> None:
    broker.create_topic(SCHEMAS_TOPIC, 1, {"cleanup.policy": "compact"})
    put(broker, '{"keytype":"NOOP","magic":0}', None)
    value = {"subject": "s", "version": 3, "id": 40, "schema": '"string"', "deleted": False}
    put(broker, '{"keytype":"SCHEMA","subject":"s","version":3,"magic":1}', value)
    assert registry.get("/subjects/s/versions/latest")["id"] == 40
    put(
        broker,
        '{"keytype":"SCHEMA","subject":"s","version":4,"magic":1}',
        {**value, "version": 4, "id": 41, "schema": '"bytes"'},
    )
    put(broker, '{"keytype":"MODE","subject":null,"magic":0}', {"mode": "READONLY"})
    assert registry.get("/subjects/s/versions") == [3, 4]
    assert registry.error("POST", "/subjects/t/versions", submission(ORDER)) == 42205
    put(broker, '{"keytype":"MODE","subject":null,"magic":0}', None)
    assert registry.register("t", ORDER) == 42
    put(broker, '{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}', {"subject": "s", "version": 3})
    assert registry.get("/subjects/s/versions") == [4]
    put(broker, '{"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}', {"subject": "s"})
    assert registry.register("u", '"string"') == 40


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("", b"{}"),
        ("[]", b"{}"),
        ("{}", b"{}"),
        ('{"keytype":"OTHER","subject":"s","magic":0}', {}),
        ('{"keytype":"SCHEMA","subject":7,"version":1,"magic":1}', None),
        ('{"keytype":"SCHEMA","subject":"s","version":"x","magic":1}', None),
        ('{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b"\xff"),
        ('{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b"[" * 100_000),
        ('{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', {"subject": "s"}),
        ('{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', {"subject": "s", "version": 1, "id": 1, "schema": 7}),
        (
            '{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            {"subject": "s", "version": 1, "id": 1, "schema": "\ud800"},
        ),
        (
            '{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            {"subject": "s", "version": 1, "id": 1, "schema": '"long"'},
        ),
        ('{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}', {}),
        ('{"keytype":"CONFIG","subject":"s","magic":0}', {"compatibilityLevel": "SIDEWARD"}),
        ('{"keytype":"MODE","subject":"s","magic":0}', {}),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_record_that_is_not_a_registrys_has_no_effect(
    broker: BlockingBroker, registry: RegistryClient, caplog: pytest.LogCaptureFixture, key: str, value: Any
) -> None:
    registry.register("there", ORDER)
    registry.register("s", '"int"')
    before = registry.get("/schemas")
    put(broker, key, value)
    assert registry.get("/schemas") == before
    assert [each.message.partition(":")[0] for each in caplog.records] == ["schema registry skipped a record"]
    assert registry.register("next", WITH_DRINK) == 3


def fill(registry: RegistryClient) -> None:
    """Every kind of record, those without an effect any more among them."""
    registry.register("s", ORDER)
    registry.register("s", WITH_DRINK)
    registry.register("gone", '"int"')
    registry.register("half", '"long"')
    registry.register("half", '"double"')
    registry.register("user", record("User", "o: Order"), references=[{"name": "Order", "subject": "s", "version": 1}])
    registry.value("DELETE", "/subjects/gone")
    registry.value("DELETE", "/subjects/gone?permanent=true")
    registry.value("DELETE", "/subjects/half/versions/1")
    registry.value("PUT", "/config", {"compatibility": "FULL_TRANSITIVE"})
    registry.value("PUT", "/config/s", {"compatibility": "NONE"})
    registry.value("PUT", "/mode/half", {"mode": "READONLY"})


def seen(registry: RegistryClient) -> Any:
    subjects = registry.get("/subjects?deleted=true")
    return [
        registry.get("/schemas?deleted=true"),
        registry.get("/config"),
        [registry.get(f"/config/{each}?defaultToGlobal=true") for each in subjects],
        [registry.get(f"/mode/{each}?defaultToGlobal=true") for each in subjects],
        [registry.get(f"/subjects/{each}/versions/latest/referencedby?deleted=true") for each in subjects],
    ]


@pytest.mark.parametrize("end", ["restart", "crash", "compact"])
def test_a_start_reads_the_state_back(broker: BlockingBroker, registry: RegistryClient, end: str) -> None:
    fill(registry)
    before = seen(registry)
    if end == "compact":
        assert broker.log(SCHEMAS_TOPIC).compact()
    if end == "crash":
        broker.crash()
        assert registry.error("GET", "/subjects") == 50001
    broker.restart()
    assert seen(registry) == before
    assert broker.schema_registry_url == registry.url


def test_another_process_continues_in_the_directory(tmp_path: Path) -> None:
    with triolog.blocking.open(tmp_path) as first:
        fill(client := RegistryClient(first.schema_registry_url))
        before = seen(client)
    with triolog.blocking.open(tmp_path, settings={"schema_registry": "127.0.0.1:0"}) as second:
        client = RegistryClient(second.schema_registry_url)
        assert seen(client) == before
        assert client.register("new", '"bytes"') == 7


def test_a_reset_and_a_deleted_topic_leave_an_empty_registry(broker: BlockingBroker, registry: RegistryClient) -> None:
    registry.register("s", ORDER)
    broker.reset()
    assert registry.get("/subjects") == []
    assert registry.register("s", WITH_DRINK) == 1
    broker.delete_topic(SCHEMAS_TOPIC)
    assert registry.get("/subjects") == []
    assert registry.register("t", ORDER) == 1


def test_a_fork_has_the_schemas_and_goes_its_own_way(broker: BlockingBroker, registry: RegistryClient) -> None:
    registry.register("s", ORDER)
    with broker.fork() as fork:
        other = RegistryClient(fork.schema_registry_url)
        assert other.get("/subjects") == ["s"]
        other.register("t", WITH_DRINK)
    assert registry.get("/subjects") == ["s"]


def test_a_topic_that_would_lose_schemas_is_refused(broker: BlockingBroker, registry: RegistryClient) -> None:
    broker.create_topic(SCHEMAS_TOPIC, 2, {"cleanup.policy": "compact"})
    for _ in range(2):
        status, answer = registry.call("POST", "/subjects/s/versions", submission(ORDER))
        assert (status, answer["error_code"]) == (500, 50001)
        assert "2 partitions" in answer["message"]
    broker.delete_topic(SCHEMAS_TOPIC)
    broker.create_topic(SCHEMAS_TOPIC, 1)
    assert "cleanup.policy=delete" in registry.call("GET", "/subjects")[1]["message"]
    broker.alter_config(SCHEMAS_TOPIC, {"cleanup.policy": "compact"})
    assert registry.get("/subjects") == []


def test_clients_that_register_at_once_never_share_an_id(broker: BlockingBroker, registry: RegistryClient) -> None:
    """Half of them at a second registry on the same topic, which decides again whatever the first one was faster with."""
    second = broker.call(lambda: broker._target.life.nursery.start(serve_registry, LOCALHOST, lambda: broker._target.life.core))
    ids: list[int] = []

    def register(number: int) -> None:
        client = registry if number % 2 else RegistryClient(f"http://{second}")
        ids.extend(client.register(f"s{number}x{each}", record(f"R{number}x{each}")) for each in range(10))

    threads = [threading.Thread(target=register, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(ids) == list(range(1, 81))
    assert len(records(broker)) == 80


def test_schemas_are_charged_to_their_client(tmp_path: Path) -> None:
    settings = {"max_client_memory_bytes": 2**20}
    with triolog.blocking.open(tmp_path, settings=settings) as broker:
        registry = RegistryClient(broker.schema_registry_url)
        account = broker.call_now(lambda: broker._target.core.client_memory.account("registered schemas"))
        long = "x" * 100_000
        registered, code = 0, None
        while code is None:
            body = submission({"type": "string", "doc": long, "n": registered})
            _, answer = registry.call("POST", f"/subjects/s{registered}/versions", body)
            code = answer.get("error_code")
            registered += code is None
        assert code == 42205
        assert registered * 100_000 <= account.used_bytes <= 2**20
        assert account.refused == 1
        assert registry.get("/schemas/ids/1")
        used = account.used_bytes
        registry.value("DELETE", "/subjects/s0")
        registry.value("DELETE", "/subjects/s0?permanent=true")
        assert account.used_bytes < used - 100_000
        registry.register("s", '"int"')


@pytest.mark.parametrize(("path", "body"), [("config", {"compatibility": "NONE"}), ("mode", {"mode": "READONLY"})])
def test_settings_of_subjects_are_charged_to_their_client(path: str, body: dict[str, str]) -> None:
    with triolog.blocking.open(MEMORY, settings={"max_client_memory_bytes": 2**20}) as broker:
        registry = RegistryClient(broker.schema_registry_url)
        account = broker.call_now(lambda: broker._target.core.client_memory.account("registered schemas"))
        number, stored = 0, 0
        long = {"type": "string", "doc": "x" * 100_000}
        while "error_code" not in registry.call("POST", f"/subjects/{number}/versions", submission({**long, "n": number}))[1]:
            number += 1
        before, refused = account.used_bytes, account.refused
        while stored < 200 and "error_code" not in registry.call("PUT", f"/{path}/{stored:0900}", body)[1]:
            stored += 1
        assert account.refused == refused + 1
        assert before + stored * 900 <= account.used_bytes <= 2**20
        registry.value("DELETE", f"/{path}/{0:0900}")
        registry.value("PUT", f"/{path}/s", body)
