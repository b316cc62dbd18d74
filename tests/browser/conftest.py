"""A real browser, where there is one, and consoles for it to look at."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from triolog.protocol.errors import TopicAlreadyExistsError
from triolog.protocol.native.messages import NewTopic
from triolog.tools.client.blocking.admin import BlockingAdmin
from triolog.tools.client.blocking.client import BlockingClient
from triolog.tools.client.blocking.producer import BlockingProducer

from tests.clients.external_programs import ProgramUnavailableError, axe_core, unavailable
from tests.support.server_process import COMMAND, Address, environment

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """For the tests of one file only: while it is open its thread has a loop of asyncio that other tests would trip over."""
    try:
        from playwright.sync_api import expect, sync_playwright
    except ImportError:
        unavailable("Playwright is not installed: pip install playwright")
    from .browsing import PATIENCE_MS, chromium_path, launched

    if (path := chromium_path()) is None:
        unavailable("there is no Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = launched(playwright, path)
        expect.set_options(timeout=PATIENCE_MS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def axe() -> Path:
    """The script that finds what keeps people out of a page."""
    try:
        return axe_core()
    except ProgramUnavailableError as exc:
        unavailable(str(exc))


@contextmanager
def console_of(server: str, *options: str, folder: Path | None = None) -> Iterator[str]:
    """`triolog console` of that server, for the time of the block, in `folder` or where we are: its address."""
    with console_process(server, *options, folder=folder) as (_, address):
        yield address


@contextmanager
def console_process(server: str, *options: str, folder: Path | None = None) -> Iterator[tuple[int, str]]:
    """The same: the process, and its address."""
    command = [*COMMAND, "console", "--server", server, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(), cwd=folder) as process:
        try:
            yield process.pid, process.stdout.readline().split("/")[2]
        finally:
            process.terminate()


def produce(address: Address, topic: str, *values: bytes) -> None:
    """Into a topic that is created where it does not exist."""
    with BlockingClient(address) as client, BlockingProducer(client) as producer:
        with suppress(TopicAlreadyExistsError):
            BlockingAdmin(client).create_topics([NewTopic(topic, 1)])
        for value in values:
            producer.send(topic, value=value)
        producer.flush()
