from __future__ import annotations

import json
import logging
import random
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

import pytest
import trio
from triolog.tools.console.dispatch import ROUTES
from triolog.tools.console.routes import Route

from tests.support.browser_wire import Browser, Reply
from tests.support.counts import counts

from .conftest import shown_broker

WORDS: Final = (
    *("", "\u0000", "\ud7ff\U0001f980", "a" * 5000, "'; --", "flights", "nothing", "group", "earliest", "latest", "0", "-1"),
    *("2147483648", "9223372036854775807", "9223372036854775808", "1e9", "NaN", "0:0", "0:0,1:5", "0:-1", "::::", "true"),
    *("null", "[]", "{}", "json", "hex", "auto", "value", "key", "read_committed", "topic:flights", "<script>", "%", "%00"),
    *("../../etc/passwd", "1"),
)
NAMES: Final = (
    *("offset", "at", "to", "from", "until", "partition", "limit", "as", "q", "in", "sort", "order", "page", "series", "x"),
)
ANSWERED: Final = {200, 202, 204, 302, 303, 304, 400, 401, 403, 404, 405, 409, 413, 415, 422, 429, 431, 503}
MISUNDERSTOOD: Final = ("GET", "POST", "DELETE", "PUT", "PATCH", "OPTIONS", "TRACE", "FOO")


def any_value(rng: random.Random, depth: int = 0) -> Any:
    match rng.randrange(8 if depth < 3 else 6):
        case 0:
            return rng.choice((None, True, False, 0, -1, 2**70, 1.5))
        case 6:
            return [any_value(rng, depth + 1) for _ in range(rng.randrange(4))]
        case 7:
            return {rng.choice(WORDS)[:50]: any_value(rng, depth + 1) for _ in range(rng.randrange(4))}
    return rng.choice(WORDS)


def a_query(rng: random.Random, route: Route) -> str:
    names = list(route.parameters or NAMES)
    asked = [f"{quote(rng.choice(names))}={quote(rng.choice(WORDS))}" for _ in range(rng.randrange(5))]
    return "?" + "&".join(asked) if asked else ""


def a_path(rng: random.Random, route: Route) -> str:
    parts = [
        quote(rng.choice(WORDS) or "flights", safe="") if part.startswith("{") else part for part in route.pattern.split("/")
    ]
    return "/".join(parts) or "/"


def a_body(rng: random.Random, fields: Sequence[str]) -> bytes:
    if rng.random() < 0.2:
        return rng.choice((b"", b"{", b"[]", b"null", b"[" * 10_000, rng.randbytes(50), b'{"a":' * 500))
    return json.dumps({rng.choice(fields): any_value(rng) for _ in range(rng.randrange(5))}).encode()


FIELDS: Final = (
    *("confirm", "offsets", "topic", "partition", "offset", "key", "key_as", "value", "value_as", "headers", "timestamp"),
    *("transactional_id", "producer_id", "user", "password", "x"),
)


async def a_request(rng: random.Random, browser: Browser) -> Reply | None:
    """None: the stream of a route that answers with one."""
    route = rng.choice(ROUTES)
    prefix = "" if route.has_page and rng.random() < 0.3 else "/api"
    method = route.method if rng.random() < 0.85 else rng.choice(MISUNDERSTOOD)
    headers = {"content_type": rng.choice(("application/json", "text/plain")), "x_csrf_token": rng.choice((browser.token, "x"))}
    body = a_body(rng, FIELDS) if method in ("POST", "DELETE", "PUT", "PATCH") else b""
    with trio.move_on_after(0.3):  # a stream has no end
        return await browser.request(method, prefix + a_path(rng, route) + a_query(rng, route), body, headers=headers)


@pytest.mark.parametrize("seed", range(4))
async def test_noise_is_answered_and_meets_no_bug(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    rng, answered = random.Random(seed), 0
    with caplog.at_level(logging.WARNING):
        async with shown_broker(topics={"flights": 3}, console={"allow_changes": True}) as shown:
            await shown.browser.open("/")
            for _ in range(counts(1000)):
                reply = await a_request(rng, shown.browser)
                if reply is not None:
                    answered += 1
                    assert reply.status in ANSWERED, reply
                    if reply.status >= 400 and reply.headers.get("content-type", "").startswith("application/json"):
                        assert reply.json["error"]["message"]
            await shown.broker.append("flights", [b"x"])
            reply = await shown.browser.get("/api/topics/flights/records")
            assert [each["value"]["text"] for each in reply.json["records"]][:1] == ["x"]
    assert answered > counts(1000) / 2
    assert not [record for record in caplog.records if "bug" in record.getMessage() or record.exc_info]
