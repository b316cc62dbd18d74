"""Rules from a YAML file (`triolog serve --faults FILE`).

faults:
  - {api: Produce, topic: orders, error: NOT_LEADER_OR_FOLLOWER, times: 3}
  - {api: Fetch, client_id: "report-*", delay_ms: 250, probability: 0.1, seed: 7}
disk_faults:
  - {effect: delay, operation: sync, delay_ms: 50}
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from .faults.disk_faults import DiskFaults
from .faults.faults import Faults
from .faults.rules import RuleError
from .views.fault_views import FaultsView

LISTS: Final = ("faults", "disk_faults")


def read_rules(path: str) -> dict[str, list[dict[str, Any]]]:
    """The lists of a file. Raises RuleError, OSError."""
    import yaml

    try:
        told = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as exc:  # ValueError: no UTF-8, a number of thousands of digits
        raise RuleError(f"{path} is not YAML: {exc}") from None
    if not isinstance(told, dict) or (unknown := told.keys() - set(LISTS)):
        raise RuleError(
            f"{path}: expected {' and '.join(LISTS)}, found {sorted(unknown) if isinstance(told, dict) else told!r}"
        )
    for name in LISTS:
        rules = told.get(name) or []
        if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
            raise RuleError(f"{path}: {name} is not a list of rules")
    return {name: told.get(name) or [] for name in LISTS}


def check_rules(path: str) -> None:
    """Raises what `add_rules` raises."""
    add_rules(path, FaultsView(Faults(), DiskFaults()))


def add_rules(path: str, faults: FaultsView) -> int:
    """Let the rules of a file stand, and answer how many they are. Raises RuleError, naming the rule, and OSError."""
    lists = read_rules(path)
    for name, add in (("faults", faults.add_rule), ("disk_faults", faults.add_disk_rule)):
        for number, rule in enumerate(lists[name], 1):
            try:
                add(rule)
            except RuleError as exc:
                raise RuleError(f"{path}: rule {number} of {name}: {exc}") from None
    return sum(map(len, lists.values()))
