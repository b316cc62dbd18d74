"""Pages and their JSON twins: the shell with its first value, headers, what there is not."""

from __future__ import annotations

import json

import pytest
from triolog.tools.console.dispatch import Dispatch
from triolog.tools.console.parameters import exact
from triolog.tools.console.views.table import ROUTES

from .conftest import Shown

PAGES = ("/", "/topics", "/topics/flights")


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_brings_what_its_twin_says(shown: Shown, path: str) -> None:
    page = await shown.browser.open(path)
    twin = await shown.browser.get(f"/api{path}")
    assert (page.status, twin.status) == (200, 200)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert twin.headers["content-type"] == "application/json"
    assert page.first["view"].keys() == twin.json.keys()
    host, port = shown.broker.native or ("", 0)
    assert page.first["console"]["server"] == f"{host}:{port}"
    assert page.first["console"]["allow_changes"] is False


@pytest.mark.parametrize("path", [*PAGES, "/api/topics", "/nowhere", "/api/nowhere"])
async def test_nothing_runs_that_is_not_a_file_of_ours_and_nothing_is_kept(shown: Shown, path: str) -> None:
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


@pytest.mark.parametrize(
    ("path", "status", "name"),
    [
        ("/nowhere", 404, "NOT_FOUND"),
        ("/topics/", 404, "NOT_FOUND"),
        ("/topics/unknown", 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("/topics/%FF%00", 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("/topics?page=0", 400, "BAD_PARAMETER"),
        ("/topics?sort=colour", 400, "BAD_PARAMETER"),
        ("/topics?colour=red", 400, "BAD_PARAMETER"),
        ("/topics?q=%FF", 400, "BAD_PARAMETER"),
    ],
)
async def test_what_is_not_there_or_means_nothing_is_said_by_page_and_twin(
    shown: Shown, path: str, status: int, name: str
) -> None:
    twin = await shown.browser.get(f"/api{path}")
    page = await shown.browser.open(path)
    assert (twin.status, page.status) == (status, status)
    assert twin.json["error"]["name"] == page.first["error"]["name"] == name
    if name == "BAD_PARAMETER":
        parameter = "query" if "%FF" in path else path.partition("?")[2].partition("=")[0]
        assert twin.json["error"]["message"].startswith(f"{parameter}: ")


async def test_other_methods_are_refused(shown: Shown) -> None:
    await shown.browser.open("/")
    assert (await shown.browser.post("/")).status == 405
    refused = await shown.browser.post("/api/topics")
    assert refused.status == 405
    assert refused.json["error"]["name"] == "METHOD_NOT_ALLOWED"
    head = await shown.browser.request("HEAD", "/topics")
    assert (head.status, head.body) == (200, b"")


async def test_requests_of_other_sites_are_refused_but_links_lead_here(shown: Shown) -> None:
    browser = shown.browser
    assert (await browser.get("/", host="evil.example")).status == 403
    assert (await browser.get("/", origin="http://evil.example")).status == 403
    assert (await browser.get("/api/topics", sec_fetch_site="cross-site")).status == 403
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    assert (await browser.get("/topics", **link, sec_fetch_dest="document")).status == 200
    assert (await browser.get("/topics", **link, sec_fetch_dest="iframe")).status == 403


@pytest.mark.parametrize(
    ("number", "told"),
    [(0, 0), (-1, -1), (2**53 - 1, 2**53 - 1), (2**53, "9007199254740992"), (2**63 - 1, "9223372036854775807")],
)
def test_offsets_that_a_number_of_javascript_would_change_are_strings(number: int, told: int | str) -> None:
    assert exact(number) == told
    assert float(json.loads(json.dumps(exact(number)))) == float(number)


def test_no_route_hides_another() -> None:
    assert len({(route.method, route.pattern) for route in ROUTES}) == len(ROUTES)
    assert Dispatch.__doc__
