"""Every row of the conformance suite: the modules that register them, in the order of the table."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from tests.clients.features import FEATURES

MODULES: Final = ("scenarios", "group_scenarios", "share_scenarios", "transaction_scenarios")

for module in MODULES:
    import_module(f"tests.clients.{module}")

__all__ = ["FEATURES"]
