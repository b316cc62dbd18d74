"""Records in a real browser: those of a directory that Apache Kafka wrote, hostile ones, and a search that nobody waits for."""

from __future__ import annotations

import base64
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, expect
from triolog.protocol.native.messages import NewTopic
from triolog.tools.bench.loads import fill
from triolog.tools.client.blocking.admin import BlockingAdmin
from triolog.tools.client.blocking.client import BlockingClient
from triolog.tools.client.blocking.producer import BlockingProducer
from triolog.tools.console.watching.watcher import CLIENT_ID

from tests.support.golden import KAFKA_4_3
from tests.support.server_process import Address, ServerFolder

from .browsing import PATIENCE_MS, Opened, opened
from .conftest import console_of
from .test_live import LONGEST_MS, NOTE_LONG_TASKS
from .test_views import PAGES

EXPECTED: Final[dict[str, Any]] = json.loads((KAFKA_4_3 / "expected.json").read_text())["answers"]
SETTINGS: Final = """
offsets_retention_ms = 4000000000000
transactional_id_expiration_ms = 4000000000000

[topic_defaults]
"retention.ms" = "-1"
"""
"""Nothing of it is too old."""
KINDS: Final = ("json", "text", "msgpack", "hex")
MANY: Final = 1_000_000
BATCH: Final = 500
VALUE_BYTES: Final = 100
BYTES_PER_SECOND: Final = 4e6
"""That the search may read, so that half a minute of it is left when its tab is closed, however late we see that it runs."""
HOSTILE: Final = {
    "markup": b"</td></script><script>alert(1)</script><img src=x onerror=document.body.remove()><svg onload=alert(1)>",
    "control characters": bytes(range(32)) + b"\x7f\x1b[2J\x1b]0;title\x07" + "\u202egnp.exe\u2066\u0000".encode(),
    "no UTF-8": b"\xff\xfe\xc3\x28\xed\xa0\x80 valid again",
    "deep JSON": b"[" * 50_000,
    "large": b'{"a": "' + b"<b>x</b>" * 1_310_720 + b'"}',
    "many keys": json.dumps({f"<i>{number}</i>": None for number in range(20_000)}).encode(),
    "one long line": b"x" * 2_000_000,
    "msgpack that claims much": b"\xdd\xff\xff\xff\xff",
}


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A console of a server that has such a directory."""
    folder = tmp_path_factory.mktemp("golden")
    data = Path(shutil.copytree(KAFKA_4_3 / "clean", folder / "data", copy_function=shutil.copyfile))
    for path in (data, *data.iterdir()):
        if path.is_dir():
            path.chmod(0o755)
    settings = folder / "server.toml"
    settings.write_text(SETTINGS)
    with ServerFolder(folder, arguments=("--config", str(settings))) as servers:
        with console_of("{}:{}".format(*servers.start().address)) as console:
            yield console


@pytest.fixture(scope="module")
def seen(chromium: Browser, golden: str) -> Iterator[Opened]:
    """One page for all of it."""
    with opened(chromium, golden) as found:
        yield found


@pytest.mark.parametrize("topic", ["codecs", "moves", "queue", "compacted"])
def test_topics_that_kafka_wrote_are_shown_as_kafka_read_them(seen: Opened, topic: str) -> None:
    wanted = EXPECTED["records"].get(topic)
    page = seen.show(f"/topics/{topic}")
    expect(page.locator(".failure")).to_have_count(0)
    page = seen.go(f"/topics/{topic}/records?partition=0&offset=0")
    if wanted is not None:
        records = [each for batch in wanted["batches"] if not batch["attributes"] & 32 for each in batch["records"]]
        rows = page.locator(".records tbody tr")
        expect(rows).to_have_count(min(len(records), 50))
        offset, _, _, value = records[1]
        expect(rows.nth(1).locator("td").nth(2)).to_have_text(str(offset))
        expect(rows.nth(1).locator("td").nth(4)).to_contain_text(base64.b64decode(value).decode()[:20] or "empty")
    page = seen.go(f"/topics/{topic}/walk?partition=0&at=1700000000000")
    expect(page.locator(".failure")).to_have_count(0)
    seen.check_quiet()


@pytest.mark.parametrize("pattern", [each for each in PAGES if each != "/test"])
def test_every_view_of_what_kafka_wrote_is_drawn(seen: Opened, pattern: str) -> None:
    page = seen.show(pattern.format(topic="codecs", group="readers"))
    expect(page.locator(".failure")).to_have_count(0)
    expect(page.locator("#state")).to_have_class("ready")
    seen.check_quiet()


def test_groups_and_transactions_that_kafka_wrote_are_there(seen: Opened) -> None:
    page = seen.show("/groups")
    for group in EXPECTED["offsets"]:
        expect(page.locator("tbody a.row").get_by_text(group, exact=True)).to_be_visible()
    page = seen.go("/groups/readers")
    expect(page.locator("main")).to_contain_text("codecs")
    page = seen.go("/transactions")
    expect(page.locator("tbody tr").first).to_be_visible()
    seen.check_quiet()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A console of a server with one topic, whose records are HOSTILE as key, value and header."""
    with ServerFolder(tmp_path_factory.mktemp("hostile")) as servers:
        server = servers.start()
        with BlockingClient(server.address) as client, BlockingProducer(client, max_request_bytes=2**24) as producer:
            BlockingAdmin(client).create_topics([NewTopic("hostile", 1, {"max.message.bytes": str(2**24)})])
            for value in HOSTILE.values():
                short = value[:500]
                producer.send("hostile", key=short, value=value, headers=[("<b>name</b>\x00", short)])
            producer.flush()
        with console_of("{}:{}".format(*server.address)) as console:
            yield console


def check_harmless(page: Page) -> None:
    """Nothing that a record holds has become part of the page, and no task took long."""
    assert page.locator("main :is(script, img, svg, b, i)").count() == 0
    assert page.locator("h1").inner_text() == "hostile"
    longest = page.evaluate("Math.max(0, ...longTasks_)")
    assert longest <= LONGEST_MS, f"a task of {longest} ms"


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_records_are_shown_and_never_run_nor_freeze_the_page(chromium: Browser, hostile: str, kind: str) -> None:
    with opened(chromium, hostile) as found:
        found.page.add_init_script(NOTE_LONG_TASKS)
        found.page.on("dialog", lambda dialog: found.complaints.append(f"dialog: {dialog.message}"))
        page = found.go(f"/topics/hostile/records?as={kind}")
        rows = page.locator(".records tbody tr")
        expect(rows).to_have_count(len(HOSTILE))
        check_harmless(page)
        for number in range(len(HOSTILE)):
            rows.nth(number).locator("a.row").click()
            pane = page.get_by_role("complementary", name="One record")
            expect(pane.get_by_role("heading")).to_contain_text(f"offset {len(HOSTILE) - 1 - number}")
            expect(pane.locator("pre").last).not_to_be_empty()
            check_harmless(page)
        found.check_quiet()


def test_a_search_through_a_million_records_ends_with_its_tab(chromium: Browser, tmp_path: Path) -> None:
    with ServerFolder(tmp_path) as servers:
        address = servers.start().address
        with BlockingClient(address) as client:
            BlockingAdmin(client).alter_quotas({"client-id": CLIENT_ID}, {"consumer_byte_rate": BYTES_PER_SECOND})
        fill(address=address, topic="many", partitions=1, batches=MANY // BATCH, records=BATCH, value_bytes=VALUE_BYTES)
        with console_of("{}:{}".format(*address)) as console, opened(chromium, console) as found:
            page = found.go("/topics/many/records?partition=0&offset=0&q=nowhere&nocase=1")
            expect(page.locator(".said")).to_contain_text("Searching: 0 matches in")
            assert "to the end" not in page.locator(".said").inner_text()
            page.close()
            wait_until_nothing_is_read(address)
            assert fetched_bytes(address) < MANY * VALUE_BYTES


def fetched_bytes(address: Address) -> int:
    with BlockingClient(address) as client:
        return int(BlockingAdmin(client).statistics()["total"]["fetched_bytes"])


def wait_until_nothing_is_read(address: Address) -> None:
    """Wait until nobody has fetched anything for a second, in which the search would fetch four times."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    quiet_since, before = time.monotonic(), fetched_bytes(address)
    while time.monotonic() - quiet_since < 1:
        if (now := fetched_bytes(address)) != before:
            assert time.monotonic() < deadline, "the search goes on"
            quiet_since, before = time.monotonic(), now
