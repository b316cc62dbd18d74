from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from triolog.tools.spark.demo.plot import by_local_hour, draw, sums_by_carrier
from triolog.tools.spark.demo.tables import Group, Sums

WINTER = int(datetime(2013, 1, 15, 17, tzinfo=UTC).timestamp() * 1000)
SUMMER = int(datetime(2013, 7, 15, 16, tzinfo=UTC).timestamp() * 1000)
HOURS = {Group(WINTER, "EWR", "UA"): Sums(2, 2, 10, 0, 0), Group(SUMMER, "EWR", "DL"): Sums(3, 2, 6, 0, 0)}


@pytest.fixture(scope="module", autouse=True)
def fonts_are_open(tmp_path_factory: pytest.TempPathFactory) -> None:
    """matplotlib opens its fonts when it first draws text, and keeps them open."""
    draw({}, tmp_path_factory.mktemp("fonts") / "first.png")


def test_hours_are_those_of_new_yorks_clocks_and_the_largest_carrier_comes_first() -> None:
    assert by_local_hour(HOURS)["EWR"] == {12: Sums(5, 4, 16, 0, 0)}
    assert [carrier for carrier, _ in sums_by_carrier(HOURS)] == ["DL", "UA"]


@pytest.mark.parametrize("hours", [HOURS, {}], ids=["two hours", "nothing"])
def test_the_picture_is_a_png(tmp_path: Path, hours: dict[Group, Sums]) -> None:
    draw(hours, tmp_path / "delay.png", min_flights=1)
    assert (tmp_path / "delay.png").read_bytes().startswith(b"\x89PNG\r\n")
