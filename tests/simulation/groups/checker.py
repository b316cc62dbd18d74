"""Every anomaly in what members of groups, and those who stage records, did and were told."""

from __future__ import annotations

from collections.abc import Iterable

from ..checker import Anomaly
from ..history import Event
from .deliveries import deliveries
from .offsets import mixed_offsets, offsets
from .ownership import ownership, processed
from .stages import stages


def check_groups(events: Iterable[Event]) -> list[Anomaly]:
    """None: every promise was kept."""
    events = list(events)
    found: list[Anomaly] = []
    for part in (ownership, processed, offsets, mixed_offsets, deliveries, stages):
        found += part(events)
    return found
