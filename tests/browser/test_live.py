"""The live tail, and every view, of a server that takes 5,000 records a second."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import attrs
import pytest
from confluent_kafka import Consumer, TopicPartition
from playwright.sync_api import Browser, CDPSession, Page, expect
from triolog.protocol.native.messages import NewTopic
from triolog.tools.client.blocking.admin import BlockingAdmin
from triolog.tools.client.blocking.client import BlockingClient
from triolog.tools.client.blocking.producer import BlockingProducer

from tests.support.counts import counts
from tests.support.server_process import Address, ServerFolder

from .browsing import Opened, opened
from .conftest import console_process
from .test_views import PAGES, PARTS, TOPIC, path_of

RATE: Final = 5_000
"""Records a second."""
STEP_S: Final = 0.02
POLL_MS: Final = 200
TAILED_S: Final = counts(60)
ROWS: Final = 300
"""That the page keeps."""
FRAMES: Final = 50
"""A second."""
BUSY_SHARE: Final = 0.3
"""Of the time of as many frames; 0.1 was measured."""
LONGEST_MS: Final = 2_000
"""Of a task, when others have the processor in the middle of it. On a quiet machine none takes 50."""
NODES_PER_ROW: Final = 20
GROWN_BYTES: Final = 2 * 2**20
CONSOLE_BYTES: Final = 16 * 2**20
"""That the process may take more than before it was looked at."""
NOTE_LONG_TASKS: Final = """
window.longTasks_ = [];
const note = (list) => longTasks_.push(...list.getEntries().map((task) => task.duration));
new PerformanceObserver(note).observe({ type: "longtask" });
"""


ARGUMENTS: Final = ("--kafka", "127.0.0.1:0", "--control", "127.0.0.1:0")


@attrs.define(eq=False)
class Load:
    """A producer in a thread of its own, as fast as RATE and not faster."""

    address: Address
    sent: int = 0
    _enough: threading.Event = attrs.field(factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._enough.set()
            thread.join()

    def _run(self) -> None:
        begin = time.monotonic()
        with BlockingClient(self.address) as client, BlockingProducer(client) as producer:
            while not self._enough.wait(STEP_S):
                due = int((time.monotonic() - begin) * RATE) - self.sent
                for number in range(self.sent, self.sent + due):
                    producer.send(TOPIC, key=b"UA", value=b'{"flight": %d, "from": "SFO", "to": "JFK"}' % number)
                self.sent += due
                producer.flush()


@attrs.frozen
class Watched:
    server: Address
    console: str
    pid: int
    """Of the console's process."""


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with ServerFolder(tmp_path_factory.mktemp("live"), arguments=ARGUMENTS) as folder:
        server = folder.start()
        ready = json.loads(server.ready_file.read_text())
        with BlockingClient(server.address) as client:
            BlockingAdmin(client).create_topics([NewTopic(TOPIC, 1, {"segment.bytes": str(2**22)})])
        commit_offset(ready["kafka"])
        with console_process(ready["native"], "--control", ready["control"]) as (pid, console):
            yield Watched(server.address, console, pid)


def commit_offset(kafka: str) -> None:
    """Of a group that never reads on."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": PARTS["group"]})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 0)], asynchronous=False)
    consumer.close()


def resident_bytes(pid: int) -> int:
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


def wait_until_came(page: Page, records: int, deadline_s: float) -> int:
    """Wait until the tail has told of so many; answers how many there are then."""
    deadline = time.monotonic() + deadline_s
    while (came := int(re.sub(r"\D", "", page.locator(".said").inner_text().split(" came")[0]) or 0)) < records:
        assert time.monotonic() < deadline, f"{came} of {records} records came"
        page.wait_for_timeout(POLL_MS)
    return came


class Work(NamedTuple):
    """Of a page since it was opened."""

    seconds: float
    """Of the processor, in scripts, styles and layouts."""
    heap_bytes: int
    """After a collection."""
    nodes: int


def work_of(browser: CDPSession) -> Work:
    browser.send("HeapProfiler.collectGarbage")
    told = {each["name"]: each["value"] for each in browser.send("Performance.getMetrics")["metrics"]}
    seconds = told["ScriptDuration"] + told["RecalcStyleDuration"] + told["LayoutDuration"]
    return Work(seconds, int(told["JSHeapUsedSize"]), int(told["Nodes"]))


def test_a_tail_of_many_records_leaves_the_page_its_frames_and_its_memory(chromium: Browser, watched: Watched) -> None:
    load = Load(watched.server)
    with opened(chromium, watched.console) as found:
        found.page.add_init_script(NOTE_LONG_TASKS)
        page = found.go(f"/topics/{TOPIC}/records?live=1")
        expect(page.locator(".said")).to_contain_text("Live. 0 records came")
        rows = page.locator(".records tbody tr")
        before = resident_bytes(watched.pid)
        with load.running():
            came = wait_until_came(page, 5 * RATE, 60)
            expect(rows).to_have_count(ROWS)
            browser = page.context.new_cdp_session(page)
            browser.send("Performance.enable", {"timeDomain": "threadTicks"})
            first, begin = work_of(browser), time.monotonic()
            page.evaluate("longTasks_.length = 0")
            wait_until_came(page, came + TAILED_S * RATE, TAILED_S * 4)
            last, frames = work_of(browser), (time.monotonic() - begin) * FRAMES
            long_ms = page.evaluate("longTasks_")
        assert wait_until_came(page, load.sent, 60) == load.sent
        expect(rows).to_have_count(ROWS)
        expect(rows.first).to_contain_text(f'"flight": {load.sent - 1}')
        found.check_quiet()
    assert (last.seconds - first.seconds) * FRAMES / frames <= BUSY_SHARE
    assert max(long_ms, default=0) <= LONGEST_MS, long_ms
    assert last.heap_bytes - first.heap_bytes <= GROWN_BYTES
    assert last.nodes - first.nodes <= 2 * ROWS * NODES_PER_ROW
    assert resident_bytes(watched.pid) - before <= CONSOLE_BYTES


@pytest.fixture(scope="module")
def seen(chromium: Browser, watched: Watched) -> Iterator[Opened]:
    """One page for all views."""
    with opened(chromium, watched.console) as found:
        yield found


@pytest.mark.parametrize("pattern", PAGES)
def test_a_view_is_drawn_while_the_server_is_busy(seen: Opened, watched: Watched, pattern: str) -> None:
    with Load(watched.server).running():
        page = seen.show(path_of(pattern))
        expect(page.locator(".failure")).to_have_count(0)
        expect(page.locator("#state")).to_have_class("ready")
        seen.check_quiet()


def test_a_topic_grows_under_the_eyes_of_who_looks_at_it(seen: Opened, watched: Watched) -> None:
    with Load(watched.server).running():
        page = seen.show(f"/topics/{TOPIC}")
        told = page.get_by_text(re.compile(r"^1 partition · .* records")).first
        for _ in range(3):
            expect(told).not_to_have_text(told.inner_text())
        seen.check_quiet()
