"""`triolog sql --schema-registry`, and `triolog.tools.arrow.read` behind it: values of several schemas as columns."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from triolog.server.embedded import BlockingBroker
from triolog.tools.arrow import ArrowError, read

from tests.support.registry_client import RegistryClient, record

from ..conftest import Cli

pytest.importorskip("avro", reason="the extra registry is not installed")
pytest.importorskip("duckdb", reason="the extra sql is not installed")

ORDER: Final = record("Order", "table: int", "drink: string")
ORDER_2: Final = record("Order", "table: int", "drink: string", {"name": "price", "type": "double", "default": 0.0})
BY_DRINK: Final = "select drink, count(*) as n from orders group by drink order by drink"


def head(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4)


def order(schema_id: int, table: int, drink: bytes, more: bytes = b"") -> tuple[None, None, bytes, tuple[()]]:
    return None, None, head(schema_id) + bytes([2 * table, 2 * len(drink)]) + drink + more, ()


@pytest.fixture
def registry(broker: BlockingBroker) -> RegistryClient:
    broker.create_topic("orders")
    registry = RegistryClient(broker.schema_registry_url)
    registry.register("orders-value", ORDER)
    broker.append("orders", [order(1, 7, b"tea"), order(1, 8, b"latte"), (None, None, None, ())])
    return registry


def asked(cli: Cli, registry: RegistryClient, question: str, *arguments: str) -> list[dict[str, Any]]:
    return cli.lines("sql", question, "--format", "json", "--schema-registry", registry.url, *arguments)


def test_fields_of_values_are_columns(cli: Cli, broker: BlockingBroker, registry: RegistryClient) -> None:
    assert asked(cli, registry, BY_DRINK) == [
        {"drink": "latte", "n": 1},
        {"drink": "tea", "n": 1},
        {"drink": None, "n": 1},
    ]
    broker.create_topic("plain")
    broker.append("plain", [b'{"drink": "tea", "cents": 250}'])
    joined = 'select o."table", p.cents from orders o join plain p on o.drink = p.drink'
    assert asked(cli, registry, joined) == [{"table": 7, "cents": 250}]


def test_values_of_a_later_schema_are_read_with_the_fields_of_the_first(
    cli: Cli, broker: BlockingBroker, registry: RegistryClient
) -> None:
    assert registry.register("orders-value", ORDER_2) == 2
    broker.append("orders", [order(2, 9, b"mocha", b"\0\0\0\0\0\0\xf8\x3f")])
    wanted = [None, None, None, 1.5]
    schema = ("--schema", "price DOUBLE, drink VARCHAR")
    for arguments in ((), schema):
        found = asked(cli, registry, 'select price from orders order by "offset"', *arguments)
        assert [each["price"] for each in found] == wanted


def test_what_cannot_be_decoded_is_an_error_with_its_offset_or_null(
    cli: Cli, broker: BlockingBroker, registry: RegistryClient
) -> None:
    broker.append("orders", [(None, None, b"no id", ()), (None, None, head(1) + b"\x0e", ())])
    arguments = ("--format", "json", "--schema-registry", registry.url)
    refused = cli.refused("sql", "select drink from orders", *arguments)
    assert "orders-0 offset 3: it does not begin with the id of a schema; 2 of 2 values" in refused
    found = cli.call("sql", "select count(drink) as n, count(*) as records from orders", *arguments, "--errors", "null")
    assert json.loads(found.stdout) == {"n": 2, "records": 5}


def test_a_missing_registry_and_an_unknown_schema_end_with_the_reason(
    cli: Cli, broker: BlockingBroker, registry: RegistryClient
) -> None:
    away = cli.refused("sql", BY_DRINK, "--schema-registry", "http://127.0.0.1:1")
    assert "topic orders: no response from the schema registry at 127.0.0.1:1" in away
    broker.create_topic("others")
    broker.append("others", [order(7, 1, b"tea")])
    assert "Schema 7 not found" in cli.refused("sql", "select * from others", "--schema-registry", registry.url)
    broker.append("orders", [order(7, 1, b"tea")])
    later = cli.refused("sql", BY_DRINK, "--schema-registry", registry.url, "--schema", "orders=drink VARCHAR")
    assert "Schema 7 not found" in later
    assert "expected a URL" in cli.refused("sql", BY_DRINK, "--schema-registry", "127.0.0.1:8081", code=2)
    assert "--values registry needs --schema-registry URL" in cli.refused("sql", BY_DRINK, "--values", "registry")


def test_without_a_registry_the_values_stay_bytes(cli: Cli, registry: RegistryClient) -> None:
    assert cli.lines("sql", "select count(value) as n from orders", "--format", "json") == [{"n": 2}]


def test_arrow_reads_structs_and_columns(broker: BlockingBroker, registry: RegistryClient) -> None:
    table = read(str(broker.native), "orders", values="registry", registry=registry.url).read_all()
    assert table.column("value").to_pylist() == [{"table": 7, "drink": "tea"}, {"table": 8, "drink": "latte"}, None]
    flat = read(
        str(broker.native), "orders", columns=["drink"], values="registry", registry=registry.url, flatten=True
    ).read_all()
    assert flat.column("drink").to_pylist() == ["tea", "latte", None]
    with pytest.raises(ArrowError, match='values="registry" needs the URL'):
        read(str(broker.native), "orders", values="registry")
    with pytest.raises(ArrowError, match="expected a URL such as"):
        read(str(broker.native), "orders", values="registry", registry="127.0.0.1:8081")
    with pytest.raises(ArrowError, match='registry needs values="registry"'):
        read(str(broker.native), "orders", registry=registry.url)
