from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from playwright.sync_api import Browser, expect
from triolog.protocol.native.messages import PlainRecord
from triolog.protocol.types import TopicPartition
from triolog.server.embedded import BlockingBroker
from triolog.tools.client.blocking import BlockingAdmin, BlockingClient

from .browsing import opened
from .conftest import console_of

TOPIC = "flights"
NOON_MS = 1_372_939_200_000
"""2013-07-04T12:00Z, 14:00 in the browser."""
HOUR_MS = 3_600_000
PLACE = TopicPartition(TOPIC, 0)


@attrs.frozen
class Consoled:
    address: str
    admin: BlockingAdmin = attrs.field(repr=False)


@pytest.fixture
def consoled() -> Iterator[Consoled]:
    """The console of a server whose groups `alarms` and `sharers` go on at offset 4 of ten records, one an hour up to noon."""
    with BlockingBroker(topics={TOPIC: 1}, config={"retention.ms": "-1"}) as broker:
        broker.append(TOPIC, [PlainRecord(NOON_MS - hours * HOUR_MS, None, b"UA1545") for hours in reversed(range(10))])
        with BlockingClient(broker.native) as client:
            admin = BlockingAdmin(client)
            admin.commit_group_offsets("alarms", {PLACE: 4})
            admin.alter_share_group_offsets("sharers", {PLACE: 4})
            with console_of("{}:{}".format(*broker.native), "--allow-changes") as address:
                yield Consoled(address, admin)


@pytest.mark.parametrize("group", ["alarms", "sharers"])
def test_a_group_is_reset_to_a_time(chromium: Browser, axe: Path, consoled: Consoled, group: str) -> None:
    with opened(chromium, consoled.address, axe) as found:
        page = found.go(f"/groups/{group}")
        rows = page.get_by_label("Partitions", exact=True).locator("tbody tr")
        expect(rows).to_contain_text([f"{TOPIC}0410"])
        page.get_by_role("button", name="Reset").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Time", exact=True).fill("2013-07-04T06:30")
        dialog.get_by_label("Time", exact=True).blur()
        expect(dialog.get_by_role("status")).to_have_text("2 records will be read again, 0 skipped.")
        expect(dialog.locator("tbody tr td")).to_have_text([TOPIC, "0", "4", "2", "2", "0"])
        found.check_accessible()
        dialog.get_by_label("Goes on").select_option("latest")
        expect(dialog.get_by_role("status")).to_have_text("0 records will be read again, 6 skipped.")
        dialog.get_by_label("Goes on").select_option("at")
        expect(dialog.get_by_role("status")).to_have_text("2 records will be read again, 0 skipped.")
        dialog.get_by_role("button", name="Reset").click()
        expect(rows).to_contain_text([f"{TOPIC}0210"])
        found.check_quiet()
