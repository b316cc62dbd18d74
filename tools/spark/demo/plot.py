"""Delay by hour of New York's clocks, as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from math import nan
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from ...demo.flights import AIRPORTS, NEW_YORK
from .tables import NOTHING, Group, Sums, together

COLOURS: Final = ("#1b6ca8", "#d1495b", "#66a182")
DAY: Final = (*range(4, 24), *range(4))
"""The hours in the order of an airport's day: what leaves after midnight was late the evening before."""
MIN_FLIGHTS: Final = 30
"""The mean of fewer says nothing; such an hour is left out of a line."""


def by_local_hour(hours: Mapping[Group, Sums]) -> dict[str, dict[int, Sums]]:
    """Return airport -> hour of the day -> sums. The zones differ by whole hours."""
    zone = ZoneInfo(NEW_YORK)
    found: dict[str, dict[int, Sums]] = {airport: {} for airport in AIRPORTS}
    for group, sums in hours.items():
        hour = datetime.fromtimestamp(group.hour_ms / 1000, zone).hour
        airport = found.setdefault(group.origin, {})
        airport[hour] = airport.get(hour, NOTHING).plus(sums)
    return found


def sums_by_carrier(hours: Mapping[Group, Sums]) -> list[tuple[str, Sums]]:
    """Return the carriers with their sums, the largest first."""
    found: dict[str, Sums] = {}
    for group, sums in hours.items():
        found[group.carrier] = found.get(group.carrier, NOTHING).plus(sums)
    return sorted(found.items(), key=lambda item: (-item[1].flights, item[0]))


def draw(hours: Mapping[Group, Sums], path: Path, *, min_flights: int = MIN_FLIGHTS) -> None:
    """Write the picture as PNG: above the mean delay by hour and airport, below the departures of that hour."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    airports = by_local_hour(hours)
    figure = Figure(figsize=(10, 6.5), layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": (3, 1)})
    bottom = [0] * len(DAY)
    for (airport, of_hour), colour in zip(airports.items(), COLOURS, strict=False):
        found = [of_hour.get(hour, NOTHING) for hour in DAY]
        means = [nan if sums.departed < min_flights else sums.mean_delay for sums in found]
        above.plot(range(len(DAY)), means, marker="o", color=colour, label=airport)
        heights = [sums.departed for sums in found]
        below.bar(range(len(DAY)), heights, bottom=bottom, color=colour, width=0.8)
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    total = together(hours.values())
    above.set_title(f"Departures from New York, 2013: mean delay by hour ({total.flights:,} flights)")
    above.set_ylabel("mean delay, minutes")
    above.axhline(0, color="0.7", linewidth=0.8)
    above.legend(frameon=False, loc="upper left")
    above.grid(axis="y", alpha=0.3)
    below.set_ylabel("departures")
    below.yaxis.set_major_formatter(lambda count, _: f"{count:,.0f}")
    below.set_xlabel(f"hour of actual departure, {NEW_YORK} (means of fewer than {min_flights} flights are left out)")
    below.set_xticks(range(0, len(DAY), 2), [f"{hour:02d}:00" for hour in DAY[::2]])
    below.set_xlim(-0.7, 23.7)
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
