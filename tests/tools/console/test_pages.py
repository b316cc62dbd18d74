from __future__ import annotations

import gzip
import json
import logging
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
import trio
from triolog.protocol.types import TopicPartition
from triolog.server.config.values import Address
from triolog.tools.console.dispatch import FOLDER, MAX_TOTAL_BYTES, ROUTES, StaticFiles
from triolog.tools.console.routes import Route, exact

from tests.support.browser_wire import Browser, Reply
from tests.support.counts import counts
from tests.tools.console.conftest import Shown, shown_broker

PAGES = sorted({route.pattern for route in ROUTES if route.has_page})


def path_of(pattern: str) -> str:
    return re.sub(r"\{\w+\}", lambda found: {"{topic}": "flights", "{group}": "g"}.get(found[0], "0"), pattern)


async def test_a_page_brings_what_its_twin_says_and_takes_no_other_parameters(tmp_path: Path) -> None:
    console = {"forward_state_dir": str(tmp_path), "control": Address("127.0.0.1", 1)}
    async with shown_broker(topics={"flights": 3}, console=console) as shown:
        await shown.broker.core.offsets.commit("g", [(TopicPartition("flights", 0), 0, None)])
        for pattern in PAGES:
            path = path_of(pattern)
            page = await shown.browser.open(path)
            twin = await shown.browser.get(f"/api{path}")
            assert page.status == twin.status == (503 if path == "/test" else 200), path
            assert page.headers["content-type"] == "text/html; charset=utf-8"
            assert twin.headers["content-type"] == "application/json"
            host, port = shown.broker.native or ("", 0)
            assert page.first["console"]["server"] == f"{host}:{port}"
            assert page.first["console"]["allow_changes"] is False
            if page.status == 200:
                assert page.first["view"].keys() == twin.json.keys()
                assert page.first["view"].get("can_change", False) is False
            refused = await shown.browser.get(f"/api{path}?colour=red")
            assert (refused.status, refused.json["error"]["message"].split(":")[0]) == (400, "colour"), path


async def test_nothing_changes_without_leave(tmp_path: Path) -> None:
    console = {"forward_state_dir": str(tmp_path), "control": Address("127.0.0.1", 1)}
    changes = [route for route in ROUTES if route.method != "GET" and route.pattern not in ("/login", "/logout")]
    assert len(changes) > 10
    async with shown_broker(topics={"flights": 3}, console=console) as shown:
        await shown.browser.open("/")
        for route in changes:
            body, headers = b'{"confirm": "x"}', {"content_type": "application/json", "x_csrf_token": shown.browser.token}
            path = f"/api{path_of(route.pattern)}"
            refused = await shown.browser.request(route.method, path, body, headers=headers)
            assert (refused.status, refused.json["error"]["name"]) == (403, "CHANGES_NOT_ALLOWED"), route


async def test_nothing_runs_that_is_not_a_file_of_ours_and_nothing_is_kept(shown: Shown) -> None:
    for path in ("/", "/topics", "/topics/flights", "/api/topics", "/nowhere", "/api/nowhere"):
        headers = (await shown.browser.get(path)).headers
        policy = dict(each.split(" ", 1) for each in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["base-uri"] == policy["frame-ancestors"] == "'none'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"


async def test_what_a_request_says_does_not_end_the_script_that_it_is_told_in(shown: Shown) -> None:
    page = await shown.browser.open("/topics?q=%3C/script%3E%3Cscript%3Ealert(1)%3C/script%3E%3C!--")
    assert page.first["view"]["q"] == "</script><script>alert(1)</script><!--"
    assert page.text.count("</script>") == (await shown.browser.open("/topics")).text.count("</script>")
    assert "<!--" not in page.text


async def test_what_is_not_there_or_means_nothing_is_said_by_page_and_twin(shown: Shown) -> None:
    for path, status, name in (
        ("/nowhere", 404, "NOT_FOUND"),
        ("/topics/", 404, "NOT_FOUND"),
        ("/topics/unknown", 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("/topics/%FF%00", 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("/topics?page=0", 400, "page"),
        ("/topics?sort=colour", 400, "sort"),
        ("/topics?q=%FF", 400, "query"),
    ):
        twin = await shown.browser.get(f"/api{path}")
        page = await shown.browser.open(path)
        assert (twin.status, page.status) == (status, status), path
        error = twin.json["error"]
        assert page.first["error"]["name"] == error["name"]
        assert (error["message"].split(":")[0] if error["name"] == "BAD_PARAMETER" else error["name"]) == name


async def test_requests_of_other_sites_are_refused_but_links_lead_here(shown: Shown) -> None:
    browser = shown.browser
    await browser.open("/")
    assert (await browser.post("/")).status == 405
    refused = await browser.post("/api/topics")
    assert (refused.status, refused.json["error"]["name"]) == (405, "METHOD_NOT_ALLOWED")
    head = await browser.request("HEAD", "/topics")
    assert (head.status, head.body) == (200, b"")
    assert (await browser.get("/", host="evil.example")).status == 403
    assert (await browser.get("/", origin="http://evil.example")).status == 403
    assert (await browser.get("/api/topics", sec_fetch_site="cross-site")).status == 403
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    assert (await browser.get("/topics", **link, sec_fetch_dest="document")).status == 200
    assert (await browser.get("/topics", **link, sec_fetch_dest="iframe")).status == 403


def test_offsets_that_a_number_of_javascript_would_change_are_strings() -> None:
    for number in (0, -1, 2**53 - 1, 2**53, 2**63 - 1):
        assert exact(number) == (number if number < 2**53 else str(number))
        assert float(json.loads(json.dumps(exact(number)))) == float(number)


def test_no_route_hides_another() -> None:
    assert len({(route.method, route.pattern) for route in ROUTES}) == len(ROUTES)


FILES = sorted(path for path in FOLDER.rglob("*") if path.is_file())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
SVG = "http://www.w3.org/2000/svg"
IMPORTED = re.compile(r"""from "([^"]+)"|import\("([^"]+)"\)""")


async def test_a_file_is_kept_for_ever_at_an_address_that_changes_with_it_and_nothing_else_is_sent(shown: Shown) -> None:
    base = StaticFiles.read().base
    page = (await shown.browser.open("/")).text
    for path in re.findall(r'(?:src|href)="([^"#]+)"', page):
        assert path.startswith(base)
        found = await shown.browser.get(path)
        assert (found.status, found.body) == (200, StaticFiles.read().files[path.removeprefix(base)].content)
        assert "immutable" in found.headers["cache-control"]
        packed = await shown.browser.get(path, accept_encoding="gzip, br")
        assert packed.headers["content-encoding"] == "gzip"
        assert gzip.decompress(packed.body) == found.body
    assert (await shown.browser.get("/favicon.ico")).headers["content-type"] == "image/svg+xml"
    for path in ("/static/", "/static/0/app.js", "{}../dispatch.py", "{}%2e%2e/dispatch.py", "{}views", "{}nothing.js"):
        assert (await shown.browser.get(path.format(base))).status == 404, path


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_browsers_get_all_that_is_not_a_comment_and_what_a_script_imports_is_there(path: Path) -> None:
    """No string and no template has several lines, of which the indentation would go."""
    text = path.read_text()
    for static, dynamic in IMPORTED.findall(text):
        assert (path.parent / (static or dynamic)).is_file()
    assert all(line.count("`") % 2 == 0 for line in text.splitlines())
    shipped = StaticFiles.read().files[path.relative_to(FOLDER).as_posix()].content.decode()
    gone = [line.strip() for line in text.splitlines() if line.strip() and line.strip() not in shipped.splitlines()]
    assert all(line.startswith(("//", "/*", "*")) for line in gone), gone


def test_all_files_are_known_and_small_together() -> None:
    files = StaticFiles.read().files
    assert {path.relative_to(FOLDER).as_posix() for path in FILES} == files.keys()
    assert sum(len(each.content) for each in files.values()) <= MAX_TOTAL_BYTES
    assert sum(len(each.compressed) for each in files.values()) <= MAX_TOTAL_BYTES / 2


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_is_asked_for_elsewhere_and_no_markup_is_made_of_text(path: Path) -> None:
    text = path.read_text().replace(SVG, "")
    assert "://" not in text
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|javascript:", text)
    assert not re.search(r"<[^>]+\s(?:on\w+|style)=", text)


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
