"""docs/operations/limits.md has every account and every fixed limit on what the server keeps, with its value and unit."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import triolog.server.system.client_memory as ledger
from triolog.server.config.broker_config import BrokerConfig

SERVER: Final = Path(ledger.__file__).parents[1]
PAGE: Final = (Path(__file__).parents[2] / "docs" / "operations" / "limits.md").read_text(encoding="utf-8")
OF_NO_CLIENT: Final = {"config", "embedded", "fake", "figures", "loop", "offline", "service", "storage", "system"}
"""Packages that keep nothing that a client names."""
OF_ONE_REQUEST: Final = {
    "logs/cleaner",
    "logs/compaction.py",
    "partitions/appender.py",
    "partitions/disk.py",
    "broker/statistics.py",
    "listeners/http",
    "listeners/connections/transport.py",
    "listeners/kafka/metadata.py",
    "listeners/native/described.py",
    "listeners/kafka/fetch.py",
    "access/users.py",
}
"""Limits on one request, answer, file or page of metrics: nothing of it is kept."""


def constants() -> Iterator[str]:
    """Every MAX_* of the packages whose objects outlive a request."""
    for package in sorted(path.name for path in SERVER.iterdir() if path.is_dir() and path.name not in OF_NO_CLIENT):
        for path in sorted((SERVER / package).rglob("*.py")):
            place = path.relative_to(SERVER).as_posix()
            if not any(place.startswith(each) for each in OF_ONE_REQUEST):
                for name in re.findall(r"^(MAX_\w+)\b.* = ", path.read_text(encoding="utf-8"), re.MULTILINE):
                    yield f"{place.removesuffix('.py').replace('/', '.')}.{name}"


def test_the_page_has_every_account_and_the_keys_of_the_ledger() -> None:
    rows = "\n".join(f"| {name} | {text} |" for name, text in ledger.ACCOUNTS.items())
    assert f"| account | has |\n|---|---|\n{rows}\n\n" in PAGE
    for key in ("max_client_memory_bytes", "max_groups", "group_max_metadata_bytes", "group_share_max_share_sessions"):
        assert f"`{key}`" in PAGE
        assert hasattr(BrokerConfig, key)


def test_the_page_has_every_fixed_limit_with_its_value_and_unit() -> None:
    rows = re.findall(r"^\| `([\w.]+\.MAX_\w+)` \| ([\d,]+) \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)
    assert sorted(name for name, *_ in rows) == sorted(constants())
    for name, value, unit, _ in rows:
        module, _, constant = name.rpartition(".")
        assert f"{getattr(importlib.import_module(f'triolog.server.{module}'), constant):,}" == value, name
        assert re.match(r"[a-zA-Z]", unit), name
