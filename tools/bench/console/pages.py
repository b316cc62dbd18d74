"""A console and browsers of it: over HTTP, and in a real Chromium where there is one."""

from __future__ import annotations

import http.client
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from ..measuring.child import say_started
from ..measuring.measure import percentile
from ..measuring.process import memory_mib
from ..measuring.server import COMMAND
from ..measuring.wire import Address, Wire

LINK: Final = re.compile(r'(?:href|src)="(/static/[^"]+)"')
STEP: Final = """(key) => new Promise((told) => {
  const log = document.querySelector(".walk-log"), way = document.querySelector(".walk-way"), begin = performance.now();
  new MutationObserver((_, watching) => {
    watching.disconnect();
    requestAnimationFrame(() => told(performance.now() - begin));
  }).observe(way, { childList: true });
  log.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
})"""
"""Moves the handle of the time walk by a key; answers the ms until the way is drawn."""


def make_topics(*, address: Address, count: int) -> int:
    """Topics of one partition without a record; answers how many."""
    with Wire(address) as wire:
        for number in range(count):
            wire.create_topic(f"topic-{number:04}")
    return count


@contextmanager
def console_of(address: Address) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A `triolog console`: the process, and HOST:PORT of its page."""
    command = [*COMMAND, "console", "--server", f"{address[0]}:{address[1]}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().split()[0].removeprefix("http://").rstrip("/")
        finally:
            process.terminate()


def open_page(*, address: Address, rounds: int) -> dict[str, Any]:
    """What a browser asks for until it can show the topics; `mib`: of the console's process afterwards."""
    took_ms, size = [], 0
    with console_of(address) as (process, page):
        for _ in range(rounds + 1):
            begin, size = time.perf_counter(), 0
            browser = http.client.HTTPConnection(page)
            wanted = ["/topics"]
            for path in wanted:  # it grows: what the page names
                browser.request("GET", path)
                answer = browser.getresponse()
                content = answer.read()
                size += len(content)
                if answer.status != http.client.OK:
                    raise OSError(f"{path}: {answer.status}")
                if path == "/topics":
                    wanted += LINK.findall(content.decode())
            took_ms.append((time.perf_counter() - begin) * 1000)
            browser.close()
        return {"ms": took_ms[1:], "bytes": size, "mib": memory_mib(process.pid)["VmRSS"]}


def walk(*, address: Address, topic: str, steps: int, first: int, last: int) -> dict[str, Any]:
    """A handle that is dragged from one end of the time axis to the other: answers over HTTP, p50 and p95 in ms."""
    took_ms = []
    with console_of(address) as (_, page):
        browser = http.client.HTTPConnection(page)
        for number in range(steps):
            at = first + (last - first) * number // steps
            begin = time.perf_counter()
            browser.request("GET", f"/api/topics/{topic}/walk?partition=0&at={at}&segments=0")
            answer = browser.getresponse()
            answer.read()
            took_ms.append((time.perf_counter() - begin) * 1000)
            if answer.status != http.client.OK:
                raise OSError(f"the walk to {at}: {answer.status}")
        browser.close()
    return {"p50_ms": statistics.median(took_ms), "p95_ms": percentile(took_ms, 0.95)}


def watch(*, address: Address) -> int:
    """One browser watches until standard input ends; answers how many bytes it was told."""
    with console_of(address) as (_, page):
        browser = http.client.HTTPConnection(page)
        browser.request("GET", "/api/events")
        answer = browser.getresponse()
        size = len(answer.read1(65536))
        say_started()
        sys.stdin.read()
        browser.close()
    return size


def find_chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def look(*, address: Address, topic: str, rounds: int, steps: int) -> dict[str, Any]:
    """In Chromium: from a URL to the topics in a table, with nothing cached, and from a move of the time walk's handle to the
    way drawn, in ms."""
    from playwright.sync_api import sync_playwright

    opened, drawn = [], []
    with console_of(address) as (_, page), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium())
        for _ in range(rounds + 1):
            tab = browser.new_page()
            begin = time.perf_counter()
            tab.goto(f"http://{page}/topics", wait_until="commit")
            tab.wait_for_selector("table tbody tr")
            opened.append((time.perf_counter() - begin) * 1000)
            tab.close()
        tab = browser.new_page()
        tab.goto(f"http://{page}/topics/{topic}/walk?partition=0")
        tab.wait_for_selector(".walk-way path")
        for number in range(steps):
            drawn.append(tab.evaluate(STEP, "ArrowRight" if number % 400 < 200 else "ArrowLeft"))
        browser.close()
    return {"opened_ms": opened[1:], "drawn_p50_ms": statistics.median(drawn), "drawn_p95_ms": percentile(drawn, 0.95)}
