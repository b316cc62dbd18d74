from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import attrs
import pytest
from confluent_kafka import Consumer, TopicPartition
from playwright.sync_api import Browser, expect
from triolog.tools.console.dispatch import ROUTES
from triolog.tools.forward.process.place import LOCK

from tests.support.control_port import Control
from tests.support.server_process import ServerFolder

from .browsing import Opened, opened
from .conftest import console_of

TOPIC = "flights"
GROUP = "readers"
HOSTILE = b"</script><script>document.body.remove()</script><img src=x onerror=alert(1)>\x00\x1b[31m\xff"
PARTS = {"topic": TOPIC, "group": GROUP}
PAGES = sorted({route.pattern for route in ROUTES if route.has_page})
SHOWN = {
    "/": ("Ready", "Busiest topics", "plant-7", "not running"),
    "/topics": (TOPIC,),
    "/topics/{topic}": ("Configuration", "40 records"),
    "/groups": (GROUP,),
    "/groups/{group}": (GROUP,),
    "/wear": ("The server's process", "fsync"),
    "/forward": ("plant-7", "not running"),
    "/test": ("error=INVALID_RECORD", "Produce v"),
}
"""Some of what has to be there."""
HOWS: Final[dict[str, dict[str, Any]]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "narrow": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
}


@attrs.frozen
class Served:
    console: str
    control: Control


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The console of a server for tests: records, a group that is behind, a rule that has fired, a link without a process."""
    folder = tmp_path_factory.mktemp("browser")
    (folder / "links" / "plant-7").mkdir(parents=True)
    (folder / "links" / "plant-7" / LOCK).touch()
    with ServerFolder(folder, arguments=("--kafka", "127.0.0.1:0", "--control", "127.0.0.1:0", "--nodes", "2")) as of_server:
        control = Control(json.loads(of_server.start().ready_file.read_text()))
        options = ("--control", control.ready["control"], "--forward-state-dir", str(folder / "links"), "--allow-changes")
        _fill(control)
        with console_of(control.ready["native"], *options) as console:
            yield Served(console, control)


@pytest.fixture(scope="module")
def seen(chromium: Browser, axe: Path, served: Served) -> Iterator[Opened]:
    """One page for all views."""
    with opened(chromium, served.console, axe) as found:
        yield found


def _fill(control: Control) -> None:
    control.do("POST", "/topics", {"name": TOPIC, "partitions": 2})
    hostile = base64.b64encode(HOSTILE).decode()
    for partition in (0, 1):
        records = [{"key": "UA", "value": f'{{"flight": {number}}}'} for number in range(19)]
        records.append({"key_base64": hostile, "value_base64": hostile})
        control.do("POST", f"/topics/{TOPIC}/records", {"partition": partition, "records": records})
    control.do("POST", "/faults", {"api": "Produce", "error": "INVALID_RECORD", "once": True})
    errors: list[Any] = []
    producer = control.producer(retries=0)
    producer.produce(TOPIC, b"refused", partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert [error.name() for error in errors] == ["INVALID_RECORD"]
    consumer = Consumer({"bootstrap.servers": control.ready["kafka"], "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition(TOPIC, partition, 5) for partition in (0, 1)], asynchronous=False)
    consumer.close()


def path_of(pattern: str) -> str:
    """Of a view, with a topic and a group in it."""
    for name, value in PARTS.items():
        pattern = pattern.replace(f"{{{name}}}", quote(value))
    return pattern


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("pattern", PAGES)
def test_a_view_shows_its_data_to_everybody(seen: Opened, pattern: str, how: str) -> None:
    page = seen.show(path_of(pattern), **HOWS[how])
    expect(page.locator(".failure")).to_have_count(0)
    for text in SHOWN.get(pattern, ()):
        expect(page.locator("main").get_by_text(text).first).to_be_visible()
    expect(page.locator("#state")).to_have_class("ready")
    seen.check_accessible()
    seen.check_quiet()
    width, wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width <= wide, "the page is wider than the window"


def test_the_overview_shows_a_mirror_whose_source_cannot_be_reached(chromium: Browser, axe: Path, tmp_path: Path) -> None:
    table = f'[[mirror]]\nfrom = "127.0.0.1:1"\nstate_dir = "{tmp_path}/mirrors"\n'
    (tmp_path / "mirror.toml").write_text(table)
    with ServerFolder(tmp_path, arguments=("--config", str(tmp_path / "mirror.toml"))) as of_server:
        native = json.loads(of_server.start().ready_file.read_text())["native"]
        with console_of(native) as console, opened(chromium, console, axe) as found:
            mirror = found.go("/").get_by_role("region", name="Mirrors").get_by_role("listitem")
            expect(mirror).to_contain_text("source from 127.0.0.1:1: connecting, lag unknown. cannot connect to 127.0.0.1:1")
            found.check_accessible()
            found.check_quiet()


def test_a_page_that_is_not_there_says_so(chromium: Browser, axe: Path, served: Served) -> None:
    with opened(chromium, served.console, axe) as found:
        page = found.go("/topics/nowhere")
        expect(page.locator("h1")).to_have_text("Not here")
        found.check_accessible()
        assert all("404" in each for each in found.complaints)


def test_a_rule_is_added_fires_and_goes_by_hand(chromium: Browser, served: Served) -> None:
    control = served.control
    control.do("POST", "/topics", {"name": "arrivals"})
    with opened(chromium, served.console) as found:
        page = found.go("/test")
        rules = page.get_by_role("region", name="Rules")
        rules.get_by_label("API").fill("Produce")
        rules.get_by_label("Error, or number").fill("REQUEST_TIMED_OUT")
        rules.get_by_label("Times").fill("1")
        rules.get_by_role("button", name="Add").click()
        row = rules.get_by_role("row").filter(has_text="REQUEST_TIMED_OUT")
        expect(row).to_be_visible()
        producer = control.producer()
        producer.produce("arrivals", b"twice", partition=0)
        assert producer.flush(30) == 0
        expect(row.get_by_role("cell").nth(3)).to_have_text("1")
        expect(page.locator("svg.requests .fault").first).to_be_visible()
        row.get_by_role("button", name="Remove").click()
        expect(row).to_have_count(0)
        found.check_quiet()


def test_a_server_crashes_when_it_is_typed_and_starts_again(chromium: Browser, served: Served) -> None:
    with opened(chromium, served.console) as found:
        page = found.go("/test")
        life = page.get_by_role("region", name="Life")
        life.get_by_label("Type crash or reset").fill("crash")
        life.get_by_role("button", name="Do it").click()
        expect(page.get_by_text("is down, ")).to_be_visible()
        expect(page.locator("#banner")).to_contain_text("No response from")
        life.get_by_role("button", name="Restart").click()
        expect(page.get_by_text("runs, 2 starts")).to_be_visible()
        expect(page.locator("#banner")).to_be_empty()
