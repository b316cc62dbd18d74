"""Telemetry of clients: who is asked for what, what has come, and how pushes ended."""

from __future__ import annotations

from collections import Counter

import attrs

from .collected import Collected
from .instances import ClientInstances


@attrs.define(eq=False, repr=False)
class Telemetry:
    """Owner: the broker."""

    instances: ClientInstances
    collected: Collected = attrs.field(factory=Collected)
    pushes: Counter[str] = attrs.field(factory=Counter)
    """By the name of the error; NONE is what was taken."""
