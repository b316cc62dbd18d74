"""`client-metrics.json`: which metrics of clients are wanted (KIP-714), in every log directory beside `topics.json` (our own;
Kafka keeps it in its metadata log and ignores plain files in a log directory).

`{"format_version": 1, "generation": n, "subscriptions": {"name": {"key": "value"}}, "crc32c": c}`; the copy with the highest
generation counts. A copy that cannot be read keeps the server from starting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from ..disk.filesystem import FileSystem
from .checked_json import decode_checked, encode_checked
from .state_files import read_state, write_state

CLIENT_METRICS_FILE: Final = "client-metrics.json"
REMEDY: Final = "copy the one of another log directory, or of a backup, over it; without the file no metrics are asked for"


@attrs.frozen
class ClientMetricsState:
    """What the file says."""

    generation: int = 0
    overrides: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    """By name of the subscription, without those that have none."""


def encode_client_metrics(state: ClientMetricsState) -> bytes:
    subscriptions = {name: dict(sorted(keys.items())) for name, keys in sorted(state.overrides.items())}
    return encode_checked({"generation": state.generation, "subscriptions": subscriptions})


def decode_client_metrics(path: str, data: bytes) -> ClientMetricsState:
    """Raises CheckpointError naming the file and what is wrong with it."""
    return decode_checked(path, data, _state, remedy=REMEDY)


def _state(document: dict[str, Any]) -> ClientMetricsState:
    found = document["subscriptions"]
    subscriptions = {str(name): {str(key): str(value) for key, value in keys.items()} for name, keys in found.items()}
    return ClientMetricsState(int(document["generation"]), subscriptions)


def read_client_metrics(fs: FileSystem, directory: str) -> ClientMetricsState:
    """What a log directory knows; generation 0 when there is no file. Raises CheckpointError, OSError."""
    try:
        return read_state(fs, f"{directory}/{CLIENT_METRICS_FILE}", decode_client_metrics)
    except FileNotFoundError:
        return ClientMetricsState()


def write_client_metrics(fs: FileSystem, directory: str, state: ClientMetricsState, *, durable: bool) -> None:
    """Put the file in place; on the device when this returns. Raises FileTooLargeError, OSError."""
    write_state(fs, f"{directory}/{CLIENT_METRICS_FILE}", encode_client_metrics(state), durable=durable)
