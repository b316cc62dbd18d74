from __future__ import annotations

import json
import re
from pathlib import Path

from triolog.protocol.types import TopicPartition
from triolog.server.config.values import Address
from triolog.tools.console.parameters import exact
from triolog.tools.console.views.table import ROUTES

from .conftest import Shown, shown_broker

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
