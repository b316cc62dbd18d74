"""Every anomaly in what members of groups, and those who stage records, did and were told."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from ..checker import Anomaly
from ..history import Event, Lost
from .deliveries import deliveries
from .offsets import mixed_offsets, offsets
from .ownership import ownership, processed
from .stages import stages


def check_groups(events: Iterable[Event]) -> list[Anomaly]:
    """None: every promise was kept. Ownership is judged up to the first loss, the rest only where nothing is lost."""
    events = list(events)
    whole = list(itertools.takewhile(lambda event: not isinstance(event, Lost), events))
    found = [anomaly for part in (ownership, processed) for anomaly in part(whole)]
    if len(whole) == len(events):
        found += [anomaly for part in (offsets, mixed_offsets, deliveries, stages) for anomaly in part(events)]
    return found
