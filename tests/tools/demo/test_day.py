from __future__ import annotations

from datetime import UTC, datetime

from triolog.protocol.types import Record
from triolog.tools.demo.day import DAY_END, DAY_START, DayReader, FlightsLine, by_carrier, by_hour

HOUR_MS = 3_600_000


def record(row: int, timestamp: int, *, carrier: str = "UA", delay: str = "2", offset: int = 0) -> Record:
    value = f'{{"carrier":"{carrier}","dep_delay":{delay}}}'.encode()
    return Record(offset, timestamp, None, value, (("row", b"%d" % row),))


def test_the_day_and_its_hours_are_those_of_new_yorks_summer_time() -> None:
    assert datetime.fromtimestamp(DAY_START / 1000, UTC) == datetime(2013, 7, 4, 4, tzinfo=UTC)
    assert datetime.fromtimestamp(DAY_END / 1000, UTC) == datetime(2013, 7, 5, 4, tzinfo=UTC)
    records = [record(1, DAY_START + 13 * HOUR_MS), record(2, DAY_START), record(3, DAY_END - 1), record(4, DAY_START + 1)]
    assert [(line.label, line.flights) for line in by_hour(records)] == [("00:00", 2), ("13:00", 1), ("23:00", 1)]


def test_records_of_the_day_are_found_wherever_they_lie_and_a_repeated_row_counts_once() -> None:
    day = DayReader(100, 200)
    day.add([record(1, 500), record(2, 199), record(3, 200)])
    day.add([record(4, 100), record(5, 99), record(6, 150)])
    assert sorted(day.departures) == [b"2", b"4", b"6"]
    assert (day.consumed_count, day.found_count) == (6, 3)
    day = DayReader(100, 200)
    day.add([record(1, 150, offset=0), record(1, 150, offset=7)])
    assert (day.found_count, len(day.departures)) == (2, 1)
    assert by_carrier(day.departures.values()) == [FlightsLine("UA", 1, 0, 2.0)]


def test_carriers_are_told_with_mean_delays_of_those_that_left() -> None:
    records = [
        record(1, 0, carrier="AA", delay="10"),
        record(2, 0, carrier="B6", delay="-4"),
        record(3, 0, carrier="B6", delay="null"),
        record(4, 0, carrier="B6", delay="9"),
        record(5, 0, carrier="9E", delay="null"),
    ]
    assert by_carrier(records) == [FlightsLine("B6", 3, 1, 2.5), FlightsLine("9E", 1, 1, None), FlightsLine("AA", 1, 0, 10.0)]
