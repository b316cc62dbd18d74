from __future__ import annotations

import trio
from triolog.tools.client.admin import Admin
from triolog.tools.client.config import ClientConfig
from triolog.tools.client.connection import connect
from triolog.tools.console.watching.history import CountedBefore

from .conftest import Shown, told


async def test_who_is_connected_with_what(shown: Shown) -> None:
    async with connect(*shown.broker.native, config=ClientConfig(client_id="<b>me</b>")) as client:
        await Admin(client).alter_quotas({"client-id": "slow"}, {"producer_byte_rate": 1000.0})
        page = await told(shown.browser, "/connections")
        names = {each["client_id"]: each for each in page["connections"]}
        assert names.keys() == {"triolog-console", "<b>me</b>"}
        mine = names["<b>me</b>"]
        assert (mine["protocol"], mine["is_encrypted"], mine["is_throttled"]) == ("native", False, False)
        assert mine["requests_per_second"] is None  # asked for the first time
        assert page["quotas"] == [{"entity": {"client-id": "slow"}, "values": {"producer_byte_rate": 1000.0}}]
        assert "<b>" not in (await shown.browser.open("/connections")).text
        with trio.fail_after(60):
            while not next(each for each in page["connections"] if each["client_id"] == mine["client_id"])[
                "requests_per_second"
            ]:
                await Admin(client).list_topics()
                page = await told(shown.browser, "/connections")


def test_rates_are_those_since_the_last_count() -> None:
    counted = CountedBefore()
    assert counted.rates("a", {"requests": 10}, 1000) == {"requests_per_second": None}
    counted.keep({"a": {"requests": 10, "sent_bytes": -1}}, 1000)
    assert counted.rates("a", {"requests": 30, "sent_bytes": -1}, 3000) == {
        "requests_per_second": 10,
        "sent_bytes_per_second": None,
    }
    counted.keep({"a": {"requests": 11}}, 1100)  # too soon to count from
    assert counted.rates("a", {"requests": 30}, 3000) == {"requests_per_second": 10}
    assert counted.rates("b", {"requests": 30}, 3000) == {"requests_per_second": None}
