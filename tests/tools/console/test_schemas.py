"""Keys and values that begin with the id of a schema are shown as the registry decodes them, in lists and opened."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import trio
import triolog
from triolog.protocol.types import Record
from triolog.tools.console.records.schemas import RETRY_S, Schemas
from triolog.tools.schemas.registry_values import RegistryValues

from tests.support.registry_client import RegistryClient, record

from .conftest import Shown, showing, told

pytest.importorskip("avro", reason="the extra registry is not installed")

ORDER: Final = record("Order", "table: int", "drink: string")
TEA: Final = b"\0\0\0\0\1\x0e\x06tea"
UNKNOWN: Final = b"\0\0\0\0\7x"
WRONG: Final = b"\0\0\0\0\1\x0e"


@pytest.fixture
async def shown() -> AsyncIterator[Shown]:
    async with triolog.open(native="127.0.0.1:0", topics=["orders"]) as broker:
        url = await broker.start_schema_registry()
        await trio.to_thread.run_sync(RegistryClient(url).register, "orders-value", ORDER)
        async with showing(tuple(broker.native), schemas=Schemas(RegistryValues.of(url))) as browser:
            yield Shown(broker, browser)


async def test_values_are_shown_as_json_with_their_schema(shown: Shown) -> None:
    await shown.broker.append("orders", [(None, TEA, TEA, ()), (None, b"plain", b"plain", ())])
    plain, decoded = (await told(shown.browser, "/topics/orders/records"))["records"]
    for part in ("key", "value"):
        found = decoded[part]
        assert (found["kind"], found["text"], found["note"]) == ("schema", '{"table": 7, "drink": "tea"}', "schema 1")
        assert (plain[part]["kind"], plain[part]["text"]) == ("text", "plain")
    opened = (await told(shown.browser, "/topics/orders/records/0/0"))["record"]["value"]
    assert opened["text"] == '{\n  "table": 7,\n  "drink": "tea"\n}'
    as_hex = (await told(shown.browser, "/topics/orders/records?as=hex"))["records"][1]["value"]
    assert as_hex["kind"] == "hex"


async def test_what_cannot_be_decoded_is_shown_as_bytes_with_the_reason(shown: Shown) -> None:
    await shown.broker.append("orders", [UNKNOWN, WRONG])
    wrong, unknown = (await told(shown.browser, "/topics/orders/records"))["records"]
    assert (unknown["value"]["kind"], "Schema 7 not found" in unknown["value"]["note"]) == ("hex", True)
    assert (wrong["value"]["kind"], "cannot be decoded by schema 1" in wrong["value"]["note"]) == ("hex", True)


class Away:
    """A registry that does not respond, and counts requests."""

    def __init__(self) -> None:
        self.requests = 0

    def load(self, schema_id: int) -> None:
        from triolog.tools.schemas.registry_values import NoRegistryError

        self.requests += 1
        raise NoRegistryError("no response")


async def test_a_registry_that_is_away_is_asked_again_after_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    away: Any = Away()
    schemas = Schemas(away)
    now = 0.0
    monkeypatch.setattr("trio.current_time", lambda: now)
    records = [Record(0, 0, None, UNKNOWN, ())]
    for _ in range(3):
        await schemas.prepare(records)
    assert (away.requests, schemas.shown(UNKNOWN, is_indented=False)) == (1, (None, "no response"))
    now = RETRY_S + 1
    await schemas.prepare(records)
    assert away.requests == 2
